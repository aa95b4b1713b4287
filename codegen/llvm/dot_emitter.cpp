// The part of ContractEmitter for few rows with both operands contiguous in k: vectors along k, four columns at a time,
// each sum folded at the end. The matrix is read once and in order.
#include "codegen/llvm/contract_emitter.h"
#include "codegen/llvm/math_emitter.h"
#include "compiler/expr/simplify.h"

namespace ingot::cpu {

using llvm::Value;

namespace {
constexpr int kColumns = 4;
}

void ContractEmitter::dot_tile(const Panel& panel, Value* row, int rows, Value* c) {
  ir_.loop(ir_.i64(0), panel.count, kColumns, [&](Value* column) {
    ExprEmitter::Scope scope(ex_);
    dot_columns(panel, row, rows, column, c);
  });
}

void ContractEmitter::dot_columns(const Panel& panel, Value* row, int rows, Value* column, Value* c) {
  auto& b = ir_.b;
  const Axis inner = p_.c.k.back();
  const std::vector<Axis> outer(p_.c.k.begin(), p_.c.k.end() - 1);
  std::vector<Value*> sums;
  for (int i = 0; i < rows * kColumns; ++i) {
    sums.push_back(ir_.variable(vector_type()));
    b.CreateStore(llvm::Constant::getNullValue(vector_type()), sums.back());
  }
  Value* first = b.CreateAdd(panel.first, column);
  const auto along_inner = [&] {
    Value* extent = ex_.value(inner.extent);
    Value* middle = b.CreateMul(b.CreateUDiv(extent, ir_.i64(p_.width)), ir_.i64(p_.width));
    const auto step = [&](Value* k, Value* mask) {
      ExprEmitter::LaneScope lanes(ex_, {inner.var.name(), p_.width, k, mask});
      dot_step(row, rows, first, sums);
    };
    ir_.loop(ir_.i64(0), middle, p_.width, [&](Value* k) { step(k, nullptr); });
    ir_.loop(middle, extent, p_.width, [&](Value* k) { step(k, ir_.first_lanes(b.CreateSub(extent, k), p_.width)); });
  };
  Expr outer_count = total_extent(outer);
  if (outer.empty()) along_inner();
  else
    ir_.loop(ir_.i64(0), ex_.value(outer_count), 1, [&](Value* i) {
      ExprEmitter::Scope scope(ex_);
      bind_position(ir_, ex_, outer, i);
      along_inner();
    });
  for (int i = 0; i < rows; ++i)
    for (int j = 0; j < kColumns; ++j) {
      Value* sum = b.CreateLoad(vector_type(), sums[static_cast<size_t>(i * kColumns + j)]);
      for (int half = p_.width / 2; half > 0; half /= 2) {
        std::vector<int> upper(static_cast<size_t>(p_.width), -1);
        for (int l = 0; l < half; ++l) upper[static_cast<size_t>(l)] = half + l;
        sum = combine_values(ir_, Combine::Sum, p_.type, sum, b.CreateShuffleVector(sum, upper));
      }
      Value* at = b.CreateAdd(ir_.i64(i * p_.panel() + j), column);
      b.CreateAlignedStore(b.CreateExtractElement(sum, uint64_t{0}), element_at(c, at), element_align());
    }
}

/// Adds one vector of k positions to rows x 4 sums. Columns past the end repeat the last one; nothing reads their sums.
void ContractEmitter::dot_step(Value* row, int rows, Value* first, const std::vector<Value*>& sums) {
  auto& b = ir_.b;
  const auto masked = [&](Value* x) {
    Value* mask = ex_.lanes().mask;
    return mask ? b.CreateSelect(mask, x, llvm::Constant::getNullValue(x->getType())) : x;
  };
  std::vector<Value*> left;
  for (int i = 0; i < rows; ++i) {
    ExprEmitter::Scope scope(ex_);
    bind_position(ir_, ex_, p_.c.m, b.CreateAdd(row, ir_.i64(i)));
    left.push_back(masked(ex_.vector(p_.c.a)));
  }
  Value* most = b.CreateSub(ex_.value(p_.n), ir_.i64(1));
  for (int j = 0; j < kColumns; ++j) {
    ExprEmitter::Scope scope(ex_);
    bind_position(ir_, ex_, p_.c.n, ir_.min(b.CreateAdd(first, ir_.i64(j)), most));
    Value* right = masked(ex_.vector(p_.c.b));
    for (int i = 0; i < rows; ++i) {
      Value* variable = sums[static_cast<size_t>(i * kColumns + j)];
      Value* old = b.CreateLoad(vector_type(), variable);
      b.CreateStore(multiply_add(left[static_cast<size_t>(i)], right, old), variable);
    }
  }
}

}  // namespace ingot::cpu
