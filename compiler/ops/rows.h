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

struct AxesAttrs {
  std::vector<int64_t> axes;
  bool keep = true;
  bool last = false;
  INGOT_FIELDS(axes, keep, last)
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
  INGOT_FIELDS(to)
};

}  // namespace ingot
