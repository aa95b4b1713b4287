#include "codegen/cuda/cuda_backend.h"

#include <fmt/format.h>

#include "codegen/cuda/cuda_printer.h"
#include "codegen/cuda/nvrtc.h"
#include "codegen/cuda/plan_cuda.h"
#include "codegen/cuda/prelude.h"
#include "codegen/text/kernel_name.h"

namespace ingot {

Result<EmittedKernel> emit_cuda(const Kernel& kernel, const TargetTraits& target, const Schedule& schedule) {
  const std::string text = INGOT_TRY(print_cuda(kernel, schedule));
  const CudaLaunch launch = INGOT_TRY(cuda_launch(kernel, schedule));
  if (launch.shared_bytes > target.shared_bytes) {
    return unsupported(fmt::format("kernel {} needs {} bytes of shared memory; {} has {}", kernel.name,
                                   launch.shared_bytes, target.name, target.shared_bytes));
  }
  EmittedKernel out;
  out.name = kernel_name(kernel.name, text);
  const std::string header = header_comment(kernel, out.name, schedule, target.name);
  out.source = header + replace_all(text, kPlaceholderName, out.name);
  out.threads = launch.threads;
  out.shared_bytes = launch.shared_bytes;
  out.grid = launch.grid;
  out.uses_i32 = fits_i32(kernel);
  out.schedule = schedule;
  return out;
}

Result<EmittedKernel> emit_cuda(const Kernel& kernel, const TargetTraits& target) {
  return emit_cuda(kernel, target, plan_cuda(kernel, target));
}

Result<std::vector<runtime::KernelBinary>> compile_cuda(const EmittedKernel& kernel,
                                                        std::span<const std::string> targets) {
  std::vector<runtime::KernelBinary> binaries;
  for (const std::string& target : targets) {
    if (target == kSourceTarget) {
      binaries.push_back({target, {kernel.source.begin(), kernel.source.end()}});
      continue;
    }
    auto compiled = compile_nvrtc(kernel.source, kernel.name, target);
    if (!compiled) {
      compiled.error().add(fmt::format("compiling {} for {}", kernel.name, target));
      return compiled.error();
    }
    binaries.push_back({target, std::move(compiled.value().code)});
  }
  return binaries;
}

std::string cuda_cache_text(const EmittedKernel& kernel) {
  const size_t body = kernel.source.find("#include");
  std::string text = body == std::string::npos ? kernel.source : kernel.source.substr(body);
  for (const EmbeddedFile& f : prelude_includes(kernel.source)) text += fmt::format("\n// {}\n{}", f.name, f.text);
  return text;
}

}  // namespace ingot
