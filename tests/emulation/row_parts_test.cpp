// Products that store sums over parts of their rows, and products whose results need such sums of their row: a norm between
// two products without a kernel of its own (passes/fold_norms.cpp).
#include <algorithm>
#include <random>

#include <catch2/catch.hpp>

#include "tests/emulation/check_sample.h"
#include "tests/emulation/graph_samples.h"
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

struct Run {
  size_t kernels;
  std::vector<Tensor> outputs;
};
Run run_graph(const testing::FusedGraph& g, int64_t n, const std::vector<std::string>& skip) {
  PassContext ctx;
  ctx.evaluate = evaluate_node;
  ctx.target = cuda_traits(90);
  ctx.precision = DType::F16;
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

}  // namespace

TEST_CASE("a norm between products is no kernel, and gives the same numbers") {
  for (const testing::FusedGraph& g : testing::norm_graphs())
    for (int64_t n : {1, 3, 0}) {
      INFO(g.name << " at N=" << n);
      const Run folded = run_graph(g, n, {}), apart = run_graph(g, n, {"fold_norms"});
      CHECK(folded.kernels == g.kernels);
      CHECK(apart.kernels > g.kernels);
      double largest = 0, worst = 0;
      for (int64_t i = 0; i < apart.outputs[0].count(); ++i) {
        largest = std::max(largest, std::abs(apart.outputs[0].float_at(i)));
        worst = std::max(worst, std::abs(apart.outputs[0].float_at(i) - folded.outputs[0].float_at(i)));
      }
      CHECK(worst <= 4e-3 * largest);
    }
}

TEST_CASE("sums over parts of rows, and what needs them, in tiles of every kind", "[emulated]") {
  for (DType precision : {DType::F16, DType::BF16})
    for (const Sample& sample : row_samples(precision)) {
      const MultiplyUnit unit = precision == DType::F16 ? kF16 : kBF16;
      check_schedule(sample, boxes(unit, 64, 64, 64, 64, 3, true));
      check_schedule(sample, boxes(unit, 128, 128, 128, 128, 3, true));
      check_schedule(sample, boxes(unit, 64, 128, 64, 128, 2, false));
      check_schedule(sample, boxes(unit, 128, 64, 64, 64, 4, false));
      check_schedule(sample, shared_boxes(unit, 64, 64, 64, 64, 2, 3));
      check_schedule(sample, shared_boxes(unit, 128, 64, 64, 64, 4, 3));
      check_schedule(sample, shared_boxes(unit, 64, 128, 64, 128, 2, 4));
      if (precision == DType::BF16) continue;
      check_schedule(sample, groups(unit, 64, 64, 64, 64, 1, 3, false));
      check_schedule(sample, groups(unit, 64, 128, 64, 64, 2, 3, false));
      check_schedule(sample, mma(unit, 64, 64, 32, 32, 1, 1, 3));
      check_schedule(sample, mma(unit, 64, 64, 32, 32, 2, 2, 3));
    }
}

TEST_CASE("what the planner makes of them", "[emulated]") {
  for (Sample sample : row_samples(DType::F16))
    for (int64_t n : {1, 5}) {
      sample.dims = {{"N", n}};
      auto forms = emit_cuda(sample.kernel, cuda_traits(90));
      REQUIRE(forms.ok());
      for (const EmittedKernel& form : *forms) {
        if (evaluate_int(form.grid[0], sample.dims).value_or(0) == 0) continue;
        CHECK(form.schedule.tile.boxes);
        check_run(sample, form);
      }
    }
}

TEST_CASE("products with sums of rows compile without spills", "[nvrtc]") {
  if (no_nvrtc()) return;
  for (const Sample& sample : row_samples(DType::F16))
    for (const Schedule& s : {boxes(kF16, 64, 64, 64, 64, 8, true), boxes(kF16, 128, 128, 128, 128, 5, true), boxes(kF16, 128, 256, 64, 256, 3, false),
                              boxes(kF16, 64, 256, 64, 256, 3, true), boxes(kF16, 128, 192, 64, 192, 3, false), boxes(kF16, 64, 128, 64, 128, 6, true),
                              shared_boxes(kF16, 64, 64, 64, 64, 4, 8), shared_boxes(kF16, 64, 128, 64, 128, 4, 6), shared_boxes(kF16, 128, 64, 64, 64, 8, 6)}) {
      if (has_parts(sample) && !adds_up_parts(sample.kernel, s)) continue;  // too many results with a residual
      auto emitted = emit_cuda(sample.kernel, cuda_traits(90), s);
      INFO((emitted ? "" : emitted.error().to_string()));
      REQUIRE(emitted.ok());
      check_compiles(sample, *emitted, {"sm_90a"});
    }
}
