// Concatenation in place. Runs on fused groups with their final types and orders: a group that does nothing but concatenate
// and move becomes a join (compiler/ops/joins.h), which has no kernel, and each of its parts is written where it belongs by
// the group that computes it. A part that no group may write there is stored in addition by a group that has it, or that
// walks the same shape; only what is left is copied by a kernel of its own.
#include <algorithm>
#include <map>
#include <set>

#include "compiler/expr/simplify.h"
#include "passes/join_bodies.h"
#include "passes/neighbours.h"
#include "passes/groups.h"
#include "passes/passes.h"
#include "passes/typical.h"

namespace ingot {
namespace {

/// How a part comes to lie in the joined value.
enum class Way : uint8_t {
  Direct,  // its producer writes it there, and nowhere else
  Again,   // its producer writes it there, too
  Rides,   // a group that writes another part computes it
  Apart    // a kernel of its own does
};
struct Part {
  ValueId value;   // in the body of the group that concatenates
  Way way = Way::Apart;
  NodeId carrier;  // the group that writes it, unless Apart
};

class Joiner {
 public:
  Joiner(Graph& graph, const PassContext& ctx) : g_(graph), ctx_(ctx) {}

  bool run() {
    bool changed = false;
    for (NodeId id : g_.order()) changed |= join(id);
    return changed;
  }

 private:
  bool join(NodeId id) {
    const Node n = g_.node(id);  // a copy: what follows moves nodes
    if (n.attrs.as<FusedAttrs>().kind != "points" || n.outputs.size() != 1) return false;
    // Beside the rest of a product that several branches share, a part of it needs no copy, either.
    if (auto wider = may_widen(n) ? wider_body(*n.body) : std::nullopt) {
      Node trial = n;
      trial.body = wider->body;
      auto tree = join_tree(*trial.body);
      std::vector<Part> parts;
      if (tree && !refusal(trial, *tree, parts)) {
        widen(g_, id, std::move(*wider));
        apply(id, *tree, parts);
        return true;
      }
    }
    auto tree = join_tree(*n.body);
    if (!tree) return false;
    std::vector<Part> parts;
    if (const char* why = refusal(n, *tree, parts)) {
      ctx_.refuse(label_of(*n.body), kItsParts, why);
      return false;
    }
    apply(id, *tree, parts);
    return true;
  }

  static std::string label_of(const Graph& body) {
    for (NodeId id : body.order())
      if (body.node(id).op->name == "Concat") return node_label(body.node(id));
    return "Concat";
  }

  // ---- policy ------------------------------------------------------------------------------------------------------------
  /// Readers that walk the whole would have to skip what lies beside it; a model's output has nothing beside it.
  bool may_widen(const Node& n) const {
    const auto& users = g_.value(n.outputs[0]).users;
    return !g_.is_output(n.outputs[0]) && std::none_of(users.begin(), users.end(), [&](NodeId u) {
      return g_.node(u).attrs.as<FusedAttrs>().kind == "points";
    });
  }
  std::vector<Part> choose(const Node& n, const JoinTree& tree) const {
    std::vector<Part> parts;
    for (ValueId v : tree.leaves) parts.push_back({v, Way::Apart, {}});
    std::set<ValueId> taken;
    for (Part& p : parts) {
      const ValueId outside = outside_of(n, p.value);
      const Node* producer = outside.valid() ? g_.producer(outside) : nullptr;
      if (!producer || g_.value(outside).type.dtype != g_.value(n.outputs[0]).type.dtype) continue;
      const bool free = !g_.is_output(outside) && !join_of(g_, outside) && taken.insert(outside).second;
      if (!free && is_join(*producer)) continue;
      p.way = free ? Way::Direct : Way::Again;
      p.carrier = g_.value(outside).producer;
    }
    for (Part& p : parts)
      if (p.way == Way::Apart) find_carrier(n, p, parts);
    return parts;
  }
  /// The input of n that a value of its body is; invalid for one that the body computes.
  static ValueId outside_of(const Node& n, ValueId v) {
    const auto at = std::find(n.body->inputs.begin(), n.body->inputs.end(), v);
    return at == n.body->inputs.end() ? ValueId() : n.inputs[static_cast<size_t>(at - n.body->inputs.begin())];
  }
  void find_carrier(const Node& n, Part& p, const std::vector<Part>& parts) const {
    std::vector<ValueId> needs;
    for (ValueId v : inputs_below(*n.body, p.value)) needs.push_back(outside_of(n, v));
    for (const Part& other : parts) {
      if (other.way != Way::Direct || !may_carry(other.carrier, n.body->value(p.value).type.shape)) continue;
      const Node& c = g_.node(other.carrier);
      if (c.inputs.size() + needs.size() + c.outputs.size() + parts.size() > kMaxInputs) continue;
      if (c.body->live_nodes() + n.body->live_nodes() > kMaxNodes) continue;
      if (std::any_of(needs.begin(), needs.end(), [&](ValueId v) { return depends_on(v, other.carrier); })) continue;
      p.way = Way::Rides;
      p.carrier = other.carrier;
      return;
    }
  }
  /// The group has an element of this shape at every position of its epilogue.
  bool may_carry(NodeId id, const Shape& shape) const {
    const Node& n = g_.node(id);
    const std::string& kind = n.attrs.as<FusedAttrs>().kind;
    if (kind != "contraction" && kind != "windows") return false;
    return same_shape(n.body->value(unmoved_output(*n.body, n.body->outputs[0])).type.shape, shape);
  }
  /// Computing v needs the node to have run.
  bool depends_on(ValueId v, NodeId node) const {
    std::set<NodeId> seen;
    std::vector<NodeId> work{g_.value(v).producer};
    while (!work.empty()) {
      const NodeId at = work.back();
      work.pop_back();
      if (at == node) return true;
      if (!at.valid() || !seen.insert(at).second) continue;
      for (ValueId in : g_.node(at).inputs) work.push_back(g_.value(in).producer);
    }
    return false;
  }

