// Which nodes share a kernel. Anchors (products, windows, row reductions) grow forward over pointwise work at the same
// position; what is left is placed by place_rest.cpp. Every refusal gets a reason.
#include <algorithm>
#include <optional>

#include "compiler/expr/simplify.h"
#include "compiler/ops/rows.h"
#include "passes/groups.h"
#include "passes/match_attention.h"
#include "passes/neighbours.h"
#include "passes/passes.h"

namespace ingot {
namespace {

class Former {
 public:
  Former(Graph& graph, const PassContext& ctx) : g_(graph), ctx_(ctx), groups_(graph) {}

  void run() {
    if (!ctx_.fuse) return apart();
    for (NodeId n : groups_.order())
      if (g_.node(n).op->lowers_as<Contraction>() && groups_.is_free(n)) form_attention(n);
    for (NodeId n : groups_.order())
      if (groups_.is_free(n) && g_.node(n).op->lowers_as<Contraction>()) grow_epilogue(groups_.open("contraction", n));
    for (NodeId n : groups_.order())
      if (groups_.is_free(n) && is_window(n)) grow_epilogue(groups_.open("windows", n));
    for (NodeId n : groups_.order())
      if (groups_.is_free(n) && g_.node(n).op->lowers_as<Reduction>()) grow_rows(groups_.open("rows", n));
    chain_groups(groups_, ctx_);
    tell_refusals();
    place_rest(groups_, ctx_);
    merge_points(groups_);
  }
  Groups& groups() { return groups_; }

 private:
  /// What stayed apart: groups that have become one since have no reason.
  void tell_refusals() const {
    for (const auto& r : refusals_)
      if (groups_.group_of(r.producer) != groups_.group_of(r.consumer) || groups_.is_free(r.producer))
        ctx_.refuse(groups_.label(r.producer), groups_.label(r.consumer), r.why);
  }

  /// Every node by itself: the unfused program that fused ones are checked against.
  void apart() {
    for (NodeId n : groups_.order()) {
      const Node& node = g_.node(n);
      const bool reduces = node.op->lowers_as<Reduction>() != nullptr;
      groups_.open(node.op->lowers_as<Contraction>() ? "contraction" : !reduces ? "points" : is_window(n) ? "windows" : "rows", n);
    }
  }

  void form_attention(NodeId product) {
    const auto match = match_attention(g_, product, ctx_.target);
    if (!match) return;
    for (NodeId n : match->nodes)
      if (!groups_.is_free(n)) return;
    const int group = groups_.open("attention", product);
    for (NodeId n : match->nodes)
      if (n != product) groups_.add(group, n);
    groups_[group].prologue.insert(match->scores);
    grow_epilogue(group);
  }

