// Why the kernels of a fused graph are as many as they are: each pair of groups of which one reads what the other writes,
// with the reason that they are two. Made from the finished graph and the refusals that the passes left behind, so that
// every pair has one.
#pragma once

#include <string>
#include <vector>

#include "passes/pass_manager.h"

namespace ingot {

struct Neighbours {
  NodeId producer, consumer;  // both have a kernel: joins between them are passed over
  ValueId value;              // what the consumer reads; the first, of several
  std::string reason;
};

/// In the order of `graph`, which is fused. `refusals` are those of the passes that made it.
std::vector<Neighbours> explain_neighbours(const Graph& graph, const std::vector<Refusal>& refusals);

/// Why no kernel computes what this node reads where it reads it: products and windows read each value often. Null for
/// other nodes.
const char* reads_often(const Graph& graph, const Node& node);

/// What refusals call a node: Relu "layer1/relu".
std::string node_label(const Node& node);

}  // namespace ingot
