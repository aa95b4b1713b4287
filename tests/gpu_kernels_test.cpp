// The hand-made kernels on a real GPU: the only place where the PTX bodies of the prelude are compared with what they
// mean. Without a GPU (or NVRTC) every case says that it is skipped.
#include <catch2/catch.hpp>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <tuple>

#include <fmt/format.h>

#include "codegen/cuda/cuda_backend.h"
#include "codegen/cuda/mma_cost.h"
#include "codegen/cuda/plan_cuda.h"
#include "codegen/cuda/tuning_candidates.h"
#include "codegen/cuda/window_form.h"
#include "runtime/cuda/cuda_device.h"
#include "tests/emulation/attention_samples.h"
#include "tests/emulation/byte_samples.h"
#include "tests/emulation/graph_samples.h"
#include "tests/emulation/run_sample.h"
#include "tests/fused_graphs.h"

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

/// One form of one sample, to be compiled and run.
struct Job {
  const Sample* sample;
  EmittedKernel emitted;
  Result<std::vector<runtime::KernelBinary>> binaries = make_error(ErrorKind::Internal, "not compiled");
};

/// What a GPU test has to do: everything is compiled, and the interpreter run, by all cores of the host; the GPU comes after.
class Jobs {
 public:
  explicit Jobs(const Gpu& gpu) : gpu_(gpu) {}

  const Sample* add(Sample sample) { return &samples_.emplace_back(std::move(sample)); }
  void add(const Sample* sample, EmittedKernel emitted) { jobs_.emplace_back(Job{sample, std::move(emitted)}); }
  /// Every form of `sample` whose grid is not empty.
  void add_forms(Sample sample, const TargetTraits& planned_for) {
    const Sample* kept = add(std::move(sample));
    auto forms = emit_cuda(kept->kernel, planned_for);
    if (!forms) return fails(forms.error());
    for (EmittedKernel& emitted : forms.value())
      if (evaluate_int(emitted.grid[0], kept->dims).value_or(0) > 0) add(kept, std::move(emitted));
  }
  /// `sample` by each plan; how many there are.
  int add_plans(const Sample* sample, const std::vector<RankedPlan>& plans) {
    for (const RankedPlan& plan : plans) {
      auto emitted = emit_cuda(sample->kernel, gpu_.traits, plan.schedule);
      if (!emitted) fails(emitted.error());
      else add(sample, std::move(emitted).value());
    }
    return static_cast<int>(plans.size());
  }
  void check() {
    for (const Job& j : jobs_) references_.try_emplace(j.sample, make_error(ErrorKind::Internal, "not computed"));
    std::vector<std::function<void()>> work;
    for (auto& [sample, reference] : references_) work.push_back([&] { reference = reference_of(*sample); });
    for (Job& j : jobs_)
      work.push_back([&] { j.binaries = compile_cuda(j.emitted, std::vector<std::string>{gpu_.target}); });
    std::atomic<size_t> next{0};
    std::vector<std::thread> threads;
    const auto start = std::chrono::steady_clock::now();
    const auto say = [&](const char* what, size_t count) {
      const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
      fmt::print(stderr, "  {} {} of {} after {:.0f} s\n", what, count, what[0] == 'c' ? work.size() : jobs_.size(), passed.count());
    };
    for (unsigned t = 0; t < std::max(1u, std::thread::hardware_concurrency()); ++t)
      threads.emplace_back([&] {
        for (size_t i = next++; i < work.size(); i = next++) {
          work[i]();
          if (i % 64 == 63) say("compiled or computed", i + 1);
        }
      });
    for (std::thread& t : threads) t.join();
    size_t ran = 0;
    for (const Job& j : jobs_) {
      check(j);
      if (++ran % 64 == 0 || ran == jobs_.size()) say("ran", ran);
    }
  }

 private:
  const Gpu& gpu_;
  std::deque<Sample> samples_;
  std::deque<Job> jobs_;
  std::map<const Sample*, Result<Reference>> references_;

