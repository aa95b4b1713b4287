// Tensor cores by warpgroup (sm_90a): asynchronous products of 64 rows with operands in shared memory or registers.
#pragma once
#include "prelude/mma.cuh"

enum { kSwizzleNone = 0, kSwizzle128 = 1, kSwizzle64 = 2, kSwizzle32 = 3 };  // as in the wgmma descriptor

// INGOT_WGMMA(N) declares, for one width N:
//   wgmma<type, TransA, TransB>(float (&d)[N/2], descA, descB, scale_d)      A and B in shared memory; Trans: 0
//   K-major, 1 MN-major wgmma_ra<type, TransB>(float (&d)[N/2], a[4], descB, scale_d)         A in registers
//   wgmma_bytes<type>(int (&d)[N/2], descA, descB, scale_d)                  bytes, both K-major; sums wrap
//   wgmma_bytes<type>(float (&d)[N/2], descA, descB, scale_d)                f8, both K-major
INGOT_DEV u64 wgmma_desc(u32 addr, u32 lbo, u32 sbo, u32 swizzle) {
  return (u64)((addr & 0x3FFFF) >> 4) | ((u64)(lbo >> 4) << 16) | ((u64)(sbo >> 4) << 32) | ((u64)swizzle << 62);
}
/// The descriptor of what lies so many bytes further on: shared memory ends before the address in it would.
INGOT_DEV u64 wgmma_further(u64 first, u32 bytes) {
  return (first & ~(u64)0xFFFFFFFF) | ((u32)first + (bytes >> 4));
}
INGOT_DEV void wgmma_fence() {
  INGOT_PTX(asm volatile("wgmma.fence.sync.aligned;" :: : "memory");) INGOT_HOST(emu_wgmma_fence();)
}
INGOT_DEV void wgmma_commit() {
  INGOT_PTX(asm volatile("wgmma.commit_group.sync.aligned;" :: : "memory");) INGOT_HOST(emu_wgmma_commit();)
}
template <int N>
INGOT_DEV void wgmma_wait() {
  INGOT_PTX(asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");) INGOT_HOST(emu_wgmma_wait(N);)
}
/// After the last wait: the compiler reads the accumulators only from here on.
template <int L> INGOT_DEV void wgmma_results(float (&d)[L]) {
#pragma unroll
  for (int i = 0; i < L; ++i) { INGOT_PTX(asm volatile("" : "+f"(d[i]) :: "memory");) }
}
template <int L> INGOT_DEV void wgmma_results(int (&d)[L]) {
#pragma unroll
  for (int i = 0; i < L; ++i) { INGOT_PTX(asm volatile("" : "+r"(d[i]) :: "memory");) }
}
/// After the wait for the products that read A from these registers. The compiler takes a product for done where it is started:
/// without this it may put the next values of a loop in their place.
template <int S> INGOT_DEV void wgmma_operands(const u32 (&a)[S][4]) {
#pragma unroll
  for (int i = 0; i < S * 4; ++i) { INGOT_PTX(asm volatile("" ::"r"(a[i / 4][i % 4]) : "memory");) }
}
#ifdef INGOT_EMULATE
#define INGOT_WGMMA(N)
template <int Type, int TransA, int TransB, int L>
INGOT_DEV void wgmma(float (&d)[L], u64 da, u64 db, int scale_d) {
  emu_wgmma(d, L * 2, Type, da, nullptr, db, TransA, TransB, scale_d);
}
template <int Type, class Sum, int L> INGOT_DEV void wgmma_bytes(Sum (&d)[L], u64 da, u64 db, int scale_d) {
  emu_wgmma((float*)d, L * 2, Type, da, nullptr, db, 0, 0, scale_d);
}
template <int Type, int TransB, int L>
INGOT_DEV void wgmma_ra(float (&d)[L], const u32 (&a)[4], u64 db, int scale_d) {
  emu_wgmma(d, L * 2, Type, 0, a, db, 0, TransB, scale_d);
}
#else
#include "prelude/wgmma_registers.cuh"
#define WG_HEAD(sd) "{\n.reg .pred p;\nsetp.ne.b32 p, " sd ", 0;\nwgmma.mma_async.sync.aligned."
#define WG_BYTES(N, types, i0, i1, i2)                                                                             \
  asm volatile(WG_HEAD(i2) "m64n" #N "k32.s32." types " {" WG_R##N "}, " i0 ", " i1 ", p;\n}"                       \
               : WG_O##N("+r", d)                                                                                    \
               : "l"(da), "l"(db), "r"(sd))
#define WG_F8(N, types, i0, i1, i2)                                                                                \
  asm volatile(WG_HEAD(i2) "m64n" #N "k32.f32." types " {" WG_R##N "}, " i0 ", " i1 ", p, 1, 1;\n}"                 \
               : WG_O##N("+f", d)                                                                                    \
               : "l"(da), "l"(db), "r"(sd))
#define WG_DEF(N, L, i0, i1, i2, i3, i4, i5, i6)                                                                      \
  template <int Type, int TransA, int TransB>                                                                         \
  INGOT_DEV void wgmma(float(&d)[L], u64 da, u64 db, int sd) {                                                        \
    if constexpr (Type == kF16)                                                                                       \
      asm volatile(WG_HEAD(i2) "m64n" #N "k16.f32.f16.f16 {" WG_R##N "}, " i0 ", " i1 ", p, 1, 1, " i3 ", " i4 ";\n}" \
                   : WG_O##N("+f", d)                                                                                       \
                   : "l"(da), "l"(db), "r"(sd), "n"(TransA), "n"(TransB));                                            \
    else if constexpr (Type == kBF16)                                                                                 \
      asm volatile(WG_HEAD(i2) "m64n" #N "k16.f32.bf16.bf16 {" WG_R##N "}, " i0 ", " i1 ", p, 1, 1, " i3 ", " i4      \
                                                                       ";\n}"                                         \
                   : WG_O##N("+f", d)                                                                                       \
                   : "l"(da), "l"(db), "r"(sd), "n"(TransA), "n"(TransB));                                            \
    else                                                                                                              \
      asm volatile(WG_HEAD(i2) "m64n" #N "k8.f32.tf32.tf32 {" WG_R##N "}, " i0 ", " i1 ", p, 1, 1;\n}"                \
                   : WG_O##N("+f", d)                                                                                       \
                   : "l"(da), "l"(db), "r"(sd));                                                                      \
  }                                                                                                                   \
  template <int Type> INGOT_DEV void wgmma_bytes(int(&d)[L], u64 da, u64 db, int sd) {                                \
    if constexpr (Type == kS8) WG_BYTES(N, "s8.s8", i0, i1, i2);                                                      \
    else if constexpr (Type == kS8 + kOtherA) WG_BYTES(N, "u8.s8", i0, i1, i2);                                       \
    else if constexpr (Type == kS8 + kOtherB) WG_BYTES(N, "s8.u8", i0, i1, i2);                                       \
    else WG_BYTES(N, "u8.u8", i0, i1, i2);                                                                            \
  }                                                                                                                   \
  template <int Type> INGOT_DEV void wgmma_bytes(float(&d)[L], u64 da, u64 db, int sd) {                              \
    if constexpr (Type == kE4M3) WG_F8(N, "e4m3.e4m3", i0, i1, i2);                                                   \
    else if constexpr (Type == kE4M3 + kOtherA) WG_F8(N, "e5m2.e4m3", i0, i1, i2);                                    \
    else if constexpr (Type == kE4M3 + kOtherB) WG_F8(N, "e4m3.e5m2", i0, i1, i2);                                    \
    else WG_F8(N, "e5m2.e5m2", i0, i1, i2);                                                                           \
  }                                                                                                                   \
  template <int Type, int TransB>                                                                                     \
  INGOT_DEV void wgmma_ra(float(&d)[L], const u32(&a)[4], u64 db, int sd) {                                           \
    if constexpr (Type == kF16)                                                                                       \
      asm volatile(WG_HEAD(i5) "m64n" #N "k16.f32.f16.f16 {" WG_R##N "}, {" i0 ", " i1 ", " i2 ", " i3 "}, " i4       \
                                                                     ", p, 1, 1, " i6 ";\n}"                          \
                   : WG_O##N("+f", d)                                                                                       \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(db), "r"(sd), "n"(TransB));                      \
    else if constexpr (Type == kBF16)                                                                                 \
      asm volatile(WG_HEAD(i5) "m64n" #N "k16.f32.bf16.bf16 {" WG_R##N "}, {" i0 ", " i1 ", " i2 ", " i3 "}, " i4     \
                                                                       ", p, 1, 1, " i6 ";\n}"                        \
                   : WG_O##N("+f", d)                                                                                       \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(db), "r"(sd), "n"(TransB));                      \
    else                                                                                                              \
      asm volatile(WG_HEAD(i5) "m64n" #N "k8.f32.tf32.tf32 {" WG_R##N "}, {" i0 ", " i1 ", " i2 ", " i3 "}, " i4      \
                                                                      ", p, 1, 1;\n}"                                 \
                   : WG_O##N("+f", d)                                                                                       \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(db), "r"(sd));                                   \
  }
#define INGOT_WGMMA_CAT(N) INGOT_WGMMA_##N
#define INGOT_WGMMA(N) INGOT_WGMMA_CAT(N)
#endif
