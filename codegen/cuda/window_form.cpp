#include "codegen/cuda/window_form.h"

#include "compiler/expr/simplify.h"

namespace ingot {
namespace {

constexpr int64_t kMostSteps = 4, kMostTaps = 11;

void conditions_of(const Expr& e, std::vector<Expr>& conditions) {
  if (e.op() != ExprOp::And) return conditions.push_back(e);
  conditions_of(e.arg(0), conditions);
  conditions_of(e.arg(1), conditions);
}

/// Elements between neighbours along the axis; 0 when that is no constant.
int64_t distance(const Expr& index, const Axis& axis) {
  const auto c = linear_coefficient(index, axis.var.name());
  return c ? c->as_int().value_or(0) : 0;
}

/// The direction that a tap of the reduction walks: which axis of the domain goes with it, and how far it steps.
std::optional<WindowSide> side_of(const Kernel& kernel, const Expr& index, const Axis& tap) {
  const int64_t per_tap = distance(index, tap), taps = tap.extent.as_int().value_or(kMostTaps + 1);
  if (per_tap <= 0 || taps > kMostTaps) return std::nullopt;
  for (size_t i = 0; i + 1 < kernel.domain.size(); ++i) {
    const Axis& a = kernel.domain[i];
    const int64_t per_out = distance(index, a), step = per_out / per_tap;
    if (!a.extent.as_int() || per_out % per_tap != 0 || step < 1 || step > kMostSteps) continue;
    WindowSide side;
    side.out = a;
    side.outputs = *a.extent.as_int();
    side.taps = taps;
    side.step = step;
    side.tap = tap.var;
    side.place = Expr::symbol(tap.var.name() + "_place", 0, (side.outputs - 1) * step + side.taps - 1);
    return side;
  }
  return std::nullopt;
}

bool mentions(const Expr& e, const WindowSide& side) {
  return (side.out && depends_on(e, side.out->var.name())) || (side.tap.valid() && depends_on(e, side.tap.name()));
}
Expr over_place(const Expr& e, const WindowSide& side) {
  if (!side.out) return e;
  return simplify(substitute(e, {{side.out->var.name(), Expr(0)}, {side.tap.name(), side.place}}));
}
/// A comparison of something that depends on the place alone.
bool is_of_place(const Expr& condition, const WindowSide& side) {
  if (condition.op() != ExprOp::Le && condition.op() != ExprOp::Lt) return false;
  const Expr difference = simplify(condition.arg(1) - condition.arg(0));
  const auto out = linear_coefficient(difference, side.out->var.name()),
             tap = linear_coefficient(difference, side.tap.name());
  if (!out || !tap || !simplify(*out - *tap * side.step).is_const(0)) return false;
  bool alone = true;
  visit(over_place(difference, side),
        [&](const Expr& x) { alone &= x.op() != ExprOp::Symbol || x.name() == side.place.name(); });
  return alone;
}
bool add_condition(const Expr& condition, WindowForm& form) {
  const bool of_y = mentions(condition, form.y), of_x = mentions(condition, form.x);
  if (of_y == of_x) return false;
  WindowSide& side = of_y ? form.y : form.x;
  if (!is_of_place(condition, side)) return false;
  side.inside.push_back(over_place(condition, side));
  return true;
}

bool take_input(Expr value, WindowForm& form, Expr& guard) {
  form.fill = identity_of(form.reduce.combine, DType::F32).float_value();
  if (value.op() == ExprOp::Select) {
    if (!value.arg(2).is_const()) return false;
    form.fill = value.arg(2).float_value();
    guard = value.arg(0);
    value = value.arg(1);
  }
  form.input = value;
  bool nested = false;
  if (value.op() == ExprOp::Load) visit(value.arg(0), [&](const Expr& x) { nested |= x.op() == ExprOp::Load; });
  return value.op() == ExprOp::Load && !nested;
}

/// input * weight, either way round: the weight is a constant that no output's place matters to.
bool take_factors(const Kernel& kernel, const Expr& value, WindowForm& form, Expr& guard) {
  if (value.op() != ExprOp::Mul) return take_input(value, form, guard);
  const auto is_weight = [&](const Expr& e) {
    if (e.op() != ExprOp::Load || !kernel.buffers[static_cast<size_t>(e.buffer())].is_constant) return false;
    for (size_t i = 0; i + 1 < kernel.domain.size(); ++i)
      if (depends_on(e.arg(0), kernel.domain[i].var.name())) return false;
    return true;
  };
  for (size_t i = 0; i < 2; ++i) {
    if (!is_weight(value.arg(i)) || form.reduce.combine != Combine::Sum) continue;
    form.weight = value.arg(i);
    return take_input(value.arg(1 - i), form, guard);
  }
  return false;
}

}  // namespace

std::optional<WindowForm> window_form(const Kernel& kernel) {
  const Reduce* r = kernel.body.empty() ? nullptr : kernel.body[0].as<Reduce>();
  if (!r || kernel.domain.size() < 2 || r->value.type() != DType::F32) return std::nullopt;
  if (r->combine != Combine::Sum && r->combine != Combine::Max) return std::nullopt;
  if (!r->init.is_const() || r->init.float_value() != identity_of(r->combine, DType::F32).float_value())
    return std::nullopt;
  WindowForm form;
  form.reduce = *r;
  form.epilogue.assign(kernel.body.begin() + 1, kernel.body.end());
  for (const Stmt& s : form.epilogue)
    if (!s.as<Let>() && !s.as<Store>()) return std::nullopt;
  Expr guard;
  std::vector<Axis> taps;
  Bindings single;
  for (const Axis& a : r->axes) {
    if (a.extent.is_const(1)) single[a.var.name()] = Expr(0);
    else taps.push_back(a);
  }
  if (!take_factors(kernel, substitute(r->value, single), form, guard)) return std::nullopt;
  if (form.reduce.combine == Combine::Sum && form.fill != 0) return std::nullopt;
  if (taps.empty() || taps.size() > 2) return std::nullopt;
  const Expr index = form.input.arg(0);
  const auto x = side_of(kernel, index, taps.back());
  if (!x) return std::nullopt;
  form.x = *x;
  if (taps.size() == 2) {
    const auto y = side_of(kernel, index, taps.front());
    if (!y || y->out->var.name() == x->out->var.name()) return std::nullopt;
    form.y = *y;
  }
  form.channels = kernel.domain.back();
  for (size_t i = 0; i + 1 < kernel.domain.size(); ++i) {
    const Axis& a = kernel.domain[i];
    const bool taken = a.var.name() == form.x.out->var.name() || (form.y.out && a.var.name() == form.y.out->var.name());
    if (!taken) form.outer.push_back(a);
  }
  std::vector<Expr> conditions;
  if (guard.valid()) conditions_of(guard, conditions);
  for (const Expr& c : conditions)
    if (!add_condition(c, form)) return std::nullopt;
  form.input = Expr::load(form.input.buffer(), form.input.type(), over_place(over_place(index, form.y), form.x));
  return form;
}

}  // namespace ingot
