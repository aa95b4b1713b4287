// A norm of rows, in any of the ways that exporters write it.
#pragma once

#include <optional>
#include <vector>

#include "compiler/ir/graph.h"

namespace ingot {

/// (x - mean) * rsqrt(variance + epsilon) * scale + shift along the last dimension; without the mean where it is not centred.
struct Norm {
  NodeId node;
  ValueId x, y, scale, shift;  // of the graph; scale and shift may be missing
  double epsilon = 0;
  bool centred = false;
  std::vector<NodeId> moves;  // of the norm's body: from the normed rows to y
  NodeId turn;                // of it: what makes rows of x, an image; invalid: x is rows
};

/// The norm that a fused group of rows is, and nothing else; none where its result is an output.
std::optional<Norm> match_norm(const Graph& graph, NodeId group);
/// Movement that leaves the last dimension where and as it is.
bool keeps_columns(const Graph& body, const Node& node);
/// Which value of the graph an input of the group's body is; invalid: it is none.
ValueId outside(const Node& group, ValueId inside);

}  // namespace ingot
