// inspect, ops, devices.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <tuple>

#include "codegen/cuda/nvrtc.h"
#include "codegen/llvm/object_compiler.h"
#include "compiler/driver/cli.h"
#include "compiler/driver/cli_inspection.h"
#include "compiler/driver/devices.h"
#include "compiler/ops/registry.h"

namespace ingot::cli {
namespace {

struct InspectArgs {
  CommonOptions common;
  std::string model, html;
  std::vector<std::string> targets{"cpu"};
  bool json = false, explain = false, source = false;
  int64_t batch = 1;
};

/// "12 conv_relu": how --explain names a launch.
std::string launch_name(const PartView& p, NodeId id) {
  const auto& order = p.fused.plan.order;
  const auto at = static_cast<size_t>(std::find(order.begin(), order.end(), id) - order.begin());
  return fmt::format("{} {}", p.first + at, p.fused.lowered.kernels[at].name);
}

void print_kernels(const PartView& p, bool source) {
  const Compilation& c = p.fused;
  for (size_t k = 0; k < p.kernels.size(); ++k) {
    fmt::print("  {:>4}  {:<12} {:>10} {:>12} flop  {}\n", p.first + k,
               c.graph.node(c.plan.order[k]).attrs.as<FusedAttrs>().kind,
               human_bytes(static_cast<double>(p.kernels[k].bytes)), p.kernels[k].flops, c.lowered.kernels[k].name);
    if (source) fmt::print("{}", to_string(c.lowered.kernels[k]));
  }
}

void print_inspection(const Inspection& i, const InspectArgs& a) {
  fmt::print("{}: opset {}, {} nodes in the model, {} kernels after fusion ({} unfused)\n", a.model, i.opset,
             i.model_nodes, i.kernels, i.kernels_unfused);
  for (const auto& [name, type] : i.inputs) fmt::print("  input  {} {}\n", name, type);
  for (const auto& [name, type] : i.outputs) fmt::print("  output {} {}\n", name, type);
  size_t slots = 0;
  for (const PartView& p : i.parts) slots += p.slot_offsets.size();
  fmt::print("  bytes moved {} -> {} (every input, weight and output once: {}); arena {} in {} slots\n",
             human_bytes(static_cast<double>(i.bytes_before)), human_bytes(static_cast<double>(i.bytes_after)),
             human_bytes(static_cast<double>(i.bytes_floor)), human_bytes(static_cast<double>(i.arena_bytes)), slots);
  if (!i.scripts.empty())
    fmt::print("  decided at run time: {} parts, of which these figures count one run each\n{}", i.parts.size(),
               course_text(course_json(i)));
  for (const PartView& p : i.parts) print_kernels(p, a.source);
  if (!a.explain) return;
  for (const PartView& p : i.parts)
    for (const Neighbours& n : p.neighbours)
      fmt::print("  {} | {}: {}\n", launch_name(p, n.producer), launch_name(p, n.consumer), n.reason);
  fmt::print("  refused on the way:\n");
  for (const PartView& p : i.parts)
    for (const Refusal& r : p.fused.refusals) fmt::print("    {} | {}: {}\n", r.producer, r.consumer, r.reason);
}

Outcome inspect_model(const InspectArgs& a) {
  CompileOptions o = INGOT_TRY(a.common.to_compile());
  o.targets = a.targets;
  const Inspection inspection = INGOT_TRY(inspect(a.model, o, a.batch));
  if (!a.html.empty()) INGOT_TRY(write_page(inspection, a.html));
  if (a.json) fmt::print("{}\n", json_text(report_json(inspection), 1));
  else if (a.html.empty() || a.explain || a.source) print_inspection(inspection, a);
  else fmt::print("{}\n", a.html);
  return 0;
}

struct OpsArgs {
  bool markdown = false;
};
const char* lowering_name(const OpDef& d) {
  static constexpr const char* kNames[] = {"on import", "pointwise",   "movement",  "element",
                                           "reduction", "contraction", "composite", "fused"};
  return kNames[d.lower.index()];
}
Outcome run_ops(const OpsArgs& a) {
  std::vector<const OpDef*> rows;
  for (const OpDef* d : all_ops())
    if (!d->imports.empty()) rows.push_back(d);
  std::sort(rows.begin(), rows.end(),
            [](const OpDef* x, const OpDef* y) { return std::tie(x->domain, x->name) < std::tie(y->domain, y->name); });
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
      fmt::print("cuda:{}: {} {}, {} SMs, {}, driver {}.{}\n", g.ordinal, g.name, target_of(g.compute_capability),
                 g.multiprocessors, human_bytes(static_cast<double>(g.memory_bytes)), g.driver_version / 1000,
                 g.driver_version % 1000 / 10);
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
  app.add_option("--html", a->html, "writes a page: the graphs, kernels, roofline, memory and reasons, in one file");
  app.add_flag("--explain", a->explain, "why neighbouring groups are apart");
  app.add_flag("--kernels", a->source, "the kernel IR of each group");
  a->common.add(app);
  return [a]() -> Outcome {
    const bool engine = a->model.size() > 6 && a->model.substr(a->model.size() - 6) == ".ingot";
    if (engine && !a->html.empty()) return invalid("--html takes a model; an .ingot file has no graph");
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
