// Operands of a contraction as TMA reads them: boxes of a tensor of up to three axes.
#include "codegen/cuda/plan_cuda.h"
#include "codegen/text/c_printer.h"
#include "compiler/expr/simplify.h"

namespace ingot {

namespace {

/// The axes as one: the distance between neighbours, when it is the same for all; 0 where there is one element only.
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

Expr without(Expr index, const std::vector<Axis>& axes) {
  Bindings zeros;
  for (const Axis& a : axes) zeros[a.var.name()] = Expr(0);
  return simplify(substitute(index, zeros));
}

}  // namespace

std::optional<OperandBox> operand_box(const Kernel& kernel, const Expr& operand, const std::vector<Axis>& side,
                                      DType element) {
  const Contract& c = *kernel.contract();
  const OperandView view = view_of(c, operand);
  const auto access = raw_access(kernel, view.value, element);
  if (!access || access->guard.valid()) return std::nullopt;
  const auto along_k = common_stride(access->index, view.k), across = common_stride(access->index, side),
             batch = common_stride(access->index, c.batch);
  const bool batched = !total_of(c.batch).is_const(1);
  if (!along_k || !across || (batched && !batch)) return std::nullopt;
  OperandBox box;
  box.buffer = access->buffer;
  box.offset = without(without(without(access->index, c.batch), side), view.k);
  box.along_k = along_k->is_const(1);
  if (!box.along_k && !across->is_const(1)) return std::nullopt;
  box.batched = batched;
  box.inner = total_of(box.along_k ? view.k : side);
  box.outer = total_of(box.along_k ? side : view.k);
  box.batch = total_of(c.batch);
  box.outer_stride = box.along_k ? *across : *along_k;
  box.batch_stride = batched ? *batch : Expr(0);
  const int64_t whole = 16 / static_cast<int64_t>(size_of(element));
  for (const Expr* e : {&box.offset, &box.outer_stride, &box.batch_stride})
    if (!is_multiple(*e, whole)) return std::nullopt;
  if (box.outer_stride.is_const(0)) box.outer_stride = whole;
  if (box.batch_stride.is_const(0)) box.batch_stride = whole;
  return box;
}

std::vector<BoxMap> box_maps(const Kernel& kernel, const Schedule& s) {
  if (!s.tile.boxes) return {};
  const Contract& c = *kernel.contract();
  const DType element = element_of(s.unit);
  const auto size = static_cast<int64_t>(size_of(element));
  std::vector<BoxMap> maps;
  const auto add = [&](const Expr& operand, const std::vector<Axis>& side, int rows) {
    const OperandBox x = *operand_box(kernel, operand, side, element);
    BoxMap map;
    map.buffer = x.buffer;
    map.type = element;
    map.offset = simplify(x.offset * size);
    map.extents = {x.inner, x.outer, x.batch};
    map.strides = {simplify(x.outer_stride * size), simplify(x.batch_stride * size)};
    map.box = {128 / size, x.along_k ? rows : s.tile.k, 1};
    maps.push_back(std::move(map));
  };
  add(c.a, c.m, tile_details(kernel, s).a_rows);
  add(c.b, c.n, s.tile.n);
  return maps;
}

}  // namespace ingot
