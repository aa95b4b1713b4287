// What this processor can do, by the names that LLVM uses: objects say which features they need, and a processor without
// them must not run them. No LLVM is linked here; codegen/llvm uses the same table, so that code never uses a feature
// whose presence cannot be tested.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ingot::runtime {

struct CpuFeature {
  std::string_view name;
  bool present = false;  // on this processor, and switched on by the operating system
};
/// Every feature that can be tested, in a fixed order.
const std::vector<CpuFeature>& cpu_features();
bool cpu_has(std::string_view feature);

/// The note that every object carries: this mark, then "avx2,fma,", then a zero.
constexpr std::string_view kFeatureMark = "ingot needs ";
/// The features that the object needs and this machine lacks, separated by commas; empty when it can run.
std::string missing_cpu_features(std::span<const uint8_t> object);

/// Features of a level: "x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4", as "avx2,fma,". Empty for other names.
std::string features_of_level(std::string_view level);
/// The highest level that this processor has: 1 to 4.
int cpu_level();

}  // namespace ingot::runtime
