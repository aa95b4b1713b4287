#include "runtime/cuda/cuda_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <mutex>

namespace ingot::runtime {
namespace {

using cuda::DevicePtr;
using cuda::DriverApi;

constexpr size_t kStageBytes = 4 << 20;  // large enough for full PCIe speed, small enough to pin per stream
constexpr uint64_t kMinimumBytes = 256;

DevicePtr to_device(const void* p) { return reinterpret_cast<DevicePtr>(p); }

class CudaEvent : public Event {
 public:
  CudaEvent(const DriverApi& api, cuda::Event event) : handle(event), api_(api) {}
  ~CudaEvent() override { api_.event_destroy(handle); }
  cuda::Event handle;

 private:
  const DriverApi& api_;
};

/// A stream and the two pinned buffers that its host copies alternate between.
class CudaStream : public Stream {
 public:
  CudaStream(const DriverApi& api, cuda::Stream stream, bool owned) : handle(stream), api_(api), owned_(owned) {}
  ~CudaStream() override {
    for (Stage& s : stages_) {
      if (s.memory) api_.mem_free_host(s.memory);
      if (s.used) api_.event_destroy(s.used);
    }
    if (owned_) api_.stream_destroy(handle);
  }

  struct Stage {
    void* memory = nullptr;
    cuda::Event used = nullptr;  // the last copy out of this buffer
    bool pending = false;
  };
  /// The next staging buffer, free to be written.
  Result<Stage*> next_stage() {
    Stage& s = stages_[turn_ ^= 1];
    if (!s.memory) {
      INGOT_DRIVER_TRY(api_, mem_host_alloc, &s.memory, kStageBytes, 0);
      INGOT_DRIVER_TRY(api_, event_create, &s.used, cuda::kEventDisableTiming);
    }
    if (s.pending) INGOT_DRIVER_TRY(api_, event_synchronize, s.used);
    s.pending = false;
    return &s;
  }

  cuda::Stream handle;
  std::mutex copying;

 private:
  const DriverApi& api_;
  bool owned_;
  Stage stages_[2];
  int turn_ = 0;
};

class CudaKernel : public LoadedKernel {
 public:
  CudaKernel(const DriverApi& api, cuda::Module module) : api_(api), module_(module) {}
  ~CudaKernel() override { api_.module_unload(module_); }
  cuda::Function function = nullptr;
  std::string name;
  unsigned threads = 1, shared_bytes = 0;
  cuda::Module module() const { return module_; }

 private:
  const DriverApi& api_;
  cuda::Module module_;
};

class CudaRecording : public Recording {
 public:
  CudaRecording(const DriverApi& api, cuda::GraphExec exec) : handle(exec), api_(api) {}
  ~CudaRecording() override { api_.graph_exec_destroy(handle); }
  cuda::GraphExec handle;

 private:
  const DriverApi& api_;
};

class CudaDevice : public Device {
 public:
  CudaDevice(const DriverApi& api, CudaDeviceInfo info, cuda::DeviceOrdinal device, cuda::Context context)
      : api_(api), info_(std::move(info)), device_(device), context_(context) {}
  ~CudaDevice() override {
    default_stream_.reset();
    api_.primary_ctx_release(device_);
  }
  Status start() {
    auto stream = INGOT_TRY(create_stream());
    default_stream_ = std::move(stream);
    return {};
  }

  std::string name() const override { return fmt::format("cuda:{} ({})", info_.ordinal, info_.name); }
  bool is_host() const override { return false; }
  int preference(const std::string& target) const override { return cuda_preference(target, info_.compute_capability); }
  int parallel_units() const override { return std::max(info_.multiprocessors, 1); }

  Result<void*> allocate(uint64_t bytes) override {
    INGOT_TRY(enter());
    DevicePtr p = 0;
    INGOT_DRIVER_TRY(api_, mem_alloc, &p, std::max(bytes, kMinimumBytes));
    return reinterpret_cast<void*>(p);
  }
  void release(void* memory) override {
    if (memory && enter()) api_.mem_free(to_device(memory));
  }
  MemoryInfo memory_info() const override {
    size_t free = 0, total = 0;
    if (enter()) api_.mem_get_info(&free, &total);
    return {free, total};
  }

