// Resize with weights of more than two taps: cubic, antialiased, and with taps outside the input left out. One output element
// is a reduction over the window of taps; each axis has its own weights.
#include <fmt/format.h>

#include <cmath>

#include "compiler/expr/simplify.h"
#include "compiler/ops/filters.h"
#include "compiler/ops/resize.h"

namespace ingot {
namespace {

using Types = std::vector<TensorType>;

Expr f32(double x) { return Expr::real(DType::F32, x); }

/// The taps of axis d: from floor(source) + first on, `count` of them.
struct Taps {
  Expr first, count;
};
double reach_of(const ResizeAttrs& a) { return a.mode == "cubic" ? 2 : 1; }
Taps taps_of(const ResizeAttrs& a, size_t d) {
  if (a.antialias) return {simplify(Expr(0) - a.sides[d]), simplify(a.sides[d] * 2 + 2)};
  const auto reach = static_cast<int64_t>(reach_of(a));
  return {1 - reach, 2 * reach};
}
/// How far the filter is stretched: antialiasing widens it where the output has fewer elements.
Expr squeeze_of(const ResizeAttrs& a, size_t d) { return min(f32(1), a.scales[d]); }
/// The weight of the tap at whole position `at` for the source coordinate `centre`.
Expr weight(const ResizeAttrs& a, size_t d, const Expr& at, const Expr& centre) {
  Expr distance = at - centre;
  if (a.antialias) distance = distance * squeeze_of(a, d);
  if (a.mode == "cubic") return cubic_kernel(distance, a.cubic);
  return max(f32(0), f32(1) - call(Fn::Abs, distance));
}
/// A tap: its position, and the weight that it has there.
struct Tap {
  Expr at, weight;
};
Tap tap_of(const ResizeAttrs& a, size_t d, const Expr& out, const Expr& tap, const Expr& dim) {
  const Expr centre = resize_source(a, out, d, dim);
  const Expr at = call(Fn::Floor, centre) + cast(DType::F32, tap + taps_of(a, d).first);
  const Expr w = weight(a, d, at, centre);
  if (!a.exclude) return {at, w};
  const Expr i = cast(DType::I64, at);
  return {at, select(logical_and(le(0, i), lt(i, dim)), w, f32(0))};
}

// ---- ResizeFilter: the sum over the taps; where they leave the input its last elements count ---------------------------
Result<Types> infer_filter(const OpView& v) { return Types{{v.inputs[0].dtype, v.attrs.as<ResizeAttrs>().sizes}}; }
ReductionForm filter_form(const OpView& v) {
  const auto& a = v.attrs.as<ResizeAttrs>();
  ReductionForm f;
  for (size_t d = 0; d < v.inputs[0].rank(); ++d) f.extents.push_back(resize_keeps(a, v, d) ? Expr(1) : taps_of(a, d).count);
  return f;
}
Expr filter_value(const OpView& v, const Index& out, const Index& taps) {
  const auto& a = v.attrs.as<ResizeAttrs>();
  Index in;
  Expr factor = f32(1);
  for (size_t d = 0; d < out.size(); ++d) {
    const Expr dim = v.inputs[0].shape[d];
    if (resize_keeps(a, v, d)) {
      in.push_back(out[d]);
      continue;
    }
    const Tap tap = tap_of(a, d, out[d], taps[d], dim);
    factor = factor * tap.weight;
    in.push_back(max(0, min(cast(DType::I64, tap.at), dim - 1)));
  }
  const Expr x = v.read(0, in);
  return x * cast(x.type(), factor);
}
bool sums_to_one(const ResizeAttrs& a) { return !a.antialias && !a.exclude; }
/// The number of taps of axis d, where it is known and weights are added up on the spot.
std::optional<int64_t> known_taps(const ResizeAttrs& a, size_t d) { return taps_of(a, d).count.as_int(); }
/// Divides by the sum of the weights where they do not add up to 1.
Expr filter_finish(const OpView& v, const Index& out, const Expr& acc) {
  const auto& a = v.attrs.as<ResizeAttrs>();
  Expr y = acc;
  for (size_t d = 0; d < out.size(); ++d) {
    if (resize_keeps(a, v, d) || sums_to_one(a) || !known_taps(a, d)) continue;
    Expr sum = f32(0);
    for (int64_t t = 0; t < *known_taps(a, d); ++t) sum = sum + tap_of(a, d, out[d], t, v.inputs[0].shape[d]).weight;
    y = y / cast(y.type(), sum);
  }
  return a.crops() ? select(resize_inside(v, a, out), y, number_like(y, a.extrapolation)) : y;
}

// ---- ResizeWeights: what the weights of one axis add up to where only a call knows how many there are -----------------------
/// ResizeAttrs of that axis alone, and how many elements the input has along it.
struct WeightAttrs : ResizeAttrs {
  Expr dim;
  INGOT_FIELDS(mode, transform, nearest, sizes, scales, roi, sides, cubic, extrapolation, antialias, exclude, by_scale, dim)
};
Result<Types> infer_weights(const OpView& v) { return Types{{DType::F32, v.attrs.as<WeightAttrs>().sizes}}; }
ReductionForm weights_form(const OpView& v) {
  ReductionForm f;
  f.extents.push_back(taps_of(v.attrs.as<WeightAttrs>(), 0).count);
  return f;
}
Expr weights_value(const OpView& v, const Index& out, const Index& taps) {
  const auto& a = v.attrs.as<WeightAttrs>();
  return tap_of(a, 0, out[0], taps[0], a.dim).weight;
}
/// y divided by the sum of the weights of axis d.
Result<ValueId> divide_by_weights(GraphBuilder& b, ValueId y, const ResizeAttrs& a, size_t d, const Expr& dim) {
  WeightAttrs w{a, dim};
  w.sizes = {a.sizes[d]}, w.scales = {a.scales[d]}, w.sides = {a.sides[d]}, w.roi = {};
  Shape row(a.sizes.size(), Expr(1));
  row[d] = a.sizes[d];
  const ValueId sum = INGOT_TRY(build_reshape(b, INGOT_TRY(b.add(op("ResizeWeights"), w, {})), row));
  return build_binary(b, "Div", y, INGOT_TRY(build_cast(b, sum, b.type(y).dtype)));
}

const OpDef kResample[] = {
    lowered_row<ResizeAttrs>("ResizeFilter", "Resize: cubic, antialias, exclude_outside; internal", {}, infer_filter,
                             Reduction{filter_form, filter_value, filter_finish}, 1, 1),
    lowered_row<WeightAttrs>("ResizeWeights", "sums of the weights along one axis; internal", {}, infer_weights,
                             Reduction{weights_form, weights_value}, 0, 0),
};

}  // namespace

Result<ValueId> build_filter(GraphBuilder& b, ValueId x, ResizeAttrs a) {
  const Shape in = b.shape(x);
  for (size_t d = 0; a.antialias && d < in.size(); ++d)
    a.sides.push_back(b.named(cast(DType::I64, call(Fn::Ceil, f32(reach_of(a)) / squeeze_of(a, d)))));
  ValueId y = INGOT_TRY(b.add(op("ResizeFilter"), a, {x}));
  for (size_t d = 0; d < in.size(); ++d) {
    if (known_taps(a, d)) continue;
    if (a.crops()) return unsupported("an antialiased crop by a scale that only a call knows");
    y = INGOT_TRY(divide_by_weights(b, y, a, d, in[d]));
  }
  return y;
}
bool resize_keeps(const ResizeAttrs& a, const OpView& v, size_t d) {
  const bool whole = !a.crops() || (a.roi[d].is_const(0) && a.roi[a.roi.size() / 2 + d].is_const(1));
  return whole && a.scales[d].is_const(1) && proves_equal(a.sizes[d], v.inputs[0].shape[d]);
}
Expr resize_source(const ResizeAttrs& a, const Expr& x, size_t d, const Expr& in) {
  const Expr& scale = a.scales[d];
  const Expr at = cast(DType::F32, x), size = cast(DType::F32, in), one = f32(1);
  if (a.transform == "asymmetric") return at / scale;
  // ONNX resizes to a length of size*scale, of which the output has the whole part.
  const Expr length = scale.is_const() && in.is_const() ? f32(scale.float_value() * in.float_value())
                      : a.by_scale                      ? scale * size
                                                        : cast(DType::F32, a.sizes[d]);
  if (a.crops()) {
    const Expr start = a.roi[d], end = a.roi[a.roi.size() / 2 + d];
    return select(le(length, one), f32(0.5) * (start + end) * (size - one), start * (size - one) + at * (end - start) * (size - one) / (length - one));
  }
  if (a.transform == "align_corners") return select(le(length, one), f32(0), at * (size - one) / (length - one));
  const Expr half = (at + f32(0.5)) / scale - f32(0.5);
  if (a.transform == "pytorch_half_pixel") return select(le(length, one), f32(0), half);
  if (a.transform == "half_pixel_symmetric") {
    const Expr adjustment = cast(DType::F32, a.sizes[d]) / (scale * size), centre = size * f32(0.5);
    return centre * (one - adjustment) + half;
  }
  return half;  // half_pixel
}
Expr resize_inside(const OpView& v, const ResizeAttrs& a, const Index& out) {
  Expr inside = Expr::boolean(true);
  for (size_t d = 0; d < out.size(); ++d) {
    if (resize_keeps(a, v, d)) continue;
    const Expr at = resize_source(a, out[d], d, v.inputs[0].shape[d]);
    inside = logical_and(inside, logical_and(le(f32(0), at), le(at, cast(DType::F32, v.inputs[0].shape[d] - 1))));
  }
  return inside;
}

std::span<const OpDef> resample_ops() { return kResample; }

}  // namespace ingot
