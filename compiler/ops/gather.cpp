// Gather, GatherElements, GatherND: every output element is an input element whose position is data.
#include <optional>

#include "compiler/ops/rows.h"

namespace ingot {
namespace {

using Types = std::vector<TensorType>;
Types same_dtype(const OpView& v, Shape shape) { return {{v.inputs[0].dtype, std::move(shape)}}; }

Result<Types> infer_gather(const OpView& v) {
  const auto axis = static_cast<size_t>(v.attrs.as<AxisAttrs>().axis);
  Shape out(v.inputs[0].shape.begin(), v.inputs[0].shape.begin() + static_cast<int64_t>(axis));
  out.insert(out.end(), v.inputs[1].shape.begin(), v.inputs[1].shape.end());
  out.insert(out.end(), v.inputs[0].shape.begin() + static_cast<int64_t>(axis) + 1, v.inputs[0].shape.end());
  return same_dtype(v, out);
}
Expr gather_element(const OpView& v, const Index& out) {
  const auto axis = static_cast<size_t>(v.attrs.as<AxisAttrs>().axis);
  const size_t rank = v.inputs[1].rank();
  const auto at = [&](size_t i) { return out.begin() + static_cast<int64_t>(i); };
  Index in(out.begin(), at(axis));
  in.push_back(safe_index(v.read(1, Index(at(axis), at(axis + rank))), v.inputs[0].shape[axis]));
  in.insert(in.end(), at(axis + rank), out.end());
  return v.read(0, in);
}
/// Evenly spaced positions that are known: start, step; nullopt for others, or where one is out of range.
std::optional<std::pair<int64_t, int64_t>> even_steps(const std::vector<Expr>& indices, int64_t dim) {
  std::vector<int64_t> at;
  for (const Expr& i : indices) {
    if (!i.is_const()) return std::nullopt;
    at.push_back(i.int_value() < 0 ? i.int_value() + dim : i.int_value());
    if (at.back() < 0 || at.back() >= dim) return std::nullopt;
  }
  if (at.empty()) return std::nullopt;
  const int64_t step = at.size() > 1 ? at[1] - at[0] : 1;
  for (size_t i = 1; i < at.size(); ++i)
    if (at[i] - at[i - 1] != step) return std::nullopt;
  return step > 0 ? std::optional(std::pair{at[0], step}) : std::nullopt;
}
/// A Gather of evenly spaced positions is a Slice: an index map that fusion looks through.
Result<ValueId> gather_as_slice(ImportContext& c, size_t axis) {
  const Shape shape = c.type(0).shape, picked = c.type(1).shape;
  const auto dim = shape[axis].as_int();
  const Content indices = c.builder.content(c.in(1));
  if (!dim || !indices || c.builder.content(c.in(0))) return ValueId();
  const auto steps = even_steps(*indices, *dim);
  if (!steps) return ValueId();
  const auto count = static_cast<int64_t>(indices->size());
  const ValueId part = INGOT_TRY(build_slice(c.builder, c.in(0), axis, steps->first, count, steps->second));
  Shape out(shape.begin(), shape.begin() + static_cast<int64_t>(axis));
  out.insert(out.end(), picked.begin(), picked.end());
  out.insert(out.end(), shape.begin() + static_cast<int64_t>(axis) + 1, shape.end());
  return build_reshape(c.builder, part, out);
}
Result<Values> import_gather(ImportContext& c) {
  const int64_t axis = INGOT_TRY(wrap_axis(INGOT_TRY(c.node.int_or("axis", 0)), c.rank(0)));
  if (c.node.op == "Gather") {
    const ValueId part = INGOT_TRY(gather_as_slice(c, static_cast<size_t>(axis)));
    if (part.valid()) return Values{part};
  }
  return one(c.builder.add(op(c.node.op), AxisAttrs{axis}, c.inputs));
}
Result<Types> infer_gather_elements(const OpView& v) { return same_dtype(v, v.inputs[1].shape); }
Expr gather_elements_element(const OpView& v, const Index& out) {
  const auto axis = static_cast<size_t>(v.attrs.as<AxisAttrs>().axis);
  Index in = out;
  in[axis] = safe_index(v.read(1, out), v.inputs[0].shape[axis]);
  return v.read(0, in);
}
struct BatchAttrs {
  int64_t batch = 0;
  INGOT_FIELDS(batch)
};
Result<Types> infer_gather_nd(const OpView& v) {
  const Shape &x = v.inputs[0].shape, &i = v.inputs[1].shape;
  const auto depth = i.back().as_int();
  const auto batch = static_cast<size_t>(v.attrs.as<BatchAttrs>().batch);
  if (!depth || *depth < 0 || batch + static_cast<size_t>(*depth) > x.size()) return invalid("index depth exceeds the rank");
  Shape out(i.begin(), i.end() - 1);
  out.insert(out.end(), x.begin() + static_cast<int64_t>(batch) + *depth, x.end());
  return same_dtype(v, out);
}
Expr gather_nd_element(const OpView& v, const Index& out) {
  const auto batch = static_cast<size_t>(v.attrs.as<BatchAttrs>().batch);
  const size_t lead = v.inputs[1].rank() - 1;
  const auto depth = static_cast<size_t>(*v.inputs[1].shape.back().as_int());
  Index in(out.begin(), out.begin() + static_cast<int64_t>(batch));
  for (size_t d = 0; d < depth; ++d) {
    Index at(out.begin(), out.begin() + static_cast<int64_t>(lead));
    at.push_back(static_cast<int64_t>(d));
    in.push_back(safe_index(v.read(1, at), v.inputs[0].shape[batch + d]));
  }
  in.insert(in.end(), out.begin() + static_cast<int64_t>(lead), out.end());
  return v.read(0, in);
}
Result<Values> import_gather_nd(ImportContext& c) {
  if (c.rank(1) == 0) return invalid("indices need rank 1 or more");
  return one(c.builder.add(op("GatherND"), BatchAttrs{INGOT_TRY(c.node.int_or("batch_dims", 0))}, c.inputs));
}

template <class Attrs>
constexpr OpDef row(std::string_view name, std::span<const ImportRule> imports, InferFn infer, Lowering lower) {
  OpDef d;
  d.name = name, d.imports = imports, d.infer = infer, d.lower = lower, d.min_inputs = d.max_inputs = 2;
  d.parse_attrs = parse_attrs<Attrs>;
  return d;
}
const OpDef kGather[] = {
    row<AxisAttrs>("Gather", kRules<import_gather, 1, 11, 13>, infer_gather, Element{gather_element}),
    row<AxisAttrs>("GatherElements", kRules<import_gather, 11, 13>, infer_gather_elements, Element{gather_elements_element}),
    row<BatchAttrs>("GatherND", kRules<import_gather_nd, 11, 12, 13>, infer_gather_nd, Element{gather_nd_element}),
};

}  // namespace

Expr wrapped_index(const Expr& index, const Expr& dim) {
  const Expr i = cast(DType::I64, index);
  return select(lt(i, 0), i + dim, i);
}
Expr safe_index(const Expr& index, const Expr& dim) {
  const Expr i = wrapped_index(index, dim);
  return i.is_const() && dim.is_const() ? i : max(0, min(i, dim - 1));
}
Result<ValueId> build_gather(GraphBuilder& b, ValueId x, ValueId indices, size_t axis) {
  return b.add(op("Gather"), AxisAttrs{static_cast<int64_t>(axis)}, {x, indices});
}
Result<ValueId> build_gather_elements(GraphBuilder& b, ValueId x, ValueId indices, size_t axis) {
  return b.add(op("GatherElements"), AxisAttrs{static_cast<int64_t>(axis)}, {x, indices});
}

std::span<const OpDef> gather_ops() { return kGather; }

}  // namespace ingot
