// The small float formats of tensor cores and of storage.
#include "tests/emulation/wgmma.h"

namespace ingot::emulation {

static float half_value(u16 h) {
  const u32 s = (u32)(h & 0x8000) << 16, e = h >> 10 & 31, m = h & 1023;
  float f;
  if (e == 31) return __builtin_bit_cast(float, s | 0x7f800000u | m << 13);
  if (e) return __builtin_bit_cast(float, s | (e + 112) << 23 | m << 13);
  f = (float)m * 5.9604644775390625e-8f;
  return s ? -f : f;
}
static const float* half_table() {
  static std::vector<float> t = [] {
    std::vector<float> v(65536);
    for (u32 i = 0; i < 65536; ++i) v[i] = half_value((u16)i);
    return v;
  }();
  return t.data();
}
const float* const kHalf = half_table();

extern "C" float emu_from_f16(u16 v) { return kHalf[v]; }
extern "C" u16 emu_to_bf16(float f) {
  const u32 u = __builtin_bit_cast(u32, f);
  if ((u & 0x7fffffff) > 0x7f800000) return 0x7fff;
  return (u16)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}
extern "C" u16 emu_to_f16(float f) { return __builtin_bit_cast(u16, (_Float16)f); }

}  // namespace ingot::emulation
