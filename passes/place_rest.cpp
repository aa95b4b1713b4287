// The nodes that no anchor has taken: each is inlined into its only reader, becomes another output of a kernel of the same shape, or
// is a pointwise kernel. Every refusal gets a reason.
#include <algorithm>

#include "compiler/expr/simplify.h"
#include "compiler/ops/rows.h"
#include "passes/groups.h"
#include "passes/neighbours.h"
#include "passes/passes.h"

namespace ingot {
namespace {

constexpr int64_t kCheapFlops = 4;  // pointwise work that a product may repeat for each of its tiles


class Placer {
 public:
  Placer(Groups& groups, const PassContext& ctx) : g_(groups.graph()), ctx_(ctx), groups_(groups) {}

  void place(NodeId id) {
    const Node& n = g_.node(id);
    if (n.op->name == "Contiguous" || n.op->name == "ChannelsLast") return groups_.add(groups_.open("points", NodeId()), id);
    const std::vector<int> who = readers(id);
    if (orders_stored_parts(id, who)) return groups_.add(groups_.open("points", NodeId()), id);
    const char* why = who.size() == 1 && who[0] == -1 ? "it is an output of the model" : nullptr;
    const bool stored = std::find(who.begin(), who.end(), -1) != who.end();
    if (!stored && (who.size() == 1 || is_movement(n) || is_free_to_read(g_, n))) {
      for (int r : who)
        if (const char* refusal = inline_refusal(r, id)) {
          why = refusal;
          ctx_.refuse(groups_.label(id), r >= 0 ? groups_.label(groups_[r].nodes[0]) : "output", refusal);
        }
      if (!why) {
        for (int r : who) note_prologue(r, id);
        if (who.size() == 1) return groups_.add(who[0], id);
        for (int r : who) groups_[r].inlined.insert(id);
        return;
      }
    } else if (who.size() > 1) {
      for (int r : who)
        if (r >= 0 && (joins_points(r, id) || joins_rows(r, id, who))) return groups_.add(r, id);
      ctx_.refuse(groups_.label(id), kItsReaders, "several kernels read the value, so it is stored once");
    }
    groups_.add(groups_.open("points", NodeId()), id);
  }

