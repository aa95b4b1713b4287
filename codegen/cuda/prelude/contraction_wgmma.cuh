// The main loop of a matrix product by warpgroups (wgmma, sm_90a), operands of 16 and 8 bits. Functors and plan are those of
// contraction_mma.cuh, with two differences: warp_m (a multiple of 64) and warp_n are the tile of a warpgroup, and
// `overlap` keeps one product in flight while the next stage is waited for, at the price of one stage of the ring.
#pragma once
#include "prelude/contraction_tile.cuh"
#include "prelude/row_parts.cuh"
#include "prelude/wgmma_product.cuh"

template <class Plan, class OperandA, class OperandB> struct WgmmaTile : ResultTile<Plan>, WgmmaProduct<Plan> {
  typedef typename Plan::index Index;
  typedef ResultTile<Plan> Results;
  typedef WgmmaProduct<Plan> Product;
  typedef typename Product::Sum Sum;
  static_assert(Product::kGroupsM * Product::kGroupsN * 128 == Plan::threads, "the tile does not divide among the warpgroups");
  static_assert(Plan::k_warps == 1, "warpgroups do not share k");
  static constexpr bool kHasCareful = false;

  static INGOT_DEV int warp_k() { return 0; }

  INGOT_DEV void put_all(u32 shared, bool first) const { Results::put_product(shared, *this, first); }
  template <class PrologueA, class PrologueB>
  static INGOT_DEV void accumulate(WgmmaTile& tile, OperandA& in_a, OperandB& in_b, const PrologueA& a,
                                   const PrologueB& b, Index k_begin, Index k_end, u32 shared,
                                   bool first) {
    constexpr int kStage = OperandA::kBytes + OperandB::kBytes, kRing = Plan::stages * kStage;
    // Stages on their way. One stage is for products of one step.
    constexpr int kAhead = Plan::stages == 1 ? 1 : Plan::stages - 1 - Plan::overlap;
    static_assert(kAhead >= 1, "too few stages");
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
    fill_ring<Plan, kAhead>([&](int s) { copy_a(s * kStage, s); }, [&](int s) { copy_b(s * kStage, s); }, first);
    if (steps > 0) {
      in_a.fetch(a, 0, k_begin, k_end);
      in_b.fetch(b, 0, k_begin, k_end);
      in_a.store(shared);
      in_b.store(shared + OperandA::kBytes);
    }
    u32 now = 0, free = kAhead * kStage == kRing ? 0 : kAhead * kStage;
    const auto following = [&](u32 offset) { return offset + kStage == kRing ? 0 : offset + kStage; };
#pragma unroll 1
    for (Index step = 0; step < steps; ++step) {
      cp_async_wait<kAhead - 1>();
      fence_proxy_async();
      cta_sync();  // this stage is complete, and nobody multiplies what the free one held
      tile.start(shared + now, shared + now + OperandA::kBytes);
      copy_a(free, step + kAhead);
      copy_b(free, step + kAhead);
      cp_async_commit();
      const bool more = step + 1 < steps;
      if (more) {
        in_a.fetch(a, step + 1, k_begin, k_end);
        in_b.fetch(b, step + 1, k_begin, k_end);
        in_a.prepare(a, step + 1 + OperandA::kAhead, k_begin);
        in_b.prepare(b, step + 1 + OperandB::kAhead, k_begin);
      }
      tile.template settle<Plan::overlap>();
      now = following(now);
      free = following(free);
      if (more) {
        in_a.store(shared + now);
        in_b.store(shared + now + OperandA::kBytes);
      }
    }
    tile.template wait<0>();
    cp_async_wait<0>();
    cta_sync();
  }
};

template <class Plan, class PrologueA, class PrologueB, class Epilogue>
INGOT_DEV void contraction_wgmma(const PrologueA& a, const PrologueB& b, const Epilogue& epilogue,
                                 typename Plan::index batches, typename Plan::index m_end,
                                 typename Plan::index n_end, typename Plan::index k_end, u32 shared) {
  typedef MmaOperand<Plan, PrologueA, Plan::tile_m, Plan::a_along_k, Plan::a_vector, Plan::a_raw, Plan::a_table, true>
      OperandA;
  typedef MmaOperand<Plan, PrologueB, Plan::tile_n, Plan::b_along_k, Plan::b_vector, Plan::b_raw, Plan::b_table, true>
      OperandB;
  typedef WgmmaTile<Plan, OperandA, OperandB> Tile;
  contraction_tiles<Plan, Tile, OperandA, OperandB>(a, b, epilogue, batches, m_end, n_end, k_end, shared);
}
