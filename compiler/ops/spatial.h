// Strides, pads and dilations of convolutions and pools, as ONNX writes them and as expressions. Passes that fold into
// convolutions read them, too.
#pragma once

#include "compiler/ops/rows.h"

namespace ingot {

struct SpatialAttrs {
  std::vector<int64_t> kernel, strides, dilations;
  std::vector<Expr> begins, ends;  // padding; auto_pad of a dynamic size gives an expression
  bool same = false;               // auto_pad: the output has ceil(input / stride) positions by definition
  INGOT_FIELDS(kernel, strides, dilations, begins, ends, same)
};

struct ConvAttrs {
  int64_t groups = 1;
  std::vector<int64_t> kernel, strides, dilations;
  std::vector<Expr> begins, ends;
  bool same = false;
  INGOT_FIELDS(groups, kernel, strides, dilations, begins, ends, same)
  SpatialAttrs spatial() const { return {kernel, strides, dilations, begins, ends, same}; }
};
struct ConvTransposeAttrs {
  int64_t groups = 1;
  std::vector<int64_t> kernel, strides, dilations;
  std::vector<Expr> begins, sizes;  // `sizes`: of the output's spatial dims
  INGOT_FIELDS(groups, kernel, strides, dilations, begins, sizes)
};

/// Reads strides, dilations, pads and auto_pad; `spatial` are the input's spatial dims, `kernel` the window.
Result<SpatialAttrs> read_spatial(ImportContext& c, const Shape& spatial, std::vector<int64_t> kernel);
/// (input + pads - dilated kernel) / stride + 1, rounded up with `ceil` as pools do.
Expr pooled_extent(const SpatialAttrs& a, size_t d, const Expr& input, bool ceil);
/// True when no window reaches outside the input.
bool stays_inside(const SpatialAttrs& a, size_t d);

}  // namespace ingot
