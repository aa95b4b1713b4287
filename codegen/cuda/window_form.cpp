#include "codegen/cuda/window_form.h"
#include "codegen/lower/kernel_walk.h"

#include <algorithm>
#include <map>

#include "codegen/cuda/plan_cuda.h"
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

/// The direction that a tap of the reduction walks: which axis of the results goes with it, and how far it steps.
std::optional<WindowSide> side_of(const std::vector<Axis>& results, const Expr& index, const Axis& tap) {
  const int64_t per_tap = distance(index, tap), taps = tap.extent.as_int().value_or(kMostTaps + 1);
  if (per_tap <= 0 || taps > kMostTaps) return std::nullopt;
  for (size_t i = 0; i + 1 < results.size(); ++i) {
    const Axis& a = results[i];
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
bool take_factors(const Kernel& kernel, const std::vector<Axis>& results, const Expr& value, WindowForm& form,
                  Expr& guard) {
  if (value.op() != ExprOp::Mul) return take_input(value, form, guard);
  const auto is_weight = [&](const Expr& e) {
    if (e.op() != ExprOp::Load || !kernel.buffers[static_cast<size_t>(e.buffer())].is_constant) return false;
    for (size_t i = 0; i + 1 < results.size(); ++i)
      if (depends_on(e.arg(0), results[i].var.name())) return false;
    return true;
  };
  for (size_t i = 0; i < 2; ++i) {
    if (!is_weight(value.arg(i)) || form.reduce.combine != Combine::Sum) continue;
    form.weight = value.arg(i);
    return take_input(value.arg(1 - i), form, guard);
  }
  return false;
}

/// The parts of a kernel: what makes a result, all axes of the results, what follows, and what becomes of lines.
struct Parts {
  Reduce window;
  std::vector<Axis> results;
  Body epilogue;
  std::optional<WindowLine> line = {};
  RowParts parts = {};
  Expr stored = {};
};

/// A scratch array of a line, a loop along it that fills it, and its reduction.
std::optional<Parts> parts_with_line(const Kernel& kernel) {
  const Body& b = kernel.body;
  if (b.size() < 3 || kernel.domain.empty()) return std::nullopt;
  const auto* scratch = b[0].as<Alloc>();
  const auto* loop = b[1].as<Loop>();
  const auto* r = b[2].as<Reduce>();
  if (!scratch || !loop || !r || loop->axes.size() != 1 || r->axes.size() != 1 || loop->body.size() < 2)
    return std::nullopt;
  const Reduce* window = loop->body[0].as<Reduce>();
  const auto* last = loop->body.back().as<Store>();
  const auto is_scratch = [&](int buffer, const Expr& index, const Axis& axis) {
    return buffer == scratch->buffer && index.same(axis.var);
  };
  if (!window || !last || !is_scratch(last->buffer, last->index, loop->axes[0])) return std::nullopt;
  if (r->value.op() != ExprOp::Load || !is_scratch(r->value.buffer(), r->value.arg(0), r->axes[0])) return std::nullopt;
  if (r->combine != Combine::Sum && r->combine != Combine::Max && r->combine != Combine::Min) return std::nullopt;
  if (!r->init.same(identity_of(r->combine, r->value.type())) || r->value.type() != DType::F32) return std::nullopt;
  Parts p{*window, kernel.domain, Body(loop->body.begin() + 1, loop->body.end() - 1),
          WindowLine{*r, last->value, Body(b.begin() + 3, b.end())}};
  p.results.insert(p.results.end() - 1, loop->axes[0]);
  return p;
}
/// A scratch array of neighbouring channels, a loop over them that fills it, sums over it, and their stores. `whole`: those are all
/// channels, and the domain has no axis of parts.
std::optional<Parts> parts_with_sums(const Kernel& kernel, bool whole) {
  const Body& b = kernel.body;
  if (b.size() < 4 || kernel.domain.empty()) return std::nullopt;
  const auto* scratch = b[0].as<Alloc>();
  const auto* loop = b[1].as<Loop>();
  if (!scratch || !loop || loop->axes.size() != 1 || loop->body.size() < 2) return std::nullopt;
  const Axis &lane = loop->axes[0], part = whole ? Axis{Expr::index("part", 1), 1} : kernel.domain.back();
  const auto width = lane.extent.as_int(), count = part.extent.as_int();
  const Reduce* window = loop->body[0].as<Reduce>();
  const auto* last = loop->body.back().as<Store>();
  if (!window || !last || last->buffer != scratch->buffer || !last->index.same(lane.var) || !width || !count)
    return std::nullopt;
  const Expr channels = Expr(*width * *count), channel = Expr::index("channel", channels);
  const Bindings lanes{{lane.var.name(), whole ? channel : channel - part.var * *width}};
  bool apart = true;  // only what is summed up knows of parts
  const auto over_channels = [&](const Expr& e) {
    const Expr x = at(e, lanes);
    apart &= !depends_on(x, part.var.name());
    return x;
  };
  Parts p{*window, kernel.domain, {}};
  if (!whole) p.results.pop_back();
  p.results.push_back({channel, channels});
  p.window.value = over_channels(window->value);
  for (size_t i = 1; i + 1 < loop->body.size(); ++i) {
    const auto* store = loop->body[i].as<Store>();
    if (!store) return std::nullopt;
    p.epilogue.push_back({Store{store->buffer, over_channels(store->index), over_channels(store->value)}});
  }
  p.stored = over_channels(last->value);
  p.parts.width = static_cast<int>(*width);
  p.parts.part = part;
  p.parts.stored = Expr::local("stored", DType::F32);
  std::map<std::string, Expr> sums;
  for (size_t i = 2; i < b.size(); ++i) {
    if (const auto* r = b[i].as<Reduce>()) {
      if (r->combine != Combine::Sum || r->axes.size() != 1 || r->value.type() != DType::F32) return std::nullopt;
      const Expr of_one = rewrite(r->value, [&](const Expr& x) {
        return x.op() == ExprOp::Load && x.buffer() == scratch->buffer && x.arg(0).same(r->axes[0].var) ? p.parts.stored
                                                                                                        : Expr();
      });
      apart &= !depends_on(of_one, r->axes[0].var.name());
      sums[r->result.name()] = of_one;
    } else if (const auto* store = b[i].as<Store>()) {
      const auto sum = store->value.op() == ExprOp::Symbol ? sums.find(store->value.name()) : sums.end();
      if (sum == sums.end()) return std::nullopt;
      p.parts.sums.push_back({store->buffer, store->index, sum->second});
    } else {
      return std::nullopt;
    }
  }
  return apart ? std::optional<Parts>(std::move(p)) : std::nullopt;
}
std::optional<Parts> parts_of(const Kernel& kernel) {
  for (const bool whole : {false, true})
    if (auto p = parts_with_sums(kernel, whole)) return p;
  if (auto p = parts_with_line(kernel)) return p;
  const Reduce* r = kernel.body.empty() ? nullptr : kernel.body[0].as<Reduce>();
  if (!r) return std::nullopt;
  return Parts{*r, kernel.domain, Body(kernel.body.begin() + 1, kernel.body.end())};
}
bool is_flat(const Body& body) {
  return std::all_of(body.begin(), body.end(), [](const Stmt& s) { return s.as<Let>() || s.as<Store>(); });
}

}  // namespace

bool combines_windows(const Kernel& kernel) {
  const auto p = parts_of(kernel);
  return p && (p->line || p->parts.width > 0);
}

Expr window_results(const Kernel& kernel) {
  const auto p = parts_of(kernel);
  return total_of(p ? p->results : kernel.domain);
}

WindowShared window_shared(const WindowForm& w, const Schedule& s) {
  WindowShared shared;
  if (w.line && w.x.outputs / s.tile.n > 1) shared.bytes = s.threads * s.tile.m * s.vector * 4;
  if (!s.shared_weights) return shared;
  shared.weights_at = shared.bytes;
  shared.bytes += static_cast<int>(w.y.taps * w.x.taps) * s.threads * s.vector * 4;
  return shared;
}

std::optional<WindowForm> window_form(const Kernel& kernel) {
  auto parts = parts_of(kernel);
  if (!parts || parts->results.size() < 2) return std::nullopt;
  const Reduce* r = &parts->window;
  const std::vector<Axis>& results = parts->results;
  if (r->value.type() != DType::F32 || (r->combine != Combine::Sum && r->combine != Combine::Max)) return std::nullopt;
  if (!r->init.is_const() || r->init.float_value() != identity_of(r->combine, DType::F32).float_value())
    return std::nullopt;
  WindowForm form;
  form.reduce = *r;
  form.epilogue = std::move(parts->epilogue);
  form.line = std::move(parts->line);
  form.parts = std::move(parts->parts);
  form.stored = parts->stored;
  if (!is_flat(form.epilogue) || (form.line && !is_flat(form.line->epilogue))) return std::nullopt;
  Expr guard;
  std::vector<Axis> taps;
  Bindings single;
  for (const Axis& a : r->axes) {
    if (a.extent.is_const(1)) single[a.var.name()] = Expr(0);
    else taps.push_back(a);
  }
  if (!take_factors(kernel, results, substitute(r->value, single), form, guard)) return std::nullopt;
  if (form.reduce.combine == Combine::Sum && form.fill != 0) return std::nullopt;
  if (taps.empty() || taps.size() > 2) return std::nullopt;
  const Expr index = form.input.arg(0);
  const auto x = side_of(results, index, taps.back());
  if (!x) return std::nullopt;
  form.x = *x;
  if (taps.size() == 2) {
    const auto y = side_of(results, index, taps.front());
    if (!y || y->out->var.name() == x->out->var.name()) return std::nullopt;
    form.y = *y;
  }
  form.channels = results.back();
  for (size_t i = 0; i + 1 < results.size(); ++i) {
    const Axis& a = results[i];
    const bool taken = a.var.name() == form.x.out->var.name() || (form.y.out && a.var.name() == form.y.out->var.name());
    if (!taken) form.outer.push_back(a);
  }
  // Lines are those along x, where the windows slide in both directions.
  if (form.line && (taps.size() != 2 || results[results.size() - 2].var.name() != form.x.out->var.name()))
    return std::nullopt;
  std::vector<Expr> conditions;
  if (guard.valid()) conditions_of(guard, conditions);
  for (const Expr& c : conditions)
    if (!add_condition(c, form)) return std::nullopt;
  form.input = Expr::load(form.input.buffer(), form.input.type(), over_place(over_place(index, form.y), form.x));
  return form;
}

}  // namespace ingot
