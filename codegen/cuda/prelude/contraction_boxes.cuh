// The main loop of a matrix product whose operands arrive as boxes (TMA, sm_90a): one thread sends for them, warpgroups
// multiply, and a block goes on from tile to tile until there are none left. The epilogue's functor and the plan are those
// of contraction_wgmma.cuh, and of the plan besides:
//   groups    warpgroups that multiply; behind them in the block come the threads of the sender
//   in_turn   they are two teams with tiles of their own: one multiplies while the other stores its results
//   staged    16-bit results go to memory by TMA (staged_results.cuh)
//   chunk     else, columns of results that a warp gives to the epilogue at a time
//   a_rows    rows of A in a box along k, at most: fewer than the tile's where the matrix has fewer, or only whole groups count
//   cluster_k blocks of a cluster that share a tile, each with its part of k; their sums meet in shared memory (contraction_tile.cuh)
//   grid_k    blocks of the grid that divide the k of a tile; their parts of the sums meet in memory (divided_sums.cuh)
//   by_group  the third axis of A is groups of `together` rows
//   prologue  A is computed from what arrives, in registers (changed_fragment.cuh): warpgroups of 64 rows
//   single    of f32: one product of tf32 for each; else three, for the accuracy of f32 (split_product.cuh): warpgroups of 64 rows
//   row_values  floats of a row that its results need; where a cluster adds up, they are at row_room of the block's shared memory
//   part_width  results of a row whose sums are stored, too (row_parts.cuh)
//   batched   there is more than one product, and both operands have their axis
//   late      the products do not depend on the kernel's predecessor: only their results wait for it
//   window    A is an image, channels last, that a window goes over: `channels` at each of `taps` places, and of each axis
//             the outputs, the step, the first place and the dilation
#pragma once
#include "prelude/changed_fragment.cuh"
#include "prelude/contraction_tile.cuh"
#include "prelude/divided_sums.cuh"
#include "prelude/row_parts.cuh"
#include "prelude/split_product.cuh"
#include "prelude/staged_results.cuh"
#include "prelude/tma.cuh"
#include "prelude/warp_results.cuh"
#include "prelude/wgmma_product.cuh"

/// The shared memory that results of a warp pass through: where a cluster adds them up, that is the ring's.
template <class Plan, bool Staged = Plan::staged> struct ResultRoom {
  static constexpr int kBytes = Plan::cluster_k * Plan::grid_k > 1 ? 0 : WarpScratch<Plan>::kBytes;
};
template <class Plan> struct ResultRoom<Plan, true> {
  static constexpr int kBytes = Plan::buffers * BoxedResults<Plan>::kBytes;
};

/// What stores the results of a warp by TMA, or takes its place where the threads store them.
template <class Plan, class Epilogue, bool Staged = Plan::staged> struct ResultsByBox {
  typedef StagedWarp<Plan, Epilogue, BoxedResults<Plan>> Type;
};
template <class Plan, class Epilogue> struct ResultsByBox<Plan, Epilogue, false> {
  struct Type {
    const Epilogue* epilogue;
    struct { const TensorMap *out, *in; } way;
    u32 shared, barriers;
    typename Plan::index m_end, n_end;
  };
};

