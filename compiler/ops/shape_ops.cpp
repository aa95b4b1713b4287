// Shape arithmetic and tensors made from nothing. Their contents are expressions over dimensions; what a kernel still needs
// of them becomes a Values node.
#include <fmt/format.h>

#include "compiler/expr/simplify.h"
#include "compiler/ops/rows.h"

namespace ingot {
namespace {

using Types = std::vector<TensorType>;

/// A small tensor whose elements are expressions over dimensions.
struct ValuesAttrs {
  DType type = DType::I64;
  std::vector<Expr> shape, items;
  INGOT_FIELDS(type, shape, items)
};
Result<Types> infer_values(const OpView& v) {
  const auto& a = v.attrs.as<ValuesAttrs>();
  return Types{{a.type, a.shape}};
}
Expr values_element(const OpView& v, const Index& out) {
  const auto& a = v.attrs.as<ValuesAttrs>();
  const Expr position = linear_index(a.shape, out);
  if (auto p = position.as_int()) return a.items[static_cast<size_t>(*p)];
  Expr result = a.items.back();
  for (size_t i = a.items.size() - 1; i-- > 0;) result = select(eq(position, static_cast<int64_t>(i)), a.items[i], result);
  return result;
}

Result<Values> import_shape(ImportContext& c) {
  const Shape& s = c.type(0).shape;
  const auto rank = static_cast<int64_t>(s.size());
  auto clamp = [rank](int64_t x) { return std::max<int64_t>(0, std::min(rank, x < 0 ? x + rank : x)); };
  const int64_t start = clamp(INGOT_TRY(c.node.int_or("start", 0))), end = clamp(INGOT_TRY(c.node.int_or("end", rank)));
  ValuesAttrs a;
  for (int64_t i = start; i < end; ++i) a.items.push_back(s[static_cast<size_t>(i)]);
  a.shape = {static_cast<int64_t>(a.items.size())};
  return one(c.builder.add(op("Values"), a, {}));
}
Result<Values> import_size(ImportContext& c) {
  return one(c.builder.add(op("Values"), ValuesAttrs{DType::I64, {}, {element_count(c.type(0).shape)}}, {}));
}
Result<Values> import_constant_of_shape(ImportContext& c) {
  Tensor fill = Tensor::scalar(DType::F32, 0);
  if (TensorPtr t = c.node.tensor("value")) {
    if (t->count() != 1) return invalid("value needs one element");
    fill = t->reshaped({});
  }
  const ValueId scalar = c.builder.constant(fill);
  const Shape shape = INGOT_TRY(c.content(0));
  for (const Expr& d : shape)
    if (d.as_int() && *d.as_int() < 0) return invalid("negative dimension");
  return one(c.builder.add(op("Expand"), ShapeAttrs{shape}, {scalar}));
}

/// start + i*step.
struct RangeAttrs {
  DType type = DType::I64;
  Expr start, step, count;
  INGOT_FIELDS(type, start, step, count)
};
Result<Types> infer_range(const OpView& v) {
  const auto& a = v.attrs.as<RangeAttrs>();
  return Types{{a.type, {a.count}}};
}
Expr range_element(const OpView& v, const Index& out) {
  const auto& a = v.attrs.as<RangeAttrs>();
  return a.start + cast(a.start.type(), out[0]) * a.step;
}
Result<Values> import_range(ImportContext& c) {
  const Expr start = INGOT_TRY(c.content(0))[0], limit = INGOT_TRY(c.content(1))[0], step = INGOT_TRY(c.content(2))[0];
  Expr count;
  if (is_float(start.type())) {
    const auto wide = [](const Expr& e) { return cast(DType::F64, e); };
    const Expr steps = call(Fn::Ceil, (wide(limit) - wide(start)) / wide(step));
    count = c.builder.named(max(0, cast(DType::I64, steps)));
  } else {
    if (step.is_const(0)) return invalid("a step of 0");
    const Expr a = cast(DType::I64, start), b = cast(DType::I64, limit), s = cast(DType::I64, step);
    count = simplify(max(0, select(lt(0, s), ceil_div(b - a, s), ceil_div(a - b, Expr(0) - s))));
  }
  return one(c.builder.add(op("Range"), RangeAttrs{c.type(0).dtype, start, step, c.builder.dimension(count)}, {}));
}

struct TriluAttrs {
  bool upper = true;
  Expr k = 0;
  INGOT_FIELDS(upper, k)
};
Result<Types> infer_first(const OpView& v) { return Types{v.inputs[0]}; }
Expr trilu_element(const OpView& v, const Index& out) {
  const auto& a = v.attrs.as<TriluAttrs>();
  const Expr row = out[out.size() - 2], col = out.back();
  const Expr x = v.read(0, out);
  return select(a.upper ? le(row + a.k, col) : le(col, row + a.k), x, zero_of(x));
}
Result<Values> import_trilu(ImportContext& c) {
  TriluAttrs a;
  a.upper = INGOT_TRY(c.node.int_or("upper", 1)) != 0;
  if (c.has(1)) a.k = INGOT_TRY(c.content(1))[0];
  return one(c.builder.add(op("Trilu"), a, {c.in(0)}));
}
struct EyeAttrs {
  DType type = DType::F32;
  std::vector<Expr> shape;
  int64_t k = 0;
  INGOT_FIELDS(type, shape, k)
};
Result<Types> infer_eye(const OpView& v) {
  const auto& a = v.attrs.as<EyeAttrs>();
  return Types{{a.type, a.shape}};
}
Expr eye_element(const OpView& v, const Index& out) {
  const auto& a = v.attrs.as<EyeAttrs>();
  return select(eq(out[0] + a.k, out[1]), Expr::number(a.type, 1), Expr::number(a.type, 0));
}
Result<Values> import_eye(ImportContext& c) {
  EyeAttrs a{c.type(0).dtype, c.type(0).shape, INGOT_TRY(c.node.int_or("k", 0))};
  if (c.node.has("dtype")) a.type = INGOT_TRY(dtype_from_onnx(INGOT_TRY(c.node.int_or("dtype", 1))));
  if (a.shape.size() != 2) return invalid("needs rank 2");
  return one(c.builder.add(op("EyeLike"), a, {}));
}
struct OneHotAttrs {
  int64_t axis = -1;
  Expr depth;
  INGOT_FIELDS(axis, depth)
};
Result<Types> infer_one_hot(const OpView& v) {
  const auto& a = v.attrs.as<OneHotAttrs>();
  Shape s = v.inputs[0].shape;
  s.insert(s.begin() + a.axis, a.depth);
  return Types{{v.inputs[1].dtype, s}};
}
Expr one_hot_element(const OpView& v, const Index& out) {
  const auto& a = v.attrs.as<OneHotAttrs>();
  Index in = out;
  in.erase(in.begin() + a.axis);
  const Expr i = cast(DType::I64, v.read(0, in));
  const Expr hit = eq(select(lt(i, 0), i + a.depth, i), out[static_cast<size_t>(a.axis)]);
  return select(hit, v.read(1, {1}), v.read(1, {0}));
}
Result<Values> import_one_hot(ImportContext& c) {
  const Expr depth = c.builder.dimension(cast(DType::I64, INGOT_TRY(c.content(1))[0]));
  const int64_t axis = INGOT_TRY(wrap_axis(INGOT_TRY(c.node.int_or("axis", -1)), c.rank(0) + 1));
  return one(c.builder.add(op("OneHot"), OneHotAttrs{axis, depth}, {c.in(0), c.in(2)}));
}

Result<Types> infer_position(const OpView& v) { return Types{{DType::I64, v.attrs.as<PositionAttrs>().shape}}; }
Expr position_element(const OpView& v, const Index& out) { return out[static_cast<size_t>(v.attrs.as<PositionAttrs>().axis)]; }

template <class Attrs>
constexpr OpDef row(std::string_view name, std::string_view doc, std::span<const ImportRule> imports, InferFn infer, Lowering lower, int min_inputs, int max_inputs) {
  OpDef d;
  d.name = name, d.doc = doc, d.imports = imports, d.infer = infer, d.lower = lower;
  d.min_inputs = min_inputs, d.max_inputs = max_inputs;
  if constexpr (!std::is_void_v<Attrs>) d.parse_attrs = parse_attrs<Attrs>;
  return d;
}

const OpDef kShape[] = {
    row<ValuesAttrs>("Values", "a small tensor of expressions over dimensions; internal", {}, infer_values, Element{values_element}, 0, 0),
    row<void>("Shape", "Values", kRules<import_shape, 1, 13, 15, 19, 21, 23>, nullptr, NoLowering{}, 1, 1),
    row<void>("Size", "Values", kRules<import_size, 1, 13, 19, 21, 23>, nullptr, NoLowering{}, 1, 1),
    row<void>("ConstantOfShape", "Expand of a scalar", kRules<import_constant_of_shape, 9, 20, 21, 23>, nullptr, NoLowering{}, 1, 1),
    row<RangeAttrs>("Range", "", kRules<import_range, 11>, infer_range, Element{range_element}, 0, 3),
    row<PositionAttrs>("Position", "the index along one axis; internal", {}, infer_position, Element{position_element}, 0, 0),
    row<TriluAttrs>("Trilu", "", kRules<import_trilu, 14>, infer_first, Element{trilu_element}, 1, 2),
    row<EyeAttrs>("EyeLike", "", kRules<import_eye, 9, 22>, infer_eye, Element{eye_element}, 0, 1),
    row<OneHotAttrs>("OneHot", "", kRules<import_one_hot, 9, 11>, infer_one_hot, Element{one_hot_element}, 2, 3),
};

}  // namespace

Result<ValueId> build_values(GraphBuilder& b, DType type, Shape shape, std::vector<Expr> items) {
  return b.add(op("Values"), ValuesAttrs{type, std::move(shape), std::move(items)}, {});
}

std::span<const OpDef> shape_ops() { return kShape; }

}  // namespace ingot
