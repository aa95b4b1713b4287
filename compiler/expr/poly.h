// Poly: an i64 expression as a sum of products of atoms, the normal form behind simplify.h. Internal to compiler/expr.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "compiler/expr/expr.h"

namespace ingot {

using Monomial = std::vector<Expr>;  // atoms in canonical order, with repetition; empty: the constant term
struct MonomialLess {
  bool operator()(const Monomial& a, const Monomial& b) const;
};

struct Poly {
  std::map<Monomial, int64_t, MonomialLess> terms;

  void add(const Monomial& m, int64_t coefficient);
  void add(const Poly& other, int64_t scale = 1);
  Poly times(const Poly& other) const;
  bool is_zero() const { return terms.empty(); }
  std::optional<int64_t> constant() const;
};

/// The beginning of to_string(e). The text of a deep expression, whose parts share much, is longer than memory: where text
/// gives an order, this much of it has to do.
std::string text_prefix(const Expr& e, size_t length);

/// `e` must be i64; operands of atoms are simplified.
Poly to_poly(const Expr& e);
Expr from_poly(const Poly& p);
/// The quotient and rest of p by the single term of `divisor`: p = quotient*divisor + rest; nullopt if it has several.
struct Division { Poly quotient, rest; };
std::optional<Division> divide(const Poly& p, const Poly& divisor);
/// True when p >= 0 follows from the ranges of its symbols and the extents of its indices.
bool poly_nonnegative(const Poly& p, int depth = 6);

}  // namespace ingot
