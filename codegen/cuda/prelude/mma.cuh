// Tensor cores by warp: mma.sync and the matrix loads and stores that feed it (f16, bytes and ldmatrix from sm_75, f8 from
// sm_89, all else from sm_80).
#pragma once
#include "prelude/types.cuh"

enum { kF16 = 0, kBF16 = 1, kTF32 = 2 };  // element types of the tensor-core functions
/// Operands of 8 bits, and what one of the other kind adds: without a sign, or e5m2 in place of e4m3.
enum { kS8 = 3, kE4M3 = 7, kOtherA = 1, kOtherB = 2 };

INGOT_DEV void ldmatrix4(u32 a, u32 (&r)[4]) {
  INGOT_PTX(asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(r[0]), "=r"(r[1]),
                         "=r"(r[2]), "=r"(r[3]) : "r"(a) : "memory");)
  INGOT_HOST(emu_ldmatrix4(a, r, 0);)
}
INGOT_DEV void ldmatrix4_trans(u32 a, u32 (&r)[4]) {
  INGOT_PTX(asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(r[0]),
                         "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(a) : "memory");)
  INGOT_HOST(emu_ldmatrix4(a, r, 1);)
}
INGOT_DEV void stmatrix4(u32 a, const u32 (&r)[4]) {
  INGOT_PTX(asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(a), "r"(r[0]),
                         "r"(r[1]), "r"(r[2]), "r"(r[3]) : "memory");)
  INGOT_HOST(emu_stmatrix4(a, r);)
}
#define MMA_BODY(text, c)                                                                        \
  asm volatile("mma.sync.aligned." text " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};" \
               : c(d[0]), c(d[1]), c(d[2]), c(d[3])                                              \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))
/// Half of mma_16816<kF16>: all that sm_75 has.
INGOT_DEV void mma_1688_f16(float (&d)[4], u32 a0, u32 a1, u32 b0) {
  INGOT_PTX(asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
                         : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a0), "r"(a1), "r"(b0));)
}
template <int Type>
INGOT_DEV void mma_16816(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {  // kF16 or kBF16
  INGOT_PTX(if constexpr (kArch < 80) {
              mma_1688_f16(d, a[0], a[1], b[0]);
              mma_1688_f16(d, a[2], a[3], b[1]);
            } else if constexpr (Type == kF16) MMA_BODY("m16n8k16.row.col.f32.f16.f16.f32", "+f");
            else MMA_BODY("m16n8k16.row.col.f32.bf16.bf16.f32", "+f");)
  INGOT_HOST(emu_mma(Type, d, a, b);)
}
INGOT_DEV void mma_1688_tf32(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
  INGOT_PTX(MMA_BODY("m16n8k8.row.col.f32.tf32.tf32.f32", "+f");) INGOT_HOST(emu_mma(kTF32, d, a, b);)
}
#define MMA_QUARTER(types)                                                                                          \
  asm volatile("mma.sync.aligned.m8n8k16.row.col.s32." types ".s32 {%0,%1}, {%2}, {%3}, {%0,%1};" \
               : "+r"(d0), "+r"(d1) : "r"(a), "r"(b))
/// A quarter of mma_16832 for bytes: all that sm_75 has.
template <int Type> INGOT_DEV void mma_8816(int& d0, int& d1, u32 a, u32 b) {
  INGOT_PTX(if constexpr (Type == kS8) MMA_QUARTER("s8.s8");
            else if constexpr (Type == kS8 + kOtherA) MMA_QUARTER("u8.s8");
            else if constexpr (Type == kS8 + kOtherB) MMA_QUARTER("s8.u8");
            else MMA_QUARTER("u8.u8");)
}
#undef MMA_QUARTER
template <int Type> INGOT_DEV void mma_16832(int (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {  // bytes; sums wrap
  INGOT_PTX(if constexpr (kArch < 80) {
              mma_8816<Type>(d[0], d[1], a[0], b[0]);
              mma_8816<Type>(d[2], d[3], a[1], b[0]);
              mma_8816<Type>(d[0], d[1], a[2], b[1]);
              mma_8816<Type>(d[2], d[3], a[3], b[1]);
            } else if constexpr (Type == kS8) MMA_BODY("m16n8k32.row.col.s32.s8.s8.s32", "+r");
            else if constexpr (Type == kS8 + kOtherA) MMA_BODY("m16n8k32.row.col.s32.u8.s8.s32", "+r");
            else if constexpr (Type == kS8 + kOtherB) MMA_BODY("m16n8k32.row.col.s32.s8.u8.s32", "+r");
            else MMA_BODY("m16n8k32.row.col.s32.u8.u8.s32", "+r");)
  INGOT_HOST(emu_mma(Type, d, a, b);)
}
template <int Type> INGOT_DEV void mma_16832(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {  // f8
  INGOT_PTX(if constexpr (Type == kE4M3) MMA_BODY("m16n8k32.row.col.f32.e4m3.e4m3.f32", "+f");
            else if constexpr (Type == kE4M3 + kOtherA) MMA_BODY("m16n8k32.row.col.f32.e5m2.e4m3.f32", "+f");
            else if constexpr (Type == kE4M3 + kOtherB) MMA_BODY("m16n8k32.row.col.f32.e4m3.e5m2.f32", "+f");
            else MMA_BODY("m16n8k32.row.col.f32.e5m2.e5m2.f32", "+f");)
  INGOT_HOST(emu_mma(Type, d, a, b);)
}
/// The nearest tf32; NaN stays NaN.
INGOT_DEV u32 round_tf32(u32 x) {
  INGOT_PTX(u32 r; asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(bits_as<float>(x))); return r;)
  INGOT_HOST(if ((x & 0x7fffffff) > 0x7f800000) return 0x7fffffff;
             return (x & 0x7f800000) == 0x7f800000 ? x : (x + 0x1000) & 0xffffe000;)
}
#undef MMA_BODY
