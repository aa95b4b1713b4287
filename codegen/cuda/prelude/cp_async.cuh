// Copies from global to shared memory that need no register (sm_80 and up); plain loads and stores before that.
#pragma once
#include "prelude/memory.cuh"

/// Copies 16 bytes; those beyond `bytes` are zero and are not read.
INGOT_DEV void cp_async16(u32 to, const void* from, u32 bytes = 16) {
  INGOT_HOST(emu_cp_async(to, from, bytes);)
  INGOT_PTX(
    if constexpr (kArch >= 80) {
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
    } else {
      Vec<u8, 16> v;
      if (bytes == 16) {
        v = bits_as<Vec<u8, 16>>(*(const uint4*)from);
      } else {
        for (u32 i = 0; i < 16; ++i) v[i] = i < bytes ? ((const u8*)from)[i] : 0;
      }
      sts(to, v);
    })
}
/// The same for 4 or 8 bytes: either all of them, or zeros.
template <int Bytes> INGOT_DEV void cp_async_some(u32 to, const void* from, u32 bytes) {
  static_assert(Bytes == 4 || Bytes == 8 || Bytes == 16, "cp.async copies 4, 8 or 16 bytes");
  if constexpr (Bytes == 16) {
    cp_async16(to, from, bytes);
  } else {
    const bool inside = bytes != 0;
    INGOT_HOST(emu_cp_async_some(to, from, Bytes, inside);)
    INGOT_PTX(
      if constexpr (kArch >= 80) {
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(from), "n"(Bytes),
                     "r"(inside ? Bytes : 0) : "memory");
      } else {
        Vec<u8, Bytes> v = {};
        if (inside) v = load_vec<Bytes>((const u8*)from);
        sts(to, v);
      })
  }
}
INGOT_DEV void cp_async_commit() {
  INGOT_HOST(emu_cp_async_commit();)
  INGOT_PTX(if constexpr (kArch >= 80) asm volatile("cp.async.commit_group;" ::: "memory");)
}
/// Waits until all but the newest N groups of this thread have landed.
template <int N> INGOT_DEV void cp_async_wait() {
  INGOT_HOST(emu_cp_async_wait(N);)
  INGOT_PTX(if constexpr (kArch >= 80) asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");)
}
