// Engine: a program made ready on a device.
#include <fmt/format.h>

#include <algorithm>

#include "runtime/executor.h"
#include "runtime/memory.h"

namespace ingot::runtime {

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
  engine->awaited_.resize(engine->program_->instructions.size());
  engine->lanes_ = lanes_of(*engine->program_);
  for (const Instruction& in : engine->program_->instructions)
    for (int32_t w : in.waits) engine->awaited_[static_cast<size_t>(w)] = true;
  for (const auto& part : engine->program_->parts) {
    engine->parts_.push_back(INGOT_TRY(create(part, engine->device_)));
    engine->weight_bytes_ += engine->parts_.back()->weight_bytes();
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

std::string describe_kernel(const KernelInfo& kernel) {
  constexpr size_t kShown = 8;
  std::string text = fmt::format("kernel {} ({})", kernel.name, kernel.summary);
  for (size_t i = 0; i < std::min(kernel.nodes.size(), kShown); ++i)
    text += fmt::format("{} '{}'", i ? "," : ", of the model's", kernel.nodes[i]);
  if (kernel.nodes.size() > kShown) text += fmt::format(" and {} more", kernel.nodes.size() - kShown);
  return text;
}

}  // namespace ingot::runtime
