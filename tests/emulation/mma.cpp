// mma.sync, ldmatrix and stmatrix: functions of a whole warp.
#include "tests/emulation/wgmma.h"

#include <algorithm>

namespace ingot::emulation {

extern "C" void emu_mma(int type, void* d, const u32* a, const u32* b) {
  HERE();
  Warp& w = *me().warp;
  const u32 l = me().lane;
  w.dst[l] = d;
  w.ptr[l] = a;
  w.slot[l] = (u64)(size_t)b;
  if (!collective(6)) return;
  const bool eight = type >= 3;
  const int K = k_of(type);
  float A[16][32], B[32][8];
  for (u32 i = 0; i < 32; ++i) {
    const u32 g = i / 4, t = i % 4;
    const u32* pa = (const u32*)w.ptr[i];
    const u32* pb = (const u32*)(size_t)w.slot[i];
    for (u32 q = 0; q < 4; ++q) {
      const u32 row = g + (q & 1) * 8, hi = q >> 1;
      if (type == 2) A[row][t + 4 * hi] = tf32_value(pa[q]);
      else if (eight)
        for (u32 e = 0; e < 4; ++e) A[row][4 * t + 16 * hi + e] = eight_bits(type_of_a(type), (u8)(pa[q] >> 8 * e));
      else
        for (u32 e = 0; e < 2; ++e) {
          const u16 v = (u16)(pa[q] >> 16 * e);
          A[row][2 * t + 8 * hi + e] = type ? bf16_value(v) : kHalf[v];
        }
    }
    for (u32 q = 0; q < 2; ++q) {
      if (type == 2) B[t + 4 * q][g] = tf32_value(pb[q]);
      else if (eight)
        for (u32 e = 0; e < 4; ++e) B[4 * t + 16 * q + e][g] = eight_bits(type_of_b(type), (u8)(pb[q] >> 8 * e));
      else
        for (u32 e = 0; e < 2; ++e) {
          const u16 v = (u16)(pb[q] >> 16 * e);
          B[2 * t + 8 * q + e][g] = type ? bf16_value(v) : kHalf[v];
        }
    }
  }
  for (u32 i = 0; i < 32; ++i)
    for (u32 q = 0; q < 4; ++q) {
      const u32 row = i / 4 + (q >> 1) * 8, col = i % 4 * 2 + (q & 1);
      float s = 0;
      float& sum = ((float*)w.dst[i])[q];
      for (int k = 0; k < K; ++k) {
        s += A[row][k] * B[k][col];  // bytes: at most 32*255*255 < 2^24, exact
        if (!is_f8(type) || k % kF8Together != kF8Together - 1) continue;
        sum = cut_f8_sum(sum + s);
        s = 0;
      }
      if (is_bytes(type)) ((u32*)w.dst[i])[q] += (u32)(int)s;  // wraps
      else sum += s;
    }
  collective_finish();
}
static void count_conflicts(const u32* addr) {  // 8 rows of 16 bytes should fall on 8 different groups of 4 banks
  for (u32 q = 0; q < 4; ++q) {
    u32 hits[8] = {}, most = 0;
    for (u32 i = 0; i < 8; ++i) most = std::max(most, ++hits[addr[q * 8 + i] / 16 % 8]);
    rt.res.bank_conflicts += most - 1;
  }
}
extern "C" void emu_ldmatrix4(u32 adr, u32* r, int trans) {
  HERE();
  Warp& w = *me().warp;
  const u32 l = me().lane;
  w.addr[l] = adr;
  w.dst[l] = r;
  if (!collective(7)) return;
  Cta& c = *w.cta;
  u16 m[4][8][8];
  count_conflicts(w.addr);
  for (u32 i = 0; i < 32; ++i) {
    if (w.addr[i] % 16) {
      fault("misaligned", "ldmatrix row at +%u", w.addr[i] - kSharedBase);
      die();
    }
    if (!in_shared(c, w.addr[i], 16, "ldmatrix")) die();
    check_read(c, w.addr[i], 16, w, "ldmatrix");
    std::memcpy(m[i / 8][i % 8], c.sh->mem.p + w.addr[i], 16);
  }
  for (u32 i = 0; i < 32; ++i)
    for (u32 q = 0; q < 4; ++q) {
      const u32 x = i / 4, y = i % 4 * 2;
      ((u32*)w.dst[i])[q] = trans ? m[q][y][x] | (u32)m[q][y + 1][x] << 16 : m[q][x][y] | (u32)m[q][x][y + 1] << 16;
    }
  collective_finish();
}
extern "C" void emu_stmatrix4(u32 adr, const u32* r) {
  HERE();
  Warp& w = *me().warp;
  const u32 l = me().lane;
  w.addr[l] = adr;
  w.ptr[l] = r;
  if (!collective(8)) return;
  Cta& c = *w.cta;
  u32 m[32][4];
  count_conflicts(w.addr);
  for (u32 i = 0; i < 32; ++i)
    for (u32 q = 0; q < 4; ++q) m[q * 8 + i / 4][i % 4] = ((const u32*)w.ptr[i])[q];
  for (u32 i = 0; i < 32; ++i) {
    if (w.addr[i] % 16) {
      fault("misaligned", "stmatrix row at +%u", w.addr[i] - kSharedBase);
      die();
    }
    if (!in_shared(c, w.addr[i], 16, "stmatrix")) die();
    check_write(c, w.addr[i], 16, w, "stmatrix");
    std::memcpy(c.sh->mem.p + w.addr[i], m[i], 16);
  }
  collective_finish();
}

}  // namespace ingot::emulation
