#include "runtime/cuda/cuda_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "runtime/cuda/tensor_map.h"
#include "runtime/host_copy.h"

namespace ingot::runtime {
namespace {

using cuda::DevicePtr;
using cuda::DriverApi;

constexpr size_t kStageBytes = 4 << 20;  // large enough for full PCIe speed, small enough to pin per stream
constexpr uint64_t kMinimumBytes = 256;

DevicePtr to_device(const void* p) { return reinterpret_cast<DevicePtr>(p); }

/// The device's context, current in this thread while this lives: the caller may be any thread, and a program with several
/// devices has another one current. A thread that had none keeps it, which saves it a call the next time.
class Entered {
 public:
  Entered(const DriverApi& api, cuda::Context context) : api_(api), context_(context) {
    if (api.ctx_get_current(&before_) != cuda::kSuccess) before_ = nullptr;
    if (before_ != context) status_ = api.ctx_set_current(context);
  }
  ~Entered() {
    if (before_ && before_ != context_) api_.ctx_set_current(before_);
  }
  Entered(const Entered&) = delete;
  bool ok() const { return status_ == cuda::kSuccess; }
  Status status() const {
    if (!ok()) return api_.error(status_, "ctx_set_current");
    return {};
  }

 private:
  const DriverApi& api_;
  cuda::Context context_, before_ = nullptr;
  cuda::DriverStatus status_ = cuda::kSuccess;
};

/// Makes the context current for the rest of the block, or returns the Error.
#define INGOT_ENTER(api, context)       \
  const Entered entered_(api, context); \
  if (!entered_.ok()) return entered_.status().error()

class CudaEvent : public Event {
 public:
  CudaEvent(const DriverApi& api, cuda::Context context, cuda::Event event)
      : handle(event), api_(api), context_(context) {}
  ~CudaEvent() override {
    const Entered here(api_, context_);
    api_.event_destroy(handle);
  }
  cuda::Event handle;

 private:
  const DriverApi& api_;
  cuda::Context context_;
};

/// A stream and the two pinned buffers that its host copies alternate between.
class CudaStream : public Stream {
 public:
  CudaStream(const DriverApi& api, cuda::Context context, cuda::Stream stream, bool owned)
      : handle(stream), api_(api), context_(context), owned_(owned) {}
  ~CudaStream() override {
    const Entered here(api_, context_);
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
  cuda::Context context_;
  bool owned_;
  Stage stages_[2];
  int turn_ = 0;
};

class CudaKernel : public LoadedKernel {
 public:
  CudaKernel(const DriverApi& api, cuda::Context context, cuda::Module module)
      : api_(api), context_(context), module_(module) {}
  ~CudaKernel() override {
    const Entered here(api_, context_);
    api_.module_unload(module_);
  }
  cuda::Function function = nullptr;
  std::string name;
  unsigned threads = 1, shared_bytes = 0;
  bool waits_for_inputs = false;  // may start before its predecessor in the stream ends
  cuda::Module module() const { return module_; }

 private:
  const DriverApi& api_;
  cuda::Context context_;
  cuda::Module module_;
};

class CudaRecording : public Recording {
 public:
  CudaRecording(const DriverApi& api, cuda::Context context, cuda::GraphExec exec)
      : handle(exec), api_(api), context_(context) {}
  ~CudaRecording() override {
    const Entered here(api_, context_);
    api_.graph_exec_destroy(handle);
  }
  cuda::GraphExec handle;

 private:
  const DriverApi& api_;
  cuda::Context context_;
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
    INGOT_ENTER(api_, context_);
    DevicePtr p = 0;
    INGOT_DRIVER_TRY(api_, mem_alloc, &p, std::max(bytes, kMinimumBytes));
    return reinterpret_cast<void*>(p);
  }
  void release(void* memory) override {
    const Entered here(api_, context_);
    if (memory && here.ok()) api_.mem_free(to_device(memory));
  }
  MemoryInfo memory_info() const override {
    size_t free = 0, total = 0;
    const Entered here(api_, context_);
    if (here.ok()) api_.mem_get_info(&free, &total);
    return {free, total};
  }

  Status copy_to_device(void* to, const void* from, uint64_t bytes, Stream* stream) override {
    INGOT_ENTER(api_, context_);
    CudaStream& s = use(stream);
    std::lock_guard<std::mutex> lock(s.copying);
    for (uint64_t done = 0; done < bytes;) {
      const uint64_t part = std::min<uint64_t>(bytes - done, kStageBytes);
      CudaStream::Stage* stage = INGOT_TRY(s.next_stage());
      copy_bytes(stage->memory, static_cast<const char*>(from) + done, part);
      INGOT_DRIVER_TRY(api_, memcpy_htod_async, to_device(to) + done, stage->memory, part, s.handle);
      INGOT_DRIVER_TRY(api_, event_record, stage->used, s.handle);
      stage->pending = true;
      done += part;
    }
    return {};
  }
  Status copy_to_host(void* to, const void* from, uint64_t bytes, Stream* stream) override {
    INGOT_ENTER(api_, context_);
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
      copy_bytes(p.to, p.stage->memory, p.bytes);
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
    INGOT_ENTER(api_, context_);
    INGOT_DRIVER_TRY(api_, memcpy_dtod_async, to_device(to), to_device(from), bytes, use(stream).handle);
    return {};
  }

