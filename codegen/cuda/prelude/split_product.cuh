// Products of f32 with the accuracy of f32 by warpgroups (sm_90a), operands as boxes bring them: rows of 32 of k. A goes to the
// tensor cores through registers, where it is split into two tf32 (split_tf32.cuh). Of B the image that has arrived serves as
// the big part; the warps of a team write an image of the small part beside it, stage by stage, while the products of the
// stage before run.
#pragma once
#include "prelude/split_tf32.cuh"
#include "prelude/sync.cuh"
#include "prelude/wgmma_product.cuh"

/// Where the operands are f32 and their products have the accuracy of f32.
template <class Plan>
constexpr bool has_small_parts() {
  return sizeof(typename Plan::element) == 4 && !Plan::single;
}

/// The rows of a warp in one step: 8 of k in each of four fragments.
struct SplitRows {
  u32 big[4][4], small[4][4];
};

/// `Team`: threads that share a tile, and number `barrier` is theirs.
template <class Plan, int Team>
struct SplitProduct {
  typedef WgmmaProduct<Plan> Product;
  static constexpr int kColumns = Plan::warp_n / 2;
  static_assert(!has_small_parts<Plan>() || Product::kM == 1, "A of 64 rows");
  int row, column;  // the first ones of this warp
  float sum[kColumns];  // of one step: tensor cores truncate, and so their sums are added up by additions that round

  /// 16 bytes of a row: the first or second half of step `s`. One address for all steps, for the sake of registers.
  static INGOT_DEV u32 place(u32 image, int row, int half, int s) {
    return (image + row * 128 + (half ^ row % 8) * 16) ^ (s * 32);
  }

  INGOT_DEV void load(u32 stage_a, u32 (&words)[4][4]) const {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int s = 0; s < 4; ++s) ldmatrix4(place(stage_a, row + lane % 16, lane / 16, s), words[s]);
  }
  static INGOT_DEV void split(const u32 (&words)[4][4], SplitRows& rows) {
#pragma unroll
    for (int s = 0; s < 4; ++s) split_tf32(words[s], rows.big[s], rows.small[s]);
  }
  /// The image of B's small part, by all threads of the team: nothing in it depends on where an element is.
  static INGOT_DEV void split_b(u32 stage_b, u32 small_b, int barrier) {
    constexpr int kChunks = Plan::tile_n * 8;
#pragma unroll 4
    for (int i = threadIdx.x % Team; i < kChunks; i += Team) {
      Vec<u32, 4> words = lds<Vec<u32, 4>>(stage_b + i * 16);
#pragma unroll
      for (int q = 0; q < 4; ++q) words[q] = cut_off_tf32(words[q]);
      sts(small_b + i * 16, words);
    }
    fence_proxy_async();
    bar_sync(barrier, Team);
  }
  INGOT_DEV void start(const SplitRows& a, u32 stage_b, u32 small_b) {
    const u64 big = Product::template operand<true>(stage_b, column),
              small = Product::template operand<true>(small_b, column);
    wgmma_operands(a.big);  // they are there before the fence
    wgmma_operands(a.small);
    wgmma_fence();
    // Mixed terms first: what is cut off behind them is small, too.
#pragma unroll
    for (int s = 0; s < 4; ++s) wgmma_ra<kTF32, 0>(sum, a.small[s], further(big, s), s > 0);
#pragma unroll
    for (int s = 0; s < 4; ++s) wgmma_ra<kTF32, 0>(sum, a.big[s], further(small, s), 1);
#pragma unroll
    for (int s = 0; s < 4; ++s) wgmma_ra<kTF32, 0>(sum, a.big[s], further(big, s), 1);
    wgmma_commit();
  }
  static INGOT_DEV u64 further(u64 first, int s) { return Product::template further<true>(first, 0, s * 8); }

  INGOT_DEV void wait(const SplitRows& a) {
    wgmma_wait<0>();
    wgmma_results(sum);
    wgmma_operands(a.big);
    wgmma_operands(a.small);
  }
  /// Adds the sums of a step that has been waited for. An infinity or NaN in a row shows in all of its results, one in a column
  /// in all of its; a step that has such an operand is multiplied once more.
  INGOT_DEV void add(float (&acc)[kColumns], u32 stage_a, u32 stage_b) const {
    float zero = sum[2] * 0.0f;
#pragma unroll
    for (int j = 0; j < kColumns; j += 4) zero += sum[j] * 0.0f + sum[j + 1] * 0.0f;
    if (warp_any(!(zero == 0.0f))) {
      multiply_carefully(acc, stage_a, stage_b);
    } else {
#pragma unroll
      for (int j = 0; j < kColumns; ++j) acc[j] += sum[j];
    }
  }
  /// 16 columns after the other, in few instructions and registers: it is rare.
  INGOT_DEV void multiply_carefully(float (&acc)[kColumns], u32 stage_a, u32 stage_b) const {
    const int lane = threadIdx.x % 32;
#pragma unroll 1
    for (int j = 0; j < kColumns; j += 8) {
      float sums[2][4] = {};
#pragma unroll 1
      for (int s = 0; s < 4; ++s) {
        u32 a[4], b[4];
        ldmatrix4(place(stage_a, row + lane % 16, lane / 16, s), a);
        ldmatrix4(place(stage_b, column + j * 2 + lane % 8 + lane / 16 * 8, lane / 8 % 2, s), b);
        multiply_tf32_carefully(a, b, sums[0], sums[1]);
      }
#pragma unroll
      for (int i = 0; i < kColumns; ++i)
        if (i / 8 * 8 == j) acc[i] += sums[i / 4 % 2][i % 4];
    }
  }
};
