#include "compiler/ops/spatial.h"

#include <fmt/format.h>

#include "compiler/expr/simplify.h"

namespace ingot {

Result<SpatialAttrs> read_spatial(ImportContext& c, const Shape& spatial, std::vector<int64_t> kernel) {
  const size_t rank = spatial.size();
  SpatialAttrs a;
  a.kernel = std::move(kernel);
  a.strides = INGOT_TRY(c.node.ints_or("strides", std::vector<int64_t>(rank, 1)));
  a.dilations = INGOT_TRY(c.node.ints_or("dilations", std::vector<int64_t>(rank, 1)));
  auto pads = INGOT_TRY(c.node.ints_or("pads", std::vector<int64_t>(2 * rank, 0)));
  const std::string mode = INGOT_TRY(c.node.string_or("auto_pad", "NOTSET"));
  if (a.kernel.size() != rank || a.strides.size() != rank || a.dilations.size() != rank || pads.size() != 2 * rank)
    return invalid(fmt::format("kernel, strides, dilations or pads do not fit {} spatial dimensions", rank));
  a.same = mode == "SAME_UPPER" || mode == "SAME_LOWER";
  for (size_t d = 0; d < rank; ++d) {
    if (a.strides[d] <= 0 || a.dilations[d] <= 0 || a.kernel[d] <= 0) return invalid("kernel, strides and dilations must be positive");
    if (a.same) {
      const int64_t reach = (a.kernel[d] - 1) * a.dilations[d] + 1;
      const Expr out = ceil_div(spatial[d], a.strides[d]);
      const Expr total = simplify(max((out - 1) * a.strides[d] + reach - spatial[d], 0));
      const Expr small = simplify(floor_div(total, 2)), large = simplify(total - small);
      a.begins.push_back(mode == "SAME_UPPER" ? small : large);
      a.ends.push_back(mode == "SAME_UPPER" ? large : small);
    } else if (mode == "VALID") {
      a.begins.emplace_back(0);
      a.ends.emplace_back(0);
    } else {
      a.begins.emplace_back(pads[d]);
      a.ends.emplace_back(pads[d + rank]);
    }
  }
  return a;
}

Expr pooled_extent(const SpatialAttrs& a, size_t d, const Expr& input, bool ceil) {
  if (a.same) return simplify(ceil_div(input, a.strides[d]));
  const int64_t reach = (a.kernel[d] - 1) * a.dilations[d] + 1;
  const Expr room = input + a.begins[d] + a.ends[d] - reach;
  if (!ceil) return simplify(max(floor_div(room, a.strides[d]) + 1, 0));
  const Expr count = ceil_div(room, a.strides[d]) + 1;
  // A last window that starts in the right padding is dropped.
  return simplify(select(ge((count - 1) * a.strides[d], input + a.begins[d]), count - 1, count));
}

bool stays_inside(const SpatialAttrs& a, size_t d) { return a.begins[d].is_const(0) && a.ends[d].is_const(0); }

}  // namespace ingot
