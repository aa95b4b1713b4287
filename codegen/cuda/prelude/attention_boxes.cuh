// Attention with an online softmax, by warpgroups, whose operands arrive as boxes (TMA, sm_90a): for all (b, m, d),
//   acc = sum over n of softmax over n of score(b, m, n, sum over k of q*key) * value, then the epilogue.
// One thread sends for the boxes; warpgroups have 64 queries each and share keys and values; a block goes on from tile to
// tile until there are none left. The products of queries with the next keys run while a warpgroup makes weights of the ones
// before, and those with the values beside.
//
// A kernel brings functors and a Plan:
//   Starts      q(b), key(b), value(b): where the rows of a batch index start, in units of 16 bytes; row, column and start are
//               the coordinates of a box
//   Score       as in attention.cuh; kGrows: later rows may see more keys
//   Epilogue    as in contraction_boxes.cuh, n being the columns d
//   Plan        element, index, groups (warpgroups that multiply), tile_m (64 queries for each), tile_n (keys of a step, of 16),
//               head (columns of q and key), tile_d (columns of value), both rounded up to 16, stages, q_stages, threads, chunk,
//               e_vector, no_logit, section_bytes (of keys and values, in L2 at a time)
#pragma once
#include "prelude/mma_operand.cuh"
#include "prelude/online_softmax.cuh"
#include "prelude/tma.cuh"
#include "prelude/warp_results.cuh"
#include "prelude/wgmma.cuh"

INGOT_WGMMA(16)
INGOT_WGMMA(32)
INGOT_WGMMA(48)
INGOT_WGMMA(64)
INGOT_WGMMA(80)
INGOT_WGMMA(96)
INGOT_WGMMA(112)
INGOT_WGMMA(128)
INGOT_WGMMA(144)
INGOT_WGMMA(160)
INGOT_WGMMA(176)
INGOT_WGMMA(192)
INGOT_WGMMA(208)
INGOT_WGMMA(224)
INGOT_WGMMA(240)
INGOT_WGMMA(256)

/// A ring of stages: the barriers say when one is full, and when it may be filled again.
template <int Stages> struct StageRing {
  u32 barriers, slot = 0, phase = 0;

  INGOT_DEV explicit StageRing(u32 at) : barriers(at) {}
  INGOT_DEV u32 full() const { return barriers + slot * 16; }
  INGOT_DEV u32 empty() const { return full() + 8; }
  INGOT_DEV void start(u32 readers) const {
    for (int s = 0; s < Stages; ++s) {
      mbar_init(barriers + s * 16, 1);
      mbar_init(barriers + s * 16 + 8, readers);
    }
  }
  INGOT_DEV void advance() {
    if (++slot == Stages) {
      slot = 0;
      phase ^= 1;
    }
  }
  INGOT_DEV void wait_full() const { mbar_wait(full(), phase); }
  /// By the sender: the stage may be filled with so many bytes.
  INGOT_DEV void open(u32 bytes) const {
    mbar_wait(empty(), phase ^ 1);
    mbar_arrive_expect_tx(full(), bytes);
  }
  /// By all lanes of a warp that has read the stage.
  INGOT_DEV void release() const {
    if (threadIdx.x % 32 == 0) mbar_arrive(empty());
  }
};

/// What a block has in shared memory: panels of 64 columns, 128 bytes a row, as wgmma reads them.
template <class Plan> struct AttentionMemory {
  static constexpr int kPanels = (Plan::head + 63) / 64, kValuePanels = (Plan::tile_d + 63) / 64;
  static constexpr u32 kQueryPanel = Plan::tile_m * 128, kPanel = Plan::tile_n * 128;
  static constexpr u32 kQueries = kPanels * kQueryPanel, kKeys = kPanels * kPanel, kValues = kValuePanels * kPanel;
  static constexpr u32 kKeysAt = Plan::q_stages * kQueries, kValuesAt = kKeysAt + Plan::stages * kKeys;
  static constexpr u32 kScratchAt = kValuesAt + Plan::stages * kValues;
  static constexpr u32 kBarriersAt = kScratchAt + Plan::groups * 4 * WarpScratch<Plan>::kBytes;
  u32 shared;
  StageRing<Plan::q_stages> queries;
  StageRing<Plan::stages> keys, values;

  INGOT_DEV explicit AttentionMemory(u32 base)
      : shared(base),
        queries(base + kBarriersAt),
        keys(base + kBarriersAt + Plan::q_stages * 16),
        values(base + kBarriersAt + (Plan::q_stages + Plan::stages) * 16) {}
  INGOT_DEV void start() const {
    queries.start(Plan::groups * 4);
    keys.start(Plan::groups * 4);
    values.start(Plan::groups * 4);
    fence_mbar_init();
  }
  INGOT_DEV u32 query_stage() const { return shared + queries.slot * kQueries; }
  INGOT_DEV u32 key_stage() const { return shared + kKeysAt + keys.slot * kKeys; }
  INGOT_DEV u32 value_stage(u32 slot) const { return shared + kValuesAt + slot * kValues; }
};

