// The share of a warpgroup in a tile of results, by wgmma (sm_90a), whatever brings the operands into shared memory.
//
// An operand lies there as wgmma reads it: along k, rows of 128 bytes, or 64 where both lie so, their 16-byte chunks permuted
// by the row; else panels of 64 rows or columns, one 128-byte row for each k.
#pragma once
#include "prelude/mma_operand.cuh"
#include "prelude/warp.cuh"
#include "prelude/wgmma.cuh"

INGOT_WGMMA(32)
INGOT_WGMMA(64)
INGOT_WGMMA(96)
INGOT_WGMMA(128)
INGOT_WGMMA(192)
INGOT_WGMMA(256)

template <class Plan> struct WgmmaProduct {
  static constexpr int kGroupsM = Plan::tile_m / Plan::warp_m, kGroupsN = Plan::tile_n / Plan::warp_n;
  static constexpr int kM = Plan::warp_m / 64, kN = Plan::warp_n / 2, kType = mma_type<Plan>();
  static constexpr int kSize = sizeof(typename Plan::element), kStep = 32 / kSize;
  static constexpr int kPanel = Plan::tile_k * 128;  // of an operand that is not along k
  static constexpr int kRow = Plan::tile_k * kSize;
  static constexpr bool kAlongA = Plan::a_along_k || kSize == 1, kAlongB = Plan::b_along_k || kSize == 1;
  static_assert(kRow == 128 || (kRow == 64 && kAlongA && kAlongB && kSize < 4), "a stage is one row of 128 or 64 bytes");
  static_assert(kSize == 2 || (kAlongA && kAlongB), "32-bit operands lie along k");
  typedef typename MmaTraits<typename Plan::element>::sum Sum;
  static constexpr bool kSettles = sums_settle<Plan>();
  int warp, group;  // of the block's, those of this thread
  Sum acc[kM][kN];
  Sum part[kSettles ? kM : 1][kSettles ? kN : 1];  // the sums of one step, where they are added to `acc` step by step

  /// `of`: warp_of_thread(), called before warps take different ways: then the assembler knows it for one number of all lanes, and
  /// what is computed from it (descriptors, above all) stays in uniform registers.
  INGOT_DEV explicit WgmmaProduct(int of = warp_of_thread()) : warp(of), group(of / 4) {}
  static INGOT_DEV int warp_of_thread() { return warp_uniform(threadIdx.x / 32); }
  INGOT_DEV int group_m() const { return group % kGroupsM * Plan::warp_m; }
  INGOT_DEV int group_n() const { return group / kGroupsM % kGroupsN * Plan::warp_n; }
  /// Of the warpgroups that share a tile, the team this one is in: one team, as a rule.
  INGOT_DEV int team() const { return group / (kGroupsM * kGroupsN); }

  INGOT_DEV void clear() {
#pragma unroll
    for (int i = 0; i < kM; ++i) {
#pragma unroll
      for (int j = 0; j < kN; ++j) acc[i][j] = 0;
      wgmma_results(acc[i]);  // not later: a product may read them once the fence is passed
    }
  }
  /// The descriptor of the first 32 bytes of k, from row or column `x` on.
  template <bool AlongK> static INGOT_DEV u64 operand(u32 stage, int x) {
    return AlongK ? wgmma_desc(stage + x * kRow, 16, kRow * 8, kRow == 128 ? kSwizzle128 : kSwizzle64)
                  : wgmma_desc(stage + x / 64 * kPanel, kPanel, 1024, kSwizzle128);
  }
  /// The same for `k` and `x` further on.
  template <bool AlongK> static INGOT_DEV u64 further(u64 first, int x, int k) {
    return wgmma_further(first, AlongK ? x * kRow + k * kSize : x / 64 * kPanel + k * 128);
  }
  INGOT_DEV void start(u32 stage_a, u32 stage_b) {
    const u64 a = operand<kAlongA>(stage_a, group_m()), b = operand<kAlongB>(stage_b, group_n());
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < Plan::tile_k; k += kStep) {
#pragma unroll
      for (int i = 0; i < kM; ++i) {
        const u64 rows = further<kAlongA>(a, i * 64, k), columns = further<kAlongB>(b, 0, k);
        if constexpr (kSettles) wgmma_bytes<kType>(part[i], rows, columns, k > 0);
        else if constexpr (kSize == 1) wgmma_bytes<kType>(acc[i], rows, columns, 1);
        else wgmma<kType, !kAlongA, !kAlongB>(acc[i], rows, columns, 1);
      }
    }
    wgmma_commit();
  }
  /// The same with 64 rows of A in registers, 16 of k in each fragment.
  INGOT_DEV void start_with(const u32 (&a)[4][4], u32 stage_b) {
    static_assert(kM == 1 && kSize == 2, "A of 64 rows and 16 bits");
    const u64 b = operand<Plan::b_along_k>(stage_b, group_n());
    wgmma_fence();
#pragma unroll
    for (int s = 0; s < 4; ++s)
      wgmma_ra<kType, !Plan::b_along_k>(acc[0], a[s], further<Plan::b_along_k>(b, 0, s * 16), 1);
    wgmma_commit();
  }
  /// Behind start(): waits until at most `InFlight` products run, or, where sums settle, for this one, whose sums it adds.
  template <int InFlight> INGOT_DEV void settle() {
    if constexpr (kSettles) {
      wgmma_wait<0>();
#pragma unroll
      for (int i = 0; i < kM; ++i) {
        wgmma_results(part[i]);
#pragma unroll
        for (int j = 0; j < kN; ++j) acc[i][j] += part[i][j];
      }
    } else {
      wait<InFlight>();
    }
  }
  template <int InFlight> INGOT_DEV void wait() {
    wgmma_wait<InFlight>();
    if constexpr (InFlight == 0) {
#pragma unroll
      for (int i = 0; i < kM; ++i) wgmma_results(acc[i]);
    }
  }
};
