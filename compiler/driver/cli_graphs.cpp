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
    const std::vector<std::string> runs = owners_of_parts(i);
    for (size_t at = 0; at < i.parts.size(); ++at) {
      const PartView& p = i.parts[at];
      for (size_t k = 0; k < p.fused.plan.order.size(); ++k) {
        if (!runs[at].empty()) groups_[runs[at]].insert(p.first + k);
        for (std::string name : p.fused.graph.node(p.fused.plan.order[k]).origin.nodes) {
          while (!labels.count(name) && name.find('/') != std::string::npos) name.resize(name.rfind('/'));
          groups_[name].insert(p.first + k);
        }
      }
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

/// The kernels of all parts: values of the script lead from one to the next.
class GroupDrawing {
 public:
  explicit GroupDrawing(const Inspection& i) : i_(i) {}

  json run() {
    if (i_.scripts.empty()) draw_model_part(i_.parts[0]);
    else draw_script(0, "");
    return drawing_.take();
  }

 private:
  using Writers = std::map<ValueId, size_t>;

  void draw_model_part(const PartView& p) {
    const Graph& g = p.fused.graph;
    Writers writer;
    for (ValueId v : g.inputs)
      writer[v] = drawing_.node("input", g.value(v).name, "input", to_string(g.value(v).type), json::array());
    draw_part(p, writer);
    for (size_t k = 0; k < g.outputs.size(); ++k)
      draw_output(g.output_names[k], to_string(g.value(g.outputs[k]).type), writer, g.outputs[k]);
  }
  template <class Map, class Key>
  void draw_output(const std::string& label, const std::string& type, const Map& writer, const Key& v) {
    const size_t at = drawing_.node("output", label, "output", type, json::array());
    if (const auto it = writer.find(v); it != writer.end()) drawing_.edge(it->second, at, type);
  }
  void draw_part(const PartView& p, Writers& writer) {
    const Graph& g = p.fused.graph;
    const auto type_of = [&](ValueId v) { return to_string(g.value(v).type); };
    IdMap<NodeId, int> position(g.node_count(), -1);
    for (size_t k = 0; k < p.fused.plan.order.size(); ++k) position[p.fused.plan.order[k]] = static_cast<int>(k);
    for (NodeId id : g.order()) {
      const Node& n = g.node(id);
      const int k = position.at(id);
      const std::string label = n.origin.nodes.empty() ? "" : n.origin.nodes[0];
      const size_t at = k < 0 ? drawing_.node("join", label, "join", type_of(n.outputs[0]), json::array())
                              : drawing_.node("group", label, p.fused.lowered.kernels[static_cast<size_t>(k)].name,
                                              type_of(n.outputs[0]), {p.first + static_cast<size_t>(k)});
      for (ValueId v : n.inputs)
        if (const auto it = writer.find(v); it != writer.end()) drawing_.edge(it->second, at, type_of(v));
      for (ValueId v : n.outputs) writer[v] = at;
    }
  }
  /// `of`: the step whose inner script it is; "" for the model.
  void draw_script(size_t number, const std::string& of) {
    const runtime::Script& script = i_.scripts[number];
    const auto label = [&](int32_t v) {
      return (of.empty() ? "" : of + ": ") + i_.script_names[number][static_cast<size_t>(v)];
    };
    std::map<int32_t, size_t> writer;
    for (int32_t v : script.inputs) writer[v] = drawing_.node("input", label(v), "input", "", json::array());
    for (const runtime::ScriptStep& s : script.steps) {
      if (s.kind == runtime::ScriptStep::Kind::Part) draw_part_step(s, writer);
      else draw_control(s, writer);
    }
    for (int32_t v : script.outputs) draw_output(label(v), "", writer, v);
  }
  void draw_part_step(const runtime::ScriptStep& s, std::map<int32_t, size_t>& writer) {
    const PartView& p = i_.parts[static_cast<size_t>(s.part)];
    const Graph& g = p.fused.graph;
    Writers inner;
    for (size_t k = 0; k < g.inputs.size(); ++k)
      if (const auto it = writer.find(s.inputs[k]); it != writer.end()) inner[g.inputs[k]] = it->second;
    draw_part(p, inner);
    for (size_t k = 0; k < g.outputs.size(); ++k)
      if (const auto it = inner.find(g.outputs[k]); it != inner.end()) writer[s.outputs[k]] = it->second;
  }
  void draw_control(const runtime::ScriptStep& s, std::map<int32_t, size_t>& writer) {
    const size_t at =
        drawing_.node("join", s.name, s.kind == runtime::ScriptStep::Kind::If ? "If" : "Loop", "", json::array());
    for (int32_t v : s.inputs)
      if (const auto it = writer.find(v); it != writer.end()) drawing_.edge(it->second, at, "");
    for (int32_t v : s.outputs) writer[v] = at;
    for (int32_t inner : s.scripts) draw_script(static_cast<size_t>(inner), s.name);
  }

  const Inspection& i_;
  Drawing drawing_;
};

}  // namespace

json graphs_json(const Inspection& i, const ModelOutline& outline, const Graph& imported) {
  return {{"before", draw_model(i, outline, imported)}, {"after", GroupDrawing(i).run()}};
}

}  // namespace ingot::cli
