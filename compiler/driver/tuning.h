// Plans by measurement (--tune): for each product, attention and sliding window of a model and each size asked for, the
// few plans that the estimate ranks first run beside the default, and the one that wins by more than noise takes its
// place. Results are kept in the store under all that decides them; nothing is measured twice.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "codegen/cuda/tuning_candidates.h"
#include "compiler/driver/measure.h"
#include "compiler/driver/session.h"
#include "compiler/driver/targets.h"
#include "runtime/store.h"

namespace ingot {

/// Times programs that do the same; the first is the default. Candidates that fail say so in their Timing.
using Measurer =
    std::function<Result<std::vector<Timing>>(const std::vector<std::shared_ptr<const runtime::Program>>&)>;

/// What tuning works with. All of it is handed in, so that it can be tested without a GPU and without waiting.
struct TuningTools {
  std::vector<std::string> targets;  // of the device
  TargetTraits traits;
  std::string device;  // what decides its speed: "NVIDIA H200, 132 SMs, driver 13.0"
  runtime::Store* store = nullptr;  // null: nothing is kept
  double seconds = 0;  // from the first measurement's preparations on; 0: what the store has, and no more
  int threads = 1;  // that compile candidates
  Measurer measure;
  std::function<double()> now;  // seconds
  std::function<void(const std::string& what, size_t done, size_t total)> progress;  // may be empty
  std::function<void(const std::string&)> warn;  // may be empty
};

struct Tuning {
  TunedPlans plans;  // of kernels with something better than the default at some size
  std::vector<TunedKernel> tuned;  // one for each kernel and size that was measured
  size_t left = 0;  // that the time did not suffice for
};
/// The dims of a point, for the kernels of each list. Kernels of the same text count as often as they are there.
struct KernelsAt {
  const std::vector<Kernel>* kernels = nullptr;
  std::vector<DimValues> points;
};
Tuning tune_kernels(const std::vector<KernelsAt>& kernels, const TuningTools& tools);

/// Everything that decides what tuning finds for these forms, the default's first: the key of its entry in the store.
runtime::StoreKey tuning_key(const TuningTools& tools, const DimValues& at,
                             const std::vector<EmittedKernel>& candidates);
/// One launch of the kernel at these sizes, with its buffers as inputs and outputs.
Result<runtime::Program> program_of_launch(const Kernel& kernel, const BuiltKernel& built, const DimValues& at,
                                           const std::string& target);
/// The dims of a graph's inputs at a point, and what follows from them; not those that only a call's values decide.
DimValues dims_at(const Graph& graph, const TuningPoint& point);

/// Error: there is no options.tune_device, or it is none of the targets.
Status check_tuning_target(const CompileOptions& options);
/// Tunes a lowered model on options.tune_device, in a process of its own. Error: there is no such GPU. A GPU that the
/// targets do not name gives no plans: those kernels are not run on it.
Result<Tuning> tune_model(const Compilation& compilation, const CompileOptions& options, const TargetTraits& traits,
                          runtime::Store& store);

}  // namespace ingot
