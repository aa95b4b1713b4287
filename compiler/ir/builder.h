// GraphBuilder: adds nodes to a graph, running the row's infer and evaluating small integer contents on the way, so that
// shape arithmetic (Shape, Gather, Concat, Mul, …) never becomes a kernel.
#pragma once

#include "compiler/ir/graph.h"

namespace ingot {

class GraphBuilder {
 public:
  explicit GraphBuilder(Graph& graph) : graph_(graph) {}

  /// The origin that nodes added from now on get.
  Origin origin;

  /// Adds a node; its outputs. Error: what the row's infer said, with the operator's name and input types.
  Result<std::vector<ValueId>> add_all(const OpDef& op, AttrsBox attrs, std::vector<ValueId> inputs);
  /// Likewise, for operators with one output.
  Result<ValueId> add(const OpDef& op, AttrsBox attrs, std::vector<ValueId> inputs);
  Result<ValueId> add(const OpDef& op, std::vector<ValueId> inputs) { return add(op, {}, std::move(inputs)); }
  template <class T>
    requires(!std::is_same_v<T, AttrsBox>)
  Result<ValueId> add(const OpDef& op, T attrs, std::vector<ValueId> inputs) {
    return add(op, AttrsBox::of(std::move(attrs)), std::move(inputs));
  }

  ValueId constant(Tensor tensor, std::string name = "");
  /// A rank-0 constant of the dtype.
  ValueId scalar(DType type, double value) { return constant(Tensor::scalar(type, value)); }

  const TensorType& type(ValueId v) const { return graph_.value(v).type; }
  const Shape& shape(ValueId v) const { return graph_.value(v).type.shape; }
  /// The elements as expressions, when they are known without running anything.
  Content content(ValueId v) const { return v.valid() ? graph_.value(v).content : nullptr; }
  /// The elements of v, a small tensor: those that are known, else expressions over symbols that the program
  /// binds when it runs, from the inputs that v follows from or from v itself, read back. Null: v is not small, or its
  /// shape is dynamic.
  Content demand_content(ValueId v);
  /// The expression as a dimension. One that run-time values decide, which may be long and need not be proven
  /// non-negative, gets a symbol of its own.
  Expr dimension(const Expr& size);
  /// A symbol for an integer expression, which the program evaluates when it plans a call; a constant stays one.
  Expr named(const Expr& e);
  /// A condition on run-time values that every call must meet.
  void require(const Expr& condition, std::string message);
  Graph& graph() { return graph_; }

 private:
  bool follows_from_inputs(ValueId v, int depth) const;
  bool may_be_symbols(ValueId v) const;
  Content bind_symbols(ValueId v);
  Expr derived(const Expr& definition, int64_t low);
  Graph& graph_;
};

/// The contents of a node's outputs from the contents of its inputs; null entries where they stay unknown.
std::vector<Content> evaluate_content(const Graph& graph, const Node& node);

}  // namespace ingot
