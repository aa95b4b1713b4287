// OpDef: one row per operator. The struct is declared here; its values live in compiler/ops. A node holds a const OpDef*,
// passes ask `lower` for the fusion class, never the name.
#pragma once

#include <span>
#include <string_view>
#include <variant>

#include "compiler/expr/combine.h"
#include "compiler/ir/attrs.h"
#include "compiler/ir/type.h"
#include "compiler/support/tensor.h"

namespace ingot {

class GraphBuilder;
class ImportContext;  // compiler/ops/onnx_node.h
struct Node;
struct ValueTag;
template <class Tag>
struct StrongId;
using ValueId = StrongId<ValueTag>;

/// What infer and lowering functions see of a node.
struct OpView {
  const AttrsBox& attrs;
  std::span<const TensorType> inputs;   // an omitted optional input has dtype String
  std::span<const TensorType> outputs;  // empty during infer

  bool has(size_t input) const { return input < inputs.size() && inputs[input].dtype != DType::String; }
  /// Element `index` of an input, in its compute type.
  Expr read(size_t input, Index index) const {
    return Expr::read(static_cast<int>(input), inputs[input].dtype, std::move(index));
  }
};

/// The output types. Never looks at data: shapes that ONNX takes from input tensors are attributes here.
using InferFn = Result<std::vector<TensorType>> (*)(const OpView&);

/// Every output element is the same scalar function of the broadcast input elements (in their compute types).
struct Pointwise { Expr (*scalar)(const OpView&, std::span<const Expr> args); };
/// Every output element is one input element, or a constant where a guard fails. `inverse` (may be null) says where an
/// input element goes, for maps that are one to one.
struct Movement {
  Expr (*element)(const OpView&, const Index& out);
  Index (*inverse)(const OpView&, const Index& in) = nullptr;
};
/// Every output element is some expression over input elements: gathers, interpolation.
struct Element { Expr (*element)(const OpView&, const Index& out); };
/// Every output element combines `value` over `extents`; `finish` (may be null) ends it. `axes` names the input dimensions
/// that are reduced, or is empty for windows.
struct ReductionForm {
  Combine combine = Combine::Sum;
  Shape extents;
  std::vector<size_t> axes;
  bool keep = true;   // reduced dimensions stay as 1
  bool last = false;  // ArgMax, ArgMin: the last of equals
};
struct Reduction {
  ReductionForm (*form)(const OpView&);
  Expr (*value)(const OpView&, const Index& out, const Index& reduced);
  Expr (*finish)(const OpView&, const Index& out, const Expr& acc) = nullptr;
};
/// acc(batch, m, n) = sum over k of a*b; `out` is the output index in terms of batch, m and n.
struct ContractionForm {
  std::vector<Expr> batch, m, n, k;  // Expr::index symbols
  Expr a, b;                         // with Reads, in the accumulator's type
  int a_input = 0, b_input = 1;
  Index out;
};
struct Contraction { ContractionForm (*form)(const OpView&); };
/// Replaced by other operators before lowering.
struct Decompose { Result<std::vector<ValueId>> (*expand)(GraphBuilder&, const Node&); };
/// A fused group: its meaning is its body.
struct Fused {};
/// Gone before lowering by other means (import-only rows).
struct NoLowering {};
using Lowering = std::variant<NoLowering, Pointwise, Movement, Element, Reduction, Contraction, Decompose, Fused>;

/// From `since` on, an ONNX node of the row's name means what `apply` builds.
struct ImportRule {
  int since = 1;
  Result<std::vector<ValueId>> (*apply)(ImportContext&) = nullptr;
};

struct OpDef {
  std::string_view name;
  std::string_view doc;
  std::string_view domain = "";
  int min_inputs = 1, max_inputs = 1;
  std::span<const ImportRule> imports;  // ascending; empty: internal to the compiler
  InferFn infer = nullptr;
  Lowering lower = NoLowering{};
  Result<AttrsBox> (*parse_attrs)(const FieldTexts&, const SymbolScope&) = nullptr;

  template <class T>
  const T* lowers_as() const { return std::get_if<T>(&lower); }
};

}  // namespace ingot