template <class Plan> struct BoxRing {
  typedef typename Plan::index Index;
  static constexpr int kRow = Plan::tile_k * (int)sizeof(typename Plan::element);  // bytes of an operand's row in a stage: 128, or 64
  static constexpr int kBytesA = Plan::tile_m * kRow, kBytesB = Plan::tile_n * kRow;
  static constexpr int kStage = kBytesA + kBytesB * (has_small_parts<Plan>() ? 2 : 1);  // a small part lies behind what arrives
  static constexpr int kRing = Plan::stages * kStage;
  // Room for results of each warp, then barriers: of the stages, of the warpgroups' turns, and of staged inputs.
  static constexpr int kWarp = ResultRoom<Plan>::kBytes, kBarriers = kRing + Plan::groups * 4 * kWarp;
  static constexpr int kTeams = Plan::in_turn ? 2 : 1;
  static constexpr bool kClipped = Plan::a_along_k && !Plan::window;
  static constexpr int kReaders = Plan::groups / kTeams * 4;  // warps of a team
  u32 shared, a_rows, slot = 0, phase = 0;

  /// The box of A along k has no more rows than the matrix.
  INGOT_DEV BoxRing(u32 base, Index m_end) : shared(base), a_rows(Plan::a_rows) {
    if constexpr (kClipped) a_rows = m_end < Plan::a_rows ? (u32)m_end : Plan::a_rows;
  }
  /// What arrives in a stage.
  INGOT_DEV u32 sent() const { return (Plan::a_along_k || Plan::window ? a_rows * kRow : kBytesA) + kBytesB; }
  INGOT_DEV u32 full() const { return shared + kBarriers + slot * 16; }
  INGOT_DEV u32 empty() const { return full() + 8; }
  INGOT_DEV u32 turn(int team) const { return shared + kBarriers + Plan::stages * 16 + team * 8; }
  INGOT_DEV u32 inputs(int warp) const { return turn(kTeams) + warp * Plan::buffers * 8; }
  INGOT_DEV u32 stage_a() const { return shared + slot * kStage; }
  INGOT_DEV u32 stage_b() const { return stage_a() + kBytesA; }
  INGOT_DEV u32 small_b() const { return stage_b() + kBytesB; }
  INGOT_DEV void advance() {
    if (++slot == Plan::stages) {
      slot = 0;
      phase ^= 1;
    }
  }
  INGOT_DEV void skip(Index steps) {
    const u32 to = slot + (u32)steps;
    phase ^= to / Plan::stages & 1;
    slot = to % Plan::stages;
  }
  /// Rows of A that no box has are zero. By all threads, before the first barrier.
  INGOT_DEV void clear_rest() const {
    if constexpr (kClipped) {
      const int rest = (Plan::tile_m - (int)a_rows) * (kRow / 16);  // times 16 bytes
      if (rest == 0) return;
#pragma unroll 1
      for (int i = threadIdx.x; i < Plan::stages * rest; i += Plan::threads)
        sts(shared + i / rest * kStage + a_rows * kRow + i % rest * 16, Vec<u32, 4>{});
      fence_proxy_async();
    }
  }
  /// By one thread, before all others use them; a fence follows.
  INGOT_DEV void start() const {
#pragma unroll 1
    for (int s = 0; s < Plan::stages; ++s) {
      mbar_init(shared + kBarriers + s * 16, 1);
      mbar_init(shared + kBarriers + s * 16 + 8, kReaders);
    }
    for (int t = 0; t < kTeams; ++t) mbar_init(turn(t), kReaders);
    for (int i = 0; Plan::staged_input && i < Plan::groups * 4 * Plan::buffers; ++i) mbar_init(inputs(0) + i * 8, 1);
  }
};

/// Where the boxes of a tile begin; with a window, its corner for the tile's first pixel.
template <class Plan> struct BoxPlace {
  int batch, m, n, image = 0, h = 0, w = 0;

  INGOT_DEV explicit BoxPlace(const TilePlace<typename Plan::index>& at) : batch((int)at.batch), m((int)at.m), n((int)at.n) {
    if constexpr (Plan::window) {
      const int row = m / Plan::out_w;
      image = row / Plan::out_h;
      h = row % Plan::out_h * Plan::step_h + Plan::low_h;
      w = m % Plan::out_w * Plan::step_w + Plan::low_w;
    }
  }
};

