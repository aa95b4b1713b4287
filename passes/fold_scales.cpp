#include <algorithm>

#include "compiler/expr/simplify.h"
#include "compiler/ops/spatial.h"
#include "passes/passes.h"

namespace ingot {
namespace {

/// Where the output channels are: in the output, and in the weight.
struct Channels {
  size_t output_axis, weight_axis, weight_input;
};
std::optional<Channels> channels_of(const Graph& g, const Node& n) {
  const std::string_view name = n.op->name;
  if (name == "Conv" || name == "DepthwiseConv") return Channels{1, 0, 1};
  if (name == "ConvTranspose" && n.attrs.as<ConvTransposeAttrs>().groups == 1) return Channels{1, 1, 1};
  if (name == "MatMul") {
    const size_t rank = g.value(n.outputs[0]).type.rank(), weight = g.value(n.inputs[1]).type.rank();
    return Channels{rank - 1, weight - 1, 1};
  }
  return std::nullopt;
}

/// The constant as a vector along the channel axis (or one element): only that axis may be longer than 1.
std::optional<Shape> per_channel_shape(const Graph& g, ValueId c, const Channels& ch, size_t out_rank, size_t weight_rank) {
  const Shape& s = g.value(c).type.shape;
  Shape in_weight(weight_rank, Expr(1));
  for (size_t d = 0; d < s.size(); ++d) {
    if (s[d].is_const(1)) continue;
    if (d + out_rank - s.size() != ch.output_axis) return std::nullopt;
    in_weight[ch.weight_axis] = s[d];
  }
  return in_weight;
}

bool is_constant(const Graph& g, ValueId v) { return g.value(v).constant != nullptr; }

/// Mul(product(x, w), c) -> product(x, w * c).
Result<ValueId> scale_into_weight(GraphBuilder& b, const Node& mul) {
  Graph& g = b.graph();
  for (size_t i = 0; i < 2; ++i) {
    const ValueId y = mul.inputs[i], c = mul.inputs[1 - i];
    const Node* producer = g.producer(y);
    if (!producer || !is_constant(g, c) || !g.only_reader(y)) continue;
    const Node p = *producer;
    const auto ch = channels_of(g, p);
    if (!ch || !is_constant(g, p.inputs[ch->weight_input]) || !same_shape(b.shape(mul.outputs[0]), b.shape(y))) continue;
    const ValueId w = p.inputs[ch->weight_input];
    const auto shape = per_channel_shape(g, c, *ch, b.shape(y).size(), b.shape(w).size());
    if (!shape) continue;
    std::vector<ValueId> inputs = p.inputs;
    inputs[ch->weight_input] = INGOT_TRY(build_binary(b, "Mul", w, INGOT_TRY(build_reshape(b, c, *shape))));
    b.origin.merge(p.origin);
    return b.add(*p.op, p.attrs, inputs);
  }
  return ValueId();
}

/// Mul(Add(y, b), c) -> Add(Mul(y, c), b * c), when y is a product that the factor can go into.
Result<ValueId> scale_through_bias(GraphBuilder& b, const Node& mul) {
  Graph& g = b.graph();
  for (size_t i = 0; i < 2; ++i) {
    const ValueId sum = mul.inputs[i], c = mul.inputs[1 - i];
    const Node* producer = g.producer(sum);
    if (!producer || producer->op->name != "Add" || !is_constant(g, c) || !g.only_reader(sum)) continue;
    if (!same_shape(b.shape(mul.outputs[0]), b.shape(sum))) continue;
    const Node add = *producer;
    for (size_t j = 0; j < 2; ++j) {
      const ValueId y = add.inputs[j], bias = add.inputs[1 - j];
      const Node* p = g.producer(y);
      if (!p || !channels_of(g, *p) || !is_constant(g, bias) || !same_shape(b.shape(y), b.shape(sum))) continue;
      b.origin.merge(add.origin);
      const ValueId scaled = INGOT_TRY(build_binary(b, "Mul", y, c));
      return build_binary(b, "Add", scaled, INGOT_TRY(build_binary(b, "Mul", bias, c)));
    }
  }
  return ValueId();
}

/// Add(Add(y, b1), b2) -> Add(y, b1 + b2) for constants.
Result<ValueId> join_additions(GraphBuilder& b, const Node& add) {
  Graph& g = b.graph();
  for (size_t i = 0; i < 2; ++i) {
    const ValueId inner = add.inputs[i], c = add.inputs[1 - i];
    const Node* producer = g.producer(inner);
    if (!producer || producer->op->name != "Add" || !is_constant(g, c) || !g.only_reader(inner)) continue;
    const Node first = *producer;
    for (size_t j = 0; j < 2; ++j) {
      const ValueId y = first.inputs[j], d = first.inputs[1 - j];
      if (!is_constant(g, d) || is_constant(g, y) || !is_float(b.type(y).dtype)) continue;
      if (!same_shape(b.shape(y), b.shape(add.outputs[0]))) continue;
      b.origin.merge(first.origin);
      return build_binary(b, "Add", y, INGOT_TRY(build_binary(b, "Add", d, c)));
    }
  }
  return ValueId();
}

struct Rule {
  const char* op;
  Result<ValueId> (*rewrite)(GraphBuilder&, const Node&);
};
constexpr Rule kScaleRules[] = {{"Mul", scale_into_weight}, {"Mul", scale_through_bias}, {"Add", join_additions}};

}  // namespace

Result<bool> fold_scales(Graph& graph, const PassContext& ctx) {
  bool changed = false;
  for (bool again = true; again;) {
    again = false;
    for (NodeId id : graph.order()) {
      for (const Rule& r : kScaleRules) {
        if (graph.node(id).dead || graph.node(id).op->name != r.op) continue;
        const Node n = graph.node(id);
        GraphBuilder b(graph);
        b.origin = n.origin;
        const ValueId v = INGOT_TRY(r.rewrite(b, n));
        if (!v.valid()) continue;
        if (graph.value(v).name.empty()) graph.value(v).name = graph.value(n.outputs[0]).name;
        graph.replace_all_uses(n.outputs[0], v);
        graph.erase_if_dead(id);
        again = true;
        break;
      }
    }
    // The products of constants must be constants before the next round can see through them.
    if (again) INGOT_TRY(fold_constants(graph, ctx));
    changed |= again;
  }
  return changed;
}

}  // namespace ingot
