// What the tensor-core files of the emulator share: number formats, operand decoding, the product of a warp's rows.
#pragma once

#include "tests/emulation/core.h"

namespace ingot::emulation {

extern const float* const kHalf;  // the value of every binary16 pattern
inline float bf16_value(u16 v) { return __builtin_bit_cast(float, (u32)v << 16); }
inline float tf32_value(u32 v) { return __builtin_bit_cast(float, v & ~0x1fffu); }

/// Bytes are of type 3, and 1 more where A, 2 more where B has no sign; f8 of type 7 (e4m3), and as much more for e5m2.
inline bool is_f8(int type) { return type >= 7; }
inline bool is_bytes(int type) { return type >= 3 && !is_f8(type); }
inline int first_of_kind(int type) { return is_f8(type) ? 7 : 3; }
inline int type_of_a(int type) { return type >= 3 ? first_of_kind(type) + ((type - 3) & 1) : type; }
inline int type_of_b(int type) { return type >= 3 ? first_of_kind(type) + (((type - 3) >> 1) & 1) : type; }
inline int k_of(int type) { return type == 2 ? 8 : type >= 3 ? 32 : 16; }
/// The value of 8 bits, of the type of one operand.
float eight_bits(int type, u8 bits);
/// The sum of f8 products as tensor cores keep it: 14 bits of it, after every 8 products (which agrees with what sums of squares
/// lose on an H200).
constexpr int kF8Together = 8;
inline float cut_f8_sum(float sum) { return __builtin_bit_cast(float, __builtin_bit_cast(u32, sum) & ~0x3ffu); }

/// Decodes rows [first, first + rows) of a wgmma operand into out[k][stride]; lists the 16-byte chunks that it used.
void decode(Cta& c, u64 desc, int type, int mn_major, u32 first, u32 rows, float* out, u32 stride,
            std::vector<u16>& chunks);  // type: of that operand

/// A decoded B operand; the four warps, and the warpgroups of a cooperative tile, read the same one.
struct Panel {
  u64 desc = 0, version = ~0ull;
  Cta* cta = nullptr;
  int n = 0, type = 0, mn = 0;
  std::vector<u16> chunks;
  alignas(64) float v[32 * 256];
};
Panel& panel_of(Cta& c, u64 desc, int n, int type, int mn);

/// c[16][n] += a[K][16]^T b[K][n]
void multiply(float* c, int n, const float* a, const float* b, int K);

}  // namespace ingot::emulation
