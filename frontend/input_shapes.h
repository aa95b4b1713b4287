// The types of a model's inputs: dimensions that are numbers stay so, all others become named symbols with ranges, as the
// model and the options say. Used by onnx_import.cpp only.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "compiler/ir/type.h"
#include "frontend/onnx_import.h"

namespace ingot {

namespace onnx {
class ValueInfo;
}

class InputShapes {
 public:
  explicit InputShapes(const ImportOptions& options) : options_(options) {}

  /// The types of the inputs, in their order. Error: one has no tensor type or no shape, or the options contradict the
  /// model or one another.
  Result<std::vector<TensorType>> resolve(const std::vector<const onnx::ValueInfo*>& inputs);
  /// The symbols in the types, in the order of first use.
  const std::vector<Expr>& symbols() const { return symbols_; }

 private:
  struct Dim {
    std::optional<int64_t> number;
    std::string name;  // of the symbol otherwise
  };
  struct Input {
    std::string name;
    DType dtype = DType::F32;
    std::vector<Dim> dims;
  };
  Result<Input> read(const onnx::ValueInfo& info);
  Status apply_texts(Input& input, const std::vector<std::string>& texts);
  Status apply_text(const Input& input, size_t position, const std::string& text, Dim& dim);
  Status narrow(const std::string& symbol, SymbolRange range);
  Status apply_ranges();
  Result<TensorType> type_of(const Input& input);
  Expr symbol(const std::string& name);
  std::string fresh(const std::string& wanted);

  const ImportOptions& options_;
  std::map<std::string, std::string> params_;  // the model's name of a dimension -> ours
  std::map<std::string, std::string> renamed_;  // ours -> what the options call it
  std::set<std::string> taken_;
  std::map<std::string, SymbolRange> ranges_;
  std::vector<Expr> symbols_;
};

}  // namespace ingot
