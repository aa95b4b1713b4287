// Target names -> traits, and the backend of each.
#pragma once

#include <map>
#include <string>

#include "codegen/build_program.h"
#include "compiler/driver/options.h"
#include "compiler/support/target_traits.h"
#include "runtime/store.h"

namespace ingot {

/// The traits that passes and planners decide by: the host's for "cpu", those of the oldest CUDA target otherwise.
/// Error: an unknown name, or CPU and CUDA mixed: those are two programs (target_groups).
Result<TargetTraits> traits_of(const std::vector<std::string>& targets);

/// The traits that kernels of these options are planned by: those of its targets, and what its precision allows.
Result<TargetTraits> traits_for(const CompileOptions& options);
/// Targets that share traits, and so one program: "sm_86" and "sm_87". In the order of the engine file, without repeats.
/// Error: a name that is no target.
Result<std::vector<std::vector<std::string>>> target_groups(std::vector<std::string> targets);
/// The targets, and PTX for GPUs newer than any of them or between them: of the newest target that is not for one chip
/// only, and of each one before a target that is.
std::vector<std::string> with_ptx(std::vector<std::string> targets);

struct EmittedKernel;
struct PlannedKernel;
/// Forms in place of the planner's, by the kernel's text (tuning.h).
using TunedPlans = std::map<std::string, PlannedKernel>;
/// The kernel compiler of the targets, going through the store.
Result<KernelCompiler> kernel_compiler(const std::vector<std::string>& targets, const TargetTraits& traits,
                                       std::shared_ptr<runtime::Store> store,
                                       std::shared_ptr<const TunedPlans> tuned = nullptr);
/// One form, compiled through the store.
Result<BuiltKernel> build_cuda(const Kernel& kernel, const EmittedKernel& emitted,
                               const std::vector<std::string>& targets, runtime::Store* store);
/// The places of a kernel's binaries in the store: all that decides them, by name.
struct NamedKey {
  std::string kernel;
  runtime::StoreKey key;
};
Result<std::vector<NamedKey>> store_keys(const Kernel& kernel, const std::vector<std::string>& targets, const TargetTraits& traits);
/// Plans and names kernels like kernel_compiler's, and compiles nothing.
KernelCompiler kernel_namer(const TargetTraits& traits);

}  // namespace ingot
