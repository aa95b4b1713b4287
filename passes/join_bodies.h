// What join_parts does to the bodies of groups: the tree of a concatenation without what computes its parts, and one more
// output for a group that stores a part in addition.
#pragma once

#include <optional>

#include "compiler/ops/joins.h"
#include "compiler/ops/registry.h"

namespace ingot {

/// A body that concatenates: the values that it concatenates, and a body that does only that. Its inputs are the leaves, in
/// the same order, in the type of the result.
struct JoinTree {
  std::vector<ValueId> leaves;
  std::shared_ptr<Graph> body;
};
/// nullopt when the body's output does more to its elements than put each of them in one place.
std::optional<JoinTree> join_tree(const Graph& body);

/// A concatenation that begins with the last elements of a value, or ends with the first ones of it, with the whole value in
/// their place: the rest of it lies beside the result, which is what begins at `start` of the wider one's `axis`.
struct WiderBody {
  std::shared_ptr<Graph> body;
  size_t axis = 0;
  Expr start;
};
std::optional<WiderBody> wider_body(const Graph& body);
/// The node computes that instead, and its readers read the slice.
void widen(Graph& graph, NodeId id, WiderBody wider);

/// The inputs of the body that v is computed from.
std::vector<ValueId> inputs_below(const Graph& body, ValueId v);

/// How many elements of `part`, an input of a join's body, lie side by side in the result; nullopt when they are not evenly
/// spaced along each of the part's dimensions.
std::optional<int64_t> contiguous_run(const Graph& body, ValueId part);

/// The value behind the movement that only says where an output is stored.
ValueId unmoved_output(const Graph& body, ValueId v);

/// v a second time: another output of the group that computes it.
ValueId store_again(Graph& graph, ValueId v);
/// Value v of the body of `from`, in the type of its result, as another output of the group `carrier`.
ValueId store_beside(Graph& graph, NodeId from, ValueId v, NodeId carrier);
/// The same as a group of its own.
ValueId store_apart(Graph& graph, NodeId from, ValueId v);

}  // namespace ingot
