// Running a lowered graph on the kernel interpreter: the oracle behind --device interpreter and check, and the evaluator of
// constant folding.
#pragma once

#include "codegen/build_program.h"
#include "compiler/support/tensor.h"

namespace ingot {

/// The outputs of the fused graph. Error: inputs that do not fit, or a fault that the interpreter found.
Result<std::vector<Tensor>> run_reference(const Graph& graph, const MemoryPlan& plan, const LoweredProgram& lowered,
                                          const std::vector<ShapeRequirement>& requirements, const std::vector<Tensor>& inputs);

/// One node as a kernel of its own: its buffers are `inputs`, each once, then the node's outputs.
struct NodeKernel {
  Kernel kernel;
  std::vector<ValueId> inputs;
};
Result<NodeKernel> lower_node(const Graph& graph, const Node& node);

/// The outputs of one node whose inputs are all constants: PassContext::evaluate.
Result<std::vector<Tensor>> evaluate_node(const Graph& graph, const Node& node);

}  // namespace ingot
