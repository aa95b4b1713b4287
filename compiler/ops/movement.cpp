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
    row<UnfoldAttrs>("Unfold", "windows of neighbouring columns as channels; internal", {}, infer_unfold, Movement{unfold_element}),
    row<RollAttrs>("Roll", "along one axis, around its end; internal", {}, infer_contiguous, Movement{roll_element, roll_inverse}),
    copy_row("Contiguous", "a copy in the order of its shape; internal"),
    copy_row("ChannelsLast", "a copy that is stored with its second dimension last; internal"),
    alias("DepthToSpace", "Reshape, Transpose, Reshape", kRules<import_depth_to_space, 1, 11, 13>),
    alias("SpaceToDepth", "Reshape, Transpose, Reshape", kRules<import_space_to_depth, 1, 13>),
};

}  // namespace

std::span<const OpDef> movement_ops() { return kMovement; }

}  // namespace ingot
