#include "compiler/driver/bisect.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "compiler/driver/devices.h"
#include "compiler/driver/reference.h"
#include "compiler/driver/targets.h"
#include "passes/plan_memory.h"

namespace ingot {
namespace {

/// 16-bit values are rounded after each operator on one side, and once a kernel on the other.
Tolerance for_type(Tolerance t, DType type) {
  if (type == DType::F16) t.rtol = std::max(t.rtol, 8e-3);
  if (type == DType::BF16) t.rtol = std::max(t.rtol, 6e-2);
  return t;
}
/// The index of the first tensor that differs.
std::optional<size_t> first_difference(const std::vector<Tensor>& got, const std::vector<Tensor>& want, Tolerance t,
                                       Comparison& comparison) {
  for (size_t i = 0; i < got.size(); ++i) {
    comparison = compare(got[i], want[i], for_type(t, got[i].type()));
    if (!comparison.equal) return i;
  }
  return std::nullopt;
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& n : names) text += (text.empty() ? "\"" : ", \"") + n + "\"";
  return text;
}

/// Everything that kernels write becomes an output, so that it can be looked at.
void show_all_values(Compilation& c, int lanes) {
  for (NodeId id : c.graph.order())
    for (ValueId v : c.graph.node(id).outputs) {
      if (c.graph.is_output(v)) continue;
      c.graph.outputs.push_back(v);
      c.graph.output_names.push_back(fmt::format("value {}", v.index));
    }
  c.plan = plan_memory(c.graph, lanes);
}

Result<std::vector<Tensor>> run_on(const Compilation& c, const OpenDevice& device, const CompileOptions& o,
                                   const std::vector<Tensor>& inputs) {
  if (!device.device) return run_reference(c.graph, c.plan, c.lowered, c.requirements, inputs);
  const TargetTraits traits = INGOT_TRY(traits_for(o));
  const KernelCompiler compiler = INGOT_TRY(kernel_compiler(o.targets, traits, std::make_shared<runtime::Store>()));
  auto program = std::make_shared<runtime::Program>(
      INGOT_TRY(build_program(c.graph, c.plan, c.requirements, c.lowered, compiler, {})));
  program->target = device.target;
  const auto engine = INGOT_TRY(runtime::Engine::create(program, device.device));
  const auto session = INGOT_TRY(runtime::Session::create(engine));
  return session->run(inputs);
}

std::string in_words(const WrongGroup& g, size_t groups) {
  const std::string blame =
      g.interpreter_agrees ? "on the interpreter its kernel agrees with them, so the device's code makes the difference"
                           : "on the interpreter its kernel differs, too, so fusing or lowering makes the difference";
  return fmt::format("group {} of {}, {}, differs from its operators: {} of {}; {}\n  nodes {}", g.position + 1, groups,
                     g.kernel, g.comparison.text, g.value, blame, g.nodes.empty() ? "without names" : g.nodes);
}

/// Of the largest value that is rounded: what the order of the additions behind it may change.
constexpr double kNudge = 4e-6;

bool rounds(const Graph& g, const Node& n) {
  static constexpr std::string_view kNames[] = {"QuantizeTo", "Round", "Floor", "Ceil"};
  if (std::find(std::begin(kNames), std::end(kNames), n.op->name) != std::end(kNames)) return true;
  return n.op->name == "Cast" && is_float(g.value(n.inputs[0]).type.dtype) && is_integer(g.value(n.outputs[0]).type.dtype);
}
BeforeNode nudge_by(double share) {
  return [share](const Graph& g, const Node& n, std::vector<Tensor>& in) {
    if (!rounds(g, n) || in[0].type() == DType::F16 || in[0].type() == DType::BF16) return;
    double largest = 0;
    for (int64_t i = 0; i < in[0].count(); ++i)
      if (std::isfinite(in[0].float_at(i))) largest = std::max(largest, std::fabs(in[0].float_at(i)));
    Tensor moved(in[0].type(), in[0].dims());
    for (int64_t i = 0; i < moved.count(); ++i) moved.set_float(i, in[0].float_at(i) + share * largest);
    in[0] = std::move(moved);
  };
}
bool close(const Tensor& got, const Tensor& want, int64_t i, Tolerance t) {
  const double g = got.float_at(i), w = want.float_at(i);
  return g == w || (std::isnan(g) && std::isnan(w)) || std::fabs(g - w) <= t.atol + t.rtol * std::fabs(w);
}
/// Every element of the group's outputs is what the operators make of its inputs, as they are or nudged before they round.
Result<bool> only_ties(const Node& group, const std::vector<Tensor>& in, const std::vector<Tensor>& got, const std::vector<Tensor>& want,
                       const SymbolValues& symbols, Tolerance tolerance) {
  const Graph& body = *group.body;
  const auto order = body.order();
  if (std::none_of(order.begin(), order.end(), [&](NodeId id) { return rounds(body, body.node(id)); })) return false;
  const auto up = INGOT_TRY(run_apart(body, in, symbols, nudge_by(kNudge))), down = INGOT_TRY(run_apart(body, in, symbols, nudge_by(-kNudge)));
  for (size_t k = 0; k < got.size(); ++k) {
    const Tolerance t = for_type(tolerance, got[k].type());
    for (int64_t i = 0; i < got[k].count(); ++i)
      if (!close(got[k], want[k], i, t) && !close(got[k], up[k], i, t) && !close(got[k], down[k], i, t)) return false;
  }
  return true;
}

}  // namespace

