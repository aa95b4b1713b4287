// What a test asks of a sample kernel: under the emulator, that it agrees with the interpreter and the emulator finds nothing; of
// NVRTC, that the kernel compiles without spills, and that products by warpgroups stay in a row.
#pragma once

#include <catch2/catch.hpp>

#include <set>

#include "codegen/cuda/cuda_backend.h"
#include "codegen/cuda/nvrtc.h"
#include "tests/emulation/run_sample.h"

namespace ingot::samples {

inline void check_run(const Sample& sample, const EmittedKernel& emitted, uint64_t seed = 1) {
  INFO(sample.name << ", " << to_string(emitted.schedule) << "\n" << emitted.source);
  const auto outcome = run_sample(sample, emitted, seed);
  if (!outcome) FAIL(outcome.error().to_string());
  for (const std::string& fault : outcome.value().faults) FAIL_CHECK(fault);
  CHECK(outcome.value().worst_error <= sample.tolerance);
}

inline void check_schedule(const Sample& sample, const Schedule& schedule, int capability = 90) {
  auto emitted = emit_cuda(sample.kernel, cuda_traits(capability), schedule);
  if (!emitted) FAIL(sample.name << ": " << emitted.error().to_string());
  check_run(sample, emitted.value());
}

inline bool no_nvrtc() {
  if (nvrtc_version()) return false;
  WARN("skipped: " << nvrtc_version().error().to_string());
  return true;
}

inline void check_compiles(const Sample& sample, const EmittedKernel& emitted, const std::vector<std::string>& targets) {
  static std::set<std::pair<std::string, std::string>> seen;  // a text has one name
  for (const std::string& target : targets) {
    if (!seen.emplace(emitted.name, target).second) continue;
    INFO(sample.name << " for " << target << ", " << to_string(emitted.schedule) << "\n" << emitted.source);
    const auto compiled = compile_nvrtc(emitted.source, emitted.name, target);
    if (!compiled) {
      FAIL_CHECK(compiled.error().to_string());
      continue;
    }
    CHECK(compiled.value().spill_bytes == 0);
    INFO(compiled.value().log);
    // Products in a row, and registers as they were asked for. C7519 (an arrival is injected) costs nothing.
    for (const char* warning : {"C7508", "C7510", "C7514"}) CHECK(compiled.value().log.find(warning) == std::string::npos);
    CHECK(!compiled.value().code.empty());
  }
}

}  // namespace ingot::samples
