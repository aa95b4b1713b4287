// Operands of wgmma in shared memory, by descriptor, and the multiplication of a warp's 16 rows.
#include "tests/emulation/wgmma.h"

#include <array>
#include <cmath>

namespace ingot::emulation {

// Byte address (before swizzling) of the 16-byte chunk that holds row r (M or N index), k-chunk c (K-major), or of k
// row r, chunk c along M/N (MN-major). Layouts of the wgmma shared-memory descriptor; the swizzle is an exclusive-or of
// address bits.
struct Desc {
  u32 start, lbo, sbo, swz, width;
};
static Desc parse(u64 d) {
  Desc x{(u32)(d & 0x3fff) << 4, (u32)(d >> 16 & 0x3fff) << 4, (u32)(d >> 32 & 0x3fff) << 4, (u32)(d >> 62), 0};
  x.width = x.swz == 1 ? 128 : x.swz == 2 ? 64 : x.swz == 3 ? 32 : 16;
  if (d >> 49 & 7) {
    fault("bad-descriptor", "base offset is not 0");
    die();
  }
  return x;
}
static u32 phys(const Desc& x, u32 a) {
  return x.swz == 1   ? a ^ ((a >> 7 & 7) << 4)
         : x.swz == 2 ? a ^ ((a >> 7 & 3) << 4)
         : x.swz == 3 ? a ^ ((a >> 7 & 1) << 4)
                      : a;
}
static u32 k_major(const Desc& x, u32 row, u32 c) {
  return x.swz ? x.start + row / 8 * x.sbo + row % 8 * x.width + c * 16
               : x.start + row / 8 * x.sbo + row % 8 * 16 + c * x.lbo;
}
static u32 mn_major(const Desc& x, u32 k, u32 c) {  // c: chunk of 8 elements along M/N
  const u32 per = x.width / 16;
  return x.swz ? x.start + c / per * x.lbo + k / 8 * x.sbo + k % 8 * x.width + c % per * 16
               : x.start + c * x.sbo + k / 8 * x.lbo + k % 8 * 16;
}
/// e4m3 or e5m2.
static float f8_value(u8 bits, int mantissa, int bias) {
  const int exponent = (bits & 0x7f) >> mantissa, rest = bits & ((1 << mantissa) - 1);
  const float sign = bits & 0x80 ? -1.0f : 1.0f;
  if (mantissa == 3 ? (bits & 0x7f) == 0x7f : exponent == 31 && rest) return NAN;
  if (mantissa == 2 && exponent == 31) return sign * INFINITY;
  const float fraction = (float)rest / (float)(1 << mantissa);
  return sign * (exponent == 0 ? std::ldexp(fraction, 1 - bias) : std::ldexp(1 + fraction, exponent - bias));
}
float eight_bits(int type, u8 bits) {
  switch (type) {
    case 3: return (float)(signed char)bits;
    case 4: return (float)bits;
    case 7: return f8_value(bits, 3, 7);
    default: return f8_value(bits, 2, 15);
  }
}
static float elem(int type, const u8* p, u32 i) {
  if (type == 2) {
    u32 v;
    std::memcpy(&v, p + 4 * i, 4);
    return tf32_value(v);
  }
  if (type >= 3) return eight_bits(type, p[i]);
  u16 v;
  std::memcpy(&v, p + 2 * i, 2);
  return type == 1 ? bf16_value(v) : kHalf[v];
}
// Decodes rows [r0, r0+rows) of an operand into out[k][ld]; lists the chunks it used.
void decode(Cta& c, u64 desc, int type, int mn, u32 r0, u32 rows, float* out, u32 ld, std::vector<u16>& chunks) {
  const Desc x = parse(desc);
  const u8* mem = c.sh->mem.p;
  const u32 K = (u32)k_of(type), per = K / 2;
  auto at = [&](u32 a) -> const u8* {
    const u32 p = phys(x, a);
    if (!in_shared(c, p, 16, "wgmma operand")) die();
    chunks.push_back((u16)(p / 16));
    return mem + p;
  };
  if (!mn) {
    for (u32 r = 0; r < rows; ++r)
      for (u32 q = 0; q < 2; ++q) {
        const u8* p = at(k_major(x, r0 + r, q));
        for (u32 i = 0; i < per; ++i) out[(q * per + i) * ld + r] = elem(type, p, i);
      }
  } else {
    for (u32 k = 0; k < K; ++k)
      for (u32 q = 0; q < rows / 8; ++q) {
        const u8* p = at(mn_major(x, k, r0 / 8 + q));
        for (u32 i = 0; i < 8; ++i) out[k * ld + q * 8 + i] = elem(type, p, i);
      }
  }
}
static std::array<Panel, 32> panels;  // the four warps, and the warpgroups of a cooperative tile, read the same B
Panel& panel_of(Cta& c, u64 desc, int n, int type, int mn) {
  Panel& p = panels[(desc ^ desc >> 8 ^ c.rank * 7) % panels.size()];
  if (p.desc != desc || p.version != c.sh->writes || p.cta != &c || p.n != n || p.type != type || p.mn != mn) {
    p.chunks.clear();
    decode(c, desc, type, mn, 0, (u32)n, p.v, (u32)n, p.chunks);
    p.desc = desc;
    p.version = c.sh->writes;
    p.cta = &c;
    p.n = n;
    p.type = type;
    p.mn = mn;
  }
  return p;
}
typedef float V8 __attribute__((vector_size(32), aligned(4)));
template <int NB>
static void multiply_block(float* c, int n, const float* a, const float* b, int K) {  // 4 rows x 8*NB columns
  V8 s[4][NB];
  for (int r = 0; r < 4; ++r)
    for (int j = 0; j < NB; ++j) s[r][j] = *(const V8*)(c + r * n + j * 8);
  for (int k = 0; k < K; ++k) {
    V8 x[NB];
    for (int j = 0; j < NB; ++j) x[j] = *(const V8*)(b + k * n + j * 8);
    for (int r = 0; r < 4; ++r) {
      const float f = a[k * 16 + r];
      for (int j = 0; j < NB; ++j) s[r][j] += f * x[j];
    }
  }
  for (int r = 0; r < 4; ++r)
    for (int j = 0; j < NB; ++j) *(V8*)(c + r * n + j * 8) = s[r][j];
}
void multiply(float* c, int n, const float* a, const float* b, int K) {  // c[16][n] += a[K][16]^T b[K][n]
  for (int r = 0; r < 16; r += 4) {
    int j = 0;
    for (; j + 32 <= n; j += 32) multiply_block<4>(c + r * n + j, n, a + r, b + j, K);
    for (; j < n; j += 8) multiply_block<1>(c + r * n + j, n, a + r, b + j, K);
  }
}

}  // namespace ingot::emulation
