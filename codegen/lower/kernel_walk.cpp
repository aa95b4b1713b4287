#include "codegen/lower/kernel_walk.h"

#include "compiler/expr/simplify.h"

namespace ingot {
namespace {

using Map = std::function<Expr(const Expr&)>;

void map_axes(std::vector<Axis>& axes, const Map& f) {
  for (Axis& a : axes) a.extent = f(a.extent);
}
void map_body(Body& body, const Map& f) {
  for (Stmt& s : body) {
    if (auto* let = std::get_if<Let>(&s.node)) let->value = f(let->value);
    if (auto* st = std::get_if<Store>(&s.node)) st->index = f(st->index), st->value = f(st->value);
    if (auto* l = std::get_if<Loop>(&s.node)) map_axes(l->axes, f), map_body(l->body, f);
    if (auto* r = std::get_if<Reduce>(&s.node)) map_axes(r->axes, f), r->init = f(r->init), r->value = f(r->value);
    if (auto* a = std::get_if<Alloc>(&s.node)) a->size = f(a->size);
    if (auto* i = std::get_if<If>(&s.node)) i->condition = f(i->condition), map_body(i->body, f);
    if (auto* t = std::get_if<Attend>(&s.node)) {
      for (auto* axes : {&t->batch, &t->m, &t->n, &t->k, &t->d}) map_axes(*axes, f);
      for (Expr* e : {&t->q, &t->key, &t->score, &t->value}) *e = f(*e);
      map_body(t->epilogue, f);
    }
    if (auto* c = std::get_if<Contract>(&s.node)) {
      for (auto* axes : {&c->batch, &c->m, &c->group, &c->n, &c->k}) map_axes(*axes, f);
      c->a = f(c->a), c->b = f(c->b);
      if (c->value.valid()) c->value = f(c->value);
      map_body(c->rows, f);
      map_body(c->epilogue, f);
      for (Store& sum : c->parts.sums) sum.index = f(sum.index), sum.value = f(sum.value);
    }
  }
}
void walk_axes(Body& body, const std::function<void(std::vector<Axis>&)>& f) {
  for (Stmt& s : body) {
    if (auto* l = std::get_if<Loop>(&s.node)) f(l->axes), walk_axes(l->body, f);
    if (auto* r = std::get_if<Reduce>(&s.node)) f(r->axes);
    if (auto* i = std::get_if<If>(&s.node)) walk_axes(i->body, f);
    if (auto* t = std::get_if<Attend>(&s.node))
      for (auto* axes : {&t->batch, &t->m, &t->n, &t->k, &t->d}) f(*axes);
    if (auto* c = std::get_if<Contract>(&s.node))
      for (auto* axes : {&c->batch, &c->m, &c->group, &c->n, &c->k}) f(*axes);
  }
}

}  // namespace

void map_exprs(Kernel& k, const Map& f) {
  map_axes(k.domain, f);
  map_body(k.body, f);
}
void for_each_expr(const Kernel& k, const std::function<void(const Expr&)>& f) {
  Kernel copy = k;
  map_exprs(copy, [&](const Expr& e) {
    f(e);
    return e;
  });
}
void for_each_axes(Kernel& k, const std::function<void(std::vector<Axis>&)>& f) {
  f(k.domain);
  walk_axes(k.body, f);
}

Expr at(const Expr& e, const Bindings& bindings) {
  return rewrite(substitute(e, bindings), [](const Expr& x) {
    if (x.op() == ExprOp::Load) return Expr::load(x.buffer(), x.type(), simplify(x.arg(0)));
    return x.type() == DType::Bool || x.type() == DType::I64 ? simplify(x) : Expr();
  });
}

}  // namespace ingot
