// Engine and Session: running a Program on a Device. An engine is immutable and shared: program, loaded kernels,
// weights on the device. A session is cheap and belongs to one thread at a time: an arena, and one plan (sizes,
// offsets, grids) per shape seen lately.
#pragma once

#include <atomic>
#include <list>
#include <memory>
#include <optional>
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
  /// The number of lanes that the program uses, and whether an instruction has another lane waiting for it.
  int32_t lanes() const { return lanes_; }
  bool awaited(size_t instruction) const { return awaited_[instruction]; }
  /// Of a program in parts: an engine for each.
  const std::vector<std::shared_ptr<const Engine>>& parts() const { return parts_; }

 private:
  Status load_constants();
  std::shared_ptr<const Program> program_;
  std::shared_ptr<Device> device_;
  std::vector<std::unique_ptr<LoadedKernel>> kernels_;
  DeviceMemory weights_;
  std::vector<void*> constants_;
  uint64_t weight_bytes_ = 0;
  int32_t lanes_ = 1;
  std::vector<bool> awaited_;
  std::vector<std::shared_ptr<const Engine>> parts_;
};

/// "kernel fused_… (Conv+Relu) with the nodes a, b": for messages.
std::string describe_kernel(const KernelInfo& kernel);

/// One launch of a profile.
struct KernelTime {
  std::string name, summary;
  std::vector<std::string> nodes;  // of the model, inside this kernel
  double ms = 0;                   // on the device
  double start_ms = 0;             // since the first launch
  int64_t bytes = 0, flops = 0;
  int32_t lane = 0;
  int32_t tensor_cost = 0;  // KernelInfo::tensor_cost
};
struct Profile {
  std::vector<KernelTime> kernels;  // in the order of launches
  double total_ms = 0;  // their sum
};

/// True when some sizes follow from the elements of inputs: a call is then planned after those were read.
bool needs_input_values(const Program& program);
/// True when elements of this input decide sizes.
bool decides_sizes(const Program& program, size_t input);

/// A tensor in device memory (for a host device: host memory) that the caller owns.
struct DeviceTensor {
  void* data = nullptr;
  std::vector<int64_t> dims;
};

using Dims = std::vector<int64_t>;

/// Independent branches on streams of their own: where their kernels leave the device room for each other and are long enough to gain
/// from it, or wherever the program has lanes.
enum class Lanes : uint8_t { Never, WhereTheyHelp, Always };

struct SessionOptions {
  Lanes lanes = Lanes::WhereTheyHelp;
  /// Launches recorded into a CUDA graph, from the second run with the same shape and addresses on.
  bool recordings = true;
  size_t max_plans = 64, max_recordings = 32;  // kept; the least recently used go
  uint64_t max_arena_bytes = UINT64_MAX;  // shapes that need more are refused
  /// Waits after every launch, so that a fault is laid on the kernel that made it. Also set by $INGOT_SYNC_LAUNCHES=1.
  bool synchronous = false;
};

/// What a session did so far, and what it holds.
struct SessionCounters {
  uint64_t runs = 0, plans_made = 0, plans_dropped = 0;
  uint64_t recordings_made = 0, recordings_dropped = 0, replays = 0;
  uint64_t arena_bytes = 0, arena_growths = 0, staging_bytes = 0;
  double last_plan_us = 0;  // host time of the plan made last
};

/// Of the arena: the counters that its launches take (Instruction::part_bytes), for every lane; 0 without any.
uint64_t counter_bytes_of(const Program& program);

class MemoryPool;

class Session {
 public:
  static Result<std::unique_ptr<Session>> create(std::shared_ptr<const Engine> engine, SessionOptions options = {});
  ~Session();

  /// Runs the model on host tensors, in the order of program().inputs. Inputs are never written; outputs are new
  /// tensors.
  Result<std::vector<Tensor>> run(const std::vector<Tensor>& inputs);
  /// Whether the number and types of inputs are the model's.
  Status check_types(const std::vector<Tensor>& inputs) const;
  /// The dims that run would give its outputs. Errors are those of run, and Unsupported where
  /// needs_input_values().
  Result<std::vector<Dims>> output_dims(const std::vector<Dims>& input_dims);
  /// Likewise for inputs on the host, whose elements may decide sizes.
  Result<std::vector<Dims>> output_dims(const std::vector<Tensor>& inputs);
  /// Likewise for inputs on the device; waits for those whose elements decide sizes.
  Result<std::vector<Dims>> output_dims(std::span<const DeviceTensor> inputs, Stream* stream);
  /// Asynchronous on a device: issues the model on `stream` (null: the session's own). Output pointers must have room
  /// for output_dims(). Calls of one session must be ordered by their streams: they share the arena. The stream may be
  /// in the course of being captured into the caller's CUDA graph; that graph is valid while the session lives, is not
  /// trimmed and has seen no larger shape (arena_generation() does not change).
  Status enqueue(std::span<const DeviceTensor> inputs, std::span<void* const> outputs, Stream* stream);
  /// Like run, one kernel at a time with a clock around each.
  Result<Profile> profile(const std::vector<Tensor>& inputs);
  Status synchronize();

