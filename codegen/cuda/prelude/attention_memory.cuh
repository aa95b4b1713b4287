// What a block of attention by boxes has in shared memory, its tiles, and the thread that sends for the boxes
// (attention_boxes.cuh, which describes functors and plan).
//
// Operands of 16 bits are multiplied as they arrive. Of 32-bit operands (wide) the tensor cores take rows along k only,
// and so the values are turned on their way: they arrive in stages of their own, and warps beside the sender write them
// as columns into the stages that are multiplied (attention_wide.cuh). Where the products have the accuracy of f32,
// these stages and those of the keys hold an image of the small part behind what arrives (split_product.cuh).
#pragma once
#include "prelude/split_tf32.cuh"
#include "prelude/stage_ring.cuh"
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

/// Panels of 128 bytes a row, as wgmma reads them; then scratch, then barriers.
template <class Plan>
struct AttentionMemory {
  typedef typename Plan::element T;
  static constexpr bool kWide = sizeof(T) == 4, kSplit = kWide && !Plan::single;
  static constexpr int kColumns = 128 / sizeof(T);  // of a panel
  static constexpr int kPanels = (Plan::head + kColumns - 1) / kColumns,
                       kValuePanels = (Plan::tile_d + kColumns - 1) / kColumns;
  static constexpr u32 kQueryPanel = Plan::tile_m * 128, kPanel = Plan::tile_n * 128;
  static constexpr u32 kQueries = kPanels * kQueryPanel, kKeys = kPanels * kPanel, kValues = kValuePanels * kPanel;
  // Turned values: panels of 32 keys, a row for each column of the values.
  static constexpr u32 kTurnedPanel = Plan::tile_d * 128, kTurned = Plan::tile_n / 32 * kTurnedPanel;
  static constexpr u32 kKeyStage = kKeys * (kSplit ? 2 : 1);
  static constexpr u32 kValueStage = kWide ? kTurned * (kSplit ? 2 : 1) : kValues;
  static constexpr int kArriving = kWide ? Plan::arriving : 1,
                       kTurners = 3;  // stages of values to be turned, and warps that turn
  static constexpr u32 kSmallAt = Plan::q_stages * kQueries;  // the small part of the queries that are being multiplied
  static constexpr u32 kKeysAt = kSmallAt + (kSplit ? kQueries : 0), kValuesAt = kKeysAt + Plan::stages * kKeyStage;
  static constexpr u32 kArrivingAt = kValuesAt + Plan::stages * kValueStage;
  static constexpr u32 kScratchAt = kArrivingAt + (kWide ? kArriving * kValues : 0);
  static constexpr u32 kBarriersAt = kScratchAt + Plan::groups * 4 * WarpScratch<Plan>::kBytes;
  u32 shared;
  StageRing<Plan::q_stages> queries;
  StageRing<Plan::stages> keys, values;
  StageRing<kArriving> arriving;
  u32 whole;  // barriers: the keys of a stage have their small part

  INGOT_DEV explicit AttentionMemory(u32 base)
      : shared(base),
        queries(base + kBarriersAt),
        keys(base + kBarriersAt + Plan::q_stages * 16),
        values(keys.barriers + Plan::stages * 16),
        arriving(values.barriers + Plan::stages * 16),
        whole(arriving.barriers + kArriving * 16) {}
  INGOT_DEV void start() const {
    queries.start(Plan::groups * 4);
    keys.start(Plan::groups * 4);
    values.start(Plan::groups * 4, kWide ? kTurners : 1);
    if constexpr (kWide) arriving.start(kTurners);
    for (int s = 0; kSplit && s < Plan::stages; ++s) mbar_init(whole + s * 8, kTurners);
    fence_mbar_init();
  }
  INGOT_DEV u32 query_stage() const { return shared + queries.slot * kQueries; }
  INGOT_DEV u32 key_stage() const { return shared + kKeysAt + keys.slot * kKeyStage; }
  INGOT_DEV u32 value_stage(u32 slot) const { return shared + kValuesAt + slot * kValueStage; }
  INGOT_DEV u32 arriving_stage() const { return shared + kArrivingAt + arriving.slot * kValues; }
  INGOT_DEV u32 keys_whole() const { return whole + keys.slot * 8; }
  /// The keys may be multiplied.
  INGOT_DEV void wait_keys() const { mbar_wait(kSplit ? keys_whole() : keys.full(), keys.phase); }
};

/// The tiles of a problem. Queries of one batch index are neighbours, for the sake of L2; with masks that let later
/// queries see more keys (Score::kGrows), those of as many batch indices as have their keys in L2 together: the long
/// tiles come first, and blocks go through the tiles forth and back, so that none has the long ones only.
template <class Plan, class Score>
struct AttentionTiles {
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

template <class Plan, class Ring>
INGOT_DEV void send_values(Ring& ring, u32 to, const TensorMap* map, int row, int start) {
  typedef AttentionMemory<Plan> Memory;
  ring.open(Memory::kValues);
  send_panels<Memory::kValuePanels, Memory::kColumns, Memory::kPanel>(to, map, ring.full(), row, start);
  ring.advance();
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
    send_panels<Memory::kPanels, Memory::kColumns, Memory::kQueryPanel>(memory.query_stage(), q, memory.queries.full(),
                                                                        (int)m0, (int)starts.q(batch));
    memory.queries.advance();
    const int key_start = (int)starts.key(batch), value_start = (int)starts.value(batch);
#pragma unroll 1
    for (Index step = 0; step < steps; ++step) {
      const int row = (int)step * Plan::tile_n;
      memory.keys.open(Memory::kKeys);
      send_panels<Memory::kPanels, Memory::kColumns, Memory::kPanel>(memory.key_stage(), key, memory.keys.full(), row,
                                                                     key_start);
      memory.keys.advance();
      if constexpr (Memory::kWide) send_values<Plan>(memory.arriving, memory.arriving_stage(), value, row, value_start);
      else send_values<Plan>(memory.values, memory.value_stage(memory.values.slot), value, row, value_start);
    }
  }
}
