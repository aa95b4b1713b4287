// The memory of a Session: the arena, device copies of host inputs and outputs, and giving all of it back.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "runtime/executor.h"
#include "runtime/memory.h"

namespace ingot::runtime {

/// The first allocation is exact. One that grows takes at least a quarter more than was held, if it may and that is to be
/// had: shapes that grow step by step then cost a logarithm of allocations, each of which waits and drops all recordings.
Status Session::reserve(DeviceMemory& memory, uint64_t bytes, const std::string& what, uint64_t most) {
  if (memory.data() && memory.bytes() >= bytes) return {};
  const auto& device = engine_->device();
  const uint64_t held = memory.bytes(), roomy = std::max(bytes, std::min(held + held / 4, most));
  if (memory.data() && stream_) INGOT_TRY(device->synchronize(stream_.get()));
  memory = DeviceMemory();
  ++addresses_;
  drop_recordings(nullptr);
  uint64_t taken = roomy;
  auto fresh = device->allocate(taken);
  if (!fresh && roomy > bytes) fresh = device->allocate(taken = bytes);
  if (!fresh) return out_of_memory(*device, bytes, what, fresh.error());
  memory = DeviceMemory(device, fresh.value(), taken);
  return {};
}

Status Session::reserve_arena(const Plan& plan) {
  if (plan.arena_bytes == 0 || (arena_.data() && arena_.bytes() >= plan.arena_bytes)) return {};
  const Program& p = engine_->program();
  uint64_t largest = 0;
  std::string name = "?";
  for (const ValueInfo& v : p.values) {
    const auto bytes = static_cast<uint64_t>(plan.lines[v.bytes]);
    if (v.place == Place::Arena && bytes >= largest) {
      largest = bytes;
      name = v.name;
    }
  }
  std::string shape;
  for (size_t i = 0; i < p.symbols.size(); ++i) shape += fmt::format(" {}={}", p.symbols[i].name, plan.symbols[i]);
  const std::string what =
      fmt::format("intermediate values{}{} (the largest, '{}', takes {}; the weights hold {})",
                  shape.empty() ? "" : " at", shape, name, human(largest), human(engine_->weight_bytes()));
  if (plan.arena_bytes > options_.max_arena_bytes)
    return make_error(ErrorKind::OutOfMemory,
                      fmt::format("{} needed for {}; this session may use {}", human(plan.arena_bytes), what,
                                  human(options_.max_arena_bytes)));
  ++counters_.arena_growths;
  INGOT_TRY(reserve(arena_, plan.arena_bytes, what, options_.max_arena_bytes));
  return clear_counters();
}

/// Launches leave counters as they found them: at zero.
Status Session::clear_counters() {
  const uint64_t bytes = counter_bytes_of(engine_->program());
  if (bytes == 0) return {};
  const std::vector<char> zeros(bytes, 0);
  INGOT_TRY(engine_->device()->copy_to_device(arena_.data(), zeros.data(), bytes, stream_.get()));
  return engine_->device()->synchronize(stream_.get());
}

Result<Session::Plan*> Session::stage_inputs(const std::vector<Tensor>& inputs, std::vector<Tensor>& outputs,
                                             Addresses& at) {
  INGOT_TRY(check_types(inputs));
  std::vector<Dims> dims;
  for (const Tensor& t : inputs) dims.push_back(t.dims());
  INGOT_TRY(read_values(inputs));
  Plan* plan = INGOT_TRY(plan_for(dims));
  INGOT_TRY(reserve_arena(*plan));
  const Program& p = engine_->program();
  const auto& device = engine_->device();
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (device->is_host()) {
      at.inputs.push_back(const_cast<void*>(inputs[i].data()));
      continue;
    }
    INGOT_TRY(reserve(input_memory_[i], inputs[i].bytes(), fmt::format("input '{}'", p.inputs[i].name)));
    INGOT_TRY(device->copy_to_device(input_memory_[i].data(), inputs[i].data(), inputs[i].bytes(), stream_.get()));
    at.inputs.push_back(input_memory_[i].data());
  }
  for (size_t i = 0; i < p.outputs.size(); ++i) {
    outputs.push_back(INGOT_TRY(raw_tensor(p.outputs[i].type, plan->output_dims[i], p.outputs[i].name)));
    if (!device->is_host())
      INGOT_TRY(reserve(output_memory_[i], outputs[i].bytes(), fmt::format("output '{}'", p.outputs[i].name)));
    at.outputs.push_back(device->is_host() ? outputs[i].mutable_data() : output_memory_[i].data());
  }
  return plan;
}

Status Session::fetch_outputs(std::vector<Tensor>& outputs) {
  const auto& device = engine_->device();
  if (!device->is_host())
    for (size_t i = 0; i < outputs.size(); ++i)
      INGOT_TRY(
          device->copy_to_host(outputs[i].mutable_data(), output_memory_[i].data(), outputs[i].bytes(), stream_.get()));
  return synchronize();
}

Status Session::trim() {
  INGOT_TRY(synchronize());
  INGOT_TRY(trim_parts());
  drop_recordings(nullptr);
  counters_.plans_dropped += plans_.size();
  plans_.clear();
  arena_ = DeviceMemory();
  for (auto* list : {&input_memory_, &output_memory_})
    for (DeviceMemory& m : *list) m = DeviceMemory();
  ++addresses_;
  return {};
}

SessionCounters Session::counters() const {
  SessionCounters c = counters_;
  c.arena_bytes = arena_.bytes();
  for (const auto* list : {&input_memory_, &output_memory_})
    for (const DeviceMemory& m : *list) c.staging_bytes += m.bytes();
  return c;
}

}  // namespace ingot::runtime
