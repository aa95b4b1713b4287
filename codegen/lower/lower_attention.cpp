// An attention group: product of queries and keys, pointwise work, softmax (as max, sub, exp, sum, div), product with the
// values, epilogue. The softmax is what the kernel statement means, so its nodes are not lowered one by one.
#include "codegen/lower/group_parts.h"
#include "compiler/expr/simplify.h"
#include "compiler/ops/operands.h"

namespace ingot {
namespace {

/// The nodes of the group that matter, in the order of computation.
struct Parts {
  const Node *scores = nullptr, *top = nullptr, *values = nullptr;  // product, ReduceMax, product
  NoLogit no_logit = NoLogit::Nan;
};
Parts parts_of(const Graph& body) {
  Parts p;
  for (NodeId id : body.order()) {
    const Node& n = body.node(id);
    if (n.op->lowers_as<Contraction>()) (p.scores ? p.values : p.scores) = &n;
    if (n.op->lowers_as<Reduction>() && !p.top) p.top = &n;
    if (!p.top || p.values) continue;
    if (n.op->name == "IsNaN") p.no_logit = NoLogit::NanIsZero;         // Where(IsNaN(weights), 0, weights)
    else if (n.op->name == "FiniteOrZero") p.no_logit = NoLogit::Zero;  // of the largest logit
  }
  INGOT_CHECK(p.scores && p.top && p.values, "lower_attention: the group is not an attention");
  return p;
}

/// A constant factor of an operand, taken out of it: it scales the sums as well.
Expr take_factor(Expr& operand) {
  if (operand.op() != ExprOp::Mul) return Expr();
  for (size_t i = 0; i < 2; ++i) {
    if (!operand.arg(i).is_const()) continue;
    const Expr factor = operand.arg(i);
    operand = Expr(operand.arg(1 - i));
    return factor;
  }
  return Expr();
}

/// The second product, its axes named apart from those of the first.
ContractionForm with_names(ContractionForm form) {
  Bindings bindings;
  const auto rename = [&](std::vector<Expr>& axes, const char* stem) {
    for (size_t i = 0; i < axes.size(); ++i) {
      const Expr fresh = Expr::index(stem + std::to_string(i), axes[i].extent());
      bindings.emplace(axes[i].name(), fresh);
      axes[i] = fresh;
    }
  };
  rename(form.k, "key");
  rename(form.n, "d");
  form.a = substitute(form.a, bindings);
  form.b = substitute(form.b, bindings);
  for (Expr& i : form.out) i = substitute(i, bindings);
  return form;
}

}  // namespace

void lower_attention(GroupValues& group, Kernel& kernel) {
  const Graph& body = group.body();
  const Parts parts = parts_of(body);
  const NodeView scores(body, *parts.scores), values(body, *parts.values);
  const ContractionForm first = parts.scores->op->lowers_as<Contraction>()->form(*scores);
  const ContractionForm second = with_names(parts.values->op->lowers_as<Contraction>()->form(*values));
  Attend t;
  t.batch = axes_of(second.batch);
  t.m = axes_of(second.m);
  t.n = axes_of(second.k);
  t.k = axes_of(first.k);
  t.d = axes_of(second.n);
  // The first product's result is read where the second one reads the weights.
  const std::span<const Expr> place = second.a.args();
  Bindings bindings;
  for (size_t i = 0; i < first.out.size(); ++i) bindings.emplace(first.out[i].name(), place[i]);
  const auto operand = [&](const Expr& e) { return group.resolve(*parts.scores, substitute(e, bindings)); };
  t.q = operand(first.a);
  t.key = operand(first.b);
  t.dot = Expr::local("dot", DType::F32);
  Expr dot = t.dot;
  for (Expr* e : {&t.q, &t.key})
    for (Expr factor = take_factor(*e); factor.valid(); factor = take_factor(*e)) dot = dot * factor;
  group.bind(parts.scores->outputs[0], dot);
  t.score = group.at(parts.top->inputs[0], Index(place.begin(), place.end()));
  t.value = group.resolve(*parts.values, second.b);
  t.acc = Expr::local("acc", DType::F32);
  t.no_logit = parts.no_logit;
  const auto stored = [&](ValueId v, bool through_factors) {
    const DType type = operand_type(body, v, through_factors);
    return is_f8(type) ? DType::F32 : type;
  };
  const DType q = stored(parts.scores->inputs[0], true), key = stored(parts.scores->inputs[1], true);
  t.v_type = stored(parts.values->inputs[1], false);
  t.q_type = q == key && q == t.v_type ? q : DType::F32;
  Index out = second.out;
  for (Expr& i : out) i = simplify(i);
  t.epilogue = epilogue_of(group, parts.values->outputs[0], out, t.acc);
  kernel.body.push_back({std::move(t)});
}

}  // namespace ingot