  Result<void*> allocate_host(uint64_t bytes) override {
    INGOT_ENTER(api_, context_);
    void* memory = nullptr;
    INGOT_DRIVER_TRY(api_, mem_host_alloc, &memory, std::max(bytes, kMinimumBytes), cuda::kHostPortable);
    return memory;
  }
  void release_host(void* memory) override {
    const Entered here(api_, context_);
    if (memory && here.ok()) api_.mem_free_host(memory);
  }
  Status upload(void* to, const void* from, uint64_t bytes, Stream* stream) override {
    if (bytes == 0) return {};
    INGOT_ENTER(api_, context_);
    INGOT_DRIVER_TRY(api_, memcpy_htod_async, to_device(to), from, bytes, use(stream).handle);
    return {};
  }
  Status download(void* to, const void* from, uint64_t bytes, Stream* stream) override {
    if (bytes == 0) return {};
    INGOT_ENTER(api_, context_);
    INGOT_DRIVER_TRY(api_, memcpy_dtoh_async, to, to_device(from), bytes, use(stream).handle);
    return {};
  }

  Result<std::unique_ptr<LoadedKernel>> load(const KernelInfo& info) override;
  Status launch(const LoadedKernel& kernel, const Launch& launch, Stream* stream) override;

  Result<std::unique_ptr<Stream>> create_stream() override {
    INGOT_ENTER(api_, context_);
    cuda::Stream stream = nullptr;
    INGOT_DRIVER_TRY(api_, stream_create, &stream, cuda::kStreamNonBlocking);
    return std::unique_ptr<Stream>(new CudaStream(api_, context_, stream, true));
  }
  Result<std::unique_ptr<Stream>> borrow_stream(void* native) override {
    return std::unique_ptr<Stream>(new CudaStream(api_, context_, static_cast<cuda::Stream>(native), false));
  }
  Result<std::unique_ptr<Event>> create_event(bool timed) override {
    INGOT_ENTER(api_, context_);
    cuda::Event event = nullptr;
    INGOT_DRIVER_TRY(api_, event_create, &event, timed ? cuda::kEventDefault : cuda::kEventDisableTiming);
    return std::unique_ptr<Event>(new CudaEvent(api_, context_, event));
  }
  Status record(Event& event, Stream* stream) override {
    INGOT_ENTER(api_, context_);
    INGOT_DRIVER_TRY(api_, event_record, static_cast<CudaEvent&>(event).handle, use(stream).handle);
    return {};
  }
  Status wait(Stream* stream, const Event& event) override {
    INGOT_ENTER(api_, context_);
    INGOT_DRIVER_TRY(api_, stream_wait_event, use(stream).handle, static_cast<const CudaEvent&>(event).handle, 0);
    return {};
  }
  Result<double> elapsed_ms(const Event& from, const Event& to) override {
    INGOT_ENTER(api_, context_);
    float ms = 0;
    INGOT_DRIVER_TRY(api_, event_synchronize, static_cast<const CudaEvent&>(to).handle);
    INGOT_DRIVER_TRY(api_, event_elapsed_time, &ms, static_cast<const CudaEvent&>(from).handle,
                     static_cast<const CudaEvent&>(to).handle);
    return static_cast<double>(ms);
  }
  Status synchronize(Stream* stream) override {
    INGOT_ENTER(api_, context_);
    INGOT_DRIVER_TRY(api_, stream_synchronize, use(stream).handle);
    return {};
  }

  Status synchronize(const Event& event) override {
    INGOT_ENTER(api_, context_);
    INGOT_DRIVER_TRY(api_, event_synchronize, static_cast<const CudaEvent&>(event).handle);
    return {};
  }
  bool is_recording(Stream* stream) override {
    int status = 0;
    const Entered here(api_, context_);
    return api_.stream_is_capturing && here.ok() &&
           api_.stream_is_capturing(use(stream).handle, &status) == cuda::kSuccess && status != 0;
  }

  Status begin_recording(Stream* stream) override {
    INGOT_ENTER(api_, context_);
    INGOT_DRIVER_TRY(api_, stream_begin_capture, use(stream).handle, cuda::kCaptureThreadLocal);
    return {};
  }
  Result<std::unique_ptr<Recording>> end_recording(Stream* stream) override {
    INGOT_ENTER(api_, context_);
    cuda::Graph graph = nullptr;
    INGOT_DRIVER_TRY(api_, stream_end_capture, use(stream).handle, &graph);
    cuda::GraphExec exec = nullptr;
    const cuda::DriverStatus status = api_.graph_instantiate(&exec, graph, 0);
    api_.graph_destroy(graph);
    if (status != cuda::kSuccess) return api_.error(status, "graph_instantiate");
    return std::unique_ptr<Recording>(new CudaRecording(api_, context_, exec));
  }
  Status replay(const Recording& recording, Stream* stream) override {
    INGOT_ENTER(api_, context_);
    INGOT_DRIVER_TRY(api_, graph_launch, static_cast<const CudaRecording&>(recording).handle, use(stream).handle);
    return {};
  }

