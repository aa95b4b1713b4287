#include "tests/emulation/run_sample.h"

#include <cmath>
#include <cstring>
#include <random>

#include <fmt/format.h>

#include "codegen/kernel/interpret.h"
#include "runtime/cuda/tensor_map.h"
#include "tests/emulation/emulated_driver.h"

namespace ingot::samples {

using namespace runtime::cuda;

namespace {

constexpr double kWrong = 1e9;

std::vector<int64_t> dims_of(const Buffer& buffer, const Sample& sample) {
  std::vector<int64_t> dims;
  for (const Expr& d : buffer.shape) dims.push_back(evaluate_int(d, sample.dims).value_or(0));
  return dims;
}

void fill(Tensor& t, std::mt19937_64& random) {
  const bool index_like = t.type() == DType::I64;
  for (int64_t i = 0; i < t.count(); ++i) {
    if (is_float(t.type())) {
      t.set_float(i, std::uniform_real_distribution<double>(-1, 1)(random));
    } else if (t.type() == DType::Bool) {
      t.set_int(i, static_cast<int64_t>(random() % 2));
    } else if (t.type() == DType::I8 || t.type() == DType::U8) {
      t.set_int(i, static_cast<int64_t>(random() % 256) - (t.type() == DType::I8 ? 128 : 0));
    } else {
      t.set_int(i, static_cast<int64_t>(random() % 23) - (index_like ? 11 : 9));
    }
  }
}

double error_of(const Tensor& got, const Tensor& want, bool inexact) {
  double largest = 0, worst = 0;
  for (int64_t i = 0; i < want.count(); ++i) {
    if (is_float(want.type()) && std::isfinite(want.float_at(i)))
      largest = std::max(largest, std::fabs(want.float_at(i)));
  }
  for (int64_t i = 0; i < want.count(); ++i) {
    if (!is_float(want.type())) {
      const int64_t slack = inexact && want.type() == DType::I32 ? 1 : 0;  // a float that was truncated
      if (std::llabs(got.int_at(i) - want.int_at(i)) > slack) return kWrong;
      continue;
    }
    const double a = got.float_at(i), b = want.float_at(i);
    if (std::isnan(a) || std::isnan(b) || std::isinf(a) || std::isinf(b)) {
      if (!(a == b || (std::isnan(a) && std::isnan(b)))) return kWrong;
      continue;
    }
    worst = std::max(worst, std::fabs(a - b) / std::max(largest, 1e-30));
  }
  return worst;
}

/// Buffers of one launch, in the device's memory.
class DeviceBuffers {
 public:
  DeviceBuffers(const DriverApi& api, const Kernel& kernel, const std::vector<Tensor>& contents) : api_(api) {
    for (size_t i = 0; i < contents.size(); ++i) {
      DevicePtr p = 0;
      api.mem_alloc(&p, std::max<size_t>(contents[i].bytes(), 1));
      const Buffer& b = kernel.buffers[i];
      // What lies beside a part must be what it was.
      if (!b.is_output || b.part.valid()) put(p, contents[i]);
      if (&api == &emulation::emulated_driver()) {
        const bool late = !b.is_constant && !b.is_early;  // as behind a kernel that writes the inputs and reads the outputs
        emulation::describe(reinterpret_cast<void*>(p), b.name.c_str(), !b.is_output, late);
      }
      pointers_.push_back(p);
    }
  }
  ~DeviceBuffers() {
    for (DevicePtr p : pointers_) api_.mem_free(p);
  }
  void put(DevicePtr at, const Tensor& contents) {
    api_.memcpy_htod_async(at, contents.data(), contents.bytes(), nullptr);
  }
  /// Counters and parts of sums, for kernels that take them.
  void add_parts(size_t bytes) {
    const std::vector<char> zeros(runtime::kCounterBytes, 0);
    for (const size_t size : {zeros.size(), bytes}) {
      pointers_.push_back(0);
      api_.mem_alloc(&pointers_.back(), size);
    }
    api_.memcpy_htod_async(pointers_[pointers_.size() - 2], zeros.data(), zeros.size(), nullptr);
    api_.ctx_synchronize();
  }
  std::vector<DevicePtr>& pointers() { return pointers_; }

