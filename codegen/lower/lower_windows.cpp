// Windows: every point reduces over a window, then the epilogue; or every line of points, or part of their channels, if these are
// reduced behind it.
#include <algorithm>
#include <set>

#include "codegen/lower/axis_order.h"
#include "codegen/lower/group_parts.h"
#include "compiler/expr/simplify.h"
#include "compiler/ops/rows.h"

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
void lower_lines(GroupValues& values, Kernel& k, const Index& out, Reduce window, const Expr& acc,
                 const Node& reduction) {
  const Graph& body = values.body();
  const auto axis = reduction.op->lowers_as<Reduction>()->form(*NodeView(body, reduction)).axes[0];
  const Node& anchor = *first_reduction(body);
  const int line = static_cast<int>(k.buffers.size());
  Index kept = out;
  kept[axis] = Expr(0);
  for (size_t d = 0; d < out.size(); ++d)
    if (d != axis) k.domain.push_back({out[d], out[d].extent()});
  Body each{{std::move(window)}};
  for (Stmt& s : epilogue_of(values, anchor.outputs[0], out, acc, outputs_behind(body, reduction, false)))
    each.push_back(std::move(s));
  Reduce r = reduce_of(values, reduction, kept, {out[axis]}, "line");
  each.push_back({Store{line, out[axis], r.value}});
  k.body.push_back({Alloc{line, "line", r.value.type(), out[axis].extent()}});
  k.body.push_back({Loop{axes_of({out[axis]}), std::move(each)}});
  const Expr place = Expr::index("x", out[axis].extent());
  r.axes = axes_of({place});
  r.value = Expr::load(line, r.value.type(), place);
  Body behind = epilogue_of(values, reduction.outputs[0], kept, finish_of(values, reduction, kept, r.result),
                            outputs_behind(body, reduction, true));
  sort_by_stride(k.domain, first_store(behind));
  k.body.push_back({std::move(r)});
  for (Stmt& s : behind) k.body.push_back(std::move(s));
}

/// One point is a part of a result's channels: what is stored of them is in a scratch array, and added up.
void lower_channel_parts(GroupValues& values, Kernel& k, const Node& window, Index out) {
  const Graph& body = values.body();
  const NodeView view(body, window);
  const int64_t width = reduction_behind(body, window)->attrs.as<PartSumsAttrs>().width;
  const Expr part = Expr::index("part", simplify(floor_div(view->outputs[0].shape[1], Expr(width)))),
             lane = Expr::index("lane", Expr(width));
  out[1] = part * width + lane;
  const Index taps = fresh_index("t", window.op->lowers_as<Reduction>()->form(*view).extents);
  Reduce r = reduce_of(values, window, out, taps, "acc");
  const Expr acc = finish_of(values, window, out, r.result);
  std::map<ValueId, Index> position;
  const Body stores = epilogue_of(values, window.outputs[0], out, acc, &position);
  INGOT_CHECK(stores.size() == 1, "PartSums: not of what the group stores alone");
  const int scratch = static_cast<int>(k.buffers.size());
  const Store& store = *stores[0].as<Store>();
  k.body.push_back({Alloc{scratch, "stored", DType::F32, Expr(width)}});
  k.body.push_back({Loop{axes_of({lane}), {{std::move(r)}, {store}, {Store{scratch, lane, store.value}}}}});
  Body sums;
  for (ValueId v : body.outputs) {
    const Node* n = body.producer(v);
    if (!sums_parts(*n)) continue;
    const std::string name = "sum" + std::to_string(sums.size());
    const Expr place = Expr::index(name + "_place", Expr(width)), one = Expr::load(scratch, DType::F32, place);
    Reduce sum{Expr::local(name, DType::F32), Combine::Sum, identity_of(Combine::Sum, DType::F32), axes_of({place}),
               n->attrs.as<PartSumsAttrs>().square ? one * one : one};
    Index at = position.at(n->inputs[0]);
    at.back() = part;
    sums.push_back({store_of(values, v, at, sum.result)});
    k.body.push_back({std::move(sum)});
  }
  k.domain = axes_of({out[0], out[2], out[3], part});
  sort_by_stride(k.domain, first_store(sums));
  for (Stmt& s : sums) k.body.push_back(std::move(s));
}

}  // namespace

void lower_windows(GroupValues& values, Kernel& k) {
  const Graph& body = values.body();
  const Node& n = *first_reduction(body);
  const NodeView view(body, n);
  const Index out = fresh_index("i", view->outputs[0].shape);
  if (const Node* behind = reduction_behind(body, n); behind && sums_parts(*behind))
    return lower_channel_parts(values, k, n, out);
  const Index taps = fresh_index("t", n.op->lowers_as<Reduction>()->form(*view).extents);
  Reduce r = reduce_of(values, n, out, taps, "acc");
  const Expr acc = finish_of(values, n, out, r.result);
  if (const Node* reduction = reduction_behind(body, n))
    return lower_lines(values, k, out, std::move(r), acc, *reduction);
  k.domain = axes_of(out);
  k.body.push_back({std::move(r)});
  for (Stmt& s : epilogue_of(values, n.outputs[0], out, acc)) k.body.push_back(std::move(s));
  sort_by_stride(k.domain, first_store(k.body));
}

}  // namespace ingot
