// Operands of a contraction as TMA reads them: boxes of a tensor of up to three axes.
#include "codegen/cuda/mma_cost.h"
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

static bool is_whole(const OperandBox& box, DType element) {
  const int64_t whole = 16 / static_cast<int64_t>(size_of(element));
  return is_multiple(box.offset, whole) && is_multiple(box.outer_stride, whole) && is_multiple(box.batch_stride, whole);
}

std::optional<OperandBox> box_of(int buffer, const Expr& index, const std::vector<Axis>& inner, const std::vector<Axis>& outer,
                                 const std::vector<Axis>& batch, DType element) {
  const auto along = common_stride(index, inner), across = common_stride(index, outer), apart = common_stride(index, batch);
  if (!along || !along->is_const(1) || !across || !apart) return std::nullopt;
  OperandBox box;
  box.buffer = buffer;
  box.offset = index_without(index_without(index_without(index, batch), outer), inner);
  box.inner = total_of(inner);
  box.outer = total_of(outer);
  box.batch = total_of(batch);
  box.outer_stride = *across;
  box.batch_stride = *apart;
  return is_whole(box, element) ? std::optional(box) : std::nullopt;
}

std::optional<OperandBox> operand_box(const Kernel& kernel, const Expr& operand, const std::vector<Axis>& side,
                                      DType element) {
  const Contract& c = *kernel.contract();
  const OperandView view = view_of(c, operand);
  const auto access = raw_access(kernel, view.value, element);
  if (!access || access->guard.valid()) return std::nullopt;
  if (auto rows = box_of(access->buffer, access->index, view.k, side, c.batch, element)) return rows;
  if (!c.group.empty() && side.size() > c.group.size() && total_of(c.batch).is_const(1)) {
    // Rows of a group, which come last, have a distance of their own.
    const auto first = side.end() - static_cast<std::ptrdiff_t>(c.group.size());
    const std::vector<Axis> groups(side.begin(), first), rows(first, side.end());
    auto box = box_of(access->buffer, access->index, view.k, rows, groups, element);
    if (box) box->by_group = true;
    if (box) return box;
  }
  auto columns = box_of(access->buffer, access->index, side, view.k, c.batch, element);
  if (columns) columns->along_k = false;
  return columns;
}

std::optional<ArrivingRows> arriving_rows(const Kernel& kernel, DType element) {
  const Contract& c = *kernel.contract();
  std::optional<ArrivingRows> rows;
  visit(c.a, [&](const Expr& x) {
    if (x.op() != ExprOp::Load || rows || !raw_access(kernel, x, element)) return;
    const auto box = box_of(x.buffer(), x.arg(0), c.k, c.m, c.batch, element);
    if (box && !box->outer_stride.is_const(0)) rows = ArrivingRows{*box, x, !c.a.same(x)};
  });
  return rows;
}

/// Rows that are changed on their way to the tensor cores, through registers: of 16 bits, and not in groups.
static std::optional<ArrivingRows> changed_rows(const Kernel& kernel, DType element) {
  const Contract& c = *kernel.contract();
  if (size_of(element) != 2 || !c.group.empty() || raw_access(kernel, view_of(c, c.a).value, element)) return std::nullopt;
  const auto rows = arriving_rows(kernel, element);
  return rows && rows->prologue ? rows : std::nullopt;
}

/// How A arrives, and the load whose values a functor then changes (invalid: none).
static std::optional<ArrivingRows> arriving_a(const Kernel& kernel, DType element) {
  const Contract& c = *kernel.contract();
  if (const auto box = operand_box(kernel, c.a, c.m, element)) return ArrivingRows{*box, Expr(), false};
  return changed_rows(kernel, element);
}

Expr load_to_change(const Kernel& kernel, DType element) {
  const auto a = arriving_a(kernel, element);
  return a && a->prologue ? a->load : Expr();
}

bool takes_boxes(const Kernel& kernel, DType element) {
  if (kernel.attend()) return attention_rows(kernel, element).has_value();
  const Contract& c = *kernel.contract();
  const TileDetails d = tile_details(kernel, {});
  if (d.out_along_m) return false;
  if (operand_window(kernel, element)) return d.a_along_k && d.b_along_k && window_weights(kernel, element).has_value();
  const auto a = arriving_a(kernel, element);
  const auto b = operand_box(kernel, c.b, c.n, element);
  const bool turns = size_of(element) == 2;  // wgmma transposes 16-bit operands only
  return a && b && a->box.along_k == d.a_along_k && b->along_k == d.b_along_k && (turns || (a->box.along_k && b->along_k));
}