 private:
  CudaStream& use(Stream* stream) { return static_cast<CudaStream&>(stream ? *stream : *default_stream_); }

  const DriverApi& api_;
  CudaDeviceInfo info_;
  cuda::DeviceOrdinal device_;
  cuda::Context context_;
  std::unique_ptr<Stream> default_stream_;
};

/// Programmatic dependent launch; $INGOT_EARLY_LAUNCH=0 turns it off, for measurements and to find faults.
bool starts_kernels_early() {
  static const char* text = std::getenv("INGOT_EARLY_LAUNCH");
  return !text || std::string(text) != "0";
}

/// Instructions for it are in code for sm_90 and later chips.
bool can_wait_for_inputs(const std::string& target) {
  int capability = 0;
  const bool named = std::sscanf(target.c_str(), "sm_%d", &capability) == 1 ||
                     std::sscanf(target.c_str(), "ptx_%d", &capability) == 1;
  return named && capability >= 90;
}

Result<std::unique_ptr<LoadedKernel>> CudaDevice::load(const KernelInfo& info) {
  INGOT_ENTER(api_, context_);
  const KernelBinary* binary = INGOT_TRY(pick_cuda_binary(info, info_.compute_capability));
  std::vector<uint8_t> image = binary->code;
  image.push_back(0);  // PTX is read as a string
  cuda::Module module = nullptr;
  INGOT_DRIVER_TRY(api_, module_load_data, &module, image.data());
  auto kernel = std::make_unique<CudaKernel>(api_, context_, module);
  INGOT_DRIVER_TRY(api_, module_get_function, &kernel->function, module, info.name.c_str());
  if (info.shared_bytes > 0)
    INGOT_DRIVER_TRY(api_, func_set_attribute, kernel->function, cuda::FunctionAttribute::MaxDynamicSharedBytes,
                     info.shared_bytes);
  kernel->name = info.name;
  kernel->threads = static_cast<unsigned>(info.threads);
  kernel->shared_bytes = static_cast<unsigned>(info.shared_bytes);
  kernel->waits_for_inputs = starts_kernels_early() && info.waits_for_inputs && api_.launch_kernel_ex && can_wait_for_inputs(binary->target);
  return std::unique_ptr<LoadedKernel>(std::move(kernel));
}

Status CudaDevice::launch(const LoadedKernel& loaded, const Launch& launch, Stream* stream) {
  const auto& kernel = static_cast<const CudaKernel&>(loaded);
  const auto& [buffers, dims, grid, boxes, may_start_early] = launch;
  static constexpr int64_t kLimits[3] = {INT32_MAX, 65535, 65535};
  for (int i = 0; i < 3; ++i) {
    if (grid[i] <= 0) return {};
    if (grid[i] > kLimits[i])
      return unsupported(
          fmt::format("kernel {}: a grid of {} x {} x {} blocks", kernel.name, grid[0], grid[1], grid[2]));
  }
  INGOT_ENTER(api_, context_);
  constexpr size_t kInline = 64;
  void* small[kInline];
  std::vector<void*> large;
  void** parameters = small;
  const size_t count = buffers.size() + dims.size() + boxes.size();
  if (count > kInline) {
    large.resize(count);
    parameters = large.data();
  }
  constexpr size_t kMostBoxes = 4;
  cuda::TensorMap maps[kMostBoxes];
  if (boxes.size() > kMostBoxes) return unsupported(fmt::format("kernel {}: {} boxes", kernel.name, boxes.size()));
  size_t n = 0;
  for (void* const& b : buffers) parameters[n++] = const_cast<void**>(&b);
  for (const int64_t& d : dims) parameters[n++] = const_cast<int64_t*>(&d);
  for (size_t i = 0; i < boxes.size(); ++i) {
    maps[i] = INGOT_TRY(cuda::encode_box(api_, boxes[i], to_device(buffers[static_cast<size_t>(boxes[i].argument)])));
    parameters[n++] = &maps[i];
  }
  const auto x = static_cast<unsigned>(grid[0]), y = static_cast<unsigned>(grid[1]),
             z = static_cast<unsigned>(grid[2]);
  const cuda::Stream queue = use(stream).handle;
  cuda::DriverStatus status = cuda::kSuccess;
  if (kernel.waits_for_inputs && may_start_early) {
    cuda::LaunchAttribute early{cuda::LaunchAttributeId::ProgrammaticStreamSerialization, {}, {}};
    early.value = 1;
    const cuda::LaunchConfig config{x, y, z, kernel.threads, 1, 1, kernel.shared_bytes, queue, &early, 1};
    status = api_.launch_kernel_ex(&config, kernel.function, parameters, nullptr);
  } else {
    status = api_.launch_kernel(kernel.function, x, y, z, kernel.threads, 1, 1, kernel.shared_bytes, queue, parameters,
                                nullptr);
  }
  if (status != cuda::kSuccess) return api_.error(status, "launch_kernel").add("kernel " + kernel.name);
  return {};
}

}  // namespace

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

}  // namespace ingot::runtime
