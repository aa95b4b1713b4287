// Groups -> fused nodes. The body of each is a graph of its own: owned nodes, movement that is computed again inside, scalar
// constants; everything else is an input.
#include <algorithm>
#include <map>

#include "compiler/ops/registry.h"
#include "passes/groups.h"

namespace ingot {
namespace {

class BodyBuilder {
 public:
  BodyBuilder(const Graph& graph, const Groups& groups, int index, const Group& group) : graph_(graph), groups_(groups), index_(index) {
    members_.insert(group.nodes.begin(), group.nodes.end());
    members_.insert(group.inlined.begin(), group.inlined.end());
    body_ = std::make_shared<Graph>();
    body_->symbols = graph.symbols;
  }

  void run() {
    for (NodeId id : groups_.order()) {
      if (!members_.count(id)) continue;
      const Node& n = graph_.node(id);
      std::vector<ValueId> in;
      for (ValueId v : n.inputs) in.push_back(v.valid() ? map_input(v) : v);
      std::vector<TensorType> types;
      for (ValueId v : n.outputs) types.push_back(graph_.value(v).type);
      const NodeId copy = body_->add_node(n.op, n.attrs, in, types, n.origin);
      for (size_t i = 0; i < n.outputs.size(); ++i) {
        const ValueId to = body_->node(copy).outputs[i];
        mapped_[n.outputs[i]] = to;
        body_->value(to).content = graph_.value(n.outputs[i]).content;
        body_->value(to).name = graph_.value(n.outputs[i]).name;
        if (groups_.group_of(id) == index_ && leaves(n.outputs[i])) outputs_.push_back(n.outputs[i]);
      }
      origin_.merge(n.origin);
    }
    for (ValueId v : outputs_) {
      body_->outputs.push_back(mapped_.at(v));
      body_->output_names.push_back("out" + std::to_string(body_->output_names.size()));
    }
  }

  std::shared_ptr<Graph> body_;
  std::vector<ValueId> inputs_, outputs_;
  Origin origin_;

 private:
  ValueId map_input(ValueId v) {
    if (auto it = mapped_.find(v); it != mapped_.end()) return it->second;
    const Value& value = graph_.value(v);
    ValueId to;
    const bool tiny = value.constant && value.constant->count() == 1;
    if (tiny) {
      to = body_->add_constant(value.constant, value.name);
    } else {
      to = body_->add_input(value.type, value.name);
      inputs_.push_back(v);
    }
    mapped_.emplace(v, to);
    return to;
  }
  /// Read by another group (through movement that is inlined there, too), or an output of the graph.
  bool leaves(ValueId v) const {
    if (graph_.is_output(v)) return true;
    const auto& users = graph_.value(v).users;
    return std::any_of(users.begin(), users.end(), [&](NodeId u) {
      if (!members_.count(u)) return true;
      if (groups_.group_of(u) == index_) return false;
      for (int g = 0; g < static_cast<int>(groups_.size()); ++g)
        if (g != index_ && groups_.at(g).inlined.count(u)) return true;
      return false;
    });
  }

  const Graph& graph_;
  const Groups& groups_;
  int index_;
  std::set<NodeId> members_;
  std::map<ValueId, ValueId> mapped_;
};

}  // namespace

Status build_groups(Graph& graph, Groups& groups) {
  struct Made {
    NodeId node;
    std::vector<ValueId> outputs;
  };
  std::vector<Made> made;
  for (int g = 0; g < static_cast<int>(groups.size()); ++g) {
    if (groups[g].nodes.empty()) continue;
    BodyBuilder b(graph, groups, g, groups[g]);
    b.run();
    if (b.outputs_.empty()) continue;
    std::vector<TensorType> types;
    for (ValueId v : b.outputs_) types.push_back(graph.value(v).type);
    const NodeId id = graph.add_node(&op("fused"), AttrsBox::of(FusedAttrs{groups[g].kind}), b.inputs_, types, b.origin_);
    graph.node(id).body = b.body_;
    made.push_back({id, b.outputs_});
  }
  for (const Made& m : made)
    for (size_t i = 0; i < m.outputs.size(); ++i) {
      Value& to = graph.value(graph.node(m.node).outputs[i]);
      to.name = graph.value(m.outputs[i]).name;
      graph.replace_all_uses(m.outputs[i], graph.node(m.node).outputs[i]);
    }
  const std::vector<NodeId> old = groups.order();
  for (auto it = old.rbegin(); it != old.rend(); ++it)
    if (!graph.node(*it).dead) graph.erase_if_dead(*it);
  return {};
}

}  // namespace ingot
