// Lowered kernels -> binaries and the program.
#include <fmt/format.h>

#include <chrono>
#include <fstream>
#include <map>
#include <thread>

#include "compiler/driver/session.h"
#include "compiler/driver/targets.h"
#include "compiler/driver/tuning.h"
#include "compiler/support/hash.h"

namespace ingot {
namespace {

Status compile_kernels(Compilation& c, const KernelCompiler& compiler, const BuildOptions& build) {
  c.program = INGOT_TRY(build_program(c.graph, c.plan, c.requirements, c.lowered, compiler, build));
  return {};
}
/// Every part, and what the model looks like from outside.
Status compile_parts(Compilation& c, const KernelCompiler& compiler, const BuildOptions& build) {
  for (Compilation& part : c.parts) INGOT_TRY(compile_kernels(part, compiler, build));
  c.program = INGOT_TRY(describe_interface(c.graph));
  c.program.scripts = c.scripts;
  for (Compilation& part : c.parts)
    c.program.parts.push_back(std::make_shared<const runtime::Program>(std::move(part.program)));
  return {};
}
Status compile_all(Compilation& c, const KernelCompiler& compiler, const BuildOptions& build) {
  return c.scripts.empty() ? compile_kernels(c, compiler, build) : compile_parts(c, compiler, build);
}

}  // namespace

Result<Compilation> compile_model(const std::string& path, const CompileOptions& o) {
  if (!o.until.empty()) return invalid("a compilation cannot stop before a pass; `opt --until` prints the graph there");
  Compilation c = INGOT_TRY(lower_model(path, o));
  const auto start = std::chrono::steady_clock::now();
  const TargetTraits traits = INGOT_TRY(traits_for(o));
  const auto store = std::make_shared<runtime::Store>();
  std::shared_ptr<const TunedPlans> plans;
  if (o.tune_seconds && traits.kind == TargetKind::Cuda) {
    Tuning tuning = INGOT_TRY(tune_model(c, o, traits, *store));
    c.tuned = std::move(tuning.tuned);
    plans = std::make_shared<const TunedPlans>(std::move(tuning.plans));
  }
  const KernelCompiler compiler = INGOT_TRY(kernel_compiler(o.targets, traits, store, plans));
  BuildOptions build;
  build.threads = o.threads > 0 ? o.threads : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  if (o.progress) build.progress = [&](size_t done, size_t total) { o.progress("kernels", done, total); };
  auto compiled = compile_all(c, compiler, build);
  if (!compiled && o.needs_values) o.needs_values(c.import.symbolic);
  if (!compiled) return std::move(compiled.error().add("while compiling " + path));
  for (const std::string& t : o.targets) c.program.target += (c.program.target.empty() ? "" : ",") + t;
  if (!o.dump_dir.empty())
    for (const runtime::KernelInfo& k : c.program.kernels)
      if (!k.source.empty()) std::ofstream(fmt::format("{}/{}.cu", o.dump_dir, k.name)) << k.source;
  c.codegen_ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  return c;
}

Result<std::vector<Compilation>> compile_for_targets(const std::string& path, const CompileOptions& options) {
  std::vector<Compilation> all;
  std::map<std::string, TensorPtr> known;  // by content
  for (const std::vector<std::string>& group : INGOT_TRY(target_groups(options.targets))) {
    CompileOptions o = options;
    o.targets = group;
    if (!o.dump_dir.empty() && !all.empty()) o.dump_dir += "-" + group[0];
    all.push_back(INGOT_TRY(compile_model(path, o)));
    Compilation& c = all.back();
    for (runtime::ConstantInfo& constant : c.program.constants)
      constant.data = known.emplace(hash_bytes(constant.data->data(), constant.data->bytes()).hex() +
                                        describe(constant.type, constant.dims), constant.data).first->second;
    c.graph = Graph();  // it holds its constants
  }
  return all;
}

Result<Compilation> compile_names(const OnnxModel& model, const CompileOptions& o) {
  Compilation c = INGOT_TRY(lower_model(model, o));
  c.program = INGOT_TRY(build_program(c.graph, c.plan, c.requirements, c.lowered, kernel_namer(INGOT_TRY(traits_for(o))), {}));
  return c;
}

Result<Compilation> compile_interface(const std::string& path, const CompileOptions& o) {
  Compilation c = INGOT_TRY(lower_model(path, o));
  const KernelCompiler nothing = [](const Kernel& k) -> Result<std::vector<BuiltKernel>> {
    BuiltKernel b;
    b.info.name = b.info.summary = k.name;
    return std::vector{b};
  };
  const Status compiled = compile_all(c, nothing, {});
  if (!compiled && o.needs_values) o.needs_values(c.import.symbolic);
  INGOT_TRY(compiled);
  return c;
}

}  // namespace ingot
