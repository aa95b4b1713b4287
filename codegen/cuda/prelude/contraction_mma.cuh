// The main loop of a matrix product on tensor cores (mma.sync): for all (b, m, n), acc = sum over k of a*b, then the
// epilogue.
//
// A kernel brings three functors and a Plan:
//   PrologueA   side(b, m), depth(k): what an element needs of its row, computed once for a thread, and of its place
//               along k; then, for a_vector elements,
//                 raw:      at(from, side, depth): where they lie in memory; false: they are zeros, and nothing is read.
//                           Of 16 bytes it may say how many elements are there, from the first on
//                 computed: a(out, side, depth): their values. They are k + i (along k) or m + i (along m)
//   PrologueB   the same for n
//   Epilogue    e(b, m, n, acc): called for e_vector neighbouring results along n (or m: out_along_m)
//   Plan        element (float: three tf32 products with f32 accuracy; f16; bf16; i8: exact sums of bytes in 32 bits; f8e4m3:
//               f8; of the last two, a_other and b_other say which operand is without a sign, or e5m2), index (int or i64), tile_m, tile_n,
//               tile_k, warp_m, warp_n, k_warps (warps that share a warp tile, each with its part of tile_k), cluster_k
//               (blocks of a cluster that share a tile, each with its part of k), stages, threads, a_along_k,
//               b_along_k (the direction in which the operand is contiguous), a_raw, b_raw, a_vector, b_vector,
//               single (float: one tf32 product), e_vector, a_table, b_table (depths are worth a table in shared memory: windows), a_early, b_early (they do not depend on the kernel's predecessor)
//               (weights: they may be read before the kernel waits for its predecessor)
// Extents along a vector are multiples of it.
//
// Shared memory is a ring of stages. Raw operands of at least 4 bytes go there by cp.async, stages - 1 tiles ahead; all
// others through registers, one tile ahead. An operand lies there as in memory: rows along k, or rows along m or n.
#pragma once
#include "prelude/contraction_tile.cuh"
#include "prelude/mma_operand.cuh"
#include "prelude/row_parts.cuh"
#include "prelude/split_tf32.cuh"

