// What a GPU is, and which binaries it runs.
#include <fmt/format.h>

#include <cstdio>

#include "runtime/cuda/cuda_device.h"

namespace ingot::runtime {

using cuda::DriverApi;

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
