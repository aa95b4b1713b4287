// Control flow that is decided at run time: If and Loop as nodes with graphs of their own. Import rules and the importer
// build them here; compiler/driver/partition.h cuts the graph at them, so passes and lowering never see one.
#pragma once

#include <functional>
#include <set>
#include <utility>
#include <vector>

#include "compiler/ops/rows.h"

namespace ingot {

struct LoopAttrs {
  int64_t states = 0;
  INGOT_FIELDS(states)
};

/// A graph inside a node. Its inputs stand for values of the outer graph; their dims are constants or symbols of its own, one
/// for each distinct outer dim, so that equal dims stay equal inside.
class NestedGraph {
 public:
  explicit NestedGraph(Graph& outer) : outer_(outer) {}

  Graph graph;
  std::vector<ValueId> captured;  // outer values that the last inputs stand for

  /// An input for an outer value; dimensions in `open` get a symbol that nothing else has.
  ValueId add_input(ValueId outer, const std::set<size_t>& open = {});
  /// Likewise, or a constant where the elements are known; each outer value once.
  ValueId capture(ValueId outer);
  /// The dim in the outer graph's terms; invalid where the inside decides it.
  Expr outer_dim(const Expr& inner) const;

 private:
  Expr inner_dim(const Expr& outer);
  Expr fresh();
  Graph& outer_;
  std::vector<std::pair<Expr, Expr>> dims_;  // outer, inner
  std::vector<std::pair<ValueId, ValueId>> inside_;
};

/// Fills nested.graph by adding to its inputs; its outputs.
using BuildNested = std::function<Result<std::vector<ValueId>>(NestedGraph& nested, const std::vector<ValueId>& inputs)>;

struct LoopSpec {
  ValueId trips, condition;      // each may be invalid: no limit; true
  std::vector<ValueId> states;
  BuildNested body;              // inputs: iteration (i64), condition (bool), states; outputs: condition, states, collected
};
/// The last states, then what was collected, along a new first axis. Dims of states that iterations change are symbols.
Result<Values> build_loop(GraphBuilder& b, const LoopSpec& spec);
/// The outputs of whichever branch runs; branches have no inputs but what they capture.
Result<Values> build_if(GraphBuilder& b, ValueId condition, const BuildNested& then_branch, const BuildNested& else_branch);

}  // namespace ingot
