#include "codegen/llvm/kernel_rewrite.h"

#include <set>
#include <unordered_set>

#include "codegen/llvm/expr_emitter.h"
#include "compiler/expr/simplify.h"

namespace ingot::cpu {
namespace {

template <class... F>
struct Overload : F... {
  using F::operator()...;
};
template <class... F>
Overload(F...) -> Overload<F...>;

using Mapper = std::function<Expr(const Expr&)>;

std::vector<Axis> map_axes(const std::vector<Axis>& axes, const Mapper& f) {
  std::vector<Axis> out;
  for (const Axis& a : axes) out.push_back({a.var, f(a.extent)});
  return out;
}

Stmt map_stmt(const Stmt& stmt, const Mapper& f) {
  return std::visit(Overload{[&](const Let& s) { return Stmt{Let{s.var, f(s.value)}}; },
                             [&](const Store& s) { return Stmt{Store{s.buffer, f(s.index), f(s.value)}}; },
                             [&](const Loop& s) { return Stmt{Loop{map_axes(s.axes, f), map_body(s.body, f)}}; },
                             [&](const Reduce& s) {
                               Reduce r = s;
                               if (r.init.valid()) r.init = f(r.init);
                               r.axes = map_axes(s.axes, f);
                               r.value = f(s.value);
                               return Stmt{std::move(r)};
                             },
                             [&](const Alloc& s) { return Stmt{Alloc{s.buffer, s.name, s.type, f(s.size)}}; },
                             [&](const If& s) { return Stmt{If{f(s.condition), map_body(s.body, f)}}; },
                             [&](const Contract& s) {
                               Contract c = s;
                               c.batch = map_axes(s.batch, f);
                               c.m = map_axes(s.m, f);
                               c.n = map_axes(s.n, f);
                               c.k = map_axes(s.k, f);
                               c.a = f(s.a);
                               c.b = f(s.b);
                               c.epilogue = map_body(s.epilogue, f);
                               return Stmt{std::move(c)};
                             },
                             [&](const Attend& s) { return Stmt{s}; },  // refused by plan_cpu
                             [&](const Note& s) { return Stmt{s}; }},
                    stmt.node);
}

/// True when e uses `outer` and `inner` only in load indices that are linear in outer*extent + inner.
bool contiguous(const Expr& e, const std::string& outer, const Axis& inner, std::unordered_set<const void*>& seen) {
  if (!seen.insert(e.id()).second) return true;
  if (e.op() == ExprOp::Symbol) return e.name() != outer && e.name() != inner.var.name();
  if (e.op() != ExprOp::Load) {
    for (const Expr& a : e.args())
      if (!contiguous(a, outer, inner, seen)) return false;
    return true;
  }
  const Expr& index = e.arg(0);
  if (has_load(index)) return contiguous(index, outer, inner, seen);
  const auto co = linear_coefficient(index, outer), ci = linear_coefficient(index, inner.var.name());
  return co && ci && proves_equal(*co, *ci * inner.extent);
}

void collect_bound(const Body& body, std::set<std::string>& names) {
  const auto axes = [&](const std::vector<Axis>& list) {
    for (const Axis& a : list) names.insert(a.var.name());
  };
  for (const Stmt& s : body) {
    if (auto* x = s.as<Let>()) names.insert(x->var.name());
    if (auto* x = s.as<Loop>()) {
      axes(x->axes);
      collect_bound(x->body, names);
    }
    if (auto* x = s.as<Reduce>()) {
      axes(x->axes);
      names.insert(x->result.name());
    }
    if (auto* x = s.as<If>()) collect_bound(x->body, names);
  }
}

void visit_terms(const Expr& e, Combine combine, const std::vector<Axis>& axes, size_t axis, Bindings& at, Expr& sum) {
  if (axis == axes.size()) {
    sum = combine_pair(combine, sum, simplify(substitute(e, at)));
    return;
  }
  const int64_t n = *axes[axis].extent.as_int();
  for (int64_t i = 0; i < n; ++i) {
    at[axes[axis].var.name()] = Expr(i);
    visit_terms(e, combine, axes, axis + 1, at, sum);
  }
}

}  // namespace

Body map_body(const Body& body, const Mapper& f) {
  Body out;
  for (const Stmt& s : body) out.push_back(map_stmt(s, f));
  return out;
}

void for_each_expr(const Body& body, const std::function<void(const Expr&)>& f) {
  const auto axes = [&](const std::vector<Axis>& list) {
    for (const Axis& a : list) f(a.extent);
  };
  for (const Stmt& stmt : body)
    std::visit(Overload{[&](const Let& s) { f(s.value); },
                        [&](const Store& s) {
                          f(Expr::load(s.buffer, s.value.type(), s.index));
                          f(s.value);
                        },
                        [&](const Loop& s) {
                          axes(s.axes);
                          for_each_expr(s.body, f);
                        },
                        [&](const Reduce& s) {
                          if (s.init.valid()) f(s.init);
                          axes(s.axes);
                          f(s.value);
                        },
                        [&](const Alloc& s) { f(s.size); },
                        [&](const If& s) {
                          f(s.condition);
                          for_each_expr(s.body, f);
                        },
                        [&](const Contract& s) {
                          f(s.a);
                          f(s.b);
                          for_each_expr(s.epilogue, f);
                        },
                        [](const Attend&) {},
                        [](const Note&) {}},
               stmt.node);
}

Body substitute_body(const Body& body, const Bindings& bindings) {
  if (bindings.empty()) return body;
  return map_body(body, [&](const Expr& e) { return simplify(substitute(e, bindings)); });
}

void drop_unit_axes(std::vector<Axis>& axes, Bindings& zeros) {
  std::erase_if(axes, [&](const Axis& a) {
    if (!a.extent.is_const(1)) return false;
    zeros[a.var.name()] = Expr(0);
    return true;
  });
}

Bindings merge_axes(std::vector<Axis>& axes, std::vector<Expr> roots) {
  Bindings all;
  for (size_t i = axes.size(); i-- > 1;) {
    const Axis outer = axes[i - 1], inner = axes[i];
    bool possible = true;
    std::unordered_set<const void*> seen;
    for (const Expr& root : roots) possible = possible && contiguous(root, outer.var.name(), inner, seen);
    if (!possible) continue;
    const Expr extent = simplify(outer.extent * inner.extent);
    const Expr merged = Expr::index(outer.var.name() + "_" + inner.var.name(), extent);
    const Bindings step = {{outer.var.name(), Expr(0)}, {inner.var.name(), merged}};
    for (Expr& root : roots) root = simplify(substitute(root, step));
    for (auto& [name, e] : all) e = substitute(e, step);
    all.insert(step.begin(), step.end());
    axes[i - 1] = {merged, extent};
    axes.erase(axes.begin() + static_cast<ptrdiff_t>(i));
  }
  return all;
}

void simplify_axes(std::vector<Axis>& axes, Body& body) {
  Bindings zeros;
  drop_unit_axes(axes, zeros);
  body = substitute_body(body, zeros);
  std::vector<Expr> roots;
  for_each_expr(body, [&](const Expr& e) { roots.push_back(e); });
  body = substitute_body(body, merge_axes(axes, std::move(roots)));
}

Body inline_index_lets(const Body& body) {
  Body out;
  Bindings bindings;
  const auto apply = [&](const Expr& e) { return bindings.empty() ? e : simplify(substitute(e, bindings)); };
  for (const Stmt& s : body) {
    Stmt now = map_stmt(s, apply);
    if (auto* let = std::get_if<Let>(&now.node); let && let->value.type() == DType::I64 && !has_load(let->value)) {
      bindings[let->var.name()] = let->value;
      continue;
    }
    if (auto* loop = std::get_if<Loop>(&now.node)) loop->body = inline_index_lets(loop->body);
    if (auto* branch = std::get_if<If>(&now.node)) branch->body = inline_index_lets(branch->body);
    if (auto* contract = std::get_if<Contract>(&now.node)) contract->epilogue = inline_index_lets(contract->epilogue);
    out.push_back(std::move(now));
  }
  return out;
}

/// The reduction with its last axes unrolled, as far as `limit` positions; a Let when that is all of them.
static Stmt unroll_reduction(const Reduce& r, int64_t limit) {
  int64_t count = 1;
  size_t first = r.axes.size();
  for (; first > 0; --first) {
    const auto n = r.axes[first - 1].extent.as_int();
    if (!n || *n <= 0 || count * *n > limit) break;
    count *= *n;
  }
  if (first == r.axes.size()) return Stmt{r};
  const std::vector<Axis> inner(r.axes.begin() + static_cast<ptrdiff_t>(first), r.axes.end());
  Expr sum = first == 0 ? r.init : identity_of(r.combine, r.value.type());
  Bindings at;
  visit_terms(r.value, r.combine, inner, 0, at, sum);
  if (first == 0) return Stmt{Let{r.result, sum}};
  Reduce rest = r;
  rest.axes.resize(first);
  rest.value = sum;
  return Stmt{std::move(rest)};
}

Body unroll_reductions(const Body& body, int64_t limit) {
  Body out;
  for (const Stmt& s : body) {
    if (auto* r = s.as<Reduce>(); r && r->combine != Combine::ArgMax && r->combine != Combine::ArgMin) {
      out.push_back(unroll_reduction(*r, limit));
      continue;
    }
    Stmt now = s;
    if (auto* loop = std::get_if<Loop>(&now.node)) loop->body = unroll_reductions(loop->body, limit);
    if (auto* branch = std::get_if<If>(&now.node)) branch->body = unroll_reductions(branch->body, limit);
    out.push_back(std::move(now));
  }
  return out;
}

Guards find_guards(const Body& body, const std::string& symbol) {
  std::set<std::string> inside;
  collect_bound(body, inside);
  Guards guards;
  std::unordered_set<const void*> seen;
  const auto add = [](std::vector<Expr>& list, const Expr& e) {
    for (const Expr& known : list)
      if (known.same(e)) return;
    list.push_back(e);
  };
  const auto consider = [&](const Expr& c) {
    if ((c.op() != ExprOp::Lt && c.op() != ExprOp::Le) || c.arg(0).type() != DType::I64 || has_load(c)) return;
    bool known = true;
    visit(c, [&](const Expr& x) { known = known && !(x.op() == ExprOp::Symbol && inside.count(x.name())); });
    if (!known) return;
    if (!depends_on(c, symbol)) return add(guards.uniform, c);
    const auto step = linear_coefficient(simplify(c.arg(1) - c.arg(0)), symbol);
    if (step && step->as_int() && *step->as_int() != 0) add(guards.in_symbol, c);
  };
  for_each_expr(body, [&](const Expr& root) {
    visit(root, [&](const Expr& e) {
      if (e.op() != ExprOp::Select || !seen.insert(e.id()).second || has_load(e.arg(2)) || !has_load(e.arg(1))) return;
      std::vector<Expr> parts;
      conjuncts(e.arg(0), parts);
      for (const Expr& c : parts) consider(c);
    });
  });
  return guards;
}

bool has_statement(const Body& body, const std::function<bool(const Stmt&)>& test) {
  for (const Stmt& s : body) {
    if (test(s)) return true;
    if (auto* loop = s.as<Loop>(); loop && has_statement(loop->body, test)) return true;
    if (auto* branch = s.as<If>(); branch && has_statement(branch->body, test)) return true;
  }
  return false;
}

int64_t body_flops(const Body& body) {
  static constexpr int64_t kUnknown = 256, kMost = int64_t{1} << 40;
  const auto times = [](const std::vector<Axis>& axes) {
    int64_t n = 1;
    for (const Axis& a : axes) n = std::min(n * std::max<int64_t>(1, a.extent.as_int().value_or(kUnknown)), kMost);
    return n;
  };
  const auto cost = [](const Expr& e) {
    int64_t loads = 0;
    visit(e, [&](const Expr& x) { loads += x.op() == ExprOp::Load; });
    return count_flops(e) + 2 * loads;
  };
  int64_t sum = 0;
  for (const Stmt& s : body) {
    if (auto* x = s.as<Let>()) sum += cost(x->value);
    if (auto* x = s.as<Store>()) sum += cost(x->value) + 2;
    if (auto* x = s.as<Loop>()) sum += times(x->axes) * std::max<int64_t>(1, body_flops(x->body));
    if (auto* x = s.as<Reduce>()) sum += times(x->axes) * (1 + cost(x->value));
    if (auto* x = s.as<If>()) sum += body_flops(x->body);
    sum = std::min(sum, kMost);
  }
  return sum;
}

}  // namespace ingot::cpu
