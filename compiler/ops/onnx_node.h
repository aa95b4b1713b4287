// What import rules see of an ONNX node: attributes as plain values and inputs as graph values. The frontend fills it, so
// rows know nothing of protobuf.
#pragma once

#include <map>
#include <string>
#include <variant>
#include <vector>

#include "compiler/ir/builder.h"

namespace ingot {

using OnnxAttr = std::variant<int64_t, double, std::string, std::vector<int64_t>, std::vector<double>,
                              std::vector<std::string>, TensorPtr>;

struct OnnxNode {
  std::string op, domain, name;
  int opset = 1;                             // of the node's domain
  size_t position = 0, total = 0;            // "143 of 412"
  std::map<std::string, OnnxAttr> attrs;
  std::vector<std::string> inputs, outputs;  // names; "" for an omitted one

  bool has(const std::string& attr) const { return attrs.count(attr) != 0; }
  // The attribute, or the default when it is absent. Error: another type.
  Result<int64_t> int_or(const std::string& attr, int64_t fallback) const;
  Result<double> float_or(const std::string& attr, double fallback) const;
  Result<std::string> string_or(const std::string& attr, const std::string& fallback) const;
  Result<std::vector<int64_t>> ints_or(const std::string& attr, std::vector<int64_t> fallback) const;
  TensorPtr tensor(const std::string& attr) const;  // null when absent
};

/// One import in progress. `inputs` are graph values (invalid when omitted), in the node's order.
class ImportContext {
 public:
  ImportContext(const OnnxNode& node, GraphBuilder& builder, std::vector<ValueId> inputs)
      : node(node), builder(builder), inputs(std::move(inputs)) {}

  const OnnxNode& node;
  GraphBuilder& builder;
  std::vector<ValueId> inputs;
  mutable std::vector<ValueId> wanted;  // values that content() was asked for and did not know

  bool has(size_t i) const { return i < inputs.size() && inputs[i].valid(); }
  ValueId in(size_t i) const { return i < inputs.size() ? inputs[i] : ValueId(); }
  const TensorType& type(size_t i) const { return builder.type(inputs[i]); }
  size_t rank(size_t i) const { return type(i).rank(); }
  /// The elements of an input that ONNX uses as shape or sizes, perhaps over symbols that the program binds when it runs
  /// (GraphBuilder::demand_content). Error: there are too many of them, or their number is dynamic.
  Result<std::vector<Expr>> content(size_t i) const;
  /// Likewise, as numbers: what decides ranks and axes. Error: they are not known on import.
  Result<std::vector<int64_t>> ints(size_t i) const;
  /// `axes` from input `i` if the opset passes them so, else from the attribute; wrapped into [0, rank). `fallback` when
  /// neither is there.
  Result<std::vector<int64_t>> axes(size_t i, size_t rank, std::vector<int64_t> fallback) const;
};

/// The element type of ONNX's TensorProto.DataType number. Error: a type that is not supported (complex, string), by
/// ONNX's name.
Result<DType> dtype_from_onnx(int64_t number);
/// The inverse.
int32_t dtype_to_onnx(DType type);

/// axis in [-rank, rank) to [0, rank). Error: out of range.
Result<int64_t> wrap_axis(int64_t axis, size_t rank);

}  // namespace ingot
