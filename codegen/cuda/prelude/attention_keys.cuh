// Attention with few queries (attention.cuh) whose keys and values arrive as boxes (TMA, sm_90a), of 16 bits an element. One
// thread sends for them. Warps wait for a stage, multiply their keys of it, and give it back: none waits for another but where
// their parts join. What a copy by threads takes of an SM bounds it to some 25 bytes a cycle, where boxes bring 35.
//
// A kernel brings functors and a Plan, as for attention.cuh, with these differences:
//   Starts      key(b), value(b) in place of the prologues of keys and values, as in attention_boxes.cuh
//   Plan        workers (threads that multiply), threads (a warp more), part_rows (rows of the tile that may have results: 8
//               or tile_m). Clusters (or blocks) go on from tile to tile until there are none left
#pragma once
#include "prelude/attention.cuh"
#include "prelude/stage_ring.cuh"

/// The plan of the threads that multiply.
template <class Plan> struct WorkerPlan : Plan {
  static constexpr int threads = Plan::workers;
};
template <class Plan> struct JoinedPlan : WorkerPlan<Plan> {
  static constexpr int tile_m = Plan::part_rows;
};

/// Rows as boxes bring them: panels of 64 columns, rows of 128 bytes whose chunks of 16 are permuted.
template <class Plan, bool AlongK> struct PanelRows {
  static constexpr u32 kPanel = Plan::tile_n * 128;
  /// Eight columns of a row; `column` is one of the panel's.
  static INGOT_DEV u32 chunk(u32 panel, int row, int column) { return panel + row * 128 + (column / 8 ^ row % 8) * 16; }
  /// Two operands of eight columns (or keys) each, as in MmaOperand.
  static INGOT_DEV void load8x2(u32 (&r)[4], u32 stage, int x, int k) {
    const int lane = threadIdx.x % 32;
    if constexpr (AlongK)
      ldmatrix4(chunk(stage + k / 64 * kPanel, x + lane % 8 + lane / 16 * 8, k % 64 + lane / 8 % 2 * 8), r);
    else ldmatrix4_trans(chunk(stage + x / 64 * kPanel, k + lane % 16, x % 64 + lane / 16 * 8), r);
  }
};

/// Stages of keys and behind them their values; then queries, the parts of warps, what arrives from other blocks, barriers. In a
/// cluster, which sends for nothing until its parts have joined, these take the place of the stages.
template <class Plan, u32 QueryBytes> struct KeyMemory {
  typedef JoinedParts<JoinedPlan<Plan>, true> Joined;
  static constexpr int kPanels = (Plan::head + 63) / 64, kValuePanels = (Plan::tile_d + 63) / 64;
  static constexpr u32 kPanel = Plan::tile_n * 128;
  static constexpr u32 kKeys = kPanels * kPanel, kStage = kKeys + kValuePanels * kPanel;
  static constexpr bool kCluster = Plan::cluster_k > 1;
  static constexpr u32 kStages = Plan::stages * kStage;
  static constexpr u32 kQueriesAt = kCluster && kStages < Joined::kBytes ? Joined::kBytes : kStages;
  static constexpr u32 kPartsAt = kCluster ? 0 : kQueriesAt + QueryBytes;
  static constexpr u32 kSentAt = kQueriesAt + QueryBytes + (kCluster ? 0 : Joined::kBytes);
  static constexpr u32 kBarriersAt = kSentAt + (kCluster ? Plan::part_rows * (Plan::tile_d * 4 + 8) : 0);
  u32 shared;
  StageRing<Plan::stages> ring;

  INGOT_DEV explicit KeyMemory(u32 base) : shared(base), ring(base + kBarriersAt) {}
  INGOT_DEV u32 keys() const { return shared + ring.slot * kStage; }
  INGOT_DEV u32 values() const { return keys() + kKeys; }
};

/// The tiles of a cluster, and of each the steps of a block: every cluster_k-th.
template <class Plan, class Score> struct KeyTiles {
  typedef typename Plan::index Index;
  static constexpr bool kCluster = Plan::cluster_k > 1;
  const Score* score;
  Index m_end, n_end, rows, total, first_step;

  INGOT_DEV KeyTiles(const Score& s, Index batches, Index m_stop, Index n_stop)
      : score(&s),
        m_end(m_stop),
        n_end(n_stop),
        rows((m_stop + Plan::tile_m - 1) / Plan::tile_m),
        total(rows * batches),
        first_step(kCluster ? (Index)cluster_rank() : (Index)0) {}
  static INGOT_DEV Index first() { return blockIdx.x / Plan::cluster_k; }
  static INGOT_DEV Index further() { return gridDim.x / Plan::cluster_k; }
  INGOT_DEV Index batch(Index tile) const { return tile / rows; }
  INGOT_DEV Index m0(Index tile) const { return tile % rows * Plan::tile_m; }
  /// No query of the tile sees keys from there on.
  INGOT_DEV Index stop(Index tile) const {
    const Index m = m0(tile) + Plan::tile_m;
    return score->reach(batch(tile), (m < m_end ? m : m_end) - 1, n_end);
  }
};

