// MatMul, Conv and ConvTranspose: sums over k of a product. A convolution reads its windows through index maps (implicit
// GEMM), so no im2col buffer exists.
#include <fmt/format.h>

#include "compiler/expr/simplify.h"
#include "compiler/ops/spatial.h"

namespace ingot {
namespace {

using Types = std::vector<TensorType>;

// ---- MatMul --------------------------------------------------------------------------------------------------------------
// Operands have rank 2 or more here; 1-D ones are reshaped on import.
Result<Types> infer_matmul(const OpView& v) {
  const Shape &a = v.inputs[0].shape, &b = v.inputs[1].shape;
  if (v.inputs[0].dtype != v.inputs[1].dtype) return invalid("operands of different types");
  const Expr &ka = a.back(), &kb = b[b.size() - 2];
  if (ka.is_const() && kb.is_const() && !ka.same(kb))
    return invalid(fmt::format("inner dimensions differ: {} and {}", to_string(ka), to_string(kb)));
  Shape out = INGOT_TRY(broadcast(Shape(a.begin(), a.end() - 2), Shape(b.begin(), b.end() - 2)));
  out.push_back(a[a.size() - 2]);
  out.push_back(b.back());
  return Types{{v.inputs[0].dtype, out}};
}
ContractionForm matmul_form(const OpView& v) {
  const Shape &a = v.inputs[0].shape, &b = v.inputs[1].shape, &out = v.outputs[0].shape;
  ContractionForm f;
  const size_t lead = out.size() - 2;
  const bool shared_b = b.size() == 2;  // one weight for all: the batch is more rows
  Index batch;
  for (size_t i = 0; i < lead; ++i) {
    batch.push_back(Expr::index("b" + std::to_string(i), out[i]));
    (shared_b ? f.m : f.batch).push_back(batch.back());
  }
  const Expr m = Expr::index("m", out[lead]), n = Expr::index("n", out[lead + 1]);
  const Expr k = Expr::index("k", a.back().is_const() ? a.back() : b[b.size() - 2]);
  f.m.push_back(m);
  f.n = {n};
  f.k = {k};
  auto operand = [&](size_t input, const Shape& s, Expr row, Expr col) {
    Index index = broadcast_index(Shape(s.begin(), s.end() - 2), batch);
    index.push_back(std::move(row));
    index.push_back(std::move(col));
    return v.read(input, index);
  };
  f.a = operand(0, a, m, k);
  f.b = operand(1, b, k, n);
  f.out = batch;
  f.out.push_back(m);
  f.out.push_back(n);
  return f;
}
Result<Values> import_matmul(ImportContext& c) { return one(build_matmul(c.builder, c.in(0), c.in(1))); }
Result<Values> import_gemm(ImportContext& c) {
  GraphBuilder& g = c.builder;
  if (c.rank(0) != 2 || c.rank(1) != 2) return invalid("Gemm needs matrices");
  ValueId a = c.in(0), b = c.in(1);
  if (INGOT_TRY(c.node.int_or("transA", 0))) a = INGOT_TRY(build_transpose(g, a, {1, 0}));
  if (INGOT_TRY(c.node.int_or("transB", 0))) b = INGOT_TRY(build_transpose(g, b, {1, 0}));
  ValueId y = INGOT_TRY(build_binary(g, "MatMul", a, b));
  const double alpha = INGOT_TRY(c.node.float_or("alpha", 1)), beta = INGOT_TRY(c.node.float_or("beta", 1));
  if (alpha != 1) y = INGOT_TRY(build_scalar(g, "Mul", y, alpha));
  if (!c.has(2) || beta == 0) return Values{y};
  ValueId bias = c.in(2);
  if (beta != 1) bias = INGOT_TRY(build_scalar(g, "Mul", bias, beta));
  return one(build_binary(g, "Add", y, bias));
}

// ---- Conv ----------------------------------------------------------------------------------------------------------------
ConvAttrs conv_attrs(int64_t groups, SpatialAttrs s) {
  return {groups, std::move(s.kernel), std::move(s.strides), std::move(s.dilations), std::move(s.begins), std::move(s.ends), s.same};
}
Result<Types> infer_conv(const OpView& v) {
  const auto& a = v.attrs.as<ConvAttrs>();
  const Shape &x = v.inputs[0].shape, &w = v.inputs[1].shape;
  if (v.inputs[0].dtype != v.inputs[1].dtype) return invalid("input and weight of different types");
  if (x[1].is_const() && w[1].is_const() && x[1].int_value() != w[1].int_value() * a.groups)
    return invalid(fmt::format("{} input channels, but the weight has {} in each of {} groups", to_string(x[1]), to_string(w[1]), a.groups));
  if (w[0].is_const() && w[0].int_value() % a.groups != 0) return invalid("output channels are not a multiple of the groups");
  Shape out{x[0], w[0]};
  for (size_t d = 0; d + 2 < x.size(); ++d) out.push_back(pooled_extent(a.spatial(), d, x[d + 2], false));
  return Types{{v.inputs[0].dtype, out}};
}
/// The input index of a window position and whether it is inside; `inside` is ANDed.
Expr window_position(const SpatialAttrs& a, size_t d, const Expr& out, const Expr& tap, const Expr& dim, Expr& inside) {
  const Expr x = simplify(out * a.strides[d] + tap * a.dilations[d] - a.begins[d]);
  if (!stays_inside(a, d)) inside = logical_and(inside, simplify(logical_and(le(0, x), lt(x, dim))));
  return x;
}
/// Spatial positions as axes, merged into one when the window is a single tap that walks the input in order.
struct Pixels {
  std::vector<Expr> axes;
  Index out;
};
Pixels pixel_axes(const SpatialAttrs& a, const Shape& out_spatial) {
  Pixels p;
  bool pointwise = out_spatial.size() > 1;
  for (size_t d = 0; d < out_spatial.size(); ++d) pointwise &= a.kernel[d] == 1 && a.strides[d] == 1 && stays_inside(a, d);
  if (pointwise) {
    p.axes = {Expr::index("p", element_count(out_spatial))};
    p.out = delinearize(out_spatial, p.axes[0]);
    return p;
  }
  for (size_t d = 0; d < out_spatial.size(); ++d) p.axes.push_back(Expr::index("o" + std::to_string(d), out_spatial[d]));
  p.out = p.axes;
  return p;
}
/// True when an image has so few pixels that images are better laid side by side along n.
bool few_pixels(const Shape& spatial) {
  const auto count = element_count(spatial).as_int();
  return count && *count < 64;
}
ContractionForm conv_form(const OpView& v) {
  const auto& attrs = v.attrs.as<ConvAttrs>();
  const SpatialAttrs a = attrs.spatial();
  const Shape &x = v.inputs[0].shape, &w = v.inputs[1].shape, &y = v.outputs[0].shape;
  const Shape spatial(y.begin() + 2, y.end());
  ContractionForm f;
  f.a_input = 1, f.b_input = 0;
  const Expr image = Expr::index("image", y[0]), g = Expr::index("g", attrs.groups);
  const Expr per_group = simplify(floor_div(y[1], attrs.groups)), in_group = w[1];
  const Pixels pixels = pixel_axes(a, spatial);
  const bool many = attrs.groups > 1;
  (few_pixels(spatial) ? f.n : f.batch).push_back(image);
  if (many) f.batch.push_back(g);
  f.m = {Expr::index("m", per_group)};
  f.n.insert(f.n.end(), pixels.axes.begin(), pixels.axes.end());
  f.k = {Expr::index("c", in_group)};
  Expr inside = Expr::boolean(true);
  const Expr out_channel = many ? g * per_group + f.m[0] : f.m[0];
  Index read{image, many ? g * in_group + f.k[0] : f.k[0]}, weight{out_channel, f.k[0]};
  for (size_t d = 0; d < spatial.size(); ++d) {
    const bool single = a.kernel[d] == 1;
    const Expr tap = single ? Expr(0) : Expr::index("t" + std::to_string(d), a.kernel[d]);
    if (!single) f.k.push_back(tap);
    weight.push_back(tap);
    read.push_back(window_position(a, d, pixels.out[d], tap, x[d + 2], inside));
  }
  f.a = v.read(1, weight);
  f.b = select(inside, v.read(0, read), Expr::number(v.inputs[0].dtype, 0));
  f.out = {image, out_channel};
  f.out.insert(f.out.end(), pixels.out.begin(), pixels.out.end());
  return f;
}

// One input channel a group: a window reduction at memory speed, not a product.
ReductionForm depthwise_form(const OpView& v) {
  ReductionForm f;
  for (int64_t k : v.attrs.as<ConvAttrs>().kernel) f.extents.emplace_back(k);
  return f;
}
Expr depthwise_value(const OpView& v, const Index& out, const Index& taps) {
  const auto& attrs = v.attrs.as<ConvAttrs>();
  const SpatialAttrs a = attrs.spatial();
  const Shape& x = v.inputs[0].shape;
  const Expr multiplier = simplify(floor_div(v.outputs[0].shape[1], attrs.groups));
  Index read{out[0], simplify(floor_div(out[1], multiplier))}, weight{out[1], 0};
  Expr inside = Expr::boolean(true);
  for (size_t d = 0; d < taps.size(); ++d) {
    weight.push_back(taps[d]);
    read.push_back(window_position(a, d, out[d + 2], taps[d], x[d + 2], inside));
  }
  const Expr element = v.read(0, read);
  return select(inside, element, zero_of(element)) * v.read(1, weight);
}

Result<ValueId> add_channel_bias(GraphBuilder& b, ValueId y, ValueId bias) {
  Shape s{b.shape(bias)[0]};
  for (size_t d = 2; d < b.shape(y).size(); ++d) s.push_back(1);
  return build_binary(b, "Add", y, INGOT_TRY(build_reshape(b, bias, s)));
}
Result<std::vector<int64_t>> kernel_of(const Shape& weight) {
  std::vector<int64_t> kernel;
  for (size_t d = 2; d < weight.size(); ++d) {
    if (!weight[d].as_int()) return unsupported("a weight with dynamic kernel size");
    kernel.push_back(*weight[d].as_int());
  }
  return kernel;
}
Result<Values> import_conv(ImportContext& c) {
  ValueId y = INGOT_TRY(build_conv(c, c.in(0), c.in(1)));
  if (c.has(2)) y = INGOT_TRY(add_channel_bias(c.builder, y, c.in(2)));
  return Values{y};
}

// ---- ConvTranspose -------------------------------------------------------------------------------------------------------
Result<Types> infer_conv_transpose(const OpView& v) {
  const auto& a = v.attrs.as<ConvTransposeAttrs>();
  if (v.inputs[0].shape[1].is_const() && v.inputs[1].shape[0].is_const() && !v.inputs[0].shape[1].same(v.inputs[1].shape[0]))
    return invalid("input channels differ from the weight's");
  Shape out{v.inputs[0].shape[0], v.inputs[1].shape[1] * a.groups};
  out.insert(out.end(), a.sizes.begin(), a.sizes.end());
  return Types{{v.inputs[0].dtype, out}};
}
/// When windows neither overlap nor leave gaps, every input pixel makes its own block of outputs.
bool tiles_exactly(const OpView& v) {
  const auto& a = v.attrs.as<ConvTransposeAttrs>();
  for (size_t d = 0; d < a.kernel.size(); ++d) {
    const Expr full = v.inputs[0].shape[d + 2] * a.strides[d];
    if (a.kernel[d] != a.strides[d] || a.dilations[d] != 1 || !a.begins[d].is_const(0) || !proves_equal(full, a.sizes[d])) return false;
  }
  return true;
}
ContractionForm conv_transpose_form(const OpView& v) {
  const auto& a = v.attrs.as<ConvTransposeAttrs>();
  const Shape &x = v.inputs[0].shape, &w = v.inputs[1].shape, &y = v.outputs[0].shape;
  const bool exact = tiles_exactly(v);
  ContractionForm f;
  f.a_input = 1, f.b_input = 0;
  const Expr image = Expr::index("image", y[0]), g = Expr::index("g", a.groups);
  const Expr in_group = simplify(floor_div(w[0], a.groups));
  f.batch = {image};
  if (a.groups > 1) f.batch.push_back(g);
  f.m = {Expr::index("m", w[1])};
  f.k = {Expr::index("c", in_group)};
  const Expr in_channel = a.groups > 1 ? g * in_group + f.k[0] : f.k[0];
  Index weight{in_channel, f.m[0]}, read{image, in_channel};
  f.out = {image, a.groups > 1 ? g * w[1] + f.m[0] : f.m[0]};
  Expr inside = Expr::boolean(true);
  for (size_t d = 0; d < a.kernel.size(); ++d) {
    const Expr tap = Expr::index("t" + std::to_string(d), a.kernel[d]);
    const Expr pixel = Expr::index("o" + std::to_string(d), exact ? x[d + 2] : y[d + 2]);
    weight.push_back(tap);
    f.n.push_back(pixel);
    (exact ? f.m : f.k).push_back(tap);
    if (exact) {
      read.push_back(pixel);
      f.out.push_back(pixel * a.strides[d] + tap);
      continue;
    }
    const Expr t = pixel + a.begins[d] - tap * a.dilations[d];
    const Expr source = simplify(floor_div(t, a.strides[d]));
    inside = logical_and(inside, simplify(logical_and(eq(floor_mod(t, a.strides[d]), 0), logical_and(le(0, source), lt(source, x[d + 2])))));
    read.push_back(source);
    f.out.push_back(pixel);
  }
  f.a = v.read(1, weight);
  f.b = select(inside, v.read(0, read), Expr::number(v.inputs[0].dtype, 0));
  return f;
}
Result<Values> import_conv_transpose(ImportContext& c) {
  const Shape &x = c.type(0).shape, &w = c.type(1).shape;
  if (x.size() < 3 || w.size() != x.size()) return invalid("input and weight differ in rank");
  const size_t rank = x.size() - 2;
  ConvTransposeAttrs a;
  a.groups = INGOT_TRY(c.node.int_or("group", 1));
  a.kernel = INGOT_TRY(kernel_of(w));
  a.strides = INGOT_TRY(c.node.ints_or("strides", std::vector<int64_t>(rank, 1)));
  a.dilations = INGOT_TRY(c.node.ints_or("dilations", std::vector<int64_t>(rank, 1)));
  const auto extra = INGOT_TRY(c.node.ints_or("output_padding", std::vector<int64_t>(rank, 0)));
  const auto pads = INGOT_TRY(c.node.ints_or("pads", std::vector<int64_t>(2 * rank, 0)));
  const auto shape = INGOT_TRY(c.node.ints_or("output_shape", {}));
  const std::string mode = INGOT_TRY(c.node.string_or("auto_pad", "NOTSET"));
  if (a.strides.size() != rank || a.dilations.size() != rank || extra.size() != rank || pads.size() != 2 * rank || a.groups < 1)
    return invalid("attributes do not fit the spatial dimensions");
  const bool same = mode == "SAME_UPPER" || mode == "SAME_LOWER";
  for (size_t d = 0; d < rank; ++d) {
    const Expr full = (x[d + 2] - 1) * a.strides[d] + extra[d] + (a.kernel[d] - 1) * a.dilations[d] + 1;
    if (shape.empty() && !same) {
      a.begins.emplace_back(mode == "VALID" ? 0 : pads[d]);
      a.sizes.push_back(simplify(full - (mode == "VALID" ? 0 : pads[d] + pads[d + rank])));
      continue;
    }
    const Expr size = shape.empty() ? simplify(x[d + 2] * a.strides[d]) : Expr(shape[shape.size() - rank + d]);
    const Expr total = simplify(max(full - size, 0)), half = simplify(floor_div(total, 2));
    a.sizes.push_back(size);
    a.begins.push_back(mode == "SAME_UPPER" ? half : simplify(total - half));
  }
  ValueId y = INGOT_TRY(c.builder.add(op("ConvTranspose"), a, {c.in(0), c.in(1)}));
  if (c.has(2)) y = INGOT_TRY(add_channel_bias(c.builder, y, c.in(2)));
  return Values{y};
}

template <class Attrs>
constexpr OpDef row(std::string_view name, std::string_view doc, std::span<const ImportRule> imports, InferFn infer, Lowering lower) {
  OpDef d;
  d.name = name, d.doc = doc, d.imports = imports, d.infer = infer, d.lower = lower, d.min_inputs = 2, d.max_inputs = 3;
  if constexpr (!std::is_void_v<Attrs>) d.parse_attrs = parse_attrs<Attrs>;
  return d;
}
const OpDef kContraction[] = {
    row<void>("MatMul", "", kRules<import_matmul, 1, 9, 13>, infer_matmul, Contraction{matmul_form}),
    row<void>("Gemm", "Transpose, MatMul, Mul, Add", kRules<import_gemm, 7, 9, 11, 13>, nullptr, NoLowering{}),
    row<ConvAttrs>("Conv", "1-D to 3-D and beyond, as implicit GEMM", kRules<import_conv, 1, 11, 22>, infer_conv,
                   Contraction{conv_form}),
    row<ConvAttrs>("DepthwiseConv", "Conv with one input channel a group; internal", {}, infer_conv,
                   Reduction{depthwise_form, depthwise_value}),
    row<ConvTransposeAttrs>("ConvTranspose", "gather form", kRules<import_conv_transpose, 1, 11, 22>,
                            infer_conv_transpose, Contraction{conv_transpose_form}),
};

}  // namespace

Result<ValueId> build_matmul(GraphBuilder& g, ValueId a, ValueId b) {
  const Shape sa = g.shape(a), sb = g.shape(b);
  if (sa.empty() || sb.empty()) return invalid("operands need rank 1 or more");
  if (sa.size() == 1) a = INGOT_TRY(build_reshape(g, a, {1, sa[0]}));
  if (sb.size() == 1) b = INGOT_TRY(build_reshape(g, b, {sb[0], 1}));
  ValueId y = INGOT_TRY(build_binary(g, "MatMul", a, b));
  Shape out = g.shape(y);
  if (sb.size() == 1) out.pop_back();
  if (sa.size() == 1) out.erase(out.end() - (sb.size() == 1 ? 1 : 2));
  return build_reshape(g, y, out);
}
Result<ValueId> build_conv(ImportContext& c, ValueId input, ValueId weight) {
  const Shape x = c.builder.shape(input), w = c.builder.shape(weight);
  if (x.size() < 3 || w.size() != x.size())
    return invalid(fmt::format("input has rank {}, weight has rank {}", x.size(), w.size()));
  const auto kernel = INGOT_TRY(kernel_of(w));
  if (INGOT_TRY(c.node.ints_or("kernel_shape", kernel)) != kernel) return invalid("kernel_shape differs from the weight");
  const int64_t groups = INGOT_TRY(c.node.int_or("group", 1));
  if (groups < 1) return invalid("group must be positive");
  const ConvAttrs a = conv_attrs(groups, INGOT_TRY(read_spatial(c, Shape(x.begin() + 2, x.end()), kernel)));
  const bool depthwise = w[1].is_const(1) && groups > 1;
  return c.builder.add(op(depthwise ? "DepthwiseConv" : "Conv"), a, {input, weight});
}

std::span<const OpDef> contraction_ops() { return kContraction; }

}  // namespace ingot
