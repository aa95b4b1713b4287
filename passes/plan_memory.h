// Lifetimes -> arena slots. Values whose lifetimes do not overlap share a slot; sizes stay symbolic, so one plan serves
// every shape, and the runtime only evaluates them.
#pragma once

#include "compiler/ir/memory_plan.h"

namespace ingot {

/// `graph` must be fused. Inputs are never overwritten: an output gets its slot before the inputs of its node are released.
/// With several lanes a slot is only used again by launches that come after all uses of its last value. The parts of a
/// joined value share its slot, from the first that is written to the last that is read.
MemoryPlan plan_memory(const Graph& graph, int max_lanes = 1);

/// What the dims of a call must meet for index arithmetic to stay inside its buffers: broadcasting, inner dimensions and
/// reshapes that could not be proven for symbolic dims. Taken from the imported graph, before rewriting.
std::vector<ShapeRequirement> shape_requirements(const Graph& graph);

}  // namespace ingot
