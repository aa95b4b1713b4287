// What the tensor-core files of the emulator share: number formats, operand decoding, the product of a warp's rows.
#pragma once

#include "tests/emulation/core.h"

namespace ingot::emulation {

extern const float* const kHalf;  // the value of every binary16 pattern
inline float bf16_value(u16 v) { return __builtin_bit_cast(float, (u32)v << 16); }
inline float tf32_value(u32 v) { return __builtin_bit_cast(float, v & ~0x1fffu); }

/// Decodes rows [first, first + rows) of a wgmma operand into out[k][stride]; lists the 16-byte chunks that it used.
void decode(Cta& c, u64 desc, int type, int mn_major, u32 first, u32 rows, float* out, u32 stride,
            std::vector<u16>& chunks);

/// A decoded B operand; the four warps, and the warpgroups of a cooperative tile, read the same one.
struct Panel {
  u64 desc = 0, version = ~0ull;
  Cta* cta = nullptr;
  int n = 0, type = 0, mn = 0;
  std::vector<u16> chunks;
  alignas(64) float v[16 * 256];
};
Panel& panel_of(Cta& c, u64 desc, int n, int type, int mn);

/// c[16][n] += a[K][16]^T b[K][n]
void multiply(float* c, int n, const float* a, const float* b, int K);

}  // namespace ingot::emulation
