// Elements of tensors in another order: what folding would ask the interpreter for, element by element, of weights that may be
// gigabytes.
#pragma once

#include <span>

#include "compiler/support/tensor.h"

namespace ingot {

/// Dimension d of the result is dimension perm[d] of the tensor.
Tensor transposed(const Tensor& from, const std::vector<int64_t>& perm);
/// The tensors one after the other along the axis; they agree in everything else.
Tensor concatenated(std::span<const TensorPtr> parts, size_t axis);

}  // namespace ingot
