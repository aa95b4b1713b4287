// LLVM as a library: a module becomes a relocatable object, an object becomes a function. The only file that names ORC.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "compiler/support/result.h"
#include "compiler/support/target_traits.h"
#include "runtime/cpu/cpu_device.h"

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

/// Links objects into this process. Thread-safe; the code stays while its owner does.
class OrcJit {
 public:
  static Result<std::shared_ptr<OrcJit>> create();
  ~OrcJit();
  Result<runtime::CpuCode> load(const std::vector<uint8_t>& object, const std::string& function);

 private:
  struct State;
  explicit OrcJit(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;
};

/// A loader for runtime::CpuDevice that links the first binary of each kernel that this machine can run.
Result<runtime::CpuLoader> make_cpu_loader();

}  // namespace ingot
