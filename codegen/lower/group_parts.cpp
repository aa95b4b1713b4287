#include "codegen/lower/group_parts.h"

#include <algorithm>

#include "compiler/expr/simplify.h"

namespace ingot {

std::vector<Axis> axes_of(const std::vector<Expr>& indices) {
  std::vector<Axis> axes;
  for (const Expr& i : indices) axes.push_back({i, i.extent()});
  return axes;
}

Store store_of(const GroupValues& values, ValueId v, const Index& index, Expr value) {
  const TensorType& type = values.body().value(v).type;
  if (value.op() == ExprOp::Round && value.rounded_to() == type.dtype) value = Expr(value.arg(0));  // the store rounds
  return {values.buffer_of(v), values.position(v, index), std::move(value)};
}

/// The position of a value of the same shape as v, which does not follow from the anchor.
static const Index& position_like(const Graph& body, const std::map<ValueId, Index>& position, ValueId v) {
  for (const auto& [other, index] : position)
    if (same_shape(body.value(other).type.shape, body.value(v).type.shape)) return index;
  INGOT_CHECK(false, "epilogue_of: an output has the shape of nothing that the group computes");
}

static Body stores_of(GroupValues& values, ValueId anchor, const Index& at, const Expr& acc, std::span<const ValueId> outputs,
                      std::map<ValueId, Index>* positions) {
  const Graph& body = values.body();
  std::map<ValueId, Index> position{{anchor, at}};
  values.bind(anchor, acc);
  for (NodeId id : body.order()) {
    const Node& n = body.node(id);
    const auto from = std::find_if(n.inputs.begin(), n.inputs.end(), [&](ValueId v) { return position.count(v); });
    if (from == n.inputs.end() || n.op->lowers_as<Reduction>()) continue;  // what follows a reduction has an anchor of its own
    const NodeView view(body, n);
    if (auto* m = n.op->lowers_as<Movement>()) {
      Index to = m->inverse(*view, position[*from]);
      for (Expr& i : to) i = simplify(i);
      position[n.outputs[0]] = to;
      values.bind(n.outputs[0], values.bound(*from));
      continue;
    }
    position[n.outputs[0]] = position[*from];
    values.bind(n.outputs[0], values.pointwise(n, position[*from]));
  }
  Body stores;
  for (ValueId v : outputs) {
    const Node* n = body.producer(v);
    if (n && n->op->lowers_as<Reduction>() && v != anchor) continue;
    const bool bound = position.count(v);
    const Index& to = bound ? position.at(v) : position_like(body, position, v);
    stores.push_back({store_of(values, v, to, bound ? values.bound(v) : values.at(v, to))});
  }
  if (positions) *positions = std::move(position);
  return stores;
}
Body epilogue_of(GroupValues& values, ValueId anchor, const Index& at, const Expr& acc, std::map<ValueId, Index>* positions) {
  return stores_of(values, anchor, at, acc, values.body().outputs, positions);
}
Body epilogue_of(GroupValues& values, ValueId anchor, const Index& at, const Expr& acc, std::span<const ValueId> outputs) {
  return stores_of(values, anchor, at, acc, outputs, nullptr);
}

Index fresh_index(const std::string& prefix, const Shape& shape) {
  Index index;
  for (size_t d = 0; d < shape.size(); ++d) index.push_back(Expr::index(prefix + std::to_string(d), shape[d]));
  return index;
}

Reduce reduce_of(GroupValues& values, const Node& n, const Index& out, const Index& reduced, const std::string& name) {
  const Graph& body = values.body();
  const NodeView view(body, n);
  const Reduction& r = *n.op->lowers_as<Reduction>();
  const ReductionForm form = r.form(*view);
  Reduce s;
  s.combine = form.combine;
  s.axes = axes_of(reduced);
  s.value = values.resolve(n, r.value(*view, out, reduced));
  const bool arg = form.combine >= Combine::ArgMax;
  s.result = Expr::local(name, arg ? DType::I64 : s.value.type());
  s.init = arg ? Expr(0) : identity_of(form.combine, s.value.type());
  s.last = form.last;
  return s;
}
Expr finish_of(GroupValues& values, const Node& n, const Index& out, const Expr& acc) {
  const NodeView view(values.body(), n);
  const Reduction& r = *n.op->lowers_as<Reduction>();
  return r.finish ? values.resolve(n, r.finish(*view, out, acc)) : acc;
}

ValueId unmoved(const Graph& body, ValueId v) {
  for (const Node* n = body.producer(v); n; n = body.producer(v)) {
    auto* m = n->op->lowers_as<Movement>();
    if (!m || !m->inverse) break;
    v = n->inputs[0];
  }
  return v;
}
Index moved_index(const Graph& body, ValueId v, ValueId source, const Index& index) {
  if (v == source) return index;
  const Node& n = *body.producer(v);
  const NodeView view(body, n);
  Index to = n.op->lowers_as<Movement>()->inverse(*view, moved_index(body, n.inputs[0], source, index));
  for (Expr& i : to) i = simplify(i);
  return to;
}

}  // namespace ingot
