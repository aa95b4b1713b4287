// A matrix product with few columns and a short k, whose rows arrive and leave as they lie in memory (sm_90a): A is read
// in long pieces without padding (row_source.cuh), and goes to the tensor cores through registers, where `Prologue` may change it on the way (a
// gate); the weights stay in shared memory. Each warpgroup is a team that goes on from tile to tile by itself. Of the plan:
//   tile_m, tile_n     rows of a tile (64 for each row of acc); all columns
//   k                  all of it, a multiple of 8
//   teams, stages      warpgroups, and the tiles of A that each has room for
//   buffers, staged_input   staged_results.cuh: a piece for each 64 rows, and where `boxed`, for 64 columns of them
//   boxed              results leave as boxes of 64 columns, else in whole rows
//   prologue           A is not used as it is stored (changed_fragment.cuh)
//   lines              rows are windows of an image (row_source.cuh)
// The epilogue's functor is that of staged_results.cuh.
#pragma once
#include "prelude/changed_fragment.cuh"
#include "prelude/row_source.cuh"
#include "prelude/staged_results.cuh"
#include "prelude/wgmma.cuh"

INGOT_WGMMA(8) INGOT_WGMMA(16) INGOT_WGMMA(24) INGOT_WGMMA(32) INGOT_WGMMA(40) INGOT_WGMMA(48) INGOT_WGMMA(56) INGOT_WGMMA(64)
INGOT_WGMMA(72) INGOT_WGMMA(80) INGOT_WGMMA(88) INGOT_WGMMA(96) INGOT_WGMMA(104) INGOT_WGMMA(112) INGOT_WGMMA(120) INGOT_WGMMA(128)
INGOT_WGMMA(136) INGOT_WGMMA(144) INGOT_WGMMA(152) INGOT_WGMMA(160) INGOT_WGMMA(168) INGOT_WGMMA(176) INGOT_WGMMA(184) INGOT_WGMMA(192)
INGOT_WGMMA(200) INGOT_WGMMA(208) INGOT_WGMMA(216) INGOT_WGMMA(224) INGOT_WGMMA(232) INGOT_WGMMA(240) INGOT_WGMMA(248) INGOT_WGMMA(256)

template <class Plan> struct RowsMemory {
  static constexpr int kIn = RowSource<Plan>::Type::kBytes;  // bytes
  static constexpr int kOut = Plan::buffers * 16 * (Plan::boxed ? 64 : Plan::tile_n) * 2;  // of a warp
  static constexpr int kPanel = Plan::tile_n * 128, kPanels = (Plan::k + 63) / 64;  // of the weights: 64 of k
  static constexpr int kRings = kPanels * kPanel, kResults = (kRings + Plan::teams * Plan::stages * kIn + 1023) / 1024 * 1024;
  static constexpr int kBarriers = kResults + Plan::teams * 4 * kOut;
  u32 shared;

  INGOT_DEV u32 weights(int k) const { return shared + k / 64 * kPanel + k % 64 * 2; }
  INGOT_DEV u32 stage(int team, u32 slot) const { return shared + kRings + (team * Plan::stages + (int)slot) * kIn; }
  INGOT_DEV u32 results(int warp) const { return shared + kResults + warp * kOut; }
  INGOT_DEV u32 have_weights() const { return shared + kBarriers; }
  INGOT_DEV u32 full(int team, u32 slot) const { return shared + kBarriers + 8 + (team * Plan::stages + (int)slot) * 16; }
  INGOT_DEV u32 empty(int team, u32 slot) const { return full(team, slot) + 8; }
  INGOT_DEV u32 inputs(int warp) const { return full(Plan::teams, 0) + warp * Plan::buffers * 8; }
  /// By one thread, before all others use them.
  INGOT_DEV void start() const {
    mbar_init(have_weights(), 1);
#pragma unroll 1
    for (int s = 0; s < Plan::teams * Plan::stages; ++s) {
      mbar_init(full(0, 0) + s * 16, 1);
      mbar_init(empty(0, 0) + s * 16, 4);
    }
    for (int i = 0; Plan::staged_input && i < Plan::teams * 4 * Plan::buffers; ++i) mbar_init(inputs(0) + i * 8, 1);
    fence_mbar_init();
  }
  INGOT_DEV void send_weights(const TensorMap* b) const {
    mbar_arrive_expect_tx(have_weights(), kPanels * kPanel);
#pragma unroll 1
    for (int p = 0; p < kPanels; ++p) tma_load3(shared + p * kPanel, b, have_weights(), p * 64, 0, 0);
  }
};

