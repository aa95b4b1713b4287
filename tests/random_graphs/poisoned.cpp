#include "tests/random_graphs/poisoned.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace ingot::testing {
namespace {

using namespace runtime;

constexpr uint8_t kPattern = 0xff;     // NaN in every float type, -1 as an integer, and no Bool
constexpr uint64_t kGuardBytes = 256;  // before and after

/// One buffer on the device with guards.
class Guarded {
 public:
  static Result<Guarded> create(Device& device, uint64_t bytes, Stream* stream) {
    Guarded g(device, bytes);
    g.memory_ = static_cast<char*>(INGOT_TRY(device.allocate(bytes + 2 * kGuardBytes)));
    g.host_.assign(bytes + 2 * kGuardBytes, kPattern);
    INGOT_TRY(device.copy_to_device(g.memory_, g.host_.data(), g.host_.size(), stream));
    return g;
  }
  Guarded(Guarded&& other) noexcept
      : device_(other.device_),
        bytes_(other.bytes_),
        memory_(std::exchange(other.memory_, nullptr)),
        host_(std::move(other.host_)) {}
  ~Guarded() {
    if (memory_) device_.release(memory_);
  }
  char* data() const { return memory_ + kGuardBytes; }
  Status write(const void* from, Stream* stream) {
    return bytes_ ? device_.copy_to_device(data(), from, bytes_, stream) : Status{};
  }
  /// The whole buffer, guards included, back on the host.
  Status fetch(Stream* stream) { return device_.copy_to_host(host_.data(), memory_, host_.size(), stream); }
  const uint8_t* fetched() const { return host_.data() + kGuardBytes; }
  bool guards_hold() const {
    const auto is_pattern = [](uint8_t b) { return b == kPattern; };
    return std::all_of(host_.begin(), host_.begin() + kGuardBytes, is_pattern) &&
           std::all_of(host_.end() - kGuardBytes, host_.end(), is_pattern);
  }

 private:
  Guarded(Device& device, uint64_t bytes) : device_(device), bytes_(bytes) {}
  Device& device_;
  uint64_t bytes_;
  char* memory_ = nullptr;
  std::vector<uint8_t> host_;
};

Status check_after(const std::vector<Guarded>& in, const std::vector<Tensor>& inputs, const std::vector<Guarded>& out) {
  for (size_t i = 0; i < in.size(); ++i)
    if (!in[i].guards_hold() || std::memcmp(in[i].fetched(), inputs[i].data(), inputs[i].bytes()) != 0)
      return invalid(fmt::format("input {} was written to", i));
  for (size_t i = 0; i < out.size(); ++i)
    if (!out[i].guards_hold()) return invalid(fmt::format("memory beside output {} was written to", i));
  return {};
}

}  // namespace

Tensor poisoned_tensor(DType type, const std::vector<int64_t>& dims) {
  Tensor t(type, dims);
  std::memset(t.mutable_data(), kPattern, t.bytes());
  return t;
}

Result<std::vector<Tensor>> run_poisoned(Device& device, Session& session, const std::vector<Tensor>& inputs) {
  Stream* stream = session.stream();
  const std::vector<Dims> dims = INGOT_TRY(session.output_dims(inputs));
  std::vector<Guarded> in, out;
  std::vector<DeviceTensor> args;
  std::vector<void*> results;
  for (const Tensor& t : inputs) {
    in.push_back(INGOT_TRY(Guarded::create(device, t.bytes(), stream)));
    INGOT_TRY(in.back().write(t.data(), stream));
    args.push_back({in.back().data(), t.dims()});
  }
  std::vector<Tensor> outputs;
  for (size_t i = 0; i < dims.size(); ++i) {
    outputs.emplace_back(session.engine()->program().outputs[i].type, dims[i]);
    out.push_back(INGOT_TRY(Guarded::create(device, outputs[i].bytes(), stream)));
    results.push_back(out.back().data());
  }
  INGOT_TRY(session.enqueue(args, results, stream));
  for (auto* list : {&in, &out})
    for (Guarded& g : *list) INGOT_TRY(g.fetch(stream));
  INGOT_TRY(device.synchronize(stream));
  INGOT_TRY(check_after(in, inputs, out));
  for (size_t i = 0; i < out.size(); ++i) std::memcpy(outputs[i].mutable_data(), out[i].fetched(), outputs[i].bytes());
  return outputs;
}

}  // namespace ingot::testing
