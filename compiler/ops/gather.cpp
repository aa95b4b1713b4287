// Gather, GatherElements, GatherND: every output element is an input element whose position is data.
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
Result<Values> import_gather(ImportContext& c) {
  const int64_t axis = INGOT_TRY(wrap_axis(INGOT_TRY(c.node.int_or("axis", 0)), c.rank(0)));
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
