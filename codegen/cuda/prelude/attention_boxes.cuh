// Attention with an online softmax, by warpgroups, whose operands arrive as boxes (TMA, sm_90a): for all (b, m, d),
//   acc = sum over n of softmax over n of score(b, m, n, sum over k of q*key) * value, then the epilogue.
// One thread sends for the boxes; warpgroups have 64 queries each and share keys and values; a block goes on from tile
// to tile until there are none left. The products of queries with the next keys run while a warpgroup makes weights of
// the ones before, and those with the values beside.
//
// A kernel brings functors and a Plan:
//   Starts      q(b), key(b), value(b): where the rows of a batch index start, in units of 16 bytes; row, column and
//               start are the coordinates of a box
//   Score       as in attention.cuh; kGrows: later rows may see more keys
//   Epilogue    as in contraction_boxes.cuh, n being the columns d
//   Plan        element, index, groups (warpgroups that multiply), tile_m (64 queries for each), tile_n (keys of a
//               step, of 16), head (columns of q and key), tile_d (columns of value), both rounded up to 16, stages,
//               q_stages, threads, chunk, e_vector, no_logit, section_bytes (of keys and values, in L2 at a time).
//               Of f32: two warpgroups, tile_n a multiple of 32, arriving (stages of values that are to be turned),
//               single (one product of tf32 for each; else three, for the accuracy of f32)
#pragma once
#include "prelude/attention_memory.cuh"
#include "prelude/attention_wide.cuh"
#include "prelude/mma_operand.cuh"
#include "prelude/online_softmax.cuh"

/// The products of a warpgroup, of 16-bit operands.
template <class Plan>
struct NarrowProducts : OnlineSoftmax<Plan::tile_n, Plan::tile_d> {
  typedef typename Plan::element T;
  typedef AttentionMemory<Plan> Memory;
  static constexpr int kType = MmaTraits<T>::type;
  u32 operands[Plan::tile_n / 16][4];  // weights
  Memory memory;
  int warp, group;  // of the block's, those of this thread

  /// `of`: the warp's number, asked for before warps take different ways: so that descriptors stay in uniform
  /// registers.
  INGOT_DEV NarrowProducts(u32 shared, int of) : memory(shared), warp(of), group(of / 4) {}

  INGOT_DEV void begin() const {}
  INGOT_DEV void start_scores() {
    const u64 q = wgmma_desc(memory.query_stage() + group * 64 * 128, 16, 1024, kSwizzle128);
    const u64 key = wgmma_desc(memory.key_stage(), 16, 1024, kSwizzle128);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < Plan::head; k += 16) {
      const u64 a = wgmma_further(q, k / 64 * Memory::kQueryPanel + k % 64 * 2);
      const u64 b = wgmma_further(key, k / 64 * Memory::kPanel + k % 64 * 2);
      wgmma<kType, 0, 0>(this->scores, a, b, k > 0);
    }
    wgmma_commit();
  }
  INGOT_DEV void start_values(u32 slot) {
    const u64 value = wgmma_desc(memory.value_stage(slot), Memory::kPanel, 1024, kSwizzle128);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < Plan::tile_n; k += 16)
      wgmma_ra<kType, 1>(this->acc, operands[k / 16], wgmma_further(value, k * 128), 1);
    wgmma_commit();
  }
  /// Weights of the keys from n0 on, whose products have been waited for.
  template <class Score, class Index>
  INGOT_DEV void weigh(const Score& score, Index batch, Index m0, Index n0, Index m_end, Index n_end,
                       float (&scale)[2]) {
    wgmma_results(this->scores);
    memory.keys.release();
    memory.keys.advance();
    this->logits(score, batch, m0, n0, m_end, n_end);
    this->template weights<Score>(scale);
  }
  /// The products with the values have been waited for. `scale`: of the sums, from now on.
  INGOT_DEV void finish_values(u32, const float (&scale)[2]) {
    wgmma_results(this->acc);
    wgmma_operands(operands);
    this->rescale(scale);
  }
  INGOT_DEV void pack() {
#pragma unroll
    for (int k = 0; k < Plan::tile_n; k += 16) this->template operand<T>(operands[k / 16], k);
  }
};

template <class Plan, bool Wide = AttentionMemory<Plan>::kWide>
struct AttentionProducts {
  typedef NarrowProducts<Plan> Type;
};
template <class Plan>
struct AttentionProducts<Plan, true> {
  typedef WideProducts<Plan> Type;
};

/// A warpgroup that multiplies.
template <class Plan>
struct AttentionGroup : AttentionProducts<Plan>::Type {
  typedef typename Plan::index Index;
  typedef AttentionMemory<Plan> Memory;
  typedef typename AttentionProducts<Plan>::Type Products;
  static_assert(Plan::stages >= 2, "the next keys are waited for before the values are given back");
  using Products::group;
  using Products::memory;
  using Products::warp;

  INGOT_DEV AttentionGroup(u32 shared, int of) : Products(shared, of) {}

