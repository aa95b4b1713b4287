// "Element idx of value v" as a scalar expression: pulls through pointwise, movement and gathering operators of a group down
// to Loads of its inputs. Values that the kernel has already computed are bound to their expression instead.
#pragma once

#include <map>

#include "compiler/ir/graph.h"

namespace ingot {

constexpr int64_t kFewTerms = 64;  // a reduction of so many is computed where it is read

class GroupValues {
 public:
  /// Of the body of `node`, a group of `graph`.
  GroupValues(const Graph& graph, const Node& node);

  const Graph& body() const { return body_; }
  int buffer_of(ValueId v) const { return buffers_.at(v); }
  /// Where in its buffer element `index` of an input or output of the group lies: parts of joined values lie in the whole.
  Expr position(ValueId v, const Index& index) const;
  /// From now on v (at the position the kernel is at) is `value`.
  void bind(ValueId v, Expr value) { bound_[v] = std::move(value); }
  /// From now on all elements of v that the point needs, those of one position of its first dimension, are in this scratch array.
  void bind_scratch(ValueId v, int buffer) { scratch_[v] = buffer; }
  bool is_bound(ValueId v) const { return bound_.count(v) != 0; }
  const Expr& bound(ValueId v) const { return bound_.at(v); }

  /// Element `index` of v, in its compute type.
  Expr at(ValueId v, const Index& index);
  /// Replaces the Reads in `e`, an element function of `node`, by elements of the node's inputs.
  Expr resolve(const Node& node, const Expr& e);
  /// The scalar function of a pointwise node at output index `out`.
  Expr pointwise(const Node& node, const Index& out);

 private:
  /// A reduction of few elements, term by term; invalid: of too many.
  Expr few_terms(const Node& node, const Index& out);

  const Graph& graph_;
  const Graph& body_;
  std::map<ValueId, int> buffers_;
  std::map<ValueId, ValueId> outside_;  // inputs and outputs of the body in the graph
  std::map<ValueId, Expr> bound_;
  std::map<ValueId, int> scratch_;
  std::map<std::pair<ValueId, uint64_t>, std::vector<std::pair<Index, Expr>>> memo_;
};

/// Where an element lies among those of its position of the first dimension.
Expr place_in_row(const Shape& shape, const Index& index);

}  // namespace ingot
