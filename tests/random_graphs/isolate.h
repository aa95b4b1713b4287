// Work in a process of its own: a crash or an endless loop there is a result, not the end of the run.
#pragma once

#include <functional>
#include <optional>

#include "tests/random_graphs/check_case.h"

namespace ingot::testing {

/// check_case in a child. Crash and Hang come from here, with what the child printed last.
CheckResult check_isolated(const GraphCase& c, const std::vector<Variant>& variants, double seconds);

/// Calls work(i) for i from first to last in a child and hands each result to `done`. Stops at the first that crashes, hangs or
/// is refused, which gets such a result; returns the index after the last one done.
uint64_t check_range(uint64_t first, uint64_t last, double seconds, const std::function<CheckResult(uint64_t)>& work,
                     const std::function<void(uint64_t, const CheckResult&)>& done);

}  // namespace ingot::testing