/// By all lanes of a warp: what the others do at the barriers of the cluster, it does, too.
template <class Plan, class Starts, class Memory, class Tiles>
INGOT_DEV void send_key_stages(const TensorMap* key, const TensorMap* value, const Starts& starts, const Tiles& tiles,
                               Memory memory) {
  typedef typename Plan::index Index;
#pragma unroll 1
  for (Index tile = tiles.first(); tile < tiles.total; tile += tiles.further()) {
    if constexpr (Tiles::kCluster) cluster_arrive();
    if (threadIdx.x % 32 == 0) {
      const Index stop = tiles.stop(tile), batch = tiles.batch(tile);
      const int key_start = (int)starts.key(batch), value_start = (int)starts.value(batch);
#pragma unroll 1
      for (Index step = tiles.first_step; step * Plan::tile_n < stop; step += Plan::cluster_k) {
        const int row = (int)step * Plan::tile_n;
        memory.ring.open(Memory::kStage);
        send_panels<Memory::kPanels, 64, Memory::kPanel>(memory.keys(), key, memory.ring.full(), row, key_start);
        send_panels<Memory::kValuePanels, 64, Memory::kPanel>(memory.values(), value, memory.ring.full(), row, value_start);
        memory.ring.advance();
      }
    }
    warp_sync();
    if constexpr (Tiles::kCluster) {
      cluster_wait();
      cluster_sync();
    }
  }
}

/// The products of a warp; its queries stay in registers.
template <class Plan, class OperandQ>
struct KeyProducts : AttentionTile<WorkerPlan<Plan>, OperandQ, PanelRows<Plan, true>, PanelRows<Plan, false>> {
  typedef AttentionTile<WorkerPlan<Plan>, OperandQ, PanelRows<Plan, true>, PanelRows<Plan, false>> Tile;
  u32 queries[Plan::head / 16][4];

  INGOT_DEV void hold(u32 q) {
#pragma unroll
    for (int k = 0; k < Plan::head; k += 16) OperandQ::load16(queries[k / 16], q, this->warp_row(), k);
  }
  /// In two sums, each of every other 16 columns: a product by tensor cores waits for the one that it adds to.
  INGOT_DEV void dot_products(u32 key) {
    const int n = Tile::first_key();
    float other[Tile::kKeys * 4];
#pragma unroll
    for (int i = 0; i < Tile::kKeys * 4; ++i) this->scores[i] = other[i] = 0;
#pragma unroll
    for (int k = 0; k < Plan::head; k += 16) {
#pragma unroll
      for (int j = 0; j < Tile::kKeys; j += 2) {
        u32 r[4];
        PanelRows<Plan, true>::load8x2(r, key, n + j * 8, k);
        float* sums = k % 32 == 0 ? this->scores : other;
        Tile::multiply(Tile::four(sums, j), Tile::four(sums, j + 1), queries[k / 16], r);
      }
    }
#pragma unroll
    for (int i = 0; i < Tile::kKeys * 4; ++i) this->scores[i] += other[i];
  }
};

template <class Plan, class PrologueQ, class Starts, class Score, class Epilogue>
INGOT_DEV void attention_keys(const TensorMap* key, const TensorMap* value, const PrologueQ& q, const Starts& starts,
                              const Score& score, const Epilogue& epilogue, typename Plan::index batches,
                              typename Plan::index m_end, typename Plan::index n_end, typename Plan::index k_end,
                              typename Plan::index d_end, u32 shared) {
  typedef typename Plan::index Index;
  typedef MmaOperand<QueryPlan<WorkerPlan<Plan>>, PrologueQ, Plan::tile_m, true, Plan::q_vector, Plan::q_raw, false> OperandQ;
  typedef KeyMemory<Plan, OperandQ::kBytes> Memory;
  typedef KeyTiles<Plan, Score> Tiles;
  const Tiles tiles(score, batches, m_end, n_end);
  Memory memory(shared);
  if (threadIdx.x == 0) {
    tma_prefetch(key);
    tma_prefetch(value);
    memory.ring.start(Plan::workers / 32);
    fence_mbar_init();
  }
  cta_sync();
  pdl_begin();
  if (threadIdx.x >= Plan::workers) return send_key_stages<Plan>(key, value, starts, tiles, memory);
  const typename Memory::Joined joined{shared + Memory::kPartsAt, shared + Memory::kSentAt};
  KeyProducts<Plan, OperandQ> products;
#pragma unroll 1
  for (Index tile = tiles.first(); tile < tiles.total; tile += tiles.further()) {
    const Index batch = tiles.batch(tile), m0 = tiles.m0(tile), stop = tiles.stop(tile);
    if constexpr (Tiles::kCluster) cluster_arrive();
    OperandQ in_q;
    in_q.start(q, batch, m0, m_end);
    load_tile(in_q, q, shared + Memory::kQueriesAt, (Index)0, k_end);
    cp_async_commit();
    cp_async_wait<0>();
    joined.sync();
    products.hold(shared + Memory::kQueriesAt);
    products.clear();
#pragma unroll 1
    for (Index step = tiles.first_step; step * Plan::tile_n < stop; step += Plan::cluster_k) {
      memory.ring.wait_full();
      products.dot_products(memory.keys());
      float scale[2];
      products.logits(score, batch, m0, step * Plan::tile_n + products.first_key(), m_end, stop);
      products.template weights<Score>(scale);
      products.rescale_if_larger(scale);
      products.add_values(memory.values());
      warp_sync();  // all lanes have read the stage
      memory.ring.release();
      memory.ring.advance();
    }
    if constexpr (Tiles::kCluster) joined.sync();  // all have left the stages
    joined.template put<Score>(products, products.part());
    if constexpr (Tiles::kCluster) fence_proxy_async();  // boxes arrive there next
    joined.template finish_all<Plan::no_logit>(epilogue, batch, m0, m_end, d_end);
  }
}
