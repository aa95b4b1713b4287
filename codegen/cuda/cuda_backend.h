// The CUDA backend: kernel IR in, named CUDA text and binaries out. The only header of codegen/cuda that the program
// builder needs, besides nvrtc.h for versions.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "codegen/backend.h"
#include "compiler/support/result.h"
#include "compiler/support/target_traits.h"
#include "runtime/program.h"

namespace ingot {

/// Plans and prints. Kernel::name is the stem of the name ("conv_add_relu"); the result's name has the content's hash. Several
/// forms where the sizes are known at run time only: launched one after the other, all but one have nothing to do.
Result<std::vector<EmittedKernel>> emit_cuda(const Kernel& kernel, const TargetTraits& target);
/// A kernel as the backend works on it, and its forms.
struct PlannedKernel {
  Kernel kernel;
  std::vector<Schedule> forms;
};
PlannedKernel plan_kernel(const Kernel& kernel, const TargetTraits& target);
Result<std::vector<EmittedKernel>> emit_forms(const PlannedKernel& planned, const TargetTraits& target);
/// Prints with a given schedule (an override, a tuning candidate).
Result<EmittedKernel> emit_cuda(const Kernel& kernel, const TargetTraits& target, const Schedule& schedule);

/// A target whose binary is the text itself: what the emulator's driver takes. No compiler runs.
constexpr const char* kSourceTarget = "source";

/// One binary for each target: "sm_80", "sm_90a" give a CUBIN, "ptx_75" gives PTX, kSourceTarget the text.
Result<std::vector<runtime::KernelBinary>> compile_cuda(const EmittedKernel& kernel,
                                                        std::span<const std::string> targets);

/// The text that decides the binary, for cache keys: the kernel without its header comment, and the prelude files that
/// it includes.
std::string cuda_cache_text(const EmittedKernel& kernel);

}  // namespace ingot
