// The launching half of Session: one stream or several, launch by launch or as a recording.
#include <fmt/format.h>

#include <algorithm>

#include "runtime/executor.h"
#include "runtime/nvtx.h"

namespace ingot::runtime {

void Session::locate(const Plan& plan, const Addresses& at) {
  const Program& p = engine_->program();
  for (size_t i = 0; i < p.values.size(); ++i) {
    const ValueInfo& v = p.values[i];
    void* address = nullptr;
    switch (v.place) {
      case Place::Input: address = at.inputs[v.index]; break;
      case Place::Output: address = at.outputs[v.index]; break;
      case Place::Constant: address = engine_->constant(v.index); break;
      case Place::Arena: address = static_cast<char*>(arena_.data()) + plan.slot_offsets[v.index]; break;
    }
    values_[i] = address && plan.lines[v.bytes] > 0 ? address : empty_.data();
  }
}

Status Session::issue_step(const Step& step, Stream* stream, bool may_start_early) {
  if (cancelled_.load(std::memory_order_relaxed))
    return make_error(ErrorKind::Device, "the run was cancelled between two launches");
  const std::vector<int32_t>& args = step.instruction->args;
  Device& device = *engine_->device();
  if (!step.kernel) return device.copy_on_device(values_[args[1]], values_[args[0]], step.bytes, stream);
  arguments_.resize(args.size());
  for (size_t i = 0; i < args.size(); ++i) arguments_[i] = values_[args[i]];
  if (step.parts) {
    char* const arena = static_cast<char*>(arena_.data());
    arguments_.push_back(arena + static_cast<uint64_t>(step.instruction->lane) * kCounterBytes);
    arguments_.push_back(arena + *step.parts);
  }
  const KernelInfo& info = engine_->program().kernels[static_cast<size_t>(step.instruction->kernel)];
  const NvtxRange range(info.name);
  Status status = device.launch(*step.kernel, {arguments_, step.dims, step.grid, step.boxes, may_start_early}, stream);
  if (status && options_.synchronous && !device.is_recording(stream)) status = device.synchronize(stream);
  if (!status) status.error().add(describe_kernel(info));
  return status;
}

Status Session::issue(const Plan& plan, Stream* stream) {
  if (plan.lanes) return issue_lanes(plan, stream);
  const Instruction* const first = engine_->program().instructions.data();
  std::ptrdiff_t before = -1;  // the instruction that the stream holds last
  for (const Step& step : plan.steps) {
    if (step.empty) continue;
    const int32_t behind = step.instruction->early_behind;
    INGOT_TRY(issue_step(step, stream, behind < 0 || before >= behind));
    before = step.instruction - first;
  }
  return {};
}

/// Streams and events for the program's lanes, once.
Status Session::start_lanes() {
  if (fork_) return {};
  Device& device = *engine_->device();
  for (int32_t lane = 0; lane < engine_->lanes(); ++lane) {
    lanes_.push_back(lane ? INGOT_TRY(device.create_stream()) : nullptr);
    joins_.push_back(lane ? INGOT_TRY(device.create_event(false)) : nullptr);
  }
  const size_t count = engine_->program().instructions.size();
  done_.resize(count);
  for (size_t i = 0; i < count; ++i)
    if (engine_->awaited(i)) done_[i] = INGOT_TRY(device.create_event(false));
  fork_ = INGOT_TRY(device.create_event(false));
  return {};
}

Status Session::issue_lanes(const Plan& plan, Stream* stream) {
  INGOT_TRY(start_lanes());
  Device& device = *engine_->device();
  const Instruction* const first = engine_->program().instructions.data();
  const auto of_lane = [&](int32_t lane) { return lane ? lanes_[static_cast<size_t>(lane)].get() : stream; };
  // All lanes start after what the caller's stream holds so far, and that stream goes on after all of them.
  INGOT_TRY(device.record(*fork_, stream));
  for (int32_t lane = 1; lane < engine_->lanes(); ++lane) INGOT_TRY(device.wait(of_lane(lane), *fork_));
  Status status;
  for (const Step& step : plan.steps) {
    Stream* const on = of_lane(step.instruction->lane);
    for (int32_t w : step.instruction->waits)
      if (status) status = device.wait(on, *done_[static_cast<size_t>(w)]);
    // What was in front of it in the list may be on another stream.
    if (status && !step.empty) status = issue_step(step, on, step.instruction->early_behind < 0);
    const auto number = static_cast<size_t>(step.instruction - first);
    if (status && done_[number]) status = device.record(*done_[number], on);
    if (!status) break;  // the lanes are joined all the same: a capture must end where it began
  }
  for (int32_t lane = 1; lane < engine_->lanes(); ++lane) {
    Status joined = device.record(*joins_[static_cast<size_t>(lane)], of_lane(lane));
    if (joined) joined = device.wait(stream, *joins_[static_cast<size_t>(lane)]);
    if (status) status = joined;
  }
  return status;
}

void Session::drop_recordings(const Plan* plan) {
  const size_t before = recorded_.size();
  recorded_.remove_if([&](const RecordedRun& r) { return !plan || r.plan == plan; });
  counters_.recordings_dropped += before - recorded_.size();
}

Status Session::record(const Plan& plan, RecordedRun& run) {
  Device& device = *engine_->device();
  if (plan.lanes) INGOT_TRY(start_lanes());  // nothing may be created while a stream records
  if (!device.begin_recording(stream_.get())) {
    options_.recordings = false;
    return {};
  }
  locate(plan, run.at);
  const Status issued = issue(plan, stream_.get());
  auto recording = device.end_recording(stream_.get());
  INGOT_TRY(issued);
  if (!recording) {
    options_.recordings = false;
    return {};
  }
  run.recording = std::move(recording).value();
  ++counters_.recordings_made;
  return {};
}

Status Session::issue_at(Plan& plan, const Addresses& at, Stream* stream) {
  ++counters_.runs;
  Device& device = *engine_->device();
  const bool may_record = options_.recordings && !options_.synchronous && options_.max_recordings > 0 &&
                          !device.is_host() && !device.is_recording(stream);
  if (!may_record) {
    locate(plan, at);
    return issue(plan, stream);
  }
  auto found = std::find_if(recorded_.begin(), recorded_.end(),
                            [&](const RecordedRun& r) { return r.plan == &plan && r.at == at; });
  if (found == recorded_.end()) {
    recorded_.push_front({&plan, at, nullptr});
    if (recorded_.size() > options_.max_recordings) {
      recorded_.pop_back();
      ++counters_.recordings_dropped;
    }
    locate(plan, at);
    return issue(plan, stream);
  }
  recorded_.splice(recorded_.begin(), recorded_, found);
  if (!found->recording) INGOT_TRY(record(plan, *found));
  if (!found->recording) {
    locate(plan, at);
    return issue(plan, stream);
  }
  ++counters_.replays;
  return device.replay(*found->recording, stream);
}

}  // namespace ingot::runtime
