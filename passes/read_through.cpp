// What is computed where it is read, although several kernels read it, or a kernel reads it often.
#include <algorithm>

#include "passes/groups.h"
#include "passes/product_rates.h"
#include "passes/typical.h"

namespace ingot {
namespace {

/// Nothing in memory is behind it.
bool is_formula(const Graph& g, const Node& n) {
  if (n.op->name == "Position" || n.op->name == "Values") return true;
  if (!n.op->lowers_as<Pointwise>() && !n.op->lowers_as<Movement>()) return false;
  return std::all_of(n.inputs.begin(), n.inputs.end(), [&](ValueId v) {
    if (!v.valid()) return true;
    const Value& value = g.value(v);
    if (value.constant) return value.constant->count() == 1;
    const Node* p = g.producer(v);
    return p && is_formula(g, *p);
  });
}

/// Narrower to read than to store, and no work.
bool widens(const Graph& g, const Node& n) {
  return n.op->name == "Cast" && size_of(g.value(n.inputs[0]).type.dtype) < size_of(g.value(n.outputs[0]).type.dtype);
}

bool is_whole(const Expr& index) {
  if (index.op() == ExprOp::Read || index.op() == ExprOp::Cast || index.op() == ExprOp::Call) return false;
  return std::all_of(index.args().begin(), index.args().end(), [](const auto& a) { return is_whole(Expr(a)); });
}
/// Each result is one element, whose place follows from that of the result by whole numbers: an image enlarged by repeating
/// its pixels.
bool repeats_elements(const Graph& g, const Node& n) {
  const NodeView view(g, n);
  Index out;
  for (size_t d = 0; d < view->outputs[0].rank(); ++d)
    out.push_back(Expr::index("i" + std::to_string(d), view->outputs[0].shape[d]));
  const Expr element = n.op->lowers_as<Element>()->element(*view, out);
  return element.op() == ExprOp::Read &&
         std::all_of(element.args().begin(), element.args().end(), [](const auto& a) { return is_whole(Expr(a)); });
}

/// Operands that are gathered do not arrive by TMA: by the time at typical sizes in nanoseconds, multiplying without, against
/// storing the value and reading it again.
bool is_better_stored(const Graph& g, const TargetTraits& target, const Node& product, const TensorType& stored) {
  const NodeView view(g, product);
  double multiplies = 2 * static_cast<double>(typical(element_count(view->outputs[0].shape)));
  for (const Expr& k : product.op->lowers_as<Contraction>()->form(*view).k)
    multiplies *= static_cast<double>(typical(k.extent()));
  const double time = multiplies / (kTensorRate * target.f32_gflops);
  const double apart = time + 2 * static_cast<double>(typical_bytes(stored)) / target.memory_gbps + kLaunch;
  return time / kWithoutBoxes > apart;
}

}  // namespace

bool is_free_to_read(const Graph& g, const Node& n) { return is_formula(g, n) || widens(g, n); }

const char* gather_refusal(const Groups& groups, const PassContext& ctx, int reader, NodeId id) {
  const Graph& g = groups.graph();
  const Node& n = g.node(id);
  const Group& r = groups.at(reader);
  const bool convolution = r.kind == "contraction" && g.node(r.anchor).op->name == "Conv";
  if (ctx.target.kind != TargetKind::Cuda || !convolution || !repeats_elements(g, n))
    return "a product would gather or interpolate each element many times";
  if (is_better_stored(g, ctx.target, g.node(r.anchor), g.value(n.outputs[0]).type))
    return "gathered by the product, the repeated elements would cost more time than they take to store";
  return nullptr;
}

}  // namespace ingot
