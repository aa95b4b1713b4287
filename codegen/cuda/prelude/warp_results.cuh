// Results of a warpgroup on their way to the epilogue: 16 rows of a warp at a time, through shared memory that only this warp
// uses, so that neighbouring lanes have neighbouring results and no barrier stands between a tile and the next. Of the plan:
//   chunk     columns of results that a warp gives to the epilogue at a time
//   e_vector  neighbouring results that one call of the epilogue takes
#pragma once
#include "prelude/memory.cuh"
#include "prelude/sync.cuh"
#include "prelude/warp.cuh"

/// The shared memory of a warp.
template <class Plan> struct WarpScratch {
  static constexpr int kChunk = Plan::chunk, kRow = (kChunk + 8) * 4, kBytes = 16 * kRow;
  /// Where a result is. Halves of 32 bytes change places where eight lanes would meet in a bank.
  static INGOT_DEV u32 place(int row, int column) {
    return row * kRow + ((column * 4) ^ (kChunk == 64 ? column / 32 : row % 2) * 16);
  }
  /// A chunk of what the warp's tensor cores leave in a thread: two rows, and of every 8 columns two.
  template <class V> static INGOT_DEV void put(u32 scratch, const V* results) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int j = 0; j < kChunk; j += 8) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const V* pair = results + j / 2 + h * 2;
        sts(scratch + place(lane / 4 + h * 8, j + lane % 4 * 2), Vec<V, 2>{pair[0], pair[1]});
      }
    }
  }
};

/// The epilogue of 16 rows of a warp, a chunk of columns. Where all of them are results, the loads of several calls are on
/// their way together, and ahead of the chunk before where those are all.
template <class Plan, class Epilogue, class V = float> struct WarpResults {
  typedef typename Plan::index Index;
  typedef WarpScratch<Plan> Scratch;
  static constexpr int kVector = Plan::e_vector, kAcross = Scratch::kChunk / kVector, kCalls = 16 * kAcross / 32;
  static constexpr int kTogether = kCalls < 4 ? kCalls : 4;
  static constexpr bool kAhead = kCalls == kTogether;
  static_assert(kCalls % kTogether == 0, "lanes without a result");
  const Epilogue* epilogue;
  Index batch, m0, n0, m_end, n_end;
  typename Epilogue::Inputs in[kTogether];

  INGOT_DEV WarpResults(const Epilogue& e, Index b, Index m, Index n, Index m_stop, Index n_stop)
      : epilogue(&e), batch(b), m0(m), n0(n), m_end(m_stop), n_end(n_stop) {}
  INGOT_DEV bool whole() const { return m0 + 16 <= m_end && n0 + Scratch::kChunk <= n_end; }
  static INGOT_DEV int row(int x) { return x / kAcross; }
  static INGOT_DEV int column(int x) { return x % kAcross * kVector; }
  INGOT_DEV void load_ahead() {
    if (kAhead && whole()) load(0);
  }
  INGOT_DEV void load(int first) {
#pragma unroll
    for (int c = 0; c < kTogether; ++c) {
      const int x = threadIdx.x % 32 + (first + c) * 32;
      in[c] = epilogue->load(batch, m0 + row(x), n0 + column(x));
    }
  }
  INGOT_DEV void call(u32 scratch, int x, const typename Epilogue::Inputs& inputs) const {
    constexpr int kGroup = kVector < 4 ? kVector : 4;
    V values[kVector];
#pragma unroll
    for (int g = 0; g < kVector; g += kGroup) {
      const auto part = lds<Vec<V, kGroup>>(scratch + Scratch::place(row(x), column(x) + g));
#pragma unroll
      for (int i = 0; i < kGroup; ++i) values[g + i] = part[i];
    }
    (*epilogue)(batch, m0 + row(x), n0 + column(x), values, inputs);
  }
  INGOT_DEV void finish(u32 scratch) {
    const int lane = threadIdx.x % 32;
    if (whole()) {
#pragma unroll 1
      for (int first = 0; first < kCalls; first += kTogether) {
        if (!kAhead) load(first);
#pragma unroll
        for (int c = 0; c < kTogether; ++c) call(scratch, lane + (first + c) * 32, in[c]);
      }
    } else {
#pragma unroll 1
      for (int x = lane; x < 16 * kAcross; x += 32) {
        const Index m = m0 + row(x), n = n0 + column(x);
        if (m < m_end && n < n_end) call(scratch, x, epilogue->load(batch, m, n));
      }
    }
  }
};

