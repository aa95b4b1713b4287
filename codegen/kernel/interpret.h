// The reference executor of the kernel IR: the living definition of what a kernel means. Simple rather than fast, but it
// works on a few hundred points at a time, so that whole models run in seconds.
#pragma once

#include <span>
#include <string>
#include <unordered_map>

#include "codegen/kernel/kernel.h"
#include "compiler/support/result.h"

namespace ingot {

/// Runs the kernel. `buffers[i]` is the memory of parameter i, `sizes[i]` its element count; `dims` the values of
/// kernel.dims. Error: an access outside a buffer (a fault of lowering, but reported, since this is the oracle).
Status interpret(const Kernel& kernel, std::span<void* const> buffers, std::span<const int64_t> sizes,
                 const std::unordered_map<std::string, int64_t>& dims);

}  // namespace ingot
