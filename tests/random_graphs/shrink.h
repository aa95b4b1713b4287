// A failing case -> a small one that fails in the same way.
#pragma once

#include "tests/random_graphs/check_case.h"

namespace ingot::testing {

struct Shrunk {
  GraphCase smallest;
  CheckResult result;
  int tried = 0;
};
/// `fails` runs a case; one that fails like `first` is kept.
Shrunk shrink(const GraphCase& c, const CheckResult& first, const std::function<CheckResult(const GraphCase&)>& fails);

}  // namespace ingot::testing
