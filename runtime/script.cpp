#include "runtime/script.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>

namespace ingot::runtime {
namespace {

Tensor number(DType type, int64_t value) {
  Tensor t(type, {});
  t.set_int(0, value);
  return t;
}

/// What a loop without iterations collects.
Result<ScriptValuePtr> nothing(const std::pair<DType, std::vector<int64_t>>& row) {
  std::vector<int64_t> dims{0};
  for (int64_t d : row.second) dims.push_back(std::max<int64_t>(d, 0));
  INGOT_TRY(checked_count(dims, size_of(row.first)));
  return host_value(Tensor(row.first, dims));
}

class Runner {
 public:
  Runner(std::span<const Script> scripts, ScriptMachine& machine) : scripts_(scripts), machine_(machine) {}

  Result<ScriptValues> run(int32_t number, const ScriptValues& inputs) {
    const Script& s = scripts_[static_cast<size_t>(number)];
    if (inputs.size() != s.inputs.size())
      return invalid(fmt::format("{} inputs given, the model has {}", inputs.size(), s.inputs.size()));
    ScriptValues values(static_cast<size_t>(s.values));
    for (size_t i = 0; i < inputs.size(); ++i) values[static_cast<size_t>(s.inputs[i])] = inputs[i];
    for (const auto& [at, tensor] : s.constants) values[static_cast<size_t>(at)] = constant(tensor);
    for (const ScriptStep& step : s.steps) {
      auto results = run_step(step, values);
      if (!results && step.kind != ScriptStep::Kind::Part) results.error().add("in " + step.name);
      ScriptValues outputs = INGOT_TRY(std::move(results));
      INGOT_CHECK(outputs.size() == step.outputs.size(), "a step gives another number of outputs");
      for (size_t i = 0; i < outputs.size(); ++i)
        if (step.outputs[i] >= 0) values[static_cast<size_t>(step.outputs[i])] = std::move(outputs[i]);
    }
    return take(values, s.outputs);
  }

 private:
  static ScriptValues take(const ScriptValues& values, std::span<const int32_t> numbers) {
    ScriptValues taken;
    for (int32_t n : numbers) taken.push_back(values[static_cast<size_t>(n)]);
    return taken;
  }
  /// A constant is brought to the device once, however often its script runs.
  ScriptValuePtr constant(const TensorPtr& tensor) {
    ScriptValuePtr& value = constants_[tensor.get()];
    if (!value) value = host_value(*tensor);
    return value;
  }
  Result<int64_t> one_number(const ScriptValuePtr& value, const char* what) {
    const Tensor t = INGOT_TRY(machine_.to_host(*value));
    if (t.count() != 1) return invalid(fmt::format("the {} has {} elements, not one", what, t.count()));
    return t.int_at(0);
  }

  Result<ScriptValues> run_step(const ScriptStep& step, const ScriptValues& values) {
    if (step.kind == ScriptStep::Kind::Part) return machine_.run_part(step.part, take(values, step.inputs));
    return step.kind == ScriptStep::Kind::If ? run_if(step, values) : run_loop(step, values);
  }

  Result<ScriptValues> run_if(const ScriptStep& step, const ScriptValues& values) {
    const int64_t condition = INGOT_TRY(one_number(values[static_cast<size_t>(step.inputs[0])], "condition"));
    const size_t first = scripts_[static_cast<size_t>(step.scripts[0])].inputs.size();
    const std::span<const int32_t> rest = std::span(step.inputs).subspan(1);
    return run(step.scripts[condition ? 0 : 1], take(values, condition ? rest.first(first) : rest.subspan(first)));
  }