/// The thread that sends for the boxes of all tiles of this block.
template <class Plan> struct BoxSender {
  typedef typename Plan::index Index;
  static constexpr int kPerTap = (Plan::channels + Plan::tile_k - 1) / Plan::tile_k;  // steps of k
  const TensorMap *a, *b;
  Index first, steps;  // of k, those of this block
  BoxRing<Plan> ring;

  /// One step of a matrix, from row or column x on: one box along k, else one for each panel of 64.
  template <bool AlongK, int Tile> INGOT_DEV void send(u32 to, const TensorMap* map, int x, Index step, int at_batch) const {
    const int k = (int)step * Plan::tile_k, batch = Plan::batched ? at_batch : 0;
    if constexpr (AlongK) {
      tma_load3(to, map, ring.full(), k, x, batch);
    } else {
#pragma unroll
      for (int p = 0; p < Tile / 64; ++p) tma_load3(to + p * Plan::tile_k * 128, map, ring.full(), x + p * 64, k, batch);
    }
  }
  INGOT_DEV void send_a(const BoxPlace<Plan>& at, Index step) const {
    if constexpr (Plan::window) {
      const int tap = (int)step / kPerTap, c = (int)step % kPerTap * Plan::tile_k;
      tma_load_im2col(ring.stage_a(), a, ring.full(), c, at.w, at.h, at.image, (u16)(tap % Plan::taps_w * Plan::dilation_w),
                      (u16)(tap / Plan::taps_w * Plan::dilation_h));
    } else {
      if constexpr (Plan::by_group) tma_load3(ring.stage_a(), a, ring.full(), (int)step * Plan::tile_k, 0, at.m / Plan::together);
      else send<Plan::a_along_k, Plan::tile_m>(ring.stage_a(), a, at.m, step, at.batch);
    }
  }
  INGOT_DEV void send_b(const BoxPlace<Plan>& at, Index step) const {
    if constexpr (Plan::window) {
      tma_load3(ring.stage_b(), b, ring.full(), (int)step % kPerTap * Plan::tile_k, (int)step / kPerTap, at.n);
    } else {
      send<Plan::b_along_k, Plan::tile_n>(ring.stage_b(), b, at.n, step, at.batch);
    }
  }
  /// The first stages: what does not depend on the kernel's predecessor is on its way before it waits for that.
  INGOT_DEV Index send_first(const BoxPlace<Plan>& at) {
    const Index count = steps < Plan::stages ? steps : (Index)Plan::stages;
#pragma unroll 1
    for (Index s = 0; s < count; ++s, ++ring.slot) {
      mbar_arrive_expect_tx(ring.full(), ring.sent());
      if constexpr (Plan::a_early) send_a(at, first + s);
      if constexpr (Plan::b_early) send_b(at, first + s);
    }
    ring.slot = 0;
    pdl_begin();
#pragma unroll 1
    for (Index s = 0; s < count; ++s) {
      if constexpr (!Plan::a_early) send_a(at, first + s);
      if constexpr (!Plan::b_early) send_b(at, first + s);
      ring.advance();
    }
    return count;
  }
  INGOT_DEV void send_rest(const BoxPlace<Plan>& at, Index step) {
#pragma unroll 1
    for (; step < steps; ++step) {
      mbar_wait(ring.empty(), ring.phase ^ 1);
      mbar_arrive_expect_tx(ring.full(), ring.sent());
      send_a(at, first + step);
      send_b(at, first + step);
      ring.advance();
    }
  }
  INGOT_DEV void send_all(const TileGrid<Plan>& tiles) {
    const Index at = first_tile(tiles);
    Index step = send_first(BoxPlace<Plan>(tiles.place(at)));
#pragma unroll 1
    for (Index t = at; t < tiles.total; t += gridDim.x, step = 0) send_rest(BoxPlace<Plan>(tiles.place(t)), step);
  }
};

