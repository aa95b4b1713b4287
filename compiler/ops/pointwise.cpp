// Pointwise operators: one scalar expression each. It is the only definition: reference value, cost, CUDA text and LLVM IR
// follow from it.
#include <cmath>

#include "compiler/ops/rows.h"

namespace ingot {
namespace {

constexpr auto kFloat = infer_same<TypeClass::Floats>;
constexpr auto kAny = infer_same<TypeClass::Any>;
constexpr auto kBool = infer_same<TypeClass::Bools>;
constexpr auto kInteger = infer_same<TypeClass::Integers>;
constexpr auto kTest = infer_predicate<TypeClass::Any>;

template <Fn fn>
Expr fn_of(Expr x) { return call(fn, x); }

Expr gelu_erf(const Expr& x) {
  // 0.5*(1 + erf) comes first: x*(1 + erf) overflows f16 before the halving.
  return x * (number_like(x, 0.5) * (one_of(x) + call(Fn::Erf, x * number_like(x, M_SQRT1_2))));
}
Expr gelu_tanh(const Expr& x) {
  const Expr inner = number_like(x, std::sqrt(2.0 / M_PI)) * (x + number_like(x, 0.044715) * x * x * x);
  return x * (number_like(x, 0.5) * (one_of(x) + call(Fn::Tanh, inner)));
}
Expr softplus(const Expr& x) {  // log(1 + e^x) without overflow
  return max(x, zero_of(x)) + call(Fn::Log1p, call(Fn::Exp, -(is_float(x.type()) ? call(Fn::Abs, x) : x)));
}
Expr sign(const Expr& x) {
  return select(gt(x, zero_of(x)), one_of(x), select(lt(x, zero_of(x)), zero_of(x) - one_of(x), x));
}
Expr abs_of(const Expr& x) {
  if (is_float(x.type())) return call(Fn::Abs, x);
  return is_signed(x.type()) ? select(lt(x, zero_of(x)), zero_of(x) - x, x) : x;
}
Expr hard_swish(const Expr& x) {
  return x * max(zero_of(x), min(one_of(x), x * number_like(x, 1.0 / 6) + number_like(x, 0.5)));
}
Expr power(const Expr& x, const Expr& y) {
  if (y.is_const() && is_float(x.type())) {
    const double e = y.float_value();
    if (e == 2) return x * x;
    if (e == 3) return x * x * x;
    if (e == 1) return x;
    if (e == 0.5) return call(Fn::Sqrt, x);
    if (e == -1) return one_of(x) / x;
  }
  if (is_float(x.type())) return call(Fn::Pow, x, cast(x.type(), y));
  return cast(x.type(), call(Fn::Pow, cast(DType::F64, x), cast(DType::F64, y)));
}
Result<std::vector<TensorType>> infer_pow(const OpView& v) {
  return std::vector<TensorType>{{v.inputs[0].dtype, INGOT_TRY(broadcast(v.inputs[0].shape, v.inputs[1].shape))}};
}

// ---- with attributes -----------------------------------------------------------------------------------------------------

struct ScalarAttrs {
  double alpha = 0, beta = 0;
  INGOT_FIELDS(alpha, beta)
};
using ScalarFn = Expr (*)(const Expr& x, double alpha, double beta);
template <ScalarFn F>
Expr with_scalars(const OpView& v, std::span<const Expr> x) {
  const auto& a = v.attrs.as<ScalarAttrs>();
  return F(x[0], a.alpha, a.beta);
}
/// Second and third are ONNX's names of the two attributes and their defaults, in thousandths of a thousandth.
struct ScalarNames { const char *alpha, *beta; double alpha_default, beta_default; };
template <const ScalarNames& names>
Result<Values> import_scalars(ImportContext& c) {
  ScalarAttrs a;
  a.alpha = INGOT_TRY(c.node.float_or(names.alpha, names.alpha_default));
  if (names.beta) a.beta = INGOT_TRY(c.node.float_or(names.beta, names.beta_default));
  return one(c.builder.add(*find_op(c.node.op), a, {c.in(0)}));
}
constexpr ScalarNames kElu{"alpha", nullptr, 1, 0}, kLeaky{"alpha", nullptr, 0.01, 0}, kCelu{"alpha", nullptr, 1, 0},
    kSelu{"alpha", "gamma", 1.67326319217681884765625, 1.05070102214813232421875}, kHard{"alpha", "beta", 0.2, 0.5},
    kThreshold{"alpha", nullptr, 1, 0}, kShrink{"lambd", "bias", 0.5, 0}, kSwish{"alpha", nullptr, 1, 0};

Expr elu(const Expr& x, double alpha, double) {
  return select(lt(x, zero_of(x)), number_like(x, alpha) * (call(Fn::Exp, x) - one_of(x)), x);
}
Expr selu(const Expr& x, double alpha, double gamma) {
  return number_like(x, gamma) * select(le(x, zero_of(x)), number_like(x, alpha) * (call(Fn::Exp, x) - one_of(x)), x);
}
Expr celu(const Expr& x, double alpha, double) {
  return max(zero_of(x), x) +
         min(zero_of(x), number_like(x, alpha) * (call(Fn::Exp, x / number_like(x, alpha)) - one_of(x)));
}
Expr leaky(const Expr& x, double alpha, double) { return select(lt(x, zero_of(x)), number_like(x, alpha) * x, x); }
Expr hard_sigmoid(const Expr& x, double alpha, double beta) {
  return max(zero_of(x), min(one_of(x), x * number_like(x, alpha) + number_like(x, beta)));
}
Expr threshold(const Expr& x, double alpha, double) { return select(gt(x, number_like(x, alpha)), x, zero_of(x)); }
Expr shrink(const Expr& x, double lambda, double bias) {
  return select(lt(x, number_like(x, -lambda)), x + number_like(x, bias),
                select(gt(x, number_like(x, lambda)), x - number_like(x, bias), zero_of(x)));
}
Expr swish(const Expr& x, double alpha, double) { return x * call(Fn::Sigmoid, number_like(x, alpha) * x); }

template <ScalarFn F, const ScalarNames& names, int... Since>
constexpr OpDef scalar_row(std::string_view name, std::string_view doc) {
  OpDef d;
  d.name = name, d.doc = doc, d.infer = infer_same<TypeClass::Numeric>, d.lower = Pointwise{with_scalars<F>};
  d.imports = kRules<import_scalars<names>, Since...>;
  d.parse_attrs = parse_attrs<ScalarAttrs>;
  return d;
}

// ---- special signatures --------------------------------------------------------------------------------------------------

Expr clip(const OpView& v, std::span<const Expr> x) {
  Expr y = x[0];
  if (v.has(1)) y = max(y, x[1]);
  if (v.has(2)) y = min(y, x[2]);
  return y;
}
Result<Values> import_clip_attrs(ImportContext& c) {
  Values in{c.in(0), {}, {}};
  const DType type = c.type(0).dtype;
  if (c.node.has("min")) in[1] = c.builder.scalar(type, INGOT_TRY(c.node.float_or("min", 0)));
  if (c.node.has("max")) in[2] = c.builder.scalar(type, INGOT_TRY(c.node.float_or("max", 0)));
  return one(c.builder.add(op("Clip"), in));
}
constexpr ImportRule kClip[] = {{6, import_clip_attrs}, {11, import_same}, {12, import_same}, {13, import_same}};

/// x as a power of two. The sign is dropped, 0 becomes the smallest power.
Expr cast_to_power(const Expr& x, const CastAttrs& a) {
  const auto number = [](int64_t v) { return Expr::integer(DType::U32, v); };
  const Expr wide = Expr::make(ExprOp::Bits, DType::U32, {cast(DType::F32, x)});
  const Expr bits = bitwise(ExprOp::And, wide, number(0x7fffffff)),
             fraction = bitwise(ExprOp::And, bits, number(0x7fffff));
  Expr power = bitwise(ExprOp::Shr, bits, number(23));
  // Half way between two powers goes up, except from below the smallest.
  const Expr past_half =
      logical_or(lt(number(0x400000), fraction), logical_and(eq(fraction, number(0x400000)), lt(number(0), power)));
  if (a.round == "up") power = power + select(ne(fraction, number(0)), number(1), number(0));
  if (a.round == "nearest") power = power + select(past_half, number(1), number(0));
  if (a.saturate) power = min(power, number(0xfe));
  const Expr nan = logical_or(le(number(0x7f800000), bits), eq(power, number(0xff)));
  const Expr made = select(eq(power, number(0)), number(0x400000), bitwise(ExprOp::Shl, power, number(23)));
  return Expr::make(ExprOp::Bits, DType::F32, {select(nan, number(0x7fc00000), made)});
}
Expr cast_scalar(const OpView& v, std::span<const Expr> x) {
  const auto& a = v.attrs.as<CastAttrs>();
  if (a.to == DType::F8E8M0) return cast_to_power(x[0], a);
  if (small_float(a.to)) return cast_to_small_float(a.to, x[0], a.saturate);
  const Expr y = cast(compute_type(a.to), x[0]);
  if (!is_packed(a.to)) return round_to(a.to, y);
  // Integers of 2 and 4 bits wrap like the wider ones.
  const int bits = packed_bits(a.to), sign = 1 << (bits - 1);
  const Expr low = bitwise(ExprOp::And, y, number_like(y, (1 << bits) - 1));
  return is_signed(a.to) ? bitwise(ExprOp::Xor, low, number_like(y, sign)) - number_like(y, sign) : low;
}
Result<std::vector<TensorType>> infer_cast(const OpView& v) {
  return std::vector<TensorType>{{v.attrs.as<CastAttrs>().to, v.inputs[0].shape}};
}
Result<CastAttrs> cast_attrs(ImportContext& c, DType to) {
  const CastAttrs a{to, INGOT_TRY(c.node.int_or("saturate", 1)) != 0, INGOT_TRY(c.node.string_or("round_mode", "up"))};
  if (a.round != "up" && a.round != "down" && a.round != "nearest") return unsupported("round_mode " + a.round);
  return a;
}
Result<Values> import_cast(ImportContext& c) {
  const DType to = INGOT_TRY(dtype_from_onnx(INGOT_TRY(c.node.int_or("to", 0))));
  if (to == DType::String || c.type(0).dtype == DType::String) return unsupported("casts to and from strings");
  return one(c.builder.add(op("Cast"), INGOT_TRY(cast_attrs(c, to)), {c.in(0)}));
}
Result<Values> import_cast_like(ImportContext& c) {
  const CastAttrs a = INGOT_TRY(cast_attrs(c, c.type(1).dtype));
  if (a.to == DType::String || c.type(0).dtype == DType::String) return unsupported("casts to and from strings");
  if (a.to == c.type(0).dtype) return Values{c.in(0)};
  return one(c.builder.add(op("Cast"), a, {c.in(0)}));
}

Expr variadic_max(const OpView&, std::span<const Expr> x) {
  Expr y = x[0];
  for (size_t i = 1; i < x.size(); ++i) y = max(y, x[i]);
  return y;
}
Expr variadic_min(const OpView&, std::span<const Expr> x) {
  Expr y = x[0];
  for (size_t i = 1; i < x.size(); ++i) y = min(y, x[i]);
  return y;
}
Expr variadic_sum(const OpView&, std::span<const Expr> x) {
  Expr y = x[0];
  for (size_t i = 1; i < x.size(); ++i) y = y + x[i];
  return y;
}
Expr variadic_mean(const OpView& v, std::span<const Expr> x) {
  return variadic_sum(v, x) / number_like(x[0], static_cast<double>(x.size()));
}
template <int... Since>
constexpr OpDef variadic(std::string_view name, Expr (*scalar)(const OpView&, std::span<const Expr>), std::string_view doc) {
  OpDef d;
  d.name = name, d.doc = doc, d.max_inputs = 1 << 20, d.imports = kSame<Since...>, d.infer = infer_same<TypeClass::Numeric>;
  d.lower = Pointwise{scalar};
  return d;
}

Expr where_scalar(const OpView&, std::span<const Expr> x) { return select(x[0], x[1], x[2]); }
Result<std::vector<TensorType>> infer_where(const OpView& v) {
  if (v.inputs[0].dtype != DType::Bool || v.inputs[1].dtype != v.inputs[2].dtype) return invalid("Where needs bool, T, T");
  Shape shape = INGOT_TRY(broadcast(v.inputs[1].shape, v.inputs[2].shape));
  return std::vector<TensorType>{{v.inputs[1].dtype, INGOT_TRY(broadcast(v.inputs[0].shape, shape))}};
}

struct ModAttrs {
  bool fmod = false;
  INGOT_FIELDS(fmod)
};
Expr mod_scalar(const OpView& v, std::span<const Expr> x) {
  return v.attrs.as<ModAttrs>().fmod ? rem(x[0], x[1]) : floor_mod(x[0], x[1]);
}
Result<Values> import_mod(ImportContext& c) {
  return one(c.builder.add(op("Mod"), ModAttrs{INGOT_TRY(c.node.int_or("fmod", 0)) != 0}, c.inputs));
}
struct ShiftAttrs {
  bool left = true;
  INGOT_FIELDS(left)
};
Expr shift_scalar(const OpView& v, std::span<const Expr> x) {
  return bitwise(v.attrs.as<ShiftAttrs>().left ? ExprOp::Shl : ExprOp::Shr, x[0], x[1]);
}
Result<Values> import_shift(ImportContext& c) {
  const std::string direction = INGOT_TRY(c.node.string_or("direction", ""));
  return one(c.builder.add(op("BitShift"), ShiftAttrs{direction == "LEFT"}, c.inputs));
}
struct IsInfAttrs {
  bool negative = true, positive = true;
  INGOT_FIELDS(negative, positive)
};
Expr isinf_scalar(const OpView& v, std::span<const Expr> x) {
  const auto& a = v.attrs.as<IsInfAttrs>();
  Expr hit = Expr::boolean(false);
  if (a.positive) hit = logical_or(hit, eq(x[0], number_like(x[0], INFINITY)));
  if (a.negative) hit = logical_or(hit, eq(x[0], number_like(x[0], -INFINITY)));
  return hit;
}
Result<Values> import_isinf(ImportContext& c) {
  IsInfAttrs a{INGOT_TRY(c.node.int_or("detect_negative", 1)) != 0, INGOT_TRY(c.node.int_or("detect_positive", 1)) != 0};
  return one(c.builder.add(op("IsInf"), a, c.inputs));
}
struct GeluAttrs {
  bool tanh = false;
  INGOT_FIELDS(tanh)
};
Expr gelu_scalar(const OpView& v, std::span<const Expr> x) {
  return v.attrs.as<GeluAttrs>().tanh ? gelu_tanh(x[0]) : gelu_erf(x[0]);
}
Result<Values> import_gelu(ImportContext& c) {
  const std::string approximate = INGOT_TRY(c.node.string_or("approximate", "none"));
  return one(c.builder.add(op("Gelu"), GeluAttrs{approximate == "tanh"}, c.inputs));
}
Result<Values> import_identity(ImportContext& c) { return Values{c.in(0)}; }
Result<Values> import_dropout(ImportContext& c) {
  if (c.has(2)) {
    auto training = c.ints(2);
    if (!training || (*training)[0] != 0) return unsupported("Dropout in training mode");
  }
  Values out{c.in(0)};
  if (c.node.outputs.size() > 1) {
    Tensor yes(DType::Bool, {});
    yes.set_int(0, c.node.opset >= 12);  // older opsets leave the mask open; runtimes fill in false
    out.push_back(INGOT_TRY(c.builder.add(op("Expand"), ShapeAttrs{c.type(0).shape}, {c.builder.constant(yes)})));
  }
  return out;
}
// PRelu's slope broadcasts from the right like any operand.
Expr prelu(const Expr& x, const Expr& slope) { return select(lt(x, zero_of(x)), x * slope, x); }

template <class Attrs, int arity>
constexpr OpDef row(std::string_view name, std::string_view doc, std::span<const ImportRule> imports, InferFn infer,
                    Expr (*scalar)(const OpView&, std::span<const Expr>)) {
  OpDef d;
  d.name = name, d.doc = doc, d.imports = imports, d.infer = infer, d.lower = Pointwise{scalar};
  d.min_inputs = d.max_inputs = arity;
  if constexpr (!std::is_void_v<Attrs>) d.parse_attrs = parse_attrs<Attrs>;
  return d;
}
constexpr OpDef alias(std::string_view name, std::string_view doc, std::span<const ImportRule> imports, int max_inputs) {
  OpDef d;
  d.name = name, d.doc = doc, d.imports = imports, d.max_inputs = max_inputs;
  return d;
}

/// Before opset 7 the second operand lines up with the first from `axis` on.
Result<Values> import_along_axis(ImportContext& c) {
  if (INGOT_TRY(c.node.int_or("broadcast", 0)) == 0 || !c.node.has("axis")) return import_same(c);
  const auto axis = static_cast<size_t>(INGOT_TRY(wrap_axis(INGOT_TRY(c.node.int_or("axis", 0)), c.rank(0))));
  if (axis + c.rank(1) > c.rank(0)) return invalid("axis leaves too few dimensions");
  Shape s = c.type(1).shape;
  s.resize(c.rank(0) - axis, 1);
  const ValueId y = INGOT_TRY(build_reshape(c.builder, c.in(1), s));
  return one(c.builder.add(op(c.node.op), {}, {c.in(0), y}));
}
constexpr ImportRule kArithmetic[] = {{6, import_along_axis}, {7, import_same}, {13, import_same}, {14, import_same}};
/// Before opset 7 the slope belongs to the channels.
Result<Values> import_channel_prelu(ImportContext& c) {
  ValueId slope = c.in(1);
  if (c.rank(1) == 1 && c.rank(0) > 2) {
    Shape s(c.rank(0) - 1, 1);
    s[0] = c.type(1).shape[0];
    slope = INGOT_TRY(build_reshape(c.builder, slope, s));
  }
  return one(build_binary(c.builder, "PRelu", c.in(0), slope));
}
constexpr ImportRule kPRelu[] = {{6, import_channel_prelu}, {7, import_same}, {9, import_same}, {16, import_same}};

const OpDef kPointwise[] = {
    unary<[](Expr x) { return max(x, zero_of(x)); }>("Relu", {kSame<6, 13, 14>}),
    unary<abs_of>("Abs", {kSame<6, 13>}),
    unary<[](Expr x) { return -x; }>("Neg", {kSame<6, 13>}),
    unary<sign>("Sign", {kSame<9, 13>}),
    unary<[](Expr x) { return one_of(x) / x; }>("Reciprocal", {kSame<6, 13>, kFloat}),
    unary<fn_of<Fn::Exp>>("Exp", {kSame<6, 13>, kFloat}),
    unary<fn_of<Fn::Log>>("Log", {kSame<6, 13>, kFloat}),
    unary<fn_of<Fn::Sqrt>>("Sqrt", {kSame<6, 13>, kFloat}),
    unary<fn_of<Fn::Rsqrt>>("Rsqrt", {{}, kFloat, "1 / sqrt(x); internal"}),
    unary<fn_of<Fn::Tanh>>("Tanh", {kSame<6, 13>, kFloat}),
    unary<fn_of<Fn::Erf>>("Erf", {kSame<9, 13>, kFloat}),
    unary<fn_of<Fn::Sigmoid>>("Sigmoid", {kSame<6, 13>, kFloat}),
    unary<fn_of<Fn::Sin>>("Sin", {kSame<7, 22>, kFloat}),
    unary<fn_of<Fn::Cos>>("Cos", {kSame<7, 22>, kFloat}),
    unary<fn_of<Fn::Tan>>("Tan", {kSame<7, 22>, kFloat}),
    unary<fn_of<Fn::Asin>>("Asin", {kSame<7, 22>, kFloat}),
    unary<fn_of<Fn::Acos>>("Acos", {kSame<7, 22>, kFloat}),
    unary<fn_of<Fn::Atan>>("Atan", {kSame<7, 22>, kFloat}),
    unary<fn_of<Fn::Sinh>>("Sinh", {kSame<9, 22>, kFloat}),
    unary<fn_of<Fn::Cosh>>("Cosh", {kSame<9, 22>, kFloat}),
    unary<fn_of<Fn::Asinh>>("Asinh", {kSame<9, 22>, kFloat}),
    unary<fn_of<Fn::Acosh>>("Acosh", {kSame<9, 22>, kFloat}),
    unary<fn_of<Fn::Atanh>>("Atanh", {kSame<9, 22>, kFloat}),
    unary<fn_of<Fn::Floor>>("Floor", {kSame<6, 13>, kFloat}),
    unary<fn_of<Fn::Ceil>>("Ceil", {kSame<6, 13>, kFloat}),
    unary<fn_of<Fn::Round>>("Round", {kSame<11, 22>, kFloat, "to nearest, ties to even"}),
    unary<softplus>("Softplus", {kSame<1, 22>, kFloat}),
    unary<[](Expr x) { return x / (one_of(x) + call(Fn::Abs, x)); }>("Softsign", {kSame<1, 22>, kFloat}),
    unary<[](Expr x) { return x * call(Fn::Tanh, softplus(x)); }>("Mish", {kSame<18, 22>, kFloat}),
    unary<hard_swish>("HardSwish", {kSame<14, 22>, kFloat}),
    unary<[](Expr x) { return ne(x, x); }>("IsNaN", {kSame<9, 13, 20>, infer_predicate<TypeClass::Floats>}),
    unary<[](Expr x) { return logical_not(x); }>("Not", {kSame<1>, kBool}),
    unary<[](Expr x) { return Expr::make(ExprOp::Not, x.type(), {x}); }>("BitwiseNot", {kSame<18>, kInteger}),
    binary<[](Expr a, Expr b) { return a + b; }>("Add", {kArithmetic}),
    binary<[](Expr a, Expr b) { return a - b; }>("Sub", {kArithmetic}),
    binary<[](Expr a, Expr b) { return a * b; }>("Mul", {kArithmetic}),
    binary<[](Expr a, Expr b) { return a / b; }>("Div", {kArithmetic}),
    binary<power>("Pow", {kSame<7, 12, 13, 15>, infer_pow}),
    binary<prelu>("PRelu", {kPRelu}),
    binary<[](Expr a, Expr b) { return eq(a, b); }>("Equal", {kSame<7, 11, 13, 19>, kTest}),
    binary<[](Expr a, Expr b) { return gt(a, b); }>("Greater", {kSame<7, 9, 13>, kTest}),
    binary<[](Expr a, Expr b) { return ge(a, b); }>("GreaterOrEqual", {kSame<12, 16>, kTest}),
    binary<[](Expr a, Expr b) { return lt(a, b); }>("Less", {kSame<7, 9, 13>, kTest}),
    binary<[](Expr a, Expr b) { return le(a, b); }>("LessOrEqual", {kSame<12, 16>, kTest}),
    binary<[](Expr a, Expr b) { return logical_and(a, b); }>("And", {kSame<7>, kBool}),
    binary<[](Expr a, Expr b) { return logical_or(a, b); }>("Or", {kSame<7>, kBool}),
    binary<[](Expr a, Expr b) { return ne(a, b); }>("Xor", {kSame<7>, kBool}),
    binary<[](Expr a, Expr b) { return bitwise(ExprOp::And, a, b); }>("BitwiseAnd", {kSame<18>, kInteger}),
    binary<[](Expr a, Expr b) { return bitwise(ExprOp::Or, a, b); }>("BitwiseOr", {kSame<18>, kInteger}),
    binary<[](Expr a, Expr b) { return bitwise(ExprOp::Xor, a, b); }>("BitwiseXor", {kSame<18>, kInteger}),
    variadic<6, 8, 12, 13>("Max", variadic_max, "a NaN operand gives NaN"),
    variadic<6, 8, 12, 13>("Min", variadic_min, "a NaN operand gives NaN"),
    variadic<6, 8, 13>("Sum", variadic_sum, ""),
    variadic<6, 8, 13>("Mean", variadic_mean, ""),
    scalar_row<elu, kElu, 6, 22>("Elu", ""),
    scalar_row<selu, kSelu, 6, 22>("Selu", ""),
    scalar_row<celu, kCelu, 12>("Celu", ""),
    scalar_row<leaky, kLeaky, 6, 16>("LeakyRelu", ""),
    scalar_row<hard_sigmoid, kHard, 6, 22>("HardSigmoid", ""),
    scalar_row<threshold, kThreshold, 10, 22>("ThresholdedRelu", ""),
    scalar_row<shrink, kShrink, 9>("Shrink", ""),
    scalar_row<swish, kSwish, 24>("Swish", ""),
    [] { OpDef d = row<void, 1>("Clip", "", kClip, infer_same<TypeClass::Numeric>, clip); d.max_inputs = 3; return d; }(),
    row<CastAttrs, 1>("Cast", "", kRules<import_cast, 6, 9, 13, 19, 21, 23>, infer_cast, cast_scalar),
    row<void, 3>("Where", "", kSame<9, 16>, infer_where, where_scalar),
    row<ModAttrs, 2>("Mod", "sign of the divisor; of the dividend with fmod=1", kRules<import_mod, 10, 13>, infer_same<TypeClass::Numeric>, mod_scalar),
    row<ShiftAttrs, 2>("BitShift", "", kRules<import_shift, 11>, kInteger, shift_scalar),
    row<IsInfAttrs, 1>("IsInf", "", kRules<import_isinf, 10, 20>, infer_predicate<TypeClass::Floats>, isinf_scalar),
    row<GeluAttrs, 1>("Gelu", "", kRules<import_gelu, 20>, kFloat, gelu_scalar),
    alias("CastLike", "Cast to the type of the second input", kRules<import_cast_like, 15, 19, 21, 23>, 2),
    alias("Identity", "gone on import", kRules<import_identity, 1, 13, 14, 16, 19, 21>, 1),
    alias("Dropout", "inference: gone on import", kRules<import_dropout, 7, 10, 12, 13, 22>, 3),
};

}  // namespace

Expr cast_to_small_float(DType to, const Expr& x, bool saturate) {
  using Specials = SmallFloat::Specials;
  const SmallFloat& f = *small_float(to);
  const Expr wide = cast(DType::F32, x);
  const auto number = [&](double v) { return number_like(wide, v); };
  const Expr bounded = round_to(to, max(number(-f.largest), min(number(f.largest), wide)));
  if (saturate || f.specials == Specials::None) return bounded;
  // Ties round to even: half a step past an even largest value still is that value.
  const double step = std::ldexp(1.0, std::ilogb(f.largest) - f.mantissa_bits), edge = f.largest + step / 2;
  const bool even = std::fmod(f.largest / step, 2) == 0;
  const Expr size = call(Fn::Abs, wide), over = even ? lt(number(edge), size) : le(number(edge), size);
  const Expr infinity = select(lt(wide, number(0)), number(-INFINITY), number(INFINITY));
  return select(over, f.specials == Specials::NanAndInfinity ? infinity : number(NAN), bounded);
}

std::span<const OpDef> pointwise_ops() { return kPointwise; }

}  // namespace ingot
