// The CPU backend: kernel IR to an x86-64 object through LLVM. runtime/cpu/object_loader.h links the result,
// runtime/cpu/cpu_device.h runs it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "codegen/kernel/kernel.h"
#include "codegen/llvm/object_compiler.h"

namespace ingot {

/// Changes when the same kernel gives other code: part of a cache key.
constexpr int kCpuGeneratorVersion = 4;

/// How a kernel is launched: cheap, without LLVM, and the same as emit_cpu's. An Error says what cannot run on the CPU.
struct CpuLaunch {
  Expr tasks;  // over the kernel's dims: Instruction::grid[0]
  int64_t scratch_bytes = 0;  // KernelInfo::scratch_bytes
  std::string summary;  // "contract 11x32 panels, 6 tiles", for explanations
};
Result<CpuLaunch> plan_cpu(const Kernel& kernel, const TargetTraits& traits);

struct EmittedCpuKernel {
  std::string name;
  std::vector<uint8_t> object;
  CpuLaunch launch;
  std::string llvm_ir;  // as emitted, before optimisation; empty unless asked for
};
/// Compiles one kernel. Thread-safe. An object depends only on the kernel's text, cpu_fingerprint(traits) and
/// kCpuGeneratorVersion.
Result<EmittedCpuKernel> emit_cpu(const Kernel& kernel, const TargetTraits& traits, bool want_ir = false);

}  // namespace ingot