/// Rows m0 ... m0 + 15 of a warp, and the same 64 rows further for each further row of acc.
template <class Plan, int Rows, int Columns, class Epilogue, class Index, class V>
INGOT_DEV void store_rows(const V (&acc)[Rows][Columns], const Epilogue& epilogue, Index batch, Index m0, Index n0,
                          Index m_end, Index n_end, u32 scratch) {
  typedef WarpScratch<Plan> Scratch;
  typedef WarpResults<Plan, Epilogue, V> Results;
  constexpr int kParts = Columns * 2 / Scratch::kChunk;
  Results now(epilogue, batch, m0, n0, m_end, n_end);
  now.load_ahead();
#pragma unroll
  for (int p = 0; p < Rows * kParts; ++p) {
    const int i = p / kParts, c = p % kParts * Scratch::kChunk, next = p + 1;
    Results later(epilogue, batch, m0 + next / kParts * 64, n0 + next % kParts * Scratch::kChunk, m_end, n_end);
    if (next < Rows * kParts) later.load_ahead();
    Scratch::put(scratch, acc[i] + c / 2);
    warp_sync();
    now.finish(scratch);
    warp_sync();
    now = later;
  }
}

/// The largest power of two of lanes of a warp, up to `most`, that have a row each.
constexpr int group_lanes(int most, int rows) {
  int lanes = 1;
  while (lanes * 2 <= most && lanes * 2 <= rows && lanes < 32) lanes *= 2;
  return lanes;
}

/// Groups of `together` rows from m0 on, which warps of a team of Threads have between them: each value as the epilogue makes
/// it from the sum, their combination, and the epilogue once for a group. `mine` is the scratch of this warp, `all` that of the
/// team, rows one after the other; `barrier` is the team's.
template <class Plan, int Threads, int Columns, class Epilogue, class Index>
INGOT_DEV void store_groups(const float (&acc)[Columns], const Epilogue& epilogue, Index batch, Index m0, Index n0, Index m_end,
                            Index n_end, u32 mine, u32 all, int barrier) {
  typedef WarpScratch<Plan> Scratch;
  constexpr int kVector = Plan::e_vector, kAcross = Scratch::kChunk / kVector, kGroups = Plan::step_m / Plan::together;
  constexpr int kLanes = group_lanes(Threads / (kGroups * kAcross), Plan::together);  // that share the rows of a result
  constexpr int kWork = kGroups * kAcross * kLanes;
#pragma unroll
  for (int c = 0; c < Columns * 2; c += Scratch::kChunk) {
    Scratch::put(mine, acc + c / 2);
    bar_sync(barrier, Threads);
#pragma unroll 1
    for (int i = threadIdx.x % Threads; i < (kWork + 31) / 32 * 32; i += Threads) {  // by whole warps
      const int r = i / kLanes / kAcross * Plan::together, column = i / kLanes % kAcross * kVector;
      const Index m = m0 + r, n = n0 + c + column;
      const bool has = i < kWork && m < m_end && n < n_end;
      float values[kVector] = {};
#pragma unroll 2
      for (int j = i % kLanes; has && j < Plan::together; j += kLanes) {
        float next[kVector];
#pragma unroll
        for (int v = 0; v < kVector; ++v) next[v] = lds<float>(all + Scratch::place(r + j, column + v));
        epilogue.value(batch, m + j, n, next);
#pragma unroll
        for (int v = 0; v < kVector; ++v) values[v] = j < kLanes ? next[v] : Epilogue::combine(values[v], next[v]);
      }
#pragma unroll
      for (int step = 1; step < kLanes; step *= 2) {
#pragma unroll
        for (int v = 0; v < kVector; ++v) values[v] = Epilogue::combine(values[v], shfl_xor(values[v], step));
      }
      if (has && i % kLanes == 0) epilogue(batch, m, n, values, epilogue.load(batch, m, n));
    }
    bar_sync(barrier, Threads);
  }
}

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
