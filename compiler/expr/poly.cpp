#include "compiler/expr/poly.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <set>
#include <unordered_map>
#include <utility>

#include "compiler/expr/simplify.h"

namespace ingot {
namespace {

constexpr size_t kTextOrder = 256;  // characters

bool atom_less(const Expr& a, const Expr& b) {
  if (a.hash() != b.hash()) return a.hash() < b.hash();
  return !a.same(b) && text_prefix(a, 16 * kTextOrder) < text_prefix(b, 16 * kTextOrder);
}

/// As people read them: by text, and where the texts are long and begin alike, by content.
struct NamedAtom {
  std::string text;
  Expr atom;
  bool operator<(const NamedAtom& o) const { return text != o.text ? text < o.text : atom.hash() < o.atom.hash(); }
};

Monomial multiply(const Monomial& a, const Monomial& b) {
  Monomial m = a;
  m.insert(m.end(), b.begin(), b.end());
  std::sort(m.begin(), m.end(), atom_less);
  return m;
}

/// m without the atoms of `part`; nullopt when one is missing.
std::optional<Monomial> without(const Monomial& m, const Monomial& part) {
  Monomial rest = m;
  for (const Expr& atom : part) {
    auto it = std::find_if(rest.begin(), rest.end(), [&](const Expr& x) { return x.same(atom); });
    if (it == rest.end()) return std::nullopt;
    rest.erase(it);
  }
  return rest;
}

// i64 arithmetic wraps, as the expressions do.
int64_t wrapping_add(int64_t a, int64_t b) { return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b)); }
int64_t wrapping_mul(int64_t a, int64_t b) { return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b)); }

Poly constant_poly(int64_t c) {
  Poly p;
  p.add(Monomial{}, c);
  return p;
}
Poly atom_poly(const Expr& atom) {
  Poly p;
  p.add(Monomial{atom}, 1);
  return p;
}

/// Turns k*M*(x mod y) + k*M*y*(x div y) into k*M*x wherever both stand in p.
bool rejoin_division(Poly& p) {
  for (const auto& [mono, coefficient] : p.terms)
    for (const Expr& atom : mono) {
      if (atom.op() != ExprOp::FloorMod) continue;
      const Poly y = to_poly(atom.arg(1));
      if (y.terms.size() != 1) continue;
      const Monomial rest = *without(mono, {atom});
      const Poly quotient = to_poly(floor_div(atom.arg(0), atom.arg(1)));  // of a quotient: by both divisors at once
      if (quotient.terms.size() != 1 || quotient.terms.begin()->second != 1) continue;
      const Monomial partner = multiply(multiply(rest, y.terms.begin()->first), quotient.terms.begin()->first);
      auto it = p.terms.find(partner);
      if (it == p.terms.end() || it->second != coefficient * y.terms.begin()->second) continue;
      Poly x = to_poly(atom.arg(0)), scaled;
      for (const auto& [m, c] : x.terms) scaled.add(multiply(m, rest), c);
      const int64_t k = coefficient;
      const Monomial self = mono;
      p.terms.erase(partner);
      p.terms.erase(self);
      p.add(scaled, k);
      return true;
    }
  return false;
}

/// (g*q + low) div (g*d) is q div d, and mod g*(q mod d) + low, for 0 <= low < g: a flat position of rows of g elements.
bool divide_by_content(const Poly& x, const Poly& y, int64_t g, bool is_div, Poly& result) {
  Poly q, low, d;
  for (const auto& [atoms, coefficient] : x.terms) {
    if (coefficient % g == 0) q.add(atoms, coefficient / g);
    else low.add(atoms, coefficient);
  }
  for (const auto& [atoms, coefficient] : y.terms) d.add(atoms, coefficient / g);
  Poly above = constant_poly(g - 1);
  above.add(low, -1);
  if (!poly_nonnegative(low) || !poly_nonnegative(above)) return false;
  const Expr high = from_poly(q), by = from_poly(d);
  if (is_div) {
    result.add(to_poly(floor_div(high, by)));
  } else {
    result.add(to_poly(floor_mod(high, by)), g);
    result.add(low);
  }
  return true;
}

