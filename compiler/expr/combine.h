// How a reduction combines values. Shared by operator rows and the kernel IR.
#pragma once

#include "compiler/expr/expr.h"

namespace ingot {

enum class Combine : uint8_t { Sum, Product, Max, Min, And, Or, ArgMax, ArgMin };
const char* name_of(Combine combine);
/// The value that changes nothing: 0, 1, -inf or the lowest integer, …; meaningless for ArgMax and ArgMin.
Expr identity_of(Combine combine, DType type);
/// a combined with b (not for ArgMax, ArgMin).
Expr combine_pair(Combine combine, const Expr& a, const Expr& b);

}  // namespace ingot
