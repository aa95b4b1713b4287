// Operators that only move elements: index maps. They cost nothing when a neighbour reads or writes through the map.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "compiler/expr/simplify.h"
#include "compiler/ops/layout_ops.h"
#include "compiler/ops/open_axes.h"

namespace ingot {
namespace {

using Types = std::vector<TensorType>;
Types same_dtype(const OpView& v, Shape shape) { return {{v.inputs[0].dtype, std::move(shape)}}; }

// ---- Transpose -----------------------------------------------------------------------------------------------------------
Result<Types> infer_transpose(const OpView& v) {
  Shape out;
  for (int64_t p : v.attrs.as<PermAttrs>().perm) out.push_back(v.inputs[0].shape[static_cast<size_t>(p)]);
  return same_dtype(v, out);
}
Expr transpose_element(const OpView& v, const Index& out) {
  const auto& perm = v.attrs.as<PermAttrs>().perm;
  Index in(out.size());
  for (size_t i = 0; i < out.size(); ++i) in[static_cast<size_t>(perm[i])] = out[i];
  return v.read(0, in);
}
Index transpose_inverse(const OpView& v, const Index& in) {
  Index out;
  for (int64_t p : v.attrs.as<PermAttrs>().perm) out.push_back(in[static_cast<size_t>(p)]);
  return out;
}
Result<Values> import_transpose(ImportContext& c) {
  std::vector<int64_t> reversed(c.rank(0));
  std::iota(reversed.rbegin(), reversed.rend(), 0);
  auto perm = INGOT_TRY(c.node.ints_or("perm", reversed));
  std::vector<int64_t> sorted = perm;
  std::sort(sorted.begin(), sorted.end());
  std::reverse(reversed.begin(), reversed.end());
  if (sorted != reversed) return invalid("perm is not a permutation of the axes");
  return one(build_transpose(c.builder, c.in(0), perm));
}

// ---- Reshape and its relatives -------------------------------------------------------------------------------------------
Result<Types> infer_reshape(const OpView& v) { return same_dtype(v, v.attrs.as<ShapeAttrs>().shape); }
Expr reshape_element(const OpView& v, const Index& out) {
  return v.read(0, delinearize(v.inputs[0].shape, linear_index(v.outputs[0].shape, out)));
}
Index reshape_inverse(const OpView& v, const Index& in) {
  return delinearize(v.outputs[0].shape, linear_index(v.inputs[0].shape, in));
}
/// The output dims where entries are run-time values: 0 copies a dimension, -1 takes what is left of the elements.
Shape run_time_target(const Shape& in, Shape target, const std::vector<size_t>& open, bool allow_zero, int inferred) {
  if (!allow_zero)
    for (size_t i : open)
      if (i < in.size()) target[i] = select(eq(target[i], 0), in[i], target[i]);
  Expr known = 1;  // the product of all others than -1
  for (size_t i = 0; i < target.size(); ++i) {
    if (static_cast<int>(i) == inferred) continue;
    const bool is_open = std::find(open.begin(), open.end(), i) != open.end();
    known = known * (is_open ? select(eq(target[i], -1), 1, target[i]) : target[i]);
  }
  const Expr rest = floor_div(element_count(in), known);
  if (inferred >= 0) target[static_cast<size_t>(inferred)] = rest;
  for (size_t i : open) target[i] = select(eq(target[i], -1), rest, target[i]);
  return target;
}
Result<Values> import_reshape(ImportContext& c) {
  std::vector<Expr> target = INGOT_TRY(c.content(1));
  const bool allow_zero = INGOT_TRY(c.node.int_or("allowzero", 0)) != 0;
  const Shape& in = c.type(0).shape;
  Expr known = 1;
  int inferred = -1;
  std::vector<size_t> open;  // entries of which only the call knows whether they are sizes, 0 or -1
  for (size_t i = 0; i < target.size(); ++i) {
    if (target[i].is_const(0) && !allow_zero) {
      if (i >= in.size()) return invalid(fmt::format("shape[{}] = 0 copies a dimension that the input lacks", i));
      target[i] = in[i];
    }
    if (target[i].is_const(-1)) {
      if (inferred >= 0) return invalid("more than one -1 in the shape");
      inferred = static_cast<int>(i);
      continue;
    }
    if (auto d = target[i].as_int(); d && *d < 0) return invalid(fmt::format("dimension {} in the shape", *d));
    if (bounds_of(target[i]).low < 0) open.push_back(i);
    else known = known * target[i];
  }
  const Expr total = element_count(in);
  if (!open.empty()) return one(build_reshape(c.builder, c.in(0), run_time_target(in, std::move(target), open, allow_zero, inferred)));
  known = simplify(known);
  if (inferred >= 0) {
    if (known.is_const(0)) return invalid("-1 cannot be inferred beside a dimension of 0");
    target[static_cast<size_t>(inferred)] = simplify(floor_div(total, known));
    known = simplify(known * target[static_cast<size_t>(inferred)]);
  }
  if (total.is_const() && known.is_const() && !proves_equal(total, known))
    return invalid(fmt::format("{} elements do not fit into {}", to_string(total), to_string(Shape(target))));
  return one(build_reshape(c.builder, c.in(0), std::move(target)));
}
Result<Values> import_flatten(ImportContext& c) {
  int64_t axis = INGOT_TRY(c.node.int_or("axis", 1));
  const Shape& in = c.type(0).shape;
  const auto rank = static_cast<int64_t>(in.size());
  if (axis < -rank || axis > rank) return invalid("axis is out of range");
  if (axis < 0) axis += rank;
  const Expr rows = element_count(Shape(in.begin(), in.begin() + axis));
  return one(build_reshape(c.builder, c.in(0), {rows, element_count(Shape(in.begin() + axis, in.end()))}));
}
Result<Values> import_squeeze(ImportContext& c) {
  const Shape in = c.type(0).shape;
  if (const auto open = INGOT_TRY(open_axes(c, 1, in.size()))) return one(build_reshape(c.builder, c.in(0), kept_dims(c.builder, *open, in)));
  std::vector<int64_t> ones;
  for (size_t i = 0; i < in.size(); ++i)
    if (in[i].is_const(1)) ones.push_back(static_cast<int64_t>(i));
  const auto axes = INGOT_TRY(c.axes(1, in.size(), ones));
  Shape out;
  for (size_t i = 0; i < in.size(); ++i) {
    const bool drop = std::find(axes.begin(), axes.end(), static_cast<int64_t>(i)) != axes.end();
    if (drop && in[i].is_const() && !in[i].is_const(1))
      return invalid(fmt::format("axis {} has {} elements, not 1", i, to_string(in[i])));
    if (!drop) out.push_back(in[i]);
  }
  return one(build_reshape(c.builder, c.in(0), out));
}
Result<Values> import_unsqueeze(ImportContext& c) {
  if (c.has(1)) {
    const size_t added = INGOT_TRY(c.content(1)).size();
    if (const auto open = INGOT_TRY(open_axes(c, 1, c.rank(0) + added)))
      return one(build_reshape(c.builder, c.in(0), spread_dims(c.builder, *open, c.type(0).shape)));
  }
  const auto raw = c.has(1) ? INGOT_TRY(c.ints(1)) : INGOT_TRY(c.node.ints_or("axes", {}));
  const size_t rank = c.rank(0) + raw.size();
  Shape out(rank);
  for (int64_t a : raw) {
    Expr& d = out[static_cast<size_t>(INGOT_TRY(wrap_axis(a, rank)))];
    if (d.valid()) return invalid("axes repeat");
    d = 1;
  }
  size_t next = 0;
  for (Expr& d : out)
    if (!d.valid()) d = c.type(0).shape[next++];
  return one(build_reshape(c.builder, c.in(0), out));
}

// ---- Expand, Tile --------------------------------------------------------------------------------------------------------
Expr expand_element(const OpView& v, const Index& out) { return v.read(0, broadcast_index(v.inputs[0].shape, out)); }
Result<Values> import_expand(ImportContext& c) {
  Shape shape = INGOT_TRY(broadcast(c.type(0).shape, INGOT_TRY(c.content(1))));
  if (same_shape(shape, c.type(0).shape)) return Values{c.in(0)};
  return one(c.builder.add(op("Expand"), ShapeAttrs{shape}, {c.in(0)}));
}
Result<Types> infer_tile(const OpView& v) {
  Shape out = v.inputs[0].shape;
  const auto& repeats = v.attrs.as<ShapeAttrs>().shape;
  for (size_t i = 0; i < out.size(); ++i) out[i] = out[i] * repeats[i];
  return same_dtype(v, out);
}
Expr tile_element(const OpView& v, const Index& out) {
  Index in = out;
  for (size_t i = 0; i < in.size(); ++i) in[i] = floor_mod(in[i], v.inputs[0].shape[i]);
  return v.read(0, in);
}
Result<Values> import_tile(ImportContext& c) {
  auto repeats = INGOT_TRY(c.content(1));
  if (repeats.size() != c.rank(0)) return invalid("repeats needs one entry a dimension");
  return one(c.builder.add(op("Tile"), ShapeAttrs{repeats}, {c.in(0)}));
}

// ---- Slice, Split --------------------------------------------------------------------------------------------------------
Result<Types> infer_slice(const OpView& v) { return same_dtype(v, v.attrs.as<SliceAttrs>().sizes); }
Expr slice_element(const OpView& v, const Index& out) {
  const auto& a = v.attrs.as<SliceAttrs>();
  Index in;
  for (size_t i = 0; i < out.size(); ++i) in.push_back(a.starts[i] + out[i] * a.steps[i]);
  return v.read(0, in);
}
SliceAttrs whole(const Shape& shape) {
  SliceAttrs a{std::vector<Expr>(shape.size(), 0), std::vector<Expr>(shape.size(), 1), shape};
  return a;
}
/// A bound of Slice: negative counts from the end, then clamped into [low, high].
Expr slice_bound(const Expr& bound, const Expr& dim, const Expr& low, const Expr& high) {
  if (auto b = bound.as_int()) {
    if (*b >= INT32_MAX) return high;
    if (*b <= -static_cast<int64_t>(INT32_MAX)) return low;
    return simplify(max(low, min(high, *b < 0 ? bound + dim : bound)));
  }
  const Expr near = max(Expr(-1) - dim, min(bound, dim));  // "to the end" is often the largest number there is
  return simplify(max(low, min(high, select(lt(near, 0), near + dim, near))));
}
struct SliceRange {
  Expr start, length;
};
SliceRange slice_range(const Expr& start, const Expr& end, const Expr& step, const Expr& dim, bool forward) {
  const Expr high = forward ? dim : dim - 1, low = forward ? Expr(0) : Expr(-1);
  Expr from = slice_bound(start, dim, 0, high);
  if (!forward) from = simplify(min(from, dim - 1));
  const Expr to = slice_bound(end, dim, low, dim);
  return {from, simplify(max(forward ? ceil_div(to - from, step) : ceil_div(from - to, Expr(0) - step), 0))};
}
/// Dimension d is cut; a step that only the call knows may go either way.
void set_slice(SliceAttrs& a, size_t d, const Expr& start, const Expr& end, const Expr& step, const Expr& dim) {
  const Expr s = cast(DType::I64, step), forward = simplify(lt(0, s));
  const SliceRange up = slice_range(start, end, s, dim, true), down = slice_range(start, end, s, dim, false);
  a.steps[d] = s;
  a.starts[d] = simplify(select(forward, up.start, down.start));
  a.sizes[d] = simplify(select(forward, up.length, down.length));
}
/// Every dimension is cut, by the entries that name it or not at all.
SliceAttrs open_slice(GraphBuilder& b, const Shape& in, const OpenAxes& axes, const std::vector<Expr>& starts, const std::vector<Expr>& ends,
                      const std::vector<Expr>& steps) {
  SliceAttrs a = whole(in);
  for (size_t d = 0; d < in.size(); ++d) {
    set_slice(a, d, entry_of(axes, starts, d, 0), entry_of(axes, ends, d, in[d]), entry_of(axes, steps, d, 1), in[d]);
    for (Expr* e : {&a.starts[d], &a.steps[d], &a.sizes[d]}) *e = b.named(*e);
  }
  return a;
}
Result<Values> import_slice(ImportContext& c) {
  const bool as_inputs = c.has(1);
  auto list = [&](size_t i, const char* name) -> Result<std::vector<Expr>> {
    std::vector<Expr> out;
    if (as_inputs)
      for (const Expr& e : INGOT_TRY(c.content(i))) out.push_back(cast(DType::I64, e));
    if (as_inputs) return out;
    for (int64_t x : INGOT_TRY(c.node.ints_or(name, {}))) out.emplace_back(x);
    return out;
  };
  const auto starts = INGOT_TRY(list(1, "starts")), ends = INGOT_TRY(list(2, "ends"));
  const auto steps = c.has(4) ? INGOT_TRY(c.content(4)) : std::vector<Expr>(starts.size(), 1);
  for (const Expr& s : steps)
    if (s.is_const(0)) return invalid("step 0");
  const Shape in = c.type(0).shape;
  const auto open = INGOT_TRY(open_axes(c, 3, in.size()));
  std::vector<int64_t> axes(starts.size());
  std::iota(axes.begin(), axes.end(), 0);
  if (!open && (c.has(3) || !as_inputs)) axes = INGOT_TRY(c.axes(3, in.size(), axes));
  const size_t count = open ? open->count() : axes.size();
  if (ends.size() != starts.size() || count != starts.size() || steps.size() != starts.size() || count > in.size())
    return invalid("starts, ends, axes and steps differ in length");
  if (open) return one(c.builder.add(op("Slice"), open_slice(c.builder, in, *open, starts, ends, steps), {c.in(0)}));
  SliceAttrs a = whole(in);
  for (size_t i = 0; i < axes.size(); ++i) {
    const auto d = static_cast<size_t>(axes[i]);
    set_slice(a, d, starts[i], ends[i], steps[i], in[d]);
  }
  return one(c.builder.add(op("Slice"), a, {c.in(0)}));
}
Result<Values> import_split(ImportContext& c) {
  const auto axis = static_cast<size_t>(INGOT_TRY(wrap_axis(INGOT_TRY(c.node.int_or("axis", 0)), c.rank(0))));
  const Expr dim = c.type(0).shape[axis];
  std::vector<Expr> sizes;
  if (c.has(1)) {
    sizes = INGOT_TRY(c.content(1));
  } else if (c.node.has("split")) {
    for (int64_t s : INGOT_TRY(c.node.ints_or("split", {}))) sizes.emplace_back(s);
  } else {
    const auto n = static_cast<int64_t>(c.node.outputs.size());
    const Expr chunk = simplify(ceil_div(dim, n));
    for (int64_t i = 0; i + 1 < n; ++i) sizes.push_back(chunk);
    sizes.push_back(simplify(dim - chunk * (n - 1)));
  }
  Expr start = 0;
  Values out;
  for (const Expr& size : sizes) {
    SliceAttrs a = whole(c.type(0).shape);
    a.starts[axis] = simplify(start);
    a.sizes[axis] = size;
    out.push_back(INGOT_TRY(c.builder.add(op("Slice"), a, {c.in(0)})));
    start = start + size;
  }
  start = simplify(start);
  if (start.is_const() && dim.is_const() && !start.same(dim))
    return invalid(fmt::format("the parts add up to {}, the axis has {}", to_string(start), to_string(dim)));
  if (out.size() < c.node.outputs.size()) return invalid("fewer parts than outputs");
  return out;
}

// ---- Concat, Pad ---------------------------------------------------------------------------------------------------------
Result<Types> infer_concat(const OpView& v) {
  TensorType out = v.inputs[0];
  const auto axis = static_cast<size_t>(v.attrs.as<AxisAttrs>().axis);
  for (size_t i = 1; i < v.inputs.size(); ++i) {
    const TensorType& t = v.inputs[i];
    if (t.dtype != out.dtype || t.rank() != out.rank()) return invalid("inputs differ in type or rank");
    for (size_t d = 0; d < t.rank(); ++d) {
      if (d == axis) continue;
      if (t.shape[d].is_const() && out.shape[d].is_const() && !t.shape[d].same(out.shape[d]))
        return invalid(fmt::format("dimension {} differs: {} and {}", d, to_string(out.shape[d]), to_string(t.shape[d])));
      if (t.shape[d].is_const()) out.shape[d] = t.shape[d];
    }
    out.shape[axis] = out.shape[axis] + t.shape[axis];
  }
  return Types{out};
}
Expr concat_element(const OpView& v, const Index& out) {
  const auto axis = static_cast<size_t>(v.attrs.as<AxisAttrs>().axis);
  std::vector<Expr> offsets{0};
  for (const TensorType& t : v.inputs) offsets.push_back(simplify(offsets.back() + t.shape[axis]));
  Expr result;
  for (size_t i = v.inputs.size(); i-- > 0;) {
    if (v.inputs[i].shape[axis].is_const(0)) continue;
    Index in = out;
    in[axis] = out[axis] - offsets[i];
    const Expr e = v.read(i, in);
    result = result.valid() ? select(lt(out[axis], offsets[i + 1]), e, result) : e;
  }
  return result.valid() ? result : Expr::number(v.inputs[0].dtype, 0);
}
Result<Values> import_concat(ImportContext& c) {
  const int64_t axis = INGOT_TRY(wrap_axis(INGOT_TRY(c.node.int_or("axis", 1)), c.rank(0)));
  if (c.inputs.size() == 1) return Values{c.in(0)};
  return one(c.builder.add(op("Concat"), AxisAttrs{axis}, c.inputs));
}

Result<Types> infer_pad(const OpView& v) {
  const auto& a = v.attrs.as<PadAttrs>();
  Shape out = v.inputs[0].shape;
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = simplify(out[i] + a.begins[i] + a.ends[i]);
    if (auto d = out[i].as_int(); d && *d < 0) return invalid("padding makes a dimension negative");
  }
  return same_dtype(v, out);
}
Expr pad_element(const OpView& v, const Index& out) {
  const auto& a = v.attrs.as<PadAttrs>();
  Index in;
  Expr inside = Expr::boolean(true);
  for (size_t i = 0; i < out.size(); ++i) {
    const Expr dim = v.inputs[0].shape[i];
    Expr x = out[i] - a.begins[i];
    if (a.begins[i].is_const(0) && a.ends[i].is_const(0)) { in.push_back(x); continue; }
    if (a.mode == "edge") x = max(0, min(x, dim - 1));
    if (a.mode == "wrap") x = floor_mod(x, dim);
    if (a.mode == "reflect") {  // period 2*(dim-1)
      const Expr period = max(1, (dim - 1) * 2), y = floor_mod(x, period);
      x = min(y, period - y);
      x = min(x, dim - 1);
    }
    if (a.mode == "constant") inside = logical_and(inside, logical_and(le(0, x), lt(x, dim)));
    in.push_back(x);
  }
  const Expr fill = v.has(1) ? v.read(1, Index(v.inputs[1].rank(), Expr(0))) : Expr::number(v.inputs[0].dtype, 0);
  return a.mode == "constant" ? select(inside, v.read(0, in), fill) : v.read(0, in);
}
Result<Values> import_pad(ImportContext& c) {
  PadAttrs a;
  a.mode = INGOT_TRY(c.node.string_or("mode", "constant"));
  std::vector<Expr> pads;
  if (c.has(1)) pads = INGOT_TRY(c.content(1));
  else for (int64_t p : INGOT_TRY(c.node.ints_or("pads", {}))) pads.emplace_back(p);
  const size_t rank = c.rank(0);
  const auto open = INGOT_TRY(open_axes(c, 3, rank));
  std::vector<int64_t> axes(rank);
  std::iota(axes.begin(), axes.end(), 0);
  if (!open && c.has(3)) axes = INGOT_TRY(c.axes(3, rank, axes));
  const size_t count = open ? open->count() : axes.size();
  if (pads.size() != 2 * count) return invalid(fmt::format("{} pads for {} axes", pads.size(), count));
  const std::vector<Expr> begins(pads.begin(), pads.begin() + static_cast<std::ptrdiff_t>(count)), ends(pads.begin() + static_cast<std::ptrdiff_t>(count), pads.end());
  a.begins.assign(rank, 0);
  a.ends.assign(rank, 0);
  for (size_t d = 0; open && d < rank; ++d) {
    a.begins[d] = c.builder.named(entry_of(*open, begins, d, 0));
    a.ends[d] = c.builder.named(entry_of(*open, ends, d, 0));
  }
  for (size_t i = 0; !open && i < axes.size(); ++i) {
    a.begins[static_cast<size_t>(axes[i])] = begins[i];
    a.ends[static_cast<size_t>(axes[i])] = ends[i];
  }
  Values in{c.in(0)};
  if (c.has(2)) in.push_back(c.in(2));
  else if (c.node.has("value")) in.push_back(c.builder.scalar(c.type(0).dtype, INGOT_TRY(c.node.float_or("value", 0))));
  return one(c.builder.add(op("Pad"), a, in));
}

// ---- for passes ----------------------------------------------------------------------------------------------------------
Result<Types> infer_unfold(const OpView& v) {
  const auto& a = v.attrs.as<UnfoldAttrs>();
  const Shape& in = v.inputs[0].shape;
  if (in.size() != 4) return invalid("needs [N,H,W,C]");
  return same_dtype(v, Shape{in[0], simplify(in[3] * a.taps), in[1], a.count});
}
Expr unfold_element(const OpView& v, const Index& out) {
  const auto& a = v.attrs.as<UnfoldAttrs>();
  const Expr& channels = v.inputs[0].shape[3];
  const Expr x = v.read(0, {out[0], out[2], out[3] * a.stride + floor_div(out[1], channels), floor_mod(out[1], channels)});
  return a.used < a.taps ? select(lt(out[1], simplify(channels * a.used)), x, zero_of(x)) : x;
}
Expr roll_element(const OpView& v, const Index& out) {
  const auto& a = v.attrs.as<RollAttrs>();
  const auto axis = static_cast<size_t>(a.axis);
  Index in = out;
  in[axis] = floor_mod(out[axis] + a.shift, v.inputs[0].shape[axis]);
  return v.read(0, in);
}
Index roll_inverse(const OpView& v, const Index& in) {
  const auto& a = v.attrs.as<RollAttrs>();
  const auto axis = static_cast<size_t>(a.axis);
  Index out = in;
  out[axis] = floor_mod(in[axis] + v.inputs[0].shape[axis] - a.shift, v.inputs[0].shape[axis]);
  return out;
}
Result<Types> infer_contiguous(const OpView& v) { return same_dtype(v, v.inputs[0].shape); }
Expr contiguous_scalar(const OpView&, std::span<const Expr> args) { return args[0]; }

// ---- depth and space -----------------------------------------------------------------------------------------------------
Result<Values> import_depth_to_space(ImportContext& c) {
  const int64_t b = INGOT_TRY(c.node.int_or("blocksize", 1));
  const bool dcr = INGOT_TRY(c.node.string_or("mode", "DCR")) == "DCR";
  const Shape s = c.type(0).shape;
  if (s.size() != 4 || b <= 0) return invalid("needs rank 4 and a positive blocksize");
  const Expr depth = simplify(floor_div(s[1], b * b));
  const Shape split = dcr ? Shape{s[0], b, b, depth, s[2], s[3]} : Shape{s[0], depth, b, b, s[2], s[3]};
  ValueId x = INGOT_TRY(build_reshape(c.builder, c.in(0), split));
  x = INGOT_TRY(build_transpose(c.builder, x, dcr ? std::vector<int64_t>{0, 3, 4, 1, 5, 2} : std::vector<int64_t>{0, 1, 4, 2, 5, 3}));
  return one(build_reshape(c.builder, x, {s[0], depth, s[2] * b, s[3] * b}));
}
Result<Values> import_space_to_depth(ImportContext& c) {
  const int64_t b = INGOT_TRY(c.node.int_or("blocksize", 1));
  const Shape s = c.type(0).shape;
  if (s.size() != 4 || b <= 0) return invalid("needs rank 4 and a positive blocksize");
  const Expr h = simplify(floor_div(s[2], b)), w = simplify(floor_div(s[3], b));
  ValueId x = INGOT_TRY(build_reshape(c.builder, c.in(0), {s[0], s[1], h, b, w, b}));
  x = INGOT_TRY(build_transpose(c.builder, x, {0, 3, 5, 1, 2, 4}));
  return one(build_reshape(c.builder, x, {s[0], s[1] * (b * b), h, w}));
}

template <class Attrs>
constexpr OpDef row(std::string_view name, std::string_view doc, std::span<const ImportRule> imports, InferFn infer, Lowering lower, int max_inputs = 1, int min_inputs = 1) {
  OpDef d;
  d.name = name, d.doc = doc, d.imports = imports, d.infer = infer, d.lower = lower;
  d.max_inputs = max_inputs, d.min_inputs = min_inputs;
  d.parse_attrs = parse_attrs<Attrs>;
  return d;
}
constexpr OpDef alias(std::string_view name, std::string_view doc, std::span<const ImportRule> imports, int max_inputs = 1) {
  OpDef d;
  d.name = name, d.doc = doc, d.imports = imports, d.max_inputs = max_inputs;
  return d;
}

/// A copy that fusion does not take apart: what reads it reads memory in order.
constexpr OpDef copy_row(std::string_view name, std::string_view doc) {
  OpDef d;
  d.name = name;
  d.doc = doc;
  d.infer = infer_contiguous;
  d.lower = Pointwise{contiguous_scalar};
  return d;
}

const OpDef kMovement[] = {
    row<PermAttrs>("Transpose", "", kRules<import_transpose, 1, 13, 21, 23>, infer_transpose, Movement{transpose_element, transpose_inverse}),
    row<ShapeAttrs>("Reshape", "the shape is an attribute after import", kRules<import_reshape, 5, 13, 14, 19, 21, 23>, infer_reshape, Movement{reshape_element, reshape_inverse}, 2),
    alias("Flatten", "Reshape", kRules<import_flatten, 1, 9, 11, 13, 21, 23>),
    alias("Squeeze", "Reshape", kRules<import_squeeze, 1, 11, 13, 21, 23>, 2),
    alias("Unsqueeze", "Reshape", kRules<import_unsqueeze, 1, 11, 13, 21, 23>, 2),
    row<ShapeAttrs>("Expand", "", kRules<import_expand, 8, 13>, infer_reshape, Movement{expand_element}, 2),
    row<ShapeAttrs>("Tile", "", kRules<import_tile, 6, 13>, infer_tile, Movement{tile_element}, 2),
    row<SliceAttrs>("Slice", "", kRules<import_slice, 1, 10, 11, 13>, infer_slice, Movement{slice_element}, 5),
    alias("Split", "one Slice a part", kRules<import_split, 2, 11, 13, 18>, 2),
    row<AxisAttrs>("Concat", "", kRules<import_concat, 4, 11, 13>, infer_concat, Movement{concat_element}, 1 << 20),
    row<PadAttrs>("Pad", "constant, edge, reflect, wrap; negative pads crop", kRules<import_pad, 2, 11, 13, 18, 19, 21, 23>, infer_pad, Movement{pad_element}, 4),
    row<UnfoldAttrs>("Unfold", "windows of neighbouring columns as channels; internal", {}, infer_unfold, Movement{unfold_element}),
    row<RollAttrs>("Roll", "along one axis, around its end; internal", {}, infer_contiguous, Movement{roll_element, roll_inverse}),
    copy_row("Contiguous", "a copy in the order of its shape; internal"),
    copy_row("ChannelsLast", "a copy that is stored with its second dimension last; internal"),
    alias("DepthToSpace", "Reshape, Transpose, Reshape", kRules<import_depth_to_space, 1, 11, 13>),
    alias("SpaceToDepth", "Reshape, Transpose, Reshape", kRules<import_space_to_depth, 1, 13>),
};

}  // namespace

Result<ValueId> build_slice(GraphBuilder& b, ValueId x, size_t axis, Expr start, Expr size, int64_t step) {
  SliceAttrs a = whole(b.shape(x));
  a.starts[axis] = simplify(start);
  a.steps[axis] = step;
  a.sizes[axis] = simplify(size);
  return b.add(op("Slice"), a, {x});
}
Result<ValueId> build_concat(GraphBuilder& b, std::vector<ValueId> parts, size_t axis) {
  if (parts.size() == 1) return parts[0];
  return b.add(op("Concat"), AxisAttrs{static_cast<int64_t>(axis)}, std::move(parts));
}

Result<ValueId> build_pad(GraphBuilder& b, ValueId x, std::vector<Expr> begins, std::vector<Expr> ends) {
  for (auto* list : {&begins, &ends})
    for (Expr& e : *list) e = b.named(e);
  return b.add(op("Pad"), PadAttrs{std::move(begins), std::move(ends)}, {x});
}

std::span<const OpDef> movement_ops() { return kMovement; }

}  // namespace ingot
