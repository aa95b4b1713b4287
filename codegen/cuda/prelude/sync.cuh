// Barriers of threads, clusters and mbarriers, proxy fences, and programmatic dependent launch.
#pragma once
#include "prelude/types.cuh"

INGOT_DEV void cta_sync() { INGOT_PTX(__syncthreads();) INGOT_HOST(emu_bar(0, 0, 1);) }
INGOT_DEV void bar_sync(int id, int threads) {
  INGOT_PTX(asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");)
  INGOT_HOST(emu_bar(id, threads, 1);)
}
INGOT_DEV void bar_arrive(int id, int threads) {
  INGOT_PTX(asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");)
  INGOT_HOST(emu_bar(id, threads, 0);)
}
INGOT_DEV void warp_sync() { INGOT_PTX(__syncwarp();) INGOT_HOST(emu_warp_sync();) }
INGOT_DEV void cluster_arrive() {
  INGOT_PTX(asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");)
  INGOT_HOST(emu_cluster_arrive();)
}
INGOT_DEV void cluster_wait() {
  INGOT_PTX(asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");)
  INGOT_HOST(emu_cluster_wait();)
}
INGOT_DEV void cluster_sync() {
  cluster_arrive();
  cluster_wait();
}
/// All blocks of the cluster have come so far, so that their shared memory may be written. Orders nothing in memory, where cluster_sync
/// waits for all stores of the block; so blocks do not part with it: a load from one that has ended may be on its way.
INGOT_DEV void cluster_meet() {
  INGOT_PTX(asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");)
  INGOT_HOST(emu_cluster_arrive_relaxed();)
  cluster_wait();
}
INGOT_DEV u32 cluster_rank() {
  u32 r;
  INGOT_PTX(asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));)
  INGOT_HOST(r = emu_cluster_rank();)
  return r;
}

INGOT_DEV void mbar_init(u32 bar, u32 count) {
  INGOT_PTX(asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(count) : "memory");)
  INGOT_HOST(emu_mbar_init(bar, count);)
}
INGOT_DEV void mbar_arrive(u32 bar) {
  INGOT_PTX(asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");)
  INGOT_HOST(emu_mbar_arrive(bar, 0, -1);)
}
INGOT_DEV void mbar_arrive_expect_tx(u32 bar, u32 bytes) {
  INGOT_PTX(asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");)
  INGOT_HOST(emu_mbar_arrive(bar, bytes, -1);)
}
/// Arrives at the barrier at this address in another block of the cluster. The default semantics suffice here, and
/// .release.cluster costs a full fence.
INGOT_DEV void mbar_arrive_remote(u32 bar, u32 rank) {
  INGOT_PTX(asm volatile("{\n.reg .b32 ra;\nmapa.shared::cluster.u32 ra, %0, %1;\n"
                         "mbarrier.arrive.shared::cluster.b64 _, [ra];\n}" ::"r"(bar), "r"(rank) : "memory");)
  INGOT_HOST(emu_mbar_arrive(bar, 0, (int)rank);)
}
/// True when the phase of this parity has completed.
INGOT_DEV bool mbar_try_wait(u32 bar, u32 parity) {
  u32 ok;
  INGOT_PTX(asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                         "selp.u32 %0, 1, 0, p;\n}" : "=r"(ok) : "r"(bar), "r"(parity) : "memory");)
  INGOT_HOST(ok = emu_mbar_try_wait(bar, parity);)
  return ok != 0;
}
INGOT_DEV void mbar_wait(u32 bar, u32 parity) {
  INGOT_PTX(while (!mbar_try_wait(bar, parity)) {})
  INGOT_HOST(emu_mbar_wait(bar, parity);)
}
INGOT_DEV void fence_mbar_init() {
  INGOT_PTX(asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");)
  INGOT_HOST(emu_fence_mbar_init();)
}
/// This thread's plain stores to shared memory become visible to TMA and wgmma (after a barrier).
INGOT_DEV void fence_proxy_async() {
  INGOT_PTX(asm volatile("fence.proxy.async.shared::cta;" ::: "memory");)
  INGOT_HOST(emu_fence_proxy_async();)
}
/// What this thread stored to memory, and what it knows that others stored, other blocks see before what it stores from here on.
INGOT_DEV void fence_gpu() {
  INGOT_PTX(asm volatile("fence.acq_rel.gpu;" ::: "memory");)
  INGOT_HOST(emu_fence_gpu();)
}
/// Adds one to a counter that blocks share, and returns what it was.
INGOT_DEV int count_up(int* counter) {
  int before;
  INGOT_PTX(asm volatile("atom.relaxed.gpu.global.add.s32 %0, [%1], 1;" : "=r"(before) : "l"(counter) : "memory");)
  INGOT_HOST(before = emu_count_up(counter);)
  return before;
}
/// Waits for the counter to reach `count`, some 15 microseconds at most: true when it has. Blocks that still have to start may need the
/// place of the one that waits.
INGOT_DEV bool wait_for_count(const int* counter, int count) {
  INGOT_HOST(int now; emu_ld_global(counter, &now, 4); return now == count;)
#pragma unroll 1
  for (int i = 0; i < 32; ++i) {
    int now = 0;
    INGOT_PTX(asm volatile("ld.relaxed.gpu.global.s32 %0, [%1];" : "=r"(now) : "l"(counter) : "memory");)
    if (now == count) return true;
  }
  return false;
}
template <int Registers> INGOT_DEV void setmaxnreg_dec() {
  INGOT_PTX(asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Registers));)
  INGOT_HOST(emu_setmaxnreg(Registers);)
}
template <int Registers> INGOT_DEV void setmaxnreg_inc() {
  INGOT_PTX(asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Registers));)
  INGOT_HOST(emu_setmaxnreg(Registers);)
}

// Programmatic dependent launch (sm_90): a kernel may start while the one before it in the stream still runs.
/// After pdl_wait the results of the previous kernel may be read, and its inputs overwritten.
INGOT_DEV void pdl_wait() {
  INGOT_PTX(if constexpr (kArch >= 90) asm volatile("griddepcontrol.wait;" ::: "memory");)
  INGOT_HOST(emu_pdl_wait();)
}
/// Lets the next kernel start. Only after pdl_wait: so no more than two kernels run side by side, and none reads through
/// a cache that was filled before its input was written.
INGOT_DEV void pdl_launch_dependents() {
  INGOT_PTX(if constexpr (kArch >= 90) asm volatile("griddepcontrol.launch_dependents;" ::: "memory");)
}
INGOT_DEV void pdl_begin() {
  pdl_wait();
  pdl_launch_dependents();
}
