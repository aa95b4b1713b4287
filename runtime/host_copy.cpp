#include "runtime/host_copy.h"

#include <algorithm>
#include <cstring>
#include <thread>

#include "runtime/cpu/thread_pool.h"

namespace ingot::runtime {
namespace {

constexpr uint64_t kShared = 1 << 20, kPart = 256 << 10;
constexpr unsigned kMostThreads = 4;  // as many as keep up with 16 lanes of PCIe 5

struct Copy {
  char* to;
  const char* from;
  uint64_t bytes;
};
void copy_parts(void* context, int64_t first, int64_t last) {
  const Copy& c = *static_cast<const Copy*>(context);
  const uint64_t begin = static_cast<uint64_t>(first) * kPart, end = std::min(c.bytes, static_cast<uint64_t>(last) * kPart);
  std::memcpy(c.to + begin, c.from + begin, end - begin);
}

}  // namespace

void copy_bytes(void* to, const void* from, uint64_t bytes) {
  if (bytes == 0) return;
  if (bytes < kShared) {
    std::memcpy(to, from, bytes);
    return;
  }
  static ThreadPool pool(static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1u, kMostThreads)));
  Copy copy{static_cast<char*>(to), static_cast<const char*>(from), bytes};
  pool.run(static_cast<int64_t>((bytes + kPart - 1) / kPart), copy_parts, &copy);
}

}  // namespace ingot::runtime