  /// Why the parts stay apart and are copied; null, and how they are written, when writing them in place moves fewer bytes.
  const char* refusal(const Node& n, const JoinTree& tree, std::vector<Part>& parts) const {
    parts = choose(n, tree);
    const TensorType& type = tree.body->value(tree.body->outputs[0]).type;
    const auto size = static_cast<int64_t>(size_of(type.dtype));
    const int64_t whole = typical_bytes(type);
    // Memory is written in lines. A kernel that writes only pieces of them moves the lines, which hold the whole at most.
    const int64_t line = ctx_.target.kind == TargetKind::Cuda ? 32 : 64;
    std::map<NodeId, std::pair<int64_t, int64_t>> written;  // of each kernel: bytes, and bytes with the rest of their lines
    int64_t saved = 0, apart = 0;
    bool any = false;
    for (size_t i = 0; i < parts.size(); ++i) {
      const auto run = contiguous_run(*tree.body, tree.body->inputs[i]);
      if (!run) return "a part would not lie evenly in the whole";
      const int64_t bytes = typical(element_count(tree.body->value(tree.body->inputs[i]).type.shape)) * size;
      auto& [exact, lines] = written[parts[i].carrier];
      exact += bytes;
      lines += bytes * std::max<int64_t>(line / std::max<int64_t>(*run * size, 1), 1);
      any |= parts[i].way == Way::Direct || parts[i].way == Way::Again;
      apart += parts[i].way == Way::Apart;
      if (parts[i].way == Way::Direct) saved += 2 * bytes;
      if (parts[i].way == Way::Again) saved += bytes;
    }
    if (!any) return "none of its parts is computed by a kernel that could write it in place";
    for (const auto& [carrier, bytes] : written) saved -= std::min(bytes.second, whole) - bytes.first;
    // A launch costs about what this many bytes do.
    const int64_t launch = ctx_.target.kind == TargetKind::Cuda ? 1 << 20 : 1 << 14;
    return saved <= (apart - 1) * launch ? "written in pieces by several kernels, it would move more bytes than copied" : nullptr;
  }

  // ---- mechanism ---------------------------------------------------------------------------------------------------------
  void apply(NodeId id, JoinTree& tree, const std::vector<Part>& parts) {
    std::vector<ValueId> inputs;
    for (const Part& p : parts) {
      const Node& n = g_.node(id);
      switch (p.way) {
        case Way::Direct: inputs.push_back(outside_of(n, p.value)); break;
        case Way::Again: inputs.push_back(store_again(g_, outside_of(n, p.value))); break;
        case Way::Rides: inputs.push_back(store_beside(g_, id, p.value, p.carrier)); break;
        case Way::Apart: inputs.push_back(store_apart(g_, id, p.value)); break;
      }
    }
    g_.set_inputs(id, inputs);
    Node& n = g_.node(id);
    n.attrs = AttrsBox::of(FusedAttrs{kJoinKind});
    n.body = std::move(tree.body);
  }

  Graph& g_;
  const PassContext& ctx_;
};

}  // namespace

Result<bool> join_parts(Graph& graph, const PassContext& ctx) {
  if (!ctx.fuse) return false;
  return Joiner(graph, ctx).run();
}

}  // namespace ingot
