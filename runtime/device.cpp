#include "runtime/device.h"

#include <fmt/format.h>

#include <cstdlib>

namespace ingot::runtime {

Result<void*> Device::allocate_host(uint64_t bytes) {
  constexpr uint64_t kAlignment = 256;
  void* memory = bytes > (uint64_t{1} << 62)
                     ? nullptr
                     : std::aligned_alloc(kAlignment, (bytes + kAlignment) / kAlignment * kAlignment);
  if (!memory)
    return make_error(ErrorKind::OutOfMemory, fmt::format("{} bytes of host memory are not available", bytes));
  return memory;
}

void Device::release_host(void* memory) { std::free(memory); }

}  // namespace ingot::runtime
