#include "compiler/expr/combine.h"

#include <cmath>
#include <limits>

#include "compiler/support/result.h"

namespace ingot {

const char* name_of(Combine combine) {
  static constexpr const char* kNames[] = {"sum", "product", "max", "min", "and", "or", "argmax", "argmin"};
  return kNames[static_cast<size_t>(combine)];
}

namespace {
int64_t integer_limit(DType type, bool lowest) {
  if (type == DType::Bool) return lowest ? 0 : 1;
  if (type == DType::U64) return lowest ? 0 : -1;
  const int bits = static_cast<int>(size_of(type)) * 8;
  if (is_signed(type)) return lowest ? INT64_MIN >> (64 - bits) : INT64_MAX >> (64 - bits);
  return lowest ? 0 : static_cast<int64_t>((uint64_t{1} << bits) - 1);
}
}  // namespace

Expr identity_of(Combine combine, DType type) {
  switch (combine) {
    case Combine::Sum:
    case Combine::Or: return Expr::number(type, 0);
    case Combine::Product:
    case Combine::And: return Expr::number(type, 1);
    case Combine::Max: return is_float(type) ? Expr::real(type, -INFINITY) : Expr::integer(type, integer_limit(type, true));
    case Combine::Min: return is_float(type) ? Expr::real(type, INFINITY) : Expr::integer(type, integer_limit(type, false));
    default: return Expr::number(type, 0);
  }
}

Expr combine_pair(Combine combine, const Expr& a, const Expr& b) {
  switch (combine) {
    case Combine::Sum: return a + b;
    case Combine::Product: return a * b;
    case Combine::Max: return max(a, b);
    case Combine::Min: return min(a, b);
    case Combine::And: return bitwise(ExprOp::And, a, b);
    case Combine::Or: return bitwise(ExprOp::Or, a, b);
    default: INGOT_CHECK(false, "combine_pair: ArgMax and ArgMin have no scalar pair"); return a;
  }
}

}  // namespace ingot