/// The same with the rows that the divisor's coefficients have in common, or, of a number, those of a term of x.
bool divide_by_rows(const Poly& x, const Poly& y, bool is_div, Poly& result) {
  int64_t content = 0;
  for (const auto& [atoms, coefficient] : y.terms) content = std::gcd(content, coefficient);
  if (content <= 1) return false;
  if (!y.constant()) return divide_by_content(x, y, content, is_div, result);
  std::set<int64_t, std::greater<>> rows;
  for (const auto& [atoms, coefficient] : x.terms)
    if (!atoms.empty()) rows.insert(std::gcd(coefficient, content));
  for (int64_t g : rows)
    if (g > 1 && g < content && divide_by_content(x, y, g, is_div, result)) return true;
  return false;
}

/// (g*q + low) div (g*c) is q div c, and mod g*(q mod c) + low, for 0 <= low < g, where g is `part` of the dims: a flat position
/// of rows as long as the dims say. `count` is what the divisor counts of the dims.
bool divide_by_part(const Poly& x, const Monomial& dims, int64_t count, int64_t part, bool is_div, Poly& result) {
  Poly q, low, above;
  for (const auto& [atoms, coefficient] : x.terms) {
    const auto rest = without(atoms, dims);
    if (rest && coefficient % part == 0) q.add(*rest, coefficient / part);
    else low.add(atoms, coefficient);
  }
  above.add(dims, part);
  above.add(Monomial{}, -1);
  above.add(low, -1);
  if (!poly_nonnegative(low) || !poly_nonnegative(above)) return false;
  const Expr high = from_poly(q), by(count / part);
  if (is_div) {
    result.add(to_poly(floor_div(high, by)));
    return true;
  }
  for (const auto& [atoms, coefficient] : to_poly(floor_mod(high, by)).terms) result.add(multiply(atoms, dims), wrapping_mul(coefficient, part));
  result.add(low);
  return true;
}
bool divide_by_dims(const Poly& x, const Poly& y, bool is_div, Poly& result) {
  if (y.terms.size() != 1) return false;
  const auto& [dims, count] = *y.terms.begin();
  if (dims.empty() || count <= 1) return false;
  std::set<int64_t, std::greater<>> parts;
  for (const auto& [atoms, coefficient] : x.terms)
    if (without(atoms, dims)) parts.insert(std::gcd(coefficient, count));
  for (int64_t part : parts)
    if (part < count && divide_by_part(x, dims, count, part, is_div, result)) return true;
  return false;
}

Poly division_poly(const Expr& e) {
  const bool is_div = e.op() == ExprOp::FloorDiv;
  const Poly x = to_poly(e.arg(0)), y = to_poly(e.arg(1));
  const auto c = y.constant();
  if (c && *c == 0) return constant_poly(0);
  const auto division = divide(x, y);
  Poly rest = division ? division->rest : x;
  Poly result;
  if (division && is_div) result = division->quotient;
  Poly below = y;
  below.add(rest, -1);
  below.add(Monomial{}, -1);
  if (poly_nonnegative(rest) && poly_nonnegative(below)) {  // 0 <= rest < y
    if (!is_div) result.add(rest);
    return result;
  }
  if ((!c || *c > 0) && divide_by_rows(rest, y, is_div, result)) return result;
  if (divide_by_dims(rest, y, is_div, result)) return result;
  const Expr r = from_poly(rest), d = from_poly(y);
  if (auto rc = rest.constant(); rc && c) {
    result.add(to_poly(is_div ? floor_div(*rc, *c) : floor_mod(*rc, *c)));
    return result;
  }
  // (x div a + c) div b is (x + c*a) div (a*b): chains of strided layers stay one division.
  if (is_div && c && *c > 0 && rest.terms.size() == 2) {
    const auto& [low_atoms, low] = *rest.terms.begin();
    const auto& [high_atoms, high] = *std::next(rest.terms.begin());
    if (low_atoms.empty() && high == 1 && high_atoms.size() == 1 && high_atoms[0].op() == ExprOp::FloorDiv)
      if (auto inner = high_atoms[0].arg(1).as_int(); inner && *inner > 0) {
        result.add(to_poly(floor_div(high_atoms[0].arg(0) + low * *inner, *inner * *c)));
        return result;
      }
  }
  // (a div b) div c is a div (b*c); (a mod (b*c)) mod c is a mod c.
  if (c && *c > 0 && r.op() == e.op())
    if (auto inner = r.arg(1).as_int(); inner && *inner > 0) {
      if (is_div) { result.add(to_poly(floor_div(r.arg(0), *inner * *c))); return result; }
      if (*inner % *c == 0) { result.add(to_poly(floor_mod(r.arg(0), *c))); return result; }
    }
  result.add(atom_poly(is_div ? floor_div(r, d) : floor_mod(r, d)));
  return result;
}

