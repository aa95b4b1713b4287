#include "passes/groups.h"

#include "passes/neighbours.h"

namespace ingot {

Groups::Groups(const Graph& graph) : graph_(graph), order_(graph.order()), owner_(graph.node_count(), -1), seen_(graph.node_count(), 0) {}

int Groups::open(std::string kind, NodeId anchor) {
  groups_.emplace_back();
  groups_.back().kind = std::move(kind);
  groups_.back().anchor = anchor;
  const int g = static_cast<int>(groups_.size()) - 1;
  if (anchor.valid()) add(g, anchor);
  return g;
}
void Groups::add(int group, NodeId n) {
  owner_[n] = group;
  groups_[static_cast<size_t>(group)].nodes.push_back(n);
}
void Groups::merge(int from, int into) {
  Group &a = groups_[static_cast<size_t>(from)], &b = groups_[static_cast<size_t>(into)];
  for (NodeId n : a.nodes) add(into, n);
  b.inlined.insert(a.inlined.begin(), a.inlined.end());
  b.prologue.insert(a.prologue.begin(), a.prologue.end());
  b.prologue_flops += a.prologue_flops;
  a = Group();
}
bool Groups::inside(int group, ValueId v) const {
  const NodeId p = graph_.value(v).producer;
  return p.valid() && owner_.at(p) == group;
}
bool Groups::read_only_by(int group, NodeId n) const {
  for (ValueId v : graph_.node(n).outputs) {
    if (graph_.is_output(v)) return false;
    for (NodeId u : graph_.value(v).users)
      if (owner_.at(u) != group) return false;
  }
  return true;
}

bool Groups::depends_on(ValueId start, int group) const {
  // A group runs as a whole, so reaching one of its members means needing the inputs of all of them.
  ++epoch_;
  std::vector<NodeId> work;
  auto push = [&](NodeId n) {
    if (!n.valid() || seen_[n] == epoch_) return;
    seen_[n] = epoch_;
    work.push_back(n);
  };
  push(graph_.value(start).producer);
  while (!work.empty()) {
    const NodeId n = work.back();
    work.pop_back();
    const int owner = owner_.at(n);
    if (owner == group) return true;
    if (owner >= 0)
      for (NodeId m : groups_[static_cast<size_t>(owner)].nodes) push(m);
    for (ValueId v : graph_.node(n).inputs)
      if (v.valid()) push(graph_.value(v).producer);
  }
  return false;
}

size_t Groups::input_count(int group) const {
  std::set<ValueId> in;
  for (NodeId n : at(group).nodes)
    for (ValueId v : graph_.node(n).inputs)
      if (v.valid() && !inside(group, v)) in.insert(v);
  return in.size();
}

std::string Groups::label(NodeId id) const { return node_label(graph_.node(id)); }

}  // namespace ingot
