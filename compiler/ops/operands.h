// What passes and lowering both have to see of a product's operands.
#pragma once

#include "compiler/ir/graph.h"

namespace ingot {

/// A float of 8 bits that tensor cores multiply.
inline bool is_f8(DType type) { return type == DType::F8E4M3 || type == DType::F8E5M2; }

/// What an operand of a product is stored as: the narrow type behind a Cast that only widens it, or its own.
/// `through_factors`: also behind a constant factor, which the product is scaled by instead.
DType operand_type(const Graph& body, ValueId v, bool through_factors = false);

}  // namespace ingot