/// The tiles of a problem. Queries of one batch index are neighbours, for the sake of L2; with masks that let later queries see
/// more keys (Score::kGrows), those of as many batch indices as have their keys in L2 together: the long tiles come first, and
/// blocks go through the tiles forth and back, so that none has the long ones only.
template <class Plan, class Score> struct AttentionTiles {
  typedef typename Plan::index Index;
  static constexpr i64 kKeyBytes = (Plan::head + Plan::tile_d) * sizeof(typename Plan::element);
  const Score* score;
  Index rows, batches, total, section, m_end, n_end;

  INGOT_DEV AttentionTiles(const Score& s, Index batch_count, Index m_stop, Index n_stop)
      : score(&s),
        rows((m_stop + Plan::tile_m - 1) / Plan::tile_m),
        batches(batch_count),
        total(rows * batch_count),
        section(1),
        m_end(m_stop),
        n_end(n_stop) {
    if (Score::kGrows) {
      const i64 most = Plan::section_bytes / (n_stop * kKeyBytes + 1);
      section = most < 1 ? 1 : most < batches ? (Index)most : batches;
    }
  }
  /// The tile that this block has in a round, total or more when there is none.
  INGOT_DEV Index of_round(Index round) const {
    const Index turn = Score::kGrows && round % 2 != 0 ? gridDim.x - 1 - blockIdx.x : blockIdx.x;
    return round * (Index)gridDim.x + turn;
  }
  struct Place {
    Index batch, m0;
  };
  INGOT_DEV Place place(Index tile) const {
    if (!Score::kGrows) return {tile / rows, tile % rows * Plan::tile_m};
    const Index first = tile / (section * rows) * section, at = tile - first * rows;
    const Index width = section < batches - first ? section : batches - first;
    return {first + at % width, (rows - 1 - at / width) * Plan::tile_m};
  }
  /// Steps for the rows of a tile up to m0 + count.
  INGOT_DEV Index steps(Index batch, Index m0, int count) const {
    const Index m = m0 + count, last = (m < m_end ? m : m_end) - 1;
    return (score->reach(batch, last, n_end) + Plan::tile_n - 1) / Plan::tile_n;
  }
};

template <int Panels, u32 PanelBytes>
INGOT_DEV void send_panels(u32 to, const TensorMap* map, u32 barrier, int row, int start) {
#pragma unroll
  for (int p = 0; p < Panels; ++p) tma_load3(to + p * PanelBytes, map, barrier, p * 64, row, start);
}

template <class Plan, class Starts, class Score>
INGOT_DEV void send_attention(const TensorMap* q, const TensorMap* key, const TensorMap* value, const Starts& starts,
                              const AttentionTiles<Plan, Score>& tiles, AttentionMemory<Plan> memory) {
  typedef typename Plan::index Index;
  typedef AttentionMemory<Plan> Memory;
#pragma unroll 1
  for (Index round = 0; tiles.of_round(round) < tiles.total; ++round) {
    const auto [batch, m0] = tiles.place(tiles.of_round(round));
    const Index steps = tiles.steps(batch, m0, Plan::tile_m);
    memory.queries.open(Memory::kQueries);
    send_panels<Memory::kPanels, Memory::kQueryPanel>(memory.query_stage(), q, memory.queries.full(), (int)m0,
                                                      (int)starts.q(batch));
    memory.queries.advance();
    const int key_start = (int)starts.key(batch), value_start = (int)starts.value(batch);
#pragma unroll 1
    for (Index step = 0; step < steps; ++step) {
      memory.keys.open(Memory::kKeys);
      send_panels<Memory::kPanels, Memory::kPanel>(memory.key_stage(), key, memory.keys.full(), (int)step * Plan::tile_n,
                                                   key_start);
      memory.keys.advance();
      memory.values.open(Memory::kValues);
      send_panels<Memory::kValuePanels, Memory::kPanel>(memory.value_stage(memory.values.slot), value, memory.values.full(),
                                                        (int)step * Plan::tile_n, value_start);
      memory.values.advance();
    }
  }
}

