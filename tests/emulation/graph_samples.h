// The kernels of a graph's text as samples. Programs that include it link ingot_reference.
#pragma once

#include <catch2/catch.hpp>

#include "compiler/driver/reference.h"
#include "compiler/ir/text.h"
#include "compiler/ops/registry.h"
#include "passes/pass_manager.h"
#include "passes/plan_memory.h"
#include "tests/emulation/sample_kernels.h"

namespace ingot::samples {

/// The kernels that the passes make of a graph's text.
inline std::vector<Sample> samples_of(const char* name, const std::string& text, DType precision) {
  PassContext ctx;
  ctx.evaluate = evaluate_node;
  ctx.target = cuda_traits(90);
  ctx.precision = precision;
  auto graph = parse_graph(text, find_op);
  REQUIRE(graph.ok());
  REQUIRE(run_pipeline(*graph, ctx, {}).ok());
  const MemoryPlan plan = plan_memory(*graph);
  auto lowered = lower_program(*graph, plan);
  REQUIRE(lowered.ok());
  overlap_launches(*graph, plan, *lowered);
  std::vector<Sample> samples;  // a whole may have dims that the kernel of a part does not know
  for (const Kernel& k : lowered->kernels)
    samples.push_back(
        {std::string(name) + ": " + k.name, k, {{"N", 3}, {"M", 3}}, precision == DType::F32 ? 1e-5 : 2e-3});
  return samples;
}

}  // namespace ingot::samples
