// A run with a clock around every launch.
#include "runtime/executor.h"

namespace ingot::runtime {

Result<Profile> Session::profile(const std::vector<Tensor>& inputs) {
  if (!engine_->program().scripts.empty())
    return unsupported("a profile of a model whose course is decided at run time");
  std::vector<Tensor> outputs;
  Addresses at;
  Plan* plan = INGOT_TRY(stage_inputs(inputs, outputs, at));
  locate(*plan, at);
  INGOT_TRY(issue(*plan, stream_.get()));  // warm: code and caches as in steady state
  const auto& device = engine_->device();
  INGOT_TRY(device->synchronize(stream_.get()));
  std::vector<std::unique_ptr<Event>> marks;
  for (size_t i = 0; i <= plan->steps.size(); ++i) marks.push_back(INGOT_TRY(device->create_event()));
  INGOT_TRY(device->record(*marks[0], stream_.get()));
  for (size_t i = 0; i < plan->steps.size(); ++i) {
    if (!plan->steps[i].empty) INGOT_TRY(issue_step(plan->steps[i], stream_.get(), plan->steps[i].instruction->early_behind < 0));
    INGOT_TRY(device->record(*marks[i + 1], stream_.get()));
  }
  INGOT_TRY(device->synchronize(stream_.get()));
  Profile profile;
  for (size_t i = 0; i < plan->steps.size(); ++i) {
    const Step& step = plan->steps[i];
    if (step.empty) continue;
    KernelTime time;
    time.ms = INGOT_TRY(device->elapsed_ms(*marks[i], *marks[i + 1]));
    time.start_ms = INGOT_TRY(device->elapsed_ms(*marks[0], *marks[i]));
    time.name = "copy";
    time.lane = step.instruction->lane;
    time.bytes = 2 * static_cast<int64_t>(step.bytes);
    if (step.kernel) {
      const KernelInfo& info = engine_->program().kernels[step.instruction->kernel];
      time.name = info.name;
      time.summary = info.summary;
      time.nodes = info.nodes;
      time.tensor_cost = info.tensor_cost;
      time.bytes = plan->lines[step.instruction->bytes];
      time.flops = plan->lines[step.instruction->flops];
    }
    profile.total_ms += time.ms;
    profile.kernels.push_back(std::move(time));
  }
  return profile;
}

}  // namespace ingot::runtime
