// LLVM as a library: CPU targets, and a module that becomes a relocatable object. runtime/cpu/object_loader.h makes the
// object a function.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compiler/support/result.h"
#include "compiler/support/target_traits.h"

namespace llvm {
class Module;
}

namespace ingot {

/// The traits of "cpu" (the host) or of a level: "x86-64-v2", "x86-64-v3" (AVX2), "x86-64-v4" (AVX-512).
Result<TargetTraits> cpu_traits(const std::string& name = "cpu");
/// Processor and features that objects for `traits` are compiled for: part of a cache key. Includes the LLVM version.
std::string cpu_fingerprint(const TargetTraits& traits);

namespace cpu {

/// Optimises the module and compiles it. Thread-safe for modules of different contexts.
Result<std::vector<uint8_t>> compile_object(llvm::Module& module, const TargetTraits& traits);

}  // namespace cpu
}  // namespace ingot
