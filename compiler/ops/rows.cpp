#include "compiler/ops/rows.h"

#include <fmt/format.h>

namespace ingot {

Result<Values> import_same(ImportContext& c) {
  return c.builder.add_all(*find_op(c.node.op, c.node.domain), {}, c.inputs);
}

bool in_class(DType type, TypeClass types) {
  switch (types) {
    case TypeClass::Any: return type != DType::String;
    case TypeClass::Numeric: return is_float(type) || is_integer(type);
    case TypeClass::Floats: return is_float(type);
    case TypeClass::Integers: return is_integer(type);
    case TypeClass::Bools: return type == DType::Bool;
  }
  return false;
}

Result<std::vector<TensorType>> infer_pointwise(const OpView& v, TypeClass types) {
  TensorType out = v.inputs[0];
  if (!in_class(out.dtype, types)) return unsupported(fmt::format("element type {}", name_of(out.dtype)));
  for (size_t i = 1; i < v.inputs.size(); ++i) {
    if (!v.has(i)) continue;
    if (v.inputs[i].dtype != out.dtype)
      return invalid(fmt::format("inputs of different types, {} and {}", name_of(out.dtype), name_of(v.inputs[i].dtype)));
    out.shape = INGOT_TRY(broadcast(out.shape, v.inputs[i].shape));
  }
  return std::vector<TensorType>{out};
}

Result<ValueId> build_reshape(GraphBuilder& b, ValueId x, Shape shape) {
  if (same_shape(b.shape(x), shape)) return x;
  return b.add(op("Reshape"), ShapeAttrs{std::move(shape)}, {x});
}
Result<ValueId> build_transpose(GraphBuilder& b, ValueId x, std::vector<int64_t> perm) {
  return b.add(op("Transpose"), PermAttrs{std::move(perm)}, {x});
}
Result<ValueId> build_binary(GraphBuilder& b, std::string_view name, ValueId x, ValueId y) {
  return b.add(op(name), {x, y});
}
Result<ValueId> build_scalar(GraphBuilder& b, std::string_view name, ValueId x, double scalar) {
  return b.add(op(name), {x, b.scalar(b.type(x).dtype, scalar)});
}
Result<ValueId> build_cast(GraphBuilder& b, ValueId x, DType to) {
  if (b.type(x).dtype == to) return x;
  return b.add(op("Cast"), CastAttrs{to}, {x});
}
Result<ValueId> build_reduce(GraphBuilder& b, std::string_view name, ValueId x, std::vector<int64_t> axes, bool keep) {
  return b.add(op(name), AxesAttrs{std::move(axes), keep}, {x});
}

}  // namespace ingot
