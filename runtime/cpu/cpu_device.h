// The CPU as a Device: kernels are function pointers whose tasks a thread pool shares. How object code becomes a
// function pointer is handed in: object_loader.h links objects, tests hand in functions of their own.
#pragma once

#include <functional>
#include <memory>

#include "runtime/cpu/thread_pool.h"
#include "runtime/device.h"

namespace ingot::runtime {

/// KernelInfo says what the arguments mean.
using CpuFunction = void (*)(void* const* buffers, const int64_t* dims, int64_t first, int64_t last, void* scratch);

/// A loaded function and what keeps its code in memory.
struct CpuCode {
  CpuFunction function = nullptr;
  std::shared_ptr<const void> owner;
};
/// Turns a CPU binary of a kernel into its function.
using CpuLoader = std::function<Result<CpuCode>(const KernelInfo& kernel)>;

/// True of the targets whose binaries are x86-64 objects: "cpu" (the machine they were made on) and "x86-64-v3" and the
/// like.
inline bool is_cpu_target(const std::string& target) { return target == "cpu" || target.rfind("x86-64", 0) == 0; }

class CpuDevice : public Device {
 public:
  explicit CpuDevice(CpuLoader loader, int threads = 0);

  std::string name() const override;
  bool is_host() const override { return true; }
  int preference(const std::string& target) const override;
  Result<void*> allocate(uint64_t bytes) override;
  void release(void* memory) override;
  MemoryInfo memory_info() const override;
  Status copy_to_device(void* to, const void* from, uint64_t bytes, Stream* stream) override;
  Status copy_to_host(void* to, const void* from, uint64_t bytes, Stream* stream) override;
  Status copy_on_device(void* to, const void* from, uint64_t bytes, Stream* stream) override;
  Result<std::unique_ptr<LoadedKernel>> load(const KernelInfo& kernel) override;
  /// Runs to completion before it returns, on every stream.
  Status launch(const LoadedKernel& kernel, const Launch& launch, Stream* stream) override;
  Result<std::unique_ptr<Stream>> create_stream() override;
  Result<std::unique_ptr<Stream>> borrow_stream(void* native) override;
  Result<std::unique_ptr<Event>> create_event(bool timed) override;
  Status record(Event& event, Stream* stream) override;
  Status wait(Stream* stream, const Event& event) override;
  Result<double> elapsed_ms(const Event& from, const Event& to) override;
  Status synchronize(Stream* stream) override;
  Status synchronize(const Event&) override { return {}; }

 private:
  CpuLoader loader_;
  ThreadPool pool_;
};

}  // namespace ingot::runtime
