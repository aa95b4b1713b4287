// Quantisation: QuantizeLinear, DequantizeLinear and the operators on quantised integers. Products of quantised operands
// accumulate in i32; scales apply in f32.
#include <fmt/format.h>

#include "compiler/expr/simplify.h"
#include "compiler/ops/compose.h"

namespace ingot {
namespace {

using Types = std::vector<TensorType>;

// ---- the scalar step ---------------------------------------------------------------------------------------------------
struct Limits {
  double low, high;
};
Limits limits_of(DType type) {
  switch (type) {
    case DType::I4: return {-8, 7};
    case DType::U4: return {0, 15};
    case DType::I8: return {-128, 127};
    case DType::U8: return {0, 255};
    case DType::I16: return {-32768, 32767};
    case DType::U16: return {0, 65535};
    case DType::I2: return {-2, 1};
    case DType::U2: return {0, 3};
    default: break;
  }
  const SmallFloat* f = small_float(type);
  return f ? Limits{-f->largest, f->largest} : Limits{0, 0};
}
Result<Types> infer_quantize(const OpView& v) {
  const DType to = v.attrs.as<CastAttrs>().to;
  if (limits_of(to).high == 0) return unsupported(fmt::format("quantisation to {}", name_of(to)));
  return Types{{to, INGOT_TRY(broadcast(v.inputs[0].shape, v.inputs[1].shape))}};
}
/// saturate(round(x / scale) + zero_point), all in the type of x; a NaN stays one for fp8 and is 0 for integers.
Expr quantize_scalar(const OpView& v, std::span<const Expr> x) {
  const auto& a = v.attrs.as<CastAttrs>();
  const DType to = a.to;
  const auto [low, high] = limits_of(to);
  Expr q = x[0] / x[1];
  if (is_float(to)) return cast_to_small_float(to, q, a.saturate);
  q = call(Fn::Round, q);
  if (v.has(2)) q = q + cast(q.type(), x[2]);
  if (compute_type(to) == to) return cast(to, q);  // it saturates, and makes 0 of a NaN
  const Expr bounded = max(number_like(q, low), min(number_like(q, high), q));
  return cast(compute_type(to), select(ne(q, q), zero_of(q), bounded));
}

// ---- scales along an axis or in blocks ---------------------------------------------------------------------------------
/// `p` (scale or zero point) in a shape that broadcasts against x.
ValueId spread(Compose& g, ValueId p, const Shape& x, int64_t axis, int64_t block) {
  if (g.failed() || !p.valid() || g.rank(p) == 0) return p;
  const Shape s = g.shape(p);
  const auto at = static_cast<size_t>(axis);
  if (block > 0) {
    if (s.size() != x.size()) return g.fail(invalid("a blocked scale needs the rank of the input"));
    Shape apart = s, repeated = s, together = s;
    apart.insert(apart.begin() + axis + 1, 1);
    repeated.insert(repeated.begin() + axis + 1, block);
    together[at] = simplify(s[at] * block);
    const ValueId all = g.reshape(g.expand(g.reshape(p, apart), repeated), together);
    return proves_equal(together[at], x[at]) ? all : g.slice(all, at, 0, x[at]);
  }
  if (s.size() != 1) return g.fail(invalid("a scale of rank 2 or more needs block_size"));
  if (s[0].is_const(1)) return g.reshape(p, {});
  Shape per_axis(x.size(), 1);
  if (at >= x.size()) return g.fail(invalid("axis is out of range"));
  per_axis[at] = s[0];
  return g.reshape(p, per_axis);
}
struct Layout {
  int64_t axis = 0, block = 0;
};
Result<Layout> read_layout(ImportContext& c) {
  Layout l;
  l.block = INGOT_TRY(c.node.int_or("block_size", 0));
  if (c.rank(1) == 0) return l;
  const int64_t axis = INGOT_TRY(c.node.int_or("axis", 1));
  // A single scale ignores the axis, which may then be out of range.
  if (c.rank(1) == 1 && c.type(1).shape[0].is_const(1) && l.block == 0) return l;
  l.axis = INGOT_TRY(wrap_axis(axis, c.rank(0)));
  return l;
}
ValueId quantize(Compose& g, ValueId x, ValueId scale, ValueId zero, DType to, bool saturate = true) {
  x = g.widen(x);
  scale = g.cast(g.widen(scale), g.dtype(x));
  std::vector<ValueId> in{x, scale};
  if (zero.valid()) in.push_back(zero);
  return g.node("QuantizeTo", CastAttrs{to, saturate}, in);
}
Result<Values> import_quantize(ImportContext& c) {
  Compose g(c.builder);
  const Layout l = INGOT_TRY(read_layout(c));
  const int64_t number = INGOT_TRY(c.node.int_or("output_dtype", 0));
  const DType to = number ? INGOT_TRY(dtype_from_onnx(number)) : c.has(2) ? c.type(2).dtype : DType::U8;
  if (c.has(2) && c.type(2).dtype != to) return invalid("output_dtype differs from the zero point's type");
  const bool small = is_float(to);
  const bool saturate = INGOT_TRY(c.node.int_or("saturate", 1)) != 0;
  const Shape s = c.type(0).shape;
  ValueId x = c.in(0);
  if (g.dtype(x) == DType::I32) x = g.cast(x, DType::F32);
  const ValueId zero = c.has(2) && !small ? spread(g, c.in(2), s, l.axis, l.block) : ValueId();
  return g.result({quantize(g, x, spread(g, c.in(1), s, l.axis, l.block), zero, to, saturate)});
}
Result<Values> import_dequantize(ImportContext& c) {
  Compose g(c.builder);
  const Layout l = INGOT_TRY(read_layout(c));
  const DType type = c.type(1).dtype;
  const int64_t number = INGOT_TRY(c.node.int_or("output_dtype", 0));
  const DType to = number ? INGOT_TRY(dtype_from_onnx(number)) : type;
  const Shape s = c.type(0).shape;
  const bool small = is_float(c.type(0).dtype);
  ValueId x = small ? g.widen(c.in(0)) : g.cast(c.in(0), DType::I32);
  const ValueId scale = g.widen(spread(g, c.in(1), s, l.axis, l.block));
  if (c.has(2) && !small) x = g.sub(x, g.cast(spread(g, c.in(2), s, l.axis, l.block), DType::I32));
  return g.result({g.cast(g.mul(g.cast(x, g.dtype(scale)), scale), to)});
}

Result<Values> import_dynamic_quantize(ImportContext& c) {
  Compose g(c.builder);
  const ValueId x = c.in(0), zero = g.scalar(DType::F32, 0);
  std::vector<int64_t> axes;
  for (size_t d = 0; d < c.rank(0); ++d) axes.push_back(static_cast<int64_t>(d));
  ValueId low = x, high = x;
  if (!axes.empty()) low = g.reduce("ReduceMin", x, axes, false), high = g.reduce("ReduceMax", x, axes, false);
  low = g.binary("Min", low, zero), high = g.binary("Max", high, zero);
  const ValueId range = g.sub(high, low);
  // All zero: any scale is right.
  const ValueId scale = g.where(g.binary("Equal", range, zero), g.scalar(DType::F32, 1), g.binary("Div", range, 255));
  const ValueId point = quantize(g, g.unary("Neg", low), scale, {}, DType::U8);
  return g.result({quantize(g, x, scale, point, DType::U8), scale, point});
}

// ---- products ----------------------------------------------------------------------------------------------------------
/// x - zero_point as i32.
ValueId centred(Compose& g, ValueId x, ValueId zero) {
  x = g.cast(x, DType::I32);
  return zero.valid() ? g.sub(x, g.cast(zero, DType::I32)) : x;
}
/// A zero point or scale of the left operand: one entry a row.
ValueId by_row(Compose& g, ValueId p, size_t rank) {
  if (g.failed() || !p.valid() || g.rank(p) != 1 || g.shape(p)[0].is_const(1)) return p;
  return rank < 2 ? p : g.reshape(p, {g.shape(p)[0], 1});
}
ValueId product(Compose& g, ValueId a, ValueId b) {
  if (g.failed()) return a;
  return g.take(build_matmul(g.builder(), a, b));
}
Result<Values> import_matmul_integer(ImportContext& c) {
  Compose g(c.builder);
  const ValueId a = centred(g, c.in(0), by_row(g, c.in(2), c.rank(0)));
  return g.result({product(g, a, centred(g, c.in(1), c.in(3)))});
}
/// a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero.
Result<Values> import_qlinear_matmul(ImportContext& c) {
  Compose g(c.builder);
  const size_t rank = c.rank(0);
  const ValueId a = centred(g, c.in(0), by_row(g, c.in(2), rank)), b = centred(g, c.in(3), c.in(5));
  const ValueId y = g.cast(product(g, a, b), DType::F32);
  const ValueId scale = g.mul(g.cast(by_row(g, c.in(1), rank), DType::F32), g.cast(c.in(4), DType::F32));
  return g.result({quantize(g, g.mul(y, scale), c.in(6), c.in(7), c.type(7).dtype)});
}
/// A per-channel value as [C, 1, …].
ValueId per_channel(Compose& g, ValueId p, size_t rank) {
  if (g.failed() || !p.valid() || g.rank(p) == 0) return p;
  if (g.shape(p)[0].is_const(1)) return g.reshape(p, {});
  Shape s(rank - 1, 1);
  s[0] = g.shape(p)[0];
  return g.reshape(p, s);
}
/// The zero point of a convolution weight [M, C, …]: one entry an output channel.
ValueId per_filter(Compose& g, ValueId p, size_t rank) {
  if (g.failed() || !p.valid() || g.rank(p) == 0) return p;
  if (g.shape(p)[0].is_const(1)) return g.reshape(p, {});
  Shape s(rank, 1);
  s[0] = g.shape(p)[0];
  return g.reshape(p, s);
}
ValueId scalar_of(Compose& g, ValueId p) { return g.failed() || !p.valid() || g.rank(p) == 0 ? p : g.reshape(p, {}); }

Result<Values> import_conv_integer(ImportContext& c) {
  Compose g(c.builder);
  const ValueId x = centred(g, c.in(0), scalar_of(g, c.in(2))), w = centred(g, c.in(1), per_filter(g, c.in(3), c.rank(1)));
  if (g.failed()) return g.result({});
  return one(build_conv(c, x, w));
}
/// x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, B.
Result<Values> import_qlinear_conv(ImportContext& c) {
  Compose g(c.builder);
  const size_t rank = c.rank(0);
  const ValueId x = centred(g, c.in(0), scalar_of(g, c.in(2))), w = centred(g, c.in(3), per_filter(g, c.in(5), rank));
  if (g.failed()) return g.result({});
  ValueId y = INGOT_TRY(build_conv(c, x, w));
  if (c.has(8)) y = g.add(y, per_channel(g, c.in(8), rank));
  const ValueId scale = g.mul(scalar_of(g, c.in(1)), per_channel(g, c.in(4), rank));
  y = g.mul(g.cast(y, DType::F32), scale);
  return g.result({quantize(g, y, scalar_of(g, c.in(6)), scalar_of(g, c.in(7)), c.type(7).dtype)});
}

constexpr OpDef quantize_row() {
  return lowered_row<CastAttrs>("QuantizeTo", "saturate(round(x / scale) + zero point); internal", {}, infer_quantize,
                                Pointwise{quantize_scalar}, 2, 3);
}
const OpDef kQuantize[] = {
    quantize_row(),
    import_row("QuantizeLinear", "to integers of 2 to 16 bits, fp8 and fp4; per tensor, axis or block",
               kRules<import_quantize, 10, 13, 19, 21, 23, 24, 25>, 2, 3),
    import_row("DequantizeLinear", "", kRules<import_dequantize, 10, 13, 19, 21, 23, 24, 25>, 2, 3),
    import_row("DynamicQuantizeLinear", "", kRules<import_dynamic_quantize, 11>, 1, 1),
    import_row("MatMulInteger", "accumulates in i32", kRules<import_matmul_integer, 10>, 2, 4),
    import_row("QLinearMatMul", "accumulates in i32", kRules<import_qlinear_matmul, 10, 21>, 8, 8),
    import_row("ConvInteger", "accumulates in i32", kRules<import_conv_integer, 10>, 2, 4),
    import_row("QLinearConv", "accumulates in i32", kRules<import_qlinear_conv, 10>, 8, 9),
};

}  // namespace

std::span<const OpDef> quantize_ops() { return kQuantize; }

}  // namespace ingot