  /// From another thread: the run in progress stops before its next launch, with an error; later runs are not affected.
  void cancel() { cancelled_ = true; }
  /// Gives back the arena, staging memory, plans and recordings; the next run makes them again.
  Status trim();
  SessionCounters counters() const;
  /// Changes whenever the arena moves.
  uint64_t arena_generation() const { return addresses_; }
  uint64_t arena_bytes() const { return arena_.bytes(); }
  const std::shared_ptr<const Engine>& engine() const { return engine_; }
  /// The session's own stream.
  Stream* stream() const { return stream_.get(); }

 private:
  struct Step {
    const LoadedKernel* kernel = nullptr;  // null: a copy
    const Instruction* instruction = nullptr;
    std::vector<int64_t> dims;
    std::array<int64_t, 3> grid{};
    std::vector<BoxSizes> boxes;
    uint64_t bytes = 0;  // of a copy
    std::optional<uint64_t> parts;  // where its parts of sums are in the arena
    bool empty = false;  // nothing to compute at this shape; kept for the order of lanes
  };
  struct Plan {
    std::vector<int64_t> symbols, lines;
    std::vector<uint64_t> slot_offsets;
    uint64_t arena_bytes = 0;
    std::vector<Step> steps;
    std::vector<Dims> output_dims;
    bool lanes = false;
  };
  struct Addresses {
    std::vector<void*> inputs, outputs;
    bool operator==(const Addresses&) const = default;
  };
  /// A plan at certain addresses: seen once, or recorded.
  struct RecordedRun {
    const Plan* plan;
    Addresses at;
    std::unique_ptr<Recording> recording;
  };

  Session(std::shared_ptr<const Engine> engine, SessionOptions options);
  // programs in parts: session_parts.cpp
  class PartMachine;
  Result<std::vector<Tensor>> run_parts(const std::vector<Tensor>& inputs);
  Status trim_parts();
  // planning: session_plan.cpp
  Result<Plan*> plan_for(const std::vector<Dims>& input_dims);
  Status read_values(const std::vector<Tensor>& inputs);
  Status read_values(std::span<const DeviceTensor> inputs, Stream* stream);
  Status bind_values(std::vector<int64_t>& symbols) const;
  Result<std::vector<int64_t>> bind_symbols(const std::vector<Dims>& input_dims) const;
  Status check_dims(const Plan& plan, const std::vector<Dims>& input_dims) const;
  Result<Plan> make_plan(std::vector<int64_t> symbols, const std::vector<Dims>& input_dims) const;
  Status place_slots(Plan& plan) const;
  Status place_parts(Plan& plan) const;
  bool worth_lanes(const Plan& plan) const;
  // memory: session_memory.cpp
  Status reserve(DeviceMemory& memory, uint64_t bytes, const std::string& what, uint64_t most = UINT64_MAX);
  Status reserve_arena(const Plan& plan);
  Status clear_counters();
  Result<Plan*> stage_inputs(const std::vector<Tensor>& inputs, std::vector<Tensor>& outputs, Addresses& at);
  Status fetch_outputs(std::vector<Tensor>& outputs);
  // launching: session_issue.cpp
  void locate(const Plan& plan, const Addresses& at);
  Status issue_step(const Step& step, Stream* stream, bool may_start_early);
  Status issue(const Plan& plan, Stream* stream);
  Status issue_lanes(const Plan& plan, Stream* stream);
  Status start_lanes();
  Status issue_at(Plan& plan, const Addresses& at, Stream* stream);
  Status record(const Plan& plan, RecordedRun& run);
  void drop_recordings(const Plan* plan);

  std::shared_ptr<const Engine> engine_;
  SessionOptions options_;
  std::unique_ptr<Stream> stream_;
  std::vector<std::unique_ptr<Stream>> lanes_;  // [0] stays null: lane 0 is the caller's stream
  std::vector<std::unique_ptr<Event>> done_;  // per instruction that another lane waits for
  std::unique_ptr<Event> fork_;
  std::vector<std::unique_ptr<Event>> joins_;  // per lane
  DeviceMemory arena_, empty_;  // `empty_` stands in for tensors without elements
  std::vector<DeviceMemory> input_memory_, output_memory_;
  std::vector<void*> values_;  // where each value of the program is now
  std::vector<void*> arguments_;
  std::vector<std::unique_ptr<Session>> parts_;  // of a program in parts
  std::shared_ptr<MemoryPool> pool_;  // likewise, for what goes between them on a device
  std::vector<int64_t> input_values_;  // per symbol that an element of an input gives its value
  std::list<Plan> plans_;  // most recently used first
  std::list<RecordedRun> recorded_;  // likewise
  uint64_t addresses_ = 1;  // changes when session memory moves
  std::atomic<bool> cancelled_{false};
  SessionCounters counters_;
};

}  // namespace ingot::runtime
