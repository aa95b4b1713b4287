// inspect, ops, devices.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <tuple>

#include "codegen/cuda/nvrtc.h"
#include "codegen/llvm/object_compiler.h"
#include "compiler/driver/cli.h"
#include "compiler/driver/devices.h"
#include "compiler/ops/registry.h"

namespace ingot::cli {
namespace {

/// Every symbol at `batch` (inside its range), for showing sizes of dynamic models.
std::unordered_map<std::string, int64_t> sample_symbols(const Graph& g, int64_t batch) {
  std::unordered_map<std::string, int64_t> at;
  for (ValueId v : g.inputs) {
    const Shape& s = g.value(v).type.shape;
    for (size_t d = 0; d < s.size(); ++d)
      if (s[d].op() == ExprOp::Symbol) at.emplace(s[d].name(), std::clamp<int64_t>(d == 0 ? batch : 64, s[d].low(), std::max<int64_t>(s[d].high(), 1)));
  }
  return at;
}
int64_t total_bytes(const Compilation& c, const std::unordered_map<std::string, int64_t>& at) {
  int64_t total = 0;
  for (const Kernel& k : c.lowered.kernels) total += evaluate_int(kernel_bytes(k), at).value_or(0);
  return total;
}
int64_t floor_bytes(const Graph& g, const std::unordered_map<std::string, int64_t>& at) {
  int64_t total = 0;
  std::set<ValueId> seen;
  auto add = [&](ValueId v) {
    const TensorType& t = g.value(v).type;
    if (seen.insert(v).second) total += evaluate_int(element_count(t.shape), at).value_or(0) * static_cast<int64_t>(size_of(t.dtype));
  };
  for (ValueId v : g.inputs) add(v);
  for (ValueId v : g.outputs) add(v);
  for (NodeId n : g.order())
    for (ValueId v : g.node(n).inputs)
      if (g.value(v).constant) add(v);
  return total;
}

struct InspectArgs {
  CommonOptions common;
  std::string model;
  std::vector<std::string> targets{"cpu"};
  bool json = false, explain = false, source = false;
  int64_t batch = 1;
};

nlohmann::json describe_kernels(const Compilation& c, const std::unordered_map<std::string, int64_t>& at) {
  nlohmann::json list = nlohmann::json::array();
  for (size_t i = 0; i < c.lowered.kernels.size(); ++i) {
    const Kernel& k = c.lowered.kernels[i];
    const Node& n = c.graph.node(c.plan.order[i]);
    list.push_back({{"name", k.name}, {"kind", n.attrs.as<FusedAttrs>().kind}, {"operators", k.header}, {"nodes", n.origin.nodes},
                    {"bytes", evaluate_int(kernel_bytes(k), at).value_or(0)}, {"flops", evaluate_int(kernel_flops(k), at).value_or(0)}});
  }
  return list;
}

Outcome inspect_model(const InspectArgs& a) {
  CompileOptions o = INGOT_TRY(a.common.to_compile());
  o.targets = a.targets;
  const Compilation c = INGOT_TRY(lower_model(a.model, o));
  if (!c.scripts.empty())
    return unsupported(fmt::format("the model's course is decided at run time; it runs as {} parts, which --dump shows", c.parts.size()));
  CompileOptions apart = o;
  apart.fuse = false;
  apart.dump_dir.clear();
  const Compilation unfused = INGOT_TRY(lower_model(a.model, apart));
  const auto at = sample_symbols(c.graph, a.batch);
  const int64_t after = total_bytes(c, at), before = total_bytes(unfused, at), floor = floor_bytes(c.graph, at);
  int64_t arena = 0;
  for (const Expr& e : c.plan.slot_bytes) arena += evaluate_int(e, at).value_or(0);
  if (a.json) {
    nlohmann::json j{{"model", a.model}, {"opset", c.import.opset}, {"nodes", c.model_nodes}, {"kernels", c.lowered.kernels.size()},
                     {"kernels_unfused", unfused.lowered.kernels.size()}, {"bytes_before", before}, {"bytes_after", after}, {"bytes_floor", floor},
                     {"arena_bytes", arena}, {"arena_slots", c.plan.slot_bytes.size()}, {"groups", describe_kernels(c, at)}};
    for (const auto& [name, v] : at) j["symbols"][name] = v;
    for (const Refusal& r : c.refusals) j["refusals"].push_back({{"producer", r.producer}, {"consumer", r.consumer}, {"reason", r.reason}});
    fmt::print("{}\n", j.dump(1));
    return 0;
  }
  fmt::print("{}: opset {}, {} nodes in the model, {} kernels after fusion ({} unfused)\n", a.model, c.import.opset, c.model_nodes, c.lowered.kernels.size(),
             unfused.lowered.kernels.size());
  for (ValueId v : c.graph.inputs) fmt::print("  input  {} {}\n", c.graph.value(v).name, to_string(c.graph.value(v).type));
  for (size_t i = 0; i < c.graph.outputs.size(); ++i) fmt::print("  output {} {}\n", c.graph.output_names[i], to_string(c.graph.value(c.graph.outputs[i]).type));
  fmt::print("  bytes moved {} -> {} (every input, weight and output once: {}); arena {} in {} slots\n", human_bytes(static_cast<double>(before)),
             human_bytes(static_cast<double>(after)), human_bytes(static_cast<double>(floor)), human_bytes(static_cast<double>(arena)), c.plan.slot_bytes.size());
  for (size_t i = 0; i < c.lowered.kernels.size(); ++i) {
    const Kernel& k = c.lowered.kernels[i];
    fmt::print("  {:>4}  {:<12} {:>10} {:>12} flop  {}\n", i, c.graph.node(c.plan.order[i]).attrs.as<FusedAttrs>().kind,
               human_bytes(static_cast<double>(evaluate_int(kernel_bytes(k), at).value_or(0))), evaluate_int(kernel_flops(k), at).value_or(0), k.name);
    if (a.source) fmt::print("{}", to_string(k));
  }
  if (a.explain)
    for (const Refusal& r : c.refusals) fmt::print("  {} | {}: {}\n", r.producer, r.consumer, r.reason);
  return 0;
}

struct OpsArgs {
  bool markdown = false;
};
const char* lowering_name(const OpDef& d) {
  static constexpr const char* kNames[] = {"on import", "pointwise", "movement", "element", "reduction", "contraction", "composite", "fused"};
  return kNames[d.lower.index()];
}
Outcome run_ops(const OpsArgs& a) {
  std::vector<const OpDef*> rows;
  for (const OpDef* d : all_ops())
    if (!d->imports.empty()) rows.push_back(d);
  std::sort(rows.begin(), rows.end(), [](const OpDef* x, const OpDef* y) { return std::tie(x->domain, x->name) < std::tie(y->domain, y->name); });
  if (a.markdown) fmt::print("| operator | from opset | class | notes |\n|---|---|---|---|\n");
  for (const OpDef* d : rows) {
    std::string since;
    const std::string name = d->domain.empty() ? std::string(d->name) : fmt::format("{}.{}", d->domain, d->name);
    for (const ImportRule& r : d->imports) since += (since.empty() ? "" : ", ") + std::to_string(r.since);
    if (a.markdown) fmt::print("| {} | {} | {} | {} |\n", name, since, lowering_name(*d), d->doc);
    else fmt::print("{:<26} {:<12} {:<24} {}\n", name, lowering_name(*d), since, d->doc);
  }
  return 0;
}

Outcome run_devices() {
  auto traits = cpu_traits();
  if (traits) fmt::print("cpu: {}, vectors of {} bytes\n", cpu_fingerprint(*traits), traits->vector_bytes);
  auto gpus = list_gpus();
  if (!gpus) fmt::print("no GPU: {}\n", gpus.error().message);
  else
    for (const auto& g : *gpus)
      fmt::print("cuda:{}: {} {}, {} SMs, {}, driver {}.{}\n", g.ordinal, g.name, target_of(g.compute_capability), g.multiprocessors,
                 human_bytes(static_cast<double>(g.memory_bytes)), g.driver_version / 1000, g.driver_version % 1000 / 10);
  auto version = nvrtc_version();
  if (version) fmt::print("nvrtc: {} (compiles for sm_75 to sm_120, with or without a GPU)\n", *version);
  else fmt::print("no NVRTC: {}\n", version.error().message);
  return 0;
}

}  // namespace

std::function<Outcome()> add_inspect(CLI::App& app) {
  auto a = std::make_shared<InspectArgs>();
  app.add_option("model", a->model, "MODEL.onnx or FILE.ingot")->required();
  app.add_option("--target", a->targets, "decides limits and layouts")->delimiter(',');
  app.add_option("--batch", a->batch, "for the sizes of dynamic models");
  app.add_flag("--json", a->json, "");
  app.add_flag("--explain", a->explain, "why neighbouring groups are apart");
  app.add_flag("--kernels", a->source, "the kernel IR of each group");
  a->common.add(app);
  return [a]() -> Outcome {
    const bool engine = a->model.size() > 6 && a->model.substr(a->model.size() - 6) == ".ingot";
    return engine ? inspect_engine(a->model, a->json) : inspect_model(*a);
  };
}

std::function<Outcome()> add_ops(CLI::App& app) {
  auto a = std::make_shared<OpsArgs>();
  app.add_flag("--markdown", a->markdown, "as docs/operators.md");
  return [a] { return run_ops(*a); };
}

std::function<Outcome()> add_devices(CLI::App&) { return run_devices; }

}  // namespace ingot::cli
