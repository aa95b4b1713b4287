// Slice, Split, Concat, Pad: operators that take a part of a tensor or join parts. Index maps, as those of movement.cpp.
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
  const auto middle = pads.begin() + static_cast<std::ptrdiff_t>(count);
  const std::vector<Expr> begins(pads.begin(), middle), ends(middle, pads.end());
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

const OpDef kParts[] = {
    lowered_row<SliceAttrs>("Slice", "", kRules<import_slice, 1, 10, 11, 13>, infer_slice, Movement{slice_element}, 1, 5),
    import_row("Split", "one Slice a part", kRules<import_split, 2, 11, 13, 18>, 1, 2),
    lowered_row<AxisAttrs>("Concat", "", kRules<import_concat, 4, 11, 13>, infer_concat, Movement{concat_element}, 1, 1 << 20),
    lowered_row<PadAttrs>("Pad", "constant, edge, reflect, wrap; negative pads crop", kRules<import_pad, 2, 11, 13, 18, 19, 21, 23>, infer_pad,
                          Movement{pad_element}, 1, 4),
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

std::span<const OpDef> parts_ops() { return kParts; }

}  // namespace ingot
