#include "compiler/ops/onnx_node.h"

#include <fmt/format.h>

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

Result<DType> dtype_from_onnx(int64_t number) {
  switch (number) {
    case 1: return DType::F32;
    case 2: return DType::U8;
    case 3: return DType::I8;
    case 4: return DType::U16;
    case 5: return DType::I16;
    case 6: return DType::I32;
    case 7: return DType::I64;
    case 8: return DType::String;
    case 9: return DType::Bool;
    case 10: return DType::F16;
    case 11: return DType::F64;
    case 12: return DType::U32;
    case 13: return DType::U64;
    case 16: return DType::BF16;
    case 17: return DType::F8E4M3;
    case 19: return DType::F8E5M2;
    case 21: return DType::U4;
    case 22: return DType::I4;
    default: return unsupported(fmt::format("ONNX data type {}", number));
  }
}

Result<std::vector<Expr>> ImportContext::content(size_t i) const {
  if (!has(i)) return invalid(fmt::format("input {} is missing", i));
  if (Content c = builder.content(inputs[i])) return *c;
  wanted.push_back(inputs[i]);
  return unsupported(fmt::format("input {} ({}) decides shapes, but its value is computed from data at run time", i,
                                 to_string(type(i))));
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
