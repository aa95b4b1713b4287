// Copies between two places of host memory, as a request's tensors go to and from pinned buffers: one core copies slower than
// a GPU's link does, so large ones are shared by a few threads.
#pragma once

#include <cstdint>

namespace ingot::runtime {

/// memcpy; from 1 MiB on by up to four threads of the process's own, unless another thread's copy has them.
void copy_bytes(void* to, const void* from, uint64_t bytes);

}  // namespace ingot::runtime
