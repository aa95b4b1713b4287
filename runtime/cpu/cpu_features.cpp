#include "runtime/cpu/cpu_features.h"

#include <cpuid.h>

#include <array>

namespace ingot::runtime {
namespace {

enum Register : uint8_t { kEax, kEbx, kEcx, kEdx };
/// What the operating system must save for a feature to be usable.
enum Needs : uint8_t { kNothing, kAvxState, kAvx512State };

struct Row {
  const char* name;
  uint32_t leaf, subleaf;
  Register reg;
  uint8_t bit;
  Needs needs = kNothing;
};

constexpr Row kRows[] = {
    {"64bit", 0x80000001, 0, kEdx, 29},
    {"cx8", 1, 0, kEdx, 8},
    {"cmov", 1, 0, kEdx, 15},
    {"mmx", 1, 0, kEdx, 23},
    {"fxsr", 1, 0, kEdx, 24},
    {"sse", 1, 0, kEdx, 25},
    {"sse2", 1, 0, kEdx, 26},
    {"sse3", 1, 0, kEcx, 0},
    {"ssse3", 1, 0, kEcx, 9},
    {"fma", 1, 0, kEcx, 12, kAvxState},
    {"cx16", 1, 0, kEcx, 13},
    {"sse4.1", 1, 0, kEcx, 19},
    {"sse4.2", 1, 0, kEcx, 20},
    {"crc32", 1, 0, kEcx, 20},
    {"movbe", 1, 0, kEcx, 22},
    {"popcnt", 1, 0, kEcx, 23},
    {"avx", 1, 0, kEcx, 28, kAvxState},
    {"f16c", 1, 0, kEcx, 29, kAvxState},
    {"bmi", 7, 0, kEbx, 3},
    {"avx2", 7, 0, kEbx, 5, kAvxState},
    {"bmi2", 7, 0, kEbx, 8},
    {"avx512f", 7, 0, kEbx, 16, kAvx512State},
    {"avx512dq", 7, 0, kEbx, 17, kAvx512State},
    {"adx", 7, 0, kEbx, 19},
    {"avx512ifma", 7, 0, kEbx, 21, kAvx512State},
    {"avx512cd", 7, 0, kEbx, 28, kAvx512State},
    {"avx512bw", 7, 0, kEbx, 30, kAvx512State},
    {"avx512vl", 7, 0, kEbx, 31, kAvx512State},
    {"avx512vbmi", 7, 0, kEcx, 1, kAvx512State},
    {"avx512vbmi2", 7, 0, kEcx, 6, kAvx512State},
    {"gfni", 7, 0, kEcx, 8},
    {"avx512vnni", 7, 0, kEcx, 11, kAvx512State},
    {"avx512bitalg", 7, 0, kEcx, 12, kAvx512State},
    {"avx512vpopcntdq", 7, 0, kEcx, 14, kAvx512State},
    {"avx512fp16", 7, 0, kEdx, 23, kAvx512State},
    {"avxvnni", 7, 1, kEax, 4, kAvxState},
    {"avx512bf16", 7, 1, kEax, 5, kAvx512State},
    {"sahf", 0x80000001, 0, kEcx, 0},
    {"lzcnt", 0x80000001, 0, kEcx, 5},
};

std::array<uint32_t, 4> query(uint32_t leaf, uint32_t subleaf) {
  std::array<uint32_t, 4> r{};
  if (leaf > __get_cpuid_max(leaf & 0x80000000u, nullptr)) return r;
  __cpuid_count(leaf, subleaf, r[kEax], r[kEbx], r[kEcx], r[kEdx]);
  return r;
}

/// The register states that the operating system saves (XCR0).
uint64_t saved_states() {
  constexpr uint32_t kOsxsave = 1u << 27;
  if (!(query(1, 0)[kEcx] & kOsxsave)) return 0;
  uint32_t low = 0, high = 0;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (uint64_t{high} << 32) | low;
}

bool all_present(std::string_view list, std::string* missing) {
  bool all = true;
  for (size_t comma; (comma = list.find(',')) != std::string_view::npos; list.remove_prefix(comma + 1)) {
    const std::string_view name = list.substr(0, comma);
    if (cpu_has(name)) continue;
    all = false;
    if (missing) *missing += (missing->empty() ? "" : ", ") + std::string(name);
  }
  return all;
}

}  // namespace

const std::vector<CpuFeature>& cpu_features() {
  static const std::vector<CpuFeature> features = [] {
    const uint64_t states = saved_states();
    const auto saved = [&](uint64_t mask) { return (states & mask) == mask; };
    std::vector<CpuFeature> list;
    for (const Row& row : kRows) {
      const bool os = row.needs == kNothing || saved(row.needs == kAvxState ? 0x6 : 0xe6);
      list.push_back({row.name, os && (query(row.leaf, row.subleaf)[row.reg] >> row.bit & 1)});
    }
    return list;
  }();
  return features;
}

bool cpu_has(std::string_view feature) {
  for (const CpuFeature& f : cpu_features())
    if (f.name == feature) return f.present;
  return false;
}

std::string missing_cpu_features(std::span<const uint8_t> object) {
  const std::string_view bytes(reinterpret_cast<const char*>(object.data()), object.size());
  const size_t at = bytes.find(kFeatureMark);
  if (at == std::string_view::npos) return "a note of what it needs";
  const std::string_view rest = bytes.substr(at + kFeatureMark.size());
  std::string missing;
  all_present(rest.substr(0, rest.find('\0')), &missing);
  return missing;
}

std::string features_of_level(std::string_view level) {
  const std::string v1 = "64bit,cx8,cmov,mmx,fxsr,sse,sse2,", v2 = v1 + "cx16,sahf,popcnt,sse3,ssse3,sse4.1,sse4.2,";
  const std::string v3 = v2 + "avx,avx2,bmi,bmi2,f16c,fma,lzcnt,movbe,";
  if (level == "x86-64") return v1;
  if (level == "x86-64-v2") return v2;
  if (level == "x86-64-v3") return v3;
  if (level == "x86-64-v4") return v3 + "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,";
  return "";
}

int cpu_level() {
  int level = 1;
  for (const char* name : {"x86-64-v2", "x86-64-v3", "x86-64-v4"}) {
    if (!all_present(features_of_level(name), nullptr)) break;
    ++level;
  }
  return level;
}

}  // namespace ingot::runtime
