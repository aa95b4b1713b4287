// Script: a model whose course is decided while it runs, as programs (parts) and the steps between them. Within a part every
// size is known when it starts; a step that waits for results is where the host looks at them: sizes that follow from
// computed values, the condition of an If, the iterations of a Loop. Plain data; compiler/driver/partition.h makes it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "compiler/support/result.h"
#include "compiler/support/tensor.h"

namespace ingot::runtime {

/// Numbers are those of the script's values; -1 is an omitted optional one.
///   Part  runs part `part` on `inputs`, in its order, and gives `outputs`
///   If    inputs: the condition, then what the first branch takes, then what the second takes. scripts: the two branches
///   Loop  inputs: trip count, condition, `states` states, what the body takes besides. scripts: the body, which takes
///         (iteration, condition, states…, the rest) and gives (condition, states…, collected…). outputs: the last states,
///         then what was collected, joined along a new first axis
struct ScriptStep {
  enum class Kind : uint8_t { Part, If, Loop } kind = Kind::Part;
  int32_t part = -1, states = 0;
  std::vector<int32_t> scripts, inputs, outputs;
  std::vector<std::pair<DType, std::vector<int64_t>>> collected;  // Loop: element types and dims (-1: open) of an empty result
  std::string name;  // of the model's node, for messages
};
struct Script {
  int32_t values = 0;
  std::vector<int32_t> inputs, outputs;
  std::vector<std::pair<int32_t, TensorPtr>> constants;
  std::vector<ScriptStep> steps;
};

/// A value while a script runs: in host memory, on the device, or in both places.
struct ScriptValue {
  DType type = DType::F32;
  std::vector<int64_t> dims;
  std::optional<Tensor> host;
  std::shared_ptr<void> device;  // device memory; null where it has none
};
using ScriptValuePtr = std::shared_ptr<ScriptValue>;
using ScriptValues = std::vector<ScriptValuePtr>;
ScriptValuePtr host_value(Tensor tensor);

/// What a script needs of whoever runs its parts.
class ScriptMachine {
 public:
  virtual ~ScriptMachine() = default;
  virtual Result<ScriptValues> run_part(int32_t part, const ScriptValues& inputs) = 0;
  /// Waits for the value.
  virtual Result<Tensor> to_host(ScriptValue& value) = 0;
  /// Joins values of the same dims along a new first axis; there is at least one.
  virtual Result<ScriptValuePtr> join(const ScriptValues& rows) = 0;
};

/// Runs part number `part` on host tensors, and gives its outputs.
using PartRunner = std::function<Result<std::vector<Tensor>>(int32_t part, const std::vector<Tensor>& inputs)>;

/// Runs scripts[0]. Error: that of a part, with the step's name; a loop without end is the model's, and not noticed.
Result<std::vector<Tensor>> run_script(std::span<const Script> scripts, ScriptMachine& machine,
                                       const std::vector<Tensor>& inputs);
Result<std::vector<Tensor>> run_script(std::span<const Script> scripts, const PartRunner& run_part,
                                       const std::vector<Tensor>& inputs);

}  // namespace ingot::runtime
