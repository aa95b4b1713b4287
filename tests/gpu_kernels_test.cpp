// The hand-made kernels on a real GPU: the only place where the PTX bodies of the prelude are compared with what they
// mean. Without a GPU (or NVRTC) every case says that it is skipped.
#include <catch2/catch.hpp>

#include <chrono>

#include <fmt/format.h>

#include "codegen/cuda/cuda_backend.h"
#include "codegen/cuda/mma_cost.h"
#include "runtime/cuda/cuda_device.h"
#include "tests/emulation/byte_samples.h"
#include "tests/emulation/run_sample.h"

using namespace ingot;
using namespace ingot::samples;
using namespace ingot::runtime::cuda;

namespace {

/// GPU 0 with its context current, or why there is none.
struct Gpu {
  const DriverApi* api = nullptr;
  std::string target;
  TargetTraits traits;
};

Result<Gpu> open_gpu() {
  Gpu gpu;
  gpu.api = INGOT_TRY(load_driver());
  const auto all = INGOT_TRY(runtime::list_cuda_devices(*gpu.api));
  if (all.empty()) return make_error(ErrorKind::NotFound, "the driver sees no GPU");
  DeviceOrdinal device = 0;
  Context context = nullptr;
  INGOT_DRIVER_TRY(*gpu.api, device_get, &device, 0);
  INGOT_DRIVER_TRY(*gpu.api, primary_ctx_retain, &context, device);
  INGOT_DRIVER_TRY(*gpu.api, ctx_set_current, context);
  gpu.traits = cuda_traits(all[0].compute_capability);
  const int capability = all[0].compute_capability;
  gpu.target = fmt::format("sm_{}{}", capability, capability == 90 || capability == 100 ? "a" : "");
  return gpu;
}

Gpu* gpu_or_skip() {
  static Result<Gpu> gpu = open_gpu();
  if (gpu) return &gpu.value();
  WARN("skipped: " << gpu.error().to_string());
  return nullptr;
}

void check_form(const Gpu& gpu, const Sample& sample, const EmittedKernel& emitted) {
  INFO(sample.name << ", " << to_string(emitted.schedule) << "\n" << emitted.source);
  const auto binaries = compile_cuda(emitted, std::vector<std::string>{gpu.target});
  if (!binaries) {
    FAIL_CHECK(binaries.error().to_string());
    return;
  }
  const auto outcome = run_sample_on(*gpu.api, binaries.value()[0].code, sample, emitted);
  if (!outcome) {
    FAIL_CHECK(outcome.error().to_string());
    return;
  }
  CHECK(outcome.value().completed);
  CHECK(outcome.value().worst_error <= sample.tolerance);
}
void check_on(const Gpu& gpu, const Sample& sample, const TargetTraits& planned_for) {
  const auto forms = emit_cuda(sample.kernel, planned_for);
  if (!forms) FAIL(forms.error().to_string());
  for (const EmittedKernel& emitted : forms.value())
    if (evaluate_int(emitted.grid[0], sample.dims).value_or(0) > 0) check_form(gpu, sample, emitted);
}

}  // namespace

TEST_CASE("kernels on a GPU agree with the interpreter", "[gpu]") {
  const Gpu* gpu = gpu_or_skip();
  if (!gpu) return;
  for (const Sample& sample : all_samples()) check_on(*gpu, sample, gpu->traits);
  for (const Sample& sample : {rows_matmul(20011, 24, 144, DType::F16, 49, true), rows_matmul(20011, 144, 24, DType::F16, 0, false),
                               rows_matmul(12001, 96, 16, DType::BF16, 0, true), rows_matmul(12001, 240, 40, DType::F16, 0, false),
                               rows_matmul(9003, 40, 232, DType::BF16, 7, true)})
    check_on(*gpu, sample, gpu->traits);
}

