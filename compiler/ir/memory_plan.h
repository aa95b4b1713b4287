// Where intermediate values live, and which launches run beside each other: the meeting point of passes/plan_memory.h and
// passes/assign_lanes.h, which decide, and codegen/build_program.h.
#pragma once

#include <vector>

#include "compiler/ir/graph.h"

namespace ingot {

/// For each launch, in the plan's order: its lane, and the earlier launches of other lanes that it waits for.
struct LanePlan {
  std::vector<int32_t> lane;
  std::vector<std::vector<int32_t>> waits;
};

struct MemoryPlan {
  std::vector<NodeId> order;          // the sequence of launches: every node but joins, which launch nothing
  IdMap<ValueId, int> slot;           // arena slot of a value, -1 for inputs, outputs, their parts and constants
  std::vector<Expr> slot_bytes;       // over the graph's symbols
  LanePlan lanes;
};

}  // namespace ingot