  // ---- anchors ---------------------------------------------------------------------------------------------------------
  bool is_window(NodeId n) const {
    const auto* r = g_.node(n).op->lowers_as<Reduction>();
    if (!r) return false;
    const NodeView view(g_, g_.node(n));
    return r->form(*view).axes.empty();
  }
  /// Why consumer n cannot join the epilogue of the group; null when it can.
  const char* epilogue_refusal(int group, NodeId id) {
    const Node& n = g_.node(id);
    if (widens_bytes_of_product(g_, n, ctx_)) return kStaysBytes;
    if (const char* why = reads_often(g_, n)) return why;
    if (!groups_.is_free(id)) return "it is in the epilogue of another kernel already";
    if (groups_[group].nodes.size() >= kMaxNodes) return "the group has reached its size limit";
    if (groups_.input_count(group) + n.inputs.size() > kMaxInputs) return "the kernel would have too many parameters";
    const auto* move = n.op->lowers_as<Movement>();
    if (move && !move->inverse) return "the movement is not one to one";
    if (move && g_.value(n.inputs[0]).users.size() > 1) return "the moved value has other readers";
    if (move && keeps_channels_last(group) && !g_.is_output(n.outputs[0]) && !puts_channels_last(n)) return "the channels stay last; the reader moves the data instead";
    if (move && !store_stays_contiguous(n) && !is_channels_first_view(n) && !(keeps_channels_last(group) && puts_channels_last(n))) return "stores would lose coalescing; the reader moves the data instead";
    const bool reduces = n.op->lowers_as<Reduction>() && !is_window(id);
    if (reduces) {
      const auto refusal = groups_[group].kind == "windows" ? combine_line_refusal : combine_rows_refusal;
      if (const char* why = refusal(groups_, ctx_, group, id)) return why;
    } else if (!move && !is_pointwise(n)) {
      return "it gathers: each of its results may read any value";
    }
    if (is_part_of_reduction(group, id)) return "its readers reduce rows, and compute it from what is stored anyway";
    for (ValueId v : n.inputs) {
      if (!v.valid()) continue;
      if (groups_.inside(group, v)) {
        if (!move && !reduces && !same_shape(g_.value(v).type.shape, g_.value(n.outputs[0]).type.shape)) return "its result has another shape";
        continue;
      }
      if (groups_.depends_on(v, group)) return "another of its inputs needs this group's result first";
    }
    return nullptr;
  }
  /// Pointwise work for reductions of rows alone (squares, for their mean), on values that others read as well.
  bool is_part_of_reduction(int group, NodeId id) const {
    const Node& n = g_.node(id);
    const auto& users = g_.value(n.outputs[0]).users;
    const auto reduces_rows = [&](NodeId u) { return g_.node(u).op->lowers_as<Reduction>() && !is_window(u); };
    const auto read_elsewhere = [&](ValueId v) {
      const auto& readers = g_.value(v).users;
      return groups_.inside(group, v) && std::any_of(readers.begin(), readers.end(), [&](NodeId u) { return u != id && groups_.group_of(u) != group; });
    };
    if (!is_pointwise(n) || g_.is_output(n.outputs[0]) || users.empty() || !std::all_of(users.begin(), users.end(), reduces_rows)) return false;
    return std::all_of(n.inputs.begin(), n.inputs.end(), [&](ValueId v) { return v.valid() && (g_.value(v).constant || read_elsewhere(v)); });
  }
  /// On a GPU, a Transpose that only calls the last axis the channels: the result goes on being stored with them last.
  bool is_channels_first_view(const Node& n) const {
    if (ctx_.target.kind != TargetKind::Cuda || n.op->name != "Transpose" || g_.is_output(n.outputs[0])) return false;
    const auto& perm = n.attrs.as<PermAttrs>().perm;
    if (perm.size() < 3 || perm[0] != 0 || perm[1] + 1 != static_cast<int64_t>(perm.size())) return false;
    for (size_t d = 2; d < perm.size(); ++d)
      if (perm[d] + 1 != static_cast<int64_t>(d)) return false;
    return true;
  }
  /// A Transpose to the order in which a convolution on a GPU stores its results anyway.
  static bool puts_channels_last(const Node& n) {
    if (n.op->name != "Transpose") return false;
    const auto& perm = n.attrs.as<PermAttrs>().perm;
    if (perm.size() < 3 || perm.front() != 0 || perm.back() != 1) return false;
    for (size_t d = 1; d + 1 < perm.size(); ++d)
      if (perm[d] != static_cast<int64_t>(d) + 1) return false;
    return true;
  }
  /// A convolution on a GPU: results are stored with their channels last (assign_layouts).
  bool keeps_channels_last(int group) const {
    return ctx_.target.kind == TargetKind::Cuda && groups_.at(group).anchor.valid() &&
           g_.node(groups_.at(group).anchor).op->name.starts_with("Conv");
  }
  bool store_stays_contiguous(const Node& n) const {
    if (n.op->name == "Reshape") return true;
    if (n.op->name == "Roll") return n.attrs.as<RollAttrs>().axis + 1 < static_cast<int64_t>(g_.value(n.outputs[0]).type.rank());
    if (n.op->name != "Transpose") return false;
    const auto& perm = n.attrs.as<PermAttrs>().perm;
    return perm.size() > 1 && perm.back() + 1 == static_cast<int64_t>(perm.size());
  }
  /// The users of everything inside the group, in program order.
  std::vector<NodeId> consumers(int group) const {
    std::set<NodeId> set;
    for (NodeId n : groups_.at(group).nodes)
      for (ValueId v : g_.node(n).outputs)
        for (NodeId u : g_.value(v).users)
          if (groups_.group_of(u) != group) set.insert(u);
    return {set.begin(), set.end()};
  }
  void grow_epilogue(int group) {
    std::set<NodeId> refused;
    for (bool grown = true; grown;) {
      grown = false;
      for (NodeId u : consumers(group)) {
        if (const char* why = epilogue_refusal(group, u)) {
          if (refused.insert(u).second) refusals_.push_back({groups_[group].anchor, u, why});
          continue;
        }
        groups_.add(group, u);
        grown = true;
        break;
      }
    }
  }

