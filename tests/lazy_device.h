// A device for tests whose streams really are queues: a launch or a copy runs only when somebody waits for it, and of the
// streams that could go on a random one does. What a program with lanes leaves unordered comes out in every order.
#pragma once

#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <random>

#include "runtime/device.h"

namespace ingot::testing {

/// What kernels are: a function over the buffers and dims of a launch.
using LazyKernel = std::function<void(const std::vector<void*>& buffers, const std::vector<int64_t>& dims)>;

class LazyDevice : public runtime::Device {
 public:
  using Stream = runtime::Stream;
  using Event = runtime::Event;
  explicit LazyDevice(std::map<std::string, LazyKernel> kernels, unsigned seed = 1)
      : kernels_(std::move(kernels)), rng_(seed) {}

  int live_allocations = 0, launches = 0, streams = 0;
  /// The launch of this number (from 0) fails, at the launch or, like a GPU's fault, when somebody waits.
  int failing_launch = -1, faulting_launch = -1;
  std::function<void(int number)> on_launch;  // called before each
  std::vector<bool> early;  // of each launch, whether it might start early
  int units = 8;

  std::string name() const override { return "lazy"; }
  bool is_host() const override { return false; }
  int preference(const std::string&) const override { return 1; }
  int parallel_units() const override { return units; }
  Result<void*> allocate(uint64_t bytes) override {
    ++live_allocations;
    return std::aligned_alloc(256, (bytes + 256) / 256 * 256);
  }
  void release(void* memory) override {
    --live_allocations;
    std::free(memory);
  }
  runtime::MemoryInfo memory_info() const override { return {1 << 20, 1 << 20}; }

  Status copy_to_device(void* to, const void* from, uint64_t bytes, Stream* stream) override {
    const std::vector<char> data(static_cast<const char*>(from), static_cast<const char*>(from) + bytes);
    push(stream, [=] { std::memcpy(to, data.data(), data.size()); });
    return {};
  }
  Status copy_to_host(void* to, const void* from, uint64_t bytes, Stream* stream) override {
    return upload(to, from, bytes, stream);
  }
  Status copy_on_device(void* to, const void* from, uint64_t bytes, Stream* stream) override {
    return upload(to, from, bytes, stream);
  }
  Status upload(void* to, const void* from, uint64_t bytes, Stream* stream) override {
    push(stream, [=] { std::memmove(to, from, bytes); });
    return {};
  }
  Status download(void* to, const void* from, uint64_t bytes, Stream* stream) override {
    return upload(to, from, bytes, stream);
  }

  Result<std::unique_ptr<runtime::LoadedKernel>> load(const runtime::KernelInfo& info) override {
    const auto it = kernels_.find(info.summary);
    if (it == kernels_.end()) return make_error(ErrorKind::NotFound, "no kernel " + info.summary);
    auto kernel = std::make_unique<Kernel>();
    kernel->run = it->second;
    return std::unique_ptr<runtime::LoadedKernel>(std::move(kernel));
  }
  Status launch(const runtime::LoadedKernel& kernel, const runtime::Launch& launch, Stream* stream) override {
    const int number = launches++;
    early.push_back(launch.may_start_early);
    if (on_launch) on_launch(number);
    if (number == failing_launch) return make_error(ErrorKind::Device, "the launch was made to fail");
    const std::vector<void*> b(launch.buffers.begin(), launch.buffers.end());
    const std::vector<int64_t> d(launch.dims.begin(), launch.dims.end());
    const LazyKernel* run = &static_cast<const Kernel&>(kernel).run;
    push(stream, [=, this] {
      (*run)(b, d);
      if (number == faulting_launch) fault_ = true;
    });
    return {};
  }

  Result<std::unique_ptr<Stream>> create_stream() override {
    ++streams;
    auto stream = std::make_unique<Queue>();
    queues_.push_back(stream->work);
    return std::unique_ptr<Stream>(std::move(stream));
  }
  Result<std::unique_ptr<Stream>> borrow_stream(void*) override { return create_stream(); }
  Result<std::unique_ptr<Event>> create_event(bool) override { return std::unique_ptr<Event>(new Mark); }
  Status record(Event& event, Stream* stream) override {
    auto passed = std::make_shared<bool>(false);
    static_cast<Mark&>(event).passed = passed;
    push(stream, [=] { *passed = true; });
    return {};
  }
  Status wait(Stream* stream, const Event& event) override {
    queue(stream).push_back({nullptr, static_cast<const Mark&>(event).passed});
    return {};
  }
  Result<double> elapsed_ms(const Event&, const Event&) override { return 1.0; }
  Status synchronize(Stream* stream) override {
    const auto& mine = queue(stream);
    while (!mine.empty())
      if (!step()) return make_error(ErrorKind::Device, "the streams wait for each other");
    return outcome();
  }
  Status synchronize(const Event& event) override {
    const auto passed = static_cast<const Mark&>(event).passed;
    while (!*passed)
      if (!step()) return make_error(ErrorKind::Device, "the streams wait for each other");
    return outcome();
  }

 private:
  /// Work, or (when `run` is empty) a wait until `until` is true.
  struct Item {
    std::function<void()> run;
    std::shared_ptr<bool> until;
  };
  using Items = std::deque<Item>;
  struct Queue : Stream {
    std::shared_ptr<Items> work = std::make_shared<Items>();
  };
  struct Mark : Event {
    std::shared_ptr<bool> passed = std::make_shared<bool>(true);
  };
  struct Kernel : runtime::LoadedKernel {
    LazyKernel run;
  };

  Items& queue(Stream* stream) {
    if (stream) return *static_cast<Queue*>(stream)->work;
    if (queues_.empty() || !default_) default_ = std::make_shared<Items>(), queues_.push_back(default_);
    return *default_;
  }
  void push(Stream* stream, std::function<void()> run) { queue(stream).push_back({std::move(run), nullptr}); }

  /// Lets one random stream go one item on. False when none can.
  bool step() {
    std::vector<Items*> ready;
    for (const auto& q : queues_)
      if (!q->empty() && (q->front().run || *q->front().until)) ready.push_back(q.get());
    if (ready.empty()) return false;
    Items& q = *ready[rng_() % ready.size()];
    const Item item = std::move(q.front());
    q.pop_front();
    if (item.run) item.run();
    return true;
  }
  Status outcome() {
    if (!std::exchange(fault_, false)) return {};
    return make_error(ErrorKind::Device, "an illegal address was encountered");
  }

  std::map<std::string, LazyKernel> kernels_;
  std::vector<std::shared_ptr<Items>> queues_;
  std::shared_ptr<Items> default_;
  std::mt19937 rng_;
  bool fault_ = false;
};

}  // namespace ingot::testing
