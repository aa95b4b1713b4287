// RoiAlign, DeformConv, CenterCropPad, Det.
#include <fmt/format.h>

#include <map>

#include "compiler/expr/simplify.h"
#include "compiler/ops/compose.h"
#include "compiler/ops/layout_ops.h"
#include "compiler/ops/spatial.h"

namespace ingot {
namespace {

using Types = std::vector<TensorType>;

// ---- RoiAlign ------------------------------------------------------------------------------------------------------------
struct RoiAttrs {
  int64_t height = 1, width = 1, samples = 2;  // samples 0: as many as a bin has pixels, up to `most` along either axis
  double scale = 1;
  bool half_pixel = true, is_max = false;
  Expr most = 0;
  INGOT_FIELDS(height, width, samples, scale, half_pixel, is_max, most)
};
Result<Types> infer_roi(const OpView& v) {
  const auto& a = v.attrs.as<RoiAttrs>();
  return Types{{v.inputs[0].dtype, {v.inputs[1].shape[0], v.inputs[0].shape[1], a.height, a.width}}};
}
template <Combine combine>
ReductionForm roi_form(const OpView& v) {
  const auto& a = v.attrs.as<RoiAttrs>();
  ReductionForm f;
  f.combine = combine;
  const Expr most = a.samples > 0 ? Expr(a.samples) : a.most;
  f.extents = {most, most};
  return f;
}
/// One axis of a region: where it starts, the size of its bins, and how many samples each has.
struct RoiAxis {
  Expr from, size, samples;
};
RoiAxis roi_axis(const RoiAttrs& a, const Expr& start, const Expr& stop, int64_t bins) {
  const auto number = [&](double x) { return number_like(start, x); };
  const Expr shift = number(a.half_pixel ? 0.5 : 0);
  const Expr from = start * number(a.scale) - shift, to = stop * number(a.scale) - shift;
  const Expr length = a.half_pixel ? to - from : max(to - from, number(1));
  const Expr size = length / number(static_cast<double>(bins));
  return {from, size, a.samples > 0 ? number(static_cast<double>(a.samples)) : call(Fn::Ceil, size)};
}
struct Side {
  Expr low, high, weight,
      inside;  // of one axis: two whole positions, the weight of the second, whether it is in the image
  Expr counts;  // whether the region has such a sample
};
/// Where sample `tap` of bin `bin` is along one axis; `first` and `last` are the roi's columns of that axis.
Side roi_side(const OpView& v, const Index& out, int64_t first, int64_t last, const Expr& bin, int64_t bins, const Expr& tap, const Expr& dim) {
  const auto& a = v.attrs.as<RoiAttrs>();
  const Expr start = v.read(1, {out[0], first}), stop = v.read(1, {out[0], last});
  const auto number = [&](double x) { return number_like(start, x); };
  const RoiAxis r = roi_axis(a, start, stop, bins);
  const Expr end = cast(start.type(), dim), step = cast(start.type(), tap);
  Expr at = r.from + cast(start.type(), bin) * r.size + (step + number(0.5)) * r.size / r.samples;
  Side s;
  s.inside = logical_and(le(number(-1), at), le(at, end));
  s.counts = a.samples == 0 ? lt(step, r.samples) : Expr::boolean(true);
  at = max(number(0), min(at, end - number(1)));
  const Expr floor = call(Fn::Floor, at);
  s.low = cast(DType::I64, floor);
  s.high = min(s.low + 1, dim - 1);
  s.weight = at - floor;
  return s;
}
Expr roi_value(const OpView& v, const Index& out, const Index& taps) {
  const auto& a = v.attrs.as<RoiAttrs>();
  const Shape& x = v.inputs[0].shape;
  const Side y = roi_side(v, out, 1, 3, out[2], a.height, taps[0], x[2]), h = roi_side(v, out, 0, 2, out[3], a.width, taps[1], x[3]);
  const Expr image = max(0, min(cast(DType::I64, v.read(2, {out[0]})), x[0] - 1));
  auto term = [&](const Expr& row, const Expr& wy, const Expr& column, const Expr& wx) {
    const Expr e = v.read(0, {image, out[1], row, column});
    return e * cast(e.type(), wy * wx);
  };
  const Expr one = one_of(y.weight);
  const Expr p[] = {term(y.low, one - y.weight, h.low, one - h.weight), term(y.low, one - y.weight, h.high, h.weight),
                    term(y.high, y.weight, h.low, one - h.weight), term(y.high, y.weight, h.high, h.weight)};
  const Expr sum = a.is_max ? max(max(p[0], p[1]), max(p[2], p[3])) : p[0] + p[1] + p[2] + p[3];
  const Expr sample = select(logical_and(y.inside, h.inside), sum, zero_of(sum));
  return select(logical_and(y.counts, h.counts), sample,
                identity_of(a.is_max ? Combine::Max : Combine::Sum, sum.type()));
}
Expr roi_average(const OpView& v, const Index& out, const Expr& acc) {
  const auto& a = v.attrs.as<RoiAttrs>();
  const auto samples = [&](int64_t first, int64_t last, int64_t bins) {
    return roi_axis(a, v.read(1, {out[0], first}), v.read(1, {out[0], last}), bins).samples;
  };
  const Expr count = samples(1, 3, a.height) * samples(0, 2, a.width);
  return acc / cast(acc.type(), max(count, number_like(count, 1)));
}
/// The most samples that any region takes along an axis: read back, since it bounds a loop.
struct RoiSamples {
  static Result<Types> infer(const OpView& v) { return Types{{DType::I64, {v.inputs[0].shape[0], 2}}}; }
  static Expr element(const OpView& v, const Index& out) {
    const auto& a = v.attrs.as<RoiAttrs>();
    const auto samples = [&](int64_t first, int64_t last, int64_t bins) {
      return cast(DType::I64, roi_axis(a, v.read(0, {out[0], first}), v.read(0, {out[0], last}), bins).samples);
    };
    return select(eq(out[1], 0), samples(1, 3, a.height), samples(0, 2, a.width));
  }
};
Status bound_samples(ImportContext& c, RoiAttrs& a) {
  Compose g(c.builder);
  const ValueId all = g.node("RoiSamples", a, {c.in(1)});
  const ValueId most = g.binary("Max", g.reduce("ReduceMax", all, {0, 1}, false), g.scalar(DType::I64, 1));
  INGOT_TRY(g.result({most}));
  const Content content = c.builder.demand_content(most);
  INGOT_CHECK(content != nullptr, "a maximum is no scalar");
  a.most = c.builder.dimension(content->front());
  return {};
}
Result<Values> import_roi_align(ImportContext& c) {
  RoiAttrs a;
  a.height = INGOT_TRY(c.node.int_or("output_height", 1)), a.width = INGOT_TRY(c.node.int_or("output_width", 1));
  a.samples = INGOT_TRY(c.node.int_or("sampling_ratio", 0));
  a.scale = INGOT_TRY(c.node.float_or("spatial_scale", 1));
  a.half_pixel = INGOT_TRY(c.node.string_or("coordinate_transformation_mode", c.node.opset < 16 ? "output_half_pixel" : "half_pixel")) == "half_pixel";
  a.is_max = INGOT_TRY(c.node.string_or("mode", "avg")) == "max";
  if (a.samples < 0) return invalid("a negative sampling_ratio");
  if (c.rank(0) != 4 || c.rank(1) != 2) return invalid("needs an image of rank 4 and regions of rank 2");
  if (a.samples == 0) INGOT_TRY(bound_samples(c, a));
  return one(c.builder.add(op(a.is_max ? "RoiMax" : "RoiAverage"), a, {c.in(0), c.in(1), c.in(2)}));
}

// ---- DeformConv ----------------------------------------------------------------------------------------------------------
struct DeformAttrs {
  std::vector<int64_t> kernel, strides, dilations;
  std::vector<Expr> begins, ends;
  int64_t groups = 1, offset_groups = 1;
  INGOT_FIELDS(kernel, strides, dilations, begins, ends, groups, offset_groups)
  SpatialAttrs spatial() const { return {kernel, strides, dilations, begins, ends, false}; }
};
// Inputs: x, weight, offset, mask (may be omitted).
Result<Types> infer_deform(const OpView& v) {
  const auto& a = v.attrs.as<DeformAttrs>();
  const Shape& x = v.inputs[0].shape;
  Shape out{x[0], v.inputs[1].shape[0]};
  for (size_t d = 0; d < 2; ++d) out.push_back(pooled_extent(a.spatial(), d, x[d + 2], false));
  return Types{{v.inputs[0].dtype, out}};
}
ReductionForm deform_form(const OpView& v) {
  const auto& a = v.attrs.as<DeformAttrs>();
  ReductionForm f;
  f.extents = {v.inputs[1].shape[1], a.kernel[0], a.kernel[1]};
  return f;
}
Expr deform_value(const OpView& v, const Index& out, const Index& r) {
  const auto& a = v.attrs.as<DeformAttrs>();
  const Shape &x = v.inputs[0].shape, &w = v.inputs[1].shape;
  const Expr group = simplify(floor_div(out[1], floor_div(w[0], a.groups))), channel = simplify(group * w[1] + r[0]);
  const Expr offset_group = simplify(floor_div(channel, floor_div(x[1], a.offset_groups)));
  const int64_t taps = a.kernel[0] * a.kernel[1];
  const Expr tap = r[1] * a.kernel[1] + r[2];
  std::vector<Expr> at;
  for (size_t d = 0; d < 2; ++d) {
    const Expr offset = v.read(2, {out[0], simplify((offset_group * taps + tap) * 2 + static_cast<int64_t>(d)), out[2], out[3]});
    at.push_back(offset + cast(offset.type(), simplify(out[d + 2] * a.strides[d] + r[d + 1] * a.dilations[d] - a.begins[d])));
  }
  const Expr y0 = call(Fn::Floor, at[0]), x0 = call(Fn::Floor, at[1]), ty = at[0] - y0, tx = at[1] - x0, one = one_of(ty);
  auto corner = [&](int64_t dy, int64_t dx, const Expr& weight) {
    // Far outside, the conversion to an integer would overflow.
    const auto whole = [&](const Expr& e, const Expr& dim) { return cast(DType::I64, max(number_like(e, -2), min(e, cast(e.type(), dim + 1)))); };
    const Expr row = whole(y0, x[2]) + dy, column = whole(x0, x[3]) + dx;
    const Expr inside = logical_and(logical_and(le(0, row), lt(row, x[2])), logical_and(le(0, column), lt(column, x[3])));
    const Expr e = v.read(0, {out[0], channel, max(0, min(row, x[2] - 1)), max(0, min(column, x[3] - 1))});
    return select(inside, e, zero_of(e)) * cast(e.type(), weight);
  };
  Expr sum = corner(0, 0, (one - ty) * (one - tx)) + corner(0, 1, (one - ty) * tx) + corner(1, 0, ty * (one - tx)) + corner(1, 1, ty * tx);
  if (v.has(3)) sum = sum * v.read(3, {out[0], simplify(offset_group * taps + tap), out[2], out[3]});
  return sum * v.read(1, {out[1], r[0], r[1], r[2]});
}
Result<Values> import_deform(ImportContext& c) {
  const Shape x = c.type(0).shape, w = c.type(1).shape;
  if (x.size() != 4 || w.size() != 4) return unsupported("other than two spatial dimensions");
  if (!w[2].as_int() || !w[3].as_int()) return unsupported("a weight with dynamic kernel size");
  const SpatialAttrs s = INGOT_TRY(read_spatial(c, {x[2], x[3]}, {*w[2].as_int(), *w[3].as_int()}));
  DeformAttrs a{s.kernel, s.strides, s.dilations, s.begins, s.ends};
  a.groups = INGOT_TRY(c.node.int_or("group", 1)), a.offset_groups = INGOT_TRY(c.node.int_or("offset_group", 1));
  if (a.groups < 1 || a.offset_groups < 1) return invalid("groups must be positive");
  Compose g(c.builder);
  std::vector<ValueId> in{c.in(0), c.in(1), c.in(2)};
  if (c.has(4)) in.push_back(c.in(4));
  ValueId y = g.node("DeformConv", a, in);
  if (c.has(3)) y = g.add(y, g.reshape(c.in(3), {c.type(3).shape[0], 1, 1}));
  return g.result({y});
}

// ---- CenterCropPad, Det --------------------------------------------------------------------------------------------------
Result<Values> import_crop_pad(ImportContext& c) {
  const auto target = INGOT_TRY(c.content(1));
  std::vector<int64_t> all;
  for (size_t d = 0; d < target.size(); ++d) all.push_back(static_cast<int64_t>(d));
  auto axes = INGOT_TRY(c.node.ints_or("axes", all));
  if (axes.size() != target.size()) return invalid("axes and shape differ in length");
  const Shape in = c.type(0).shape;
  std::vector<Expr> begins(in.size(), Expr(0)), ends = begins;
  for (size_t i = 0; i < axes.size(); ++i) {
    const auto d = static_cast<size_t>(INGOT_TRY(wrap_axis(axes[i], in.size())));
    const Expr want = cast(DType::I64, target[i]), more = want - in[d], less = in[d] - want;
    begins[d] = select(lt(want, in[d]), Expr(0) - floor_div(less, 2), floor_div(more, 2));
    ends[d] = more - begins[d];
  }
  return one(build_pad(c.builder, c.in(0), std::move(begins), std::move(ends)));
}

constexpr int64_t kMostRows = 6;  // minors double with every row
Result<Types> infer_det(const OpView& v) {
  const Shape& s = v.inputs[0].shape;
  if (s.size() < 2) return invalid("needs rank 2 or more");
  const auto m = s.back().as_int(), n = s[s.size() - 2].as_int();
  if (!m || !n || *m > kMostRows) return unsupported(fmt::format("matrices larger than {0}x{0} or of dynamic size", kMostRows));
  if (*m != *n) return invalid("the matrices are not square");
  return Types{{v.inputs[0].dtype, Shape(s.begin(), s.end() - 2)}};
}
/// Expansion along the rows; `columns` is a set of bits, each minor is made once.
Expr minor_of(const OpView& v, const Index& out, int64_t row, int64_t size, unsigned columns, std::map<unsigned, Expr>& known) {
  if (row == size) return Expr::number(compute_type(v.inputs[0].dtype), 1);
  if (auto it = known.find(columns); it != known.end()) return it->second;
  Expr sum;
  int sign = 0;
  for (int64_t c = 0; c < size; ++c) {
    if (!(columns & (1U << c))) continue;
    Index at = out;
    at.push_back(row), at.push_back(c);
    const Expr term = v.read(0, at) * minor_of(v, out, row + 1, size, columns & ~(1U << c), known);
    sum = !sum.valid() ? term : sign % 2 ? sum - term : sum + term;
    ++sign;
  }
  return known[columns] = sum;
}
Expr det_element(const OpView& v, const Index& out) {
  const int64_t size = *v.inputs[0].shape.back().as_int();
  std::map<unsigned, Expr> known;
  return minor_of(v, out, 0, size, (1U << size) - 1, known);
}
Result<Values> import_det(ImportContext& c) { return one(c.builder.add(op("Det"), {c.in(0)})); }

const OpDef kVision[] = {
    import_row("RoiAlign", "with a fixed sampling_ratio", kRules<import_roi_align, 10, 16, 22>, 3, 3),
    lowered_row<RoiAttrs>("RoiSamples", "samples of each region along either axis; internal", {}, RoiSamples::infer,
                          Element{RoiSamples::element}, 1, 1),
    lowered_row<RoiAttrs>("RoiAverage", "internal", {}, infer_roi,
                          Reduction{roi_form<Combine::Sum>, roi_value, roi_average}, 3, 3),
    lowered_row<RoiAttrs>("RoiMax", "internal", {}, infer_roi, Reduction{roi_form<Combine::Max>, roi_value}, 3, 3),
    lowered_row<DeformAttrs>("DeformConv", "two spatial dimensions", kRules<import_deform, 19, 22>, infer_deform,
                             Reduction{deform_form, deform_value}, 3, 5),
    import_row("CenterCropPad", "Pad", kRules<import_crop_pad, 18>, 2, 2),
    lowered_row<void>("Det", "up to 6x6", kRules<import_det, 11, 22>, infer_det, Element{det_element}, 1, 1),
};

}  // namespace

std::span<const OpDef> vision_ops() { return kVision; }

}  // namespace ingot
