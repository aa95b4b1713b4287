// The operator graph: SSA values with type and optional known content, nodes from the registry. Handles are 32-bit ids;
// deleting marks, compact() renumbers. All edits go through the functions below, which keep the use lists right.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "compiler/ir/op_def.h"
#include "compiler/ir/type.h"
#include "compiler/support/strong_id.h"
#include "compiler/support/tensor.h"

namespace ingot {

struct NodeTag;
using NodeId = StrongId<NodeTag>;
class Graph;

/// The model nodes that a node stands for; survives every rewrite, so that errors and kernels can name them.
struct Origin {
  std::vector<std::string> nodes;  // names as in the model
  void merge(const Origin& other);
};

/// The elements of a small tensor as expressions over dimensions: how shape arithmetic is evaluated.
using Content = std::shared_ptr<const std::vector<Expr>>;
constexpr int64_t kMaxContent = 1024;

struct Value {
  TensorType type;
  std::string name;              // from the model; may be empty
  NodeId producer;               // invalid for inputs and constants
  uint32_t output_index = 0;
  std::vector<NodeId> users;     // one entry per use
  TensorPtr constant;            // set for constants
  Content content;               // may be set for any small value
  bool keeps_f32 = false;        // the model asks for f32 among values of 16 bits: that is how it is stored
};

struct Node {
  const OpDef* op = nullptr;
  AttrsBox attrs;
  std::vector<ValueId> inputs;   // an omitted optional input is invalid
  std::vector<ValueId> outputs;
  Origin origin;
  std::shared_ptr<Graph> body;   // Fused only; its inputs and outputs correspond to the node's
  std::vector<std::shared_ptr<Graph>> branches;  // control flow (compiler/ops/control.h): what runs, decided at run time
  bool dead = false;
};

/// A number that the program learns at run time: element `element` of an input, or of a computed value that it reads back.
/// `symbol` is an i64, Tensor::bits_at of the element; sizes and indices may use an integer's like a dimension.
struct ValueSymbol {
  Expr symbol;
  ValueId value;
  int64_t element = 0;
};
/// One name for a number that follows from others by a long expression, so that kernels see a dimension and no more.
struct DerivedSymbol {
  Expr symbol, definition;
};
/// A condition that the dims of a call must meet, and what to say when they do not.
struct ShapeRequirement {
  Expr condition;
  std::string message;
};

class Graph {
 public:
  std::string name;
  std::vector<ValueId> inputs, outputs;
  std::vector<std::string> output_names;  // outputs may repeat a value; names and positions survive
  std::vector<Expr> symbols;              // the named dimensions, with ranges
  std::vector<ValueSymbol> value_symbols;
  std::vector<DerivedSymbol> derived_symbols;  // definitions use earlier ones
  DType stored_as = DType::F32;  // what f32 values between kernels are stored as, unless the user says so
  std::vector<ShapeRequirement> requirements;  // what operators ask of run-time values; those of shapes follow from the nodes

  ValueId add_input(TensorType type, std::string name);
  ValueId add_constant(TensorPtr tensor, std::string name = "");
  NodeId add_node(const OpDef* op, AttrsBox attrs, std::vector<ValueId> inputs, std::vector<TensorType> outputs, Origin origin);

  /// Every use of `from`, and every graph output that is it, becomes `to`.
  void replace_all_uses(ValueId from, ValueId to);
  /// Uses of `from` by one node become `to`.
  void replace_use(NodeId user, ValueId from, ValueId to);
  /// The node reads these values instead.
  void set_inputs(NodeId id, std::vector<ValueId> inputs);
  /// One more output of a node.
  ValueId append_output(NodeId id, TensorType type);
  /// Removes the node if nobody uses its outputs, then its producers likewise. True when something went.
  bool erase_if_dead(NodeId id);
  /// Drops dead nodes and unused values and renumbers in topological order.
  void compact();

  Node& node(NodeId id) { return nodes_[id.index]; }
  const Node& node(NodeId id) const { return nodes_[id.index]; }
  Value& value(ValueId id) { return values_[id.index]; }
  const Value& value(ValueId id) const { return values_[id.index]; }
  size_t node_count() const { return nodes_.size(); }
  size_t value_count() const { return values_.size(); }
  size_t live_nodes() const;
  /// An output of the model, or a value that is read back: its elements must be in memory.
  bool is_output(ValueId id) const;
  bool is_read_back(ValueId id) const;
  /// Live nodes, producers first; stable: keeps the order of creation where it may. Not recursive.
  std::vector<NodeId> order() const;
  const Node* producer(ValueId id) const;  // null for inputs and constants
  /// The node that is all that reads the value, or null: an output has a reader outside of the graph.
  const Node* only_reader(ValueId id) const;
  OpView view(const Node& node, std::vector<TensorType>& inputs, std::vector<TensorType>& outputs) const;

 private:
  std::vector<Node> nodes_;
  std::vector<Value> values_;
};

/// Owns the type arrays that an OpView points to.
class NodeView {
 public:
  NodeView(const Graph& graph, const Node& node) : view_(graph.view(node, inputs_, outputs_)) {}
  NodeView(const NodeView&) = delete;
  const OpView& operator*() const { return view_; }
  const OpView* operator->() const { return &view_; }

 private:
  std::vector<TensorType> inputs_, outputs_;
  OpView view_;
};

}  // namespace ingot
