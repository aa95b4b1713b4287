// Joined values. A join is a fused node without a kernel: its body only moves elements (Concat, and movement that is one to
// one), so it says where in its result every element of its inputs lies. The inputs, its parts, have no memory of their own:
// what computes a part writes it into its place in the result, and what reads one reads it there. A result may be a part of
// another join. A value is a part of one join at most.
#pragma once

#include "compiler/ir/graph.h"

namespace ingot {

constexpr const char* kJoinKind = "join";  // FusedAttrs::kind

bool is_join(const Node& n);
/// The join that v is a part of, or null.
const Node* join_of(const Graph& graph, ValueId v);
/// The value that the memory of v belongs to: v itself, or the result of the outermost join that it is in.
ValueId holder_of(const Graph& graph, ValueId v);
/// Where element `index` of v lies in holder_of(v).
Index index_in_holder(const Graph& graph, ValueId v, Index index);
/// Where element `index` of `part`, a value of the body, lies in the body's result.
Index index_in_join(const Graph& body, ValueId part, Index index);
/// The nodes whose kernels write elements of v, in no order: several for the result of a join.
std::vector<NodeId> writers_of(const Graph& graph, ValueId v);

}  // namespace ingot
