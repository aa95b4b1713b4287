// One case through its variants.
#pragma once

#include "tests/random_graphs/expected.h"
#include "tests/random_graphs/variants.h"

namespace ingot::testing {

enum class Fault : uint8_t { None, Wrong, Refused, Crash, Hang, BadCase };
const char* name_of(Fault fault);

struct CheckResult {
  Fault fault = Fault::None;
  std::string variant, text;  // which one, and what is wrong
  int64_t runs = 0, elements = 0, unknown = 0, loose = 0, rescued = 0;
};

/// Stops at the first fault. BadCase: the graph is none (a shrunk one whose dims do not fit), which is no fault of the compiler.
CheckResult check_case(const GraphCase& c, const std::vector<Variant>& variants);

/// The comparison's own test: damages one element of a correct output and compares again. Text of what went unnoticed.
std::string test_comparison(const GraphCase& c);

}  // namespace ingot::testing
