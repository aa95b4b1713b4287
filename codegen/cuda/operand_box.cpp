// Operands of a contraction as TMA reads them: boxes of a tensor of up to three axes.
#include "codegen/cuda/plan_cuda.h"
#include "codegen/text/c_printer.h"
#include "compiler/expr/simplify.h"

namespace ingot {

std::optional<Expr> common_stride(const Expr& index, const std::vector<Axis>& axes) {
  Expr stride = 0, reach = 0;  // of the axes looked at so far: between neighbours, and to the next element after all
  for (auto a = axes.rbegin(); a != axes.rend(); ++a) {
    if (a->extent.is_const(1)) continue;
    const auto c = linear_coefficient(index, a->var.name());
    if (!c) return std::nullopt;
    if (stride.is_const(0)) stride = *c;
    else if (!simplify(*c - reach).is_const(0)) return std::nullopt;
    if (stride.is_const(0)) return std::nullopt;
    reach = simplify(*c * a->extent);
  }
  return simplify(stride);
}

Expr index_without(Expr index, const std::vector<Axis>& axes) {
  Bindings zeros;
  for (const Axis& a : axes) zeros[a.var.name()] = Expr(0);
  return simplify(substitute(index, zeros));
}

std::optional<OperandBox> operand_box(const Kernel& kernel, const Expr& operand, const std::vector<Axis>& side,
                                      DType element) {
  const Contract& c = *kernel.contract();
  const OperandView view = view_of(c, operand);
  const auto access = raw_access(kernel, view.value, element);
  if (!access || access->guard.valid()) return std::nullopt;
  const bool batched = !total_of(c.batch).is_const(1);
  const auto along_k = common_stride(access->index, view.k);
  auto across = common_stride(access->index, side), batch = common_stride(access->index, c.batch);
  OperandBox box;
  std::vector<Axis> rows = side, apart = c.batch;
  if (!across && !batched && !c.group.empty() && side.size() > c.group.size()) {
    // Rows of a group, which come last, have a distance of their own.
    const auto first = side.end() - static_cast<std::ptrdiff_t>(c.group.size());
    apart.assign(side.begin(), first);
    rows.assign(first, side.end());
    across = common_stride(access->index, rows);
    batch = common_stride(access->index, apart);
    box.by_group = true;
  }
  const bool has_third = batched || box.by_group;
  if (!along_k || !across || (has_third && !batch)) return std::nullopt;
  box.buffer = access->buffer;
  box.offset = index_without(index_without(index_without(access->index, c.batch), side), view.k);
  box.along_k = along_k->is_const(1);
  if (!box.along_k && (!across->is_const(1) || box.by_group)) return std::nullopt;
  box.inner = total_of(box.along_k ? view.k : rows);
  box.outer = total_of(box.along_k ? rows : view.k);
  box.batch = total_of(apart);
  box.outer_stride = box.along_k ? *across : *along_k;
  box.batch_stride = has_third ? *batch : Expr(0);
  const int64_t whole = 16 / static_cast<int64_t>(size_of(element));
  for (const Expr* e : {&box.offset, &box.outer_stride, &box.batch_stride})
    if (!is_multiple(*e, whole)) return std::nullopt;
  if (box.outer_stride.is_const(0)) box.outer_stride = whole;
  if (box.batch_stride.is_const(0)) box.batch_stride = whole;
  return box;
}

bool takes_boxes(const Kernel& kernel, DType element) {
  if (kernel.attend()) return attention_rows(kernel, element).has_value();
  const Contract& c = *kernel.contract();
  const TileDetails d = tile_details(kernel, {});
  if (d.out_along_m) return false;
  if (operand_window(kernel, element)) return d.a_along_k && d.b_along_k && window_weights(kernel, element).has_value();
  const auto a = operand_box(kernel, c.a, c.m, element), b = operand_box(kernel, c.b, c.n, element);
  return a && b && a->along_k == d.a_along_k && b->along_k == d.b_along_k;
}

static BoxMap window_map(const OperandWindow& x, int64_t places, DType element) {
  const auto size = static_cast<int64_t>(size_of(element));
  BoxMap map;
  map.buffer = x.buffer;
  map.type = element;
  map.offset = x.offset * size;
  map.extents = {x.present, x.w.extent, x.h.extent, x.images};
  map.strides = {x.w.stride * size, x.h.stride * size, x.image_stride * size};
  map.box = {128 / size, places};
  map.low = {x.w.low, x.h.low};
  map.high = {x.w.high(), x.h.high()};
  map.steps = {x.w.step, x.h.step};
  return map;
}

std::vector<BoxMap> box_maps(const Kernel& kernel, const Schedule& s) {
  if (!s.tile.boxes) return {};
  if (kernel.attend()) return attention_maps(kernel, s);
  const Contract& c = *kernel.contract();
  const DType element = element_of(s.unit);
  const auto size = static_cast<int64_t>(size_of(element));
  const auto plain = [&](const OperandBox& x, int64_t outer, int64_t last) {
    BoxMap map;
    map.buffer = x.buffer;
    map.type = element;
    map.offset = simplify(x.offset * size);
    map.extents = {x.inner, x.outer, x.batch};
    map.strides = {simplify(x.outer_stride * size), simplify(x.batch_stride * size)};
    map.box = {128 / size, outer, last};
    return map;
  };
  const TileDetails d = tile_details(kernel, s);
  if (d.window) return {window_map(*d.window, d.a_rows, element), plain(*window_weights(kernel, element), 1, s.tile.n)};
  const OperandBox a = *operand_box(kernel, c.a, c.m, element), b = *operand_box(kernel, c.b, c.n, element);
  const int64_t rows = a.by_group ? rows_together(c) : d.a_rows;
  return {plain(a, a.along_k ? rows : s.tile.k, a.by_group ? d.a_rows / rows : 1), plain(b, b.along_k ? s.tile.n : s.tile.k, 1)};
}

}  // namespace ingot
