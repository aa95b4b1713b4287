// Attention whose operands arrive as boxes (prelude/attention_boxes.cuh): which operands can, and their tensor maps.
#include "codegen/cuda/plan_cuda.h"
#include "codegen/text/c_printer.h"
#include "compiler/expr/simplify.h"

namespace ingot {

namespace {

/// A map of rows, and behind them of every place where a batch index may start: 16 bytes apart.
BoxMap map_of(const Kernel& kernel, const OperandRows& x, DType element, bool exact, int64_t rows) {
  const auto size = static_cast<int64_t>(size_of(element));
  const Expr count = product(kernel.buffers[static_cast<size_t>(x.buffer)].shape);
  const Expr reach = (x.rows - 1) * x.row_stride + x.columns;
  BoxMap map;
  map.buffer = x.buffer;
  map.type = exact ? DType::I32 : element;  // f32 is rounded to tf32 on its way
  map.offset = Expr(0);
  map.extents = {x.columns, x.rows, simplify(max(floor_div(count - reach, Expr(16 / size)), Expr(0)) + 1)};
  map.strides = {simplify(x.row_stride * size), Expr(16)};
  map.box = {128 / size, rows, 1};
  return map;
}

}  // namespace

std::optional<OperandRows> operand_rows(const Kernel& kernel, const Expr& value, const std::vector<Axis>& rows,
                                        const std::vector<Axis>& columns, DType element) {
  const auto access = raw_access(kernel, value, element);
  if (!access || access->guard.valid()) return std::nullopt;
  const auto along = common_stride(access->index, columns), across = common_stride(access->index, rows);
  const bool single = total_of(columns).is_const(1);
  if (!across || (!single && (!along || !along->is_const(1)))) return std::nullopt;
  OperandRows x;
  x.buffer = access->buffer;
  x.start = index_without(index_without(access->index, rows), columns);
  x.rows = total_of(rows);
  x.columns = total_of(columns);
  x.row_stride = *across;
  const int64_t whole = 16 / static_cast<int64_t>(size_of(element));
  if (!is_multiple(x.start, whole) || !is_multiple(x.row_stride, whole)) return std::nullopt;
  if (x.row_stride.is_const(0)) x.row_stride = whole;
  return x;
}

std::optional<AttentionRows> attention_rows(const Kernel& kernel, DType element) {
  const Attend& t = *kernel.attend();
  const auto q = operand_rows(kernel, t.q, t.m, t.k, element), key = operand_rows(kernel, t.key, t.n, t.k, element),
             value = operand_rows(kernel, t.value, t.n, t.d, element);
  if (!q || !key || !value) return std::nullopt;
  return AttentionRows{*q, *key, *value};
}

std::optional<KeyRows> key_rows(const Kernel& kernel, DType element) {
  const Attend& t = *kernel.attend();
  if (size_of(element) != 2) return std::nullopt;  // as mma.sync reads them from permuted rows
  const auto key = operand_rows(kernel, t.key, t.n, t.k, element), value = operand_rows(kernel, t.value, t.n, t.d, element);
  if (!key || !value) return std::nullopt;
  return KeyRows{*key, *value};
}

std::vector<BoxMap> attention_maps(const Kernel& kernel, const Schedule& s) {
  const DType element = element_of(s.unit);
  if (shares_keys(s)) {
    const KeyRows rows = *key_rows(kernel, element);
    return {map_of(kernel, rows.key, element, false, s.tile.n), map_of(kernel, rows.value, element, false, s.tile.n)};
  }
  const AttentionRows rows = *attention_rows(kernel, element);
  const bool exact = s.unit == MultiplyUnit::Tf32x3;
  return {map_of(kernel, rows.q, element, exact, s.tile.m), map_of(kernel, rows.key, element, exact, s.tile.n),
          map_of(kernel, rows.value, element, exact, s.tile.n)};
}

}  // namespace ingot