  Status copy_to_device(void* to, const void* from, uint64_t bytes, Stream* stream) override {
    INGOT_TRY(enter());
    CudaStream& s = use(stream);
    std::lock_guard<std::mutex> lock(s.copying);
    for (uint64_t done = 0; done < bytes;) {
      const uint64_t part = std::min<uint64_t>(bytes - done, kStageBytes);
      CudaStream::Stage* stage = INGOT_TRY(s.next_stage());
      std::memcpy(stage->memory, static_cast<const char*>(from) + done, part);
      INGOT_DRIVER_TRY(api_, memcpy_htod_async, to_device(to) + done, stage->memory, part, s.handle);
      INGOT_DRIVER_TRY(api_, event_record, stage->used, s.handle);
      stage->pending = true;
      done += part;
    }
    return {};
  }
  Status copy_to_host(void* to, const void* from, uint64_t bytes, Stream* stream) override {
    INGOT_TRY(enter());
    CudaStream& s = use(stream);
    std::lock_guard<std::mutex> lock(s.copying);
    // One part is copied out of its pinned buffer while the next one is on its way.
    struct Part {
      CudaStream::Stage* stage = nullptr;
      char* to = nullptr;
      uint64_t bytes = 0;
    } previous;
    const auto finish = [&](const Part& p) -> Status {
      if (!p.stage) return {};
      INGOT_DRIVER_TRY(api_, event_synchronize, p.stage->used);
      std::memcpy(p.to, p.stage->memory, p.bytes);
      p.stage->pending = false;
      return {};
    };
    for (uint64_t done = 0; done < bytes;) {
      Part part{nullptr, static_cast<char*>(to) + done, std::min<uint64_t>(bytes - done, kStageBytes)};
      part.stage = INGOT_TRY(s.next_stage());
      INGOT_DRIVER_TRY(api_, memcpy_dtoh_async, part.stage->memory, to_device(from) + done, part.bytes, s.handle);
      INGOT_DRIVER_TRY(api_, event_record, part.stage->used, s.handle);
      part.stage->pending = true;
      INGOT_TRY(finish(previous));
      previous = part;
      done += part.bytes;
    }
    return finish(previous);
  }
  Status copy_on_device(void* to, const void* from, uint64_t bytes, Stream* stream) override {
    if (bytes == 0) return {};
    INGOT_TRY(enter());
    INGOT_DRIVER_TRY(api_, memcpy_dtod_async, to_device(to), to_device(from), bytes, use(stream).handle);
    return {};
  }

  Result<void*> allocate_host(uint64_t bytes) override {
    INGOT_TRY(enter());
    void* memory = nullptr;
    INGOT_DRIVER_TRY(api_, mem_host_alloc, &memory, std::max(bytes, kMinimumBytes), cuda::kHostPortable);
    return memory;
  }
  void release_host(void* memory) override {
    if (memory && enter()) api_.mem_free_host(memory);
  }
  Status upload(void* to, const void* from, uint64_t bytes, Stream* stream) override {
    if (bytes == 0) return {};
    INGOT_TRY(enter());
    INGOT_DRIVER_TRY(api_, memcpy_htod_async, to_device(to), from, bytes, use(stream).handle);
    return {};
  }
  Status download(void* to, const void* from, uint64_t bytes, Stream* stream) override {
    if (bytes == 0) return {};
    INGOT_TRY(enter());
    INGOT_DRIVER_TRY(api_, memcpy_dtoh_async, to, to_device(from), bytes, use(stream).handle);
    return {};
  }

  Result<std::unique_ptr<LoadedKernel>> load(const KernelInfo& info) override;
  Status launch(const LoadedKernel& kernel, std::span<void* const> buffers, std::span<const int64_t> dims,
                const std::array<int64_t, 3>& grid, Stream* stream) override;

  Result<std::unique_ptr<Stream>> create_stream() override {
    INGOT_TRY(enter());
    cuda::Stream stream = nullptr;
    INGOT_DRIVER_TRY(api_, stream_create, &stream, cuda::kStreamNonBlocking);
    return std::unique_ptr<Stream>(new CudaStream(api_, stream, true));
  }
  Result<std::unique_ptr<Stream>> borrow_stream(void* native) override {
    return std::unique_ptr<Stream>(new CudaStream(api_, static_cast<cuda::Stream>(native), false));
  }
  Result<std::unique_ptr<Event>> create_event(bool timed) override {
    INGOT_TRY(enter());
    cuda::Event event = nullptr;
    INGOT_DRIVER_TRY(api_, event_create, &event, timed ? cuda::kEventDefault : cuda::kEventDisableTiming);
    return std::unique_ptr<Event>(new CudaEvent(api_, event));
  }
  Status record(Event& event, Stream* stream) override {
    INGOT_TRY(enter());
    INGOT_DRIVER_TRY(api_, event_record, static_cast<CudaEvent&>(event).handle, use(stream).handle);
    return {};
  }
  Status wait(Stream* stream, const Event& event) override {
    INGOT_TRY(enter());
    INGOT_DRIVER_TRY(api_, stream_wait_event, use(stream).handle, static_cast<const CudaEvent&>(event).handle, 0);
    return {};
  }
  Result<double> elapsed_ms(const Event& from, const Event& to) override {
    INGOT_TRY(enter());
    float ms = 0;
    INGOT_DRIVER_TRY(api_, event_synchronize, static_cast<const CudaEvent&>(to).handle);
    INGOT_DRIVER_TRY(api_, event_elapsed_time, &ms, static_cast<const CudaEvent&>(from).handle,
                     static_cast<const CudaEvent&>(to).handle);
    return static_cast<double>(ms);
  }
  Status synchronize(Stream* stream) override {
    INGOT_TRY(enter());
    INGOT_DRIVER_TRY(api_, stream_synchronize, use(stream).handle);
    return {};
  }

