// compile, refit, opt.
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "compiler/driver/cli.h"
#include "compiler/driver/reference.h"
#include "compiler/driver/refit.h"
#include "compiler/driver/targets.h"
#include "compiler/driver/tuning.h"
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
std::string notes_of(const std::vector<Compilation>& all, const std::string& model, const CompileOptions& o) {
  nlohmann::json j;
  j["model"] = std::filesystem::path(model).filename();
  j["model_hash"] = file_hash(model);
  j["nodes"] = all[0].model_nodes;
  j["precision"] = o.precision;
  for (const Compilation& c : all) {
    nlohmann::json reasons = nlohmann::json::array();
    for (const Refusal& r : c.refusals) reasons.push_back({r.producer, r.consumer, r.reason});
    nlohmann::json program{{"target", c.program.target}, {"kernels", steps_of(c.program)}, {"refusals", reasons}};
    for (const TunedKernel& t : c.tuned)
      program["tuned"].push_back({{"kernel", t.kernel},
                                  {"at", t.at},
                                  {"plan", t.plan},
                                  {"us", t.us},
                                  {"default_plan", t.default_plan},
                                  {"default_us", t.default_us},
                                  {"measured", t.measured},
                                  {"dropped", t.dropped}});
    j["programs"].push_back(std::move(program));
  }
  return j.dump();
}

/// The program, and those of its parts.
template <class F>
void for_each_program(const runtime::Program& program, F f) {
  f(program);
  for (const auto& part : program.parts) f(*part);
}

/// Bytes of weights, those that several programs share once.
uint64_t weight_bytes(const std::vector<Compilation>& all) {
  std::set<TensorPtr> distinct;
  for (const Compilation& c : all)
    for_each_program(c.program, [&](const runtime::Program& p) {
      for (const auto& constant : p.constants) distinct.insert(constant.data);
    });
  uint64_t total = 0;
  for (const TensorPtr& t : distinct) total += t->bytes();
  return total;
}

struct CompileArgs {
  CommonOptions common;
  TuneOptions tune;
  std::string model, output;
  std::vector<std::string> targets{"cpu"};
  bool explain = false, no_ptx = false, no_refit = false;
  int streams = 4;
};

void print_compilation(const Compilation& c) {
  int32_t lanes = 1;
  size_t launches = 0;
  for_each_program(c.program, [&](const runtime::Program& p) {
    launches += steps_of(p);
    lanes = std::max(lanes, lanes_of(p));
  });
  if (!c.scripts.empty()) fmt::print("  its course is decided at run time: {} parts; it cannot be refitted\n", c.parts.size());
  fmt::print("  {}: {} kernels after fusion{}; import {:.0f} ms, passes {:.0f} ms, kernels {:.0f} ms\n", c.program.target,
             launches, lanes > 1 ? fmt::format(" on {} streams", lanes) : "", c.import_ms, c.passes_ms, c.codegen_ms);
}

Outcome run_compile(const CompileArgs& a) {
  CompileOptions o = INGOT_TRY(a.common.to_compile());
  INGOT_TRY(target_groups(a.targets));
  o.targets = a.no_ptx ? a.targets : with_ptx(a.targets);
  o.lanes = a.streams;
  INGOT_TRY(a.tune.apply(o));
  if (o.tune_seconds) INGOT_TRY(check_tuning_target(o));
  const std::vector<Compilation> all = INGOT_TRY(compile_for_targets(a.model, o));
  runtime::EngineFile file;
  for (const Compilation& c : all) file.programs.push_back(std::make_shared<const runtime::Program>(c.program));
  file.notes = notes_of(all, a.model, o);
  if (!a.no_refit && all[0].scripts.empty()) file.folding = INGOT_TRY(record_folding(a.model, o));
  INGOT_TRY(runtime::save_engine(file, a.output));
  fmt::print("{}: {} nodes in the model; weights {}, file {}\n", a.output, all[0].model_nodes, human_bytes(static_cast<double>(weight_bytes(all))),
             human_bytes(static_cast<double>(std::filesystem::file_size(a.output))));
  for (const Compilation& c : all) {
    print_compilation(c);
    print_tuning(c.tuned);
  }
  const auto& fixed = all[0].import.overridable;
  if (!fixed.empty()) fmt::print("  note: {} initialisers that a caller could override are constants here: \"{}\"{}\n", fixed.size(), fixed[0].name, fixed.size() > 1 ? " and so on" : "");
  if (a.explain)
    for (const Compilation& c : all)
      for (const Refusal& r : c.refusals) fmt::print("  {}: {} | {}: {}\n", c.program.target, r.producer, r.consumer, r.reason);
  return 0;
}

struct RefitArgs {
  std::string file, weights, output;
};

/// From a model, or from the arrays of an .npz by name.
Result<runtime::EngineFile> refit_from(const runtime::EngineFile& file, const std::string& path) {
  if (path.ends_with(".onnx")) return refit(file, INGOT_TRY(read_model(path)));
  Weights weights;
  for (NamedTensor& t : INGOT_TRY(read_tensors(path))) weights[t.name] = std::make_shared<const Tensor>(std::move(t.tensor));
  return refit(file, weights);
}

Outcome run_refit(const RefitArgs& a) {
  runtime::LoadOptions load;
  load.trust_host_code = true;  // copied, not run
  const runtime::EngineFile file = INGOT_TRY(runtime::load_engine(a.file, load));
  runtime::EngineFile fresh = INGOT_TRY(refit_from(file, a.weights));
  auto notes = nlohmann::json::parse(fresh.notes, nullptr, false);
  if (notes.is_object() && a.weights.ends_with(".onnx")) notes["model"] = std::filesystem::path(a.weights).filename(), notes["model_hash"] = file_hash(a.weights);
  else if (notes.is_object()) notes.erase("model_hash");
  if (notes.is_object()) fresh.notes = notes.dump();
  INGOT_TRY(runtime::save_engine(fresh, a.output));
  fmt::print("{}: the kernels of {} with the weights of {}\n", a.output, a.file, a.weights);
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
  app.add_option("--target", a->targets, "cpu, x86-64-v3 and the like, sm_75 … sm_120, sm_90a, ptx_75; several make one file for all of them")->delimiter(',');
  app.add_flag("--no-ptx", a->no_ptx, "leave out the PTX that lets newer GPUs run the file");
  app.add_flag("--no-refit", a->no_refit, "leave out the model's graph: the weights cannot be replaced then");
  app.add_option("--streams", a->streams, "GPUs: streams that independent branches may use")->check(CLI::Range(1, runtime::kMaxLanes));
  app.add_flag("--explain", a->explain, "why neighbouring groups are apart");
  a->common.add(app);
  a->tune.add(app);
  return [a] { return run_compile(*a); };
}

std::function<Outcome()> add_refit(CLI::App& app) {
  auto a = std::make_shared<RefitArgs>();
  app.add_option("file", a->file, "FILE.ingot")->required();
  app.add_option("--weights", a->weights, "MODEL.onnx of the same graph, or an .npz with every weight by its name in the model")->required();
  app.add_option("-o,--output", a->output, "NEW.ingot")->required();
  return [a] { return run_refit(*a); };
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
