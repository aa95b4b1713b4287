// Index arithmetic of ExprEmitter in 32-bit lanes. A gather's index is split into a 64-bit uniform part and a varying
// part; where ranges prove the latter small, it takes half the registers and the gather takes half the instructions.
#include <algorithm>
#include <cmath>
#include <limits>

#include "codegen/llvm/expr_emitter.h"
#include "codegen/llvm/math_emitter.h"
#include "compiler/expr/simplify.h"

namespace ingot::cpu {

using llvm::Value;

namespace {

constexpr int64_t kSmall = int64_t{1} << 30;

/// A closed range of a float expression; unknown ends are infinite, `nan` when it may be NaN.
struct Range {
  double low = -INFINITY, high = INFINITY;
  bool nan = true;
};

Range range_of(const Expr& e);

Range range_of_sum(const Expr& e) {
  const Range a = range_of(e.arg(0)), b = range_of(e.arg(1));
  if (e.op() == ExprOp::Add) return {a.low + b.low, a.high + b.high, a.nan || b.nan};
  return {a.low - b.high, a.high - b.low, a.nan || b.nan};
}

Range range_of_product(const Expr& e) {
  Range a = range_of(e.arg(0)), b = range_of(e.arg(1));
  if (!is_float(e.type())) return {};
  if (!e.arg(1).is_const()) std::swap(a, b);
  const bool scales = b.low == b.high && b.low != 0 && std::isfinite(b.low) && !b.nan;
  if (!scales || (e.op() == ExprOp::Div && !e.arg(1).is_const())) return {};
  const double factor = e.op() == ExprOp::Div ? 1 / b.low : b.low;
  return {std::min(a.low * factor, a.high * factor), std::max(a.low * factor, a.high * factor), a.nan};
}

Range range_of(const Expr& e) {
  switch (e.op()) {
    case ExprOp::Const: {
      const double v = e.float_value();
      return {v, v, std::isnan(v)};
    }
    case ExprOp::Cast: {
      if (is_float(e.arg(0).type())) return range_of(e.arg(0));
      const Interval i = bounds_of(e.arg(0));
      if (std::abs(i.low) >= kSmall || std::abs(i.high) >= kSmall) return {-INFINITY, INFINITY, false};
      return {static_cast<double>(i.low), static_cast<double>(i.high), false};
    }
    case ExprOp::Add:
    case ExprOp::Sub: return range_of_sum(e);
    case ExprOp::Mul:
    case ExprOp::Div: return range_of_product(e);
    case ExprOp::Min:
    case ExprOp::Max: {
      const Range a = range_of(e.arg(0)), b = range_of(e.arg(1));
      const bool least = e.op() == ExprOp::Min;
      return {least ? std::min(a.low, b.low) : std::max(a.low, b.low),
              least ? std::min(a.high, b.high) : std::max(a.high, b.high), a.nan || b.nan};
    }
    case ExprOp::Call: {
      const Range a = range_of(e.arg(0));
      if (e.fn() == Fn::Floor || e.fn() == Fn::Ceil || e.fn() == Fn::Round)
        return {std::floor(a.low), std::ceil(a.high), a.nan};
      return {};
    }
    default: return {};
  }
}

void terms(const Expr& e, std::vector<Expr>& out) {
  if (e.op() != ExprOp::Add) return out.push_back(e);
  terms(e.arg(0), out);
  terms(e.arg(1), out);
}

/// bounds_of, which also sees through casts from floats.
Range index_range(const Expr& e) {
  const auto corners = [](double a, double b, double c, double d) {
    return Range{std::min({a, b, c, d}), std::max({a, b, c, d}), false};
  };
  switch (e.op()) {
    case ExprOp::Cast:
      if (is_float(e.arg(0).type())) return range_of(e.arg(0));
      break;
    case ExprOp::Add:
    case ExprOp::Sub:
    case ExprOp::Mul:
    case ExprOp::Min:
    case ExprOp::Max: {
      const Range a = index_range(e.arg(0)), b = index_range(e.arg(1));
      if (e.op() == ExprOp::Add) return {a.low + b.low, a.high + b.high, false};
      if (e.op() == ExprOp::Sub) return {a.low - b.high, a.high - b.low, false};
      if (e.op() == ExprOp::Mul) return corners(a.low * b.low, a.low * b.high, a.high * b.low, a.high * b.high);
      if (e.op() == ExprOp::Min) return {std::min(a.low, b.low), std::min(a.high, b.high), false};
      return {std::max(a.low, b.low), std::max(a.high, b.high), false};
    }
    default: break;
  }
  const Interval i = bounds_of(e);
  return {static_cast<double>(i.low), static_cast<double>(i.high), false};
}

double magnitude(const Expr& e) {
  const Range r = index_range(e);
  return std::max(std::abs(r.low), std::abs(r.high));  // NaN (0 * infinity) fails every comparison
}
bool is_small(const Expr& e) { return magnitude(e) < static_cast<double>(kSmall); }

}  // namespace

bool is_small_number(const Expr& e) {
  const Range r = range_of(e);
  return !r.nan && r.low > -kSmall && r.high < kSmall;
}

/// True when the varying i64 expression can be computed in 32 bits throughout.
bool ExprEmitter::is_narrow(const Expr& e) {
  if (e.type() != DType::I64) return false;
  if (e.op() == ExprOp::Cast && is_float(e.arg(0).type())) return is_small_number(e.arg(0));
  if (!varies(e)) return !has_load(e) && is_small(e);
  switch (e.op()) {
    case ExprOp::Symbol: return e.name() == lanes_.symbol && is_small(e);
    case ExprOp::Add:
    case ExprOp::Sub:
    case ExprOp::Mul:
    case ExprOp::Min:
    case ExprOp::Max: return is_small(e) && is_narrow(e.arg(0)) && is_narrow(e.arg(1));
    case ExprOp::FloorDiv:
    case ExprOp::FloorMod: return e.arg(1).as_int().value_or(0) > 0 && is_narrow(e.arg(0)) && is_narrow(e.arg(1));
    default: return false;
  }
}

Value* ExprEmitter::narrow_binary(const Expr& e) {
  Value *a = narrow(e.arg(0)), *b = narrow(e.arg(1));
  switch (e.op()) {
    case ExprOp::Add: return ir_.b.CreateAdd(a, b);
    case ExprOp::Sub: return ir_.b.CreateSub(a, b);
    case ExprOp::Mul: return ir_.b.CreateMul(a, b);
    case ExprOp::Min: return minimum(ir_, DType::I32, a, b);
    case ExprOp::Max: return maximum(ir_, DType::I32, a, b);
    default: return divide(ir_, e.op(), DType::I32, a, b);
  }
}

Value* ExprEmitter::narrow(const Expr& e) {
  llvm::Type* i32 = ir_.b.getInt32Ty();
  if (!varies(e)) return ir_.widen(ir_.b.CreateTrunc(value(e), i32), lanes_.width);
  if (e.op() == ExprOp::Symbol)
    return ir_.b.CreateAdd(ir_.widen(ir_.b.CreateTrunc(lanes_.base, i32), lanes_.width),
                           ir_.lane_numbers(i32, lanes_.width));
  if (e.op() == ExprOp::Cast) return ir_.b.CreateFPToSI(vector(e.arg(0)), ir_.vector_of(i32, lanes_.width));
  return narrow_binary(e);
}

/// Pointers of a gather with a 32-bit varying part, or null when that is not proven to fit.
Value* ExprEmitter::narrow_address(const BufferRef& ref, const Expr& index) {
  std::vector<Expr> parts;
  terms(index, parts);
  Value* uniform = ir_.i64(0);
  Value* varying = nullptr;
  double most = 0;
  for (const Expr& part : parts) {
    if (!varies(part)) continue;
    if (!is_narrow(part)) return nullptr;
    most += magnitude(part);
  }
  if (!(most < 2.0 * static_cast<double>(kSmall))) return nullptr;
  for (const Expr& part : parts) {
    if (!varies(part)) uniform = ir_.b.CreateAdd(uniform, value(part));
    else varying = varying ? ir_.b.CreateAdd(varying, narrow(part)) : narrow(part);
  }
  llvm::Type* element = ir_.storage(ref.type);
  return ir_.b.CreateGEP(element, ir_.b.CreateGEP(element, ref.pointer, uniform), varying);
}

}  // namespace ingot::cpu
