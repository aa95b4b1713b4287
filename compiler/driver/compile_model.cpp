// Lowered kernels -> binaries and the program.
#include <fmt/format.h>

#include <chrono>
#include <fstream>
#include <thread>

#include "compiler/driver/session.h"
#include "compiler/driver/targets.h"

namespace ingot {

Result<Compilation> compile_model(const std::string& path, const CompileOptions& o) {
  if (!o.until.empty()) return invalid("a compilation cannot stop before a pass; `opt --until` prints the graph there");
  Compilation c = INGOT_TRY(lower_model(path, o));
  const auto start = std::chrono::steady_clock::now();
  const TargetTraits traits = INGOT_TRY(traits_of(o.targets));
  const auto store = std::make_shared<runtime::Store>();
  const KernelCompiler compiler = INGOT_TRY(kernel_compiler(o.targets, traits, store));
  BuildOptions build;
  build.threads = o.threads > 0 ? o.threads : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  if (o.progress) build.progress = [&](size_t done, size_t total) { o.progress("kernels", done, total); };
  auto program = build_program(c.graph, c.plan, c.requirements, c.lowered, compiler, build);
  if (!program) return std::move(program.error().add("while compiling " + path));
  c.program = std::move(*program);
  for (const std::string& t : o.targets) c.program.target += (c.program.target.empty() ? "" : ",") + t;
  if (!o.dump_dir.empty())
    for (const runtime::KernelInfo& k : c.program.kernels)
      if (!k.source.empty()) std::ofstream(fmt::format("{}/{}.cu", o.dump_dir, k.name)) << k.source;
  c.codegen_ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  return c;
}

Result<Compilation> compile_interface(const std::string& path, const CompileOptions& o) {
  Compilation c = INGOT_TRY(lower_model(path, o));
  const KernelCompiler nothing = [](const Kernel& k) -> Result<BuiltKernel> {
    BuiltKernel b;
    b.info.name = b.info.summary = k.name;
    return b;
  };
  c.program = INGOT_TRY(build_program(c.graph, c.plan, c.requirements, c.lowered, nothing, {}));
  return c;
}

}  // namespace ingot
