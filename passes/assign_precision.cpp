// Mixed precision: values between kernels, and weights, are stored in 16 bits; arithmetic inside a kernel stays in f32, and
// products multiply 16-bit operands with f32 sums. Runs on fused groups, where it is known which values are stored: a kernel
// that writes a narrow value ends with a Cast, one that reads it begins with the inverse.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "compiler/ops/operands.h"
#include "compiler/ops/registry.h"
#include "compiler/ops/rows.h"
#include "passes/passes.h"

namespace ingot {
namespace {

constexpr int64_t kLongestVector = 1 << 16;  // of what stays f32
constexpr uint16_t kLargestF16 = 0x7bff, kInfinityF16 = 0x7c00;

class Narrower {
 public:
  Narrower(Graph& graph, DType type) : g_(graph), type_(type) {}

  bool run() {
    const std::vector<NodeId> order = g_.order();
    for (NodeId id : order)
      for (ValueId v : g_.node(id).outputs)
        if (is_wide(v) && !g_.is_output(v) && !are_sums(v) && !g_.value(v).keeps_f32) narrow_.insert(v);
    for (NodeId id : order) {
      if (!g_.node(id).body) continue;
      narrow_inputs(id);
      const std::string& kind = g_.node(id).attrs.as<FusedAttrs>().kind;
      if (kind != "chain") narrow_operands(*g_.node(id).body, kind == "attention");  // chains multiply in f32
      narrow_outputs(id);
    }
    return !narrow_.empty() || !weights_.empty() || rounds_operands_;
  }

 private:
  bool is_wide(ValueId v) const { return g_.value(v).type.dtype == DType::F32 && !g_.value(v).content; }
  /// Weights, be they so few that their values are known everywhere; vectors (biases) are few bytes and stay as they are.
  bool is_wide_matrix(ValueId v) const {
    const TensorPtr& t = g_.value(v).constant;
    return t && t->type() == DType::F32 && std::count_if(t->dims().begin(), t->dims().end(), [](int64_t d) { return d > 1; }) > 1;
  }
  /// Sums of squares are more than 16 bits hold.
  bool are_sums(ValueId v) const {
    const Node& n = *g_.producer(v);
    const Node* inside = n.body ? n.body->producer(n.body->outputs[g_.value(v).output_index]) : nullptr;
    return inside && inside->op->name == "PartSums";
  }
  static ValueId cast(Graph& body, ValueId v, DType to) {
    TensorType type = body.value(v).type;
    type.dtype = to;
    const NodeId n = body.add_node(&op("Cast"), AttrsBox::of(CastAttrs{to}), {v}, {type}, {});
    return body.node(n).outputs[0];
  }
  void narrow_inputs(NodeId id) {
    for (size_t i = 0; i < g_.node(id).inputs.size(); ++i) {
      const ValueId v = g_.node(id).inputs[i];
      if (g_.value(v).constant) {
        if (g_.value(v).keeps_f32) continue;
        if (!is_wide_matrix(v) && !(is_wide(v) && g_.value(v).constant->count() > kLongestVector)) continue;
        g_.replace_use(id, v, weight(v));
      } else if (!narrow_.count(v)) {
        continue;
      }
      Graph& body = *g_.node(id).body;
      const ValueId in = body.inputs[i];
      const std::vector<NodeId> users = body.value(in).users;
      body.value(in).type.dtype = type_;
      const ValueId wide = cast(body, in, DType::F32);
      for (NodeId u : users) body.replace_use(u, in, wide);
    }
  }
  void narrow_outputs(NodeId id) {
    Node& n = g_.node(id);
    for (size_t o = 0; o < n.outputs.size(); ++o) {
      if (!narrow_.count(n.outputs[o])) continue;
      n.body->outputs[o] = cast(*n.body, n.body->outputs[o], type_);
      g_.value(n.outputs[o]).type.dtype = type_;
    }
  }
  /// Operands of products that are not narrow already are rounded where they are read. A constant factor of queries or
  /// keys scales their product instead.
  void narrow_operands(Graph& body, bool attention) {
    for (NodeId id : body.order()) {
      if (!body.node(id).op->lowers_as<Contraction>()) continue;
      for (size_t i = 0; i < 2; ++i) {
        const ValueId v = body.node(id).inputs[i];
        const DType stored = operand_type(body, v, attention);
        if (body.value(v).type.dtype != DType::F32 || stored == type_) continue;
        if (is_f8(stored) && !attention) continue;  // 16 bits hold them as they are
        if (follows_product(body, v)) continue;  // the weights of attention
        const ValueId rounded = cast(body, cast(body, v, type_), DType::F32);
        body.replace_use(id, v, rounded);
        rounds_operands_ = true;
      }
    }
  }
  static bool follows_product(const Graph& body, ValueId v) {
    std::vector<ValueId> work{v};
    std::set<ValueId> seen;
    while (!work.empty()) {
      const ValueId at = work.back();
      work.pop_back();
      const Node* n = at.valid() && seen.insert(at).second ? body.producer(at) : nullptr;
      if (!n) continue;
      if (n->op->lowers_as<Contraction>()) return true;
      work.insert(work.end(), n->inputs.begin(), n->inputs.end());
    }
    return false;
  }
  ValueId weight(ValueId v) {
    ValueId& made = weights_[v];
    if (made.valid()) return made;
    const Tensor& from = *g_.value(v).constant;
    auto to = std::make_shared<Tensor>(type_, from.dims());
    // Masks of the lowest float stay finite: a row of them alone must not become NaN.
    const auto* items = from.as<float>();
    auto* bits = to->mutable_as<uint16_t>();
    if (type_ == DType::F16) {
      floats_to_f16(items, bits, from.count());
      for (int64_t i = 0; i < from.count(); ++i)
        if ((bits[i] & 0x7fff) == kInfinityF16 && !std::isinf(items[i])) bits[i] = static_cast<uint16_t>((bits[i] & 0x8000) | kLargestF16);
    } else {
      floats_to_bf16(items, bits, from.count());
    }
    made = g_.add_constant(std::move(to), g_.value(v).name);
    return made;
  }

  Graph& g_;
  DType type_;
  std::set<ValueId> narrow_;
  bool rounds_operands_ = false;
  std::map<ValueId, ValueId> weights_;
};

}  // namespace

Result<bool> assign_precision(Graph& graph, const PassContext& ctx) {
  if (ctx.precision == DType::F32) return false;
  return Narrower(graph, ctx.precision).run();
}

}  // namespace ingot
