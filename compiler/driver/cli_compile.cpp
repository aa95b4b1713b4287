// compile, opt.
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "compiler/driver/cli.h"
#include "compiler/driver/reference.h"
#include "compiler/ir/text.h"
#include "compiler/ops/registry.h"
#include "compiler/support/hash.h"
#include "runtime/engine_file.h"

namespace ingot::cli {
namespace {

std::string file_hash(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream s;
  s << in.rdbuf();
  return hash_text(s.str()).hex();
}

/// What the engine file remembers of its making. No dates and no paths: the same input gives the same bytes.
std::string notes_of(const Compilation& c, const std::string& model) {
  nlohmann::json j;
  j["model"] = std::filesystem::path(model).filename();
  j["model_hash"] = file_hash(model);
  j["nodes"] = c.model_nodes;
  j["kernels"] = c.program.instructions.size();
  j["target"] = c.program.target;
  j["precision"] = "as the model says";
  nlohmann::json reasons = nlohmann::json::array();
  for (const Refusal& r : c.refusals) reasons.push_back({r.producer, r.consumer, r.reason});
  j["refusals"] = reasons;
  return j.dump();
}

uint64_t weight_bytes(const runtime::Program& p) {
  uint64_t total = 0;
  for (const auto& c : p.constants) total += c.data->bytes();
  return total;
}

struct CompileArgs {
  CommonOptions common;
  std::string model, output;
  std::vector<std::string> targets{"cpu"};
  bool explain = false;
};

Outcome run_compile(const CompileArgs& a) {
  CompileOptions o = INGOT_TRY(a.common.to_compile());
  o.targets = a.targets;
  const Compilation c = INGOT_TRY(compile_model(a.model, o));
  INGOT_TRY(runtime::save_engine(c.program, notes_of(c, a.model), a.output));
  fmt::print("{}: {} nodes in the model, {} kernels after fusion, target {}\n", a.output, c.model_nodes, c.program.instructions.size(), c.program.target);
  fmt::print("  weights {}, file {}; import {:.0f} ms, passes {:.0f} ms, kernels {:.0f} ms\n", human_bytes(static_cast<double>(weight_bytes(c.program))),
             human_bytes(static_cast<double>(std::filesystem::file_size(a.output))), c.import_ms, c.passes_ms, c.codegen_ms);
  for (const Overridable& v : c.import.overridable) fmt::print("  note: initialiser \"{}\" could be overridden by a caller; it is a constant here\n", v.name);
  if (a.explain)
    for (const Refusal& r : c.refusals) fmt::print("  {} | {}: {}\n", r.producer, r.consumer, r.reason);
  return 0;
}

struct OptArgs {
  CommonOptions common;
  std::string model, until;
  bool timing = false;
};

Outcome run_opt(const OptArgs& a) {
  CompileOptions o = INGOT_TRY(a.common.to_compile());
  o.until = a.until;
  o.verify_passes = true;
  if (a.model.size() > 3 && a.model.substr(a.model.size() - 3) == ".ir") {
    std::ifstream in(a.model);
    if (!in) return make_error(ErrorKind::NotFound, fmt::format("cannot read {}", a.model));
    std::stringstream text;
    text << in.rdbuf();
    auto parsed = parse_graph(text.str(), find_op);
    if (!parsed) return std::move(parsed.error().add("in " + a.model));
    PassContext ctx;
    ctx.evaluate = evaluate_node;
    INGOT_TRY(run_pipeline(*parsed, ctx, {o.until, o.skip, o.dump_dir, true}));
    fmt::print("{}", print_graph(*parsed));
    return 0;
  }
  const Compilation c = INGOT_TRY(lower_model(a.model, o));
  fmt::print("{}", print_graph(c.graph));
  if (a.timing)
    for (const PassTrace& t : c.passes) fmt::print(stderr, "{:<16} {:8.2f} ms  {:>6} nodes  {}\n", t.name, t.ms, t.nodes, t.changed ? "changed" : "");
  return 0;
}

}  // namespace

std::function<Outcome()> add_compile(CLI::App& app) {
  auto a = std::make_shared<CompileArgs>();
  app.add_option("model", a->model, "MODEL.onnx")->required();
  app.add_option("-o,--output", a->output, "FILE.ingot")->required();
  app.add_option("--target", a->targets, "cpu, or CUDA targets: sm_75 … sm_120, sm_90a, ptx_75")->delimiter(',');
  app.add_flag("--explain", a->explain, "why neighbouring groups are apart");
  a->common.add(app);
  return [a] { return run_compile(*a); };
}

std::function<Outcome()> add_opt(CLI::App& app) {
  auto a = std::make_shared<OptArgs>();
  app.add_option("model", a->model, "MODEL.onnx or GRAPH.ir")->required();
  std::string names;
  for (const Pass& p : pipeline()) names += (names.empty() ? "" : ", ") + std::string(p.name);
  app.add_option("--until", a->until, "stop before this pass: " + names);
  app.add_flag("--timing", a->timing, "time of each pass, to stderr");
  a->common.add(app);
  return [a] { return run_opt(*a); };
}

}  // namespace ingot::cli
