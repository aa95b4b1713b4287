// Average pools behind 1x1 convolutions: both are linear, one along the image, the other along the channels.
#include "compiler/expr/simplify.h"
#include "compiler/ops/compose.h"
#include "compiler/ops/spatial.h"
#include "passes/passes.h"

namespace ingot {
namespace {

/// Every result is a sum over the channels at one position.
bool is_pointwise_conv(const Graph& g, const Node& n) {
  if (n.op->name != "Conv" || !g.value(n.inputs[1]).constant) return false;
  const auto& a = n.attrs.as<ConvAttrs>();
  bool one = a.groups == 1 && !a.same;
  for (size_t d = 0; d < a.kernel.size(); ++d)
    one &= a.kernel[d] == 1 && a.strides[d] == 1 && a.begins[d].is_const(0) && a.ends[d].is_const(0);
  return one;
}

}  // namespace

Result<bool> sink_pools(Graph& graph, const PassContext& ctx) {
  if (!ctx.fuse) return false;
  bool changed = false;
  for (NodeId id : graph.order()) {
    if (!is_pointwise_conv(graph, graph.node(id))) continue;
    const Node conv = graph.node(id);
    const Node* p = graph.producer(conv.inputs[0]);
    if (!p || p->op->name != "AveragePool" || !graph.only_reader(conv.inputs[0])) continue;
    const Node pool = *p;
    const auto& weight = graph.value(conv.inputs[1]).constant->dims();
    if (weight[0] > weight[1] || !same_shape(graph.value(pool.inputs[0]).type.shape, graph.value(pool.outputs[0]).type.shape)) continue;
    GraphBuilder b(graph);
    b.origin = conv.origin;
    const ValueId product = INGOT_TRY(b.add(*conv.op, conv.attrs, {pool.inputs[0], conv.inputs[1]}));
    b.origin = pool.origin;
    const ValueId result = INGOT_TRY(b.add(*pool.op, pool.attrs, {product}));
    graph.value(result).name = graph.value(conv.outputs[0]).name;
    graph.replace_all_uses(conv.outputs[0], result);
    graph.erase_if_dead(id);
    changed = true;
  }
  return changed;
}

}  // namespace ingot