/// A warpgroup and its tiles: every `step`th from `first` on.
template <class Plan, class PrologueA, class Epilogue, class Way> struct RowsTeam {
  typedef typename Plan::index Index;
  typedef typename Plan::element T;
  typedef RowsMemory<Plan> Memory;
  typedef typename RowSource<Plan>::Type Source;
  static constexpr int kRows = Plan::tile_m / 64, kSteps = (Plan::k + 15) / 16, kTogether = 4;  // steps of 16 of k
  static constexpr int kType = MmaTraits<T>::type;
  Memory memory;
  Source source;
  const PrologueA* prologue;
  Index first, step, tiles;  // this team has every `step`th of them
  Index m_end;
  int in_block, team;  // of the block's warps and warpgroups, those of this thread
  float acc[kRows][Plan::tile_n / 2];
  u32 operands[2][kTogether][kRows][4];

  INGOT_DEV int warp() const { return in_block % 4; }
  INGOT_DEV bool sends() const { return threadIdx.x % 128 < Source::kSenders; }
  INGOT_DEV void send(Index t, u32 slot) const {
    source.send(Source::tile(t, m_end), memory.stage(team, slot), memory.full(team, slot));
  }
  /// The first tiles, by those that send.
  INGOT_DEV void send_first() const {
#pragma unroll 1
    for (int s = 0; s < Plan::stages; ++s) {
      const Index t = first + s * step;
      if (t < tiles) send(t, s);
    }
  }
  /// Steps 16 * at of k of the row of this lane, as the tensor cores take them.
  template <class Sides> INGOT_DEV void load(u32 row, int at, const Sides& side, u32 (&words)[4]) const {
    constexpr bool kHalf = Plan::k % 16 != 0;
    const bool last_half = kHalf && at == kSteps - 1;
    ldmatrix4(row + Source::piece(at) + (last_half ? 0 : threadIdx.x % 32 / 16 * 16), words);
    if (last_half) words[2] = words[3] = 0;
    Source::clear_absent(at, words);
    if constexpr (Plan::prologue) change_fragment<T>(*prologue, side, (Index)(at * 16), (Index)Plan::k, words);
  }
  /// The operands of a group of steps were in use until here; of the last group, those that there are.
  INGOT_DEV void keep(int group) const {
#pragma unroll
    for (int s = 0; s < kTogether; ++s) {
      if (group * kTogether + s < kSteps) wgmma_operands(operands[group % 2][s]);
    }
  }
  /// The tile's rows at `stage`: of each 64 of them, 16 are this warp's.
  template <class Sides> INGOT_DEV void multiply(const RowTile<Index>& tile, u32 stage, const Sides& sides) {
    const int rows = tile.template rows<Plan>();
    u32 from[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int row = r * 64 + warp() * 16 + threadIdx.x % 16;
      from[r] = Source::row(tile, stage, (row < rows ? row : rows - 1));
    }
#pragma unroll
    for (int g = 0; g < kSteps; g += kTogether) {
      u32(&now)[kTogether][kRows][4] = operands[g / kTogether % 2];
#pragma unroll
      for (int s = 0; s < kTogether; ++s) {
#pragma unroll
        for (int r = 0; r < kRows; ++r)
          if (g + s < kSteps) load(from[r], g + s, sides[r], now[s][r]);
      }
      wgmma_fence();
#pragma unroll
      for (int s = 0; s < kTogether; ++s) {
        if (g + s >= kSteps) continue;
        const u64 b = wgmma_desc(memory.weights((g + s) * 16), 16, 1024, kSwizzle128);
#pragma unroll
        for (int r = 0; r < kRows; ++r) wgmma_ra<kType, 0>(acc[r], now[s][r], b, g + s > 0);
      }
      wgmma_commit();
      if (g + kTogether >= kSteps) continue;
      wgmma_wait<1>();  // the operands of the group before may go
      if (g > 0) keep(g / kTogether - 1);
    }
  }
  INGOT_DEV void run(const Epilogue& epilogue, const Way& way, Index n_end) {
    const int lane = threadIdx.x % 32;
    StagedWarp<Plan, Epilogue, Way> staged{&epilogue, way, memory.results(in_block), memory.inputs(in_block)};
    staged.n_end = n_end;
    u32 slot = 0, phase = 0;
#pragma unroll 1
    for (Index t = first; t < tiles; t += step) {
      const RowTile<Index> tile = Source::tile(t, m_end);
      staged.m_end = tile.end;
      staged.begin(0, tile.m0 + warp() * 16, 0);
      FragmentSides<PrologueA, Plan::prologue> sides[kRows];
#pragma unroll
      for (int r = 0; r < kRows; ++r) sides[r].start(*prologue, (Index)0, tile.m0 + r * 64 + warp() * 16, m_end);
      u32 touched = 0;
      if constexpr (Plan::prologue) touched = touch_changes<(Plan::k + 63) / 64>(*prologue, sides[0], (Index)0, (Index)Plan::k);
      mbar_wait(memory.full(team, slot), phase);
      multiply(tile, memory.stage(team, slot), sides);
      warp_sync();
      if (lane == 0) mbar_arrive(memory.empty(team, slot));
      if (sends() && t + Plan::stages * step < tiles) {
        mbar_wait(memory.empty(team, slot), phase);
        send(t + Plan::stages * step, slot);
      }
      if (++slot == Plan::stages) {
        slot = 0;
        phase ^= 1;
      }
      wgmma_wait<0>();
#pragma unroll
      for (int r = 0; r < kRows; ++r) wgmma_results(acc[r]);
      keep((kSteps - 1) / kTogether);
      if (kSteps > kTogether) keep((kSteps - 1) / kTogether - 1);
      staged.store(acc);
      ::keep(touched);
    }
    staged.finish();
  }
};

