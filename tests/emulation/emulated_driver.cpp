#include "tests/emulation/emulated_driver.h"

#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <unordered_map>

#include <fmt/format.h>

#include "tests/emulation/compile_emulated.h"
#include "tests/emulation/entry_points.h"

namespace ingot::emulation {

using namespace runtime::cuda;

namespace {

constexpr size_t kMemory = size_t{16} << 30;

struct EmulatedModule {
  void* library = nullptr;
};
using Entry = void (*)(void**);
struct EmulatedEvent {
  std::chrono::steady_clock::time_point time;
};

struct State {
  LaunchReport report;
  LaunchOptions options;
  std::string error_text;
  size_t used = 0;
  std::map<DevicePtr, size_t> sizes;
  std::unordered_map<const void*, unsigned> clusters;  // blocks, by entry point
};
State& state() {
  static State s = [] {
    State fresh;
    if (const char* seed = std::getenv("INGOT_EMULATOR_SEED")) fresh.options.seed = std::strtoull(seed, nullptr, 10);
    return fresh;
  }();
  return s;
}

void* pointer(DevicePtr p) { return reinterpret_cast<void*>(p); }

// ---- device and context ----

DriverStatus init(unsigned) { return kSuccess; }
DriverStatus driver_get_version(int* version) {
  *version = 13000;
  return kSuccess;
}
DriverStatus get_error_name(DriverStatus status, const char** text) {
  *text = status == kSuccess             ? "CUDA_SUCCESS"
          : status == kErrorLaunchFailed ? "CUDA_ERROR_LAUNCH_FAILED"
                                         : "CUDA_ERROR";
  return kSuccess;
}
DriverStatus get_error_string(DriverStatus status, const char** text) {
  *text = status == kErrorLaunchFailed || status == kErrorInvalidImage ? state().error_text.c_str()
                                                                       : "emulated driver error";
  return kSuccess;
}
DriverStatus device_get_count(int* count) {
  *count = 1;
  return kSuccess;
}
DriverStatus device_get(DeviceOrdinal* device, int ordinal) {
  *device = ordinal;
  return ordinal == 0 ? kSuccess : kErrorInvalidDevice;
}
DriverStatus device_get_name(char* name, int length, DeviceOrdinal) {
  std::snprintf(name, static_cast<size_t>(length), "emulated H200");
  return kSuccess;
}
DriverStatus device_get_attribute(int* value, DeviceAttribute attribute, DeviceOrdinal) {
  switch (attribute) {
    case DeviceAttribute::MaxThreadsPerBlock: *value = 1024; break;
    case DeviceAttribute::SharedMemoryPerBlock: *value = 48 << 10; break;
    case DeviceAttribute::WarpSize: *value = 32; break;
    case DeviceAttribute::ClockRateKhz: *value = 1980000; break;
    case DeviceAttribute::MultiprocessorCount: *value = 132; break;
    case DeviceAttribute::MemoryClockRateKhz: *value = 3201000; break;
    case DeviceAttribute::MemoryBusWidthBits: *value = 6144; break;
    case DeviceAttribute::L2CacheBytes: *value = 60 << 20; break;
    case DeviceAttribute::ComputeCapabilityMajor: *value = 9; break;
    case DeviceAttribute::SharedMemoryPerMultiprocessor: *value = 228 << 10; break;
    case DeviceAttribute::SharedMemoryPerBlockOptin: *value = 227 << 10; break;
    default: *value = 0;
  }
  return kSuccess;
}
DriverStatus device_total_mem(size_t* bytes, DeviceOrdinal) {
  *bytes = kMemory;
  return kSuccess;
}
DriverStatus primary_ctx_retain(Context* context, DeviceOrdinal) {
  *context = reinterpret_cast<Context>(&state());
  return kSuccess;
}
DriverStatus primary_ctx_release(DeviceOrdinal) { return kSuccess; }
DriverStatus ctx_set_current(Context) { return kSuccess; }
DriverStatus ctx_get_current(Context* context) { return primary_ctx_retain(context, 0); }
DriverStatus ctx_synchronize() { return kSuccess; }

// ---- modules ----

DriverStatus module_load_data(Module* module, const void* image) {
  const auto path = compile_emulated(static_cast<const char*>(image));
  if (!path) {
    state().error_text = path.error().to_string();
    return kErrorInvalidImage;
  }
  void* library = dlopen(path.value().c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    state().error_text = dlerror();
    return kErrorInvalidImage;
  }
  *module = reinterpret_cast<Module>(new EmulatedModule{library});
  return kSuccess;
}
DriverStatus module_unload(Module module) {
  const std::unique_ptr<EmulatedModule> m(reinterpret_cast<EmulatedModule*>(module));
  dlclose(m->library);
  return kSuccess;
}
DriverStatus module_get_function(Function* function, Module module, const char* name) {
  void* entry = dlsym(reinterpret_cast<EmulatedModule*>(module)->library, (std::string(name) + "_entry").c_str());
  *function = reinterpret_cast<Function>(entry);
  // Blocks of a cluster, when the kernel itself says so (INGOT_CLUSTER).
  void* cluster = dlsym(reinterpret_cast<EmulatedModule*>(module)->library, (std::string(name) + "_cluster").c_str());
  state().clusters[entry] = cluster ? *static_cast<const unsigned*>(cluster) : 1;
  return entry ? kSuccess : kErrorNotFound;
}
DriverStatus func_set_attribute(Function, FunctionAttribute, int) { return kSuccess; }
DriverStatus func_get_attribute(int* value, FunctionAttribute, Function) {
  *value = 0;
  return kSuccess;
}

// ---- memory ----

DriverStatus mem_alloc(DevicePtr* memory, size_t bytes) {
  State& s = state();
  if (bytes == 0) return kErrorInvalidValue;
  if (s.used + bytes > kMemory) return kErrorOutOfMemory;
  void* p = allocate(bytes, fmt::format("buffer {}", s.sizes.size()).c_str());
  if (!p) return kErrorOutOfMemory;
  *memory = reinterpret_cast<DevicePtr>(p);
  s.sizes[*memory] = bytes;
  s.used += bytes;
  return kSuccess;
}
DriverStatus mem_free(DevicePtr memory) {
  State& s = state();
  const auto it = s.sizes.find(memory);
  if (it == s.sizes.end()) return memory == 0 ? kSuccess : kErrorInvalidValue;
  s.used -= it->second;
  s.sizes.erase(it);
  return release(pointer(memory)) ? kSuccess : kErrorInvalidValue;
}
DriverStatus mem_host_alloc(void** memory, size_t bytes, unsigned) {
  *memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  return *memory ? kSuccess : kErrorOutOfMemory;
}
DriverStatus mem_free_host(void* memory) {
  std::free(memory);
  return kSuccess;
}
DriverStatus mem_get_info(size_t* free, size_t* total) {
  *free = kMemory - state().used;
  *total = kMemory;
  return kSuccess;
}
DriverStatus memcpy_htod_async(DevicePtr to, const void* from, size_t bytes, Stream) {
  std::memcpy(pointer(to), from, bytes);
  return kSuccess;
}
DriverStatus memcpy_dtoh_async(void* to, DevicePtr from, size_t bytes, Stream) {
  std::memcpy(to, pointer(from), bytes);
  return kSuccess;
}
DriverStatus memcpy_dtod_async(DevicePtr to, DevicePtr from, size_t bytes, Stream) {
  std::memmove(pointer(to), pointer(from), bytes);
  return kSuccess;
}
DriverStatus memset_d8_async(DevicePtr to, unsigned char value, size_t bytes, Stream) {
  std::memset(pointer(to), value, bytes);
  return kSuccess;
}

// ---- streams and events ----

DriverStatus stream_create(Stream* stream, unsigned) {
  *stream = reinterpret_cast<Stream>(new char);
  return kSuccess;
}
DriverStatus stream_destroy(Stream stream) {
  delete reinterpret_cast<char*>(stream);
  return kSuccess;
}
DriverStatus stream_synchronize(Stream) { return kSuccess; }
DriverStatus stream_wait_event(Stream, Event, unsigned) { return kSuccess; }
DriverStatus event_create(Event* event, unsigned) {
  *event = reinterpret_cast<Event>(new EmulatedEvent{});
  return kSuccess;
}
DriverStatus event_destroy(Event event) {
  delete reinterpret_cast<EmulatedEvent*>(event);
  return kSuccess;
}
DriverStatus event_record(Event event, Stream) {
  reinterpret_cast<EmulatedEvent*>(event)->time = std::chrono::steady_clock::now();
  return kSuccess;
}
DriverStatus event_synchronize(Event) { return kSuccess; }
DriverStatus event_elapsed_time(float* milliseconds, Event start, Event end) {
  const auto span = reinterpret_cast<EmulatedEvent*>(end)->time - reinterpret_cast<EmulatedEvent*>(start)->time;
  *milliseconds = std::chrono::duration<float, std::milli>(span).count();
  return kSuccess;
}

// ---- launches ----

DriverStatus launch_in_clusters(Function function, Dim3 grid, Dim3 block, unsigned cluster, size_t shared,
                                void** parameters) {
  State& s = state();
  if (!grid.x || !grid.y || !grid.z || grid.y > 65535 || grid.z > 65535 || !block.x) return kErrorInvalidValue;
  s.report = launch(reinterpret_cast<Entry>(function), parameters, grid, block, cluster, shared, s.options);
  if (s.report.faults.empty() && s.report.completed) return kSuccess;
  s.error_text = "the emulator reports";
  for (const std::string& f : s.report.faults) s.error_text += "\n    " + f;
  return kErrorLaunchFailed;
}
DriverStatus launch_kernel(Function function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                           unsigned block_y, unsigned block_z, unsigned shared_bytes, Stream, void** parameters,
                           void**) {
  const unsigned cluster = state().clusters[reinterpret_cast<void*>(function)];
  return launch_in_clusters(function, {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, cluster ? cluster : 1,
                            shared_bytes, parameters);
}
DriverStatus launch_kernel_ex(const LaunchConfig* c, Function function, void** parameters, void**) {
  unsigned cluster = std::max(state().clusters[reinterpret_cast<void*>(function)], 1u);
  for (unsigned i = 0; i < c->attribute_count; ++i) {
    const LaunchAttribute& a = c->attributes[i];
    if (a.id != LaunchAttributeId::ClusterDimension) continue;
    if (a.cluster.y != 1 || a.cluster.z != 1) return kErrorNotSupported;
    cluster = a.cluster.x;
  }
  return launch_in_clusters(function, {c->grid_x, c->grid_y, c->grid_z}, {c->block_x, c->block_y, c->block_z}, cluster,
                            c->shared_bytes, parameters);
}
// A stream that is being recorded would run its launches at once, so there is no recording.
DriverStatus stream_begin_capture(Stream, int) { return kErrorNotSupported; }
DriverStatus stream_is_capturing(Stream, int* status) {
  *status = 0;
  return kSuccess;
}
DriverStatus stream_end_capture(Stream, Graph*) { return kErrorNotSupported; }
DriverStatus graph_instantiate(GraphExec*, Graph, uint64_t) { return kErrorNotSupported; }
DriverStatus graph_launch(GraphExec, Stream) { return kErrorNotSupported; }
DriverStatus graph_exec_destroy(GraphExec) { return kSuccess; }
DriverStatus graph_destroy(Graph) { return kSuccess; }

// ---- tensor maps ----

bool element_of(TensorMapType type, Elem& elem) {
  switch (type) {
    case TensorMapType::U8: elem = Elem::U8; return true;
    case TensorMapType::F16: elem = Elem::F16; return true;
    case TensorMapType::BF16: elem = Elem::BF16; return true;
    case TensorMapType::I32:
    case TensorMapType::F32: elem = Elem::F32; return true;
    case TensorMapType::TF32: elem = Elem::TF32; return true;
    default: return false;
  }
}
Swizzle swizzle_of(TensorMapSwizzle swizzle) {
  switch (swizzle) {
    case TensorMapSwizzle::B128: return Swizzle::B128;
    case TensorMapSwizzle::B64: return Swizzle::B64;
    case TensorMapSwizzle::B32: return Swizzle::B32;
    default: return Swizzle::None;
  }
}
DriverStatus finish_map(runtime::cuda::TensorMap* to, const TensorMap& map, const std::string& broken_rule) {
  static_assert(sizeof map == sizeof *to);
  if (!broken_rule.empty()) {
    state().error_text = "tensor map: " + broken_rule;
    return kErrorInvalidValue;
  }
  std::memcpy(to, &map, sizeof map);
  return kSuccess;
}
DriverStatus tensor_map_encode_tiled(runtime::cuda::TensorMap* to, TensorMapType type, unsigned rank, void* address,
                                     const uint64_t* dims, const uint64_t* strides, const uint32_t* box,
                                     const uint32_t* steps, TensorMapInterleave, TensorMapSwizzle swizzle, TensorMapL2,
                                     TensorMapFill) {
  Elem elem{};
  if (!element_of(type, elem) || rank < 1 || rank > 5) return kErrorNotSupported;
  for (unsigned i = 0; i < rank; ++i)
    if (steps[i] != 1) return kErrorNotSupported;
  TensorMap map{};
  return finish_map(to, map,
                    encode_tiled(map, elem, address, {dims, dims + rank}, {strides, strides + rank - 1},
                                 {box, box + rank}, swizzle_of(swizzle)));
}
DriverStatus tensor_map_encode_im2col(runtime::cuda::TensorMap* to, TensorMapType type, unsigned rank, void* address,
                                      const uint64_t* dims, const uint64_t* strides, const int* lower, const int* upper,
                                      uint32_t channels, uint32_t pixels, const uint32_t* steps, TensorMapInterleave,
                                      TensorMapSwizzle swizzle, TensorMapL2, TensorMapFill) {
  Elem elem{};
  if (!element_of(type, elem) || rank < 3 || rank > 5) return kErrorNotSupported;
  TensorMap map{};
  return finish_map(
      to, map,
      encode_im2col(map, elem, address, {dims, dims + rank}, {strides, strides + rank - 1}, {lower, lower + rank - 2},
                    {upper, upper + rank - 2}, channels, pixels, {steps, steps + rank}, swizzle_of(swizzle)));
}

}  // namespace

const DriverApi& emulated_driver() {
  static const DriverApi api = [] {
    keep_entry_points();
    DriverApi a;
#define INGOT_EMULATED(field, symbol, parameters) a.field = field;
    INGOT_DRIVER_FUNCTIONS(INGOT_EMULATED)
    INGOT_DRIVER_OPTIONAL_FUNCTIONS(INGOT_EMULATED)
#undef INGOT_EMULATED
    return a;
  }();
  return api;
}

const LaunchReport& last_report() { return state().report; }
LaunchOptions& launch_options() { return state().options; }

Result<std::vector<uint8_t>> emulate_module(const std::string& source) {
  INGOT_TRY(compile_emulated(source));
  std::vector<uint8_t> image(source.begin(), source.end());
  image.push_back(0);
  return image;
}

}  // namespace ingot::emulation
