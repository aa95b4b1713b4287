// What is legal in a graph at each stage. A table of rules; the pass manager checks it after every pass.
#pragma once

#include "compiler/ir/graph.h"

namespace ingot {

enum class Stage : uint8_t { Imported, Canonical, Fused };

/// Structure (use lists, types against infer, arity) and the rules of the stage. Error: the first rule broken, as Internal.
Status verify(const Graph& graph, Stage stage);

}  // namespace ingot
