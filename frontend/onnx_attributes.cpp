#include "frontend/onnx_attributes.h"

#include <fmt/format.h>

#include "frontend/text.h"

namespace ingot {
namespace {

// ONNX's numbers for Attribute.type.
enum AttrType : int32_t {
  kUndefined,
  kFloat,
  kInt,
  kString,
  kTensor,
  kGraph,
  kFloats,
  kInts,
  kStrings,
  kTensors,
  kGraphs,
  kSparseTensor,
  kSparseTensors,
  kType,
  kTypes
};

/// The type, or for files that predate the field, which value is there.
int32_t type_of(const onnx::Attribute& a) {
  if (a.type() != kUndefined) return a.type();
  if (a.has_f()) return kFloat;
  if (a.has_i()) return kInt;
  if (a.has_s()) return kString;
  if (a.has_t()) return kTensor;
  if (a.has_g()) return kGraph;
  if (a.has_sparse_tensor()) return kSparseTensor;
  if (a.floats_size()) return kFloats;
  if (a.strings_size()) return kStrings;
  if (a.graphs_size()) return kGraphs;
  if (a.tensors_size()) return kTensors;
  return kInts;
}

}  // namespace

Result<std::optional<OnnxAttr>> attr_from_onnx(const onnx::Attribute& a, WeightLoader& weights) {
  using Attr = std::optional<OnnxAttr>;
  switch (type_of(a)) {
    case kFloat: return Attr(double{a.f()});  // writers leave zeros out, so an absent field is one
    case kInt: return Attr(int64_t{a.i()});
    case kString: return Attr(a.s());
    case kFloats: return Attr(std::vector<double>(a.floats().begin(), a.floats().end()));
    case kInts: return Attr(std::vector<int64_t>(a.ints().begin(), a.ints().end()));
    case kStrings: return Attr(std::vector<std::string>(a.strings().begin(), a.strings().end()));
    case kTensor:
      if (!a.has_t()) return invalid(fmt::format("attribute {} has no tensor", quote_name(a.name())));
      return Attr(INGOT_TRY(weights.load(a.t())));
    case kSparseTensor:
      if (!a.has_sparse_tensor()) return invalid(fmt::format("attribute {} has no tensor", quote_name(a.name())));
      return Attr(INGOT_TRY(weights.load(a.sparse_tensor())));
    case kGraph:
    case kGraphs:
    case kTensors:
    case kSparseTensors:
    case kType:
    case kTypes: return Attr();
    default:
      return unsupported(fmt::format("attribute {} has the unknown type number {}", quote_name(a.name()), a.type()));
  }
}

Result<TensorPtr> constant_from_attr(const onnx::Attribute& a) {
  if (a.name() == "value_float") return std::make_shared<const Tensor>(Tensor::scalar(DType::F32, a.f()));
  if (a.name() == "value_int") {
    Tensor t(DType::I64, {});
    t.set_int(0, a.i());
    return std::make_shared<const Tensor>(std::move(t));
  }
  if (a.name() == "value_ints") return std::make_shared<const Tensor>(Tensor::ints({a.ints().begin(), a.ints().end()}));
  if (a.name() == "value_floats") {
    Tensor t(DType::F32, {a.floats_size()});
    for (int i = 0; i < a.floats_size(); ++i) t.mutable_as<float>()[i] = a.floats(i);
    return std::make_shared<const Tensor>(std::move(t));
  }
  return unsupported(fmt::format("a constant given by {} is not supported", quote_name(a.name())));
}

}  // namespace ingot
