// Resize and Upsample: nearest and (multi)linear interpolation under every coordinate transformation.
#include <fmt/format.h>

#include <cmath>

#include "compiler/expr/simplify.h"
#include "compiler/ops/resize.h"

namespace ingot {
namespace {

using Types = std::vector<TensorType>;

Result<Types> infer_resize(const OpView& v) { return Types{{v.inputs[0].dtype, v.attrs.as<ResizeAttrs>().sizes}}; }

Expr f32(double x) { return Expr::real(DType::F32, x); }
/// floor((x*den) / num) without rounding, when the scale is a whole number: the common upsampling.
std::optional<Expr> exact_nearest(const ResizeAttrs& a, const Expr& x, const Expr& scale) {
  if (!scale.is_const()) return std::nullopt;
  const double s = scale.float_value();
  if (s < 1 || s != std::floor(s)) return std::nullopt;
  const auto k = static_cast<int64_t>(s);
  const bool floors = a.transform == "asymmetric" && a.nearest == "floor";
  const bool half = a.transform == "half_pixel" && (a.nearest == "round_prefer_floor" || a.nearest == "round_prefer_ceil");
  if (floors || half) return floor_div(x, k);
  return std::nullopt;
}
Expr nearest_index(const ResizeAttrs& a, const Expr& position, const Expr& in) {
  Expr i;
  if (a.nearest == "floor") i = call(Fn::Floor, position);
  else if (a.nearest == "ceil") i = call(Fn::Ceil, position);
  else if (a.nearest == "round_prefer_ceil") i = call(Fn::Floor, position + f32(0.5));
  else i = call(Fn::Ceil, position - f32(0.5));
  return max(0, min(cast(DType::I64, i), in - 1));
}
Expr nearest_element(const OpView& v, const ResizeAttrs& a, const Index& out) {
  Index in;
  for (size_t d = 0; d < out.size(); ++d) {
    const Expr dim = v.inputs[0].shape[d];
    if (resize_keeps(a, v, d)) in.push_back(out[d]);
    else if (auto exact = exact_nearest(a, out[d], a.scales[d])) in.push_back(*exact);
    else in.push_back(nearest_index(a, resize_source(a, out[d], d, dim), dim));
  }
  return v.read(0, in);
}
/// Interpolates along dimension d and those after it.
Expr linear_along(const OpView& v, const ResizeAttrs& a, const Index& out, Index in, size_t d) {
  if (d == out.size()) return v.read(0, in);
  if (resize_keeps(a, v, d)) {
    in.push_back(out[d]);
    return linear_along(v, a, out, in, d + 1);
  }
  const Expr dim = v.inputs[0].shape[d];
  const Expr top = cast(DType::F32, dim - 1);
  const Expr at = max(f32(0), min(top, resize_source(a, out[d], d, dim)));
  const Expr low = call(Fn::Floor, at), weight = at - low;
  Index first = in, second = in;
  first.push_back(cast(DType::I64, low));
  second.push_back(min(cast(DType::I64, low) + 1, dim - 1));
  const Expr x = linear_along(v, a, out, first, d + 1), y = linear_along(v, a, out, second, d + 1);
  const Expr w = cast(x.type(), weight);
  return x * (one_of(x) - w) + y * w;
}
Expr resize_element(const OpView& v, const Index& out) {
  const auto& a = v.attrs.as<ResizeAttrs>();
  const Expr x = a.mode == "nearest" ? nearest_element(v, a, out) : linear_along(v, a, out, {}, 0);
  return a.crops() ? select(resize_inside(v, a, out), x, number_like(x, a.extrapolation)) : x;
}

Result<ResizeAttrs> read_modes(ImportContext& c, const char* transform) {
  ResizeAttrs a;
  a.mode = INGOT_TRY(c.node.string_or("mode", "nearest"));
  a.transform = INGOT_TRY(c.node.string_or("coordinate_transformation_mode", transform));
  a.nearest = INGOT_TRY(c.node.string_or("nearest_mode", c.node.opset < 11 ? "floor" : "round_prefer_floor"));
  if (a.mode != "nearest" && a.mode != "linear" && a.mode != "cubic") return invalid(fmt::format("mode {}", a.mode));
  a.cubic = INGOT_TRY(c.node.float_or("cubic_coeff_a", -0.75));
  a.antialias = a.mode != "nearest" && INGOT_TRY(c.node.int_or("antialias", 0)) != 0;
  a.exclude = a.mode != "nearest" && INGOT_TRY(c.node.int_or("exclude_outside", 0)) != 0;
  a.extrapolation = INGOT_TRY(c.node.float_or("extrapolation_value", 0));
  return a;
}
/// floor(dim * scale), in the precision in which a constant is computed.
Expr scaled(GraphBuilder& b, const Expr& dim, const Expr& scale) {
  if (!scale.is_const()) return b.named(cast(DType::I64, call(Fn::Floor, cast(DType::F64, dim) * cast(DType::F64, scale))));
  const double s = scale.float_value();
  if (s == std::floor(s)) return simplify(dim * static_cast<int64_t>(s));
  if (dim.as_int()) return static_cast<int64_t>(std::floor(static_cast<double>(*dim.as_int()) * s));
  if (1 / s == std::floor(1 / s)) return simplify(floor_div(dim, static_cast<int64_t>(1 / s)));
  return b.named(cast(DType::I64, call(Fn::Floor, cast(DType::F64, dim) * Expr::real(DType::F64, s))));
}
Status set_scales(ImportContext& c, ResizeAttrs& a, const Shape& in, const std::vector<Expr>& scales, const std::vector<size_t>& axes) {
  a.sizes = in;
  a.scales.assign(in.size(), f32(1));
  a.by_scale = true;
  if (scales.size() != axes.size()) return invalid(fmt::format("{} scales for {} axes", scales.size(), axes.size()));
  for (size_t i = 0; i < axes.size(); ++i) {
    const size_t d = axes[i];
    const Expr scale = cast(DType::F32, scales[i]);
    if (scale.is_const() && !(scale.float_value() > 0)) return invalid("scales must be positive");
    if (!scale.is_const())
      c.builder.require(lt(f32(0), scale), fmt::format("{} \"{}\": scales must be positive", c.node.op, c.node.name));
    a.scales[d] = scale;
    a.sizes[d] = scaled(c.builder, in[d], scale);
  }
  return {};
}
/// One scale for every axis: the smallest or the largest that a size asks for.
void keep_aspect(GraphBuilder& b, ResizeAttrs& a, const Shape& in, const std::vector<Expr>& sizes, const std::vector<size_t>& axes,
                 bool smallest) {
  Expr best;
  for (size_t i = 0; i < axes.size(); ++i) {
    const Expr s = cast(DType::F64, sizes[i]) / cast(DType::F64, in[axes[i]]);
    best = !best.valid() ? s : smallest ? min(best, s) : max(best, s);
  }
  for (size_t d : axes) {
    a.scales[d] = cast(DType::F32, best);
    a.sizes[d] = b.named(cast(DType::I64, call(Fn::Floor, best * cast(DType::F64, in[d]) + Expr::real(DType::F64, 0.5))));
  }
}
Status set_sizes(ImportContext& c, ResizeAttrs& a, const Shape& in, const std::vector<Expr>& sizes, const std::vector<size_t>& axes) {
  a.sizes = in;
  a.scales.assign(in.size(), f32(1));
  if (sizes.size() != axes.size()) return invalid(fmt::format("{} sizes for {} axes", sizes.size(), axes.size()));
  const std::string policy = INGOT_TRY(c.node.string_or("keep_aspect_ratio_policy", "stretch"));
  if (policy != "stretch") {
    keep_aspect(c.builder, a, in, sizes, axes, policy == "not_larger");
    return {};
  }
  for (size_t i = 0; i < axes.size(); ++i) {
    const size_t d = axes[i];
    a.sizes[d] = sizes[i];
    if (proves_equal(sizes[i], in[d])) continue;
    const bool fixed = sizes[i].is_const() && in[d].is_const();
    a.scales[d] = fixed ? f32(sizes[i].float_value() / in[d].float_value())
                        : cast(DType::F32, sizes[i]) / cast(DType::F32, in[d]);
    // A symbolic ratio that is a whole number is still an exact scale.
    if (const Expr q = simplify(floor_div(sizes[i], in[d])); q.is_const() && proves_equal(q * in[d], sizes[i]))
      a.scales[d] = f32(q.float_value());
  }
  return {};
}
Result<Values> finish(ImportContext& c, const ResizeAttrs& a) {
  if (a.mode == "cubic" || a.antialias || a.exclude) return one(build_filter(c.builder, c.in(0), a));
  if (!a.crops() && same_shape(a.sizes, c.type(0).shape)) return Values{c.in(0)};
  return one(c.builder.add(op("Resize"), a, {c.in(0)}));
}
std::vector<size_t> every_axis(size_t rank) {
  std::vector<size_t> axes;
  for (size_t d = 0; d < rank; ++d) axes.push_back(d);
  return axes;
}
Result<Values> import_upsample(ImportContext& c) {
  ResizeAttrs a = INGOT_TRY(read_modes(c, "asymmetric"));
  std::vector<Expr> scales;
  if (c.has(1)) scales = INGOT_TRY(c.content(1));
  else if (auto it = c.node.attrs.find("scales"); it != c.node.attrs.end())
    for (double s : std::get<std::vector<double>>(it->second)) scales.push_back(f32(s));
  INGOT_TRY(set_scales(c, a, c.type(0).shape, scales, every_axis(c.rank(0))));
  return finish(c, a);
}
/// Which part of each axis tf_crop_and_resize samples, in shares of its length.
Status read_roi(ImportContext& c, ResizeAttrs& a, const std::vector<size_t>& axes) {
  a.roi.assign(2 * c.rank(0), f32(0));
  for (size_t d = 0; d < c.rank(0); ++d) a.roi[c.rank(0) + d] = f32(1);
  if (!c.has(1)) return invalid("tf_crop_and_resize needs roi");
  const auto roi = INGOT_TRY(c.content(1));
  if (roi.size() != 2 * axes.size()) return invalid(fmt::format("{} entries of roi for {} axes", roi.size(), axes.size()));
  for (size_t i = 0; i < axes.size(); ++i) {
    a.roi[axes[i]] = cast(DType::F32, roi[i]);
    a.roi[c.rank(0) + axes[i]] = cast(DType::F32, roi[axes.size() + i]);
  }
  return {};
}
Result<Values> import_resize(ImportContext& c) {
  ResizeAttrs a = INGOT_TRY(read_modes(c, "half_pixel"));
  std::vector<size_t> axes = every_axis(c.rank(0));
  if (c.node.has("axes")) {
    axes.clear();
    for (int64_t x : INGOT_TRY(c.node.ints_or("axes", {}))) axes.push_back(static_cast<size_t>(INGOT_TRY(wrap_axis(x, c.rank(0)))));
  }
  if (a.crops()) INGOT_TRY(read_roi(c, a, axes));
  const bool by_scale = c.has(2) && !INGOT_TRY(c.content(2)).empty();
  if (by_scale) INGOT_TRY(set_scales(c, a, c.type(0).shape, INGOT_TRY(c.content(2)), axes));
  else if (c.has(3)) INGOT_TRY(set_sizes(c, a, c.type(0).shape, INGOT_TRY(c.content(3)), axes));
  else return invalid("neither scales nor sizes");
  return finish(c, a);
}

const OpDef kResize[] = {
    [] {
      OpDef d;
      d.name = "Resize", d.doc = "every mode", d.infer = infer_resize, d.lower = Element{resize_element};
      static constexpr ImportRule kRows[] = {{10, import_upsample}, {11, import_resize}, {13, import_resize}, {18, import_resize}, {19, import_resize}};
      d.imports = kRows, d.max_inputs = 4, d.parse_attrs = parse_attrs<ResizeAttrs>;
      return d;
    }(),
    [] {
      OpDef d;
      d.name = "Upsample", d.doc = "Resize", d.imports = kRules<import_upsample, 7, 9>, d.max_inputs = 2;
      return d;
    }(),
};

}  // namespace

std::span<const OpDef> resize_ops() { return kResize; }

}  // namespace ingot
