// Kernel IR as CUDA text: what CUDA spells differently from plain C, for each kind of schedule. The text has the name
// kPlaceholderName and no header comment; cuda_backend.cpp adds both.
#pragma once

#include <string>

#include "codegen/cuda/plan_cuda.h"
#include "codegen/kernel/kernel.h"
#include "compiler/support/result.h"

namespace ingot {

constexpr const char* kPlaceholderName = "INGOT_KERNEL";

/// Includes, helper types, the entry point. `kernel` is a contraction when the schedule says Tiles.
Result<std::string> print_cuda(const Kernel& kernel, const Schedule& schedule);

}  // namespace ingot
