#include "compiler/ops/joins.h"

#include <algorithm>

#include "compiler/expr/simplify.h"
#include "compiler/ops/registry.h"
#include "compiler/ops/rows.h"

namespace ingot {
namespace {

/// Where element `index` of input `v` of a Concat lies in its output.
Index index_in_concat(const Graph& body, const Node& concat, ValueId v, Index index) {
  const auto axis = static_cast<size_t>(concat.attrs.as<AxisAttrs>().axis);
  for (ValueId before : concat.inputs) {
    if (before == v) break;
    index[axis] = index[axis] + body.value(before).type.shape[axis];
  }
  return index;
}

}  // namespace

bool is_join(const Node& n) { return n.op->lowers_as<Fused>() && n.attrs.as<FusedAttrs>().kind == kJoinKind; }

const Node* join_of(const Graph& graph, ValueId v) {
  for (NodeId u : graph.value(v).users)
    if (is_join(graph.node(u))) return &graph.node(u);
  return nullptr;
}

ValueId holder_of(const Graph& graph, ValueId v) {
  for (const Node* join = join_of(graph, v); join; join = join_of(graph, v)) v = join->outputs[0];
  return v;
}

Index index_in_join(const Graph& body, ValueId part, Index index) {
  while (part != body.outputs[0]) {
    const Node& n = body.node(body.value(part).users.at(0));
    const NodeView view(body, n);
    const auto* move = n.op->lowers_as<Movement>();
    INGOT_CHECK(move, "a join computes something");
    index = move->inverse ? move->inverse(*view, index) : index_in_concat(body, n, part, std::move(index));
    for (Expr& i : index) i = simplify(i);
    part = n.outputs[0];
  }
  return index;
}

Index index_in_holder(const Graph& graph, ValueId v, Index index) {
  for (const Node* join = join_of(graph, v); join; join = join_of(graph, v)) {
    const auto at = std::find(join->inputs.begin(), join->inputs.end(), v) - join->inputs.begin();
    index = index_in_join(*join->body, join->body->inputs[static_cast<size_t>(at)], std::move(index));
    v = join->outputs[0];
  }
  return index;
}

std::vector<NodeId> writers_of(const Graph& graph, ValueId v) {
  const Node* n = graph.producer(v);
  if (!n) return {};
  if (!is_join(*n)) return {graph.value(v).producer};
  std::vector<NodeId> writers;
  for (ValueId part : n->inputs) {
    const std::vector<NodeId> more = writers_of(graph, part);
    writers.insert(writers.end(), more.begin(), more.end());
  }
  std::sort(writers.begin(), writers.end());
  writers.erase(std::unique(writers.begin(), writers.end()), writers.end());
  return writers;
}

}  // namespace ingot
