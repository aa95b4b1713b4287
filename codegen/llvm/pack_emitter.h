// Panels of a contraction's operands: the elements of a (or b) for some k positions and one side's positions, copied to
// scratch as panel[k][side] so that the multiply loop reads memory in order.
#pragma once

#include "codegen/llvm/expr_emitter.h"
#include "codegen/llvm/kernel_rewrite.h"

namespace ingot::cpu {

/// Binds the symbols of `axes` to the coordinates of a flattened position.
void bind_position(IrTools& ir, ExprEmitter& ex, const std::vector<Axis>& axes, llvm::Value* flat);

/// Visits [first, first + count) of the flattened `axes` as runs along the last axis, outer axes bound:
/// visit(offset from first, start on the last axis, length).
void for_runs(IrTools& ir, ExprEmitter& ex, const std::vector<Axis>& axes, llvm::Value* first, llvm::Value* count,
              const std::function<void(llvm::Value* offset, llvm::Value* start, llvm::Value* length)>& visit);

struct PackJob {
  Expr element;
  std::vector<Axis> side, k;
  int width = 8;  // lanes
  llvm::Value *first = nullptr, *count = nullptr;  // positions of the side
  llvm::Value *k_first = nullptr, *k_count = nullptr;  // null: all of k
  llvm::Value* to = nullptr;
  int64_t stride = 0;  // elements of one k row of the panel
};

class PackEmitter {
 public:
  PackEmitter(IrTools& ir, ExprEmitter& ex) : ir_(ir), ex_(ex) {}
  void emit(const PackJob& job);

 private:
  using KBody = std::function<void(llvm::Value* k)>;  // k: row of the panel
  void for_k(const PackJob& job, const KBody& body);
  void along_side(const PackJob& job);
  llvm::Value* interior(const PackJob& job, llvm::Value* base, int width, std::vector<Expr>& known);
  void along_k(const PackJob& job);
  void k_chunk(const PackJob& job, llvm::Value* group, llvm::Value* row, llvm::Value* k, llvm::Value* mask);
  std::vector<llvm::Value*> transpose(std::vector<llvm::Value*> rows);
  void store_row(const PackJob& job, llvm::Value* v, llvm::Value* row, llvm::Value* column, llvm::Value* mask);

  IrTools& ir_;
  ExprEmitter& ex_;
};

}  // namespace ingot::cpu
