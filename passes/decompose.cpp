#include <fmt/format.h>

#include "compiler/ir/builder.h"
#include "passes/passes.h"

namespace ingot {

Result<bool> decompose(Graph& graph, const PassContext&) {
  bool changed = false;
  for (NodeId id : graph.order()) {
    const auto* row = graph.node(id).op->lowers_as<Decompose>();
    if (!row) continue;
    GraphBuilder builder(graph);
    const Node n = graph.node(id);  // expand() adds nodes, which moves the original
    builder.origin = n.origin;
    auto outputs = row->expand(builder, n);
    if (!outputs) return std::move(outputs.error().add(fmt::format("while decomposing {}", n.op->name)));
    for (size_t i = 0; i < outputs->size(); ++i) {
      Value& v = graph.value((*outputs)[i]);
      if (v.name.empty()) v.name = graph.value(n.outputs[i]).name;
      graph.replace_all_uses(n.outputs[i], (*outputs)[i]);
    }
    changed |= graph.erase_if_dead(id);
  }
  return changed;
}

}  // namespace ingot
