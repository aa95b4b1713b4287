// Devices by name: "cpu", "cuda", "cuda:1"; and the emulator where a test build registers it.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "runtime/cuda/cuda_device.h"
#include "runtime/device.h"

namespace ingot {

struct OpenDevice {
  std::shared_ptr<runtime::Device> device;
  std::string target;  // what to compile for: "cpu", "sm_90a"
};
/// "" means the first GPU if there is one, else the CPU. Error: unknown name, no such GPU, no driver.
Result<OpenDevice> open_device(const std::string& name);
/// The GPUs, or why there are none.
Result<std::vector<runtime::CudaDeviceInfo>> list_gpus();
/// The CUBIN target of a compute capability: 90 -> "sm_90a".
std::string target_of(int compute_capability);
/// Test builds add devices of their own ("emulator").
void register_device(const std::string& name, std::function<Result<OpenDevice>()> open);

}  // namespace ingot
