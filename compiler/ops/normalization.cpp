// Softmax and the norms. They decompose into reductions and pointwise operators, and fusion puts each back into one kernel.
// Everything accumulates in f32 (or f64), whatever the storage type: squares and sums of f16 overflow.
#include <fmt/format.h>

#include <cmath>
#include <numeric>

#include "compiler/expr/simplify.h"
#include "compiler/ops/compose.h"

namespace ingot {
namespace {

using Types = std::vector<TensorType>;

Result<Types> infer_first(const OpView& v) { return Types{v.inputs[0]}; }
bool is_narrow(DType t) { return is_float(t) && compute_type(t) != t; }
Result<ValueId> widen(GraphBuilder& b, ValueId x) { return is_narrow(b.type(x).dtype) ? build_cast(b, x, DType::F32) : Result<ValueId>(x); }

// ---- Softmax, LogSoftmax -------------------------------------------------------------------------------------------------
Result<Values> expand_softmax_as(GraphBuilder& b, const Node& n, bool log) {
  const auto axis = n.attrs.as<AxisAttrs>().axis;
  const DType type = b.type(n.inputs[0]).dtype;
  const ValueId x = INGOT_TRY(widen(b, n.inputs[0]));
  const ValueId shifted = INGOT_TRY(build_binary(b, "Sub", x, INGOT_TRY(build_reduce(b, "ReduceMax", x, {axis}, true))));
  const ValueId e = INGOT_TRY(b.add(op("Exp"), {shifted}));
  const ValueId sum = INGOT_TRY(build_reduce(b, "ReduceSum", e, {axis}, true));
  const ValueId y = log ? INGOT_TRY(build_binary(b, "Sub", shifted, INGOT_TRY(b.add(op("Log"), {sum}))))
                        : INGOT_TRY(build_binary(b, "Div", e, sum));
  return one(build_cast(b, y, type));
}
Result<Values> expand_softmax(GraphBuilder& b, const Node& n) { return expand_softmax_as(b, n, false); }
Result<Values> expand_log_softmax(GraphBuilder& b, const Node& n) { return expand_softmax_as(b, n, true); }
Result<Values> import_axis(ImportContext& c) {
  if (c.rank(0) == 0) return invalid("a scalar has no axis");
  const int64_t axis = INGOT_TRY(wrap_axis(INGOT_TRY(c.node.int_or("axis", -1)), c.rank(0)));
  return one(c.builder.add(op(c.node.op), AxisAttrs{axis}, {c.in(0)}));
}
/// Before opset 13 the input is flattened to 2-D at the axis (default 1).
Result<Values> import_flattened(ImportContext& c) {
  const Shape s = c.type(0).shape;
  const int64_t axis = INGOT_TRY(wrap_axis(INGOT_TRY(c.node.int_or("axis", 1)), c.rank(0)));
  if (axis + 1 == static_cast<int64_t>(s.size())) return one(c.builder.add(op(c.node.op), AxisAttrs{axis}, {c.in(0)}));
  Shape flat(s.begin(), s.begin() + axis);
  flat.push_back(element_count(Shape(s.begin() + axis, s.end())));
  const ValueId x = INGOT_TRY(build_reshape(c.builder, c.in(0), flat));
  const ValueId y = INGOT_TRY(c.builder.add(op(c.node.op), AxisAttrs{axis}, {x}));
  return one(build_reshape(c.builder, y, s));
}
constexpr ImportRule kSoftmaxRules[] = {{1, import_flattened}, {11, import_flattened}, {13, import_axis}};

// ---- BatchNormalization --------------------------------------------------------------------------------------------------
struct EpsilonAttrs {
  double epsilon = 1e-5;
  INGOT_FIELDS(epsilon)
};
Result<Values> import_batch_norm(ImportContext& c) {
  if (INGOT_TRY(c.node.int_or("training_mode", 0)) != 0) return unsupported("training mode");
  if (c.rank(0) < 2) return invalid("needs rank 2 or more");
  return one(c.builder.add(op("BatchNormalization"), EpsilonAttrs{INGOT_TRY(c.node.float_or("epsilon", 1e-5))},
                           {c.in(0), c.in(1), c.in(2), c.in(3), c.in(4)}));
}
/// A per-channel vector as [C, 1, …], to broadcast against [N, C, …].
Result<ValueId> per_channel(GraphBuilder& b, ValueId v, size_t rank) {
  Shape s{b.shape(v)[0]};
  for (size_t d = 2; d < rank; ++d) s.push_back(1);
  return build_reshape(b, v, s);
}
/// x*s + t with s = scale / sqrt(var + eps), t = bias - mean*s; s and t fold when the statistics are constant.
Result<Values> expand_batch_norm(GraphBuilder& b, const Node& n) {
  const DType type = b.type(n.inputs[0]).dtype;
  const DType wide = is_narrow(type) ? DType::F32 : type;
  std::vector<ValueId> p;
  for (size_t i = 1; i < 5; ++i) p.push_back(INGOT_TRY(build_cast(b, n.inputs[i], wide)));
  const ValueId var = INGOT_TRY(build_scalar(b, "Add", p[3], n.attrs.as<EpsilonAttrs>().epsilon));
  const ValueId s = INGOT_TRY(build_binary(b, "Div", p[0], INGOT_TRY(b.add(op("Sqrt"), {var}))));
  const ValueId t = INGOT_TRY(build_binary(b, "Sub", p[1], INGOT_TRY(build_binary(b, "Mul", p[2], s))));
  const size_t rank = b.shape(n.inputs[0]).size();
  const ValueId x = INGOT_TRY(build_cast(b, n.inputs[0], wide));
  const ValueId scaled = INGOT_TRY(build_binary(b, "Mul", x, INGOT_TRY(per_channel(b, s, rank))));
  const ValueId y = INGOT_TRY(build_binary(b, "Add", scaled, INGOT_TRY(per_channel(b, t, rank))));
  return one(build_cast(b, y, type));
}

// ---- norms over trailing axes --------------------------------------------------------------------------------------------
struct NormAttrs {
  double epsilon = 1e-5;
  int64_t axis = -1;  // the first normalised axis
  bool centred = true;
  INGOT_FIELDS(epsilon, axis, centred)
};
/// (x - mean) / sqrt(var + eps) over `axes`, in the wide type.
Result<ValueId> normalise(GraphBuilder& b, ValueId x, const std::vector<int64_t>& axes, double epsilon, bool centred) {
  ValueId d = x;
  if (centred) d = INGOT_TRY(build_binary(b, "Sub", x, INGOT_TRY(build_reduce(b, "ReduceMean", x, axes, true))));
  const ValueId square = INGOT_TRY(build_binary(b, "Mul", d, d));
  const ValueId var = INGOT_TRY(build_scalar(b, "Add", INGOT_TRY(build_reduce(b, "ReduceMean", square, axes, true)), epsilon));
  return build_binary(b, "Mul", d, INGOT_TRY(b.add(op("Rsqrt"), {var})));
}
Result<Values> expand_norm(GraphBuilder& b, const Node& n) {
  const auto& a = n.attrs.as<NormAttrs>();
  const DType type = b.type(n.inputs[0]).dtype;
  const ValueId x = INGOT_TRY(widen(b, n.inputs[0]));
  std::vector<int64_t> axes(b.shape(x).size() - static_cast<size_t>(a.axis));
  std::iota(axes.begin(), axes.end(), a.axis);
  ValueId y = INGOT_TRY(normalise(b, x, axes, a.epsilon, a.centred));
  if (n.inputs.size() > 1 && n.inputs[1].valid()) y = INGOT_TRY(build_binary(b, "Mul", y, INGOT_TRY(build_cast(b, n.inputs[1], b.type(y).dtype))));
  if (n.inputs.size() > 2 && n.inputs[2].valid()) y = INGOT_TRY(build_binary(b, "Add", y, INGOT_TRY(build_cast(b, n.inputs[2], b.type(y).dtype))));
  return one(build_cast(b, y, type));
}
/// The form with Mean and InvStdDev, which are in the stash type.
Result<Values> import_norm_with_statistics(ImportContext& c, const NormAttrs& a) {
  Compose g(c.builder);
  const DType type = c.type(0).dtype;
  const ValueId x = g.widen(c.in(0));
  std::vector<int64_t> axes(c.rank(0) - static_cast<size_t>(a.axis));
  std::iota(axes.begin(), axes.end(), a.axis);
  const ValueId mean = g.reduce("ReduceMean", x, axes), d = g.sub(x, mean);
  const ValueId inverse = g.unary("Rsqrt", g.add(g.reduce("ReduceMean", g.mul(d, d), axes), a.epsilon));
  ValueId y = g.mul(d, inverse);
  if (c.has(1)) y = g.mul(y, g.cast(c.in(1), g.dtype(y)));
  if (c.has(2)) y = g.add(y, g.cast(c.in(2), g.dtype(y)));
  const DType stash = INGOT_TRY(dtype_from_onnx(INGOT_TRY(c.node.int_or("stash_type", 1))));
  return g.result({g.cast(y, type), g.cast(mean, stash), g.cast(inverse, stash)});
}
Result<Values> import_norm(ImportContext& c) {
  NormAttrs a;
  a.epsilon = INGOT_TRY(c.node.float_or("epsilon", 1e-5));
  a.axis = INGOT_TRY(wrap_axis(INGOT_TRY(c.node.int_or("axis", -1)), c.rank(0)));
  a.centred = c.node.op == "LayerNormalization";
  if (wants_output(c, 1) || wants_output(c, 2)) return import_norm_with_statistics(c, a);
  // Before the standard had the operator, exporters wrote it with a result of the scale's type.
  if (c.node.opset < 17 && c.has(1) && is_narrow(c.type(0).dtype) && c.type(1).dtype == DType::F32)
    c.inputs[0] = INGOT_TRY(build_cast(c.builder, c.in(0), DType::F32));
  return one(c.builder.add(op(c.node.op), a, c.inputs));
}

// ---- norms over groups of channels ---------------------------------------------------------------------------------------
struct GroupAttrs {
  double epsilon = 1e-5;
  int64_t groups = 1;        // 0: every channel by itself
  bool per_group = false;    // scale and bias have one entry a group (GroupNormalization before opset 21)
  INGOT_FIELDS(epsilon, groups, per_group)
};
Result<Values> expand_group_norm(GraphBuilder& b, const Node& n) {
  const auto& a = n.attrs.as<GroupAttrs>();
  const DType type = b.type(n.inputs[0]).dtype;
  const Shape s = b.shape(n.inputs[0]);
  const Expr groups = a.groups == 0 ? s[1] : Expr(a.groups);
  const ValueId x = INGOT_TRY(widen(b, n.inputs[0]));
  const Expr rest = simplify(floor_div(s[1], groups) * element_count(Shape(s.begin() + 2, s.end())));
  const ValueId grouped = INGOT_TRY(build_reshape(b, x, {s[0], groups, rest}));
  ValueId y = INGOT_TRY(normalise(b, grouped, {2}, a.epsilon, true));
  auto affine = [&](std::string_view name, ValueId v, ValueId p) -> Result<ValueId> {
    p = INGOT_TRY(build_cast(b, p, b.type(v).dtype));
    return build_binary(b, name, v, INGOT_TRY(per_channel(b, p, a.per_group ? 3 : s.size())));
  };
  if (!a.per_group) y = INGOT_TRY(build_reshape(b, y, s));
  y = INGOT_TRY(affine("Mul", y, n.inputs[1]));
  y = INGOT_TRY(affine("Add", y, n.inputs[2]));
  y = INGOT_TRY(build_reshape(b, y, s));
  return one(build_cast(b, y, type));
}
template <bool instance, bool per_group>
Result<Values> import_group_norm(ImportContext& c) {
  if (c.rank(0) < 3) return invalid("needs rank 3 or more");
  GroupAttrs a{INGOT_TRY(c.node.float_or("epsilon", 1e-5)), instance ? 0 : INGOT_TRY(c.node.int_or("num_groups", 1)), per_group};
  if (!instance && a.groups < 1) return invalid("num_groups must be positive");
  return one(c.builder.add(op(c.node.op), a, {c.in(0), c.in(1), c.in(2)}));
}
constexpr ImportRule kGroupRules[] = {{18, import_group_norm<false, true>}, {21, import_group_norm<false, false>}};

Result<Values> import_lp_norm(ImportContext& c) {
  const int64_t axis = INGOT_TRY(wrap_axis(INGOT_TRY(c.node.int_or("axis", -1)), c.rank(0))), p = INGOT_TRY(c.node.int_or("p", 2));
  if (p != 1 && p != 2) return unsupported(fmt::format("p = {}", p));
  const ValueId x = INGOT_TRY(widen(c.builder, c.in(0)));
  const ValueId norm = INGOT_TRY(build_reduce(c.builder, p == 1 ? "ReduceL1" : "ReduceL2", x, {axis}, true));
  // A vector of zeros has no direction and stays.
  Compose g(c.builder);
  const ValueId zero = g.scalar(g.dtype(norm), 0), divisor = g.where(g.binary("Equal", norm, zero), g.scalar(g.dtype(norm), 1), norm);
  return g.result({g.cast(g.div(x, divisor), c.type(0).dtype)});
}
Result<Values> import_mvn(ImportContext& c) {
  auto axes = INGOT_TRY(c.node.ints_or("axes", {0, 2, 3}));
  for (int64_t& x : axes) x = INGOT_TRY(wrap_axis(x, c.rank(0)));
  const ValueId x = INGOT_TRY(widen(c.builder, c.in(0)));
  return one(build_cast(c.builder, INGOT_TRY(normalise(c.builder, x, axes, 1e-9, true)), c.type(0).dtype));
}

/// 0 for the infinities, the value otherwise (NaN stays).
Expr finite_or_zero(Expr x) {
  return select(logical_or(eq(x, number_like(x, INFINITY)), eq(x, number_like(x, -INFINITY))), zero_of(x), x);
}

template <class Attrs>
constexpr OpDef row(std::string_view name, std::span<const ImportRule> imports, Result<Values> (*expand)(GraphBuilder&, const Node&), int inputs, std::string_view doc) {
  OpDef d;
  d.name = name, d.doc = doc, d.imports = imports, d.infer = infer_first, d.lower = Decompose{expand};
  d.max_inputs = inputs, d.min_inputs = inputs >= 5 ? 5 : 1;
  d.parse_attrs = parse_attrs<Attrs>;
  return d;
}
constexpr OpDef alias(std::string_view name, std::string_view doc, std::span<const ImportRule> imports) {
  OpDef d;
  d.name = name, d.doc = doc, d.imports = imports;
  return d;
}
const OpDef kNormalization[] = {
    row<AxisAttrs>("Softmax", kSoftmaxRules, expand_softmax, 1, "exp(x - max) / sum(exp(x - max)) along the axis"),
    row<AxisAttrs>("LogSoftmax", kSoftmaxRules, expand_log_softmax, 1, "x - max - log(sum(exp(x - max)))"),
    row<EpsilonAttrs>("BatchNormalization", kRules<import_batch_norm, 7, 9, 14, 15>, expand_batch_norm, 5, "inference"),
    row<NormAttrs>("LayerNormalization", kRules<import_norm, 1, 17>, expand_norm, 3, ""),
    row<NormAttrs>("RMSNormalization", kRules<import_norm, 23>, expand_norm, 2, ""),
    row<GroupAttrs>("InstanceNormalization", kRules<import_group_norm<true, false>, 6, 22>, expand_group_norm, 3, ""),
    row<GroupAttrs>("GroupNormalization", kGroupRules, expand_group_norm, 3, ""),
    alias("LpNormalization", "", kRules<import_lp_norm, 1, 22>),
    alias("MeanVarianceNormalization", "", kRules<import_mvn, 9, 13>),
    unary<finite_or_zero>("FiniteOrZero", {{}, infer_same<TypeClass::Floats>, "internal"}),
};

}  // namespace

Result<ValueId> build_softmax(GraphBuilder& b, ValueId x, int64_t axis, bool log) {
  return b.add(op(log ? "LogSoftmax" : "Softmax"), AxisAttrs{axis}, {x});
}

std::span<const OpDef> normalization_ops() { return kNormalization; }

}  // namespace ingot
