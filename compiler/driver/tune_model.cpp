// Tuning of a whole model: the device, the process that measures on it, and the sizes.
#include <fmt/format.h>

#include <chrono>
#include <thread>

#include "compiler/driver/devices.h"
#include "compiler/driver/tuning.h"
#include "compiler/driver/tuning_worker.h"

namespace ingot {
namespace {

struct TuningDevice {
  std::string target, description;
};

/// The device, without opening it: that is for the process that measures.
Result<TuningDevice> tuning_device(const std::string& name) {
  if (name.rfind("cuda", 0) != 0) {  // one that a test build has registered
    const OpenDevice opened = INGOT_TRY(open_device(name));
    if (opened.device->is_host()) return invalid(fmt::format("--tune measures kernels on a GPU; {} is none", name));
    return TuningDevice{opened.target, opened.device->name()};
  }
  auto gpus = list_gpus();
  if (!gpus) return std::move(gpus.error().add("--tune measures kernels on a GPU, and there is none"));
  const size_t number = name.size() > 5 ? static_cast<size_t>(std::atoi(name.c_str() + 5)) : 0;
  if (number >= gpus->size())
    return make_error(ErrorKind::NotFound,
                      fmt::format("--tune: there is no GPU {}; the driver sees {}", number, gpus->size()));
  const runtime::CudaDeviceInfo& g = (*gpus)[number];
  return TuningDevice{target_of(g.compute_capability), fmt::format("{}, {} SMs, {} bytes of L2, driver {}", g.name,
                                                                   g.multiprocessors, g.l2_bytes, g.driver_version)};
}

}  // namespace

Status check_tuning_target(const CompileOptions& o) {
  const TuningDevice device = INGOT_TRY(tuning_device(o.tune_device));
  if (std::find(o.targets.begin(), o.targets.end(), device.target) == o.targets.end())
    return invalid(fmt::format("--tune measures on {}, which runs {}; the targets are {}", device.description,
                               device.target, fmt::join(o.targets, ", ")));
  return {};
}

Result<Tuning> tune_model(const Compilation& c, const CompileOptions& o, const TargetTraits& traits,
                          runtime::Store& store) {
  const TuningDevice device = INGOT_TRY(tuning_device(o.tune_device));
  if (std::find(o.targets.begin(), o.targets.end(), device.target) == o.targets.end()) return Tuning{};
  TuningWorker worker({{"/proc/self/exe", "measure", "--device", o.tune_device}});
  TuningTools tools{{device.target}, traits, device.description, &store, *o.tune_seconds, 1, {}, {},
                    o.progress,      o.warn};
  tools.threads = o.threads > 0 ? o.threads : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  tools.measure = [&](const auto& programs) { return worker.measure(programs); };
  tools.now = [] { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); };
  std::vector<KernelsAt> lists;
  const auto add = [&](const Compilation& part) {
    KernelsAt list{&part.lowered.kernels, {}};
    for (const TuningPoint& point : o.tune_at) list.points.push_back(dims_at(part.graph, point));
    lists.push_back(std::move(list));
  };
  if (c.scripts.empty()) add(c);
  for (const Compilation& part : c.parts) add(part);
  return tune_kernels(lists, tools);
}

}  // namespace ingot
