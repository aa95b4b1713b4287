#include "runtime/executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

namespace ingot::runtime {
namespace {

constexpr uint64_t kAlignment = 256;

uint64_t align_up(uint64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

std::string human(uint64_t bytes) {
  if (bytes < 10 << 10) return fmt::format("{} bytes", bytes);
  if (bytes < 10 << 20) return fmt::format("{:.1f} KiB", static_cast<double>(bytes) / (1 << 10));
  return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
}

Error out_of_memory(const Device& device, uint64_t bytes, const std::string& what, const Error& cause) {
  const MemoryInfo info = device.memory_info();
  return make_error(ErrorKind::OutOfMemory,
                    fmt::format("{}: {} needed for {}; {} of {} are free", device.name(), human(bytes), what,
                                human(info.free_bytes), human(info.total_bytes)))
      .add(cause.message);
}

/// A tensor whose bytes are not cleared first: a kernel writes all of them.
Result<Tensor> raw_tensor(DType type, const Dims& dims, const std::string& name) {
  const int64_t count = INGOT_TRY(checked_count(dims, size_of(type)));
  const uint64_t bytes = align_up(static_cast<uint64_t>(count) * size_of(type) + 1);
  void* memory = std::aligned_alloc(kAlignment, bytes);
  if (!memory)
    return make_error(ErrorKind::OutOfMemory, fmt::format("{} of host memory needed for output '{}' {}", human(bytes),
                                                          name, describe(type, dims)));
  return Tensor(type, dims, std::shared_ptr<const void>(memory, [](const void* p) { std::free(const_cast<void*>(p)); }),
                memory);
}

}  // namespace

DeviceMemory& DeviceMemory::operator=(DeviceMemory&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}
DeviceMemory::~DeviceMemory() {
  if (data_) device_->release(data_);
}

Result<std::shared_ptr<const Engine>> Engine::create(std::shared_ptr<const Program> program,
                                                     std::shared_ptr<Device> device) {
  INGOT_TRY(program->verify());
  auto engine = std::make_shared<Engine>();
  engine->program_ = std::move(program);
  engine->device_ = std::move(device);
  for (const KernelInfo& info : engine->program_->kernels) {
    auto loaded = engine->device_->load(info);
    if (!loaded) return std::move(loaded).error().add("while loading kernel " + info.name);
    engine->kernels_.push_back(std::move(loaded).value());
  }
  INGOT_TRY(engine->load_constants());
  return std::shared_ptr<const Engine>(std::move(engine));
}

Status Engine::load_constants() {
  std::vector<uint64_t> offsets;
  uint64_t total = 0;
  const auto in_place = [&](const ConstantInfo& c) {
    return device_->is_host() && c.data->bytes() > 0 && reinterpret_cast<uintptr_t>(c.data->data()) % 64 == 0;
  };
  for (const ConstantInfo& c : program_->constants) {
    if (!c.data) return invalid(fmt::format("constant '{}' has no data", c.name));
    offsets.push_back(total);
    weight_bytes_ += c.data->bytes();
    if (!in_place(c)) total += align_up(std::max<uint64_t>(c.data->bytes(), 1));
  }
  if (total > 0) {
    auto memory = device_->allocate(total);
    if (!memory) return out_of_memory(*device_, total, "the weights", memory.error());
    weights_ = DeviceMemory(device_, memory.value(), total);
  }
  for (size_t i = 0; i < offsets.size(); ++i) {
    const ConstantInfo& c = program_->constants[i];
    if (in_place(c)) {
      constants_.push_back(const_cast<void*>(c.data->data()));
      continue;
    }
    constants_.push_back(static_cast<char*>(weights_.data()) + offsets[i]);
    INGOT_TRY(device_->copy_to_device(constants_.back(), c.data->data(), c.data->bytes(), nullptr));
  }
  return device_->synchronize(nullptr);
}

Session::Session(std::shared_ptr<const Engine> engine) : engine_(std::move(engine)) {
  input_memory_.resize(engine_->program().inputs.size());
  output_memory_.resize(engine_->program().outputs.size());
  values_.resize(engine_->program().values.size());
}

Result<std::unique_ptr<Session>> Session::create(std::shared_ptr<const Engine> engine) {
  std::unique_ptr<Session> session(new Session(std::move(engine)));
  session->stream_ = INGOT_TRY(session->engine_->device()->create_stream());
  INGOT_TRY(session->reserve(session->empty_, kAlignment, "a session"));
  return session;
}

Status Session::synchronize() { return engine_->device()->synchronize(stream_.get()); }

Status Session::reserve(DeviceMemory& memory, uint64_t bytes, const std::string& what) {
  if (memory.data() && memory.bytes() >= bytes) return {};
  const auto& device = engine_->device();
  if (memory.data() && stream_) INGOT_TRY(device->synchronize(stream_.get()));
  memory = DeviceMemory();
  ++addresses_;
  auto fresh = device->allocate(bytes);
  if (!fresh) return out_of_memory(*device, bytes, what, fresh.error());
  memory = DeviceMemory(device, fresh.value(), bytes);
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
  return reserve(arena_, plan.arena_bytes,
                 fmt::format("intermediate values{}{} (the largest, '{}', takes {}; the weights hold {})",
                             shape.empty() ? "" : " at", shape, name, human(largest), human(engine_->weight_bytes())));
}

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

Status Session::issue_step(const Step& step, Stream* stream) {
  const std::vector<int32_t>& args = step.instruction->args;
  Device& device = *engine_->device();
  if (!step.kernel) return device.copy_on_device(values_[args[1]], values_[args[0]], step.bytes, stream);
  arguments_.resize(args.size());
  for (size_t i = 0; i < args.size(); ++i) arguments_[i] = values_[args[i]];
  return device.launch(*step.kernel, arguments_, step.dims, step.grid, stream);
}

Status Session::issue(const Plan& plan, Stream* stream) {
  for (const Step& step : plan.steps) INGOT_TRY(issue_step(step, stream));
  return {};
}

Status Session::issue_recorded(Plan& plan) {
  Device& device = *engine_->device();
  if (device.is_host() || !recordings_allowed_ || ++plan.uses < 2) return issue(plan, stream_.get());
  if (!plan.recording || plan.recorded_at != addresses_) {
    plan.recording.reset();
    if (!device.begin_recording(stream_.get())) {
      recordings_allowed_ = false;
      return issue(plan, stream_.get());
    }
    const Status issued = issue(plan, stream_.get());
    auto recording = device.end_recording(stream_.get());
    INGOT_TRY(issued);
    if (!recording) {
      recordings_allowed_ = false;
      return issue(plan, stream_.get());
    }
    plan.recording = std::move(recording).value();
    plan.recorded_at = addresses_;
  }
  return device.replay(*plan.recording, stream_.get());
}

Result<Session::Plan*> Session::stage_inputs(const std::vector<Tensor>& inputs, std::vector<Tensor>& outputs) {
  INGOT_TRY(check_types(inputs));
  std::vector<Dims> dims;
  for (const Tensor& t : inputs) dims.push_back(t.dims());
  Plan* plan = INGOT_TRY(plan_for(dims));
  INGOT_TRY(reserve_arena(*plan));
  const Program& p = engine_->program();
  const auto& device = engine_->device();
  Addresses at;
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
  locate(*plan, at);
  return plan;
}

Status Session::fetch_outputs(std::vector<Tensor>& outputs) {
  const auto& device = engine_->device();
  if (!device->is_host())
    for (size_t i = 0; i < outputs.size(); ++i)
      INGOT_TRY(
          device->copy_to_host(outputs[i].mutable_data(), output_memory_[i].data(), outputs[i].bytes(), stream_.get()));
  return device->synchronize(stream_.get());
}

Result<std::vector<Tensor>> Session::run(const std::vector<Tensor>& inputs) {
  std::vector<Tensor> outputs;
  Plan* plan = INGOT_TRY(stage_inputs(inputs, outputs));
  INGOT_TRY(issue_recorded(*plan));
  INGOT_TRY(fetch_outputs(outputs));
  return outputs;
}

Result<std::vector<Dims>> Session::output_dims(const std::vector<Dims>& input_dims) {
  return INGOT_TRY(plan_for(input_dims))->output_dims;
}

Status Session::enqueue(std::span<const DeviceTensor> inputs, std::span<void* const> outputs, Stream* stream) {
  const Program& p = engine_->program();
  if (outputs.size() != p.outputs.size())
    return invalid(fmt::format("{} output pointers given, the model has {} outputs", outputs.size(), p.outputs.size()));
  std::vector<Dims> dims;
  Addresses at;
  for (const DeviceTensor& t : inputs) {
    dims.push_back(t.dims);
    at.inputs.push_back(t.data);
  }
  at.outputs.assign(outputs.begin(), outputs.end());
  Plan* plan = INGOT_TRY(plan_for(dims));
  INGOT_TRY(reserve_arena(*plan));
  locate(*plan, at);
  return issue(*plan, stream ? stream : stream_.get());
}

Result<Profile> Session::profile(const std::vector<Tensor>& inputs) {
  std::vector<Tensor> outputs;
  Plan* plan = INGOT_TRY(stage_inputs(inputs, outputs));
  INGOT_TRY(issue(*plan, stream_.get()));  // warm: code and caches as in steady state
  const auto& device = engine_->device();
  std::vector<std::unique_ptr<Event>> marks;
  for (size_t i = 0; i <= plan->steps.size(); ++i) marks.push_back(INGOT_TRY(device->create_event()));
  INGOT_TRY(device->record(*marks[0], stream_.get()));
  for (size_t i = 0; i < plan->steps.size(); ++i) {
    INGOT_TRY(issue_step(plan->steps[i], stream_.get()));
    INGOT_TRY(device->record(*marks[i + 1], stream_.get()));
  }
  INGOT_TRY(device->synchronize(stream_.get()));
  Profile profile;
  for (size_t i = 0; i < plan->steps.size(); ++i) {
    const Step& step = plan->steps[i];
    KernelTime time;
    time.ms = INGOT_TRY(device->elapsed_ms(*marks[i], *marks[i + 1]));
    time.name = "copy";
    time.bytes = 2 * static_cast<int64_t>(step.bytes);
    if (step.kernel) {
      const KernelInfo& info = engine_->program().kernels[step.instruction->kernel];
      time.name = info.name;
      time.summary = info.summary;
      time.bytes = plan->lines[step.instruction->bytes];
      time.flops = plan->lines[step.instruction->flops];
    }
    profile.total_ms += time.ms;
    profile.kernels.push_back(std::move(time));
  }
  return profile;
}

}  // namespace ingot::runtime
