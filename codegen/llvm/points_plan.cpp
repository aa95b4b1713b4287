#include "codegen/llvm/points_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

#include "codegen/llvm/contract_plan.h"
#include "codegen/llvm/expr_emitter.h"
#include "compiler/expr/simplify.h"

namespace ingot::cpu {
namespace {

constexpr int64_t kTaskCost = 48 * 1024;   // operations: some 5 to 10 us, far above the cost of handing a task out
constexpr int64_t kUnrolledWindow = 64;
constexpr int64_t kMostScratch = 1 << 20;   // bytes of a scratch array that every thread keeps

/// Relative cost of the loads of `e` when the last of `axes` lies along the vector.
double load_cost(const Expr& e, const Axis& axis, int width) {
  double cost = 0;
  visit(e, [&](const Expr& x) {
    if (x.op() != ExprOp::Load) return;
    if (!depends_on(x.arg(0), axis.var.name())) {
      cost += 1;
      return;
    }
    const auto step = has_load(x.arg(0)) ? std::nullopt : linear_coefficient(x.arg(0), axis.var.name());
    cost += step && step->is_const(1) ? 1 : step && step->is_const(2) ? 2 : width / 2;
  });
  const auto n = axis.extent.as_int();
  const double idle = n && *n < width ? static_cast<double>(width) / static_cast<double>(std::max<int64_t>(*n, 1)) : 1;
  return (cost + 1) * idle;
}

struct Costs {
  double domain = 0, inside = 0;
};

/// Adds up the loads of every innermost loop or reduction, with the vector along `domain` or along the loop itself.
void add_costs(const Body& body, const Axis& domain, int width, Costs& costs) {
  for (const Stmt& s : body) {
    if (auto* r = s.as<Reduce>(); r && !r->axes.empty()) {
      std::vector<Axis> axes = r->axes;
      Bindings zeros;
      drop_unit_axes(axes, zeros);
      Expr value = simplify(substitute(r->value, zeros));
      value = simplify(substitute(value, merge_axes(axes, {value})));
      costs.domain += load_cost(value, domain, width);
      costs.inside += axes.empty() ? load_cost(value, domain, width) * width : load_cost(value, axes.back(), width);
      if (r->combine == Combine::ArgMax || r->combine == Combine::ArgMin) costs.inside *= width;
    } else if (auto* l = s.as<Loop>(); l && !l->axes.empty()) {
      if (has_statement(l->body, [](const Stmt& x) { return x.as<Reduce>() || x.as<Loop>(); })) {
        add_costs(l->body, domain, width, costs);
      } else {
        for_each_expr(l->body, [&](const Expr& e) {
          costs.domain += load_cost(e, domain, width);
          costs.inside += load_cost(e, l->axes.back(), width);
        });
      }
    } else if (auto* branch = s.as<If>()) {
      add_costs(branch->body, domain, width, costs);
    }
  }
}

bool lanes_along_domain(const std::vector<Axis>& domain, const Body& body, int width) {
  if (domain.empty() || domain.back().extent.is_const(1)) return false;
  if (has_statement(body, [](const Stmt& s) { return s.as<Alloc>() != nullptr; })) return false;
  if (!has_statement(body, [](const Stmt& s) { return s.as<Loop>() || s.as<Reduce>(); })) return true;
  Costs costs;
  add_costs(body, domain.back(), width, costs);
  return costs.domain <= costs.inside;
}

/// The relative cost of one vector of values with the vector along an axis; shared nodes count once.
class VectorCost {
 public:
  VectorCost(std::string axis, int width) : axis_(std::move(axis)), width_(width) {}

  double of(const Expr& root) {
    visit(root, [&](const Expr& e) {  // operands first
      bool depends = e.op() == ExprOp::Symbol && e.name() == axis_;
      for (const Expr& a : e.args()) depends = depends || varying_.count(a.id());
      if (depends) varying_.insert(e.id());
    });
    return cost(root);
  }

 private:
  double operands(const Expr& e) {
    double sum = 0;
    for (const Expr& a : e.args()) sum += cost(a);
    return sum;
  }
  double cost(const Expr& e) {
    if (!varying_.count(e.id()) || !seen_.insert(e.id()).second) return 0;
    switch (e.op()) {
      case ExprOp::Load: {
        const auto step = has_load(e.arg(0)) ? std::nullopt : linear_coefficient(e.arg(0), axis_);
        if (!step) return width_ + operands(e);
        return step->is_const(1) ? 1 : step->is_const(2) ? 3 : width_ / 2;
      }
      case ExprOp::Select: {
        const double a = cost(e.arg(1)), b = cost(e.arg(2));
        if (!varying_.count(e.arg(0).id())) return std::max(a, b) + 1;  // a branch
        return a + b + 1 + cost(e.arg(0));
      }
      case ExprOp::FloorDiv:
      case ExprOp::FloorMod: return 6 + operands(e);
      case ExprOp::Call: return info_of(e.fn()).flops / 2 + operands(e);
      default: return 0.5 + operands(e);
    }
  }

