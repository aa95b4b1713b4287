// Running a lowered graph on the kernel interpreter: the oracle behind --device interpreter and check, and the evaluator of
// constant folding.
#pragma once

#include "codegen/build_program.h"
#include "compiler/support/tensor.h"

namespace ingot {

using SymbolValues = std::unordered_map<std::string, int64_t>;

/// What the dims (and the elements) of inputs make of the graph's symbols. Error: inputs that do not fit.
Result<SymbolValues> bind_symbols(const Graph& graph, const std::vector<Tensor>& inputs);

/// The outputs of the fused graph. Error: inputs that do not fit, or a fault that the interpreter found.
Result<std::vector<Tensor>> run_reference(const Graph& graph, const MemoryPlan& plan, const LoweredProgram& lowered,
                                          const std::vector<ShapeRequirement>& requirements, const std::vector<Tensor>& inputs);

/// One node as a kernel of its own: its buffers are `inputs`, each once, then the node's outputs.
struct NodeKernel {
  Kernel kernel;
  std::vector<ValueId> inputs;
};
Result<NodeKernel> lower_node(const Graph& graph, const Node& node);

/// The outputs of one kernel.
Result<std::vector<Tensor>> run_kernel_alone(const Kernel& kernel, const std::vector<Tensor>& inputs, const std::vector<TensorType>& outputs,
                                             const SymbolValues& symbols);
/// May change what a node reads before it runs; the first tensor is its first input.
using BeforeNode = std::function<void(const Graph&, const Node&, std::vector<Tensor>&)>;
/// The outputs of a graph of primitives (the body of a fused group), node by node: what its operators mean.
Result<std::vector<Tensor>> run_apart(const Graph& graph, const std::vector<Tensor>& inputs, const SymbolValues& symbols,
                                      const BeforeNode& before = nullptr);

/// The outputs of one node whose inputs are all constants: PassContext::evaluate.
Result<std::vector<Tensor>> evaluate_node(const Graph& graph, const Node& node);

}  // namespace ingot
