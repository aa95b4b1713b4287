// Windows: every point reduces over a window, then the epilogue; or every line of points, if these are reduced behind it.
#include <algorithm>
#include <set>

#include "codegen/lower/axis_order.h"
#include "codegen/lower/group_parts.h"

namespace ingot {
namespace {

const Node* first_reduction(const Graph& body) {
  for (NodeId id : body.order())
    if (body.node(id).op->lowers_as<Reduction>()) return &body.node(id);
  return nullptr;
}

/// The reduction behind a window; null where there is none.
const Node* reduction_behind(const Graph& body, const Node& window) {
  for (NodeId id : body.order())
    if (&body.node(id) != &window && body.node(id).op->lowers_as<Reduction>()) return &body.node(id);
  return nullptr;
}

/// The outputs that are computed from the reduction, or the others.
std::vector<ValueId> outputs_behind(const Graph& body, const Node& reduction, bool behind) {
  std::set<ValueId> computed{reduction.outputs[0]};
  for (NodeId id : body.order()) {
    const Node& n = body.node(id);
    if (std::any_of(n.inputs.begin(), n.inputs.end(), [&](ValueId v) { return computed.count(v) > 0; }))
      computed.insert(n.outputs.begin(), n.outputs.end());
  }
  std::vector<ValueId> outputs;
  for (ValueId v : body.outputs)
    if ((computed.count(v) > 0) == behind) outputs.push_back(v);
  return outputs;
}

/// One point is a line of results, of one channel: what is combined of them is in a scratch array.
void lower_lines(GroupValues& values, Kernel& k, const Index& out, Reduce window, const Expr& acc, const Node& reduction) {
  const Graph& body = values.body();
  const auto axis = reduction.op->lowers_as<Reduction>()->form(*NodeView(body, reduction)).axes[0];
  const Node& anchor = *first_reduction(body);
  const int line = static_cast<int>(k.buffers.size());
  Index kept = out;
  kept[axis] = Expr(0);
  for (size_t d = 0; d < out.size(); ++d)
    if (d != axis) k.domain.push_back({out[d], out[d].extent()});
  Body each{{std::move(window)}};
  for (Stmt& s : epilogue_of(values, anchor.outputs[0], out, acc, outputs_behind(body, reduction, false))) each.push_back(std::move(s));
  Reduce r = reduce_of(values, reduction, kept, {out[axis]}, "line");
  each.push_back({Store{line, out[axis], r.value}});
  k.body.push_back({Alloc{line, "line", r.value.type(), out[axis].extent()}});
  k.body.push_back({Loop{axes_of({out[axis]}), std::move(each)}});
  const Expr place = Expr::index("x", out[axis].extent());
  r.axes = axes_of({place});
  r.value = Expr::load(line, r.value.type(), place);
  Body behind = epilogue_of(values, reduction.outputs[0], kept, finish_of(values, reduction, kept, r.result), outputs_behind(body, reduction, true));
  sort_by_stride(k.domain, first_store(behind));
  k.body.push_back({std::move(r)});
  for (Stmt& s : behind) k.body.push_back(std::move(s));
}

}  // namespace

void lower_windows(GroupValues& values, Kernel& k) {
  const Graph& body = values.body();
  const Node& n = *first_reduction(body);
  const NodeView view(body, n);
  const Index out = fresh_index("i", view->outputs[0].shape);
  const Index taps = fresh_index("t", n.op->lowers_as<Reduction>()->form(*view).extents);
  Reduce r = reduce_of(values, n, out, taps, "acc");
  const Expr acc = finish_of(values, n, out, r.result);
  if (const Node* reduction = reduction_behind(body, n)) return lower_lines(values, k, out, std::move(r), acc, *reduction);
  k.domain = axes_of(out);
  k.body.push_back({std::move(r)});
  for (Stmt& s : epilogue_of(values, n.outputs[0], out, acc)) k.body.push_back(std::move(s));
  sort_by_stride(k.domain, first_store(k.body));
}

}  // namespace ingot
