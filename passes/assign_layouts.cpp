// Channels last: the values between kernels of a convolution network are stored with their channels innermost, and weights
// in the order in which the products read them; what a product computes for attention, in the order of its rows. Types keep
// saying what is in memory: a value that is stored in another order than the model's gets the permuted shape, the kernel that writes it ends with a Transpose, and those that read it begin
// with the inverse. Both are index maps, so no kernel is added.
#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <set>

#include <fmt/format.h>

#include "compiler/expr/simplify.h"
#include "compiler/ops/operands.h"
#include "compiler/ops/registry.h"
#include "compiler/ops/rows.h"
#include "compiler/support/tensor_moves.h"
#include "passes/passes.h"

namespace ingot {
namespace {

using Permutation = std::vector<int64_t>;

constexpr int64_t kNarrow = 8;  // columns of a weight

/// [0, 2, ..., rank-1, 1]
Permutation channels_last(size_t rank) {
  Permutation p{0};
  for (size_t d = 2; d < rank; ++d) p.push_back(static_cast<int64_t>(d));
  p.push_back(1);
  return p;
}
Permutation inverse_of(const Permutation& perm) {
  Permutation inverse(perm.size());
  for (size_t d = 0; d < perm.size(); ++d) inverse[static_cast<size_t>(perm[d])] = static_cast<int64_t>(d);
  return inverse;
}
template <class T>
std::vector<T> permuted(const std::vector<T>& items, const Permutation& perm) {
  std::vector<T> result;
  for (int64_t d : perm) result.push_back(items[static_cast<size_t>(d)]);
  return result;
}

/// The body reads input `i` in its new order.
void read_through(Graph& body, size_t i, const Permutation& perm) {
  const ValueId in = body.inputs[i];
  const TensorType logical = body.value(in).type;
  const std::vector<NodeId> users = body.value(in).users;
  body.value(in).type.shape = permuted(logical.shape, perm);
  const NodeId back = body.add_node(&op("Transpose"), AttrsBox::of(PermAttrs{inverse_of(perm)}), {in}, {logical}, {});
  for (NodeId u : users) body.replace_use(u, in, body.node(back).outputs[0]);
}
/// The body writes output `i` in its new order.
void write_through(Graph& body, size_t i, const Permutation& perm) {
  TensorType type = body.value(body.outputs[i]).type;
  type.shape = permuted(type.shape, perm);
  const NodeId moved = body.add_node(&op("Transpose"), AttrsBox::of(PermAttrs{perm}), {body.outputs[i]}, {type}, {});
  body.outputs[i] = body.node(moved).outputs[0];
}

class Assigner {
 public:
  Assigner(Graph& graph, const TargetTraits& target) : g_(graph), target_(target) {}

  bool run() {
    for (NodeId id : g_.order()) {
      if (g_.node(id).body) choose(id);
    }
    for (NodeId id : g_.order()) {
      if (g_.node(id).body) apply(id);
    }
    return changed_;
  }

