#include "codegen/lower/axis_order.h"

#include <algorithm>
#include <cstdlib>

#include "codegen/lower/kernel_walk.h"
#include "compiler/expr/simplify.h"

namespace ingot {
namespace {

constexpr int64_t kGuess = 64;  // of a dimension that nothing bounds

/// Every dimension of an expression replaced by a number.
int64_t guess(const Expr& e) {
  std::unordered_map<std::string, int64_t> values;
  visit(e, [&](const Expr& x) {
    if (x.op() == ExprOp::Symbol) values[x.name()] = std::clamp(kGuess, x.low(), x.high());
  });
  return evaluate_int(e, values).value_or(kGuess);
}

/// The distance in elements of two neighbours along the axis; 0 when they are not evenly spaced.
int64_t stride_of(const Expr& index, const Axis& axis) {
  const auto c = linear_coefficient(index, axis.var.name());
  return c ? std::abs(guess(*c)) : 0;
}

/// The index of the first Load of an expression.
Expr first_load(const Expr& value) {
  Expr found;
  visit(value, [&](const Expr& x) {
    if (x.op() == ExprOp::Load && !found.valid()) found = x.arg(0);
  });
  return found;
}

/// The smallest distance in memory of neighbours along one of the axes.
int64_t smallest_step(const Expr& index, const std::vector<Axis>& axes) {
  int64_t step = kNoLimit;
  for (const Axis& a : axes) {
    const int64_t stride = a.extent.is_const(1) ? 0 : stride_of(index, a);
    if (stride > 0) step = std::min(step, stride);
  }
  return step;
}

/// The smallest constant that the axis' position is divided by, if it divides the extent; 0 when there is none.
int64_t divisor_of(const Kernel& kernel, const Axis& axis) {
  const auto extent = axis.extent.as_int();
  int64_t best = 0;
  if (!extent) return 0;
  for_each_expr(kernel, [&](const Expr& e) {
    visit(e, [&](const Expr& x) {
      if (x.op() != ExprOp::FloorDiv && x.op() != ExprOp::FloorMod) return;
      const auto by = x.arg(1).as_int();
      if (!by || *by <= 1 || *by >= *extent || *extent % *by != 0 || !x.arg(0).same(axis.var)) return;
      if (best == 0 || *by < best) best = *by;
    });
  });
  return best;
}

/// The axes with those that are divided split in two, and what their positions become.
std::vector<Axis> split(const Kernel& kernel, const std::vector<Axis>& axes, Bindings& bindings) {
  std::vector<Axis> result;
  for (const Axis& a : axes) {
    const int64_t by = divisor_of(kernel, a);
    if (by == 0) {
      result.push_back(a);
      continue;
    }
    const Expr outer = Expr::index(a.var.name() + "_part", *a.extent.as_int() / by), inner = Expr::index(a.var.name() + "_in", by);
    bindings.emplace(a.var.name(), outer * by + inner);
    result.push_back({outer, outer.extent()});
    result.push_back({inner, inner.extent()});
  }
  return result;
}

/// What the axes' positions have become, in all expressions.
void put(Kernel& kernel, const Bindings& bindings) {
  map_exprs(kernel, [&](const Expr& e) { return at(e, bindings); });
}

/// An element of the value lies somewhere by way of a quotient of the axis.
bool is_divided(const Expr& value, const Axis& axis) {
  bool found = false;
  visit(value, [&](const Expr& x) {
    if (x.op() == ExprOp::Load)
      visit(x.arg(0), [&](const Expr& i) {
        found |= (i.op() == ExprOp::FloorDiv || i.op() == ExprOp::FloorMod) && depends_on(i.arg(0), axis.var.name());
      });
  });
  return found;
}

}  // namespace

void split_divided_columns(Kernel& kernel) {
  for (size_t i = 0; i < kernel.body.size(); ++i) {
    auto* const r = std::get_if<Reduce>(&kernel.body[i].node);
    auto* const l = std::get_if<Loop>(&kernel.body[i].node);
    if ((!r && !l) || (r && (r->combine == Combine::ArgMax || r->combine == Combine::ArgMin))) continue;
    std::vector<Axis>& axes = r ? r->axes : l->axes;
    if (axes.size() != 1) continue;
    bool divided = false;
    if (r) divided = is_divided(r->value, axes[0]);
    else
      for (const Stmt& s : l->body)
        if (const auto* store = s.as<Store>()) divided |= is_divided(store->value, axes[0]);
    if (!divided) continue;
    for (Bindings bindings; true; bindings.clear()) {
      std::vector<Axis> parts = split(kernel, axes, bindings);
      if (bindings.empty()) break;
      axes = std::move(parts);
      put(kernel, bindings);
    }
    sort_by_stride(axes, r ? first_load(r->value) : first_store(l->body));
  }
}

void split_divided_axes(Kernel& kernel) {
  if (!kernel.contract()) return;
  Bindings bindings;
  std::vector<Axis> m = split(kernel, kernel.contract()->m, bindings), n = split(kernel, kernel.contract()->n, bindings);
  if (bindings.empty()) return;
  auto& c = std::get<Contract>(kernel.body[0].node);
  c.m = std::move(m);
  c.n = std::move(n);
  put(kernel, bindings);
}

Expr first_store(const Body& body) {
  for (const Stmt& s : body) {
    if (auto* store = s.as<Store>()) return store->index;
    Expr inner;
    if (auto* loop = s.as<Loop>()) inner = first_store(loop->body);
    if (auto* i = s.as<If>()) inner = first_store(i->body);
    if (inner.valid()) return inner;
  }
  return Expr();
}

void sort_by_stride(std::vector<Axis>& axes, const Expr& index) {
  if (!index.valid()) return;
  const auto distance = [&](const Axis& a) {
    const int64_t stride = stride_of(index, a);
    return stride == 0 ? kNoLimit : stride;
  };
  std::stable_sort(axes.begin(), axes.end(),
                   [&](const Axis& a, const Axis& b) { return distance(a) > distance(b); });
}

/// Rows in the order in which A has them, so that they are one axis there; the results of a row may lie anywhere.
static void sort_rows(Contract& c) {
  const Expr load = first_load(c.a);
  const auto is_spaced = [&](const Axis& a) { return stride_of(load, a) > 0; };
  if (load.valid() && std::all_of(c.m.begin(), c.m.end(), is_spaced)) sort_by_stride(c.m, load);
}

void orient(Contract& c) {
  const Expr store = first_store(c.epilogue);
  const auto in_group = [&](const Expr& operand) {
    return std::any_of(c.group.begin(), c.group.end(), [&](const Axis& a) { return depends_on(operand, a.var.name()); });
  };
  const bool turned = in_group(c.b);  // groups are of rows
  if (turned || (store.valid() && !in_group(c.a) && smallest_step(store, c.m) < smallest_step(store, c.n))) {
    std::swap(c.m, c.n);
    std::swap(c.a, c.b);
    std::swap(c.a_type, c.b_type);
    for (auto it = c.batch.begin(); it != c.batch.end();) {
      if (depends_on(c.b, it->var.name())) {
        ++it;
        continue;
      }
      c.m.insert(c.m.begin(), *it);
      it = c.batch.erase(it);
    }
    sort_by_stride(c.m, store);
    sort_by_stride(c.n, store);
  }
  sort_rows(c);
  for (const Expr& operand : {c.a, c.b}) {
    const Expr load = first_load(operand);
    const auto inner = std::find_if(c.k.begin(), c.k.end(), [&](const Axis& a) {
      return !a.extent.is_const(1) && load.valid() && stride_of(load, a) == 1;
    });
    if (inner == c.k.end()) continue;
    std::rotate(inner, inner + 1, c.k.end());
    return;
  }
}

}  // namespace ingot