  Result<ScriptValues> run_loop(const ScriptStep& step, const ScriptValues& values) {
    int64_t trips = INT64_MAX;
    bool goes_on = true;
    if (step.inputs[0] >= 0) trips = INGOT_TRY(one_number(values[static_cast<size_t>(step.inputs[0])], "trip count"));
    if (step.inputs[1] >= 0)
      goes_on = INGOT_TRY(one_number(values[static_cast<size_t>(step.inputs[1])], "condition")) != 0;
    const auto states = static_cast<size_t>(step.states);
    ScriptValues state = take(values, std::span(step.inputs).subspan(2, states));
    const ScriptValues rest = take(values, std::span(step.inputs).subspan(2 + states));
    const ScriptValuePtr yes = host_value(number(DType::Bool, 1));
    std::vector<ScriptValues> collected(step.collected.size());
    for (int64_t i = 0; goes_on && i < trips; ++i) {
      ScriptValues inputs{host_value(number(DType::I64, i)), yes};
      inputs.insert(inputs.end(), state.begin(), state.end());
      inputs.insert(inputs.end(), rest.begin(), rest.end());
      ScriptValues outputs = INGOT_TRY(run(step.scripts[0], inputs));
      goes_on = INGOT_TRY(one_number(outputs[0], "condition")) != 0;
      state.assign(outputs.begin() + 1, outputs.begin() + 1 + step.states);
      for (size_t c = 0; c < collected.size(); ++c) collected[c].push_back(std::move(outputs[1 + states + c]));
    }
    for (size_t c = 0; c < collected.size(); ++c) state.push_back(INGOT_TRY(join(collected[c], step.collected[c])));
    return state;
  }
  Result<ScriptValuePtr> join(const ScriptValues& rows, const std::pair<DType, std::vector<int64_t>>& row) {
    if (rows.empty()) return nothing(row);
    for (const ScriptValuePtr& r : rows)
      if (r->dims != rows[0]->dims || r->type != rows[0]->type)
        return invalid(fmt::format("a collected value is {} in one iteration and {} in another",
                                   describe(rows[0]->type, rows[0]->dims), describe(r->type, r->dims)));
    return machine_.join(rows);
  }

  std::span<const Script> scripts_;
  ScriptMachine& machine_;
  std::map<const Tensor*, ScriptValuePtr> constants_;
};

/// All values in host memory.
class HostMachine : public ScriptMachine {
 public:
  explicit HostMachine(const PartRunner& run_part) : run_part_(run_part) {}
  Result<ScriptValues> run_part(int32_t part, const ScriptValues& inputs) override {
    std::vector<Tensor> tensors;
    for (const ScriptValuePtr& v : inputs) tensors.push_back(*v->host);
    ScriptValues outputs;
    for (Tensor& t : INGOT_TRY(run_part_(part, tensors))) outputs.push_back(host_value(std::move(t)));
    return outputs;
  }
  Result<Tensor> to_host(ScriptValue& value) override { return *value.host; }
  Result<ScriptValuePtr> join(const ScriptValues& rows) override {
    std::vector<int64_t> dims = rows[0]->dims;
    dims.insert(dims.begin(), static_cast<int64_t>(rows.size()));
    INGOT_TRY(checked_count(dims, size_of(rows[0]->type)));
    Tensor joined(rows[0]->type, dims);
    const size_t bytes = rows[0]->host->bytes();
    for (size_t i = 0; i < rows.size() && bytes > 0; ++i)
      std::memcpy(joined.mutable_as<char>() + i * bytes, rows[i]->host->data(), bytes);
    return host_value(std::move(joined));
  }

 private:
  const PartRunner& run_part_;
};

}  // namespace

ScriptValuePtr host_value(Tensor tensor) {
  auto value = std::make_shared<ScriptValue>();
  value->type = tensor.type();
  value->dims = tensor.dims();
  value->host = std::move(tensor);
  return value;
}

Result<std::vector<Tensor>> run_script(std::span<const Script> scripts, ScriptMachine& machine,
                                       const std::vector<Tensor>& inputs) {
  ScriptValues values;
  for (const Tensor& t : inputs) values.push_back(host_value(t));
  std::vector<Tensor> outputs;
  for (const ScriptValuePtr& v : INGOT_TRY(Runner(scripts, machine).run(0, values)))
    outputs.push_back(INGOT_TRY(machine.to_host(*v)));
  return outputs;
}

Result<std::vector<Tensor>> run_script(std::span<const Script> scripts, const PartRunner& run_part,
                                       const std::vector<Tensor>& inputs) {
  HostMachine machine(run_part);
  return run_script(scripts, machine, inputs);
}

}  // namespace ingot::runtime
