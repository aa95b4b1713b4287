#include "runtime/script.h"

#include <fmt/format.h>

#include <cstring>
#include <optional>

namespace ingot::runtime {
namespace {

using Values = std::vector<std::optional<Tensor>>;

Result<int64_t> one_number(const Tensor& t, const char* what) {
  if (t.count() != 1) return invalid(fmt::format("the {} has {} elements, not one", what, t.count()));
  return t.int_at(0);
}

Tensor number(DType type, int64_t value) {
  Tensor t(type, {});
  t.set_int(0, value);
  return t;
}

/// Joins one tensor an iteration along a new first axis; `empty` is what no iteration gives.
Result<Tensor> join(const std::vector<Tensor>& rows, const std::pair<DType, std::vector<int64_t>>& empty) {
  std::vector<int64_t> dims = rows.empty() ? empty.second : rows[0].dims();
  for (int64_t& d : dims) d = std::max<int64_t>(d, 0);
  dims.insert(dims.begin(), static_cast<int64_t>(rows.size()));
  const DType type = rows.empty() ? empty.first : rows[0].type();
  INGOT_TRY(checked_count(dims, size_of(type)));
  Tensor joined(type, dims);
  size_t at = 0;
  for (const Tensor& row : rows) {
    if (row.dims() != rows[0].dims())
      return invalid(fmt::format("a collected value is {} in one iteration and {} in another",
                                 describe(row.type(), rows[0].dims()), describe(row.type(), row.dims())));
    if (row.bytes() > 0) std::memcpy(joined.mutable_as<char>() + at, row.data(), row.bytes());
    at += row.bytes();
  }
  return joined;
}

class Runner {
 public:
  Runner(std::span<const Script> scripts, const PartRunner& run_part) : scripts_(scripts), run_part_(run_part) {}

  Result<std::vector<Tensor>> run(int32_t number, const std::vector<Tensor>& inputs) {
    const Script& s = scripts_[static_cast<size_t>(number)];
    if (inputs.size() != s.inputs.size())
      return invalid(fmt::format("{} inputs given, the model has {}", inputs.size(), s.inputs.size()));
    Values values(static_cast<size_t>(s.values));
    for (size_t i = 0; i < inputs.size(); ++i) values[static_cast<size_t>(s.inputs[i])] = inputs[i];
    for (const auto& [at, tensor] : s.constants) values[static_cast<size_t>(at)] = *tensor;
    for (const ScriptStep& step : s.steps) {
      auto results = run_step(step, values);
      if (!results && step.kind != ScriptStep::Kind::Part) results.error().add("in " + step.name);
      std::vector<Tensor> outputs = INGOT_TRY(std::move(results));
      INGOT_CHECK(outputs.size() == step.outputs.size(), "a step gives another number of outputs");
      for (size_t i = 0; i < outputs.size(); ++i)
        if (step.outputs[i] >= 0) values[static_cast<size_t>(step.outputs[i])] = std::move(outputs[i]);
    }
    return take(values, s.outputs);
  }

 private:
  static std::vector<Tensor> take(const Values& values, std::span<const int32_t> numbers) {
    std::vector<Tensor> tensors;
    for (int32_t n : numbers) tensors.push_back(*values[static_cast<size_t>(n)]);
    return tensors;
  }

  Result<std::vector<Tensor>> run_step(const ScriptStep& step, const Values& values) {
    if (step.kind == ScriptStep::Kind::Part) return run_part_(step.part, take(values, step.inputs));
    return step.kind == ScriptStep::Kind::If ? run_if(step, values) : run_loop(step, values);
  }

  Result<std::vector<Tensor>> run_if(const ScriptStep& step, const Values& values) {
    const int64_t condition = INGOT_TRY(one_number(*values[static_cast<size_t>(step.inputs[0])], "condition"));
    const size_t first = scripts_[static_cast<size_t>(step.scripts[0])].inputs.size();
    const std::span<const int32_t> rest = std::span(step.inputs).subspan(1);
    return run(step.scripts[condition ? 0 : 1], take(values, condition ? rest.first(first) : rest.subspan(first)));
  }

  Result<std::vector<Tensor>> run_loop(const ScriptStep& step, const Values& values) {
    int64_t trips = INT64_MAX;
    bool goes_on = true;
    if (step.inputs[0] >= 0) trips = INGOT_TRY(one_number(*values[static_cast<size_t>(step.inputs[0])], "trip count"));
    if (step.inputs[1] >= 0) goes_on = INGOT_TRY(one_number(*values[static_cast<size_t>(step.inputs[1])], "condition")) != 0;
    const auto states = static_cast<size_t>(step.states);
    std::vector<Tensor> state = take(values, std::span(step.inputs).subspan(2, states));
    const std::vector<Tensor> rest = take(values, std::span(step.inputs).subspan(2 + states));
    std::vector<std::vector<Tensor>> collected(step.collected.size());
    for (int64_t i = 0; goes_on && i < trips; ++i) {
      std::vector<Tensor> inputs{number(DType::I64, i), number(DType::Bool, 1)};
      inputs.insert(inputs.end(), state.begin(), state.end());
      inputs.insert(inputs.end(), rest.begin(), rest.end());
      std::vector<Tensor> outputs = INGOT_TRY(run(step.scripts[0], inputs));
      goes_on = INGOT_TRY(one_number(outputs[0], "condition")) != 0;
      state.assign(outputs.begin() + 1, outputs.begin() + 1 + step.states);
      for (size_t c = 0; c < collected.size(); ++c) collected[c].push_back(std::move(outputs[1 + states + c]));
    }
    for (size_t c = 0; c < collected.size(); ++c) state.push_back(INGOT_TRY(join(collected[c], step.collected[c])));
    return state;
  }

  std::span<const Script> scripts_;
  const PartRunner& run_part_;
};

}  // namespace

Result<std::vector<Tensor>> run_script(std::span<const Script> scripts, const PartRunner& run_part,
                                       const std::vector<Tensor>& inputs) {
  return Runner(scripts, run_part).run(0, inputs);
}

}  // namespace ingot::runtime