TEST_CASE("rows that a gate multiplies agree in every tile of boxes", "[gpu]") {
  const Gpu* gpu = gpu_or_skip();
  if (!gpu || gpu->traits.compute_capability != 90) return;
  const Sample sample = rows_matmul(390, 264, 712, DType::F16, 49, true);
  MmaProblem problem;
  problem.element = 2;
  problem.boxes = problem.a_changes = true;
  problem.staging = Staging::Inputs;
  const MmaMachine machine = mma_machine(gpu->traits, MultiplyUnit::F16);
  int seen = 0;
  for (const MmaTile& x : mma_candidates(problem, machine)) {
    if (!x.boxes) continue;
    Schedule s;
    s.kind = Schedule::Kind::Tiles;
    s.unit = MultiplyUnit::F16;
    s.tile = completed(problem, machine, x, 1);
    s.threads = s.tile.threads();
    s.most_blocks = 2;  // several tiles for each
    const auto emitted = emit_cuda(sample.kernel, gpu->traits, s);
    if (!emitted) FAIL(emitted.error().to_string());
    check_form(*gpu, sample, emitted.value());
    ++seen;
  }
  CHECK(seen > 10);
}

TEST_CASE("wide plans on a GPU agree too", "[gpu]") {
  const Gpu* gpu = gpu_or_skip();
  if (!gpu) return;
  TargetTraits tiny = gpu->traits;
  tiny.parallel_units = 1;
  for (const Sample& sample : all_samples()) check_on(*gpu, sample, tiny);
}

TEST_CASE("products of bytes on a GPU are exact", "[gpu]") {
  const Gpu* gpu = gpu_or_skip();
  if (!gpu) return;
  std::vector<Sample> samples = byte_samples();
  constexpr ByteTypes kUs{DType::U8, DType::I8};
  samples.push_back(byte_matmul(1, 390, 520, 1040, false, true, kUs, ByteResult::Bytes));
  samples.push_back(byte_matmul(1, 130, 264, 1040, false, true, {DType::I8, DType::U8}, ByteResult::Sums));
  for (const Sample& sample : samples) {
    check_on(*gpu, sample, gpu->traits);
    check_on(*gpu, sample, cuda_traits(80));  // by warps, on any chip
  }
}

// Small ones, so that all take seconds under compute-sanitizer: a test of its own, to be chosen by its tag.
TEST_CASE("a kernel of each kind on a GPU", "[gpu][sanitizer]") {
  const Gpu* gpu = gpu_or_skip();
  if (!gpu) return;
  const Sample samples[] = {
      broadcast_add(37, 64, DType::F16),
      column_sum(500, 65),
      softmax(7, 1000, DType::F32),
      softmax(33, 10, DType::F32),
      softmax_scratch(5, 2500),
      argmax(6, 1500, true, false),
      max_pool(1, 8, 8, 6, true),
      depthwise(2, 16, 16, 64, 3, 1, DType::F16),
      two_small_products(3, 72, 20, 33),
      largest_of_rows(5, 49, 24, 64, DType::F16),
      matmul(1, 70, 66, 37, false, false, DType::F32),
      nan_matmul(40, 36, 40),
      matmul(1, 130, 132, 40, false, false, DType::F16),
      matmul(1, 136, 144, 1032, false, true, DType::BF16),
      matmul(1, 20, 24, 18, false, true, DType::F64),
      matmul(1, 1, 300, 260, false, true, DType::F32),
      residual_matmul(1, 200, 136, 72, DType::F16),
      conv(1, 64, 7, 9, 40, 3, 1, true, DType::F16),
      conv(2, 5, 9, 8, 40, 3, 1, false),
      rows_matmul(2001, 24, 144, DType::F16, 49, true),
      attention(2, 70, 70, 64, 64, DType::F16, true),
      attention(2, 33, 40, 32, 32, DType::F32, false),
      byte_matmul(1, 70, 72, 96, false, true, {DType::U8, DType::I8}, ByteResult::Bytes),
  };
  TargetTraits tiny = gpu->traits;
  tiny.parallel_units = 1;
  for (const Sample& sample : samples)
    for (const TargetTraits& planned_for : {gpu->traits, tiny}) check_on(*gpu, sample, planned_for);
}