 private:
  /// The dimension of every value of the body along which neighbours are neighbours in memory, where that is known: the last
  /// one of inputs in their own order, whatever transposes make of it; the channels of what a convolution computes.
  std::map<ValueId, size_t> channel_axes(const Node& n) const {
    std::map<ValueId, size_t> axes;
    for (size_t i = 0; i < n.inputs.size(); ++i) {
      const size_t rank = g_.value(n.inputs[i]).type.rank();
      if (rank >= 3 && !g_.value(n.inputs[i]).constant)
        axes[n.body->inputs[i]] = last_.count(n.inputs[i]) ? 1 : rank - 1;
    }
    for (NodeId id : n.body->order()) follow(*n.body, n.body->node(id), axes);
    return axes;
  }
  static void follow(const Graph& body, const Node& n, std::map<ValueId, size_t>& axes) {
    const bool product = n.op->name == "Conv" || n.op->name == "ConvTranspose" || n.op->name == "DepthwiseConv";
    const size_t rank = body.value(n.outputs[0]).type.rank();
    std::optional<size_t> axis;
    // Of several operands, one that is not broadcast decides.
    const Shape& shape = body.value(n.outputs[0]).type.shape;
    for (bool whole : {true, false}) {
      for (ValueId v : n.inputs) {
        if (axis || !v.valid() || !axes.count(v)) continue;
        if (body.value(v).type.rank() != rank && n.op->name != "Reshape") continue;
        if (!whole || same_shape(body.value(v).type.shape, shape)) axis = axes.at(v);
      }
    }
    if (n.op->name == "MatMul" && rank >= 3) axis = rank - 1;
    if ((product && rank >= 3) || n.op->name == "Unfold" || n.op->name == "ChannelsLast") axis = 1;
    if (!axis || n.op->name == "Contiguous") return;
    if ((n.op->name == "Reshape" || n.op->lowers_as<Element>()) && !keeps_dimension(body, n, *axis)) return;
    if (n.op->name == "Transpose") {
      const Permutation to = inverse_of(n.attrs.as<PermAttrs>().perm);
      axis = static_cast<size_t>(to[*axis]);
    }
    for (ValueId v : n.outputs) axes[v] = *axis;
  }
  /// Input and output agree in everything up to this dimension.
  static bool keeps_dimension(const Graph& body, const Node& n, size_t axis) {
    const Shape &in = body.value(n.inputs[0]).type.shape, &out = body.value(n.outputs[0]).type.shape;
    for (size_t d = 0; d <= axis; ++d)
      if (d >= in.size() || d >= out.size() || !proves_equal(in[d], out[d])) return false;
    return true;
  }
  /// How a body's value comes from another by movement alone: the index of each of that one's elements, in both.
  struct Moved {
    ValueId from;
    Index before, after;
  };
  static std::optional<Moved> follow_back(const Graph& body, ValueId v, const std::function<bool(ValueId)>& ends) {
    std::vector<const Node*> moves;
    for (const Node* n = body.producer(v); n && !ends(v); n = body.producer(v)) {
      const auto* m = n->op->lowers_as<Movement>();
      if (n->op->name != "Cast" && (!m || !m->inverse)) return std::nullopt;
      if (m) moves.push_back(n);
      v = n->inputs[0];
    }
    if (!ends(v) || moves.empty()) return std::nullopt;
    Moved moved{v, {}, {}};
    for (size_t d = 0; d < body.value(v).type.rank(); ++d)
      moved.before.push_back(Expr::index(fmt::format("i{}_{}", v.index, d), body.value(v).type.shape[d]));
    moved.after = moved.before;
    for (auto n = moves.rbegin(); n != moves.rend(); ++n) {
      const NodeView view(body, **n);
      moved.after = (*n)->op->lowers_as<Movement>()->inverse(*view, moved.after);
    }
    return moved;
  }
  /// v is a value whose channels are known, with these in another order and all else as it was: a channel shuffle.
  static bool shuffles_channels(const Graph& body, const std::map<ValueId, size_t>& axes, ValueId v) {
    const auto moved = follow_back(body, v, [&](ValueId x) { return axes.count(x) > 0; });
    if (!moved || axes.at(moved->from) != 1 || moved->after.size() != moved->before.size()) return false;
    for (size_t d = 0; d < moved->after.size(); ++d)
      if (d != 1 && !proves_equal(moved->after[d], moved->before[d])) return false;
    return true;
  }
  /// The order of the dimensions of output `o` in which a product's results lie as it computes them, rows one after the other, if
  /// that is not their own: for attention, which reads its operands in any order of rows.
  Permutation order_of_product(const Node& n, size_t o) const {
    const Graph& body = *n.body;
    const Value& out = g_.value(n.outputs[o]);
    const size_t rank = out.type.rank();
    const auto reads_rows = [&](NodeId user) {
      return g_.node(user).body && g_.node(user).attrs.as<FusedAttrs>().kind == "attention";
    };
    if (rank < 3 || rank > 5 || g_.is_output(n.outputs[o]) ||
        !std::all_of(out.users.begin(), out.users.end(), reads_rows))
      return {};
    const auto computes = [&](ValueId v) {
      const Node* p = body.producer(v);
      return p && p->op->name != "Cast" && !p->op->lowers_as<Movement>();
    };
    auto moved = follow_back(body, body.outputs[o], computes);
    if (!moved) return {};
    const Index after = along_operand(body, *moved);
    if (after.empty()) return {};
    Shape extents;
    for (const Expr& i : moved->before) extents.push_back(i.extent());
    const Expr rows = linear_index(extents, moved->before);
    Permutation perm(rank);
    std::iota(perm.begin(), perm.end(), 0);
    do {
      if (proves_equal(linear_index(permuted(out.type.shape, perm), permuted(after, perm)), rows))
        return std::is_sorted(perm.begin(), perm.end()) ? Permutation{} : perm;
    } while (std::next_permutation(perm.begin(), perm.end() - 1));  // the columns stay last
    return {};
  }
  /// `moved`, from the results of a MatMul or what is computed of each: its indices follow the rows of the product's first operand in
  /// memory, so `before` becomes (a row of that, a column). Returns the indices after the movement; empty: it is no such product.
  static Index along_operand(const Graph& body, Moved& moved) {
    const Node* product = body.producer(moved.from);
    while (product && product->op->name != "MatMul") {
      const ValueId v = product->inputs.empty() ? ValueId() : product->inputs[0];
      if (!v.valid() || !same_shape(body.value(v).type.shape, body.value(moved.from).type.shape)) return {};
      product = body.producer(v);
    }
    if (!product || body.value(product->inputs[1]).type.rank() != 2) return {};
    const auto operand = follow_back(body, product->inputs[0], [&](ValueId v) { return !body.producer(v); });
    if (!operand) return moved.after;
    if (operand->after.size() != moved.before.size() || operand->before.empty()) return {};
    Bindings to;
    for (size_t d = 0; d + 1 < moved.before.size(); ++d) to[moved.before[d].name()] = operand->after[d];
    const Expr column = Expr::index("column", moved.before.back().extent());
    to[moved.before.back().name()] = column;
    Index after;
    for (const Expr& e : moved.after) after.push_back(substitute(e, to));
    moved.before = operand->before;
    moved.before.back() = column;
    return after;
  }
  void choose(NodeId id) {
    const Node& n = g_.node(id);
    const auto axes = channel_axes(n);
    std::vector<ValueId> chosen;
    for (size_t o = 0; o < n.outputs.size() && n.attrs.as<FusedAttrs>().kind == "contraction"; ++o)
      if (Permutation perm = order_of_product(n, o); !perm.empty()) rows_[n.outputs[o]] = std::move(perm);
    for (size_t o = 0; o < n.outputs.size(); ++o) {
      const auto axis = axes.find(n.body->outputs[o]);
      const bool last = axis != axes.end() ? axis->second == 1 : shuffles_channels(*n.body, axes, n.body->outputs[o]);
      const bool fits = last && g_.value(n.outputs[o]).type.rank() >= 3;
      if (fits && !g_.is_output(n.outputs[o])) chosen.push_back(n.outputs[o]);
    }
    // A pointwise kernel walks all its outputs with one index.
    if (n.attrs.as<FusedAttrs>().kind == "points" && chosen.size() != n.outputs.size()) return;
    last_.insert(chosen.begin(), chosen.end());
  }

