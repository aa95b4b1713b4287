// A CUDA GPU as a Device, over the table of driver functions in driver_api.h: libcuda's, or the emulator's in tests.
// Work goes to streams of our own, never to the default stream; host memory is staged through pinned buffers.
#pragma once

#include <memory>

#include "runtime/cuda/driver_api.h"
#include "runtime/device.h"

namespace ingot::runtime {

/// What a user and the compiler want to know of a GPU.
struct CudaDeviceInfo {
  std::string name;
  int ordinal = 0;
  int compute_capability = 0;  // 90
  int multiprocessors = 0;
  int shared_bytes = 0;  // of a block, opted in
  int l2_bytes = 0;
  uint64_t memory_bytes = 0;
  int driver_version = 0;  // 13000
};

/// GPU number `ordinal`, whose handle is `device`.
Result<CudaDeviceInfo> describe_device(const cuda::DriverApi& api, int ordinal, cuda::DeviceOrdinal device);
/// All GPUs that the driver sees.
Result<std::vector<CudaDeviceInfo>> list_cuda_devices(const cuda::DriverApi& api);

/// Opens GPU number `ordinal`. `api` must outlive the device.
Result<std::shared_ptr<Device>> open_cuda_device(const cuda::DriverApi& api, int ordinal);

/// How well binaries for `target` suit a GPU of this compute capability: 0 not at all. The exact CUBIN comes before one of
/// the same generation, and that before PTX.
int cuda_preference(const std::string& target, int compute_capability);
/// The binary of `kernel` that a GPU of this compute capability runs: the exact CUBIN, one of the same generation, or
/// PTX. The Error lists the targets that the kernel has.
Result<const KernelBinary*> pick_cuda_binary(const KernelInfo& kernel, int compute_capability);

}  // namespace ingot::runtime
