// Products that store sums over parts of their rows, and products whose results need such sums of their row: a norm between
// two products without a kernel of its own (passes/fold_norms.cpp).
#include <cmath>
#include <random>

#include <catch2/catch.hpp>

#include "tests/emulation/check_sample.h"
#include "codegen/cuda/plan_cuda.h"
#include "codegen/cuda/window_form.h"
#include "tests/emulation/graph_samples.h"
#include "tests/emulation/planted_fault.h"
#include "tests/emulation/schedules.h"
#include "tests/fused_graphs.h"

using namespace ingot;
using namespace ingot::samples;

namespace {

constexpr auto kF16 = MultiplyUnit::F16, kBF16 = MultiplyUnit::BF16;

bool has_parts(const Sample& s) { return s.kernel.contract() && s.kernel.contract()->parts.width > 0; }
bool has_rows(const Sample& s) { return s.kernel.contract() && !s.kernel.contract()->rows.empty(); }

/// The kernels of the norm graphs that have to do with their rows.
std::vector<Sample> row_samples(DType precision) {
  std::vector<Sample> list;
  for (const testing::FusedGraph& g : testing::norm_graphs())
    for (Sample& sample : samples_of(g.name, g.text, precision))
      if (has_parts(sample) || has_rows(sample)) list.push_back(std::move(sample));
  return list;
}

/// The windows whose results' channels are summed up by parts.
std::vector<Sample> window_samples(DType precision) {
  std::vector<Sample> list;
  for (const testing::FusedGraph& g : testing::norm_graphs())
    for (Sample& sample : samples_of(g.name, g.text, precision))
      if (const auto form = window_form(sample.kernel); form && form->parts.width > 0) {
        if (precision == DType::BF16) sample.tolerance = 8e-3;  // a sum in another order is rounded the other way
        list.push_back(std::move(sample));
      }
  return list;
}

bool arrives_as_boxes(const Sample& s) {
  return takes_boxes(s.kernel, element_of(multiply_unit(s.kernel, cuda_traits(90))));
}

struct Run {
  size_t kernels;
  std::vector<Tensor> outputs;
};
Run run_graph(const testing::FusedGraph& g, int64_t n, DType precision, const std::vector<std::string>& skip = {}) {
  PassContext ctx;
  ctx.evaluate = evaluate_node;
  ctx.target = cuda_traits(90);
  ctx.precision = precision;
  auto graph = parse_graph(g.text, find_op);
  REQUIRE(graph.ok());
  PipelineOptions options;
  options.skip = skip;
  REQUIRE(run_pipeline(*graph, ctx, options).ok());
  const MemoryPlan plan = plan_memory(*graph);
  auto lowered = lower_program(*graph, plan);
  REQUIRE(lowered.ok());
  std::vector<int64_t> dims{n};
  dims.insert(dims.end(), g.rest.begin(), g.rest.end());
  Tensor x(DType::F32, dims);
  std::mt19937_64 rng(7);
  std::normal_distribution<float> normal(0.5f, 1.0f);
  for (int64_t i = 0; i < x.count(); ++i) x.set_float(i, normal(rng));
  auto outputs = run_reference(*graph, plan, *lowered, {}, {x});
  REQUIRE(outputs.ok());
  return {lowered->kernels.size(), std::move(*outputs)};
}

/// Relative, Frobenius.
double error_of(const Run& got, const Run& want) {
  double difference = 0, all = 0;
  for (int64_t i = 0; i < want.outputs[0].count(); ++i) {
    const double g = got.outputs[0].float_at(i), w = want.outputs[0].float_at(i);
    difference += (g - w) * (g - w);
    all += w * w;
  }
  return all > 0 ? std::sqrt(difference / all) : difference;
}

}  // namespace

TEST_CASE("a norm between products is no kernel, and loses no accuracy") {
  for (const testing::FusedGraph& g : testing::norm_graphs())
    for (int64_t n : {1, 3, 0}) {
      INFO(g.name << " at N=" << n);
      const Run folded = run_graph(g, n, DType::F16), apart = run_graph(g, n, DType::F16, {"fold_norms"}),
                exact = run_graph(g, n, DType::F32);
      CHECK(folded.kernels == g.kernels);
      CHECK(apart.kernels > g.kernels);
      const double lost = error_of(folded, exact), before = error_of(apart, exact);
      INFO("error " << lost << ", with a kernel for the norm " << before);
      CHECK(lost <= 1.3 * before);
      CHECK(lost <= 2e-3);
    }
}

TEST_CASE("sums over parts of rows, and what needs them, in tiles of every kind", "[emulated]") {
  for (DType precision : {DType::F16, DType::BF16})
    for (const Sample& sample : row_samples(precision)) {
      const MultiplyUnit unit = precision == DType::F16 ? kF16 : kBF16;
      for (const Schedule& s : {boxes(unit, 64, 64, 64, 64, 3, true), boxes(unit, 128, 128, 128, 128, 3, true),
                                boxes(unit, 64, 128, 64, 128, 2, false), boxes(unit, 128, 64, 64, 64, 4, false),
                                shared_boxes(unit, 64, 64, 64, 64, 2, 3), shared_boxes(unit, 128, 64, 64, 64, 4, 3),
                                shared_boxes(unit, 64, 128, 64, 128, 2, 4)})
        if (arrives_as_boxes(sample)) check_schedule(sample, s);
      if (precision == DType::BF16) continue;
      check_schedule(sample, groups(unit, 64, 64, 64, 64, 1, 3, false));
      check_schedule(sample, groups(unit, 64, 128, 64, 64, 2, 3, false));
      check_schedule(sample, mma(unit, 64, 64, 32, 32, 1, 1, 3));
      check_schedule(sample, mma(unit, 64, 64, 32, 32, 2, 2, 3));
    }
}

