// Attention as points with a row of scores in scratch: what the CPU runs where all scores would take too much memory.
#pragma once

#include "codegen/kernel/kernel.h"

namespace ingot::cpu {

/// The kernel, which is one Attend, as a point for each query.
Kernel attention_as_points(const Kernel& kernel);

}  // namespace ingot::cpu
