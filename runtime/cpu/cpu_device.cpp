#include "runtime/cpu/cpu_device.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>

namespace ingot::runtime {
namespace {

constexpr size_t kAlignment = 256;

class CpuStream : public Stream {};

class CpuEvent : public Event {
 public:
  std::chrono::steady_clock::time_point when;
};

class CpuKernel : public LoadedKernel {
 public:
  CpuCode code;
  size_t scratch_bytes = 0;
};

/// Scratch of one thread, kept between launches.
class ThreadScratch {
 public:
  ~ThreadScratch() { std::free(memory_); }
  void* reserve(size_t bytes) {
    if (bytes <= size_) return memory_;
    std::free(memory_);
    size_ = (bytes + 4095) / 4096 * 4096;
    memory_ = std::aligned_alloc(kAlignment, size_);
    INGOT_CHECK(memory_ != nullptr, fmt::format("out of host memory for {} bytes of kernel scratch", size_));
    return memory_;
  }

 private:
  void* memory_ = nullptr;
  size_t size_ = 0;
};

/// Denormals are flushed while a kernel runs: arithmetic on them is a hundred times slower (docs/decisions/0003).
class FlushDenormals {
 public:
  FlushDenormals() : saved_(__builtin_ia32_stmxcsr()) {
    __builtin_ia32_ldmxcsr(saved_ | kFlushToZero | kDenormalsAreZero);
  }
  ~FlushDenormals() { __builtin_ia32_ldmxcsr(saved_); }
  FlushDenormals(const FlushDenormals&) = delete;

 private:
  static constexpr unsigned kFlushToZero = 0x8000, kDenormalsAreZero = 0x0040;
  unsigned saved_;
};

struct LaunchContext {
  const CpuKernel* kernel;
  void* const* buffers;
  const int64_t* dims;
};

void run_range(void* context, int64_t first, int64_t last) {
  static thread_local ThreadScratch scratch;
  const auto* launch = static_cast<const LaunchContext*>(context);
  const FlushDenormals flush;
  launch->kernel->code.function(launch->buffers, launch->dims, first, last,
                                scratch.reserve(launch->kernel->scratch_bytes));
}

}  // namespace

CpuDevice::CpuDevice(CpuLoader loader, int threads) : loader_(std::move(loader)), pool_(threads) {}

std::string CpuDevice::name() const { return fmt::format("cpu ({} threads)", pool_.threads()); }

int CpuDevice::preference(const std::string& target) const {
  if (target == "cpu") return 10;  // made for one processor: whether this one can run it, the objects say
  static constexpr const char* kLevels[] = {"x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4"};
  for (int level = 1; level <= 4; ++level)
    if (target == kLevels[level - 1]) return level;
  return 0;
}

Result<void*> CpuDevice::allocate(uint64_t bytes) {
  if (bytes > (uint64_t{1} << 62)) return make_error(ErrorKind::OutOfMemory, fmt::format("{} bytes asked", bytes));
  const size_t rounded = (std::max<uint64_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
  void* memory = std::aligned_alloc(kAlignment, rounded);
  if (!memory)
    return make_error(ErrorKind::OutOfMemory, fmt::format("{} bytes of host memory are not available", rounded));
  std::memset(memory, 0, kAlignment);  // element 0 of an empty buffer may be read
  return memory;
}

void CpuDevice::release(void* memory) { std::free(memory); }

MemoryInfo CpuDevice::memory_info() const {
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  return {static_cast<uint64_t>(sysconf(_SC_AVPHYS_PAGES)) * page,
          static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * page};
}

Status CpuDevice::copy_to_device(void* to, const void* from, uint64_t bytes, Stream*) {
  if (bytes) std::memcpy(to, from, bytes);
  return {};
}
Status CpuDevice::copy_to_host(void* to, const void* from, uint64_t bytes, Stream* stream) {
  return copy_to_device(to, from, bytes, stream);
}
Status CpuDevice::copy_on_device(void* to, const void* from, uint64_t bytes, Stream*) {
  if (bytes) std::memmove(to, from, bytes);
  return {};
}

Result<std::unique_ptr<LoadedKernel>> CpuDevice::load(const KernelInfo& info) {
  if (!loader_) return unsupported("this process cannot load CPU kernels (no loader was given)");
  auto kernel = std::make_unique<CpuKernel>();
  kernel->code = INGOT_TRY(loader_(info));
  kernel->scratch_bytes = static_cast<size_t>(info.scratch_bytes);
  return std::unique_ptr<LoadedKernel>(std::move(kernel));
}

Status CpuDevice::launch(const LoadedKernel& kernel, const Launch& launch, Stream*) {
  LaunchContext context{static_cast<const CpuKernel*>(&kernel), launch.buffers.data(), launch.dims.data()};
  pool_.run(launch.grid[0], run_range, &context);
  return {};
}

Result<std::unique_ptr<Stream>> CpuDevice::create_stream() { return std::unique_ptr<Stream>(new CpuStream); }
Result<std::unique_ptr<Stream>> CpuDevice::borrow_stream(void*) { return create_stream(); }
Result<std::unique_ptr<Event>> CpuDevice::create_event(bool) { return std::unique_ptr<Event>(new CpuEvent); }

Status CpuDevice::record(Event& event, Stream*) {
  static_cast<CpuEvent&>(event).when = std::chrono::steady_clock::now();
  return {};
}
Status CpuDevice::wait(Stream*, const Event&) { return {}; }
Result<double> CpuDevice::elapsed_ms(const Event& from, const Event& to) {
  const auto span = static_cast<const CpuEvent&>(to).when - static_cast<const CpuEvent&>(from).when;
  return std::chrono::duration<double, std::milli>(span).count();
}
Status CpuDevice::synchronize(Stream*) { return {}; }

}  // namespace ingot::runtime
