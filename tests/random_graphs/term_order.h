// Sums and products whose terms may be taken in any order: what the worst order makes of elements that are finite in exact
// arithmetic, and leave the type's range on the way.
#pragma once

#include <vector>

#include "compiler/driver/reference.h"
#include "compiler/expr/combine.h"

namespace ingot::testing {

struct TermOrder {
  Combine combine = Combine::Sum;
  int64_t terms = 0;  // of an element; 0: nothing is combined
  bool mean = false;  // the sum is divided by their number
  DType type = DType::F32;  // in which it is computed
};

/// Elements of `outputs` (f64, what `lowered` made of `inputs`) that some order takes out of range become infinite, or, where
/// a product may vanish on the way, zero; NaN where it may do both.
Status apply_worst_order(const TermOrder& order, const NodeKernel& lowered, const std::vector<Tensor*>& inputs,
                         const std::vector<Tensor*>& outputs);

}  // namespace ingot::testing