  /// The weights are computed before what follows. Not enough by itself: the assembler moves the wait for products
  /// ahead of all that does not need them, up to the last branch, and the exponentials would begin when the products
  /// have ended. So a wait follows that ends at once as a rule: for the next keys, or once more for the values (with
  /// masks that let later queries see more, whose steps are of unequal work, the former costs 2%).
  template <bool kAhead> INGOT_DEV void settle(float (&scale)[2], bool next) {
    wgmma_results(this->scores);
    wgmma_results(this->sum);
    wgmma_results(scale);
    if (!kAhead) memory.values.wait_full();
    else if (next) memory.wait_keys();
  }
  INGOT_DEV void start_values() {
    memory.values.wait_full();
    Products::start_values(memory.values.slot);
  }
  INGOT_DEV void finish_values(const float (&scale)[2]) {
    wgmma_wait<0>();
    Products::finish_values(memory.values.slot, scale);
    memory.values.release();
    memory.values.advance();
  }
  /// Rows m0 ... m0 + 63 of a tile.
  template <class Score>
  INGOT_DEV void attend(const Score& score, Index batch, Index m0, Index m_end, Index n_end, Index steps) {
    constexpr bool kAhead = !Score::kGrows;  // the next keys are waited for beside the products
    float scale[2];
    this->clear();
    memory.queries.wait_full();
    this->begin();
    memory.wait_keys();
    this->start_scores();
    wgmma_wait<0>();
    this->weigh(score, batch, m0, (Index)0, m_end, n_end, scale);
    this->pack();
    if (kAhead && steps > 1) memory.wait_keys();
#pragma unroll 1
    for (Index step = 1; step < steps; ++step) {
      if (!kAhead) memory.wait_keys();
      this->start_scores();
      start_values();
      wgmma_wait<1>();
      this->weigh(score, batch, m0, step * Plan::tile_n, m_end, n_end, scale);
      settle<kAhead>(scale, step + 1 < steps);
      finish_values(scale);
      this->pack();
    }
    memory.queries.release();
    start_values();
    scale[0] = scale[1] = 1;
    finish_values(scale);
    this->template finish<Plan::no_logit>();
  }
  /// Keys that no query of this warpgroup sees: the others still wait for its word.
  INGOT_DEV void pass(Index steps) {
#pragma unroll 1
    for (Index step = 0; step < steps; ++step) {
      memory.wait_keys();
      memory.keys.release();
      memory.keys.advance();
      memory.values.wait_full();
      memory.values.release();
      memory.values.advance();
    }
  }
  template <class Score, class Epilogue>
  INGOT_DEV void run(const Score& score, const Epilogue& epilogue, const AttentionTiles<Plan, Score>& tiles,
                     Index d_end) {
    const u32 scratch = memory.shared + Memory::kScratchAt + warp * WarpScratch<Plan>::kBytes;
#pragma unroll 1
    for (Index round = 0; tiles.of_round(round) < tiles.total; ++round) {
      const auto [batch, first] = tiles.place(tiles.of_round(round));
      const Index steps = tiles.steps(batch, first, Plan::tile_m);
      Index own = steps;
      if (Score::kGrows) own = tiles.steps(batch, first, (group + 1) * 64);
      if (first + group * 64 < tiles.m_end && own > 0) {
        attend(score, batch, first, tiles.m_end, tiles.n_end, own);
      } else {
        own = 0;
        memory.queries.wait_full();
        memory.queries.release();
        this->clear();
        this->template finish<Plan::no_logit>();
      }
      pass(steps - own);
      memory.queries.advance();
      store_rows<Plan>(*(const float(*)[1][Plan::tile_d / 2]) this->acc, epilogue, batch, first + (Index)(warp * 16),
                       (Index)0, tiles.m_end, d_end, scratch);
    }
  }
};

template <class Plan, class Starts, class Score, class Epilogue>
INGOT_DEV void attention_boxes(const TensorMap* q, const TensorMap* key, const TensorMap* value, const Starts& starts,
                               const Score& score, const Epilogue& epilogue, typename Plan::index batches,
                               typename Plan::index m_end, typename Plan::index n_end, typename Plan::index d_end,
                               u32 shared) {
  const int warp = warp_uniform(threadIdx.x / 32);
  const AttentionTiles<Plan, Score> tiles(score, batches, m_end, n_end);
  if (threadIdx.x == 0) {
    tma_prefetch(q);
    tma_prefetch(key);
    tma_prefetch(value);
    AttentionMemory<Plan>(shared).start();
  }
  cta_sync();
  constexpr bool kWide = AttentionMemory<Plan>::kWide;
  if (warp / 4 == Plan::groups) {
    // Together as many as the launch has: 168 for each thread. Who asks for more waits for ever.
    if constexpr (kWide) setmaxnreg_dec<56>();
    else share_registers<Plan, true>();
    pdl_begin();
    if (threadIdx.x == Plan::groups * 128) send_attention(q, key, value, starts, tiles, AttentionMemory<Plan>(shared));
    if constexpr (kWide) {
      const int turner = warp - Plan::groups * 4 - 1;
      if (turner >= 0)
        AttentionTurner<Plan>{AttentionMemory<Plan>(shared), turner * 32 + (int)(threadIdx.x % 32)}.run(tiles);
    }
  } else {
    if constexpr (kWide) setmaxnreg_inc<224>();
    else share_registers<Plan, false>();
    pdl_begin();
    AttentionGroup<Plan>(shared, warp).run(score, epilogue, tiles, d_end);
  }
}