/// A warpgroup that multiplies: its tiles, one after the other.
template <class Plan, class PrologueA> struct BoxMultiplier {
  typedef typename Plan::index Index;
  typedef BoxRing<Plan> Ring;
  typedef WgmmaProduct<Plan> Product;
  Product product;
  Ring ring;
  const PrologueA* prologue;
  Index k_end;
  FragmentSides<PrologueA, Plan::prologue> sides;

  INGOT_DEV void release(u32 slot) const {
    if (threadIdx.x % 32 == 0) mbar_arrive(ring.shared + Ring::kBarriers + slot * 16 + 8);
  }
  INGOT_DEV void multiply(Index steps) {
    const u32 next_turn = ring.turn((product.team() + 1) % Ring::kTeams);
    u32 before = ring.slot;
    product.clear();
#pragma unroll 1
    for (Index step = 0; step < steps; ++step) {
      mbar_wait(ring.full(), ring.phase);
      product.start(ring.stage_a(), ring.stage_b());
      product.template settle<1>();
      if (step > 0) release(before);
      before = ring.slot;
      ring.advance();
    }
    if constexpr (Plan::in_turn) {  // every stage of this tile has been waited for: the next team may begin to
      if (threadIdx.x % 32 == 0) mbar_arrive(next_turn);
    }
    product.template wait<0>();
    if (steps > 0) release(before);
  }
  /// The rows of this warp at `step`, as the tensor cores take them.
  INGOT_DEV void load(Index step, u32 (&words)[4][4]) const {
    const int lane = threadIdx.x % 32, row = product.group_m() + product.warp % 4 * 16 + lane % 16;
#pragma unroll
    for (int s = 0; s < 4; ++s) {
      ldmatrix4(ring.stage_a() + row * 128 + ((s * 2 + lane / 16) ^ row % 8) * 16, words[s]);
      change_fragment<typename Plan::element>(*prologue, sides, (Index)(step * 64 + s * 16), k_end, words[s]);
    }
  }
  /// The same with rows that are changed on their way: those of the next step while this one is multiplied.
  INGOT_DEV void multiply_changed(Index first, Index steps) {
    const u32 next_turn = ring.turn((product.team() + 1) % Ring::kTeams);
    u32 next[4][4], now[4][4];
    product.clear();
    // What changes the rows is asked for some steps ahead, and waited for a step later than that.
    constexpr int kAhead = 4;
    const Index last = (first + steps) * 64, touch_end = last < k_end ? last : k_end;
    u32 touched = touch_changes<kAhead>(*prologue, sides, (Index)(first * 64), touch_end), asked = 0;
    if (steps > 0) {
      mbar_wait(ring.full(), ring.phase);
      load(first, next);
    }
#pragma unroll 1
    for (Index step = 0; step < steps; ++step) {
#pragma unroll
      for (int i = 0; i < 16; ++i) now[i / 4][i % 4] = next[i / 4][i % 4];
      product.start_with(now, ring.stage_b());
      const u32 slot = ring.slot;
      ring.advance();
      touched ^= asked;
      asked = touch_changes<1>(*prologue, sides, (Index)((first + step + kAhead) * 64), touch_end);
      if (step + 1 < steps) {
        mbar_wait(ring.full(), ring.phase);
        load(first + step + 1, next);
      }
      product.template wait<0>();
      wgmma_operands(now);
      release(slot);
    }
    keep(touched ^ asked);
    if constexpr (Plan::in_turn) {
      if (threadIdx.x % 32 == 0) mbar_arrive(next_turn);
    }
  }
  /// The same for f32: while one step is multiplied, the next one is split.
  INGOT_DEV void multiply_split(Index steps) {
    typedef SplitProduct<Plan, Ring::kReaders * 32> Split;
    const u32 next_turn = ring.turn((product.team() + 1) % Ring::kTeams);
    Split split = {product.group_m() + product.warp % 4 * 16, product.group_n(), {}};
    SplitRows rows;
    u32 next[4][4];
    const auto arrive = [&] {
      mbar_wait(ring.full(), ring.phase);
      split.split_b(ring.stage_b(), ring.small_b(), product.team() + 1);
      split.load(ring.stage_a(), next);  // behind it: the registers are few
    };
    product.clear();
    if (steps > 0) arrive();
#pragma unroll 1
    for (Index step = 0; step < steps; ++step) {
      const u32 slot = ring.slot, a = ring.stage_a(), b = ring.stage_b();
      split.split(next, rows);
      split.start(rows, b, ring.small_b());
      ring.advance();
      if (step + 1 < steps) arrive();
      split.wait(rows);
      split.add(product.acc[0], a, b);
      release(slot);
    }
    if constexpr (Plan::in_turn) {
      if (threadIdx.x % 32 == 0) mbar_arrive(next_turn);
    }
  }
  template <class Epilogue>
  INGOT_DEV void store(const Epilogue& epilogue, const TilePlace<Index>& at, Index m_end, Index n_end) const {
    const u32 all = ring.shared + Ring::kRing, scratch = all + product.warp * Ring::kWarp;
    if constexpr (Plan::together > 1) {
      const int team = product.team();
      store_groups<Plan, Ring::kReaders * 32>(product.acc[0], epilogue, at.batch, at.m, at.n, m_end, n_end, scratch,
                                              all + team * Ring::kReaders * Ring::kWarp, team + 1);
    } else {
      store_rows<Plan>(product.acc, epilogue, at.batch, first_row(at), at.n + product.group_n(), m_end, n_end, scratch);
    }
  }
  /// The first row of this warp.
  INGOT_DEV Index first_row(const TilePlace<Index>& at) const { return at.m + product.group_m() + product.warp % 4 * 16; }
  INGOT_DEV void multiply_tile(const TilePlace<Index>& at, Index m_end, Index first, Index steps) {
    if constexpr (Plan::prologue) {
      sides.start(*prologue, at.batch, first_row(at), m_end);
      multiply_changed(first, steps);
    } else if constexpr (has_small_parts<Plan>()) {
      multiply_split(steps);
    } else {
      multiply(steps);
    }
  }
  /// This block's part of a sum, which meets the others in the place of the ring; each block finishes a part of the tile.
  template <class Epilogue>
  INGOT_DEV void run_shared(const Epilogue& epilogue, const TilePlace<Index>& at, Index m_end, Index n_end, const ShareOfSteps<Plan>& share) {
    typedef ResultTile<Plan> Results;
    const Epilogue with_rows = with_row_values(epilogue, at, m_end);
    multiply_tile(at, m_end, share.first, share.count);
    if constexpr (Plan::late) pdl_begin();
    workers_sync<Plan>();  // the other warpgroups have read what lies there
    Results::put_product(ring.shared, product, true);
    cluster_sync();
    if constexpr (Plan::together > 1) Results().finish_groups(with_rows, at.batch, at.m, at.n, m_end, n_end, ring.shared);
    else if constexpr (Plan::part_width > 0) finish_parts<Plan, typename Product::Sum>(with_rows, at.batch, at.m, at.n, m_end, n_end, ring.shared);
    else Results().template finish<typename Product::Sum>(with_rows, at.batch, at.m, at.n, m_end, n_end, ring.shared);
    cluster_sync();
  }
  /// A block's part of a tile's sums, which meets the others in memory.
  template <class Epilogue>
  INGOT_DEV void run_divided(const Epilogue& epilogue, const TileGrid<Plan>& tiles, Index m_end, Index n_end, const ShareOfSteps<Plan>& share,
                             const PartMemory& memory) {
    typedef DividedSums<Plan, Product> Sums;
    static_assert(Sums::kSharedBytes <= Ring::kRing, "results take the place of the ring");
    const Index tile = first_tile(tiles);
    const TilePlace<Index> at = tiles.place(tile);
    multiply_tile(at, m_end, share.first, share.count);
    if constexpr (Plan::late) pdl_begin();
    Sums{memory, (u32)tile, (u32)((Index)blockIdx.x / tiles.total), ring.shared}.finish(product, epilogue, at, m_end, n_end);
  }
  /// What follows from a row alone, of the rows that this block finishes: in shared memory while their products are computed.
  template <class Epilogue>
  INGOT_DEV Epilogue with_row_values(const Epilogue& epilogue, const TilePlace<Index>& at, Index m_end) const {
    Epilogue mine = epilogue;
    if constexpr (Plan::row_values > 0) {
      constexpr int kRows = Plan::tile_m / Plan::cluster_k;
      mine.room = ring.shared + Plan::row_room;
      mine.first_row = at.m + (Index)cluster_rank() * kRows;
#pragma unroll 1
      for (int i = threadIdx.x; i < kRows; i += Plan::workers)
        if (mine.first_row + i < m_end) mine.put_rows(at.batch, mine.first_row + i);
    }
    return mine;
  }
  template <class Epilogue>
  INGOT_DEV void run(const Epilogue& epilogue, const TileGrid<Plan>& tiles, const TensorMap* out, const TensorMap* in, Index m_end,
                     Index n_end, Index steps) {
    const int team = product.team(), warp = product.warp;
    typename ResultsByBox<Plan, Epilogue>::Type staged{&epilogue, {out, in}, ring.shared + Ring::kRing + warp * Ring::kWarp, ring.inputs(warp)};
    staged.m_end = m_end;
    staged.n_end = n_end;
    if constexpr (Plan::staged) {
      staged.row_room = ring.shared + Plan::row_room;
      staged.first_row = product.group_m() + warp % 4 * 16;
    }
    u32 tile = team;
    ring.skip((Index)team * steps);
    u32 turn = team == 0;
    bool waits = Plan::late;
#pragma unroll 1
    for (Index t = blockIdx.x + (Index)team * gridDim.x; t < tiles.total; t += Ring::kTeams * gridDim.x) {
      const TilePlace<Index> at = tiles.place(t);
      const auto begin = [&] {
        if constexpr (Plan::staged) {
          staged.begin(at.batch, first_row(at), at.n + product.group_n());
          staged.tile = tile;
          tile += Ring::kTeams;
        }
      };
      if (!waits) begin();
      if constexpr (Plan::in_turn) {
        mbar_wait(ring.turn(team), turn);
        turn ^= 1;
      }
      multiply_tile(at, m_end, 0, steps);
      if (waits) {
        pdl_begin();
        begin();
        waits = false;
      }
      if constexpr (Plan::staged) staged.store(product.acc);
      else store(epilogue, at, m_end, n_end);
      ring.skip((Ring::kTeams - 1) * steps);
    }
    if constexpr (Plan::staged) staged.finish();
  }
};

