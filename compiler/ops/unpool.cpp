// MaxUnpool, Col2Im and LRN: windows read backwards, or over channels.
#include <fmt/format.h>

#include <cmath>

#include "compiler/expr/simplify.h"
#include "compiler/ops/compose.h"
#include "compiler/ops/layout_ops.h"

namespace ingot {
namespace {

using Types = std::vector<TensorType>;

// ---- MaxUnpool -----------------------------------------------------------------------------------------------------------
// UnpoolSource: 1 + the position (in the plane) of the last element that goes to each place, 0 for none. Inputs: indices.
Result<Types> infer_source(const OpView& v) { return Types{{DType::I64, v.attrs.as<ShapeAttrs>().shape}}; }
Shape plane_of(const OpView& v) { return Shape(v.inputs[0].shape.begin() + 2, v.inputs[0].shape.end()); }
ReductionForm source_form(const OpView& v) {
  ReductionForm f;
  f.combine = Combine::Max;
  f.extents = plane_of(v);
  return f;
}
Expr source_value(const OpView& v, const Index& out, const Index& at) {
  Index in{out[0], out[1]};
  in.insert(in.end(), at.begin(), at.end());
  const Expr target = linear_index(v.attrs.as<ShapeAttrs>().shape, out);
  return select(eq(cast(DType::I64, v.read(0, in)), target), linear_index(plane_of(v), at) + 1, Expr(0));
}
// UnpoolTake: the element that source names, or 0. Inputs: x, source.
Result<Types> infer_take(const OpView& v) { return Types{{v.inputs[0].dtype, v.inputs[1].shape}}; }
Expr take_element(const OpView& v, const Index& out) {
  const Expr source = v.read(1, out);
  Index in{out[0], out[1]};
  for (const Expr& i : delinearize(plane_of(v), max(source - 1, 0))) in.push_back(i);
  const Expr x = v.read(0, in);
  return select(lt(0, source), x, zero_of(x));
}
Result<Values> import_unpool(ImportContext& c) {
  const Shape x = c.type(0).shape;
  const size_t rank = x.size() - 2;
  const auto kernel = INGOT_TRY(c.node.ints_or("kernel_shape", {}));
  const auto strides = INGOT_TRY(c.node.ints_or("strides", std::vector<int64_t>(rank, 1)));
  const auto pads = INGOT_TRY(c.node.ints_or("pads", std::vector<int64_t>(2 * rank, 0)));
  if (x.size() < 3 || kernel.size() != rank || strides.size() != rank || pads.size() != 2 * rank) return invalid("attributes do not fit the rank");
  ShapeAttrs a{{x[0], x[1]}};
  for (size_t d = 0; d < rank; ++d) a.shape.push_back(simplify((x[d + 2] - 1) * strides[d] + (kernel[d] - pads[d] - pads[d + rank])));
  Compose g(c.builder);
  ValueId y = g.node("UnpoolTake", {c.in(0), g.node("UnpoolSource", a, {c.in(1)})});
  if (!c.has(2)) return g.result({y});
  const auto wanted = INGOT_TRY(c.content(2));
  if (wanted.size() != x.size()) return invalid("output_shape needs one entry a dimension");
  if (g.failed()) return g.result({});
  std::vector<Expr> none(x.size(), Expr(0)), more = none;
  for (size_t d = 2; d < x.size(); ++d) {
    more[d] = simplify(cast(DType::I64, wanted[d]) - g.shape(y)[d]);
    if (more[d].as_int() && *more[d].as_int() < 0) return unsupported("an output_shape that is smaller");
    c.builder.require(le(0, more[d]), fmt::format("MaxUnpool \"{}\": output_shape must not be smaller than the pools", c.node.name));
  }
  return one(build_pad(c.builder, y, none, more));
}

// ---- Col2Im --------------------------------------------------------------------------------------------------------------
struct FoldAttrs {
  std::vector<Expr> image, block;
  std::vector<int64_t> strides, dilations, pads;
  INGOT_FIELDS(image, block, strides, dilations, pads)
};
Expr taps_in(const FoldAttrs& a) { return product(a.block); }
Result<Types> infer_fold(const OpView& v) {
  const auto& a = v.attrs.as<FoldAttrs>();
  Shape out{v.inputs[0].shape[0], simplify(floor_div(v.inputs[0].shape[1], taps_in(a)))};
  out.insert(out.end(), a.image.begin(), a.image.end());
  return Types{{v.inputs[0].dtype, out}};
}
ReductionForm fold_form(const OpView& v) {
  ReductionForm f;
  f.extents = v.attrs.as<FoldAttrs>().block;
  return f;
}
Expr fold_value(const OpView& v, const Index& out, const Index& taps) {
  const auto& a = v.attrs.as<FoldAttrs>();
  const size_t rank = a.block.size();
  Shape columns, window;
  Index at;
  Expr inside = Expr::boolean(true);
  for (size_t d = 0; d < rank; ++d) {
    const Expr reach = (a.block[d] - 1) * a.dilations[d] + 1;
    columns.push_back(simplify(floor_div(a.image[d] + (a.pads[d] + a.pads[d + rank]) - reach, a.strides[d]) + 1));
    window.push_back(a.block[d]);
    const Expr t = out[d + 2] + a.pads[d] - taps[d] * a.dilations[d], column = simplify(floor_div(t, a.strides[d]));
    inside = logical_and(inside, simplify(logical_and(eq(floor_mod(t, a.strides[d]), 0), logical_and(le(0, column), lt(column, columns[d])))));
    at.push_back(max(0, min(column, columns[d] - 1)));
  }
  const Expr x = v.read(0, {out[0], simplify(out[1] * taps_in(a) + linear_index(window, taps)), linear_index(columns, at)});
  return select(inside, x, zero_of(x));
}
Result<Values> import_fold(ImportContext& c) {
  FoldAttrs a;
  for (const Expr& e : INGOT_TRY(c.content(1))) a.image.push_back(c.builder.dimension(cast(DType::I64, e)));
  for (const Expr& e : INGOT_TRY(c.content(2))) a.block.push_back(c.builder.dimension(cast(DType::I64, e)));
  const size_t rank = a.block.size();
  a.strides = INGOT_TRY(c.node.ints_or("strides", std::vector<int64_t>(rank, 1)));
  a.dilations = INGOT_TRY(c.node.ints_or("dilations", std::vector<int64_t>(rank, 1)));
  a.pads = INGOT_TRY(c.node.ints_or("pads", std::vector<int64_t>(2 * rank, 0)));
  if (c.rank(0) != 3 || a.image.size() != rank || a.strides.size() != rank || a.dilations.size() != rank || a.pads.size() != 2 * rank)
    return invalid("input, image_shape, block_shape and attributes do not fit");
  for (size_t d = 0; d < rank; ++d)
    if ((a.block[d].as_int() && *a.block[d].as_int() < 1) || a.strides[d] < 1 || a.dilations[d] < 1) return invalid("block, strides and dilations must be positive");
  return one(c.builder.add(op("Col2Im"), a, {c.in(0)}));
}

// ---- LRN -----------------------------------------------------------------------------------------------------------------
struct LrnAttrs {
  int64_t size = 1;
  double alpha = 1e-4, beta = 0.75, bias = 1;
  INGOT_FIELDS(size, alpha, beta, bias)
};
Result<Types> infer_first(const OpView& v) { return Types{v.inputs[0]}; }
ReductionForm lrn_form(const OpView& v) {
  ReductionForm f;
  f.extents = {v.attrs.as<LrnAttrs>().size};
  return f;
}
Expr lrn_value(const OpView& v, const Index& out, const Index& taps) {
  const Expr channel = out[1] + taps[0] - (v.attrs.as<LrnAttrs>().size - 1) / 2, dim = v.inputs[0].shape[1];
  Index in = out;
  in[1] = max(0, min(channel, dim - 1));
  const Expr x = v.read(0, in);
  return select(logical_and(le(0, channel), lt(channel, dim)), x * x, zero_of(x));
}
Expr lrn_finish(const OpView& v, const Index& out, const Expr& acc) {
  const auto& a = v.attrs.as<LrnAttrs>();
  const Expr base = number_like(acc, a.bias) + acc * number_like(acc, a.alpha / static_cast<double>(a.size));
  return v.read(0, out) / call(Fn::Pow, base, number_like(acc, a.beta));
}
Result<Values> import_lrn(ImportContext& c) {
  LrnAttrs a{INGOT_TRY(c.node.int_or("size", 0)), INGOT_TRY(c.node.float_or("alpha", 1e-4)), INGOT_TRY(c.node.float_or("beta", 0.75)),
             INGOT_TRY(c.node.float_or("bias", 1))};
  if (a.size < 1 || c.rank(0) < 2) return invalid("needs size and rank 2 or more");
  return one(c.builder.add(op("LRN"), a, {c.in(0)}));
}

const OpDef kUnpool[] = {
    lowered_row<ShapeAttrs>("UnpoolSource", "internal", {}, infer_source, Reduction{source_form, source_value}, 1, 1),
    lowered_row<void>("UnpoolTake", "internal", {}, infer_take, Element{take_element}, 2, 2),
    import_row("MaxUnpool", "gather form", kRules<import_unpool, 9, 11, 22>, 2, 3),
    lowered_row<FoldAttrs>("Col2Im", "gather form", kRules<import_fold, 18>, infer_fold, Reduction{fold_form, fold_value}, 1, 3),
    lowered_row<LrnAttrs>("LRN", "", kRules<import_lrn, 1, 13>, infer_first, Reduction{lrn_form, lrn_value, lrn_finish}, 1, 1),
};

}  // namespace

std::span<const OpDef> unpool_ops() { return kUnpool; }

}  // namespace ingot
