#include "passes/typical.h"

#include <algorithm>

#include "compiler/expr/simplify.h"

namespace ingot {

int64_t typical(const Expr& e) {
  std::unordered_map<std::string, int64_t> at;
  visit(e, [&](const Expr& x) {
    if (x.op() == ExprOp::Symbol)
      at[x.name()] = std::clamp<int64_t>(64, std::max<int64_t>(x.low(), 1), std::max<int64_t>(x.high(), 1));
  });
  return evaluate_int(e, at).value_or(0);
}

int64_t typical_bytes(const TensorType& type) {
  return typical(element_count(type.shape)) * static_cast<int64_t>(size_of(type.dtype));
}

}  // namespace ingot