TEST_CASE("sums over parts of a window's channels, in every plan", "[emulated]") {
  for (DType precision : {DType::F16, DType::BF16}) {
    const auto samples = window_samples(precision);
    REQUIRE(samples.size() == 2);
    for (const Sample& sample : samples) {
      const auto plans = rank_window(sample.kernel, cuda_traits(90), {});
      REQUIRE(plans.size() > 2);
      for (size_t i = precision == DType::BF16; i < plans.size(); i += 2) check_schedule(sample, plans[i].schedule);
      Schedule alone;  // a thread for each part
      alone.kind = Schedule::Kind::Points;
      alone.threads = 64;
      check_schedule(sample, alone);
    }
  }
}

TEST_CASE("faults in sums over parts of channels", "[emulated]") {
  Sample sample = window_samples(DType::F16)[0];
  sample.dims = {{"N", 2}};
  const auto plans = rank_window(sample.kernel, cuda_traits(90), {});
  const auto tall = std::find_if(plans.begin(), plans.end(), [](const RankedPlan& p) { return p.schedule.tile.m > 1 && p.schedule.tile.n > 1 && p.schedule.shared_weights; });
  REQUIRE(tall != plans.end());
  const Schedule schedule = tall->schedule;
  const Fault faults[] = {
      {"a lane is left out", kWindow, "for (int lanes = kShare / 2; lanes > 0", "for (int lanes = kShare / 2; lanes > 1", "wrong"},
      {"halves go the wrong way", kWindow, "upper ? low : high", "upper ? high : low", "wrong"},
      {"some columns are not stored", kWindow, "lane % kShare == 0", "lane % (kShare * 2) == 0", "wrong"},
      {"weights of another tap", kWindow, "place(ty * Plan::taps_x + tx)", "place(tx * Plan::taps_x + tx)", "wrong"},
      {"the sums of another row", kWindow, "parts.store_sums(at.outer, at.y + row", "parts.store_sums(at.outer, at.y", "wrong"},
  };
  for (const Fault& fault : faults) plant(sample, fault, &schedule);
}

TEST_CASE("what the planner makes of them", "[emulated]") {
  for (Sample sample : row_samples(DType::F16))
    for (int64_t n : {1, 5}) {
      sample.dims = {{"N", n}};
      auto forms = emit_cuda(sample.kernel, cuda_traits(90));
      REQUIRE(forms.ok());
      for (const EmittedKernel& form : *forms) {
        if (evaluate_int(form.grid[0], sample.dims).value_or(0) == 0) continue;
        CHECK(form.schedule.tile.boxes == arrives_as_boxes(sample));
        check_run(sample, form);
      }
    }
}

TEST_CASE("windows with sums of channels compile without spills", "[nvrtc]") {
  if (no_nvrtc()) return;
  for (const Sample& sample : window_samples(DType::F16))
    check_compiles(sample, planned_or_first(sample, nullptr), {"sm_90a"});
  for (const testing::FusedGraph& g : testing::norm_graphs()) {
    if (std::string(g.name) != "a norm of what a window computes") continue;
    for (Sample& sample : samples_of(g.name, replace_all(g.text, "4,6", "14,14"), DType::F16)) {  // rows of seven columns
      const auto form = window_form(sample.kernel);
      if (!form || form->parts.width == 0) continue;
      auto forms = emit_cuda(sample.kernel, cuda_traits(90));
      REQUIRE(forms.ok());
      for (const EmittedKernel& emitted : *forms) check_compiles(sample, emitted, {"sm_90a"});
    }
  }
}

TEST_CASE("products with sums of rows compile without spills", "[nvrtc]") {
  if (no_nvrtc()) return;
  for (const Sample& sample : row_samples(DType::F16))
    for (const Schedule& s : {boxes(kF16, 64, 64, 64, 64, 8, true), boxes(kF16, 128, 128, 128, 128, 5, true),
                              boxes(kF16, 128, 256, 64, 256, 3, false), boxes(kF16, 64, 256, 64, 256, 3, true),
                              boxes(kF16, 128, 192, 64, 192, 3, false), boxes(kF16, 64, 128, 64, 128, 6, true),
                              shared_boxes(kF16, 64, 64, 64, 64, 4, 8), shared_boxes(kF16, 64, 128, 64, 128, 4, 6),
                              shared_boxes(kF16, 128, 64, 64, 64, 8, 6)}) {
      const bool fits = arrives_as_boxes(sample) && (!has_parts(sample) || adds_up_parts(sample.kernel, s));
      if (!fits) continue;  // too many results with a residual
      auto emitted = emit_cuda(sample.kernel, cuda_traits(90), s);
      INFO((emitted ? "" : emitted.error().to_string()));
      REQUIRE(emitted.ok());
      check_compiles(sample, *emitted, {"sm_90a"});
    }
}
