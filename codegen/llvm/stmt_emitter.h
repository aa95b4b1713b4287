// StmtEmitter: statements of a kernel body to LLVM IR. Outside of a lane context it vectorises the innermost axis of
// loops and reductions; inside of one (a vector of points) it runs them serially.
#pragma once

#include "codegen/llvm/expr_emitter.h"
#include "codegen/llvm/kernel_rewrite.h"

namespace ingot::cpu {

class StmtEmitter {
 public:
  StmtEmitter(IrTools& ir, ExprEmitter& exprs, const Machine& machine) : ir_(ir), ex_(exprs), machine_(machine) {}

  void emit_body(const Body& body);

  /// Runs `body` for var in [low, high), several values at a time; `extent` (when constant) bounds high - low.
  void lane_loop(const Expr& var, const Expr& extent, llvm::Value* low, llvm::Value* high, const Body& body);
  /// Lanes of f32: what loops are vectorised by.
  int full_width() const { return machine_.vector_bytes / 4; }
  int width_for(const Expr& extent) const;
  llvm::Value* scalar_value(const Expr& e) { return ex_.value(e); }

 private:
  struct Accumulator {
    llvm::Value* best = nullptr;  // variable: the value
    llvm::Value* where = nullptr;  // variable: its position (ArgMax, ArgMin)
  };
  void emit_stmt(const Stmt& stmt);
  void emit_store(const Store& s);
  void emit_loop(const Loop& s);
  void emit_if(const If& s);
  void emit_reduce(const Reduce& s);
  llvm::Value* reduce_serial(const Reduce& s);
  llvm::Value* reduce_lanes(const Reduce& s);
  llvm::Value* fold_lanes(Combine combine, DType type, llvm::Value* v);
  void update_extreme(const Reduce& s, const Accumulator& acc, llvm::Value* x, llvm::Value* position);
  void serial_loops(const std::vector<Axis>& axes, size_t first, const std::function<void()>& body);
  void lane_chunks(const std::string& symbol, int width, llvm::Value* low, llvm::Value* high, bool masked,
                   const std::function<void()>& body);
  struct Interior {
    llvm::Value *low, *high;
  };
  Interior interior_of(const std::vector<Expr>& guards, const std::string& symbol, llvm::Value* low, llvm::Value* high);
  void split_loop(const Expr& var, int width, llvm::Value* low, llvm::Value* high, const Guards& guards,
                  const std::function<void()>& body);

  IrTools& ir_;
  ExprEmitter& ex_;
  const Machine& machine_;
};

}  // namespace ingot::cpu
