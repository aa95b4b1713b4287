// GridSample and AffineGrid: reading an image at computed coordinates.
#include <fmt/format.h>

#include "compiler/ops/filters.h"
#include "compiler/ops/rows.h"

namespace ingot {
namespace {

using Types = std::vector<TensorType>;

// ---- GridSample ----------------------------------------------------------------------------------------------------------
struct GridAttrs {
  std::string mode = "linear", padding = "zeros";
  bool align = false;
  INGOT_FIELDS(mode, padding, align)
};
Result<Types> infer_grid(const OpView& v) {
  const Shape &x = v.inputs[0].shape, &grid = v.inputs[1].shape;
  if (x.size() < 3 || grid.size() != x.size()) return invalid("input and grid differ in rank");
  if (!grid.back().is_const(static_cast<int64_t>(x.size()) - 2)) return invalid("the grid's last dimension is not the number of spatial ones");
  Shape out{x[0], x[1]};
  out.insert(out.end(), grid.begin() + 1, grid.end() - 1);
  return Types{{v.inputs[0].dtype, out}};
}
/// A triangular wave: reflects x at low and high until it is inside.
Expr reflect(const Expr& x, const Expr& low, const Expr& high) {
  const Expr range = high - low, twice = range * number_like(x, 2), t = x - low;
  const Expr wave = t - call(Fn::Floor, t / twice) * twice;
  const Expr inside = low + select(le(wave, range), wave, twice - wave);
  return select(le(range, zero_of(x)), low, inside);
}
struct Bounds {
  Expr low, high;  // where reflection turns
};
Bounds bounds_of_axis(const GridAttrs& a, const Expr& size) {
  if (a.align) return {zero_of(size), size - one_of(size)};
  return {number_like(size, -0.5), size - number_like(size, 0.5)};
}
/// The element at whole coordinates, by the padding rule.
Expr pixel(const OpView& v, const GridAttrs& a, const Index& out, const std::vector<Expr>& at) {
  Index in{out[0], out[1]};
  Expr inside = Expr::boolean(true);
  for (size_t d = 0; d < at.size(); ++d) {
    const Expr dim = v.inputs[0].shape[d + 2], size = cast(at[d].type(), dim);
    Expr x = at[d];
    if (a.padding == "reflection") {
      const Bounds b = bounds_of_axis(a, size);
      x = reflect(x, b.low, b.high);
    }
    // Far outside, the conversion to an integer would overflow.
    const Expr i = cast(DType::I64, max(number_like(x, -2), min(x, size + one_of(x))));
    if (a.padding == "zeros") inside = logical_and(inside, logical_and(le(0, i), lt(i, dim)));
    in.push_back(max(0, min(i, dim - 1)));
  }
  const Expr x = v.read(0, in);
  return select(inside, x, zero_of(x));
}
/// Combines the taps of axis d and those after it.
Expr sample(const OpView& v, const GridAttrs& a, const Index& out, const std::vector<Expr>& centre, std::vector<Expr> at, size_t d) {
  if (d == centre.size()) return pixel(v, a, out, at);
  const Expr base = call(Fn::Floor, centre[d]), t = centre[d] - base;
  const bool cubic = a.mode == "cubic";
  std::vector<Expr> weights;
  if (cubic) weights = cubic_weights(t, -0.75);
  else weights = {one_of(t) - t, t};
  Expr sum;
  for (size_t i = 0; i < weights.size(); ++i) {
    std::vector<Expr> next = at;
    next.push_back(base + number_like(base, static_cast<double>(i) - (cubic ? 1 : 0)));
    const Expr x = sample(v, a, out, centre, next, d + 1), term = x * cast(x.type(), weights[i]);
    sum = sum.valid() ? sum + term : term;
  }
  return sum;
}
Expr grid_element(const OpView& v, const Index& out) {
  const auto& a = v.attrs.as<GridAttrs>();
  const size_t rank = out.size() - 2;
  std::vector<Expr> centre;
  for (size_t d = 0; d < rank; ++d) {
    Index where{out[0]};
    where.insert(where.end(), out.begin() + 2, out.end());
    where.push_back(static_cast<int64_t>(rank - 1 - d));  // the grid's first coordinate is x, the last axis
    const Expr u = v.read(1, where), size = cast(u.type(), v.inputs[0].shape[d + 2]);
    Expr x = a.align ? (u + one_of(u)) * number_like(u, 0.5) * (size - one_of(u))
                     : ((u + one_of(u)) * size - one_of(u)) * number_like(u, 0.5);
    if (a.mode == "nearest") x = call(Fn::Round, x);
    if (a.padding == "border") x = max(zero_of(x), min(x, size - one_of(x)));
    if (a.padding == "reflection" && a.mode != "cubic") {
      const Bounds b = bounds_of_axis(a, size);
      x = reflect(x, b.low, b.high);
    }
    centre.push_back(x);
  }
  if (a.mode != "nearest") return sample(v, a, out, centre, {}, 0);
  return pixel(v, a, out, centre);
}
Result<Values> import_grid_sample(ImportContext& c) {
  GridAttrs a;
  a.mode = INGOT_TRY(c.node.string_or("mode", "linear"));
  if (a.mode.rfind("bi", 0) == 0) a.mode = a.mode.substr(2);
  a.padding = INGOT_TRY(c.node.string_or("padding_mode", "zeros"));
  a.align = INGOT_TRY(c.node.int_or("align_corners", 0)) != 0;
  if (a.mode != "linear" && a.mode != "nearest" && a.mode != "cubic") return invalid(fmt::format("mode {}", a.mode));
  if (a.padding != "zeros" && a.padding != "border" && a.padding != "reflection") return invalid(fmt::format("padding_mode {}", a.padding));
  return one(c.builder.add(op("GridSample"), a, c.inputs));
}

// ---- AffineGrid ----------------------------------------------------------------------------------------------------------
struct AffineAttrs {
  std::vector<Expr> size;  // N, spatial…
  bool align = false;
  INGOT_FIELDS(size, align)
};
Result<Types> infer_affine(const OpView& v) {
  Shape out = v.attrs.as<AffineAttrs>().size;
  out.push_back(static_cast<int64_t>(out.size()) - 1);
  return Types{{v.inputs[0].dtype, out}};
}
Expr affine_element(const OpView& v, const Index& out) {
  const auto& a = v.attrs.as<AffineAttrs>();
  const size_t rank = a.size.size() - 1;
  const auto theta = [&](size_t k) { return v.read(0, {out[0], out.back(), static_cast<int64_t>(k)}); };
  Expr sum = theta(rank);
  for (size_t k = 0; k < rank; ++k) {
    const size_t d = rank - k;  // x is the last axis
    const Expr i = cast(sum.type(), out[d]), size = cast(sum.type(), a.size[d]), two = number_like(sum, 2);
    const Expr at = a.align ? two * i / (size - one_of(sum)) - one_of(sum) : (two * i + one_of(sum)) / size - one_of(sum);
    sum = sum + theta(k) * at;
  }
  return sum;
}
Result<Values> import_affine_grid(ImportContext& c) {
  AffineAttrs a;
  a.align = INGOT_TRY(c.node.int_or("align_corners", 0)) != 0;
  a.size = INGOT_TRY(c.content(1));
  if (a.size.size() < 4) return invalid("size needs N, C and two or three spatial dimensions");
  a.size.erase(a.size.begin() + 1);
  return one(c.builder.add(op("AffineGrid"), a, {c.in(0)}));
}

const OpDef kSampling[] = {
    lowered_row<GridAttrs>("GridSample", "every mode and padding, 1-D to 3-D", kRules<import_grid_sample, 16, 20, 22>, infer_grid, Element{grid_element}, 2, 2),
    lowered_row<AffineAttrs>("AffineGrid", "", kRules<import_affine_grid, 20>, infer_affine, Element{affine_element}, 1, 2),
};

}  // namespace

std::span<const OpDef> sampling_ops() { return kSampling; }

}  // namespace ingot