  static void fails(const Error& e) { FAIL_CHECK(e.to_string()); }
  void check(const Job& j) const {
    INFO(j.sample->name << ", " << to_string(j.emitted.schedule) << "\n" << j.emitted.source);
    const Result<Reference>& reference = references_.at(j.sample);
    if (!reference) return fails(reference.error());
    if (!j.binaries) return fails(j.binaries.error());
    const EndsInTime watched(j);
    const auto outcome = run_sample_on(*gpu_.api, j.binaries.value()[0].code, *j.sample, j.emitted, reference.value());
    if (!outcome) return fails(outcome.error());
    CHECK(outcome.value().completed);
    CHECK(outcome.value().worst_error <= j.sample->tolerance);
  }

  /// A kernel that does not end blocks its process for good: then the process says which one it is, and gives up.
  class EndsInTime {
   public:
    explicit EndsInTime(const Job& j) {
      thread_ = std::thread([this, &j] {
        std::unique_lock lock(mutex_);
        if (ended_.wait_for(lock, std::chrono::seconds(60), [&] { return done_; })) return;
        fmt::print(stderr, "does not end: {}, {}\n", j.sample->name, to_string(j.emitted.schedule));
        std::_Exit(3);
      });
    }
    ~EndsInTime() {
      {
        const std::lock_guard lock(mutex_);
        done_ = true;
      }
      ended_.notify_one();
      thread_.join();
    }

   private:
    std::mutex mutex_;
    std::condition_variable ended_;
    bool done_ = false;
    std::thread thread_;
  };
};

}  // namespace

TEST_CASE("kernels on a GPU agree with the interpreter", "[gpu]") {
  const Gpu* gpu = gpu_or_skip();
  if (!gpu) return;
  Jobs jobs(*gpu);
  for (const Sample& sample : all_samples()) jobs.add_forms(sample, gpu->traits);
  for (const Sample& sample :
       {rows_matmul(20011, 24, 144, DType::F16, 49, true), rows_matmul(20011, 144, 24, DType::F16, 0, false),
        rows_matmul(12001, 96, 16, DType::BF16, 0, true), rows_matmul(12001, 240, 40, DType::F16, 0, false),
        rows_matmul(9003, 40, 232, DType::BF16, 7, true)})
    jobs.add_forms(sample, gpu->traits);
  jobs.check();
}

TEST_CASE("rows that a gate multiplies agree in every tile of boxes", "[gpu]") {
  const Gpu* gpu = gpu_or_skip();
  if (!gpu || gpu->traits.compute_capability != 90) return;
  Jobs jobs(*gpu);
  const Sample* sample = jobs.add(rows_matmul(390, 264, 712, DType::F16, 49, true));
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
    s.tile = completed(problem, machine, x, {});
    s.threads = s.tile.threads();
    s.most_blocks = 2;  // several tiles for each
    auto emitted = emit_cuda(sample->kernel, gpu->traits, s);
    if (!emitted) FAIL(emitted.error().to_string());
    jobs.add(sample, std::move(emitted).value());
    ++seen;
  }
  jobs.check();
  CHECK(seen > 10);
}

/// The kernels of graphs with norms that are none, in both kinds of 16 bits.
static void each_norm_sample(const std::function<void(Sample&)>& visit) {
  for (const testing::FusedGraph& g : testing::norm_graphs())
    for (DType precision : {DType::F16, DType::BF16})
      for (Sample& sample : samples_of(g.name, g.text, precision)) {
        sample.dims = {{"N", 3}};
        visit(sample);
      }
}

TEST_CASE("sums over parts of a window's channels agree in every plan", "[gpu]") {
  const Gpu* gpu = gpu_or_skip();
  if (!gpu || gpu->traits.compute_capability != 90) return;
  Jobs jobs(*gpu);
  int seen = 0;
  each_norm_sample([&](Sample& sample) {
    const auto form = window_form(sample.kernel);
    if (!form || form->parts.width == 0) return;
    sample.tolerance = 8e-3;
    const Sample* kept = jobs.add(std::move(sample));
    seen += jobs.add_plans(kept, rank_window(kept->kernel, gpu->traits, kept->dims));
  });
  jobs.check();
  CHECK(seen > 8);
}

