// Reductions over the pixels of what a window computes: first those of a line, which the window's kernel has in hand, then
// the lines.
#include <algorithm>

#include "compiler/expr/simplify.h"
#include "compiler/ops/compose.h"
#include "compiler/ops/rows.h"
#include "passes/groups.h"
#include "passes/passes.h"

namespace ingot {
namespace {

constexpr int64_t kChannels = 8;  // a multiple of so many: windows of others have no kernel that holds lines

bool is_window_of_image(const Graph& g, const Node& n) {
  const auto* r = n.op->lowers_as<Reduction>();
  return r && g.value(n.outputs[0]).type.rank() == 4 && r->form(*NodeView(g, n)).axes.empty();
}

/// A window computes v, but for pointwise work behind it.
bool comes_from_window(const Graph& g, ValueId v) {
  const Node* n = g.producer(v);
  for (size_t steps = 0; n && is_pointwise(*n) && steps < kMaxNodes; ++steps) {
    const auto same = std::find_if(n->inputs.begin(), n->inputs.end(), [&](ValueId i) {
      return i.valid() && g.value(i).producer.valid() && same_shape(g.value(i).type.shape, g.value(v).type.shape);
    });
    if (same == n->inputs.end()) return false;
    n = g.producer(*same);
  }
  return n && is_window_of_image(g, *n);
}

/// A line's results combined, and these combined, are what all pixels are: no other arithmetic than the combination, or equal
/// shares of it.
bool combines_parts(const Node& n) {
  for (const char* name : {"ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin"})
    if (n.op->name == name) return true;
  return false;
}

/// An image with extents that are known, and channels that a kernel with lines can have.
bool has_lines(const Shape& s) {
  const auto channels = s[1].as_int();
  return channels && *channels % kChannels == 0 && s[2].as_int() && s[3].as_int().value_or(0) > 1;
}

}  // namespace

Result<bool> reduce_lines(Graph& graph, const PassContext& ctx) {
  if (!ctx.fuse || ctx.target.kind != TargetKind::Cuda) return false;
  bool changed = false;
  for (NodeId id : graph.order()) {
    const Node n = graph.node(id);
    if (!combines_parts(n) || graph.value(n.inputs[0]).type.dtype != DType::F32) continue;
    const auto& axes = n.attrs.as<AxesAttrs>();
    if (axes.axes != std::vector<int64_t>{2, 3} || graph.value(n.inputs[0]).type.rank() != 4) continue;
    if (!has_lines(graph.value(n.inputs[0]).type.shape) || !comes_from_window(graph, n.inputs[0])) continue;
    GraphBuilder b(graph);
    b.origin = n.origin;
    const ValueId lines = INGOT_TRY(b.add(*n.op, AxesAttrs{{3}, true}, {n.inputs[0]}));
    const ValueId result = INGOT_TRY(b.add(*n.op, axes, {lines}));
    graph.value(result).name = graph.value(n.outputs[0]).name;
    graph.replace_all_uses(n.outputs[0], result);
    graph.erase_if_dead(id);
    changed = true;
  }
  return changed;
}

const char* combine_line_refusal(const Groups& groups, const PassContext& ctx, int group, NodeId id) {
  const Graph& g = groups.graph();
  const Node& n = g.node(id);
  const Group& own = groups.at(group);
  if (ctx.target.kind != TargetKind::Cuda || !is_window_of_image(g, g.node(own.anchor)))
    return "the reader reduces values that different blocks compute";
  if (!combines_parts(n) || n.attrs.as<AxesAttrs>().axes != std::vector<int64_t>{3} || !n.attrs.as<AxesAttrs>().keep)
    return "it reduces other axes than the lines of an image";
  if (!has_lines(g.value(n.inputs[0]).type.shape) || g.value(n.inputs[0]).type.dtype != DType::F32)
    return "the windows have no kernel that holds lines";
  if (!same_shape(g.value(n.inputs[0]).type.shape, g.value(g.node(own.anchor).outputs[0]).type.shape))
    return "what it reduces is not what the window computes";
  for (NodeId m : own.nodes)
    if (g.node(m).op->lowers_as<Movement>() || (m != own.anchor && g.node(m).op->lowers_as<Reduction>()))
      return "what it reduces is not what the window computes";
  return nullptr;
}

}  // namespace ingot
