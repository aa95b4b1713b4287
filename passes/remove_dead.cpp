#include <fmt/format.h>

#include <unordered_map>

#include "passes/passes.h"

namespace ingot {
namespace {

/// What makes two nodes the same: operator, attributes, inputs.
std::string key_of(const Node& n) {
  std::string key = fmt::format("{}({})", n.op->name, n.attrs.text());
  for (ValueId v : n.inputs) key += fmt::format(" {}", v.index);
  return key;
}

}  // namespace

Result<bool> remove_dead(Graph& graph, const PassContext&) {
  bool changed = false;
  std::unordered_map<std::string, NodeId> seen;
  for (NodeId id : graph.order()) {
    if (graph.node(id).dead || graph.node(id).body) continue;
    auto [it, inserted] = seen.emplace(key_of(graph.node(id)), id);
    if (inserted) continue;
    const Node& twin = graph.node(it->second);
    for (size_t i = 0; i < twin.outputs.size(); ++i) graph.replace_all_uses(graph.node(id).outputs[i], twin.outputs[i]);
    changed |= graph.erase_if_dead(id);
  }
  const std::vector<NodeId> order = graph.order();
  for (auto it = order.rbegin(); it != order.rend(); ++it)
    if (!graph.node(*it).dead) changed |= graph.erase_if_dead(*it);
  return changed;
}

}  // namespace ingot
