#include "compiler/ir/verify.h"

#include <fmt/format.h>

#include <algorithm>

namespace ingot {
namespace {

struct Rule {
  const char* text;
  Stage from;
  bool (*holds)(const Graph&, const Node&);
};

bool has_lowering(const Graph&, const Node& n) { return n.op->lowers_as<NoLowering>() == nullptr; }
bool is_decomposed(const Graph&, const Node& n) { return n.op->lowers_as<Decompose>() == nullptr; }
bool is_fused(const Graph&, const Node& n) { return n.op->lowers_as<Fused>() != nullptr; }
bool body_matches(const Graph& g, const Node& n) {
  if (!n.op->lowers_as<Fused>()) return true;
  if (!n.body || n.body->inputs.size() != n.inputs.size() || n.body->outputs.size() != n.outputs.size()) return false;
  for (size_t i = 0; i < n.outputs.size(); ++i)
    if (!same_type(n.body->value(n.body->outputs[i]).type, g.value(n.outputs[i]).type)) return false;
  return true;
}
bool arity_fits(const Graph&, const Node& n) {
  const auto count = static_cast<int>(n.inputs.size());
  return count >= n.op->min_inputs && count <= n.op->max_inputs;
}
bool uses_are_listed(const Graph& g, const Node& n) {
  for (ValueId v : n.inputs) {
    if (!v.valid()) continue;
    const auto& users = g.value(v).users;
    const auto self = std::count_if(users.begin(), users.end(), [&](NodeId u) { return &g.node(u) == &n; });
    if (self != std::count(n.inputs.begin(), n.inputs.end(), v)) return false;
  }
  return true;
}
bool types_follow(const Graph& g, const Node& n) {
  if (!n.op->infer) return true;
  const NodeView view(g, n);
  auto types = n.op->infer(*view);
  if (!types || types->size() != n.outputs.size()) return false;
  for (size_t i = 0; i < types->size(); ++i)
    if ((*types)[i].dtype != view->outputs[i].dtype || (*types)[i].rank() != view->outputs[i].rank()) return false;
  return true;
}

constexpr Rule kRules[] = {
    {"the operator has a meaning after import", Stage::Imported, has_lowering},
    {"the number of inputs fits the operator", Stage::Imported, arity_fits},
    {"use lists agree with inputs", Stage::Imported, uses_are_listed},
    {"output types are what infer says", Stage::Imported, types_follow},
    {"composite operators are decomposed", Stage::Canonical, is_decomposed},
    {"every node is a fused group", Stage::Fused, is_fused},
    {"a group's body has the node's inputs and outputs", Stage::Fused, body_matches},
};

}  // namespace

Status verify(const Graph& graph, Stage stage) {
  for (NodeId id : graph.order()) {
    const Node& n = graph.node(id);
    for (const Rule& r : kRules) {
      if (stage < r.from || r.holds(graph, n)) continue;
      return make_error(ErrorKind::Internal, fmt::format("node {} ({}) breaks the rule: {}", id.index, n.op->name, r.text));
    }
  }
  for (ValueId v : graph.outputs)
    if (!v.valid() || v.index >= graph.value_count()) return make_error(ErrorKind::Internal, "a graph output is no value");
  if (graph.output_names.size() != graph.outputs.size()) return make_error(ErrorKind::Internal, "output names are missing");
  return {};
}

}  // namespace ingot