template <class Plan, class PrologueA, class Epilogue>
INGOT_DEV void contraction_boxes(const TensorMap* a, const TensorMap* b, const TensorMap* out, const TensorMap* in,
                                 const PrologueA& prologue, const Epilogue& epilogue, typename Plan::index batches, typename Plan::index m_end, typename Plan::index n_end,
                                 typename Plan::index k_end, u32 shared, int* counters = nullptr, float* parts = nullptr) {
  typedef typename Plan::index Index;
  const int warp = WgmmaProduct<Plan>::warp_of_thread();
  const TileGrid<Plan> tiles(batches, m_end, n_end);
  const Index steps = Plan::window ? (Index)Plan::taps * BoxSender<Plan>::kPerTap : (k_end + Plan::tile_k - 1) / Plan::tile_k;
  const ShareOfSteps<Plan> share(steps, tiles);
  BoxRing<Plan> ring(shared, m_end);
  if (threadIdx.x == 0) {
    tma_prefetch(a);
    tma_prefetch(b);
    ring.start();
    RowRing<Plan>{shared + Plan::row_room}.start();
    fence_mbar_init();
  }
  ring.clear_rest();
  cta_sync();
  if (warp / 4 == Plan::groups) {
    share_registers<Plan, true>();
    if (threadIdx.x == Plan::groups * 128) BoxSender<Plan>{a, b, share.first, share.count, ring}.send_all(tiles);
    if constexpr (RowRing<Plan>::kUsed) {
      if (warp % 4 > 0) RowRing<Plan>{shared + Plan::row_room}.fill(epilogue, tiles, m_end, warp % 4 - 1);
    }
    if constexpr (Plan::cluster_k > 1) {
      warp_sync();
      cluster_meet();  // its part in what those that multiply wait for
      cluster_meet();
    }
  } else {
    share_registers<Plan, false>();
    if constexpr (!Plan::late) pdl_begin();
    BoxMultiplier<Plan, PrologueA> multiplier{WgmmaProduct<Plan>(warp), ring, &prologue, k_end, {}};
    if constexpr (Plan::cluster_k > 1) multiplier.run_shared(epilogue, tiles.place(blockIdx.x / Plan::cluster_k), m_end, n_end, share);
    else if constexpr (Plan::grid_k > 1) multiplier.run_divided(epilogue, tiles, m_end, n_end, share, {counters, parts});
    else multiplier.run(epilogue, tiles, out, in, m_end, n_end, steps);
  }
}
