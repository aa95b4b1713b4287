// The simplifier and the interval analysis of Expr. Integer expressions are brought to a sum of products, so that shapes
// compare by content: N*2+N and 3*N are the same dimension, and ((n*C + c)*8 + x) floor_div 8 is n*C + c.
#pragma once

#include "compiler/expr/expr.h"

namespace ingot {

/// An equal expression, usually smaller. Uses the ranges of symbols; idempotent.
Expr simplify(const Expr& e);

struct Interval {
  int64_t low = -kNoLimit, high = kNoLimit;  // inclusive; ±kNoLimit when unknown
};
/// Bounds of an integer expression from the ranges of its symbols.
Interval bounds_of(const Expr& e);

/// True only when proven from ranges and extents (an index i in [0, E) proves i < E for symbolic E).
bool proves_equal(const Expr& a, const Expr& b);
bool proves_less(const Expr& a, const Expr& b);        // a < b
bool proves_nonnegative(const Expr& a);

/// If e is base + coefficient * symbol with a base free of `symbol`: the coefficient; nullopt otherwise.
std::optional<Expr> linear_coefficient(const Expr& e, const std::string& symbol);
/// True when the symbol of that name occurs in e.
bool depends_on(const Expr& e, const std::string& symbol);

}  // namespace ingot
