#include "tests/emulation/entry_points.h"

#include "tests/emulation/core.h"

namespace ingot::emulation {

void keep_entry_points() {
  static const void* volatile kept[] = {
      reinterpret_cast<const void*>(&emu_ballot),
      reinterpret_cast<const void*>(&emu_bar),
      reinterpret_cast<const void*>(&emu_bulk_commit),
      reinterpret_cast<const void*>(&emu_bulk_load),
      reinterpret_cast<const void*>(&emu_bulk_store),
      reinterpret_cast<const void*>(&emu_bulk_wait),
      reinterpret_cast<const void*>(&emu_cluster_arrive),
      reinterpret_cast<const void*>(&emu_cluster_arrive_relaxed),
      reinterpret_cast<const void*>(&emu_cluster_rank),
      reinterpret_cast<const void*>(&emu_cluster_wait),
      reinterpret_cast<const void*>(&emu_cp_async),
      reinterpret_cast<const void*>(&emu_cp_async_some),
      reinterpret_cast<const void*>(&emu_cp_async_commit),
      reinterpret_cast<const void*>(&emu_cp_async_wait),
      reinterpret_cast<const void*>(&emu_elect),
      reinterpret_cast<const void*>(&emu_fence_mbar_init),
      reinterpret_cast<const void*>(&emu_count_up),
      reinterpret_cast<const void*>(&emu_fence_gpu),
      reinterpret_cast<const void*>(&emu_fence_proxy_async),
      reinterpret_cast<const void*>(&emu_from_f16),
      reinterpret_cast<const void*>(&emu_ld_global),
      reinterpret_cast<const void*>(&emu_ld_shared),
      reinterpret_cast<const void*>(&emu_ldmatrix4),
      reinterpret_cast<const void*>(&emu_mbar_arrive),
      reinterpret_cast<const void*>(&emu_mbar_init),
      reinterpret_cast<const void*>(&emu_mbar_try_wait),
      reinterpret_cast<const void*>(&emu_mbar_wait),
      reinterpret_cast<const void*>(&emu_mma),
      reinterpret_cast<const void*>(&emu_pdl_wait),
      reinterpret_cast<const void*>(&emu_setmaxnreg),
      reinterpret_cast<const void*>(&emu_shared_dyn),
      reinterpret_cast<const void*>(&emu_shared_static),
      reinterpret_cast<const void*>(&emu_shfl_bits),
      reinterpret_cast<const void*>(&emu_st_global),
      reinterpret_cast<const void*>(&emu_st_shared),
      reinterpret_cast<const void*>(&emu_stmatrix4),
      reinterpret_cast<const void*>(&emu_tma_load),
      reinterpret_cast<const void*>(&emu_tma_store),
      reinterpret_cast<const void*>(&emu_to_bf16),
      reinterpret_cast<const void*>(&emu_to_f16),
      reinterpret_cast<const void*>(&emu_warp_sync),
      reinterpret_cast<const void*>(&emu_wgmma),
      reinterpret_cast<const void*>(&emu_wgmma_commit),
      reinterpret_cast<const void*>(&emu_wgmma_fence),
      reinterpret_cast<const void*>(&emu_wgmma_wait),
  };
  (void)kept[0];
}

}  // namespace ingot::emulation