 private:
  const DriverApi& api_;
  std::vector<DevicePtr> pointers_;
};

Result<DriverStatus> launch(const DriverApi& api, const std::vector<uint8_t>& image, const EmittedKernel& emitted,
                            const Sample& sample, std::vector<DevicePtr>& buffers) {
  Module module = nullptr;
  Function function = nullptr;
  INGOT_DRIVER_TRY(api, module_load_data, &module, image.data());
  INGOT_DRIVER_TRY(api, module_get_function, &function, module, emitted.name.c_str());
  INGOT_DRIVER_TRY(api, func_set_attribute, function, FunctionAttribute::MaxDynamicSharedBytes, emitted.shared_bytes);
  std::vector<int64_t> dims;
  for (const Expr& d : sample.kernel.dims) dims.push_back(sample.dims.at(d.name()));
  std::vector<void*> parameters;
  for (DevicePtr& p : buffers) parameters.push_back(&p);
  for (int64_t& d : dims) parameters.push_back(&d);
  std::vector<TensorMap> maps;
  for (const BoxMap& m : emitted.boxes) {
    runtime::BoxSizes sizes;
    sizes.type = m.type;
    sizes.rank = static_cast<int>(m.extents.size());
    const auto at = [&](const Expr& e) { return evaluate_int(e, sample.dims).value_or(0); };
    sizes.offset = at(m.offset);
    sizes.window = !m.low.empty();
    std::copy(m.box.begin(), m.box.end(), sizes.box.begin());
    std::copy(m.low.begin(), m.low.end(), sizes.low.begin());
    std::copy(m.high.begin(), m.high.end(), sizes.high.begin());
    std::copy(m.steps.begin(), m.steps.end(), sizes.steps.begin());
    for (size_t i = 0; i < m.extents.size(); ++i) {
      sizes.extents[i] = at(m.extents[i]);
      if (i > 0) sizes.strides[i - 1] = at(m.strides[i - 1]);
    }
    sizes.clip(m.clipped);
    maps.push_back(INGOT_TRY(encode_box(api, sizes, buffers[static_cast<size_t>(m.buffer)])));
  }
  for (TensorMap& m : maps) parameters.push_back(&m);
  unsigned grid[3];
  for (size_t i = 0; i < 3; ++i)
    grid[i] = static_cast<unsigned>(evaluate_int(emitted.grid[i], sample.dims).value_or(0));
  DriverStatus status =
      api.launch_kernel(function, grid[0], grid[1], grid[2], static_cast<unsigned>(emitted.threads), 1, 1,
                        static_cast<unsigned>(emitted.shared_bytes), nullptr, parameters.data(), nullptr);
  if (status == kSuccess) status = api.ctx_synchronize();
  api.module_unload(module);
  return status;
}

}  // namespace

std::vector<Tensor> random_buffers(const Sample& sample, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<Tensor> buffers;
  for (const Buffer& b : sample.kernel.buffers) {
    buffers.emplace_back(b.type, dims_of(b, sample));
    fill(buffers.back(), random);
  }
  for (const Planted& p : sample.planted)
    std::memcpy(static_cast<char*>(buffers[p.buffer].mutable_data()) + p.element * 4, &p.bits, 4);
  return buffers;
}

Result<std::vector<Tensor>> expected_outputs(const Sample& sample, std::vector<Tensor> buffers) {
  std::vector<void*> memory;
  std::vector<int64_t> sizes;
  for (Tensor& t : buffers) {
    memory.push_back(t.mutable_data());
    sizes.push_back(t.count());
  }
  INGOT_TRY(interpret(sample.kernel, memory, sizes, sample.dims));
  return buffers;
}

Result<Reference> reference_of(const Sample& sample, uint64_t seed) {
  Reference r;
  r.buffers = random_buffers(sample, seed);
  r.want = INGOT_TRY(expected_outputs(sample, r.buffers));
  return r;
}

Result<Outcome> run_sample_on(const DriverApi& api, const std::vector<uint8_t>& image, const Sample& sample,
                              const EmittedKernel& emitted, const Reference& reference) {
  const auto& [buffers, want] = reference;
  DeviceBuffers device(api, sample.kernel, buffers);
  if (emitted.part_bytes.valid())
    device.add_parts(static_cast<size_t>(evaluate_int(emitted.part_bytes, sample.dims).value_or(0)));
  DriverStatus status = INGOT_TRY(launch(api, image, emitted, sample, device.pointers()));
  if (emitted.part_bytes.valid() && status == kSuccess) {  // once more, which shows whether counters are as they were
    for (size_t i = 0; i < buffers.size(); ++i) device.put(device.pointers()[i], buffers[i]);
    status = INGOT_TRY(launch(api, image, emitted, sample, device.pointers()));
  }
  if (status != kSuccess && status != kErrorLaunchFailed) return api.error(status, "launch_kernel");
  Outcome outcome;
  outcome.completed = status == kSuccess;
  for (size_t i = 0; i < buffers.size(); ++i) {
    if (!sample.kernel.buffers[i].is_output) continue;
    Tensor got(buffers[i].type(), buffers[i].dims());
    INGOT_DRIVER_TRY(api, memcpy_dtoh_async, got.mutable_data(), device.pointers()[i], got.bytes(), nullptr);
    INGOT_DRIVER_TRY(api, ctx_synchronize);
    outcome.worst_error = std::max(outcome.worst_error, error_of(got, want[i], sample.tolerance > 0));
  }
  return outcome;
}

Result<Outcome> run_sample(const Sample& sample, const EmittedKernel& emitted, uint64_t seed) {
  emulation::launch_options().seed = seed;
  const auto image = INGOT_TRY(emulation::emulate_module(emitted.source));
  const Reference reference = INGOT_TRY(reference_of(sample, seed));
  Outcome outcome = INGOT_TRY(run_sample_on(emulation::emulated_driver(), image, sample, emitted, reference));
  outcome.faults = emulation::last_report().faults;
  outcome.completed = emulation::last_report().completed;
  return outcome;
}

}  // namespace ingot::samples
