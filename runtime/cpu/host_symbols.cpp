// The functions of this process that generated code may call.
#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>

#include "compiler/support/dtype.h"
#include "runtime/cpu/object_loader.h"

namespace ingot::runtime {
namespace {

void* allocate(int64_t bytes) {
  void* p = std::aligned_alloc(64, static_cast<size_t>(bytes + 127) / 64 * 64);
  INGOT_CHECK(p != nullptr, fmt::format("out of host memory for {} bytes of a kernel's scratch", bytes));
  return p;
}

// What LLVM calls for f16 on processors without conversion instructions.
float extend_half(_Float16 half) { return f16_to_float(std::bit_cast<uint16_t>(half)); }
_Float16 truncate_to_half(float value) { return std::bit_cast<_Float16>(float_to_f16(value)); }

template <class F>
void* address_of(F* f) {
  return reinterpret_cast<void*>(f);
}
using F1 = float(float);
using D1 = double(double);
using F2 = float(float, float);
using D2 = double(double, double);
#define INGOT_HOST_1(name) \
  {#name, address_of<D1>(::name)}, { #name "f", address_of<F1>(::name##f) }
#define INGOT_HOST_2(name) \
  {#name, address_of<D2>(::name)}, { #name "f", address_of<F2>(::name##f) }

const std::map<std::string, void*>& symbols() {
  static const std::map<std::string, void*> map = {
      INGOT_HOST_1(exp),
      INGOT_HOST_1(log),
      INGOT_HOST_1(tanh),
      INGOT_HOST_1(erf),
      INGOT_HOST_1(sin),
      INGOT_HOST_1(cos),
      INGOT_HOST_1(tan),
      INGOT_HOST_1(asin),
      INGOT_HOST_1(acos),
      INGOT_HOST_1(atan),
      INGOT_HOST_1(sinh),
      INGOT_HOST_1(cosh),
      INGOT_HOST_1(asinh),
      INGOT_HOST_1(acosh),
      INGOT_HOST_1(atanh),
      INGOT_HOST_1(log1p),
      INGOT_HOST_1(floor),
      INGOT_HOST_1(ceil),
      INGOT_HOST_1(nearbyint),
      INGOT_HOST_2(pow),
      INGOT_HOST_2(fmod),
      {"fma", address_of<double(double, double, double)>(::fma)},
      {"fmaf", address_of<float(float, float, float)>(::fmaf)},
      {"memcpy", address_of(&::memcpy)},
      {"memset", address_of(&::memset)},
      {"memmove", address_of(&::memmove)},
      {"ingot_allocate", address_of(&allocate)},
      {"ingot_free", address_of(&::free)},
      {"__extendhfsf2", address_of(&extend_half)},
      {"__truncsfhf2", address_of(&truncate_to_half)},
  };
  return map;
}
#undef INGOT_HOST_1
#undef INGOT_HOST_2

}  // namespace

void* host_symbol(const std::string& name) {
  const auto it = symbols().find(name);
  return it == symbols().end() ? nullptr : it->second;
}

}  // namespace ingot::runtime
