// What the lanes of one warp do together. All 32 lanes must be there.
#pragma once
#include "prelude/types.cuh"

template <class T> INGOT_DEV T shfl(T v, int lane) {
  INGOT_PTX(return __shfl_sync(~0u, v, lane);)
  INGOT_HOST(return emu_shfl(v, 0, lane);)
}
/// A value that is the same in all lanes, known to be so by the compiler.
INGOT_DEV int warp_uniform(int v) { return shfl(v, 0); }
template <class T> INGOT_DEV T shfl_xor(T v, int mask) {
  INGOT_PTX(
    if constexpr (sizeof(T) < 4) return (T)__shfl_xor_sync(~0u, (int)v, mask);
    else return __shfl_xor_sync(~0u, v, mask);)
  INGOT_HOST(return emu_shfl(v, 1, mask);)
}
template <class T> INGOT_DEV T shfl_down(T v, int n) {
  INGOT_PTX(return __shfl_down_sync(~0u, v, n);)
  INGOT_HOST(return emu_shfl(v, 2, n);)
}
INGOT_DEV u32 ballot(bool p) { INGOT_PTX(return __ballot_sync(~0u, p);) INGOT_HOST(return emu_ballot(p);) }
INGOT_DEV bool warp_any(bool p) { return ballot(p) != 0; }
INGOT_DEV bool warp_all(bool p) { return ballot(p) == ~0u; }
INGOT_DEV int lowest_bit(u32 bits) { INGOT_PTX(return __ffs((int)bits) - 1;) INGOT_HOST(return __builtin_ctz(bits);) }
/// True in one lane of a converged warp.
INGOT_DEV bool elect_one() {
  u32 r;
  INGOT_PTX(asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\nselp.u32 %0, 1, 0, p;\n}" : "=r"(r));)
  INGOT_HOST(r = emu_elect();)
  return r != 0;
}