  Status synchronize(const Event& event) override {
    INGOT_TRY(enter());
    INGOT_DRIVER_TRY(api_, event_synchronize, static_cast<const CudaEvent&>(event).handle);
    return {};
  }
  bool is_recording(Stream* stream) override {
    int status = 0;
    return api_.stream_is_capturing && enter() &&
           api_.stream_is_capturing(use(stream).handle, &status) == cuda::kSuccess && status != 0;
  }

  Status begin_recording(Stream* stream) override {
    INGOT_TRY(enter());
    INGOT_DRIVER_TRY(api_, stream_begin_capture, use(stream).handle, cuda::kCaptureThreadLocal);
    return {};
  }
  Result<std::unique_ptr<Recording>> end_recording(Stream* stream) override {
    INGOT_TRY(enter());
    cuda::Graph graph = nullptr;
    INGOT_DRIVER_TRY(api_, stream_end_capture, use(stream).handle, &graph);
    cuda::GraphExec exec = nullptr;
    const cuda::DriverStatus status = api_.graph_instantiate(&exec, graph, 0);
    api_.graph_destroy(graph);
    if (status != cuda::kSuccess) return api_.error(status, "graph_instantiate");
    return std::unique_ptr<Recording>(new CudaRecording(api_, exec));
  }
  Status replay(const Recording& recording, Stream* stream) override {
    INGOT_TRY(enter());
    INGOT_DRIVER_TRY(api_, graph_launch, static_cast<const CudaRecording&>(recording).handle, use(stream).handle);
    return {};
  }

 private:
  /// Makes this device's context current: the caller may be any thread.
  Status enter() const {
    INGOT_DRIVER_TRY(api_, ctx_set_current, context_);
    return {};
  }
  CudaStream& use(Stream* stream) { return static_cast<CudaStream&>(stream ? *stream : *default_stream_); }