  std::string axis_;
  int width_;
  std::unordered_set<const void*> varying_, seen_;
};

/// Cost of one element of the body with the vector along `axis`.
double axis_cost(const Body& body, const Axis& axis, int width) {
  VectorCost vector(axis.var.name(), width);
  std::vector<Expr> roots;  // keeps the nodes alive that `vector` knows by address
  double cost = 1;
  for_each_expr(body, [&](const Expr& e) {
    roots.push_back(e);
    cost += vector.of(e);
  });
  const auto n = axis.extent.as_int();
  const double used = n && *n > 0 ? static_cast<double>(*n) / static_cast<double>((*n + width - 1) / width * width) : 1;
  return cost / used;
}

/// Moves the axis along which vectors are cheapest to the end; the last axis keeps its place unless another is far
/// better.
void order_axes(std::vector<Axis>& axes, const Body& body, int width) {
  size_t best = axes.size() - 1;
  double least = axis_cost(body, axes.back(), width) / 1.5;
  for (size_t i = axes.size(); i-- > 0 && i + 3 >= axes.size();)
    if (const double cost = axis_cost(body, axes[i], width); cost < least) {
      least = cost;
      best = i;
    }
  std::rotate(axes.begin() + static_cast<ptrdiff_t>(best), axes.begin() + static_cast<ptrdiff_t>(best) + 1, axes.end());
}

}  // namespace

PointsPlan plan_points(const Kernel& kernel, const Machine& machine) {
  PointsPlan p;
  const int width = machine.vector_bytes / 4;
  p.rows = kernel.domain;
  p.body = inline_index_lets(kernel.body);
  simplify_axes(p.rows, p.body);
  int64_t cost = 0;
  if (lanes_along_domain(p.rows, p.body, width)) {
    p.body = unroll_reductions(p.body, kUnrolledWindow);
    order_axes(p.rows, p.body, width);
    p.lanes = p.rows.back();
    p.rows.pop_back();
    cost = std::max<int64_t>(1, body_flops(p.body) / 4);
  } else {
    cost = std::max<int64_t>(1, body_flops(p.body) / 4);
  }
  p.row_count = total_extent(p.rows);
  p.chunks = Expr(1);
  p.rows_per_task = Expr(std::max<int64_t>(1, kTaskCost / cost));
  if (p.lanes) {
    p.lanes_per_task = std::max<int64_t>(64, kTaskCost / cost / 64 * 64);
    p.chunks = simplify(ceil_div(p.lanes->extent, Expr(p.lanes_per_task)));
    const Expr row_cost = max(p.lanes->extent, Expr(8)) * Expr(cost);
    p.rows_per_task = simplify(max(Expr(1), floor_div(Expr(kTaskCost), row_cost)));
  }
  p.tasks = simplify(ceil_div(p.row_count, p.rows_per_task) * p.chunks);
  return p;
}

static Status add_scratch(const Kernel& kernel, const Body& body, ScratchPlan& plan) {
  for (const Stmt& s : body) {
    if (auto* l = s.as<Loop>()) INGOT_TRY(add_scratch(kernel, l->body, plan));
    if (auto* i = s.as<If>()) INGOT_TRY(add_scratch(kernel, i->body, plan));
    auto* a = s.as<Alloc>();
    if (!a) continue;
    ScratchArray array{a->buffer, a->type, a->size, -1};
    const int64_t most = bounds_of(a->size).high;
    if (most <= kMostScratch / static_cast<int64_t>(std::max<size_t>(1, size_of(a->type)))) {
      array.offset = plan.bytes;
      plan.bytes += (std::max<int64_t>(most, 1) * static_cast<int64_t>(size_of(a->type)) + 127) / 64 * 64;
    } else {
      bool dims_only = true;
      visit(a->size, [&](const Expr& x) {
        const auto is_x = [&](const Expr& d) { return d.name() == x.name(); };
        if (x.op() == ExprOp::Symbol) dims_only &= std::any_of(kernel.dims.begin(), kernel.dims.end(), is_x);
      });
      if (!dims_only)
        return unsupported(fmt::format("a scratch array of {} elements has no bound", to_string(a->size)));
    }
    plan.arrays.push_back(std::move(array));
  }
  return {};
}

Result<ScratchPlan> plan_scratch(const Kernel& kernel, const Body& body) {
  ScratchPlan plan;
  INGOT_TRY(add_scratch(kernel, body, plan));
  return plan;
}

}  // namespace ingot::cpu