Result<std::optional<WrongGroup>> first_wrong_group(const Compilation& c, const std::vector<Tensor>& inputs,
                                                    const ValueTensors& values, Tolerance tolerance, int* ties) {
  const SymbolValues symbols = INGOT_TRY(bind_symbols(c.graph, inputs));
  for (size_t i = 0; i < c.plan.order.size(); ++i) {
    const Node& n = c.graph.node(c.plan.order[i]);
    std::vector<Tensor> in, got;
    std::vector<TensorType> types;
    for (ValueId v : n.inputs) in.push_back(values.count(v) ? values.at(v) : *c.graph.value(v).constant);
    for (ValueId v : n.outputs) got.push_back(values.at(v)), types.push_back(c.graph.value(v).type);
    const std::vector<Tensor> want = INGOT_TRY(run_apart(*n.body, in, symbols));
    WrongGroup g;
    const auto at = first_difference(got, want, tolerance, g.comparison);
    if (!at) continue;
    if (INGOT_TRY(only_ties(n, in, got, want, symbols, tolerance))) {
      if (ties) ++*ties;
      continue;
    }
    Comparison unused;
    g.interpreter_agrees = !first_difference(INGOT_TRY(run_kernel_alone(c.lowered.kernels[i], in, types, symbols)),
                                             want, tolerance, unused);
    g.position = i;
    g.kernel = c.lowered.kernels[i].name;
    const Value& value = c.graph.value(n.outputs[*at]);
    g.value = fmt::format("{} {}", value.name.empty() ? fmt::format("output {}", *at) : "\"" + value.name + "\"",
                          to_string(value.type));
    g.nodes = joined(n.origin.nodes);
    return std::optional<WrongGroup>(std::move(g));
  }
  return std::optional<WrongGroup>();
}

namespace {

/// Only the first `count` passes run, and those that a program cannot do without.
CompileOptions with_passes(CompileOptions o, size_t count) {
  const auto passes = pipeline();
  bool groups = false;
  for (size_t i = 0; i < passes.size(); ++i) {
    const std::string_view name = passes[i].name;
    if (i >= count && name != "decompose" && name != "form_groups") o.skip.emplace_back(name);
    groups |= i < count && name == "form_groups";
  }
  o.fuse = o.fuse && groups;
  return o;
}
Result<std::vector<Tensor>> run_after(const OnnxModel& model, const CompileOptions& o, size_t count,
                                      const std::vector<Tensor>& inputs) {
  const Compilation c = INGOT_TRY(lower_model(model, with_passes(o, count)));
  return run_reference(c.graph, c.plan, c.lowered, c.requirements, inputs);
}

}  // namespace

CompileOptions without_passes(const CompileOptions& options) { return with_passes(options, 0); }

Result<std::string> first_wrong_pass(const OnnxModel& model, const CompileOptions& o, const std::vector<Tensor>& inputs,
                                     Tolerance tolerance) {
  const std::vector<Tensor> want = INGOT_TRY(run_after(model, o, 0, inputs));
  const auto differs = [&](size_t count) -> Result<bool> {
    Comparison unused;
    return first_difference(INGOT_TRY(run_after(model, o, count, inputs)), want, tolerance, unused).has_value();
  };
  size_t good = 0, bad = pipeline().size();
  if (!INGOT_TRY(differs(bad))) return std::string();
  while (bad - good > 1) {
    const size_t middle = (good + bad) / 2;
    (INGOT_TRY(differs(middle)) ? bad : good) = middle;
  }
  return std::string(pipeline()[good].name);
}

Result<Explanation> explain_difference(const std::string& path, const std::string& name, const CompileOptions& options,
                                       const std::vector<Tensor>& inputs, Tolerance tolerance) {
  const OpenDevice device = name == "interpreter" ? OpenDevice{nullptr, "cpu"} : INGOT_TRY(open_device(name));
  CompileOptions o = options;
  o.targets = {device.target};
  const OnnxModel model = INGOT_TRY(read_model(path));
  CompileOptions with_own_memory = o;  // what is looked at cannot lie in another value
  with_own_memory.skip.emplace_back("join_parts");
  Compilation c = INGOT_TRY(lower_model(model, with_own_memory));
  if (!c.scripts.empty()) return Explanation{"the model runs in parts, whose groups are not looked at one by one"};
  show_all_values(c, o.lanes);
  c.lowered = INGOT_TRY(lower_program(c.graph, c.plan));
  const std::vector<Tensor> outputs = INGOT_TRY(run_on(c, device, o, inputs));
  ValueTensors values;
  for (size_t i = 0; i < inputs.size(); ++i) values.emplace(c.graph.inputs[i], inputs[i]);
  for (size_t i = 0; i < outputs.size(); ++i) values.insert_or_assign(c.graph.outputs[i], outputs[i]);
  int ties = 0;
  if (const auto group = INGOT_TRY(first_wrong_group(c, inputs, values, tolerance, &ties)))
    return Explanation{in_words(*group, c.plan.order.size())};
  const std::string pass = INGOT_TRY(first_wrong_pass(model, o, inputs, tolerance));
  const std::string after = ties == 0 ? "" : fmt::format(", but for ties of rounding in {} of {} groups", ties, c.plan.order.size());
  if (!pass.empty())
    return Explanation{fmt::format("every group computes what its operators say{}; the pass {} changes the results (`opt --until` prints "
                                   "the graph before it)", after, pass)};
  if (ties > 0)
    return Explanation{fmt::format("every group computes what its operators say{}, and no pass changes the results: a value beside a tie "
                                   "is rounded either way, and what follows from it differs", after), false};
  return Explanation{"no group and no pass differs by more than the tolerance: the differences of several add up"};
}

}  // namespace ingot
