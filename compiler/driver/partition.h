// A graph whose course is decided at run time -> parts, graphs in which every size is known when they start, and the script
// that runs them (runtime/script.h). The cuts are where a computed value decides a size, and around If and Loop.
#pragma once

#include <string>
#include <vector>

#include "compiler/ir/graph.h"
#include "runtime/script.h"

namespace ingot {

struct Partition {
  std::vector<Graph> parts;
  std::vector<runtime::Script> scripts;  // [0] is the model
  std::vector<std::vector<std::string>> names;  // of each script's values; "" where the model has none
};

/// True when the graph is no single part.
bool needs_partition(const Graph& graph);
/// Error: sizes that follow from one another in a circle.
Result<Partition> partition(const Graph& graph);

}  // namespace ingot
