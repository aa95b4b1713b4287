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
  int64_t first = 0, count = 0;
};
std::optional<Taps> taps_of(const ResizeAttrs& a, size_t d) {
  const double reach = a.mode == "cubic" ? 2 : 1;
  if (!a.antialias) return Taps{static_cast<int64_t>(1 - reach), static_cast<int64_t>(2 * reach)};
  if (!a.scales[d].is_const()) return std::nullopt;
  const double scale = std::min(1.0, a.scales[d].float_value());
  const auto side = static_cast<int64_t>(std::ceil(reach / scale));
  return Taps{-side, 2 * side + 2};
}
/// The weight of the tap at whole position `at` for the source coordinate `centre`.
Expr weight(const ResizeAttrs& a, size_t d, const Expr& at, const Expr& centre) {
  Expr distance = at - centre;
  if (a.antialias) distance = distance * f32(std::min(1.0, a.scales[d].float_value()));
  if (a.mode == "cubic") return cubic_kernel(distance, a.cubic);
  return max(f32(0), f32(1) - call(Fn::Abs, distance));
}
Expr used_weight(const ResizeAttrs& a, size_t d, const Expr& at, const Expr& centre, const Expr& dim) {
  const Expr w = weight(a, d, at, centre);
  if (!a.exclude) return w;
  const Expr i = cast(DType::I64, at);
  return select(logical_and(le(0, i), lt(i, dim)), w, f32(0));
}

Result<Types> infer_filter(const OpView& v) {
  const auto& a = v.attrs.as<ResizeAttrs>();
  for (size_t d = 0; d < v.inputs[0].rank(); ++d)
    if (!resize_keeps(a, v, d) && !taps_of(a, d)) return unsupported("antialias with a scale that depends on a dynamic dimension");
  return Types{{v.inputs[0].dtype, a.sizes}};
}
ReductionForm filter_form(const OpView& v) {
  const auto& a = v.attrs.as<ResizeAttrs>();
  ReductionForm f;
  for (size_t d = 0; d < v.inputs[0].rank(); ++d) f.extents.emplace_back(resize_keeps(a, v, d) ? 1 : taps_of(a, d)->count);
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
    const Expr centre = resize_source(a, out[d], d, dim);
    const Expr at = call(Fn::Floor, centre) + cast(DType::F32, taps[d] + taps_of(a, d)->first);
    factor = factor * used_weight(a, d, at, centre, dim);
    in.push_back(max(0, min(cast(DType::I64, at), dim - 1)));
  }
  const Expr x = v.read(0, in);
  return x * cast(x.type(), factor);
}
/// Divides by the sum of the weights where they do not add up to 1.
Expr filter_finish(const OpView& v, const Index& out, const Expr& acc) {
  const auto& a = v.attrs.as<ResizeAttrs>();
  Expr y = acc;
  for (size_t d = 0; d < out.size(); ++d) {
    if (resize_keeps(a, v, d) || !(a.antialias || a.exclude)) continue;
    const Expr dim = v.inputs[0].shape[d], centre = resize_source(a, out[d], d, dim);
    const Taps taps = *taps_of(a, d);
    Expr sum = f32(0);
    for (int64_t t = 0; t < taps.count; ++t) {
      const Expr at = call(Fn::Floor, centre) + f32(static_cast<double>(taps.first + t));
      sum = sum + used_weight(a, d, at, centre, dim);
    }
    y = y / cast(y.type(), sum);
  }
  return a.crops() ? select(resize_inside(v, a, out), y, number_like(y, a.extrapolation)) : y;
}

const OpDef kResample[] = {
    lowered_row<ResizeAttrs>("ResizeFilter", "Resize: cubic, antialias, exclude_outside; internal", {}, infer_filter,
                             Reduction{filter_form, filter_value, filter_finish}, 1, 1),
};

}  // namespace

bool resize_keeps(const ResizeAttrs& a, const OpView& v, size_t d) {
  const bool whole = !a.crops() || (a.roi[d].is_const(0) && a.roi[a.roi.size() / 2 + d].is_const(1));
  return whole && a.scales[d].is_const(1) && proves_equal(a.sizes[d], v.inputs[0].shape[d]);
}
Expr resize_source(const ResizeAttrs& a, const Expr& x, size_t d, const Expr& in) {
  const Expr& scale = a.scales[d];
  const Expr at = cast(DType::F32, x), size = cast(DType::F32, in), one = f32(1);
  if (a.transform == "asymmetric") return at / scale;
  // ONNX resizes to a length of size*scale, of which the output has the whole part.
  const Expr length = scale.is_const() && in.is_const() ? f32(scale.float_value() * in.float_value()) : cast(DType::F32, a.sizes[d]);
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