template <class Plan, class OperandA, class OperandB> struct MmaTile : ResultTile<Plan> {
  typedef typename Plan::element T;
  typedef ResultTile<Plan> Results;
  static constexpr int kWarpsM = Plan::tile_m / Plan::warp_m, kWarpsN = Plan::tile_n / Plan::warp_n;
  static constexpr int kM = Plan::warp_m / 16, kN = Plan::warp_n / 8, kPart = Plan::tile_k / Plan::k_warps;
  static constexpr int kStep = MmaTraits<T>::k, kSteps = kPart / kStep;
  static_assert(kWarpsM * kWarpsN * Plan::k_warps * 32 == Plan::threads, "the tile does not divide among the warps");
  static_assert(Plan::warp_m % 16 == 0 && Plan::warp_n % 16 == 0 && kPart % kStep == 0, "no multiple of an mma");
  // Three tf32 products make a NaN of an infinite operand (inf * 0 in a mixed term). A tile whose sums are not all finite
  // is computed once more, with such terms left out.
  static constexpr bool kSingle = Plan::single, kHasCareful = kStep == 8 && !kSingle;
  typedef typename MmaTraits<T>::sum Sum;
  Sum acc[kM][kN][4];
  bool careful = false;

  static INGOT_DEV int warp_m() { return threadIdx.x / 32 % kWarpsM * Plan::warp_m; }
  static INGOT_DEV int warp_n() { return threadIdx.x / 32 / kWarpsM % kWarpsN * Plan::warp_n; }
  static INGOT_DEV int warp_k() { return threadIdx.x / 32 / (kWarpsM * kWarpsN); }

  INGOT_DEV void clear() {
#pragma unroll
    for (int i = 0; i < kM; ++i) {
#pragma unroll
      for (int j = 0; j < kN; ++j) {
#pragma unroll
        for (int q = 0; q < 4; ++q) acc[i][j][q] = 0;
      }
    }
  }
  INGOT_DEV bool is_finite() const {
    bool finite = true;
#pragma unroll
    for (int i = 0; i < kM; ++i) {
#pragma unroll
      for (int j = 0; j < kN; ++j) {
#pragma unroll
        for (int q = 0; q < 4; ++q) finite &= (bits_as<u32>(acc[i][j][q]) & 0x7f800000) != 0x7f800000;
      }
    }
    return finite;
  }
  static INGOT_DEV void load_b(u32 (&b)[kN][2], u32 stage_b, int k) {
#pragma unroll
    for (int j = 0; j < kN; j += 2) {
      u32 r[4];
      OperandB::load8x2(r, stage_b, warp_n() + j * 8, k);
#pragma unroll
      for (int q = 0; q < 4; ++q) b[j + q / 2][q % 2] = r[q];
    }
  }
  INGOT_DEV void multiply_carefully(u32 stage_a, u32 stage_b, int k) {
#pragma unroll
    for (int j = 0; j < kN; j += 2) {
      u32 b[4];
      OperandB::load8x2(b, stage_b, warp_n() + j * 8, k);
#pragma unroll
      for (int i = 0; i < kM; ++i) {
        u32 a[4];
        OperandA::load16(a, stage_a, warp_m() + i * 16, k);
        multiply_tf32_carefully(a, b, acc[i][j], acc[i][j + 1]);
      }
    }
  }
  /// One product for each pair, of rounded operands: the tensor cores would cut off what a tf32 does not hold.
  INGOT_DEV void multiply_single(u32 stage_a, u32 stage_b, int k) {
    u32 b[kN][2];
    load_b(b, stage_b, k);
#pragma unroll
    for (int j = 0; j < kN; ++j) b[j][0] = round_tf32(b[j][0]), b[j][1] = round_tf32(b[j][1]);
#pragma unroll
    for (int i = 0; i < kM; ++i) {
      u32 a[4];
      OperandA::load16(a, stage_a, warp_m() + i * 16, k);
#pragma unroll
      for (int q = 0; q < 4; ++q) a[q] = round_tf32(a[q]);
#pragma unroll
      for (int j = 0; j < kN; ++j) mma_1688_tf32(acc[i][j], a, b[j]);
    }
  }
  INGOT_DEV void multiply(u32 stage_a, u32 stage_b) {
    if constexpr (kSingle) {
#pragma unroll
      for (int s = 0; s < kSteps; ++s) multiply_single(stage_a, stage_b, warp_k() * kPart + s * kStep);
    } else if constexpr (kStep == 8) {
      if (careful) {
#pragma unroll 1
        for (int s = 0; s < kSteps; ++s) multiply_carefully(stage_a, stage_b, warp_k() * kPart + s * kStep);
        return;
      }
      // Small tiles do one step after the other: two blocks of an SM share the registers.
      constexpr int kGroup = kSteps % 2 == 0 && kM * kN > 8 ? 2 : 1;
#pragma unroll(kM * kN > 8 ? kSteps / kGroup : 1)
      for (int s = 0; s < kSteps; s += kGroup) multiply_tf32<kGroup>(stage_a, stage_b, warp_k() * kPart + s * kStep);
    } else if constexpr (sums_settle<Plan>()) {
      constexpr int kGroup = kM * kN > 8 ? kSteps : 1;  // small tiles one step after the other, as above
#pragma unroll 1
      for (int s = 0; s < kSteps; s += kGroup) multiply_settled<kGroup>(stage_a, stage_b, warp_k() * kPart + s * kStep);
    } else {
#pragma unroll
      for (int s = 0; s < kSteps; ++s) multiply_step(stage_a, stage_b, warp_k() * kPart + s * kStep);
    }
  }
  /// 32 bytes of k: of 16-bit operands, or of bytes.
  INGOT_DEV void multiply_step(u32 stage_a, u32 stage_b, int k) {
    u32 b[kN][2];
    load_b(b, stage_b, k);
#pragma unroll
    for (int i = 0; i < kM; ++i) {
      u32 a[4];
      OperandA::load16(a, stage_a, warp_m() + i * 16, k);
#pragma unroll
      for (int j = 0; j < kN; ++j) {
        if constexpr (kStep == 32) mma_16832<mma_type<Plan>()>(acc[i][j], a, b[j]);
        else mma_16816<MmaTraits<T>::type>(acc[i][j], a, b[j]);
      }
    }
  }
  /// `Group` steps along k, 32 or 64, in sums of their own, which then are added to the others (sums_settle).
  template <int Group> INGOT_DEV void multiply_settled(u32 stage_a, u32 stage_b, int k) {
    u32 b[Group][kN][2];
#pragma unroll
    for (int s = 0; s < Group; ++s) load_b(b[s], stage_b, k + s * kStep);
#pragma unroll
    for (int i = 0; i < kM; ++i) {
      float sum[kN][4] = {};
#pragma unroll
      for (int s = 0; s < Group; ++s) {
        u32 a[4];
        OperandA::load16(a, stage_a, warp_m() + i * 16, k + s * kStep);
#pragma unroll
        for (int j = 0; j < kN; ++j) mma_16832<mma_type<Plan>()>(sum[j], a, b[s][j]);
      }
#pragma unroll
      for (int j = 0; j < kN; ++j) {
#pragma unroll
        for (int q = 0; q < 4; ++q) acc[i][j][q] += sum[j][q];
      }
    }
  }
  /// `Group` steps along k. Tensor cores truncate their sums: only this much is added up there, and the rest by
  /// additions that round.
  template <int Group> INGOT_DEV void multiply_tf32(u32 stage_a, u32 stage_b, int k) {
    u32 big[Group][kN][2], small[Group][kN][2];
#pragma unroll
    for (int s = 0; s < Group; ++s) {
#pragma unroll
      for (int j = 0; j < kN; j += 2) {
        u32 r[4], r_big[4], r_small[4];
        OperandB::load8x2(r, stage_b, warp_n() + j * 8, k + s * 8);
        split_tf32(r, r_big, r_small);
#pragma unroll
        for (int q = 0; q < 4; ++q) big[s][j + q / 2][q % 2] = r_big[q], small[s][j + q / 2][q % 2] = r_small[q];
      }
    }
#pragma unroll
    for (int i = 0; i < kM; ++i) {
      float sum[kN][4] = {};
#pragma unroll
      for (int s = 0; s < Group; ++s) {
        u32 a[4], a_big[4], a_small[4];
        OperandA::load16(a, stage_a, warp_m() + i * 16, k + s * 8);
        split_tf32(a, a_big, a_small);
#pragma unroll
        for (int j = 0; j < kN; ++j) mma_1688_tf32(sum[j], a_small, big[s][j]);
#pragma unroll
        for (int j = 0; j < kN; ++j) mma_1688_tf32(sum[j], a_big, small[s][j]);
#pragma unroll
        for (int j = 0; j < kN; ++j) mma_1688_tf32(sum[j], a_big, big[s][j]);
      }
#pragma unroll
      for (int j = 0; j < kN; ++j) {
#pragma unroll
        for (int q = 0; q < 4; ++q) acc[i][j][q] += sum[j][q];
      }
    }
  }
  /// Adds this warp's results to those in shared memory; the first of the warps that share them starts.
  INGOT_DEV void put_all(u32 shared, bool first) const {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < kM; ++i) {
#pragma unroll
      for (int j = 0; j < kN; ++j) {
        const int m = warp_m() + i * 16 + lane / 4, n = warp_n() + j * 8 + lane % 4 * 2;
        Results::put_fragment(shared, m, n, acc[i][j], first);
      }
    }
  }
  template <class PrologueA, class PrologueB>
  static INGOT_DEV void accumulate(MmaTile& tile, OperandA& in_a, OperandB& in_b, const PrologueA& a,
                                   const PrologueB& b, typename Plan::index k_begin, typename Plan::index k_end,
                                   u32 shared, bool first) {
    typedef typename Plan::index Index;
    constexpr int kStage = OperandA::kBytes + OperandB::kBytes, kRing = Plan::stages * kStage;
    const Index steps = k_begin < k_end ? (k_end - k_begin + Plan::tile_k - 1) / Plan::tile_k : 0;
    const auto copy_a = [&](u32 offset, Index step) {
      if (step < steps) in_a.copy(a, shared + offset, step, k_begin, k_end);
    };
    const auto copy_b = [&](u32 offset, Index step) {
      if (step < steps) in_b.copy(b, shared + offset + OperandA::kBytes, step, k_begin, k_end);
    };
    in_a.table = shared + kRing;
    in_b.table = shared + kRing + OperandA::kTableBytes;
    for (int s = 0; s <= OperandA::kAhead; ++s) in_a.prepare(a, s, k_begin);
    for (int s = 0; s <= OperandB::kAhead; ++s) in_b.prepare(b, s, k_begin);
    if constexpr (OperandA::kTable || OperandB::kTable) cta_sync();
    fill_ring<Plan, Plan::stages - 1>([&](int s) { copy_a(s * kStage, s); }, [&](int s) { copy_b(s * kStage, s); }, first);
    if (steps > 0) {
      in_a.fetch(a, 0, k_begin, k_end);
      in_b.fetch(b, 0, k_begin, k_end);
      in_a.store(shared);
      in_b.store(shared + OperandA::kBytes);
    }
    u32 now = 0;
#pragma unroll 1
    for (Index step = 0; step < steps; ++step) {
      cp_async_wait<Plan::stages - 2>();
      cta_sync();  // this stage is complete, and everybody has left the one before
      const u32 next = now + kStage == kRing ? 0 : now + kStage, last = now == 0 ? kRing - kStage : now - kStage;
      copy_a(last, step + Plan::stages - 1);
      copy_b(last, step + Plan::stages - 1);
      cp_async_commit();
      const bool more = step + 1 < steps;
      if (more) {
        in_a.fetch(a, step + 1, k_begin, k_end);
        in_b.fetch(b, step + 1, k_begin, k_end);
        in_a.prepare(a, step + 1 + OperandA::kAhead, k_begin);
        in_b.prepare(b, step + 1 + OperandB::kAhead, k_begin);
      }
      tile.multiply(shared + now, shared + now + OperandA::kBytes);
      if (more) {
        in_a.store(shared + next);
        in_b.store(shared + next + OperandA::kBytes);
      }
      now = next;
    }
    cp_async_wait<0>();
    cta_sync();
  }
};

template <class Plan, class PrologueA, class PrologueB, class Epilogue>
INGOT_DEV void contraction_mma(const PrologueA& a, const PrologueB& b, const Epilogue& epilogue,
                               typename Plan::index batches, typename Plan::index m_end, typename Plan::index n_end,
                               typename Plan::index k_end, u32 shared) {
  typedef MmaOperand<Plan, PrologueA, Plan::tile_m, Plan::a_along_k, Plan::a_vector, Plan::a_raw, Plan::a_table>
      OperandA;
  typedef MmaOperand<Plan, PrologueB, Plan::tile_n, Plan::b_along_k, Plan::b_vector, Plan::b_raw, Plan::b_table>
      OperandB;
  typedef MmaTile<Plan, OperandA, OperandB> Tile;
  contraction_tiles<Plan, Tile, OperandA, OperandB>(a, b, epilogue, batches, m_end, n_end, k_end, shared);
}
