#include "compiler/expr/simplify.h"

#include <algorithm>

#include "compiler/expr/poly.h"

namespace ingot {
namespace {

int64_t clamp(__int128 v) {
  if (v > kNoLimit) return kNoLimit;
  if (v < -kNoLimit) return -kNoLimit;
  return static_cast<int64_t>(v);
}
bool open(int64_t v) { return v >= kNoLimit || v <= -kNoLimit; }

Interval multiply(Interval a, Interval b) {
  if (open(a.low) || open(a.high) || open(b.low) || open(b.high)) {
    if (a.low >= 0 && b.low >= 0 && !open(a.low) && !open(b.low)) return {clamp(static_cast<__int128>(a.low) * b.low), kNoLimit};
    return {};
  }
  const __int128 c[] = {static_cast<__int128>(a.low) * b.low, static_cast<__int128>(a.low) * b.high,
                        static_cast<__int128>(a.high) * b.low, static_cast<__int128>(a.high) * b.high};
  return {clamp(*std::min_element(c, c + 4)), clamp(*std::max_element(c, c + 4))};
}
int64_t floor_of(int64_t a, int64_t b) {
  if (open(a)) return a;
  return a >= 0 ? a / b : -((-a + b - 1) / b);
}
Interval storage_range(DType type) {
  switch (type) {
    case DType::Bool: return {0, 1};
    case DType::U8: return {0, 255};
    case DType::I8: return {-128, 127};
    case DType::U16: return {0, 65535};
    case DType::I16: return {-32768, 32767};
    case DType::U32: return {0, UINT32_MAX};
    case DType::I32: return {INT32_MIN, INT32_MAX};
    default: return {};
  }
}

/// A comparison of i64 values that the ranges decide.
Expr decide(const Expr& e) {
  if (e.arg(0).type() != DType::I64) return e;
  const Expr &a = e.arg(0), &b = e.arg(1);
  switch (e.op()) {
    case ExprOp::Lt:
      if (proves_less(a, b)) return Expr::boolean(true);
      if (proves_nonnegative(a - b)) return Expr::boolean(false);
      return e;
    case ExprOp::Le:
      if (proves_nonnegative(b - a)) return Expr::boolean(true);
      if (proves_less(b, a)) return Expr::boolean(false);
      return e;
    case ExprOp::Eq:
    case ExprOp::Ne: {
      const bool is_eq = e.op() == ExprOp::Eq;
      if (proves_equal(a, b)) return Expr::boolean(is_eq);
      if (proves_less(a, b) || proves_less(b, a)) return Expr::boolean(!is_eq);
      return e;
    }
    default: return e;
  }
}

}  // namespace

namespace {
Interval make_bounds(const Expr& e);
}  // namespace

Interval bounds_of(const Expr& e) {
  if (e.args().empty()) return make_bounds(e);
  thread_local std::unordered_map<uint64_t, std::pair<Expr, Interval>> memo;
  auto it = memo.find(e.hash());
  if (it != memo.end() && it->second.first.same(e)) return it->second.second;
  const Interval range = make_bounds(e);
  if (memo.size() > 50000) memo.clear();
  memo.insert_or_assign(e.hash(), std::make_pair(e, range));
  return range;
}

namespace {
Interval make_bounds(const Expr& e) {
  switch (e.op()) {
    case ExprOp::Const: return is_float(e.type()) ? Interval{} : Interval{e.int_value(), e.int_value()};
    case ExprOp::Symbol: {
      if (e.type() != DType::I64) return storage_range(e.type());
      if (Expr x = e.extent(); x.valid()) {
        const int64_t high = bounds_of(x).high;
        return {0, open(high) ? kNoLimit : std::max<int64_t>(high - 1, 0)};
      }
      return {e.low(), e.high()};
    }
    case ExprOp::Add: {
      const Interval a = bounds_of(e.arg(0)), b = bounds_of(e.arg(1));
      return {open(a.low) || open(b.low) ? -kNoLimit : clamp(static_cast<__int128>(a.low) + b.low),
              open(a.high) || open(b.high) ? kNoLimit : clamp(static_cast<__int128>(a.high) + b.high)};
    }
    case ExprOp::Sub: {
      const Interval a = bounds_of(e.arg(0)), b = bounds_of(e.arg(1));
      return {open(a.low) || open(b.high) ? -kNoLimit : clamp(static_cast<__int128>(a.low) - b.high),
              open(a.high) || open(b.low) ? kNoLimit : clamp(static_cast<__int128>(a.high) - b.low)};
    }
    case ExprOp::Mul: return multiply(bounds_of(e.arg(0)), bounds_of(e.arg(1)));
    case ExprOp::FloorDiv: {
      const Interval a = bounds_of(e.arg(0)), b = bounds_of(e.arg(1));
      if (b.low <= 0) return {};
      if (auto c = e.arg(1).as_int()) return {floor_of(a.low, *c), floor_of(a.high, *c)};
      return a.low >= 0 && !open(a.low) ? Interval{0, a.high} : Interval{};
    }
    case ExprOp::FloorMod: {
      const Interval b = bounds_of(e.arg(1));
      return b.low > 0 ? Interval{0, open(b.high) ? kNoLimit : b.high - 1} : Interval{};
    }
    case ExprOp::Min: {
      const Interval a = bounds_of(e.arg(0)), b = bounds_of(e.arg(1));
      return {std::min(a.low, b.low), std::min(a.high, b.high)};
    }
    case ExprOp::Max: {
      const Interval a = bounds_of(e.arg(0)), b = bounds_of(e.arg(1));
      return {std::max(a.low, b.low), std::max(a.high, b.high)};
    }
    case ExprOp::Select: {
      const Interval a = bounds_of(e.arg(1)), b = bounds_of(e.arg(2));
      return {std::min(a.low, b.low), std::max(a.high, b.high)};
    }
    case ExprOp::Cast: {
      const Interval s = storage_range(e.arg(0).type());
      return open(s.low) && open(s.high) ? Interval{} : s;
    }
    default: return storage_range(e.type());
  }
}
}  // namespace

namespace {
using Memo = std::unordered_map<const void*, Expr>;

Expr simplify_memo(const Expr& x, Memo& memo) {
  if (x.args().empty()) return x;
  if (auto it = memo.find(x.id()); it != memo.end()) return it->second;
  Expr result;
  if (x.type() == DType::I64 && x.op() != ExprOp::Load && x.op() != ExprOp::Read) {
    result = from_poly(to_poly(x));
  } else {
    std::vector<Expr> args;
    for (const Expr& a : x.args()) args.push_back(simplify_memo(a, memo));
    result = rebuild(x, args);
    if (result.op() >= ExprOp::Eq && result.op() <= ExprOp::Le && !result.args().empty()) result = decide(result);
  }
  memo.emplace(x.id(), result);
  return result;
}
}  // namespace

Expr simplify(const Expr& e) {
  Memo memo;
  return simplify_memo(e, memo);
}

bool proves_nonnegative(const Expr& a) {
  if (bounds_of(a).low >= 0) return true;
  return a.type() == DType::I64 && poly_nonnegative(to_poly(a));
}
bool proves_less(const Expr& a, const Expr& b) {
  const Interval ia = bounds_of(a), ib = bounds_of(b);
  if (!open(ia.high) && !open(ib.low) && ia.high < ib.low) return true;
  if (a.type() != DType::I64 || b.type() != DType::I64) return false;
  Poly p = to_poly(b);
  p.add(to_poly(a), -1);
  p.add(Monomial{}, -1);
  return poly_nonnegative(p);
}
bool proves_equal(const Expr& a, const Expr& b) {
  if (a.same(b)) return true;
  if (a.type() != DType::I64 || b.type() != DType::I64) return false;
  Poly p = to_poly(a);
  p.add(to_poly(b), -1);
  return p.is_zero();
}

bool depends_on(const Expr& e, const std::string& symbol) {
  bool found = false;
  visit(e, [&](const Expr& x) { found |= x.op() == ExprOp::Symbol && x.name() == symbol; });
  return found;
}

std::optional<Expr> linear_coefficient(const Expr& e, const std::string& symbol) {
  if (!depends_on(e, symbol)) return Expr(0);
  if (e.type() != DType::I64) return std::nullopt;
  Poly coefficient;
  for (const auto& [m, c] : to_poly(e).terms) {
    Monomial rest;
    int uses = 0;
    for (const Expr& a : m) {
      if (a.op() == ExprOp::Symbol && a.name() == symbol) { ++uses; continue; }
      if (depends_on(a, symbol)) return std::nullopt;
      rest.push_back(a);
    }
    if (uses > 1) return std::nullopt;
    if (uses == 1) coefficient.add(rest, c);
  }
  return from_poly(coefficient);
}

}  // namespace ingot