Poly extreme_poly(const Expr& e) {
  const bool is_min = e.op() == ExprOp::Min;
  const Expr a = from_poly(to_poly(e.arg(0))), b = from_poly(to_poly(e.arg(1)));
  Poly d = to_poly(b);
  d.add(to_poly(a), -1);  // b - a
  if (poly_nonnegative(d)) return to_poly(is_min ? a : b);
  Poly n;
  n.add(d, -1);
  if (poly_nonnegative(n)) return to_poly(is_min ? b : a);
  return atom_poly(is_min ? min(a, b) : max(a, b));
}

}  // namespace

bool MonomialLess::operator()(const Monomial& a, const Monomial& b) const {
  return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end(), atom_less);
}

void Poly::add(const Monomial& m, int64_t coefficient) {
  if (coefficient == 0) return;
  auto [it, inserted] = terms.emplace(m, coefficient);
  if (!inserted && (it->second = wrapping_add(it->second, coefficient)) == 0) terms.erase(it);
}
void Poly::add(const Poly& other, int64_t scale) {
  for (const auto& [m, c] : other.terms) add(m, wrapping_mul(c, scale));
}
Poly Poly::times(const Poly& other) const {
  Poly p;
  for (const auto& [ma, ca] : terms)
    for (const auto& [mb, cb] : other.terms) p.add(multiply(ma, mb), wrapping_mul(ca, cb));
  return p;
}
std::optional<int64_t> Poly::constant() const {
  if (terms.empty()) return 0;
  if (terms.size() == 1 && terms.begin()->first.empty()) return terms.begin()->second;
  return std::nullopt;
}

std::optional<Division> divide(const Poly& p, const Poly& divisor) {
  if (divisor.terms.size() != 1) return std::nullopt;
  const auto& [dm, dc] = *divisor.terms.begin();
  if (dc <= 0) return std::nullopt;
  Division result;
  for (const auto& [m, c] : p.terms) {
    const auto rest = without(m, dm);
    if (!rest) { result.rest.add(m, c); continue; }
    const int64_t q = floor_div(c, dc).int_value();
    result.quotient.add(*rest, q);
    result.rest.add(m, wrapping_add(c, -wrapping_mul(q, dc)));
  }
  return result;
}

namespace {
// A proof may try bounds of atoms in many orders; what is not found in this many steps is taken as not provable.
constexpr int kProofSteps = 120;
thread_local int proof_steps = 0;
struct ProofScope {
  bool outer = proof_steps == 0;
  ProofScope() { ++proof_steps; }
  ~ProofScope() { if (outer) proof_steps = 0; }
};
}  // namespace

namespace {
Poly make_poly(const Expr& e);

/// Shapes of deep models share subexpressions many times over; each is worked out once. Keyed by content (which includes
/// the ranges of symbols), so entries never go stale; dropped as a whole when they grow many.
template <class T>
struct ExprMemo {
  std::unordered_map<uint64_t, std::vector<std::pair<Expr, T>>> entries;
  size_t count = 0;
  const T* find(const Expr& e) const {
    auto it = entries.find(e.hash());
    if (it == entries.end()) return nullptr;
    for (const auto& [known, value] : it->second)
      if (known.same(e)) return &value;
    return nullptr;
  }
  void add(const Expr& e, const T& value) {
    if (++count > 50000) entries.clear(), count = 0;
    entries[e.hash()].emplace_back(e, value);
  }
};
}  // namespace

Poly to_poly(const Expr& e) {
  if (e.is_const() || e.op() == ExprOp::Symbol) return make_poly(e);
  thread_local ExprMemo<Poly> memo;
  if (const Poly* known = memo.find(e)) return *known;
  // A count of its own: the normal form must not depend on who asks, or the memo would hold what history made of it.
  const int outer_steps = std::exchange(proof_steps, 0);
  Poly p = make_poly(e);
  proof_steps = outer_steps;
  memo.add(e, p);
  return p;
}