/// `way`: how results leave (BoxedResults, RowsOfResults).
template <class Plan, class PrologueA, class Way, class Epilogue>
INGOT_DEV void contraction_rows(const typename Plan::element* a, const TensorMap* b, const PrologueA& prologue, const Way& way,
                                const Epilogue& epilogue, typename Plan::index m_end, typename Plan::index n_end, u32 shared) {
  typedef typename Plan::index Index;
  typedef RowsTeam<Plan, PrologueA, Epilogue, Way> Team;
  const RowsMemory<Plan> memory{shared};
  const int warp = warp_uniform(threadIdx.x / 32);  // before warps take different ways, as in wgmma_product.cuh
  if (threadIdx.x == 0) {
    tma_prefetch(b);
    memory.start();
    if constexpr (Plan::b_early) memory.send_weights(b);
  }
  cta_sync();
  if constexpr (!Plan::a_early) pdl_begin();
  Team team;
  team.memory = memory;
  team.source = {a};
  team.prologue = &prologue;
  team.in_block = warp;
  team.team = warp / 4;
  team.first = (Index)team.team * gridDim.x + blockIdx.x;
  team.step = (Index)Plan::teams * gridDim.x;
  team.tiles = Team::Source::tiles(m_end);
  team.m_end = m_end;
  if (team.sends()) team.send_first();
  if constexpr (Plan::a_early) pdl_begin();
  if (!Plan::b_early && threadIdx.x == 0) memory.send_weights(b);
  mbar_wait(memory.have_weights(), 0);
  team.run(epilogue, way, n_end);
}
