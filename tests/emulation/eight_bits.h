// What the tests of products of bytes and of f8 share: plans of each family, a graph's way to its kernels, and the check that a
// kernel compiles to its instruction.
#pragma once

#include <catch2/catch.hpp>

#include "codegen/cuda/cuda_backend.h"
#include "codegen/cuda/nvrtc.h"
#include "compiler/driver/reference.h"
#include "compiler/ir/text.h"
#include "compiler/ops/registry.h"
#include "passes/pass_manager.h"
#include "passes/plan_memory.h"
#include "tests/emulation/byte_samples.h"
#include "tests/emulation/check_sample.h"

namespace ingot::samples {

struct PlansOfEight {
  MultiplyUnit unit;

  Schedule warps(int m, int n, int warp_m, int warp_n, int k_warps, int cluster, int stages) const {
    Schedule s;
    s.kind = Schedule::Kind::Tiles;
    s.unit = unit;
    s.tile = {
        .m = m, .n = n, .k = 64 * k_warps, .warp_m = warp_m, .warp_n = warp_n, .k_warps = k_warps, .stages = stages};
    s.cluster_k = cluster;
    s.threads = s.tile.threads();
    return s;
  }
  Schedule groups(int m, int n, int warp_m, int warp_n, int cluster, int stages, bool overlap) const {
    Schedule s = warps(m, n, warp_m, warp_n, 1, cluster, stages);
    s.tile.k = 128;
    s.tile.warpgroups = true;
    s.tile.overlap = overlap;
    s.threads = s.tile.threads();
    return s;
  }
  Schedule boxes(int m, int n, int warp_m, int warp_n, int stages, bool in_turn) const {
    Schedule s = groups(m, n, warp_m, warp_n, 1, stages, true);
    s.tile.boxes = true;
    s.tile.in_turn = in_turn;
    s.most_blocks = 3;
    s.threads = s.tile.threads();
    return s;
  }
};

inline void check_compiles(const Sample& sample, const EmittedKernel& e, const char* target, const char* ptx,
                           const std::string& instruction) {
  INFO(sample.name << " " << to_string(e.schedule) << "\n" << e.source);
  const auto code = compile_nvrtc(e.source, e.name, target);
  if (!code) FAIL(code.error().to_string());
  CHECK(code.value().spill_bytes == 0);
  CHECK(code.value().log.find("C75") == std::string::npos);
  const auto text = compile_nvrtc(e.source, e.name, ptx);
  if (!text) FAIL(text.error().to_string());
  CHECK(std::string(text.value().code.begin(), text.value().code.end()).find(instruction) != std::string::npos);
}

/// A graph's text through the passes for a target.
struct Lowered {
  Graph graph;
  MemoryPlan plan;
  LoweredProgram program;
};
inline Lowered lower(const std::string& text, const TargetTraits& target) {
  PassContext ctx;
  ctx.evaluate = evaluate_node;
  ctx.target = target;
  auto graph = parse_graph(text, find_op);
  if (!graph) FAIL(graph.error().to_string());
  const auto passes = run_pipeline(*graph, ctx, {});
  if (!passes) FAIL(passes.error().to_string());
  const MemoryPlan plan = plan_memory(*graph);
  auto program = lower_program(*graph, plan);
  if (!program) FAIL(program.error().to_string());
  return {std::move(*graph), plan, std::move(*program)};
}
inline std::vector<Tensor> outputs_of(const Lowered& l, const std::vector<Tensor>& inputs) {
  auto outputs = run_reference(l.graph, l.plan, l.program, {}, inputs);
  if (!outputs) FAIL(outputs.error().to_string());
  return std::move(*outputs);
}

}  // namespace ingot::samples
