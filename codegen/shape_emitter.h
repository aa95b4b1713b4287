// Exprs -> lines of a runtime::ShapeProgram, each distinct subexpression once.
#pragma once

#include <unordered_map>
#include <vector>

#include "compiler/expr/expr.h"
#include "runtime/shape_program.h"

namespace ingot {

class ShapeEmitter {
 public:
  /// `symbols` gives each symbol's number in the program, `derived` what other symbols stand for.
  ShapeEmitter(runtime::ShapeProgram& program, std::unordered_map<std::string, int32_t> symbols,
               std::unordered_map<std::string, Expr> derived = {})
      : program_(program), symbols_(std::move(symbols)), derived_(std::move(derived)) {}
  /// The line that holds e. Error: a symbol that no input defines, or an operation that shapes cannot have.
  Result<runtime::ShapeRef> emit(const Expr& e);

 private:
  runtime::ShapeRef add(runtime::ShapeLine line);
  Result<runtime::ShapeRef> emit_new(const Expr& e);
  runtime::ShapeRef emit_cast(DType to, DType from, runtime::ShapeRef value);
  runtime::ShapeProgram& program_;
  std::unordered_map<std::string, int32_t> symbols_;
  std::unordered_map<std::string, Expr> derived_;
  std::unordered_map<uint64_t, std::vector<std::pair<Expr, runtime::ShapeRef>>> known_;
};

}  // namespace ingot
