// Memory for outputs and messages about memory, shared by engines and sessions.
#pragma once

#include <string>

#include "compiler/support/tensor.h"
#include "runtime/device.h"

namespace ingot::runtime {

constexpr uint64_t kMemoryAlignment = 256;

uint64_t align_up(uint64_t bytes);
/// "12.3 MiB"
std::string human(uint64_t bytes);
/// What was needed for what, and how much there is.
Error out_of_memory(const Device& device, uint64_t bytes, const std::string& what, const Error& cause);

/// An output tensor whose bytes are not cleared first: a kernel or a copy writes all of them.
Result<Tensor> raw_tensor(DType type, const std::vector<int64_t>& dims, const std::string& name);

}  // namespace ingot::runtime