  const DriverApi& api_;
  CudaDeviceInfo info_;
  cuda::DeviceOrdinal device_;
  cuda::Context context_;
  std::unique_ptr<Stream> default_stream_;
};

Result<std::unique_ptr<LoadedKernel>> CudaDevice::load(const KernelInfo& info) {
  INGOT_TRY(enter());
  const KernelBinary* binary = INGOT_TRY(pick_cuda_binary(info, info_.compute_capability));
  std::vector<uint8_t> image = binary->code;
  image.push_back(0);  // PTX is read as a string
  cuda::Module module = nullptr;
  INGOT_DRIVER_TRY(api_, module_load_data, &module, image.data());
  auto kernel = std::make_unique<CudaKernel>(api_, module);
  INGOT_DRIVER_TRY(api_, module_get_function, &kernel->function, module, info.name.c_str());
  if (info.shared_bytes > 0)
    INGOT_DRIVER_TRY(api_, func_set_attribute, kernel->function, cuda::FunctionAttribute::MaxDynamicSharedBytes,
                     info.shared_bytes);
  kernel->name = info.name;
  kernel->threads = static_cast<unsigned>(info.threads);
  kernel->shared_bytes = static_cast<unsigned>(info.shared_bytes);
  return std::unique_ptr<LoadedKernel>(std::move(kernel));
}

Status CudaDevice::launch(const LoadedKernel& loaded, std::span<void* const> buffers, std::span<const int64_t> dims,
                          const std::array<int64_t, 3>& grid, Stream* stream) {
  const auto& kernel = static_cast<const CudaKernel&>(loaded);
  static constexpr int64_t kLimits[3] = {INT32_MAX, 65535, 65535};
  for (int i = 0; i < 3; ++i) {
    if (grid[i] <= 0) return {};
    if (grid[i] > kLimits[i])
      return unsupported(
          fmt::format("kernel {}: a grid of {} x {} x {} blocks", kernel.name, grid[0], grid[1], grid[2]));
  }
  INGOT_TRY(enter());
  constexpr size_t kInline = 64;
  void* small[kInline];
  std::vector<void*> large;
  void** parameters = small;
  if (buffers.size() + dims.size() > kInline) {
    large.resize(buffers.size() + dims.size());
    parameters = large.data();
  }
  size_t n = 0;
  for (void* const& b : buffers) parameters[n++] = const_cast<void**>(&b);
  for (const int64_t& d : dims) parameters[n++] = const_cast<int64_t*>(&d);
  const cuda::DriverStatus status = api_.launch_kernel(
      kernel.function, static_cast<unsigned>(grid[0]), static_cast<unsigned>(grid[1]), static_cast<unsigned>(grid[2]),
      kernel.threads, 1, 1, kernel.shared_bytes, use(stream).handle, parameters, nullptr);
  if (status != cuda::kSuccess) return api_.error(status, "launch_kernel").add("kernel " + kernel.name);
  return {};
}

Result<CudaDeviceInfo> describe_device(const DriverApi& api, int ordinal, cuda::DeviceOrdinal device) {
  CudaDeviceInfo info;
  info.ordinal = ordinal;
  char name[256] = {};
  INGOT_DRIVER_TRY(api, device_get_name, name, sizeof name - 1, device);
  info.name = name;
  const auto get = [&](cuda::DeviceAttribute attribute) {
    int value = 0;
    return api.device_get_attribute(&value, attribute, device) == cuda::kSuccess ? value : 0;
  };
  info.compute_capability =
      get(cuda::DeviceAttribute::ComputeCapabilityMajor) * 10 + get(cuda::DeviceAttribute::ComputeCapabilityMinor);
  info.multiprocessors = get(cuda::DeviceAttribute::MultiprocessorCount);
  info.shared_bytes = get(cuda::DeviceAttribute::SharedMemoryPerBlockOptin);
  info.l2_bytes = get(cuda::DeviceAttribute::L2CacheBytes);
  size_t memory = 0;
  INGOT_DRIVER_TRY(api, device_total_mem, &memory, device);
  info.memory_bytes = memory;
  INGOT_DRIVER_TRY(api, driver_get_version, &info.driver_version);
  return info;
}

}  // namespace

Result<std::vector<CudaDeviceInfo>> list_cuda_devices(const DriverApi& api) {
  int count = 0;
  INGOT_DRIVER_TRY(api, device_get_count, &count);
  std::vector<CudaDeviceInfo> list;
  for (int i = 0; i < count; ++i) {
    cuda::DeviceOrdinal device = 0;
    INGOT_DRIVER_TRY(api, device_get, &device, i);
    list.push_back(INGOT_TRY(describe_device(api, i, device)));
  }
  return list;
}

Result<std::shared_ptr<Device>> open_cuda_device(const DriverApi& api, int ordinal) {
  int count = 0;
  INGOT_DRIVER_TRY(api, device_get_count, &count);
  if (ordinal < 0 || ordinal >= count)
    return invalid(fmt::format("no device cuda:{}: the driver sees {} GPU{}", ordinal, count, count == 1 ? "" : "s"));
  cuda::DeviceOrdinal device = 0;
  INGOT_DRIVER_TRY(api, device_get, &device, ordinal);
  CudaDeviceInfo info = INGOT_TRY(describe_device(api, ordinal, device));
  cuda::Context context = nullptr;
  INGOT_DRIVER_TRY(api, primary_ctx_retain, &context, device);
  auto result = std::make_shared<CudaDevice>(api, std::move(info), device, context);
  INGOT_TRY(result->start());
  return std::shared_ptr<Device>(std::move(result));
}

int cuda_preference(const std::string& target, int compute_capability) {
  int cc = 0;
  char suffix[2] = {};
  if (std::sscanf(target.c_str(), "sm_%d%1s", &cc, suffix) >= 1) {
    const bool same_generation = cc / 10 == compute_capability / 10 && cc <= compute_capability && !suffix[0];
    if (cc == compute_capability) return 3001 + (suffix[0] ? 1 : 0);  // an "a" target uses what only this chip has
    return same_generation ? 2000 + cc : 0;
  }
  if (std::sscanf(target.c_str(), "ptx_%d%1s", &cc, suffix) >= 1)
    return cc == compute_capability || (cc < compute_capability && !suffix[0]) ? 1000 + cc : 0;
  return 0;
}

Result<const KernelBinary*> pick_cuda_binary(const KernelInfo& kernel, int compute_capability) {
  const KernelBinary* best = nullptr;
  int best_preference = 0;
  std::string have;
  for (const KernelBinary& b : kernel.binaries) {
    have += (have.empty() ? "" : ", ") + b.target;
    const int preference = cuda_preference(b.target, compute_capability);
    if (preference > best_preference) best = &b, best_preference = preference;
  }
  if (!best)
    return unsupported(fmt::format("kernel {} was not built for a GPU of compute capability {}.{}: it has {}",
                                   kernel.name, compute_capability / 10, compute_capability % 10,
                                   have.empty() ? "no binaries" : have));
  return best;
}

}  // namespace ingot::runtime