TEST_CASE("windows that overlap along lines agree in every tile", "[gpu]") {
  const Gpu* gpu = gpu_or_skip();
  if (!gpu || gpu->traits.compute_capability != 90) return;
  Jobs jobs(*gpu);
  for (const Sample& given :
       {overlapping_windows(3, 9, 19, 64, 7, 2, 8, 28, DType::F16), overlapping_windows(5, 5, 7, 24, 3, 1, 8, 16, DType::BF16),
        overlapping_windows(1, 3, 150, 40, 5, 2, 8, 20, DType::F16), overlapping_windows(9, 112, 112, 64, 7, 2, 8, 28, DType::F16)}) {
    const Sample* sample = jobs.add(given);
    int seen = 0;
    for (const RankedPlan& plan : rank_tiles(sample->kernel, gpu->traits, {})) {
      if (plan.schedule.tile.row_teams == 0) continue;
      Schedule s = plan.schedule;
      for (int teams = 1; teams <= plan.schedule.tile.row_teams; ++teams) {
        s.tile.row_teams = teams;
        s.threads = s.tile.threads();
        s.most_blocks = teams == 1 ? 2 : plan.schedule.most_blocks;
        auto emitted = emit_cuda(sample->kernel, gpu->traits, s);
        if (!emitted) FAIL(emitted.error().to_string());
        jobs.add(sample, std::move(emitted).value());
        ++seen;
      }
    }
    CHECK(seen > 1);
  }
  jobs.check();
}

TEST_CASE("sums over parts of rows, and what needs them, agree in every plan", "[gpu]") {
  const Gpu* gpu = gpu_or_skip();
  if (!gpu || gpu->traits.compute_capability != 90) return;
  Jobs jobs(*gpu);
  int seen = 0;
  each_norm_sample([&](Sample& sample) {
    const Contract* c = sample.kernel.contract();
    if (!c || (c->parts.width == 0 && c->rows.empty())) return;
    const Sample* kept = jobs.add(std::move(sample));
    seen += jobs.add_plans(kept, rank_tiles(kept->kernel, gpu->traits, kept->dims));
  });
  jobs.check();
  CHECK(seen > 50);
}

TEST_CASE("products whose k blocks of the grid divide agree in every tile", "[gpu]") {
  const Gpu* gpu = gpu_or_skip();
  if (!gpu || gpu->traits.compute_capability != 90) return;
  Jobs jobs(*gpu);
  int seen = 0;
  for (Sample one : {largest_of_rows(40, 10, 264, 4096, DType::F16), residual_matmul(1, 390, 264, 4096, DType::F16),
                     conv(3, 136, 17, 15, 264, 3, 1, true, DType::F16)}) {
    one.tolerance = 4e-3;  // long sums
    const Sample* sample = jobs.add(std::move(one));
    auto plans = rank_tiles(plan_kernel(sample->kernel, gpu->traits).kernel, gpu->traits, {});
    std::erase_if(plans, [](const RankedPlan& p) { return p.schedule.grid_k < 2; });
    seen += jobs.add_plans(sample, plans);
  }
  jobs.check();
  CHECK(seen > 30);
}

TEST_CASE("products of f32 agree in every tile of boxes", "[gpu]") {
  const Gpu* gpu = gpu_or_skip();
  if (!gpu || gpu->traits.compute_capability != 90) return;
  Jobs jobs(*gpu);
  const auto add_all = [&](Sample one, bool tf32) {
    TargetTraits target = gpu->traits;
    target.allow_tf32 = tf32;
    if (tf32) one.tolerance = 2e-3;
    const Sample* sample = jobs.add(std::move(one));
    int seen = 0;
    for (const RankedPlan& plan : rank_tiles(plan_kernel(sample->kernel, target).kernel, target, {})) {
      if (!plan.schedule.tile.boxes) continue;
      Schedule s = plan.schedule;
      s.most_blocks = 2;  // several tiles for each
      auto emitted = emit_cuda(sample->kernel, target, s);
      if (!emitted) FAIL(emitted.error().to_string());
      jobs.add(sample, std::move(emitted).value());
      ++seen;
    }
    CHECK(seen > 10);
  };
  for (const Sample& sample :
       {extreme_matmul(390, 264, 712), largest_matmul(70, 40, 72), conv(3, 36, 17, 15, 72, 3, 1, true),
        conv(3, 24, 19, 17, 72, 3, 2, true), residual_matmul(2, 390, 136, 328, DType::F32)})
    add_all(sample, false);
  add_all(residual_matmul(2, 390, 136, 328, DType::F32), true);
  add_all(conv(3, 36, 17, 15, 72, 3, 1, true), true);
  jobs.check();
}

