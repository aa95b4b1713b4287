// Which step of a compilation changes a model's results: the kernel of a fused group, or a pass. What `check` says about a
// program that differs from its operators.
#pragma once

#include <map>
#include <optional>

#include "compiler/driver/session.h"
#include "compiler/driver/test_case.h"

namespace ingot {

/// Tensors of inputs and of every value between kernels.
using ValueTensors = std::map<ValueId, Tensor>;

struct WrongGroup {
  size_t position = 0;  // in program order
  std::string kernel, value, nodes;
  Comparison comparison;  // with the group's operators one by one, on the same inputs
  bool interpreter_agrees = false;  // with the operators: then only the device's code is wrong
};
/// The first group whose outputs in `values` are not what its operators make of its inputs in `values`. Groups whose outputs
/// the operators make, too, when what they round is moved by as much as another order of additions may move it are not wrong;
/// `ties` counts them.
Result<std::optional<WrongGroup>> first_wrong_group(const Compilation& c, const std::vector<Tensor>& inputs,
                                                    const ValueTensors& values, Tolerance tolerance, int* ties = nullptr);

/// The first pass after which the model, each operator by itself, gives other results; empty when none does.
Result<std::string> first_wrong_pass(const OnnxModel& model, const CompileOptions& options,
                                     const std::vector<Tensor>& inputs, Tolerance tolerance);

/// Options for a program that does what the imported operators say, one kernel an operator: no pass runs that it can do without.
CompileOptions without_passes(const CompileOptions& options);

struct Explanation {
  std::string text;
  bool is_fault = true;  // false: nothing differs but what ties of rounding decide
};
/// Compiles the model once more, with every value between kernels as an output, runs it on the device and says in words what
/// differs first.
Result<Explanation> explain_difference(const std::string& path, const std::string& device,
                                       const CompileOptions& options, const std::vector<Tensor>& inputs,
                                       Tolerance tolerance);

}  // namespace ingot
