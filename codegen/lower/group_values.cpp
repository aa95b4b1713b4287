#include "codegen/lower/group_values.h"

#include <fmt/format.h>

#include "compiler/expr/simplify.h"
#include "compiler/ops/joins.h"
#include "compiler/support/hash.h"

namespace ingot {

GroupValues::GroupValues(const Graph& graph, const Node& node) : graph_(graph), body_(*node.body) {
  const auto add = [&](ValueId inside, ValueId outside, size_t buffer) {
    buffers_.emplace(inside, static_cast<int>(buffer));
    outside_.emplace(inside, outside);
  };
  const size_t inputs = node.inputs.size();
  for (size_t i = 0; i < inputs; ++i) add(body_.inputs[i], node.inputs[i], i);
  for (size_t i = 0; i < node.outputs.size(); ++i) add(body_.outputs[i], node.outputs[i], inputs + i);
}

Expr GroupValues::position(ValueId v, const Index& index) const {
  const auto it = outside_.find(v);
  if (it == outside_.end()) return linear_index(body_.value(v).type.shape, index);  // a constant of the body
  const ValueId outside = it->second, holder = holder_of(graph_, outside);
  return linear_index(graph_.value(holder).type.shape, index_in_holder(graph_, outside, index));
}

Expr place_in_row(const Shape& shape, const Index& index) {
  return simplify(linear_index(Shape(shape.begin() + 1, shape.end()), Index(index.begin() + 1, index.end())));
}

Expr GroupValues::at(ValueId v, const Index& index) {
  if (auto it = scratch_.find(v); it != scratch_.end())
    return Expr::load(it->second, compute_type(body_.value(v).type.dtype), place_in_row(body_.value(v).type.shape, index));
  if (auto it = bound_.find(v); it != bound_.end()) return it->second;
  uint64_t h = v.index;
  for (const Expr& i : index) h = mix_hash(h, i.hash());
  auto& known = memo_[{v, h}];
  for (const auto& [at, e] : known)
    if (std::equal(at.begin(), at.end(), index.begin(), [](const Expr& a, const Expr& b) { return a.same(b); })) return e;

  const Value& value = body_.value(v);
  Expr result;
  if (const Node* n = body_.producer(v)) {
    const NodeView view(body_, *n);
    if (n->op->lowers_as<Pointwise>()) result = pointwise(*n, index);
    else if (auto* m = n->op->lowers_as<Movement>()) result = resolve(*n, m->element(*view, index));
    else if (auto* e = n->op->lowers_as<Element>()) result = resolve(*n, e->element(*view, index));
    else if (n->op->lowers_as<Reduction>()) result = few_terms(*n, index);
    INGOT_CHECK(result.valid(), "group_values: " + std::string(n->op->name) + " is not computed yet and cannot be inlined");
  } else {
    const Expr at = position(v, index);
    const auto constant = at.as_int();
    if (value.content && value.content->size() == 1) result = (*value.content)[0];
    else if (value.content && constant && *constant < static_cast<int64_t>(value.content->size())) result = (*value.content)[static_cast<size_t>(*constant)];
    else result = Expr::load(buffers_.at(v), value.type.dtype, at);
  }
  memo_[{v, h}].emplace_back(index, result);
  return result;
}

Expr GroupValues::few_terms(const Node& node, const Index& out) {
  const NodeView view(body_, node);
  const Reduction& r = *node.op->lowers_as<Reduction>();
  const ReductionForm form = r.form(*view);
  const auto terms = element_count(form.extents).as_int();
  if (!terms || *terms < 1 || *terms > kFewTerms || form.combine >= Combine::ArgMax) return Expr();
  Expr all;
  for (int64_t i = 0; i < *terms; ++i) {
    const Expr term = resolve(node, r.value(*view, out, delinearize(form.extents, Expr(i))));
    all = all.valid() ? combine_pair(form.combine, all, term) : term;
  }
  return r.finish ? resolve(node, r.finish(*view, out, all)) : all;
}

/// `i < k` for an index i: its name; else nothing. What stands behind the condition knows more of i than its extent.
static const Expr* index_below(const Expr& condition, int64_t& k) {
  if (condition.op() != ExprOp::Lt || condition.arg(0).op() != ExprOp::Symbol || !condition.arg(0).extent().valid()) return nullptr;
  const auto bound = condition.arg(1).as_int();
  if (!bound || *bound <= 0 || condition.arg(0).extent().as_int().value_or(*bound + 1) <= *bound) return nullptr;
  k = *bound;
  return &condition.arg(0);
}

Expr GroupValues::resolve(const Node& node, const Expr& e) {
  std::function<Expr(const Expr&)> replace = [&](const Expr& x) -> Expr {
    int64_t k = 0;
    const Expr* i = x.op() == ExprOp::Select ? index_below(x.arg(0), k) : nullptr;
    if (i) {
      // Parts behind one another: an index from 0 on simplifies where one that may be negative does not.
      const Expr below = Expr::index(fmt::format("{}_below{}", i->name(), k), Expr(k));
      const Expr behind = Expr::index(fmt::format("{}_from{}", i->name(), k), simplify(i->extent() - k));
      const auto side = [&](const Expr& value, const Expr& index, const Expr& inside, const Expr& outside) {
        return substitute(rewrite(substitute(value, {{i->name(), inside}}), replace), {{index.name(), outside}});
      };
      return select(x.arg(0), side(x.arg(1), below, below, *i), side(x.arg(2), behind, behind + k, *i - k));
    }
    if (x.op() != ExprOp::Read) return Expr();
    Index index;
    for (const Expr& i : x.args()) index.push_back(simplify(rewrite(i, replace)));
    return at(node.inputs[static_cast<size_t>(x.buffer())], index);
  };
  return rewrite(e, replace);
}

Expr GroupValues::pointwise(const Node& node, const Index& out) {
  const NodeView view(body_, node);
  std::vector<Expr> args;
  for (size_t i = 0; i < node.inputs.size(); ++i)
    args.push_back(view->has(i) ? at(node.inputs[i], broadcast_index(view->inputs[i].shape, out)) : Expr());
  return node.op->lowers_as<Pointwise>()->scalar(*view, args);
}

}  // namespace ingot
