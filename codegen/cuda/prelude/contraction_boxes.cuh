// The main loop of a matrix product whose operands arrive as boxes (TMA, sm_90a): one thread sends for them, warpgroups
// multiply, and a block goes on from tile to tile until there are none left. The epilogue's functor and the plan are those
// of contraction_wgmma.cuh, and of the plan besides:
//   groups    warpgroups that multiply; behind them in the block come the threads of the sender
//   in_turn   they are two teams with tiles of their own: one multiplies while the other stores its results
//   chunk     columns of results that a warp gives to the epilogue at a time
//   a_rows    rows of A in a box along k: fewer than the tile's where the matrix has fewer
//   batched   there is more than one product, and both operands have their axis
//   window    A is an image, channels last, that a window goes over: `channels` at each of `taps` places, and of each axis
//             the outputs, the step, the first place and the dilation
#pragma once
#include "prelude/contraction_tile.cuh"
#include "prelude/tma.cuh"
#include "prelude/wgmma_product.cuh"

template <class Plan> struct BoxRing {
  typedef typename Plan::index Index;
  static constexpr int kBytesA = Plan::tile_m * 128, kBytesB = Plan::tile_n * 128, kStage = kBytesA + kBytesB;
  static constexpr int kRing = Plan::stages * kStage;
  static constexpr u32 kSent = (Plan::a_along_k ? Plan::a_rows * 128 : kBytesA) + kBytesB;
  // Results of 16 rows for each warp, then barriers: of the stages, and of the warpgroups' turns.
  static constexpr int kChunk = Plan::chunk, kRow = (kChunk + 8) * 4, kScratch = 16 * kRow;
  static constexpr int kBarriers = kRing + Plan::groups * 4 * kScratch;
  /// Where a result is in a warp's scratch memory. Halves of 32 bytes change places where eight lanes would meet in a bank.
  static INGOT_DEV u32 place(int row, int column) {
    return row * kRow + ((column * 4) ^ (kChunk == 64 ? column / 32 : row % 2) * 16);
  }
  static constexpr int kTeams = Plan::in_turn ? 2 : 1;
  static constexpr int kReaders = Plan::groups / kTeams * 4;  // warps of a team
  u32 shared, slot = 0, phase = 0;

  INGOT_DEV explicit BoxRing(u32 base) : shared(base) {}
  INGOT_DEV u32 full() const { return shared + kBarriers + slot * 16; }
  INGOT_DEV u32 empty() const { return full() + 8; }
  INGOT_DEV u32 turn(int team) const { return shared + kBarriers + Plan::stages * 16 + team * 8; }
  INGOT_DEV u32 stage_a() const { return shared + slot * kStage; }
  INGOT_DEV u32 stage_b() const { return stage_a() + kBytesA; }
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
    constexpr int kRest = Plan::a_along_k ? (Plan::tile_m - Plan::a_rows) * 8 : 0;  // times 16 bytes
    if constexpr (kRest > 0) {
      for (int i = threadIdx.x; i < Plan::stages * kRest; i += Plan::threads)
        sts(shared + i / kRest * kStage + Plan::a_rows * 128 + i % kRest * 16, Vec<u32, 4>{});
      fence_proxy_async();
    }
  }
  /// By one thread, before all others use them.
  INGOT_DEV void start() const {
#pragma unroll 1
    for (int s = 0; s < Plan::stages; ++s) {
      mbar_init(shared + kBarriers + s * 16, 1);
      mbar_init(shared + kBarriers + s * 16 + 8, kReaders);
    }
    for (int t = 0; t < kTeams; ++t) mbar_init(turn(t), kReaders);
    fence_mbar_init();
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
  Index steps;
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
      send<Plan::a_along_k, Plan::tile_m>(ring.stage_a(), a, at.m, step, at.batch);
    }
  }
  INGOT_DEV void send_b(const BoxPlace<Plan>& at, Index step) const {
    if constexpr (Plan::window) {
      tma_load3(ring.stage_b(), b, ring.full(), (int)step % kPerTap * Plan::tile_k, (int)step / kPerTap, at.n);
    } else {
      send<Plan::b_along_k, Plan::tile_n>(ring.stage_b(), b, at.n, step, at.batch);
    }
  }
  /// The first stages: weights are on their way before the kernel waits for its predecessor.
  INGOT_DEV Index send_first(const BoxPlace<Plan>& at) {
    const Index count = steps < Plan::stages ? steps : (Index)Plan::stages;
#pragma unroll 1
    for (Index s = 0; s < count; ++s, ++ring.slot) {
      mbar_arrive_expect_tx(ring.full(), BoxRing<Plan>::kSent);
      if constexpr (Plan::a_constant) send_a(at, s);
      if constexpr (Plan::b_constant) send_b(at, s);
    }
    ring.slot = 0;
    pdl_begin();
#pragma unroll 1
    for (Index s = 0; s < count; ++s) {
      if constexpr (!Plan::a_constant) send_a(at, s);
      if constexpr (!Plan::b_constant) send_b(at, s);
      ring.advance();
    }
    return count;
  }
  INGOT_DEV void send_all(const TileGrid<Plan>& tiles) {
    Index step = send_first(BoxPlace<Plan>(tiles.place(blockIdx.x)));
#pragma unroll 1
    for (Index t = blockIdx.x; t < tiles.total; t += gridDim.x, step = 0) {
      const BoxPlace<Plan> at(tiles.place(t));
#pragma unroll 1
      for (; step < steps; ++step) {
        mbar_wait(ring.empty(), ring.phase ^ 1);
        mbar_arrive_expect_tx(ring.full(), BoxRing<Plan>::kSent);
        send_a(at, step);
        send_b(at, step);
        ring.advance();
      }
    }
  }
};

