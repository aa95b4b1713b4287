// The text of Gelu in the forms that exporters write it: a product with a factor 1 + erf(y) or 1 + tanh(y). Such a factor costs one
// exponential (prelude/math.cuh), and its halves and signs are merged with what it is multiplied by.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "codegen/text/expr_printer.h"

namespace ingot {

namespace {

/// y = x * number, and the number is 1 / sqrt(2): that of Gelu.
bool is_over_sqrt2(const Expr& y, Expr& x) {
  const bool times = y.op() == ExprOp::Mul, by = y.op() == ExprOp::Div && y.arg(1).is_const();
  if (!by && !(times && (y.arg(0).is_const() || y.arg(1).is_const()))) return false;
  const int number = times && y.arg(0).is_const() ? 0 : 1;
  const double value = y.arg(number).float_value();
  x = y.arg(1 - number);
  return std::abs((by ? 1 / value : value) - std::sqrt(0.5)) < 1e-7;
}

}  // namespace

bool ExprPrinter::has_form_of_one_plus(const Expr& e) const {
  return e.op() == ExprOp::Call && (e.fn() == Fn::Erf || e.fn() == Fn::Tanh) && has_fast_form(e) && !has_value(e);
}

ExprPrinter::Text ExprPrinter::one_plus_text(const Expr& e) {
  include("math.cuh");
  return call_text(e.fn() == Fn::Erf ? "fast_one_plus_erf" : "fast_one_plus_tanh", e.args());
}

const Expr* ExprPrinter::one_plus_of(const Expr& e) const {
  if (e.op() != ExprOp::Add || e.type() != DType::F32 || has_value(e)) return nullptr;
  for (int one = 0; one < 2; ++one)
    if (e.arg(one).is_const(1) && has_form_of_one_plus(e.arg(1 - one))) return &e.arg(1 - one);
  return nullptr;
}

void ExprPrinter::factors_of(const Expr& product, std::vector<Expr>& factors, double& number) const {
  for (const Expr& e : product.args()) {
    if (e.is_const()) number *= e.float_value();
    else if (e.op() == ExprOp::Mul && !has_value(e)) factors_of(e, factors, number);
    else factors.push_back(e);
  }
}

ExprPrinter::Text ExprPrinter::half_one_plus_tanh_text(const Expr& y) {
  // (1 + tanh(y)) / 2 = 1 / (1 + 2^(scale * y)), and a number in y goes into the scale.
  double scale = -2 / std::log(2.0);
  Expr x = y;
  for (int number = 0; number < 2 && y.op() == ExprOp::Mul && !has_value(y); ++number) {
    if (!y.arg(number).is_const()) continue;
    scale *= y.arg(number).float_value();
    x = y.arg(1 - number);
    break;
  }
  const Text exponent = infix("*", 13, x, Expr::real(DType::F32, scale));
  return {fmt::format("fast_reciprocal(1.0f + fast_exp2({}))", exponent.s), 15};
}

std::optional<ExprPrinter::Text> ExprPrinter::gelu_text(const Expr& product) {
  if (!approximate || product.type() != DType::F32) return std::nullopt;
  double number = 1;
  std::vector<Expr> factors;
  factors_of(product, factors, number);
  const auto at =
      std::find_if(factors.begin(), factors.end(), [&](const Expr& f) { return one_plus_of(f) != nullptr; });
  if (at == factors.end()) return std::nullopt;
  const Expr call = *one_plus_of(*at), y = call.arg(0);
  factors.erase(at);
  Text result;
  if (call.fn() == Fn::Tanh) {
    result = half_one_plus_tanh_text(y);
  } else {
    Expr x = y;
    if (has_value(y) || !is_over_sqrt2(y, x)) return std::nullopt;
    const auto same = std::find_if(factors.begin(), factors.end(), [&](const Expr& f) { return f.same(x); });
    if (same == factors.end()) return std::nullopt;
    factors.erase(same);
    result = call_text("fast_gelu", {x});
  }
  include("math.cuh");
  if (number != 0.5) factors.push_back(Expr::real(DType::F32, number * 2));
  for (const Expr& f : factors) result = {result.s + " * " + bracket(text(f), 14), 13};
  return result;
}

}  // namespace ingot