TEST_CASE("wide plans on a GPU agree too", "[gpu]") {
  const Gpu* gpu = gpu_or_skip();
  if (!gpu) return;
  TargetTraits tiny = gpu->traits;
  tiny.parallel_units = 1;
  Jobs jobs(*gpu);
  for (const Sample& sample : all_samples()) jobs.add_forms(sample, tiny);
  jobs.check();
}

/// Products of 8 bits as they are planned, by warps as for `by_warps`, and in every tile of boxes.
static void check_eight_bits(const std::vector<Sample>& samples, const TargetTraits& by_warps) {
  const Gpu* gpu = gpu_or_skip();
  if (!gpu) return;
  Jobs jobs(*gpu);
  for (const Sample& sample : samples) {
    jobs.add_forms(sample, gpu->traits);
    jobs.add_forms(sample, by_warps);
  }
  for (size_t i : {samples.size() - 3, samples.size() - 2, samples.size() - 1}) {
    const Sample* sample = jobs.add(samples[i]);
    for (const RankedPlan& plan : rank_tiles(plan_kernel(sample->kernel, gpu->traits).kernel, gpu->traits, {})) {
      if (!plan.schedule.tile.boxes) continue;
      Schedule s = plan.schedule;
      s.most_blocks = 2;  // several tiles for each
      auto emitted = emit_cuda(sample->kernel, gpu->traits, s);
      if (!emitted) FAIL(emitted.error().to_string());
      jobs.add(sample, std::move(emitted).value());
    }
  }
  jobs.check();
}

TEST_CASE("products of bytes on a GPU are exact", "[gpu]") {
  std::vector<Sample> samples = byte_samples();
  constexpr ByteTypes kUs{DType::U8, DType::I8};
  samples.push_back(byte_matmul(1, 130, 264, 272, false, true, {DType::I8, DType::U8}, ByteResult::Sums));
  samples.push_back(byte_matmul(1, 200, 264, 400, false, true, kUs, ByteResult::Bytes));
  samples.push_back(byte_matmul(2, 390, 256, 272, false, true, kUs, ByteResult::Added));
  samples.push_back(byte_conv(3, 64, 17, 15, 72, 3, 1, true, kUs, ByteResult::Bytes));  // 64 bytes of k a step
  check_eight_bits(samples, cuda_traits(80));
}

TEST_CASE("products of f8 on a GPU agree", "[gpu]") {
  const Gpu* gpu = gpu_or_skip();
  if (!gpu || gpu->traits.compute_capability < 89) return;
  std::vector<Sample> samples = f8_samples();
  constexpr ByteTypes kMixed{DType::F8E5M2, DType::F8E4M3};
  for (int64_t k : {1024, 8192}) samples.push_back(f8_squares(200, k));
  samples.push_back(byte_matmul(1, 200, 264, 400, false, true, kMixed, ByteResult::Halves));
  samples.push_back(byte_matmul(2, 390, 256, 272, false, true, kMixed, ByteResult::Added));
  samples.push_back(byte_conv(3, 64, 17, 15, 72, 3, 1, true, kMixed, ByteResult::Sums));
  check_eight_bits(samples, cuda_traits(89));
}

