// Pointwise kernels that read along another axis than they store along: a transposed copy. Neighbouring threads then take tiles
// of both axes, so that what a warp reads and what it stores are whole sectors of memory each.
#include <algorithm>

#include "codegen/cuda/plan_cuda.h"
#include "codegen/lower/kernel_walk.h"
#include "codegen/text/c_printer.h"
#include "compiler/expr/simplify.h"

namespace ingot {

namespace {

constexpr int64_t kTile = 16;  // neighbours along the axis of stores: 32 bytes of 16-bit elements
constexpr int64_t kFarApart = 8;  // elements: a sector of memory of f32
constexpr int64_t kLeastAcross = 8;  // extent of the axis of loads

bool is_flat(const Body& body) {
  return std::all_of(body.begin(), body.end(), [](const Stmt& s) { return s.as<Let>() || s.as<Store>(); });
}

std::optional<int64_t> step_along(const Expr& index, const Axis& axis) {
  const auto coefficient = linear_coefficient(index, axis.var.name());
  return coefficient ? coefficient->as_int() : std::nullopt;
}

/// The axis that a load walks element by element where neighbours along the last axis are far apart; null: there is none.
const Axis* axis_of_loads(const Kernel& kernel) {
  const Axis& last = kernel.domain.back();
  const Axis* found = nullptr;
  bool stores_in_order = true;
  each_access(kernel.body, [&](int, const Expr& index, bool is_store) {
    if (is_store) {
      stores_in_order &= step_along(index, last) == 1;
    } else if (const auto step = step_along(index, last); step && std::abs(*step) >= kFarApart) {
      for (const Axis& a : kernel.domain)
        if (step_along(index, a) == 1 && a.extent.as_int().value_or(0) >= kLeastAcross) found = &a;
    }
  });
  return stores_in_order ? found : nullptr;
}

}  // namespace

Kernel cross_points(Kernel kernel) {
  if (kernel.domain.size() < 2 || !is_flat(kernel.body)) return kernel;
  const Axis last = kernel.domain.back();
  const auto extent = last.extent.as_int();
  const Axis* found = extent && *extent > kTile && *extent % kTile == 0 ? axis_of_loads(kernel) : nullptr;
  if (!found) return kernel;
  const Axis across = *found;
  const Expr part = Expr::index(last.var.name() + "_part", *extent / kTile),
             in = Expr::index(last.var.name() + "_in", kTile);
  std::vector<Axis> domain;
  for (const Axis& a : kernel.domain)
    if (!a.var.same(across.var) && !a.var.same(last.var)) domain.push_back(a);
  domain.push_back({part, part.extent()});
  domain.push_back(across);
  domain.push_back({in, in.extent()});
  kernel.domain = std::move(domain);
  map_exprs(kernel, [&](const Expr& e) {
    return rewrite(substitute(e, {{last.var.name(), part * kTile + in}}), [](const Expr& x) {
      if (x.op() == ExprOp::Load) return Expr::load(x.buffer(), x.type(), simplify(x.arg(0)));
      return x.type() == DType::Bool || x.type() == DType::I64 ? simplify(x) : Expr();
    });
  });
  return kernel;
}

}  // namespace ingot
