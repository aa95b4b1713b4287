// The two graphs of the page, as JSON: {"nodes": [{"kind", "label", "op", "type", "groups"}], "edges": [[from, to, type]]}.
// kind is "input", "output", "node" (of the model), "group" or "join"; groups are positions in the report's "groups".
#include <map>
#include <set>

#include "compiler/driver/cli_inspection.h"
#include "compiler/ops/joins.h"

namespace ingot::cli {
namespace {

using nlohmann::json;

class Drawing {
 public:
  size_t node(const char* kind, const std::string& label, const std::string& op, const std::string& type, json groups) {
    nodes_.push_back({{"kind", kind}, {"label", label}, {"op", op}, {"type", type}, {"groups", std::move(groups)}});
    return nodes_.size() - 1;
  }
  void edge(size_t from, size_t to, const std::string& type) {
    if (seen_.emplace(from, to).second) edges_.push_back({from, to, type});
  }
  json take() { return {{"nodes", std::move(nodes_)}, {"edges", std::move(edges_)}}; }

 private:
  json nodes_ = json::array(), edges_ = json::array();
  std::set<std::pair<size_t, size_t>> seen_;
};

/// The groups that each node of the model went into. A node of a function's body counts for the call.
class Owners {
 public:
  Owners(const Inspection& i, const ModelOutline& outline) {
    std::set<std::string> labels;
    for (const OutlineNode& n : outline.nodes) labels.insert(n.label);
    for (size_t k = 0; k < i.fused.plan.order.size(); ++k)
      for (std::string name : i.fused.graph.node(i.fused.plan.order[k]).origin.nodes) {
        while (!labels.count(name) && name.find('/') != std::string::npos) name.resize(name.rfind('/'));
        groups_[name].insert(k);
      }
  }
  json of(const std::string& label) const {
    const auto it = groups_.find(label);
    return it == groups_.end() ? json::array() : json(it->second);
  }

 private:
  std::map<std::string, std::set<size_t>> groups_;
};

json draw_model(const Inspection& i, const ModelOutline& outline, const Graph& imported) {
  std::map<std::string, std::string> types;
  for (size_t v = 0; v < imported.value_count(); ++v) {
    const Value& value = imported.value(ValueId(v));
    if (!value.name.empty()) types.emplace(value.name, to_string(value.type));
  }
  const auto type_of = [&](const std::string& name) {
    const auto it = types.find(name);
    return it == types.end() ? std::string() : it->second;
  };
  const Owners owners(i, outline);
  Drawing drawing;
  std::map<std::string, size_t> writer;
  for (const std::string& name : outline.inputs)
    writer.emplace(name, drawing.node("input", name, "input", type_of(name), json::array()));
  for (const OutlineNode& n : outline.nodes) {
    const std::string type = n.outputs.empty() ? "" : type_of(n.outputs[0]);
    const size_t at = drawing.node("node", n.label, n.op, type, owners.of(n.label));
    for (const std::string& name : n.outputs) writer.emplace(name, at);
  }
  size_t at = outline.inputs.size();
  const auto connect = [&](const std::string& name, size_t to) {
    if (const auto it = writer.find(name); it != writer.end()) drawing.edge(it->second, to, type_of(name));
  };
  for (const OutlineNode& n : outline.nodes) {
    for (const std::string& name : n.inputs) connect(name, at);
    ++at;
  }
  for (const std::string& name : outline.outputs)
    connect(name, drawing.node("output", name, "output", type_of(name), json::array()));
  return drawing.take();
}

json draw_groups(const Inspection& i) {
  const Graph& g = i.fused.graph;
  const auto type_of = [&](ValueId v) { return to_string(g.value(v).type); };
  Drawing drawing;
  std::map<ValueId, size_t> writer;
  for (ValueId v : g.inputs) writer[v] = drawing.node("input", g.value(v).name, "input", type_of(v), json::array());
  IdMap<NodeId, int> position(g.node_count(), -1);
  for (size_t k = 0; k < i.fused.plan.order.size(); ++k) position[i.fused.plan.order[k]] = static_cast<int>(k);
  for (NodeId id : g.order()) {
    const Node& n = g.node(id);
    const std::string type = type_of(n.outputs[0]);
    const int k = position.at(id);
    const std::string label = n.origin.nodes.empty() ? "" : n.origin.nodes[0];
    const size_t at = k < 0 ? drawing.node("join", label, "join", type, json::array())
                            : drawing.node("group", label, i.fused.lowered.kernels[static_cast<size_t>(k)].name, type, {k});
    for (ValueId v : n.inputs)
      if (const auto it = writer.find(v); it != writer.end()) drawing.edge(it->second, at, type_of(v));
    for (ValueId v : n.outputs) writer[v] = at;
  }
  for (size_t k = 0; k < g.outputs.size(); ++k) {
    const size_t at = drawing.node("output", g.output_names[k], "output", type_of(g.outputs[k]), json::array());
    if (const auto it = writer.find(g.outputs[k]); it != writer.end()) drawing.edge(it->second, at, type_of(g.outputs[k]));
  }
  return drawing.take();
}

}  // namespace

json graphs_json(const Inspection& i, const ModelOutline& outline, const Graph& imported) {
  return {{"before", draw_model(i, outline, imported)}, {"after", draw_groups(i)}};
}

}  // namespace ingot::cli