namespace {
Poly make_poly(const Expr& e) {
  switch (e.op()) {
    case ExprOp::Const: return constant_poly(e.int_value());
    case ExprOp::Add:
    case ExprOp::Sub: {
      Poly p = to_poly(e.arg(0));
      p.add(to_poly(e.arg(1)), e.op() == ExprOp::Add ? 1 : -1);
      while (rejoin_division(p)) {}
      return p;
    }
    case ExprOp::Mul: return to_poly(e.arg(0)).times(to_poly(e.arg(1)));
    case ExprOp::FloorDiv:
    case ExprOp::FloorMod: return division_poly(e);
    case ExprOp::Min:
    case ExprOp::Max: return extreme_poly(e);
    case ExprOp::Div:
    case ExprOp::Rem:  // of non-negative numbers these are the floor forms
      if (proves_nonnegative(e.arg(0)) && proves_less(0, e.arg(1)))
        return division_poly(e.op() == ExprOp::Div ? floor_div(e.arg(0), e.arg(1)) : floor_mod(e.arg(0), e.arg(1)));
      [[fallthrough]];
    default: {
      if (e.op() == ExprOp::Symbol) return atom_poly(e);
      std::vector<Expr> args;
      for (const Expr& a : e.args()) args.push_back(simplify(a));
      const Expr s = rebuild(e, args);
      const bool arithmetic = s.op() >= ExprOp::Add && s.op() <= ExprOp::Mul;
      return s.op() == ExprOp::Const ? constant_poly(s.int_value()) : arithmetic ? to_poly(s) : atom_poly(s);
    }
  }
}
}  // namespace

Expr from_poly(const Poly& p) {
  struct Term { std::vector<NamedAtom> atoms; int64_t coefficient; };
  std::vector<Term> terms;
  for (const auto& [m, c] : p.terms) {
    Term t{{}, c};
    for (const Expr& a : m) t.atoms.push_back({text_prefix(a, kTextOrder), a});
    std::sort(t.atoms.begin(), t.atoms.end());
    terms.push_back(std::move(t));
  }
  std::sort(terms.begin(), terms.end(), [](const Term& a, const Term& b) {
    if ((a.coefficient < 0) != (b.coefficient < 0)) return b.coefficient < 0;
    return a.atoms.size() != b.atoms.size() ? a.atoms.size() > b.atoms.size() : a.atoms < b.atoms;
  });
  Expr sum;
  for (const Term& t : terms) {
    const bool subtract = sum.valid() && t.coefficient < 0;
    Expr e;
    for (const NamedAtom& a : t.atoms) e = e.valid() ? e * a.atom : a.atom;
    const int64_t c = subtract ? -t.coefficient : t.coefficient;
    e = e.valid() ? (c == 1 ? e : e * Expr(c)) : Expr(c);
    sum = !sum.valid() ? e : subtract ? sum - e : sum + e;
  }
  return sum.valid() ? sum : Expr(0);
}