TEST_CASE("attention with few queries, and with masks, on a GPU", "[gpu]") {
  const Gpu* gpu = gpu_or_skip();
  if (!gpu) return;
  const Decoding cases[] = {
      {.batch = 2, .n = 1100, .k = 128, .d = 128, .sees = Sees::Length},
      {.heads = 6, .key_heads = 2, .m = 5, .n = 300, .k = 24, .d = 40, .type = DType::BF16, .biased = true},
      {.heads = 4, .key_heads = 4, .n = 500, .k = 64, .d = 64, .type = DType::F32, .sees = Sees::CausalLength},
      {.batch = 1, .m = 2, .n = 400, .k = 256, .d = 256, .sees = Sees::Causal},
      {.batch = 1, .heads = 4, .key_heads = 2, .m = 260, .n = 280, .k = 64, .d = 16, .sees = Sees::Causal},
      {.batch = 20, .heads = 1, .key_heads = 1, .m = 150, .n = 150, .k = 32, .d = 32, .sees = Sees::Causal, .biased = true},
      {.batch = 3, .m = 1, .n = 300, .open = true},
      {.batch = 2, .m = 90, .n = 200, .sees = Sees::Length, .open = true},
      {.batch = 1, .heads = 2, .m = 150, .n = 180, .k = 64, .d = 64, .type = DType::F32, .sees = Sees::Causal},
      {.batch = 2, .heads = 2, .m = 150, .n = 170, .k = 40, .d = 48, .type = DType::F32, .biased = true},
      {.batch = 1, .heads = 2, .m = 140, .n = 170, .k = 128, .d = 128, .type = DType::F32},
      {.batch = 1, .heads = 2, .key_heads = 2, .m = 140, .n = 450, .k = 128, .d = 128},
  };
  TargetTraits tf32 = gpu->traits;
  tf32.allow_tf32 = true;
  Jobs jobs(*gpu);
  for (const Decoding& x : cases) {
    const Sample* exact = jobs.add(decoding(x));
    for (const TargetTraits& traits : {gpu->traits, cuda_traits(80), tf32}) {
      if (traits.allow_tf32 && x.type != DType::F32) continue;
      const Sample* sample = exact;
      if (traits.allow_tf32) {
        Sample rounded = *exact;
        rounded.tolerance = 2e-3;
        sample = jobs.add(std::move(rounded));
      }
      const PlannedKernel planned = plan_kernel(sample->kernel, traits);
      std::vector<Schedule> schedules = tuning_candidates(planned, traits, DimValues(sample->dims.begin(), sample->dims.end())).schedules;
      if (schedules.empty()) schedules = planned.forms;
      // Half of them, but all that differ in kind: the texts take longer to compile than all else here.
      std::map<std::tuple<bool, bool, int, int>, int> of_kind;
      for (const Schedule& s : schedules) {
        if (of_kind[{s.tile.boxes, shares_keys(s), s.cluster_k, s.tile.groups()}]++ % 2 == 1) continue;
        auto emitted = emit_cuda(planned.kernel, traits, s);
        if (!emitted) FAIL(emitted.error().to_string());
        if (evaluate_int(emitted->grid[0], sample->dims).value_or(0) > 0) jobs.add(sample, std::move(*emitted));
      }
    }
  }
  jobs.check();
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
      depthwise_lines(2, 16, 16, 64, 3, 1, DType::F16, Combine::Sum),
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
      attention(3, 150, 170, 64, 64, DType::F32, true),
      attention(2, 150, 119, 80, 48, DType::F32, false, true),
      extreme_attention(140, 150, 32, 16),
      decoding({.batch = 2, .n = 300, .sees = Sees::Length}),
      decoding({.batch = 3, .heads = 2, .key_heads = 1, .m = 200, .n = 200, .sees = Sees::Causal}),
      byte_matmul(1, 70, 72, 96, false, true, {DType::U8, DType::I8}, ByteResult::Bytes),
      byte_conv(1, 64, 7, 9, 48, 3, 1, true, {DType::U8, DType::I8}, ByteResult::Bytes),
      byte_matmul(1, 70, 72, 96, false, true, {DType::F8E4M3, DType::F8E5M2}, ByteResult::Sums),
  };
  TargetTraits tiny = gpu->traits;
  tiny.parallel_units = 1;
  Jobs jobs(*gpu);
  for (const Sample& sample : samples)
    for (const TargetTraits& planned_for : {gpu->traits, tiny}) jobs.add_forms(sample, planned_for);
  jobs.check();
}
