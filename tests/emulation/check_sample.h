// Runs a sample kernel under the emulator, and fails the test unless it agrees with the interpreter and the emulator has found
// nothing.
#pragma once

#include <catch2/catch.hpp>

#include "tests/emulation/run_sample.h"

namespace ingot::samples {

inline void check_run(const Sample& sample, const EmittedKernel& emitted, uint64_t seed = 1) {
  INFO(sample.name << ", " << to_string(emitted.schedule) << "\n" << emitted.source);
  const auto outcome = run_sample(sample, emitted, seed);
  if (!outcome) FAIL(outcome.error().to_string());
  for (const std::string& fault : outcome.value().faults) FAIL_CHECK(fault);
  CHECK(outcome.value().worst_error <= sample.tolerance);
}

}  // namespace ingot::samples
