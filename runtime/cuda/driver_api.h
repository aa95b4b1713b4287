// The CUDA driver as a table of function pointers. libcuda.so.1 is opened at run time, so that one binary starts on
// every machine; the kernel emulator of the tests fills the same table. The types are our own declarations of the
// driver's ABI: no CUDA header is needed. cuda_device.cpp is the caller.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "compiler/support/result.h"

namespace ingot::runtime::cuda {

using DriverStatus = int;  // CUresult; kSuccess or an error
using DeviceOrdinal = int;  // CUdevice
using DevicePtr = uint64_t;
using Context = struct ContextOpaque*;
using Module = struct ModuleOpaque*;
using Function = struct FunctionOpaque*;
using Stream = struct StreamOpaque*;
using Event = struct EventOpaque*;
using Graph = struct GraphOpaque*;
using GraphExec = struct GraphExecOpaque*;

constexpr DriverStatus kSuccess = 0;
constexpr DriverStatus kErrorInvalidValue = 1;
constexpr DriverStatus kErrorOutOfMemory = 2;
constexpr DriverStatus kErrorNotInitialized = 3;
constexpr DriverStatus kErrorNoDevice = 100;
constexpr DriverStatus kErrorInvalidDevice = 101;
constexpr DriverStatus kErrorInvalidImage = 200;
constexpr DriverStatus kErrorNoBinaryForGpu = 209;
constexpr DriverStatus kErrorNotFound = 500;
constexpr DriverStatus kErrorNotReady = 600;
constexpr DriverStatus kErrorLaunchFailed = 719;
constexpr DriverStatus kErrorNotSupported = 801;

enum class DeviceAttribute : int {
  MaxThreadsPerBlock = 1,
  SharedMemoryPerBlock = 8,
  WarpSize = 10,
  ClockRateKhz = 13,
  MultiprocessorCount = 16,
  Integrated = 18,
  PciBusId = 33,
  PciDeviceId = 34,
  MemoryClockRateKhz = 36,
  MemoryBusWidthBits = 37,
  L2CacheBytes = 38,
  ComputeCapabilityMajor = 75,
  ComputeCapabilityMinor = 76,
  SharedMemoryPerMultiprocessor = 81,
  SharedMemoryPerBlockOptin = 97
};
enum class FunctionAttribute : int {
  MaxThreadsPerBlock = 0,
  SharedBytes = 1,
  LocalBytes = 3,
  Registers = 4,
  MaxDynamicSharedBytes = 8,
  PreferredSharedCarveout = 9
};
constexpr unsigned kStreamNonBlocking = 1;
constexpr unsigned kEventDefault = 0;
constexpr unsigned kEventDisableTiming = 2;
constexpr unsigned kHostPortable = 1;  // pinned for every context
constexpr int kCaptureThreadLocal = 1;  // CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
constexpr int kCaptureRelaxed = 2;

enum class LaunchAttributeId : int { ClusterDimension = 4, ProgrammaticStreamSerialization = 6, Priority = 8 };
struct LaunchAttribute {
  LaunchAttributeId id;
  char pad[4];
  union {
    char bytes[64];
    struct {
      unsigned x, y, z;
    } cluster;
    int value;
  };
};
struct LaunchConfig {
  unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
  Stream stream;
  LaunchAttribute* attributes;
  unsigned attribute_count;
};
static_assert(sizeof(LaunchAttribute) == 72 && sizeof(LaunchConfig) == 56);

/// A CUtensorMap; kernels take it by value.
struct alignas(64) TensorMap {
  uint64_t words[16];
};
enum class TensorMapType : int {
  U8 = 0,
  U16 = 1,
  U32 = 2,
  I32 = 3,
  F16 = 6,
  F32 = 7,
  F64 = 8,
  BF16 = 9,
  F32Flushed = 10,
  TF32 = 11,
  TF32Flushed = 12
};
enum class TensorMapInterleave : int { None = 0 };
enum class TensorMapSwizzle : int { None = 0, B32 = 1, B64 = 2, B128 = 3 };
enum class TensorMapL2 : int { None = 0, B64 = 1, B128 = 2, B256 = 3 };
enum class TensorMapFill : int { Zero = 0, NanRequestZeroFma = 1 };

// One row per function: X(field, exported symbol, parameters). All return a DriverStatus.
#define INGOT_DRIVER_FUNCTIONS(X)                                                                              \
  X(init, cuInit, (unsigned flags))                                                                            \
  X(driver_get_version, cuDriverGetVersion, (int* version))                                                    \
  X(get_error_name, cuGetErrorName, (DriverStatus status, const char** text))                                  \
  X(get_error_string, cuGetErrorString, (DriverStatus status, const char** text))                              \
  X(device_get_count, cuDeviceGetCount, (int* count))                                                          \
  X(device_get, cuDeviceGet, (DeviceOrdinal * device, int ordinal))                                            \
  X(device_get_name, cuDeviceGetName, (char* name, int length, DeviceOrdinal device))                          \
  X(device_get_attribute, cuDeviceGetAttribute, (int* value, DeviceAttribute attribute, DeviceOrdinal device)) \
  X(device_total_mem, cuDeviceTotalMem_v2, (size_t* bytes, DeviceOrdinal device))                              \
  X(primary_ctx_retain, cuDevicePrimaryCtxRetain, (Context * context, DeviceOrdinal device))                   \
  X(primary_ctx_release, cuDevicePrimaryCtxRelease_v2, (DeviceOrdinal device))                                 \
  X(ctx_set_current, cuCtxSetCurrent, (Context context))                                                       \
  X(ctx_get_current, cuCtxGetCurrent, (Context * context))                                                     \
  X(ctx_synchronize, cuCtxSynchronize, ())                                                                     \
  X(module_load_data, cuModuleLoadData, (Module * module, const void* image))                                  \
  X(module_unload, cuModuleUnload, (Module module))                                                            \
  X(module_get_function, cuModuleGetFunction, (Function * function, Module module, const char* name))          \
  X(func_set_attribute, cuFuncSetAttribute, (Function function, FunctionAttribute attribute, int value))       \
  X(func_get_attribute, cuFuncGetAttribute, (int* value, FunctionAttribute attribute, Function function))      \
  X(mem_alloc, cuMemAlloc_v2, (DevicePtr * pointer, size_t bytes))                                             \
  X(mem_free, cuMemFree_v2, (DevicePtr pointer))                                                               \
  X(mem_host_alloc, cuMemHostAlloc, (void** pointer, size_t bytes, unsigned flags))                            \
  X(mem_free_host, cuMemFreeHost, (void* pointer))                                                             \
  X(mem_get_info, cuMemGetInfo_v2, (size_t* free, size_t* total))                                              \
  X(memcpy_htod_async, cuMemcpyHtoDAsync_v2, (DevicePtr to, const void* from, size_t bytes, Stream stream))    \
  X(memcpy_dtoh_async, cuMemcpyDtoHAsync_v2, (void* to, DevicePtr from, size_t bytes, Stream stream))          \
  X(memcpy_dtod_async, cuMemcpyDtoDAsync_v2, (DevicePtr to, DevicePtr from, size_t bytes, Stream stream))      \
  X(memset_d8_async, cuMemsetD8Async, (DevicePtr to, unsigned char value, size_t bytes, Stream stream))        \
  X(stream_create, cuStreamCreate, (Stream * stream, unsigned flags))                                          \
  X(stream_destroy, cuStreamDestroy_v2, (Stream stream))                                                       \
  X(stream_synchronize, cuStreamSynchronize, (Stream stream))                                                  \
  X(stream_wait_event, cuStreamWaitEvent, (Stream stream, Event event, unsigned flags))                        \
  X(event_create, cuEventCreate, (Event * event, unsigned flags))                                              \
  X(event_destroy, cuEventDestroy_v2, (Event event))                                                           \
  X(event_record, cuEventRecord, (Event event, Stream stream))                                                 \
  X(event_synchronize, cuEventSynchronize, (Event event))                                                      \
  X(event_elapsed_time, cuEventElapsedTime, (float* milliseconds, Event start, Event end))                     \
  X(launch_kernel, cuLaunchKernel,                                                                             \
    (Function function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y, \
     unsigned block_z, unsigned shared_bytes, Stream stream, void** parameters, void** extra))                 \
  X(stream_begin_capture, cuStreamBeginCapture_v2, (Stream stream, int mode))                                  \
  X(stream_end_capture, cuStreamEndCapture, (Stream stream, Graph * graph))                                    \
  X(graph_instantiate, cuGraphInstantiateWithFlags, (GraphExec * exec, Graph graph, uint64_t flags))           \
  X(graph_launch, cuGraphLaunch, (GraphExec exec, Stream stream))                                              \
  X(graph_exec_destroy, cuGraphExecDestroy, (GraphExec exec))                                                  \
  X(graph_destroy, cuGraphDestroy, (Graph graph))

// Functions that an older driver may lack: the pointer is then null.
#define INGOT_DRIVER_OPTIONAL_FUNCTIONS(X)                                                                             \
  X(stream_is_capturing, cuStreamIsCapturing, (Stream stream, int* status))                                            \
  X(launch_kernel_ex, cuLaunchKernelEx,                                                                                \
    (const LaunchConfig* config, Function function, void** parameters, void** extra))                                  \
  X(tensor_map_encode_tiled, cuTensorMapEncodeTiled,                                                                   \
    (TensorMap * map, TensorMapType type, unsigned rank, void* address, const uint64_t* dims, const uint64_t* strides, \
     const uint32_t* box, const uint32_t* element_strides, TensorMapInterleave interleave, TensorMapSwizzle swizzle,   \
     TensorMapL2 l2, TensorMapFill fill))                                                                              \
  X(tensor_map_encode_im2col, cuTensorMapEncodeIm2col,                                                                 \
    (TensorMap * map, TensorMapType type, unsigned rank, void* address, const uint64_t* dims, const uint64_t* strides, \
     const int* lower_corner, const int* upper_corner, uint32_t channels, uint32_t pixels,                             \
     const uint32_t* element_strides, TensorMapInterleave interleave, TensorMapSwizzle swizzle, TensorMapL2 l2,        \
     TensorMapFill fill))

struct DriverApi {
#define INGOT_DRIVER_FIELD(field, symbol, parameters) DriverStatus(*field) parameters = nullptr;
  INGOT_DRIVER_FUNCTIONS(INGOT_DRIVER_FIELD)
  INGOT_DRIVER_OPTIONAL_FUNCTIONS(INGOT_DRIVER_FIELD)
#undef INGOT_DRIVER_FIELD

  /// An Error that names the call and what the driver says of `status`.
  Error error(DriverStatus status, std::string call, SourceLoc where = SourceLoc::here()) const;
};

/// Opens libcuda.so.1 and calls cuInit, once per process. The Error says what is missing and what to do.
Result<const DriverApi*> load_driver();

}  // namespace ingot::runtime::cuda

/// Calls a driver function through `api`; returns an Error from the enclosing function when it fails.
#define INGOT_DRIVER_TRY(api, field, ...)                                                             \
  do {                                                                                                \
    const ::ingot::runtime::cuda::DriverStatus ingot_status_ = (api).field(__VA_ARGS__);              \
    if (ingot_status_ != ::ingot::runtime::cuda::kSuccess) return (api).error(ingot_status_, #field); \
  } while (0)
