// Helpers that make a row short: import rules, infer functions for families, and row builders. Only compiler/ops includes it.
#pragma once

#include "compiler/ops/onnx_node.h"
#include "compiler/ops/registry.h"

namespace ingot {

using Values = std::vector<ValueId>;

/// Adds the operator that has the node's name, without attributes, over the node's inputs.
Result<Values> import_same(ImportContext& c);
/// For rows whose opset changes do not concern inference: one rule for each `since`.
template <int... Since>
inline constexpr ImportRule kSame[] = {{Since, import_same}...};
template <auto F, int... Since>
inline constexpr ImportRule kRules[] = {{Since, F}...};

inline Result<Values> one(Result<ValueId> v) {
  if (!v) return std::move(v).error();
  return Values{*v};
}

enum class TypeClass : uint8_t { Any, Numeric, Floats, Integers, Bools };
bool in_class(DType type, TypeClass types);

/// Broadcast shape; the dtype of the inputs, which must agree and be in the class.
Result<std::vector<TensorType>> infer_pointwise(const OpView& v, TypeClass types);
template <TypeClass types>
Result<std::vector<TensorType>> infer_same(const OpView& v) { return infer_pointwise(v, types); }
/// As infer_same, but the result is Bool.
template <TypeClass types>
Result<std::vector<TensorType>> infer_predicate(const OpView& v) {
  auto out = infer_pointwise(v, types);
  if (out) (*out)[0].dtype = DType::Bool;
  return out;
}

template <auto F>
Expr unary_scalar(const OpView&, std::span<const Expr> x) { return F(x[0]); }
template <auto F>
Expr binary_scalar(const OpView&, std::span<const Expr> x) { return F(x[0], x[1]); }

struct RowOptions {
  std::span<const ImportRule> since;
  InferFn infer = infer_same<TypeClass::Numeric>;
  std::string_view doc = "";
};
constexpr OpDef scalar_op(std::string_view name, int arity, RowOptions o,
                          Expr (*scalar)(const OpView&, std::span<const Expr>)) {
  OpDef d;
  d.name = name, d.doc = o.doc, d.imports = o.since, d.infer = o.infer, d.lower = Pointwise{scalar};
  d.min_inputs = d.max_inputs = arity;
  return d;
}
template <auto F>
constexpr OpDef unary(std::string_view name, RowOptions o) { return scalar_op(name, 1, o, unary_scalar<F>); }
template <auto F>
constexpr OpDef binary(std::string_view name, RowOptions o) { return scalar_op(name, 2, o, binary_scalar<F>); }

/// Row-level builders that several families share.
Result<ValueId> build_reshape(GraphBuilder& b, ValueId x, Shape shape);
Result<ValueId> build_transpose(GraphBuilder& b, ValueId x, std::vector<int64_t> perm);
Result<ValueId> build_binary(GraphBuilder& b, std::string_view name, ValueId x, ValueId y);
/// name(x, scalar) with the scalar of x's dtype.
Result<ValueId> build_scalar(GraphBuilder& b, std::string_view name, ValueId x, double scalar);
Result<ValueId> build_cast(GraphBuilder& b, ValueId x, DType to);
Result<ValueId> build_reduce(GraphBuilder& b, std::string_view name, ValueId x, std::vector<int64_t> axes, bool keep);

/// A small tensor whose elements are expressions over dimensions.
Result<ValueId> build_values(GraphBuilder& b, DType type, Shape shape, std::vector<Expr> items);
Result<ValueId> build_softmax(GraphBuilder& b, ValueId x, int64_t axis, bool log = false);
/// The product with ONNX's treatment of vectors.
Result<ValueId> build_matmul(GraphBuilder& b, ValueId x, ValueId y);
/// The node's convolution (its attributes) of other operands, without bias.
Result<ValueId> build_conv(ImportContext& c, ValueId input, ValueId weight);
/// Elements start, start + step, … (`size` of them) of one axis.
Result<ValueId> build_slice(GraphBuilder& b, ValueId x, size_t axis, Expr start, Expr size, int64_t step = 1);
Result<ValueId> build_concat(GraphBuilder& b, std::vector<ValueId> parts, size_t axis);
Result<ValueId> build_gather(GraphBuilder& b, ValueId x, ValueId indices, size_t axis);
Result<ValueId> build_gather_elements(GraphBuilder& b, ValueId x, ValueId indices, size_t axis);

/// A negative index counts from the end.
Expr wrapped_index(const Expr& index, const Expr& dim);
/// Likewise, and data-dependent indices are clamped: a wrong one reads a wrong element, never outside the tensor.
Expr safe_index(const Expr& index, const Expr& dim);

/// A row that is only an import rule: other operators stand for it.
constexpr OpDef import_row(std::string_view name, std::string_view doc, std::span<const ImportRule> imports, int min_inputs,
                           int max_inputs, std::string_view domain = "") {
  OpDef d;
  d.name = name, d.doc = doc, d.imports = imports, d.min_inputs = min_inputs, d.max_inputs = max_inputs, d.domain = domain;
  return d;
}
/// A row that lowers by itself and, with import rules, is one of ONNX's operators.
template <class Attrs>
constexpr OpDef lowered_row(std::string_view name, std::string_view doc, std::span<const ImportRule> imports, InferFn infer,
                            Lowering lower, int min_inputs, int max_inputs) {
  OpDef d = import_row(name, doc, imports, min_inputs, max_inputs);
  d.infer = infer, d.lower = lower;
  if constexpr (!std::is_void_v<Attrs>) d.parse_attrs = parse_attrs<Attrs>;
  return d;
}
/// True when the node names output i.
inline bool wants_output(const ImportContext& c, size_t i) { return i < c.node.outputs.size() && !c.node.outputs[i].empty(); }

/// Index along an axis as a value: masks and coordinates are made of it.
struct PositionAttrs {
  std::vector<Expr> shape;
  int64_t axis = 0;
  INGOT_FIELDS(shape, axis)
};
struct AxesAttrs {
  std::vector<int64_t> axes;
  bool keep = true;
  bool last = false;
  INGOT_FIELDS(axes, keep, last)
};
/// Of PartSums: elements of a part, and whether their squares are added up.
struct PartSumsAttrs {
  int64_t width = 1;
  bool square = false;
  INGOT_FIELDS(width, square)
};
struct ShapeAttrs {
  std::vector<Expr> shape;
  INGOT_FIELDS(shape)
};
struct PermAttrs {
  std::vector<int64_t> perm;
  INGOT_FIELDS(perm)
};
struct CastAttrs {
  DType to = DType::F32;
  bool saturate = true;  // of fp8
  std::string round = "up";  // of f8e8m0: up, down, nearest
  INGOT_FIELDS(to, saturate, round)
};
struct AxisAttrs {
  int64_t axis = 0;
  INGOT_FIELDS(axis)
};
/// Element i along `axis` is element i + shift, counted around the end.
struct RollAttrs {
  int64_t axis = 0;
  Expr shift;
  INGOT_FIELDS(axis, shift)
};
struct SliceAttrs {
  std::vector<Expr> starts, steps, sizes;  // one entry a dimension
  INGOT_FIELDS(starts, steps, sizes)
};
/// x as a small float: beyond its largest value the largest or, unsaturated, infinity or NaN. The type has a small_float.
Expr cast_to_small_float(DType to, const Expr& x, bool saturate);

}  // namespace ingot
