// Model file -> lowered kernels: read, import, run the passes, plan memory, lower.
#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <fstream>

#include "compiler/driver/partition.h"
#include "compiler/driver/reference.h"
#include "compiler/driver/session.h"
#include "compiler/driver/targets.h"
#include "compiler/ir/text.h"
#include "passes/plan_memory.h"

namespace ingot {
namespace {

double ms_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

Status prepare_dump(const std::string& dir) {
  if (dir.empty()) return {};
  std::error_code ec;
  std::filesystem::create_directories(dir, ec);
  if (ec) return make_error(ErrorKind::Io, fmt::format("cannot make the dump folder {}: {}", dir, ec.message()));
  return {};
}

void dump_kernels(const Compilation& c, const std::string& dir) {
  if (dir.empty()) return;
  for (size_t i = 0; i < c.lowered.kernels.size(); ++i)
    std::ofstream(fmt::format("{}/kernel-{:03}-{}.kir", dir, i, c.lowered.kernels[i].name.substr(0, 60)))
        << to_string(c.lowered.kernels[i]);
  std::ofstream plan(dir + "/memory-plan.txt");
  for (size_t s = 0; s < c.plan.slot_bytes.size(); ++s)
    plan << fmt::format("slot {}: {} bytes\n", s, to_string(c.plan.slot_bytes[s]));
}

/// The type of values between kernels.
Result<DType> stored_precision(const std::string& name) {
  if (name == "fp32" || name == "tf32") return DType::F32;
  if (name == "fp16") return DType::F16;
  if (name == "bf16") return DType::BF16;
  return invalid(fmt::format("precision {}: there are fp32, tf32, fp16 and bf16", name));
}

/// The imported graph of c through the passes to lowered kernels.
Status lower_graph(Compilation& c, const CompileOptions& o, const TargetTraits& target) {
  const auto start = std::chrono::steady_clock::now();
  PassContext ctx;
  ctx.target = target;
  ctx.evaluate = evaluate_node;
  ctx.fuse = o.fuse;
  ctx.precision = INGOT_TRY(stored_precision(o.precision));
  ctx.refusals = &c.refusals;
  c.requirements = shape_requirements(c.graph);
  PipelineOptions pipeline_options{o.until, o.skip, o.dump_dir, o.verify_passes};
  c.passes = INGOT_TRY(run_pipeline(c.graph, ctx, pipeline_options));
  c.passes_ms = ms_since(start);
  if (!o.until.empty()) return {};
  if (auto fused = verify(c.graph, Stage::Fused); !fused)
    return invalid("a pass that lowering needs was skipped: " + fused.error().message +
                   "; `opt` prints the graph without it");
  c.plan = plan_memory(c.graph, target.kind == TargetKind::Cuda ? o.lanes : 1);
  c.lowered = INGOT_TRY(lower_program(c.graph, c.plan));
  if (target.kind == TargetKind::Cuda) overlap_launches(c.graph, c.plan, c.lowered);
  dump_kernels(c, o.dump_dir);
  return {};
}

/// A model whose course is decided at run time: each part by itself.
Status lower_parts(Compilation& c, const CompileOptions& o, const TargetTraits& target) {
  Partition cut = INGOT_TRY(partition(c.graph));
  c.scripts = std::move(cut.scripts);
  c.script_names = std::move(cut.names);
  for (Graph& g : cut.parts) {
    Compilation part;
    part.graph = std::move(g);
    CompileOptions own = o;
    if (!o.dump_dir.empty()) own.dump_dir = fmt::format("{}/part-{:03}", o.dump_dir, c.parts.size());
    INGOT_TRY(prepare_dump(own.dump_dir));
    INGOT_TRY(lower_graph(part, own, target));
    c.parts.push_back(std::move(part));
  }
  return {};
}

}  // namespace

Result<Compilation> lower_model(const std::string& path, const CompileOptions& o) {
  const auto start = std::chrono::steady_clock::now();
  const OnnxModel model = INGOT_TRY(read_model(path));
  const double read_ms = ms_since(start);
  Compilation c = INGOT_TRY(lower_model(model, o));
  c.import_ms += read_ms;
  return c;
}

Result<Compilation> lower_model(const OnnxModel& model, const CompileOptions& o) {
  Compilation c;
  INGOT_TRY(prepare_dump(o.dump_dir));
  const TargetTraits target = INGOT_TRY(traits_of(o.targets));
  const auto start = std::chrono::steady_clock::now();
  ImportOptions import;
  import.shapes = o.shapes;
  import.constants = o.constants;
  auto graph = import_graph(model, import, &c.import);
  if (!graph && o.needs_values) o.needs_values(c.import.deciding.empty() ? c.import.symbolic : c.import.deciding);
  c.graph = INGOT_TRY(std::move(graph));
  if (c.graph.name.empty()) c.graph.name = std::filesystem::path(model.path()).stem();
  c.model_nodes = c.import.nodes;
  c.import_ms = ms_since(start);

  const Status lowered = needs_partition(c.graph) ? lower_parts(c, o, target) : lower_graph(c, o, target);
  if (!lowered && o.needs_values) o.needs_values(c.import.symbolic);
  INGOT_TRY(lowered);
  return c;
}

}  // namespace ingot
