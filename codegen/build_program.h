// A graph of fused groups -> a runtime::Program: lowers every group, has the backend plan, print and compile it (in
// parallel, each distinct kernel once), and writes the instruction list over the memory plan.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "codegen/backend.h"
#include "codegen/kernel/kernel.h"
#include "compiler/ir/memory_plan.h"
#include "runtime/program.h"

namespace ingot {

/// A kernel as a backend delivers it.
struct BuiltKernel {
  runtime::KernelInfo info;
  std::array<Expr, 3> grid{1, 1, 1};
  std::vector<BoxMap> boxes;
  Expr part_bytes = {};  // runtime::Instruction::part_bytes; invalid: none
};
/// Kernel::name is the stem ("conv_add_relu"). The forms that the kernel comes in are launched one after the other; at any
/// size, all but one have an empty grid. Called from several threads.
using KernelCompiler = std::function<Result<std::vector<BuiltKernel>>(const Kernel&)>;

/// The lowered groups, in the order of the plan, for inspection and interpretation.
struct LoweredProgram {
  std::vector<Kernel> kernels;
};
Result<LoweredProgram> lower_program(const Graph& graph, const MemoryPlan& plan);
/// For GPUs, on which a launch may begin before the one in front of it has ended: marks what its products read that is complete by then
/// (Buffer::is_early).
void overlap_launches(const Graph& graph, const MemoryPlan& plan, LoweredProgram& lowered);

struct BuildOptions {
  int threads = 2;
  std::function<void(size_t done, size_t total)> progress;  // may be empty
};
Result<runtime::Program> build_program(const Graph& graph, const MemoryPlan& plan, const std::vector<ShapeRequirement>& requirements,
                                       const LoweredProgram& lowered, const KernelCompiler& compile, const BuildOptions& options);

/// The tensor map with its sizes as lines of a shape program, which `shape` makes.
Result<runtime::BoxMap> lower_box(const BoxMap& map,
                                  const std::function<Result<runtime::ShapeRef>(const Expr&)>& shape);

/// A program with the graph's inputs and outputs, and nothing that runs: what a model in parts looks like from outside. Outputs
/// have no dims.
Result<runtime::Program> describe_interface(const Graph& graph);

/// Bytes that the kernel must move (every buffer once), and its operations, over the dims.
Expr kernel_bytes(const Kernel& kernel);
Expr kernel_flops(const Kernel& kernel);

}  // namespace ingot
