// A graph with sizes to run it at: what the generator makes, the shrinker makes smaller, and a file holds.
#pragma once

#include <string>
#include <vector>

#include "tests/random_graphs/graph_edit.h"

namespace ingot::testing {

struct GraphCase {
  uint64_t seed = 0;          // of inputs and of what varies from case to case
  std::string text;           // the graph as compiler/ir/text.h prints it
  std::vector<Sizes> sizes;   // one run each
  std::string note;           // for the file: what went wrong
};

/// "# seed 7", "# sizes N=3 M=1", comments and the graph.
std::string to_text(const GraphCase& c);
Result<GraphCase> parse_case(const std::string& text);
Result<Graph> graph_of(const GraphCase& c);

/// Tensors for the graph's inputs at the sizes: mostly of size 1, some large, some with special values.
Result<std::vector<Tensor>> inputs_for(const Graph& graph, const Sizes& sizes, uint64_t seed);

}  // namespace ingot::testing
