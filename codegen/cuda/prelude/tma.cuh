// Tensor memory accelerator (sm_90): boxes of a tensor, described by a tensor map, move between global and shared
// memory without registers. Loads complete on an mbarrier; stores are waited for by bulk group.
#pragma once
#include "prelude/types.cuh"

/// A CUtensorMap by value; kernels take `const __grid_constant__ TensorMap`.
struct __align__(64) TensorMap {
  u64 d[16];
};

INGOT_DEV void tma_prefetch(const TensorMap* m) {
  INGOT_PTX(asm volatile("prefetch.tensormap [%0];" ::"l"(m) : "memory");) INGOT_HOST((void)m;)
}
#define TMA_LOAD(rank) "cp.async.bulk.tensor." #rank "d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], "
INGOT_DEV void tma_load2(u32 dst, const TensorMap* m, u32 bar, int x, int y) {
  INGOT_PTX(asm volatile(TMA_LOAD(2) "[%1, {%3, %4}], [%2];" ::"r"(dst), "l"(m), "r"(bar), "r"(x), "r"(y) : "memory");)
  INGOT_HOST(const int c[] = {x, y}; emu_tma_load(dst, m, bar, 2, c, 0, 0, -1);)
}
INGOT_DEV void tma_load3(u32 dst, const TensorMap* m, u32 bar, int x, int y, int z) {
  INGOT_PTX(asm volatile(TMA_LOAD(3) "[%1, {%3, %4, %5}], [%2];" ::"r"(dst), "l"(m), "r"(bar), "r"(x), "r"(y),
                         "r"(z) : "memory");)
  INGOT_HOST(const int c[] = {x, y, z}; emu_tma_load(dst, m, bar, 3, c, 0, 0, -1);)
}
INGOT_DEV void tma_load4(u32 dst, const TensorMap* m, u32 bar, int x, int y, int z, int w) {
  INGOT_PTX(asm volatile(TMA_LOAD(4) "[%1, {%3, %4, %5, %6}], [%2];" ::"r"(dst), "l"(m), "r"(bar), "r"(x), "r"(y),
                         "r"(z), "r"(w) : "memory");)
  INGOT_HOST(const int c[] = {x, y, z, w}; emu_tma_load(dst, m, bar, 4, c, 0, 0, -1);)
}
INGOT_DEV void tma_load5(u32 dst, const TensorMap* m, u32 bar, int x, int y, int z, int w, int v) {
  INGOT_PTX(asm volatile(TMA_LOAD(5) "[%1, {%3, %4, %5, %6, %7}], [%2];" ::"r"(dst), "l"(m), "r"(bar), "r"(x), "r"(y),
                         "r"(z), "r"(w), "r"(v) : "memory");)
  INGOT_HOST(const int c[] = {x, y, z, w, v}; emu_tma_load(dst, m, bar, 5, c, 0, 0, -1);)
}
INGOT_DEV void tma_load2_multicast(u32 dst, const TensorMap* m, u32 bar, int x, int y, u16 ctas) {
  INGOT_PTX(asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::"
                         "cluster [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(dst),
                         "l"(m), "r"(bar), "r"(x), "r"(y), "h"(ctas) : "memory");)
  INGOT_HOST(const int c[] = {x, y}; emu_tma_load(dst, m, bar, 2, c, 0, 0, ctas);)
}
// image window (NHWC): first output pixel's corner (w, h, n), filter tap (ow, oh)
INGOT_DEV void tma_load_im2col(u32 dst, const TensorMap* m, u32 bar, int c, int w, int h, int n, u16 ow, u16 oh) {
  INGOT_PTX(asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%0], "
                         "[%1, {%3, %4, %5, %6}], [%2], {%7, %8};" ::"r"(dst),
                         "l"(m), "r"(bar), "r"(c), "r"(w), "r"(h), "r"(n), "h"(ow), "h"(oh) : "memory");)
  INGOT_HOST(const int x[] = {c, w, h, n}; const u16 o[] = {ow, oh}; emu_tma_load(dst, m, bar, 4, x, o, 2, -1);)
}
#define TMA_STORE(rank) "cp.async.bulk.tensor." #rank "d.global.shared::cta.bulk_group "
INGOT_DEV void tma_store2(const TensorMap* m, u32 src, int x, int y) {
  INGOT_PTX(asm volatile(TMA_STORE(2) "[%0, {%2, %3}], [%1];" ::"l"(m), "r"(src), "r"(x), "r"(y) : "memory");)
  INGOT_HOST(const int c[] = {x, y}; emu_tma_store(m, src, 2, c);)
}
INGOT_DEV void tma_store3(const TensorMap* m, u32 src, int x, int y, int z) {
  INGOT_PTX(
      asm volatile(TMA_STORE(3) "[%0, {%2, %3, %4}], [%1];" ::"l"(m), "r"(src), "r"(x), "r"(y), "r"(z) : "memory");)
  INGOT_HOST(const int c[] = {x, y, z}; emu_tma_store(m, src, 3, c);)
}
INGOT_DEV void tma_store4(const TensorMap* m, u32 src, int x, int y, int z, int w) {
  INGOT_PTX(asm volatile(TMA_STORE(4) "[%0, {%2, %3, %4, %5}], [%1];" ::"l"(m), "r"(src), "r"(x), "r"(y), "r"(z),
                         "r"(w) : "memory");)
  INGOT_HOST(const int c[] = {x, y, z, w}; emu_tma_store(m, src, 4, c);)
}
INGOT_DEV void tma_store5(const TensorMap* m, u32 src, int x, int y, int z, int w, int v) {
  INGOT_PTX(asm volatile(TMA_STORE(5) "[%0, {%2, %3, %4, %5, %6}], [%1];" ::"l"(m), "r"(src), "r"(x), "r"(y), "r"(z),
                         "r"(w), "r"(v) : "memory");)
  INGOT_HOST(const int c[] = {x, y, z, w, v}; emu_tma_store(m, src, 5, c);)
}
// Bytes as they lie, at addresses and of a number that are multiples of 16: no tensor map.
INGOT_DEV void bulk_load(u32 dst, const void* src, u32 bytes, u32 bar) {
  INGOT_PTX(asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(dst),
                         "l"(src), "r"(bytes), "r"(bar) : "memory");)
  INGOT_HOST(emu_bulk_load(dst, src, bytes, bar);)
}
INGOT_DEV void bulk_store(void* dst, u32 src, u32 bytes) {
  INGOT_PTX(asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(dst), "r"(src),
                         "r"(bytes) : "memory");)
  INGOT_HOST(emu_bulk_store(dst, src, bytes);)
}
INGOT_DEV void bulk_commit() {
  INGOT_PTX(asm volatile("cp.async.bulk.commit_group;" :: : "memory");) INGOT_HOST(emu_bulk_commit();)
}
template <int N>
INGOT_DEV void bulk_wait_read() {
  INGOT_PTX(asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory");) INGOT_HOST(emu_bulk_wait(N, 1);)
}
template <int N>
INGOT_DEV void bulk_wait() {
  INGOT_PTX(asm volatile("cp.async.bulk.wait_group %0;" ::"n"(N) : "memory");) INGOT_HOST(emu_bulk_wait(N, 0);)
}
#undef TMA_LOAD
#undef TMA_STORE
