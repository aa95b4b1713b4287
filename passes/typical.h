// Numbers to compare symbolic sizes by, where a plan must be made before shapes are known.
#pragma once

#include "compiler/ir/graph.h"

namespace ingot {

/// The value with every symbol at a typical value of its range; 0 when it cannot be evaluated.
int64_t typical(const Expr& e);
/// Bytes of a tensor at typical sizes.
int64_t typical_bytes(const TensorType& type);

}  // namespace ingot
