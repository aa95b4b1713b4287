#include "tests/emulation/emulator_device.h"

#include <algorithm>

#include "runtime/cuda/cuda_device.h"
#include "tests/emulation/emulated_driver.h"

namespace ingot::emulation {

using namespace runtime;

namespace {

/// Hands everything on, but for the binary of a kernel: its text takes the place of PTX.
class EmulatorDevice : public Device {
 public:
  explicit EmulatorDevice(std::shared_ptr<Device> inner) : inner_(std::move(inner)) {}

  std::string name() const override { return "emulator"; }
  bool is_host() const override { return false; }
  int parallel_units() const override { return inner_->parallel_units(); }
  int preference(const std::string& target) const override {
    return std::max(inner_->preference(target), target == "source" ? 1 : 0);
  }
  Result<void*> allocate(uint64_t bytes) override { return inner_->allocate(bytes); }
  void release(void* memory) override { inner_->release(memory); }
  MemoryInfo memory_info() const override { return inner_->memory_info(); }
  Status copy_to_device(void* to, const void* from, uint64_t bytes, Stream* stream) override {
    return inner_->copy_to_device(to, from, bytes, stream);
  }
  Status copy_to_host(void* to, const void* from, uint64_t bytes, Stream* stream) override {
    return inner_->copy_to_host(to, from, bytes, stream);
  }
  Status copy_on_device(void* to, const void* from, uint64_t bytes, Stream* stream) override {
    return inner_->copy_on_device(to, from, bytes, stream);
  }
  Result<std::unique_ptr<LoadedKernel>> load(const KernelInfo& kernel) override {
    if (kernel.source.empty()) return unsupported("the emulator needs the text of kernel " + kernel.name);
    KernelInfo text = kernel;
    text.binaries = {{kEmulatedTarget, INGOT_TRY(emulate_module(kernel.source))}};
    return inner_->load(text);
  }
  Status launch(const LoadedKernel& kernel, const Launch& launch, Stream* stream) override {
    return inner_->launch(kernel, launch, stream);
  }
  Result<std::unique_ptr<Stream>> create_stream() override { return inner_->create_stream(); }
  Result<std::unique_ptr<Stream>> borrow_stream(void* native) override { return inner_->borrow_stream(native); }
  Result<std::unique_ptr<Event>> create_event(bool timed) override { return inner_->create_event(timed); }
  Status synchronize(const Event& event) override { return inner_->synchronize(event); }
  Status record(Event& event, Stream* stream) override { return inner_->record(event, stream); }
  Status wait(Stream* stream, const Event& event) override { return inner_->wait(stream, event); }
  Result<double> elapsed_ms(const Event& from, const Event& to) override { return inner_->elapsed_ms(from, to); }
  Status synchronize(Stream* stream) override { return inner_->synchronize(stream); }

 private:
  std::shared_ptr<Device> inner_;
};

}  // namespace

Result<std::shared_ptr<Device>> open_emulator_device() {
  auto inner = INGOT_TRY(open_cuda_device(emulated_driver(), 0));
  return std::shared_ptr<Device>(std::make_shared<EmulatorDevice>(std::move(inner)));
}

}  // namespace ingot::emulation
