// Fewer, longer axes: two neighbours that every access walks in order become one, so that contiguous runs are long and
// indices need no division.
#include <map>
#include <set>

#include "codegen/lower/kernel_walk.h"
#include "codegen/lower/lower_group.h"
#include "compiler/expr/simplify.h"

namespace ingot {
namespace {

/// The integer expressions whose dependence on the axes matters: positions, guards and converted indices.
std::vector<Expr> index_roots(const Kernel& k) {
  std::vector<Expr> roots;
  std::set<const void*> seen;
  for_each_expr(k, [&](const Expr& e) {
    if (e.type() == DType::I64) roots.push_back(e);
    visit(e, [&](const Expr& x) {
      if (!seen.insert(x.id()).second) return;
      for (const Expr& a : x.args())
        if (a.type() == DType::I64 && (x.type() != DType::I64 || x.op() == ExprOp::Load)) roots.push_back(a);
    });
  });
  return roots;
}

bool mergeable(const std::vector<Expr>& roots, const Axis& i, const Axis& j) {
  for (const Expr& e : roots) {
    const auto ci = linear_coefficient(e, i.var.name()), cj = linear_coefficient(e, j.var.name());
    if (!ci || !cj || !proves_equal(*ci, *cj * j.extent)) return false;
  }
  return true;
}

void replace_symbols(Kernel& k, const Bindings& bindings) {
  map_exprs(k, [&](const Expr& e) {
    const Expr s = substitute(e, bindings);
    return s.id() == e.id() ? e : s.type() == DType::I64 ? simplify(s) : rewrite(s, [](const Expr& x) {
      return x.op() == ExprOp::Load ? Expr::load(x.buffer(), x.type(), simplify(x.arg(0))) : Expr();
    });
  });
}

}  // namespace

void collapse_axes(Kernel& k) {
  Bindings ones;
  for_each_axes(k, [&](std::vector<Axis>& axes) {
    std::vector<Axis> kept;
    for (Axis& a : axes) {
      if (a.extent.is_const(1)) ones.emplace(a.var.name(), 0);
      else kept.push_back(a);
    }
    axes = std::move(kept);
  });
  if (!ones.empty()) replace_symbols(k, ones);

  for (bool changed = true; changed;) {
    changed = false;
    const std::vector<Expr> roots = index_roots(k);
    Bindings merged;
    for_each_axes(k, [&](std::vector<Axis>& axes) {
      if (changed) return;
      for (size_t i = 0; i + 1 < axes.size(); ++i) {
        if (!mergeable(roots, axes[i], axes[i + 1])) continue;
        const Expr extent = simplify(axes[i].extent * axes[i + 1].extent);
        const Expr var = Expr::index(axes[i].var.name(), extent);
        merged.emplace(axes[i].var.name(), 0);
        merged.emplace(axes[i + 1].var.name(), var);
        axes[i] = {var, extent};
        axes.erase(axes.begin() + static_cast<int64_t>(i) + 1);
        changed = true;
        return;
      }
    });
    if (changed) replace_symbols(k, merged);
  }
}

std::vector<Expr> free_dims(const Kernel& k) {
  std::map<std::string, Expr> dims;
  auto collect = [&](const Expr& e) {
    visit(e, [&](const Expr& x) {
      if (x.op() == ExprOp::Symbol && x.type() == DType::I64 && !x.extent().valid() && x.low() > -kNoLimit) dims.emplace(x.name(), x);
    });
  };
  for_each_expr(k, collect);
  std::vector<Expr> list;
  for (auto& [name, e] : dims) list.push_back(e);
  return list;
}

}  // namespace ingot
