// Session for programs in parts: values stay on the device between parts, in memory that the session keeps for the next ones.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <map>

#include "runtime/executor.h"
#include "runtime/memory.h"

namespace ingot::runtime {

/// Device memory by size, given back when a value is no longer needed. All users are ordered by one stream.
class MemoryPool : public std::enable_shared_from_this<MemoryPool> {
 public:
  explicit MemoryPool(std::shared_ptr<Device> device) : device_(std::move(device)) {}

  Result<std::shared_ptr<void>> take(uint64_t bytes) {
    const uint64_t size = std::bit_ceil(std::max<uint64_t>(bytes, kMemoryAlignment));
    auto& list = free_[size];
    auto block = std::make_unique<Block>();
    if (list.empty()) {
      auto fresh = device_->allocate(size);
      if (!fresh) return out_of_memory(*device_, size, "a value between two parts of the model", fresh.error());
      block->memory = DeviceMemory(device_, fresh.value(), size);
    } else {
      block->memory = std::move(list.back());
      list.pop_back();
    }
    void* data = block->memory.data();
    block->pool = shared_from_this();
    return std::shared_ptr<void>(std::shared_ptr<Block>(std::move(block)), data);
  }
  void clear() { free_.clear(); }

 private:
  struct Block {
    DeviceMemory memory;
    std::shared_ptr<MemoryPool> pool;
    ~Block() {
      if (pool) pool->free_[memory.bytes()].push_back(std::move(memory));
    }
  };
  std::shared_ptr<Device> device_;
  std::map<uint64_t, std::vector<DeviceMemory>> free_;
};

/// Runs parts on a device, all on the stream of the session that they belong to.
class Session::PartMachine : public ScriptMachine {
 public:
  explicit PartMachine(Session& session)
      : s_(session), device_(*session.engine_->device()), stream_(session.stream_.get()) {}

  Result<ScriptValues> run_part(int32_t number, const ScriptValues& inputs) override {
    Session& part = *s_.parts_[static_cast<size_t>(number)];
    const Program& p = part.engine_->program();
    if (s_.cancelled_.load(std::memory_order_relaxed)) return make_error(ErrorKind::Device, "the run was cancelled");
    std::vector<Dims> dims;
    std::vector<Tensor> read;  // those whose elements decide sizes
    Addresses at;
    for (size_t i = 0; i < inputs.size(); ++i) {
      dims.push_back(inputs[i]->dims);
      read.push_back(decides_sizes(p, i) ? INGOT_TRY(to_host(*inputs[i])) : Tensor(inputs[i]->type, {0}));
      at.inputs.push_back(INGOT_TRY(on_device(*inputs[i])));
    }
    INGOT_TRY(part.check_types(read));
    INGOT_TRY(part.read_values(read));
    Plan* plan = INGOT_TRY(part.plan_for(dims));
    INGOT_TRY(part.reserve_arena(*plan));
    ScriptValues outputs;
    for (size_t i = 0; i < p.outputs.size(); ++i) {
      outputs.push_back(INGOT_TRY(empty_value(p.outputs[i].type, plan->output_dims[i])));
      at.outputs.push_back(outputs.back()->device.get());
    }
    INGOT_TRY(part.issue_at(*plan, at, stream_));
    return outputs;
  }

  Result<Tensor> to_host(ScriptValue& value) override {
    if (!value.host) {
      Tensor t = INGOT_TRY(raw_tensor(value.type, value.dims, "a value between two parts"));
      INGOT_TRY(device_.copy_to_host(t.mutable_data(), value.device.get(), t.bytes(), stream_));
      INGOT_TRY(device_.synchronize(stream_));
      value.host = std::move(t);
    }
    return *value.host;
  }

  Result<ScriptValuePtr> join(const ScriptValues& rows) override {
    Dims dims = rows[0]->dims;
    dims.insert(dims.begin(), static_cast<int64_t>(rows.size()));
    auto joined = INGOT_TRY(empty_value(rows[0]->type, dims));
    const uint64_t bytes = bytes_of(*joined) / rows.size();
    for (size_t i = 0; i < rows.size() && bytes > 0; ++i) {
      void* const from = INGOT_TRY(on_device(*rows[i]));
      INGOT_TRY(device_.copy_on_device(static_cast<char*>(joined->device.get()) + i * bytes, from, bytes, stream_));
    }
    return joined;
  }

 private:
  static uint64_t bytes_of(const ScriptValue& v) {
    uint64_t bytes = size_of(v.type);
    for (int64_t d : v.dims) bytes *= static_cast<uint64_t>(d);
    return bytes;
  }
  Result<ScriptValuePtr> empty_value(DType type, const Dims& dims) {
    auto value = std::make_shared<ScriptValue>();
    value->type = type;
    value->dims = dims;
    INGOT_TRY(checked_count(dims, size_of(type)));
    value->device = INGOT_TRY(s_.pool_->take(bytes_of(*value)));
    return value;
  }
  Result<void*> on_device(ScriptValue& value) {
    if (!value.device) {
      value.device = INGOT_TRY(s_.pool_->take(bytes_of(value)));
      INGOT_TRY(device_.copy_to_device(value.device.get(), value.host->data(), value.host->bytes(), stream_));
    }
    return value.device.get();
  }

  Session& s_;
  Device& device_;
  Stream* stream_;
};

Result<std::vector<Tensor>> Session::run_parts(const std::vector<Tensor>& inputs) {
  INGOT_TRY(check_types(inputs));
  const auto& scripts = engine_->program().scripts;
  if (!engine_->device()->is_host()) {
    if (!pool_) pool_ = std::make_shared<MemoryPool>(engine_->device());
    PartMachine machine(*this);
    return run_script(scripts, machine, inputs);
  }
  const PartRunner run_part = [this](int32_t part, const std::vector<Tensor>& in) -> Result<std::vector<Tensor>> {
    if (cancelled_.load(std::memory_order_relaxed)) return make_error(ErrorKind::Device, "the run was cancelled");
    return parts_[static_cast<size_t>(part)]->run(in);
  };
  return run_script(scripts, run_part, inputs);
}

Status Session::trim_parts() {
  for (const auto& part : parts_) INGOT_TRY(part->trim());
  if (pool_) pool_->clear();
  return {};
}

}  // namespace ingot::runtime
