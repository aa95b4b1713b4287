// What Resize reads of its attributes and how it maps output positions to the input. Only compiler/ops includes it.
#pragma once

#include "compiler/ops/rows.h"

namespace ingot {

struct ResizeAttrs {
  std::string mode = "nearest", transform = "half_pixel", nearest = "round_prefer_floor";
  std::vector<Expr> sizes;      // output dims
  std::vector<Expr> scales;     // f32; output / input as ONNX uses it in the transformation
  std::vector<Expr> roi;        // f32, starts then ends; of tf_crop_and_resize only
  std::vector<Expr> sides;      // antialias: how many taps lie before the source coordinate along each dimension
  double cubic = -0.75, extrapolation = 0;
  bool antialias = false, exclude = false;
  bool by_scale = false;        // the scales are the model's: sizes are the whole part of what they give
  INGOT_FIELDS(mode, transform, nearest, sizes, scales, roi, sides, cubic, extrapolation, antialias, exclude, by_scale)
  bool crops() const { return transform == "tf_crop_and_resize"; }
};
/// Filters x with weights of more than two taps (resample.cpp).
Result<ValueId> build_filter(GraphBuilder& b, ValueId x, ResizeAttrs a);
/// Dimension d is copied.
bool resize_keeps(const ResizeAttrs& a, const OpView& v, size_t d);
/// The source coordinate of output position x along dimension d (of `in` elements), as f32.
Expr resize_source(const ResizeAttrs& a, const Expr& x, size_t d, const Expr& in);
/// True where every source coordinate is inside the input: elsewhere a crop extrapolates.
Expr resize_inside(const OpView& v, const ResizeAttrs& a, const Index& out);

}  // namespace ingot