/// The epilogue of 16 rows of a warp, a chunk of columns. Where all of them are results, what it reads is loaded ahead, and all
/// calls' loads are on their way together.
template <class Plan, class Epilogue> struct BoxResults {
  typedef typename Plan::index Index;
  typedef BoxRing<Plan> Ring;
  static constexpr int kVector = Plan::e_vector, kAcross = Ring::kChunk / kVector, kCalls = 16 * kAcross / 32;
  static constexpr bool kAhead = kCalls <= 4;
  const Epilogue* epilogue;
  Index batch, m0, n0, m_end, n_end;
  typename Epilogue::Inputs in[kAhead ? kCalls : 1];

  INGOT_DEV BoxResults(const Epilogue& e, Index b, Index m, Index n, Index m_stop, Index n_stop)
      : epilogue(&e), batch(b), m0(m), n0(n), m_end(m_stop), n_end(n_stop) {}
  INGOT_DEV bool whole() const { return kAhead && m0 + 16 <= m_end && n0 + Ring::kChunk <= n_end; }
  static INGOT_DEV int row(int x) { return x / kAcross; }
  static INGOT_DEV int column(int x) { return x % kAcross * kVector; }
  INGOT_DEV void load() {
    if (!whole()) return;
#pragma unroll
    for (int c = 0; c < (kAhead ? kCalls : 1); ++c) {
      const int x = threadIdx.x % 32 + c * 32;
      in[c] = epilogue->load(batch, m0 + row(x), n0 + column(x));
    }
  }
  INGOT_DEV void call(u32 scratch, int x, const typename Epilogue::Inputs& inputs) const {
    constexpr int kGroup = kVector < 4 ? kVector : 4;
    float values[kVector];
#pragma unroll
    for (int g = 0; g < kVector; g += kGroup) {
      const auto part = lds<Vec<float, kGroup>>(scratch + Ring::place(row(x), column(x) + g));
#pragma unroll
      for (int i = 0; i < kGroup; ++i) values[g + i] = part[i];
    }
    (*epilogue)(batch, m0 + row(x), n0 + column(x), values, inputs);
  }
  INGOT_DEV void finish(u32 scratch) const {
    const int lane = threadIdx.x % 32;
    if (whole()) {
#pragma unroll
      for (int c = 0; c < (kAhead ? kCalls : 1); ++c) call(scratch, lane + c * 32, in[c]);
    } else {
#pragma unroll 1
      for (int x = lane; x < 16 * kAcross; x += 32) {
        const Index m = m0 + row(x), n = n0 + column(x);
        if (m < m_end && n < n_end) call(scratch, x, epilogue->load(batch, m, n));
      }
    }
  }
};

