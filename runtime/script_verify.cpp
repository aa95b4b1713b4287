// Checks of a program's scripts: they may come from a file of anyone's.
#include <fmt/format.h>

#include <algorithm>

#include "runtime/program.h"

namespace ingot::runtime {
namespace {

class ScriptVerifier {
 public:
  ScriptVerifier(const Program& p, size_t number)
      : p_(p),
        s_(p.scripts[number]),
        number_(number),
        known_(static_cast<size_t>(std::clamp(s_.values, 0, kMostValues)), false) {}

  Status run() {
    if (s_.values < 0 || s_.values > kMostValues) return fault("has an impossible number of values");
    INGOT_TRY(give(s_.inputs));
    for (const auto& [value, tensor] : s_.constants) {
      if (!tensor || size_of(tensor->type()) == 0) return fault("has a constant without data");
      INGOT_TRY(give({value}));
    }
    for (const ScriptStep& step : s_.steps) INGOT_TRY(check(step));
    return take(s_.outputs, 0);
  }

 private:
  static constexpr int32_t kMostValues = 1 << 24;

  Status fault(const std::string& what) const { return invalid(fmt::format("script {} {}", number_, what)); }
  Status give(const std::vector<int32_t>& values) {
    for (int32_t v : values) {
      if (v < 0 || v >= s_.values) return fault(fmt::format("gives value {} of {}", v, s_.values));
      known_[static_cast<size_t>(v)] = true;
    }
    return {};
  }
  /// The first `optional` ones may be omitted.
  Status take(const std::vector<int32_t>& values, size_t optional) const {
    for (size_t i = 0; i < values.size(); ++i) {
      const int32_t v = values[i];
      if (v == -1 && i < optional) continue;
      if (v < 0 || v >= s_.values || !known_[static_cast<size_t>(v)])
        return fault(fmt::format("takes value {}, which nothing gives", v));
    }
    return {};
  }
  Result<const Script*> called(int32_t number) const {
    if (number <= static_cast<int32_t>(number_) || number >= static_cast<int32_t>(p_.scripts.size()))
      return fault(fmt::format("calls script {}", number)).error();
    return &p_.scripts[static_cast<size_t>(number)];
  }
  Status check(const ScriptStep& step) {
    if (step.kind > ScriptStep::Kind::Loop) return fault("has an unknown step");
    const bool loops = step.kind == ScriptStep::Kind::Loop;
    INGOT_TRY(take(step.inputs, loops ? 2 : 0));
    INGOT_TRY(step.kind == ScriptStep::Kind::Part ? part(step) : loops ? loop(step) : branch(step));
    return give(step.outputs);
  }
  Status part(const ScriptStep& step) const {
    if (step.part < 0 || static_cast<size_t>(step.part) >= p_.parts.size())
      return fault(fmt::format("runs part {}", step.part));
    const Program& program = *p_.parts[static_cast<size_t>(step.part)];
    const bool fits = step.inputs.size() == program.inputs.size() && step.outputs.size() == program.outputs.size();
    return fits ? Status() : fault(fmt::format("runs part {} on other inputs than it has", step.part));
  }
  Status branch(const ScriptStep& step) const {
    if (step.scripts.size() != 2 || step.inputs.empty()) return fault("has an If without two branches and a condition");
    size_t inputs = 1;
    for (int32_t n : step.scripts) {
      const Script* s = INGOT_TRY(called(n));
      inputs += s->inputs.size();
      if (s->outputs.size() != step.outputs.size()) return fault("has a branch with other outputs");
    }
    return inputs == step.inputs.size() ? Status() : fault("has an If with other inputs than its branches");
  }
  Status loop(const ScriptStep& step) const {
    if (step.scripts.size() != 1 || step.states < 0) return fault("has a Loop without a body");
    const auto states = static_cast<size_t>(step.states);
    const Script* body = INGOT_TRY(called(step.scripts[0]));
    for (const auto& [type, dims] : step.collected)
      if (size_of(type) == 0 || std::any_of(dims.begin(), dims.end(), [](int64_t d) { return d < -1; }))
        return fault("collects no tensor");
    const bool fits = step.inputs.size() >= 2 + states && body->inputs.size() == step.inputs.size() &&
                      body->outputs.size() == 1 + states + step.collected.size() &&
                      step.outputs.size() == states + step.collected.size();
    return fits ? Status() : fault("has a Loop that does not fit its body");
  }

  const Program& p_;
  const Script& s_;
  size_t number_;
  std::vector<bool> known_;
};

}  // namespace

Status verify_scripts(const Program& p) {
  for (const auto& part : p.parts) {
    if (!part || !part->scripts.empty()) return invalid("a part is missing, or has parts itself");
    INGOT_TRY(part->verify());
  }
  for (size_t i = 0; i < p.scripts.size(); ++i) INGOT_TRY(ScriptVerifier(p, i).run());
  if (p.scripts.empty()) return p.parts.empty() ? Status() : invalid("parts without a script");
  const bool fits = p.scripts[0].inputs.size() == p.inputs.size() && p.scripts[0].outputs.size() == p.outputs.size();
  return fits ? Status() : invalid("the script has other inputs or outputs than the model");
}

}  // namespace ingot::runtime
