// Reductions over axes. Each output element combines its inputs; mean, norms and the like finish with a scalar expression.
#include <algorithm>
#include <numeric>

#include "compiler/expr/simplify.h"
#include "compiler/ops/open_axes.h"

namespace ingot {
namespace {

using Types = std::vector<TensorType>;

bool reduces(const AxesAttrs& a, size_t d) {
  return std::find(a.axes.begin(), a.axes.end(), static_cast<int64_t>(d)) != a.axes.end();
}
Result<Types> infer_reduce(const OpView& v) {
  const auto& a = v.attrs.as<AxesAttrs>();
  TensorType out{v.inputs[0].dtype, {}};
  for (size_t d = 0; d < v.inputs[0].rank(); ++d) {
    if (!reduces(a, d)) out.shape.push_back(v.inputs[0].shape[d]);
    else if (a.keep) out.shape.push_back(1);
  }
  return Types{out};
}
Result<Types> infer_arg(const OpView& v) {
  Types out = INGOT_TRY(infer_reduce(v));
  out[0].dtype = DType::I64;
  return out;
}

template <Combine combine>
ReductionForm form_of(const OpView& v) {
  const auto& a = v.attrs.as<AxesAttrs>();
  ReductionForm f;
  f.combine = combine;
  f.keep = a.keep;
  f.last = a.last;
  for (int64_t axis : a.axes) {
    f.axes.push_back(static_cast<size_t>(axis));
    f.extents.push_back(v.inputs[0].shape[static_cast<size_t>(axis)]);
  }
  return f;
}
/// The input element that (out, reduced) names.
Expr element_at(const OpView& v, const Index& out, const Index& reduced) {
  const auto& a = v.attrs.as<AxesAttrs>();
  Index in(v.inputs[0].rank());
  for (size_t i = 0; i < a.axes.size(); ++i) in[static_cast<size_t>(a.axes[i])] = reduced[i];
  size_t next = 0;
  for (size_t d = 0; d < in.size(); ++d) {
    if (!in[d].valid()) in[d] = out[next++];
    else if (a.keep) ++next;
  }
  return v.read(0, in);
}
Expr plain(const OpView& v, const Index& out, const Index& r) { return element_at(v, out, r); }
Expr absolute(const OpView& v, const Index& out, const Index& r) {
  const Expr x = element_at(v, out, r);
  return is_float(x.type()) ? call(Fn::Abs, x) : select(lt(x, zero_of(x)), zero_of(x) - x, x);
}
Expr square(const OpView& v, const Index& out, const Index& r) {
  const Expr x = element_at(v, out, r);
  return x * x;
}
Expr exponential(const OpView& v, const Index& out, const Index& r) { return call(Fn::Exp, element_at(v, out, r)); }
Expr divide_by_count(const OpView& v, const Index&, const Expr& acc) {
  Expr count = 1;
  for (int64_t axis : v.attrs.as<AxesAttrs>().axes) count = count * v.inputs[0].shape[static_cast<size_t>(axis)];
  return acc / cast(acc.type(), simplify(count));
}
Expr square_root(const OpView&, const Index&, const Expr& acc) {
  return is_float(acc.type()) ? call(Fn::Sqrt, acc) : cast(acc.type(), call(Fn::Sqrt, cast(DType::F64, acc)));
}
Expr logarithm(const OpView&, const Index&, const Expr& acc) { return call(Fn::Log, acc); }

Result<AxesAttrs> read_axes(ImportContext& c) {
  std::vector<int64_t> all(c.rank(0));
  std::iota(all.begin(), all.end(), 0);
  AxesAttrs a;
  a.keep = INGOT_TRY(c.node.int_or("keepdims", 1)) != 0;
  a.axes = INGOT_TRY(c.axes(1, c.rank(0), all));
  if (a.axes.empty()) a.axes = all;
  std::sort(a.axes.begin(), a.axes.end());
  return a;
}
/// An empty list of axes reduces nothing when noop_with_empty_axes says so.
Result<bool> is_noop(ImportContext& c) {
  if (INGOT_TRY(c.node.int_or("noop_with_empty_axes", 0)) == 0) return false;
  if (c.has(1)) return INGOT_TRY(c.content(1)).empty();
  return INGOT_TRY(c.node.ints_or("axes", {})).empty();
}
/// The result of `build(x, axes)`, where axes that only a call knows are the last ones of x.
template <class F>
Result<Values> over_axes(ImportContext& c, F build) {
  const auto open = INGOT_TRY(open_axes(c, 1, c.rank(0)));
  if (!open) return one(build(c.in(0), INGOT_TRY(read_axes(c))));
  AxesAttrs a;
  a.keep = INGOT_TRY(c.node.int_or("keepdims", 1)) != 0;
  for (size_t d = open->rank() - open->count(); d < open->rank(); ++d) a.axes.push_back(static_cast<int64_t>(d));
  const Shape reduced = reduced_dims(*open, c.type(0).shape);
  const ValueId x = INGOT_TRY(axes_to_end(c.builder, c.in(0), *open)), y = INGOT_TRY(build(x, a));
  return a.keep ? one(axes_from_end(c.builder, y, *open, reduced)) : Values{y};
}
Result<Values> import_reduce(ImportContext& c) {
  if (INGOT_TRY(is_noop(c))) {
    // Over no axes a sum is the element itself, but norms and logarithms still apply: reduce an added axis of one.
    Shape s = c.type(0).shape;
    s.push_back(1);
    const ValueId x = INGOT_TRY(build_reshape(c.builder, c.in(0), s));
    return one(c.builder.add(op(c.node.op), AxesAttrs{{static_cast<int64_t>(s.size() - 1)}, false}, {x}));
  }
  return over_axes(c, [&](ValueId x, const AxesAttrs& a) { return c.builder.add(op(c.node.op), a, {x}); });
}
/// max + log(sum(exp(x - max))): the plain form overflows.
Result<ValueId> build_log_sum_exp(GraphBuilder& b, ValueId x, const AxesAttrs& a) {
  const ValueId top = INGOT_TRY(build_reduce(b, "ReduceMax", x, a.axes, true));
  // An infinite maximum would give inf - inf.
  const ValueId finite = INGOT_TRY(b.add(op("FiniteOrZero"), {top}));
  const ValueId e = INGOT_TRY(b.add(op("Exp"), {INGOT_TRY(build_binary(b, "Sub", x, finite))}));
  const ValueId sum = INGOT_TRY(build_reduce(b, "ReduceSum", e, a.axes, true));
  const ValueId y = INGOT_TRY(build_binary(b, "Add", finite, INGOT_TRY(b.add(op("Log"), {sum}))));
  if (a.keep) return y;
  Shape s;
  for (size_t d = 0; d < b.shape(x).size(); ++d)
    if (!reduces(a, d)) s.push_back(b.shape(x)[d]);
  return build_reshape(b, y, s);
}
Result<Values> import_log_sum_exp(ImportContext& c) {
  if (INGOT_TRY(is_noop(c))) return Values{c.in(0)};
  return over_axes(c, [&](ValueId x, const AxesAttrs& a) { return build_log_sum_exp(c.builder, x, a); });
}
Result<Values> import_arg(ImportContext& c) {
  AxesAttrs a;
  a.axes = {INGOT_TRY(wrap_axis(INGOT_TRY(c.node.int_or("axis", 0)), c.rank(0)))};
  a.keep = INGOT_TRY(c.node.int_or("keepdims", 1)) != 0;
  a.last = INGOT_TRY(c.node.int_or("select_last_index", 0)) != 0;
  return one(c.builder.add(op(c.node.op), a, {c.in(0)}));
}
template <bool is_max>
Result<Values> import_global(ImportContext& c) {
  std::vector<int64_t> axes(c.rank(0) - 2);
  std::iota(axes.begin(), axes.end(), 2);
  return one(build_reduce(c.builder, is_max ? "ReduceMax" : "ReduceMean", c.in(0), axes, true));
}

Result<Types> infer_part_sums(const OpView& v) {
  const int64_t width = v.attrs.as<PartSumsAttrs>().width;
  if (v.inputs[0].rank() == 0 || width < 1 || !simplify(floor_mod(v.inputs[0].shape.back(), Expr(width))).is_const(0))
    return invalid("its last dimension has no whole parts of that width");
  TensorType out{DType::F32, v.inputs[0].shape};
  out.shape.back() = simplify(floor_div(out.shape.back(), Expr(width)));
  return Types{out};
}
ReductionForm part_form(const OpView& v) {
  ReductionForm f;
  f.extents = {v.attrs.as<PartSumsAttrs>().width};
  return f;
}
Expr part_element(const OpView& v, const Index& out, const Index& reduced) {
  const auto& a = v.attrs.as<PartSumsAttrs>();
  Index in = out;
  in.back() = in.back() * a.width + reduced[0];
  const Expr x = cast(DType::F32, v.read(0, in));
  return a.square ? x * x : x;
}
constexpr OpDef part_sums() {
  OpDef d;
  d.name = "PartSums", d.doc = "sums, in f32, of every `width` elements of the last dimension, or of their squares; internal";
  d.infer = infer_part_sums, d.lower = Reduction{part_form, part_element};
  d.parse_attrs = parse_attrs<PartSumsAttrs>;
  return d;
}

constexpr OpDef row(std::string_view name, std::span<const ImportRule> imports, Reduction lower, InferFn infer = infer_reduce, std::string_view doc = "") {
  OpDef d;
  d.name = name, d.doc = doc, d.imports = imports, d.infer = infer, d.lower = lower, d.max_inputs = 2;
  d.parse_attrs = parse_attrs<AxesAttrs>;
  return d;
}
constexpr OpDef alias(std::string_view name, std::string_view doc, std::span<const ImportRule> imports, int max_inputs = 1) {
  OpDef d;
  d.name = name, d.doc = doc, d.imports = imports, d.max_inputs = max_inputs;
  return d;
}
constexpr auto kReduce = std::span<const ImportRule>(kRules<import_reduce, 1, 11, 13, 18, 20>);

const OpDef kReduceOps[] = {
    row("ReduceSum", kReduce, {form_of<Combine::Sum>, plain}),
    row("ReduceMean", kReduce, {form_of<Combine::Sum>, plain, divide_by_count}),
    row("ReduceMax", kReduce, {form_of<Combine::Max>, plain}),
    row("ReduceMin", kReduce, {form_of<Combine::Min>, plain}),
    row("ReduceProd", kReduce, {form_of<Combine::Product>, plain}),
    row("ReduceL1", kReduce, {form_of<Combine::Sum>, absolute}),
    row("ReduceL2", kReduce, {form_of<Combine::Sum>, square, square_root}),
    row("ReduceSumSquare", kReduce, {form_of<Combine::Sum>, square}),
    row("ReduceLogSum", kReduce, {form_of<Combine::Sum>, plain, logarithm}),
    row("ReduceSumExp", {}, {form_of<Combine::Sum>, exponential}, infer_reduce, "internal"),
    alias("ReduceLogSumExp", "shifted by the maximum", kRules<import_log_sum_exp, 1, 11, 13, 18>, 2),
    row("ArgMax", kRules<import_arg, 1, 11, 12, 13>, {form_of<Combine::ArgMax>, plain}, infer_arg),
    row("ArgMin", kRules<import_arg, 1, 11, 12, 13>, {form_of<Combine::ArgMin>, plain}, infer_arg),
    part_sums(),
    alias("GlobalAveragePool", "ReduceMean over the spatial axes", kRules<import_global<false>, 1, 22>),
    alias("GlobalMaxPool", "ReduceMax over the spatial axes", kRules<import_global<true>, 1, 22>),
};

}  // namespace

std::span<const OpDef> reduce_ops() { return kReduceOps; }

}  // namespace ingot
