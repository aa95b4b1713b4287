// Horizontal fusion of pointwise kernels. Two that read what the same kernels write (the model's inputs aside) become one:
// what waits for either waits for nothing new, and since neither can lead to the other without leading to itself, no cycle
// arises. Only plain pointwise work: copies in another order have schedules of their own.
#include <algorithm>
#include <map>

#include "passes/groups.h"

namespace ingot {
namespace {

constexpr size_t kMostRead = 16;  // values that the joined kernel reads

class Merger {
 public:
  explicit Merger(Groups& groups) : groups_(groups), g_(groups.graph()) {}

  void run() {
    // Groups by the kernels that they read; each joins the first of its kind that has room.
    std::map<std::set<int>, std::vector<int>> alike;
    for (int g = 0; g < static_cast<int>(groups_.size()); ++g) {
      if (!is_plain(g)) continue;
      std::vector<int>& others = alike[sources_of(g)];
      const auto into = std::find_if(others.begin(), others.end(), [&](int o) { return fits(o, g); });
      if (into == others.end()) others.push_back(g);
      else groups_.merge(g, *into);
    }
  }

 private:
  /// Pointwise nodes of one shape, and nothing that others compute, too.
  bool is_plain(int g) const {
    const Group& group = groups_.at(g);
    if (group.kind != "points" || group.nodes.empty() || !group.inlined.empty()) return false;
    return std::all_of(group.nodes.begin(), group.nodes.end(), [&](NodeId n) {
      return g_.node(n).op->lowers_as<Pointwise>() && same_shape(shape_of(n), shape_of(group.nodes[0]));
    });
  }
  const Shape& shape_of(NodeId n) const { return g_.value(g_.node(n).outputs[0]).type.shape; }
  std::set<ValueId> inputs_of(int g) const {
    std::set<ValueId> inputs;
    for (NodeId n : groups_.at(g).nodes)
      for (ValueId v : g_.node(n).inputs)
        if (v.valid() && !groups_.inside(g, v)) inputs.insert(v);
    return inputs;
  }
  /// Groups whose results g reads. Nodes without a group are read through: they are computed where they are read.
  std::set<int> sources_of(int g) const {
    std::set<int> sources;
    std::set<ValueId> seen;
    const std::set<ValueId> inputs = inputs_of(g);
    std::vector<ValueId> work(inputs.begin(), inputs.end());
    while (!work.empty()) {
      const ValueId v = work.back();
      work.pop_back();
      const NodeId p = g_.value(v).producer;
      if (!seen.insert(v).second || !p.valid()) continue;
      if (!groups_.is_free(p)) sources.insert(groups_.group_of(p));
      else for (ValueId in : g_.node(p).inputs) if (in.valid()) work.push_back(in);
    }
    return sources;
  }
  bool fits(int a, int b) const {
    if (!same_shape(shape_of(groups_.at(a).nodes[0]), shape_of(groups_.at(b).nodes[0]))) return false;
    std::set<ValueId> inputs = inputs_of(a);
    inputs.merge(inputs_of(b));
    return inputs.size() <= kMostRead && groups_.at(a).nodes.size() + groups_.at(b).nodes.size() <= kMaxNodes;
  }

  Groups& groups_;
  const Graph& g_;
};

}  // namespace

void merge_points(Groups& groups) { Merger(groups).run(); }

}  // namespace ingot
