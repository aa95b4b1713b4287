// Bytes and operations of a kernel, counted from its expressions.
#include "codegen/build_program.h"
#include "compiler/expr/simplify.h"

namespace ingot {
namespace {

Expr extent_of(const std::vector<Axis>& axes) {
  Expr e = 1;
  for (const Axis& a : axes) e = e * a.extent;
  return e;
}

Expr body_flops(const Body& body) {
  Expr total = 0;
  for (const Stmt& s : body) {
    if (auto* let = s.as<Let>()) total = total + count_flops(let->value);
    if (auto* st = s.as<Store>()) total = total + count_flops(st->value);
    if (auto* r = s.as<Reduce>()) total = total + extent_of(r->axes) * (count_flops(r->value) + 1);
    if (auto* l = s.as<Loop>()) total = total + extent_of(l->axes) * body_flops(l->body);
    if (auto* i = s.as<If>()) total = total + body_flops(i->body);
    if (auto* t = s.as<Attend>()) {
      const Expr rows = extent_of(t->batch) * extent_of(t->m), logits = rows * extent_of(t->n);
      const Expr products = (extent_of(t->k) + extent_of(t->d)) * 2;
      total = total + logits * (products + count_flops(t->score) + 4) + rows * extent_of(t->d) * body_flops(t->epilogue);
    }
    if (auto* c = s.as<Contract>()) {
      const Expr outputs = extent_of(c->batch) * extent_of(c->m) * extent_of(c->n);
      const int64_t each = c->group.empty() ? 0 : count_flops(c->value) + 1;
      total = total + outputs * (extent_of(c->group) * (extent_of(c->k) * 2 + each) + body_flops(c->epilogue));
      for (const Store& sum : c->parts.sums) total = total + outputs * (count_flops(sum.value) + 1);
      total = total + extent_of(c->batch) * extent_of(c->m) * body_flops(c->rows);
    }
  }
  return total;
}

}  // namespace

Expr kernel_bytes(const Kernel& k) {
  Expr total = 0;
  for (const Buffer& b : k.buffers)
    total = total + (b.part.valid() ? b.part : product(b.shape)) * static_cast<int64_t>(size_of(b.type));
  return simplify(total);
}

Expr kernel_flops(const Kernel& k) { return simplify(extent_of(k.domain) * body_flops(k.body)); }

}  // namespace ingot
