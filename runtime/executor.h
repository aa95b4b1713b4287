// Engine and Session: running a Program on a Device. An engine is immutable and shared: program, loaded kernels,
// weights on the device. A session is cheap and belongs to one thread at a time: an arena, and one plan (sizes,
// offsets, grids) per shape seen lately.
#pragma once

#include <list>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "compiler/support/tensor.h"
#include "runtime/device.h"
#include "runtime/program.h"

namespace ingot::runtime {

/// Device memory that frees itself.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  DeviceMemory(std::shared_ptr<Device> device, void* data, uint64_t bytes)
      : device_(std::move(device)), data_(data), bytes_(bytes) {}
  DeviceMemory(DeviceMemory&& other) noexcept { *this = std::move(other); }
  DeviceMemory& operator=(DeviceMemory&& other) noexcept;
  ~DeviceMemory();
  void* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }

 private:
  std::shared_ptr<Device> device_;
  void* data_ = nullptr;
  uint64_t bytes_ = 0;
};

class Engine {
 public:
  /// Verifies the program, loads its kernels and copies its weights (a host device uses them where they are).
  static Result<std::shared_ptr<const Engine>> create(std::shared_ptr<const Program> program,
                                                      std::shared_ptr<Device> device);
  const Program& program() const { return *program_; }
  const std::shared_ptr<Device>& device() const { return device_; }
  const LoadedKernel& kernel(int32_t i) const { return *kernels_[static_cast<size_t>(i)]; }
  void* constant(int32_t i) const { return constants_[static_cast<size_t>(i)]; }
  uint64_t weight_bytes() const { return weight_bytes_; }

 private:
  Status load_constants();
  std::shared_ptr<const Program> program_;
  std::shared_ptr<Device> device_;
  std::vector<std::unique_ptr<LoadedKernel>> kernels_;
  DeviceMemory weights_;
  std::vector<void*> constants_;
  uint64_t weight_bytes_ = 0;
};

struct KernelTime {
  std::string name, summary;
  double ms = 0;
  int64_t bytes = 0, flops = 0;
};
struct Profile {
  std::vector<KernelTime> kernels;  // in the order of launches
  double total_ms = 0;  // their sum
};

/// A tensor in device memory (for a host device: host memory) that the caller owns.
struct DeviceTensor {
  void* data = nullptr;
  std::vector<int64_t> dims;
};

using Dims = std::vector<int64_t>;

class Session {
 public:
  static Result<std::unique_ptr<Session>> create(std::shared_ptr<const Engine> engine);

  /// Runs the model on host tensors, in the order of program().inputs. Inputs are never written; outputs are new
  /// tensors.
  Result<std::vector<Tensor>> run(const std::vector<Tensor>& inputs);
  /// The dims that run would give its outputs. Errors are those of run.
  Result<std::vector<Dims>> output_dims(const std::vector<Dims>& input_dims);
  /// Asynchronous on a device: issues the model on `stream` (null: the session's own). Output pointers must have room
  /// for output_dims(). Calls of one session must be ordered by their streams: they share the arena.
  Status enqueue(std::span<const DeviceTensor> inputs, std::span<void* const> outputs, Stream* stream);
  /// Like run, one kernel at a time with a clock around each.
  Result<Profile> profile(const std::vector<Tensor>& inputs);
  Status synchronize();

  uint64_t arena_bytes() const { return arena_.bytes(); }
  /// Launches recorded into a CUDA graph from a shape's second run on (default: on).
  void use_recordings(bool on) { recordings_allowed_ = on; }

 private:
  struct Step {
    const LoadedKernel* kernel = nullptr;  // null: a copy
    const Instruction* instruction = nullptr;
    std::vector<int64_t> dims;
    std::array<int64_t, 3> grid{};
    uint64_t bytes = 0;  // of a copy
  };
  struct Plan {
    std::vector<int64_t> symbols, lines;
    std::vector<uint64_t> slot_offsets;
    uint64_t arena_bytes = 0;
    std::vector<Step> steps;
    std::vector<Dims> output_dims;
    int uses = 0;
    std::unique_ptr<Recording> recording;  // valid while addresses_ is recorded_at
    uint64_t recorded_at = 0;
  };
  struct Addresses {
    std::vector<void*> inputs, outputs;
  };

  explicit Session(std::shared_ptr<const Engine> engine);
  Status check_types(const std::vector<Tensor>& inputs) const;
  Result<Plan*> plan_for(const std::vector<Dims>& input_dims);
  Result<std::vector<int64_t>> bind_symbols(const std::vector<Dims>& input_dims) const;
  Result<Plan> make_plan(std::vector<int64_t> symbols, const std::vector<Dims>& input_dims) const;
  Status place_slots(Plan& plan) const;
  Status reserve(DeviceMemory& memory, uint64_t bytes, const std::string& what);
  Status reserve_arena(const Plan& plan);
  void locate(const Plan& plan, const Addresses& at);
  Status issue_step(const Step& step, Stream* stream);
  Status issue(const Plan& plan, Stream* stream);
  Status issue_recorded(Plan& plan);
  Result<Plan*> stage_inputs(const std::vector<Tensor>& inputs, std::vector<Tensor>& outputs);
  Status fetch_outputs(std::vector<Tensor>& outputs);

  std::shared_ptr<const Engine> engine_;
  std::unique_ptr<Stream> stream_;
  DeviceMemory arena_, empty_;  // `empty_` stands in for tensors without elements
  std::vector<DeviceMemory> input_memory_, output_memory_;
  std::vector<void*> values_;  // where each value of the program is now
  std::vector<void*> arguments_;
  std::list<Plan> plans_;  // most recently used first
  uint64_t addresses_ = 1;  // changes when session memory moves
  bool recordings_allowed_ = true;
};

}  // namespace ingot::runtime