  /// The order in which a body's product or window reads a weight; empty for the order that it has.
  Permutation weight_order(const Node& n, size_t input) const {
    const Graph& body = *n.body;
    const ValueId in = body.inputs[input];
    ValueId weight = in;
    const Node* only = body.only_reader(weight);
    for (; only && only->op->name == "Cast"; only = body.only_reader(weight)) weight = only->outputs[0];
    if (!only) return {};
    const Node& reader = *only;
    const size_t rank = body.value(in).type.rank();
    // Tensor cores take operands of 8 bits along k only, warpgroups f32, too; and the other tensor cores read f32 with fewer
    // instructions then.
    const DType stored = body.value(in).type.dtype, read = body.value(weight).type.dtype;
    const bool along_k = (size_of(stored) == 1 && read == DType::I32) || (is_f8(stored) && read == DType::F32) ||
                         (stored == DType::F32 && read == DType::F32 && target_.compute_capability >= 80);
    // A few columns: one load would bring no more than those, and sums of few columns are made by lanes along k.
    const bool narrow = rank == 2 && body.value(in).type.shape[1].as_int().value_or(kNarrow + 1) <= kNarrow;
    if ((along_k || narrow) && reader.op->name == "MatMul" && rank == 2 && reader.inputs[1] == weight &&
        reader.inputs[0] != weight)
      return {1, 0};
    if (rank < 3 || reader.inputs.size() < 2 || reader.inputs[1] != weight) return {};
    if (reader.op->name == "Conv")
      return reads_channels_last(n, reader.inputs[0]) ? channels_last(rank) : Permutation{};
    if (reader.op->name != "DepthwiseConv" && reader.op->name != "ConvTranspose") return {};
    Permutation first_last;
    for (size_t d = 1; d < rank; ++d) first_last.push_back(static_cast<int64_t>(d));
    first_last.push_back(0);
    return first_last;
  }
  bool reads_channels_last(const Node& n, ValueId v) const {
    const auto axes = channel_axes(n);
    const auto it = axes.find(v);
    return it != axes.end() && it->second == 1;
  }
  /// Empty: its own.
  Permutation order_of(ValueId v) const {
    if (const auto it = rows_.find(v); it != rows_.end()) return it->second;
    return last_.count(v) ? channels_last(g_.value(v).type.rank()) : Permutation{};
  }
  void apply(NodeId id) {
    for (size_t i = 0; i < g_.node(id).inputs.size(); ++i) {
      const ValueId v = g_.node(id).inputs[i];
      if (g_.value(v).constant) {
        const Permutation perm = weight_order(g_.node(id), i);
        if (!perm.empty()) set_weight(id, i, perm);
      } else if (const Permutation perm = order_of(v); !perm.empty()) {
        changes_.push_back({id, i, perm});
      }
    }
    Node& n = g_.node(id);
    for (const Change& c : changes_) read_through(*n.body, c.input, c.perm);
    changes_.clear();
    for (size_t o = 0; o < n.outputs.size(); ++o) {
      const Permutation perm = order_of(n.outputs[o]);
      if (perm.empty()) continue;
      Value& v = g_.value(n.outputs[o]);
      write_through(*n.body, o, perm);
      v.type.shape = permuted(v.type.shape, perm);
      changed_ = true;
    }
  }
  void set_weight(NodeId id, size_t input, const Permutation& perm) {
    const ValueId v = g_.node(id).inputs[input];
    ValueId& moved = weights_[{v, perm}];
    if (!moved.valid()) {
      moved = g_.add_constant(std::make_shared<Tensor>(transposed(*g_.value(v).constant, perm)), g_.value(v).name);
    }
    g_.replace_use(id, v, moved);
    changes_.push_back({id, input, perm});
    changed_ = true;
  }

  struct Change {
    NodeId node;
    size_t input;
    Permutation perm;
  };
  Graph& g_;
  const TargetTraits& target_;
  std::set<ValueId> last_;  // channels last
  std::map<ValueId, Permutation> rows_;  // as a product computes them
  std::map<std::pair<ValueId, Permutation>, ValueId> weights_;
  std::vector<Change> changes_;
  bool changed_ = false;
};

}  // namespace

Result<bool> assign_layouts(Graph& graph, const PassContext& ctx) {
  if (ctx.target.kind != TargetKind::Cuda || !ctx.fuse) return false;
  return Assigner(graph, ctx.target).run();
}

}  // namespace ingot