namespace {

/// p with `atom` replaced by `value` in its linear occurrences; nullopt when it occurs squared.
std::optional<Poly> replace_linear(const Poly& p, const Expr& atom, const Poly& value) {
  Poly result;
  for (const auto& [m, c] : p.terms) {
    const auto rest = without(m, {atom});
    if (!rest) { result.add(m, c); continue; }
    if (without(*rest, {atom})) return std::nullopt;
    Poly factor;
    factor.add(*rest, c);
    result.add(factor.times(value));
  }
  return result;
}

/// The coefficient polynomial of `atom`.
Poly coefficient_of(const Poly& p, const Expr& atom) {
  Poly result;
  for (const auto& [m, c] : p.terms)
    if (auto rest = without(m, {atom})) result.add(*rest, c);
  return result;
}

Poly negated(const Poly& p) {
  Poly n;
  n.add(p, -1);
  return n;
}

/// Symbols shifted to start at zero: all coefficients non-negative then proves p >= 0.
bool nonnegative_after_shift(const Poly& p) {
  Poly shifted = p;
  for (int round = 0; round < 16; ++round) {
    Expr found;
    for (const auto& [m, c] : shifted.terms)
      for (const Expr& a : m)
        if (a.op() == ExprOp::Symbol && !a.extent().valid() && a.low() > 0 && !found.valid()) found = a;
    if (!found.valid()) break;
    Poly value;
    value.add(Monomial{Expr::symbol(found.name() + "'", 0)}, 1);
    value.add(Monomial{}, found.low());
    Poly next;
    for (const auto& [m, c] : shifted.terms) {
      Poly factor = constant_poly(c);
      for (const Expr& a : m) factor = factor.times(a.same(found) ? value : atom_poly(a));
      next.add(factor);
    }
    shifted = next;
  }
  for (const auto& [m, c] : shifted.terms) {
    if (c < 0) return false;
    for (const Expr& a : m)
      if (bounds_of(a).low < 0) return false;
  }
  return true;
}

/// A lower bound of p through an atom of known range: tries each atom once.
bool nonnegative_by_atom(const Poly& p, const Expr& atom, int depth) {
  const Poly coefficient = coefficient_of(p, atom);
  std::vector<Poly> lows, highs;  // any one of `lows` bounds the atom from below
  if (Expr extent = atom.extent(); extent.valid()) {
    lows.push_back(constant_poly(0));
    Poly high = to_poly(extent);
    high.add(Monomial{}, -1);
    highs.push_back(high);
  } else if (atom.op() == ExprOp::FloorMod) {
    lows.push_back(constant_poly(0));
    Poly high = to_poly(atom.arg(1));
    high.add(Monomial{}, -1);
    highs.push_back(high);
  } else if (atom.op() == ExprOp::Min) {
    highs = {to_poly(atom.arg(0)), to_poly(atom.arg(1))};
  } else if (atom.op() == ExprOp::Max) {
    lows = {to_poly(atom.arg(0)), to_poly(atom.arg(1))};
  } else if (atom.op() == ExprOp::FloorDiv) {  // y*(x div y) <= x, for a coefficient that y divides
    const Poly y = to_poly(atom.arg(1));
    if (auto by = divide(negated(coefficient), y); by && by->rest.is_zero() && poly_nonnegative(by->quotient, depth - 1)) {
      Poly q;
      for (const auto& [m, c] : p.terms)
        if (!without(m, {atom})) q.add(m, c);
      q.add(by->quotient.times(to_poly(atom.arg(0))), -1);
      return poly_nonnegative(q, depth - 1);
    }
    if (poly_nonnegative(to_poly(atom.arg(0)), depth - 1)) lows.push_back(constant_poly(0));
    if (const int64_t high = bounds_of(atom).high; high < kNoLimit) highs.push_back(constant_poly(high));
  } else if (atom.op() == ExprOp::Symbol && atom.high() < kNoLimit) {
    highs.push_back(constant_poly(atom.high()));
    lows.push_back(constant_poly(atom.low()));
  } else {
    return false;
  }
  const bool rising = !lows.empty() && poly_nonnegative(coefficient, depth - 1);
  const bool falling = !rising && !highs.empty() && poly_nonnegative(negated(coefficient), depth - 1);
  for (const Poly& bound : rising ? lows : falling ? highs : std::vector<Poly>{})
    if (auto q = replace_linear(p, atom, bound); q && poly_nonnegative(*q, depth - 1)) return true;
  return false;
}

}  // namespace

bool poly_nonnegative(const Poly& p, int depth) {
  if (auto c = p.constant()) return *c >= 0;
  const ProofScope scope;
  if (proof_steps > kProofSteps) return false;
  if (nonnegative_after_shift(p)) return true;
  if (depth <= 0) return false;
  std::vector<Expr> atoms;
  for (const auto& [m, c] : p.terms)
    for (const Expr& a : m)
      if (std::none_of(atoms.begin(), atoms.end(), [&](const Expr& x) { return x.same(a); })) atoms.push_back(a);
  // Indices first: their extents cancel against dimensions, which must still be symbolic then.
  std::stable_sort(atoms.begin(), atoms.end(), [](const Expr& a, const Expr& b) {
    return a.extent().valid() > b.extent().valid();
  });
  for (const Expr& atom : atoms) {
    if (nonnegative_by_atom(p, atom, depth)) return true;
    if (atom.extent().valid() && atoms.size() > 4) return false;  // one order of indices is tried in large sums
  }
  return false;
}

}  // namespace ingot
