#include "runtime/memory.h"

#include <fmt/format.h>

#include <cstdlib>

namespace ingot::runtime {

uint64_t align_up(uint64_t bytes) { return (bytes + kMemoryAlignment - 1) / kMemoryAlignment * kMemoryAlignment; }

std::string human(uint64_t bytes) {
  if (bytes < 10 << 10) return fmt::format("{} bytes", bytes);
  if (bytes < 10 << 20) return fmt::format("{:.1f} KiB", static_cast<double>(bytes) / (1 << 10));
  return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
}

Error out_of_memory(const Device& device, uint64_t bytes, const std::string& what, const Error& cause) {
  const MemoryInfo info = device.memory_info();
  return make_error(ErrorKind::OutOfMemory,
                    fmt::format("{}: {} needed for {}; {} of {} are free", device.name(), human(bytes), what,
                                human(info.free_bytes), human(info.total_bytes)))
      .add(cause.message);
}

Result<Tensor> raw_tensor(DType type, const std::vector<int64_t>& dims, const std::string& name) {
  const int64_t count = INGOT_TRY(checked_count(dims, size_of(type)));
  const uint64_t bytes = align_up(static_cast<uint64_t>(count) * size_of(type) + 1);
  void* memory = std::aligned_alloc(kMemoryAlignment, bytes);
  if (!memory)
    return make_error(ErrorKind::OutOfMemory, fmt::format("{} of host memory needed for output '{}' {}", human(bytes),
                                                          name, describe(type, dims)));
  return Tensor(type, dims, std::shared_ptr<const void>(memory, [](const void* p) { std::free(const_cast<void*>(p)); }),
                memory);
}

}  // namespace ingot::runtime
