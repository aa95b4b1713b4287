#include "compiler/driver/devices.h"

#include <fmt/format.h>

#include <map>

#include "runtime/cpu/object_loader.h"

namespace ingot {
namespace {

std::map<std::string, std::function<Result<OpenDevice>()>>& registered() {
  static std::map<std::string, std::function<Result<OpenDevice>()>> map;
  return map;
}

Result<OpenDevice> open_cpu() {
  return OpenDevice{std::make_shared<runtime::CpuDevice>(runtime::object_loader()), "cpu"};
}

Result<OpenDevice> open_gpu(int ordinal) {
  const auto* api = INGOT_TRY(runtime::cuda::load_driver());
  const auto gpus = INGOT_TRY(runtime::list_cuda_devices(*api));
  if (ordinal < 0 || ordinal >= static_cast<int>(gpus.size()))
    return make_error(ErrorKind::NotFound, fmt::format("there is no GPU {}; the driver sees {}", ordinal, gpus.size()));
  const auto device = INGOT_TRY(runtime::open_cuda_device(*api, ordinal));
  return OpenDevice{device, target_of(gpus[static_cast<size_t>(ordinal)].compute_capability)};
}

}  // namespace

std::string target_of(int cc) {
  const bool specific = cc == 90 || cc == 100 || cc == 103;
  return fmt::format("sm_{}{}", cc, specific ? "a" : "");
}

void register_device(const std::string& name, std::function<Result<OpenDevice>()> open) { registered()[name] = std::move(open); }

Result<std::vector<runtime::CudaDeviceInfo>> list_gpus() {
  const auto* api = INGOT_TRY(runtime::cuda::load_driver());
  return runtime::list_cuda_devices(*api);
}

Result<OpenDevice> open_device(const std::string& name) {
  if (auto it = registered().find(name); it != registered().end()) return it->second();
  if (name.empty()) {
    auto gpus = list_gpus();
    return gpus && !gpus->empty() ? open_gpu(0) : open_cpu();
  }
  if (name == "cpu") return open_cpu();
  if (name == "cuda") return open_gpu(0);
  if (name.rfind("cuda:", 0) == 0) return open_gpu(std::atoi(name.c_str() + 5));
  return invalid(fmt::format("unknown device {}; give cpu, cuda, cuda:N or interpreter", name));
}

}  // namespace ingot