static BoxMap window_map(const OperandWindow& x, int64_t channels, int64_t places, DType element) {
  const auto size = static_cast<int64_t>(size_of(element));
  BoxMap map;
  map.buffer = x.buffer;
  map.type = element;
  map.offset = x.offset * size;
  map.extents = {x.present, x.w.extent, x.h.extent, x.images};
  map.strides = {x.w.stride * size, x.h.stride * size, x.image_stride * size};
  map.box = {channels, places};
  map.low = {x.w.low, x.h.low};
  map.high = {x.w.high(), x.h.high()};
  map.steps = {x.w.step, x.h.step};
  return map;
}

static BoxMap plain_map(const OperandBox& x, DType type, int64_t inner, int64_t outer, int64_t last) {
  const auto size = static_cast<int64_t>(size_of(type)), whole = 16 / size;
  const auto stride = [&](const Expr& e) { return simplify((e.is_const(0) ? Expr(whole) : e) * size); };
  BoxMap map;
  map.buffer = x.buffer;
  map.type = type;
  map.offset = simplify(x.offset * size);
  map.extents = {x.inner, x.outer, x.batch};
  map.strides = {stride(x.outer_stride), stride(x.batch_stride)};
  map.box = {inner, outer, last};
  return map;
}

/// TMA moves bytes, whatever they mean.
static DType map_type(DType type) { return size_of(type) == 1 ? DType::I8 : type; }

static std::vector<BoxMap> operand_maps(const Kernel& kernel, const Schedule& s, const TileDetails& d) {
  const Contract& c = *kernel.contract();
  const DType element = element_of(s.unit),
              map = s.tile.split ? DType::I32 : map_type(element);  // not rounded on their way
  const int64_t row = 128 / static_cast<int64_t>(size_of(element)), step = s.tile.k;
  if (d.window)
    return {window_map(*d.window, step, d.a_rows, map),
            plain_map(*window_weights(kernel, element), map, step, 1, s.tile.n)};
  const OperandBox a = arriving_a(kernel, element)->box, b = *operand_box(kernel, c.b, c.n, element);
  const int64_t rows = a.by_group ? rows_together(c) : d.a_rows;
  BoxMap of_a =
      plain_map(a, map, a.along_k ? step : row, a.along_k ? rows : step, a.by_group ? d.a_rows / rows : 1);
  if (a.along_k) of_a.clipped = a.by_group ? 2 : 1;
  return {of_a, plain_map(b, map, b.along_k ? step : row, b.along_k ? s.tile.n : step, 1)};
}

/// Of the results, and of what comes into their place.
static void add_result_maps(const Kernel& kernel, const StagedResults& staged, std::vector<BoxMap>& maps) {
  const auto add = [&](const OperandBox& box) {
    const DType type = kernel.buffers[static_cast<size_t>(box.buffer)].type;
    const DType map = type == DType::F32 ? DType::I32 : map_type(type);  // not rounded on their way
    maps.push_back(plain_map(box, map, staged_columns(staged.size), 16, 1));
  };
  add(staged.out);
  if (staged.load.valid()) add(staged.in);
}

std::vector<BoxMap> box_maps(const Kernel& kernel, const Schedule& s) {
  if (!s.tile.boxes) return {};
  if (s.tile.row_teams > 0) {
    const DType element = element_of(s.unit);
    const ProductOfRows rows = *product_of_rows(kernel, element);
    std::vector<BoxMap> maps{plain_map(rows.b, element, 128 / static_cast<int64_t>(size_of(element)), s.tile.n, 1)};
    if (rows.boxed()) add_result_maps(kernel, rows.results, maps);
    return maps;
  }
  if (kernel.attend()) return attention_maps(kernel, s);
  const TileDetails d = tile_details(kernel, s);
  std::vector<BoxMap> maps = operand_maps(kernel, s, d);
  if (d.staged) add_result_maps(kernel, *d.staged, maps);
  return maps;
}

}  // namespace ingot