  // ---- rows ------------------------------------------------------------------------------------------------------------
  struct Rows {
    Shape shape;
    std::vector<size_t> axes;
    bool reduced(size_t d) const { return std::find(axes.begin(), axes.end(), d) != axes.end(); }
  };
  Rows rows_of(NodeId n) const {
    const NodeView view(g_, g_.node(n));
    return {view->inputs[0].shape, g_.node(n).op->lowers_as<Reduction>()->form(*view).axes};
  }
  static bool is_row_shape(const Rows& r, const Shape& s) {
    if (s.size() == r.shape.size()) {
      for (size_t d = 0; d < s.size(); ++d)
        if (r.reduced(d) ? !s[d].is_const(1) : !proves_equal(s[d], r.shape[d])) return false;
      return true;
    }
    if (s.size() + r.axes.size() != r.shape.size()) return false;
    size_t next = 0;
    for (size_t d = 0; d < r.shape.size(); ++d)
      if (!r.reduced(d) && !proves_equal(s[next++], r.shape[d])) return false;
    return true;
  }
  const char* rows_refusal(int group, const Rows& r, NodeId id) {
    const Node& n = g_.node(id);
    if (widens_bytes_of_product(g_, n, ctx_)) return kStaysBytes;
    if (const char* why = reads_often(g_, n)) return why;
    if (!groups_.is_free(id)) return "it belongs to another group already";
    if (groups_[group].nodes.size() >= kMaxNodes) return "the group has reached its size limit";
    if (groups_.input_count(group) + n.inputs.size() > kMaxInputs) return "the kernel would have too many parameters";
    const bool reduction = n.op->lowers_as<Reduction>() != nullptr;
    if (groups_[group].moved.valid()) return moved_rows_refusal(group, n);
    if (may_move_rows(group, r, n)) return nullptr;
    if (!reduction && !is_pointwise(n)) return "it is neither pointwise nor a reduction over the same axes";
    const Shape& out = g_.value(n.outputs[0]).type.shape;
    if (reduction) {
      const Rows other = rows_of(id);
      if (is_window(id) || other.axes != r.axes || !same_shape(other.shape, r.shape)) return "it reduces other axes";
    } else if (!same_shape(out, r.shape) && !(out.size() == r.shape.size() && is_row_shape(r, out))) {
      return "its result has neither the shape of the rows nor one element a row";
    }
    // A value without the reduced axes does not line up with the full shape by broadcasting.
    for (ValueId v : n.inputs)
      if (v.valid() && groups_.inside(group, v) && g_.value(v).type.rank() != r.shape.size()) return "its input dropped the reduced axes";
    for (ValueId v : n.inputs)
      if (v.valid() && !groups_.inside(group, v) && groups_.depends_on(v, group)) return "another of its inputs needs this group's result first";
    return nullptr;
  }
  /// The rows are stored in another shape, and nothing else of them leaves: norms over groups of channels.
  bool may_move_rows(int group, const Rows& r, const Node& n) const {
    const auto* move = n.op->lowers_as<Movement>();
    if (!move || n.op->name != "Reshape" || !same_shape(g_.value(n.inputs[0]).type.shape, r.shape)) return false;
    for (NodeId m : groups_.at(group).nodes)
      for (ValueId v : g_.node(m).outputs) {
        const auto& users = g_.value(v).users;
        const auto inside = [&](NodeId u) { return groups_.group_of(u) == group || g_.node(u).outputs[0] == n.outputs[0]; };
        if (g_.is_output(v) || !std::all_of(users.begin(), users.end(), inside)) return false;
      }
    return g_.value(n.inputs[0]).users.size() == 1;
  }
  /// Why n does not join rows that are stored in another shape; null when it does.
  const char* moved_rows_refusal(int group, const Node& n) {
    const Shape& shape = g_.value(groups_[group].moved).type.shape;
    // Last of all to the order that their readers want.
    if (puts_channels_last(n) && groups_.inside(group, n.inputs[0]) && same_shape(g_.value(n.inputs[0]).type.shape, shape) &&
        g_.value(n.inputs[0]).users.size() == 1 && !g_.is_output(n.inputs[0]))
      return nullptr;
    if (!is_pointwise(n) || !same_shape(g_.value(n.outputs[0]).type.shape, shape)) return "its result has another shape than the rows are stored in";
    for (ValueId v : n.inputs) {
      if (!v.valid()) continue;
      if (groups_.inside(group, v) && !same_shape(g_.value(v).type.shape, shape)) return "its result has another shape than the rows are stored in";
      if (!groups_.inside(group, v) && groups_.depends_on(v, group)) return "another of its inputs needs this group's result first";
    }
    return nullptr;
  }
  void grow_rows(int group) {
    const Rows r = rows_of(groups_[group].anchor);
    std::set<NodeId> refused;
    for (bool grown = true; grown;) {
      grown = false;
      for (NodeId u : consumers(group)) {
        if (const char* why = rows_refusal(group, r, u)) {
          if (refused.insert(u).second) refusals_.push_back({groups_[group].anchor, u, why});
          continue;
        }
        if (may_move_rows(group, r, g_.node(u))) groups_[group].moved = g_.node(u).outputs[0];
        groups_.add(group, u);
        grown = true;
        break;
      }
      if (!grown) grown = absorb_producer(group, r);
    }
  }
  /// A pointwise producer of the full shape that only this group reads.
  bool absorb_producer(int group, const Rows& r) {
    const std::vector<NodeId> nodes = groups_[group].nodes;
    for (NodeId n : nodes)
      for (ValueId v : g_.node(n).inputs) {
        const NodeId p = v.valid() ? g_.value(v).producer : NodeId();
        if (!p.valid() || !groups_.is_free(p) || !is_pointwise(g_.node(p))) continue;
        if (!same_shape(g_.value(v).type.shape, r.shape) || !groups_.read_only_by(group, p)) continue;
        if (groups_[group].nodes.size() >= kMaxNodes || groups_.input_count(group) + g_.node(p).inputs.size() > kMaxInputs) continue;
        groups_.add(group, p);
        return true;
      }
    return false;
  }

  Graph& g_;
  const PassContext& ctx_;
  Groups groups_;
  struct Refused {
    NodeId producer, consumer;
    const char* why;
  };
  std::vector<Refused> refusals_;
};

}  // namespace

Result<bool> form_groups(Graph& graph, const PassContext& ctx) {
  if (graph.live_nodes() == 0) return false;
  Former former(graph, ctx);
  former.run();
  INGOT_TRY(build_groups(graph, former.groups()));
  return true;
}

}  // namespace ingot
