// Target names -> traits, and the backend of each.
#pragma once

#include "codegen/build_program.h"
#include "compiler/driver/options.h"
#include "compiler/support/target_traits.h"
#include "runtime/store.h"

namespace ingot {

/// The traits that passes and planners decide by: the host's for "cpu", those of the oldest CUDA target otherwise.
/// Error: an unknown name, or CPU and CUDA mixed.
Result<TargetTraits> traits_of(const std::vector<std::string>& targets);

/// The kernel compiler of the targets, going through the store.
Result<KernelCompiler> kernel_compiler(const std::vector<std::string>& targets, const TargetTraits& traits, std::shared_ptr<runtime::Store> store);

}  // namespace ingot