/// A warpgroup that multiplies.
template <class Plan> struct AttentionGroup : OnlineSoftmax<Plan::tile_n, Plan::tile_d> {
  typedef typename Plan::element T;
  typedef typename Plan::index Index;
  typedef AttentionMemory<Plan> Memory;
  typedef OnlineSoftmax<Plan::tile_n, Plan::tile_d> Softmax;
  static constexpr int kType = MmaTraits<T>::type;
  u32 operands[Plan::tile_n / 16][4];  // weights
  Memory memory;

  int warp, group;  // of the block's, those of this thread

  /// `of`: the warp's number, asked for before warps take different ways: so that descriptors stay in uniform registers.
  INGOT_DEV AttentionGroup(u32 shared, int of) : memory(shared), warp(of), group(of / 4) {}

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
  INGOT_DEV void pack() {
#pragma unroll
    for (int k = 0; k < Plan::tile_n; k += 16) this->template operand<T>(operands[k / 16], k);
  }
  /// Rows m0 ... m0 + 63 of a tile.
  template <class Score>
  INGOT_DEV void attend(const Score& score, Index batch, Index m0, Index m_end, Index n_end, Index steps) {
    float scale[2];
    this->clear();
    memory.queries.wait_full();
    memory.keys.wait_full();
    start_scores();
    wgmma_wait<0>();
    wgmma_results(this->scores);
    memory.keys.release();
    memory.keys.advance();
    this->logits(score, batch, m0, (Index)0, m_end, n_end);
    this->template weights<Score>(scale);
    pack();
#pragma unroll 1
    for (Index step = 1; step < steps; ++step) {
      memory.keys.wait_full();
      start_scores();
      memory.values.wait_full();
      start_values(memory.values.slot);
      wgmma_wait<1>();
      wgmma_results(this->scores);
      memory.keys.release();
      memory.keys.advance();
      this->logits(score, batch, m0, step * Plan::tile_n, m_end, n_end);
      this->template weights<Score>(scale);
      wgmma_wait<0>();
      wgmma_results(this->acc);
      wgmma_operands(operands);
      memory.values.release();
      memory.values.advance();
      this->rescale(scale);
      pack();
    }
    memory.queries.release();
    memory.values.wait_full();
    start_values(memory.values.slot);
    wgmma_wait<0>();
    wgmma_results(this->acc);
    memory.values.release();
    memory.values.advance();
    this->template finish<Plan::no_logit>();
  }
  /// Keys that no query of this warpgroup sees: the others still wait for its word.
  INGOT_DEV void pass(Index steps) {
#pragma unroll 1
    for (Index step = 0; step < steps; ++step) {
      memory.keys.wait_full();
      memory.keys.release();
      memory.keys.advance();
      memory.values.wait_full();
      memory.values.release();
      memory.values.advance();
    }
  }
  template <class Score, class Epilogue>
  INGOT_DEV void run(const Score& score, const Epilogue& epilogue, const AttentionTiles<Plan, Score>& tiles, Index d_end) {
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
      store_rows<Plan>(*(const float(*)[1][Plan::tile_d / 2])this->acc, epilogue, batch,
                       first + (Index)(warp * 16), (Index)0, tiles.m_end, d_end, scratch);
    }
  }
};

template <class Plan, class Starts, class Score, class Epilogue>
INGOT_DEV void attention_boxes(const TensorMap* q, const TensorMap* key, const TensorMap* value, const Starts& starts,
                               const Score& score, const Epilogue& epilogue, typename Plan::index batches,
                               typename Plan::index m_end, typename Plan::index n_end, typename Plan::index d_end, u32 shared) {
  const int warp = warp_uniform(threadIdx.x / 32);
  const AttentionTiles<Plan, Score> tiles(score, batches, m_end, n_end);
  if (threadIdx.x == 0) {
    tma_prefetch(q);
    tma_prefetch(key);
    tma_prefetch(value);
    AttentionMemory<Plan>(shared).start();
  }
  cta_sync();
  if (warp / 4 == Plan::groups) {
    share_registers<Plan, true>();
    pdl_begin();
    if (threadIdx.x == Plan::groups * 128) send_attention(q, key, value, starts, tiles, AttentionMemory<Plan>(shared));
  } else {
    share_registers<Plan, false>();
    pdl_begin();
    AttentionGroup<Plan>(shared, warp).run(score, epilogue, tiles, d_end);
  }
}
