// Where intermediate values live: the meeting point of passes/plan_memory.h, which decides, and codegen/build_program.h.
#pragma once

#include <vector>

#include "compiler/ir/graph.h"

namespace ingot {

struct MemoryPlan {
  std::vector<NodeId> order;          // the sequence of launches
  IdMap<ValueId, int> slot;           // arena slot of a value, -1 for inputs, outputs and constants
  std::vector<Expr> slot_bytes;       // over the graph's symbols
};

/// A condition that the dims of a call must meet, and what to say when they do not.
struct ShapeRequirement {
  Expr condition;
  std::string message;
};

}  // namespace ingot
