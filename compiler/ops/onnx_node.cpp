#include "compiler/ops/onnx_node.h"

#include <fmt/format.h>

#include <optional>

namespace ingot {
namespace {
template <class T>
Result<T> get(const OnnxNode& node, const std::string& attr, T fallback) {
  auto it = node.attrs.find(attr);
  if (it == node.attrs.end()) return fallback;
  if (auto* v = std::get_if<T>(&it->second)) return *v;
  if constexpr (std::is_same_v<T, std::vector<int64_t>>)
    if (auto* f = std::get_if<std::vector<double>>(&it->second); f && f->empty()) return fallback;
  return invalid(fmt::format("attribute {} has the wrong type", attr));
}
}  // namespace

Result<int64_t> OnnxNode::int_or(const std::string& a, int64_t f) const { return get(*this, a, f); }
Result<double> OnnxNode::float_or(const std::string& a, double f) const { return get(*this, a, f); }
Result<std::string> OnnxNode::string_or(const std::string& a, const std::string& f) const { return get(*this, a, f); }
Result<std::vector<int64_t>> OnnxNode::ints_or(const std::string& a, std::vector<int64_t> f) const {
  return get(*this, a, std::move(f));
}
TensorPtr OnnxNode::tensor(const std::string& a) const {
  auto it = attrs.find(a);
  auto* t = it == attrs.end() ? nullptr : std::get_if<TensorPtr>(&it->second);
  return t ? *t : nullptr;
}

Result<int64_t> wrap_axis(int64_t axis, size_t rank) {
  const auto r = static_cast<int64_t>(rank);
  if (axis < -r || axis >= r) return invalid(fmt::format("axis {} is outside [-{}, {})", axis, r, r));
  return axis < 0 ? axis + r : axis;
}

namespace {
// Indexed by ONNX's data_type.
struct DataTypeRow {
  const char* name;
  std::optional<DType> type;
};
const DataTypeRow kDataTypes[] = {
    {"undefined", {}},
    {"float", DType::F32},
    {"uint8", DType::U8},
    {"int8", DType::I8},
    {"uint16", DType::U16},
    {"int16", DType::I16},
    {"int32", DType::I32},
    {"int64", DType::I64},
    {"string", DType::String},
    {"bool", DType::Bool},
    {"float16", DType::F16},
    {"double", DType::F64},
    {"uint32", DType::U32},
    {"uint64", DType::U64},
    {"complex64", {}},
    {"complex128", {}},
    {"bfloat16", DType::BF16},
    {"float8e4m3fn", DType::F8E4M3},
    {"float8e4m3fnuz", DType::F8E4M3FNUZ},
    {"float8e5m2", DType::F8E5M2},
    {"float8e5m2fnuz", DType::F8E5M2FNUZ},
    {"uint4", DType::U4},
    {"int4", DType::I4},
    {"float4e2m1", DType::F4E2M1},
    {"float8e8m0", DType::F8E8M0},
    {"uint2", DType::U2},
    {"int2", DType::I2},
};
}  // namespace

Result<DType> dtype_from_onnx(int64_t data_type) {
  if (data_type < 0 || data_type >= static_cast<int64_t>(std::size(kDataTypes)))
    return unsupported(fmt::format("element type number {} is unknown", data_type));
  const DataTypeRow& row = kDataTypes[data_type];
  if (data_type == 0) return invalid("the element type is missing");
  if (!row.type || *row.type == DType::String)
    return unsupported(fmt::format("element type {} is not supported", row.name));
  return *row.type;
}

int32_t dtype_to_onnx(DType type) {
  for (size_t i = 0; i < std::size(kDataTypes); ++i)
    if (kDataTypes[i].type == type) return static_cast<int32_t>(i);
  return 0;
}

Result<std::vector<Expr>> ImportContext::content(size_t i) const {
  if (!has(i)) return invalid(fmt::format("input {} is missing", i));
  if (Content c = builder.demand_content(inputs[i])) return *c;
  wanted.push_back(inputs[i]);
  const char* why = static_dims(type(i).shape) ? "has more elements than a call looks at" : "has a dynamic number of elements";
  return unsupported(fmt::format("input {} ({}) decides shapes, but {}", i, to_string(type(i)), why));
}

Result<std::vector<int64_t>> ImportContext::ints(size_t i) const {
  std::vector<int64_t> numbers;
  for (const Expr& e : INGOT_TRY(content(i))) {
    if (!e.as_int()) wanted.push_back(inputs[i]);
    if (!e.as_int()) return unsupported(fmt::format("input {} must be constant, but is {}", i, to_string(e)));
    numbers.push_back(*e.as_int());
  }
  return numbers;
}

Result<std::vector<int64_t>> ImportContext::axes(size_t i, size_t rank, std::vector<int64_t> fallback) const {
  std::vector<int64_t> list = has(i) ? INGOT_TRY(ints(i)) : INGOT_TRY(node.ints_or("axes", std::move(fallback)));
  for (int64_t& a : list) a = INGOT_TRY(wrap_axis(a, rank));
  return list;
}

}  // namespace ingot
