// A graph written anew with changes: other dims, other element types, values replaced, inputs in place of what computed
// them. Types follow from inference, so a change that does not fit is an error and no malformed graph.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <unordered_map>

#include "compiler/ir/graph.h"

namespace ingot::testing {

using Sizes = std::unordered_map<std::string, int64_t>;  // of the symbols

struct GraphEdit {
  std::function<Expr(const Expr&)> dim;  // of inputs, constants and attributes; may be empty
  std::function<DType(DType)> type;  // of inputs, constants and casts; may be empty
  std::map<ValueId, ValueId> replace;  // readers of the first read the second, which is computed earlier
  std::set<ValueId> cut;  // computed values that become inputs
  std::vector<size_t> outputs;  // which stay; empty: all
  bool drop_inputs = false;  // those that nobody reads
};
struct EditedGraph {
  Graph graph;
  std::map<ValueId, ValueId> values;  // of the old graph -> of the new one
};
Result<EditedGraph> edit_graph(const Graph& graph, const GraphEdit& edit);

/// The edit that gives every symbol its size.
GraphEdit with_sizes(const Sizes& sizes);

/// What inference takes on trust, for a graph whose dims are numbers: element counts of reshapes, bounds of slices and pads,
/// equal dims of broadcasts.
Status check_static(const Graph& graph);

}  // namespace ingot::testing