/// A warpgroup that multiplies: its tiles, one after the other.
template <class Plan> struct BoxMultiplier {
  typedef typename Plan::index Index;
  typedef BoxRing<Plan> Ring;
  typedef WgmmaProduct<Plan> Product;
  Product product;
  Ring ring;

  INGOT_DEV void release(u32 slot) const {
    if (threadIdx.x % 32 == 0) mbar_arrive(ring.shared + Ring::kBarriers + slot * 16 + 8);
  }
  INGOT_DEV void multiply(Index steps) {
    const u32 next_turn = ring.turn((Product::team() + 1) % Ring::kTeams);
    u32 before = ring.slot;
    product.clear();
#pragma unroll 1
    for (Index step = 0; step < steps; ++step) {
      mbar_wait(ring.full(), ring.phase);
      product.start(ring.stage_a(), ring.stage_b());
      product.template wait<1>();
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
  /// 16 rows of a warp at a time, through shared memory that only this warp uses: so that neighbouring lanes have
  /// neighbouring results.
  template <class Epilogue>
  INGOT_DEV void store(const Epilogue& epilogue, const TilePlace<Index>& at, Index m_end, Index n_end) const {
    constexpr int kParts = Plan::warp_n / Ring::kChunk;
    const int warp = threadIdx.x / 32 % 4;
    const Index m0 = at.m + Product::group_m() + warp * 16, n0 = at.n + Product::group_n();
    typedef BoxResults<Plan, Epilogue> Results;
    Results now(epilogue, at.batch, m0, n0, m_end, n_end);
    now.load();
#pragma unroll
    for (int p = 0; p < Product::kM * kParts; ++p) {
      const int i = p / kParts, c = p % kParts * Ring::kChunk, next = p + 1;
      Results later(epilogue, at.batch, m0 + next / kParts * 64, n0 + next % kParts * Ring::kChunk, m_end, n_end);
      if (next < Product::kM * kParts) later.load();
      put(product.acc[i] + c / 2);
      warp_sync();
      now.finish(scratch());
      warp_sync();
      now = later;
    }
  }
  INGOT_DEV u32 scratch() const { return ring.shared + Ring::kRing + threadIdx.x / 32 * Ring::kScratch; }
  INGOT_DEV void put(const float* results) const {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int j = 0; j < Ring::kChunk; j += 8) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const float* pair = results + j / 2 + h * 2;
        sts(scratch() + Ring::place(lane / 4 + h * 8, j + lane % 4 * 2), Vec<float, 2>{pair[0], pair[1]});
      }
    }
  }
  template <class Epilogue>
  INGOT_DEV void run(const Epilogue& epilogue, const TileGrid<Plan>& tiles, Index m_end, Index n_end, Index steps) {
    const int team = Product::team();
    ring.skip((Index)team * steps);
    u32 turn = team == 0;
#pragma unroll 1
    for (Index t = blockIdx.x + (Index)team * gridDim.x; t < tiles.total; t += Ring::kTeams * gridDim.x) {
      if constexpr (Plan::in_turn) {
        mbar_wait(ring.turn(team), turn);
        turn ^= 1;
      }
      multiply(steps);
      store(epilogue, tiles.place(t), m_end, n_end);
      ring.skip((Ring::kTeams - 1) * steps);
    }
  }
};

/// Registers move from the sender's warps to those that multiply.
template <class Plan, bool Sender> INGOT_DEV void share_registers() {
  if constexpr (Plan::groups == 2) {
    if constexpr (Sender) setmaxnreg_dec<40>();
    else setmaxnreg_inc<232>();
  } else if constexpr (Plan::groups == 3) {
    if constexpr (Sender) setmaxnreg_dec<24>();
    else setmaxnreg_inc<160>();
  } else if constexpr (Plan::groups == 4) {
    if constexpr (Sender) setmaxnreg_dec<24>();
    else setmaxnreg_inc<112>();
  }
}

template <class Plan, class Epilogue>
INGOT_DEV void contraction_boxes(const TensorMap* a, const TensorMap* b, const Epilogue& epilogue,
                                 typename Plan::index batches, typename Plan::index m_end, typename Plan::index n_end,
                                 typename Plan::index k_end, u32 shared) {
  typedef typename Plan::index Index;
  const TileGrid<Plan> tiles(batches, m_end, n_end);
  const Index steps = Plan::window ? (Index)Plan::taps * BoxSender<Plan>::kPerTap : (k_end + Plan::tile_k - 1) / Plan::tile_k;
  BoxRing<Plan> ring(shared);
  if (threadIdx.x == 0) {
    tma_prefetch(a);
    tma_prefetch(b);
    ring.start();
  }
  ring.clear_rest();
  cta_sync();
  if (warp_uniform(threadIdx.x / 128) == Plan::groups) {
    share_registers<Plan, true>();
    if (threadIdx.x == Plan::groups * 128) BoxSender<Plan>{a, b, steps, ring}.send_all(tiles);
  } else {
    share_registers<Plan, false>();
    pdl_begin();
    BoxMultiplier<Plan> multiplier{{}, ring};
    multiplier.run(epilogue, tiles, m_end, n_end, steps);
  }
}