 private:
  /// The groups that read the node's output, in order of their number.
  std::vector<int> readers(NodeId id) const {
    std::set<int> set;
    for (ValueId v : g_.node(id).outputs) {
      if (g_.is_output(v)) set.insert(-1);
      for (NodeId u : g_.value(v).users) {
        bool inlined = false;  // into its readers, rather than stored
        for (int k = 0; k < static_cast<int>(groups_.size()); ++k) {
          if (groups_.at(k).inlined.count(u) == 0) continue;
          set.insert(k);
          inlined = true;
        }
        if (!inlined) set.insert(groups_.group_of(u));
      }
    }
    return {set.begin(), set.end()};
  }
  int64_t scalar_flops(const Node& n) const {
    if (!is_pointwise(n)) return 0;
    const NodeView view(g_, n);
    std::vector<Expr> args;
    for (size_t i = 0; i < n.inputs.size(); ++i)
      args.push_back(view->has(i) ? Expr::local("x" + std::to_string(i), compute_type(view->inputs[i].dtype)) : Expr());
    return count_flops(n.op->lowers_as<Pointwise>()->scalar(*view, args));
  }
  /// The anchor reads the node's result, rather than only the epilogue.
  bool feeds_anchor(const Group& r, const Node& n) const {
    for (ValueId v : n.outputs)
      for (NodeId u : g_.value(v).users)
        if (u == r.anchor || r.prologue.count(u)) return true;
    return false;
  }
  void note_prologue(int reader, NodeId id) {
    Group& r = groups_[reader];
    if (!r.anchor.valid() || !feeds_anchor(r, g_.node(id))) return;
    r.prologue.insert(id);
    r.prologue_flops += scalar_flops(g_.node(id));
  }
  /// The group computes an element that its anchor reads once for each tile or tap.
  static bool repeats_reads(const Group& r) { return r.kind != "points" && r.kind != "rows"; }
  /// Why group `reader` cannot compute node n where it reads it; null when it can.
  const char* inline_refusal(int reader, NodeId id) {
    const Node& n = g_.node(id);
    Group& r = groups_[reader];
    if (r.nodes.size() + r.inlined.size() >= kMaxNodes) return "the reader has reached its size limit";
    if (groups_.input_count(reader) + n.inputs.size() > kMaxInputs) return "the kernel would have too many parameters";
    if (r.kind == "points") return nullptr;
    const bool many_reads = repeats_reads(r);
    if (n.op->name == "Concat" && many_reads) return "a product would choose between the parts for every element it reads";
    if (n.op->lowers_as<Element>() && many_reads && n.op->name != "Values" && n.op->name != "Position")
      if (const char* why = gather_refusal(groups_, ctx_, reader, id)) return why;
    if (many_reads && makes_bytes_of_product(g_, n, ctx_)) return kStaysBytes;
    if (many_reads && feeds_anchor(r, n) && r.prologue_flops + scalar_flops(n) > kCheapFlops)
      return "a product would repeat this work for each of its tiles";
    return nullptr;
  }
  bool joins_points(int reader, NodeId id) {
    // As another output of a pointwise kernel of the same shape, when somebody else needs the value too.
    Group& r = groups_[reader];
    if (r.kind != "points" || !is_pointwise(g_.node(id))) return false;
    for (NodeId n : r.nodes)
      if (r.inlined.count(n) == 0 &&
          !same_shape(g_.value(g_.node(n).outputs[0]).type.shape, g_.value(g_.node(id).outputs[0]).type.shape))
        return false;
    // A kernel that reads it, perhaps by way of what is computed where it is read, may be one that this kernel waits for.
    for (int other : readers(id))
      if (other != reader && other >= 0) return false;
    return r.nodes.size() < kMaxNodes;
  }
  /// As another output of a kernel of rows that reads it: a sum and its norm. Others may read it, too, if that kernel waits for none
  /// of them.
  bool joins_rows(int reader, NodeId id, const std::vector<int>& who) {
    const Group& r = groups_.at(reader);
    const Node& n = g_.node(id);
    if (r.kind != "rows" || !is_pointwise(n) || r.moved.valid() || r.nodes.size() >= kMaxNodes) return false;
    if (groups_.input_count(reader) + n.inputs.size() > kMaxInputs) return false;
    const ValueId rows = g_.node(r.anchor).inputs[0];
    if (!same_shape(g_.value(rows).type.shape, g_.value(n.outputs[0]).type.shape)) return false;
    for (int other : who)
      for (NodeId own : r.nodes)
        for (ValueId v : g_.node(own).inputs)
          if (other >= 0 && other != reader && v.valid() && !groups_.inside(reader, v) && groups_.depends_on(v, other)) return false;
    return true;
  }
  /// Parts are stored side by side, in the order that their readers want, rather than in another that these read through.
  bool orders_stored_parts(NodeId id, const std::vector<int>& who) const {
    const bool stored = std::any_of(who.begin(), who.end(), [&](int r) { return r >= 0 && repeats_reads(groups_.at(r)); });
    const Node* n = &g_.node(id);
    if (!stored || n->op->name == "Concat") return false;
    for (const Movement* m = n->op->lowers_as<Movement>(); m && m->inverse; m = n->op->lowers_as<Movement>()) {
      const ValueId from = n->inputs[0];
      n = g_.producer(from);
      if (!n || g_.value(from).users.size() != 1 || g_.is_output(from)) return false;
    }
    return n->op->name == "Concat";
  }

  const Graph& g_;
  const PassContext& ctx_;
  Groups& groups_;
};

}  // namespace

void place_rest(Groups& groups, const PassContext& ctx) {
  Placer placer(groups, ctx);
  for (auto it = groups.order().rbegin(); it != groups.order().rend(); ++it)
    if (groups.is_free(*it)) placer.place(*it);
}

}  // namespace ingot
