// The main loop of a matrix product without tensor cores: for all (b, m, n), acc = sum over k of a*b, then the
// epilogue.
//
// A kernel brings three functors and a Plan:
//   PrologueA  a(out, b, m, k): out[i] is the element of A at k + i (along k) or m + i (along m), for a_vector elements
//   PrologueB  b(out, b, n, k): the same for B
//   Epilogue   e(b, m, n, acc): called once per result; consecutive threads have consecutive n (or m: out_along_m)
//   Plan       acc (the accumulator's type), index (int or i64), tile_m, tile_n, tile_k, thread_m, thread_n, threads,
//              a_along_k, b_along_k (the direction in which consecutive threads read the operand), a_vector, b_vector
// Extents along a vector are multiples of it. Both operands lie k-major in shared memory, in two stages: while one is
// multiplied, the next is on its way through registers.
#pragma once
#include "prelude/memory.cuh"
#include "prelude/sync.cuh"

/// Elements of one 16-byte access to shared memory; also the padding of a row, so that rows start in different banks.
template <class T> constexpr int kSharedGroup = 16 / sizeof(T);

/// One operand's share of a thread: which elements of the tile it fetches, and the way into shared memory.
template <class Plan, int Tile, bool AlongK, int Vector> struct OperandTile {
  typedef typename Plan::acc T;
  typedef typename Plan::index Index;
  static constexpr int kRow = Tile + kSharedGroup<T>;
  static constexpr int kBytes = Plan::tile_k * kRow * (int)sizeof(T);
  static constexpr int kVectors = Tile * Plan::tile_k / (Plan::threads * Vector);
  static_assert(kVectors * Plan::threads * Vector == Tile * Plan::tile_k, "the tile does not divide among the threads");
  T staged[kVectors][Vector];

  static INGOT_DEV int k_of(int j) {
    const int i = (threadIdx.x + j * Plan::threads) * Vector;
    return AlongK ? i % Plan::tile_k : i / Tile;
  }
  static INGOT_DEV int x_of(int j) {
    const int i = (threadIdx.x + j * Plan::threads) * Vector;
    return AlongK ? i / Plan::tile_k : i % Tile;
  }
  template <class Prologue>
  INGOT_DEV void fetch(const Prologue& prologue, Index b, Index x0, Index x_end, Index k0, Index k_end) {
#pragma unroll
    for (int j = 0; j < kVectors; ++j) {
      const Index x = x0 + x_of(j), k = k0 + k_of(j);
      if (x < x_end && k < k_end) {
        prologue(staged[j], b, x, k);
      } else {
#pragma unroll
        for (int v = 0; v < Vector; ++v) staged[j][v] = 0;
      }
    }
  }
  INGOT_DEV void store(u32 stage) const {
    constexpr int kGroup = Vector < kSharedGroup<T> ? Vector : kSharedGroup<T>;
#pragma unroll
    for (int j = 0; j < kVectors; ++j) {
      const u32 to = stage + (k_of(j) * kRow + x_of(j)) * (int)sizeof(T);
      if constexpr (AlongK) {
#pragma unroll
        for (int v = 0; v < Vector; ++v) sts(to + v * kRow * (int)sizeof(T), staged[j][v]);
      } else {
#pragma unroll
        for (int v = 0; v < Vector; v += kGroup) {
          Vec<T, kGroup> group;
#pragma unroll
          for (int i = 0; i < kGroup; ++i) group[i] = staged[j][v + i];
          sts(to + v * (int)sizeof(T), group);
        }
      }
    }
  }
};

/// Which element of a tile a thread's j-th one is: groups of 16 bytes, so that a warp reads neighbouring groups.
template <class T, int ThreadsAcross> INGOT_DEV int tile_position(int thread, int j) {
  constexpr int kGroup = kSharedGroup<T>;
  return j / kGroup * (ThreadsAcross * kGroup) + thread * kGroup + j % kGroup;
}
template <class T, int Count, int ThreadsAcross> INGOT_DEV void load_fragment(T (&out)[Count], u32 row, int thread) {
  constexpr int kGroup = kSharedGroup<T>;
#pragma unroll
  for (int j = 0; j < Count; j += kGroup) {
    const Vec<T, kGroup> v = lds<Vec<T, kGroup>>(row + tile_position<T, ThreadsAcross>(thread, j) * (int)sizeof(T));
#pragma unroll
    for (int i = 0; i < kGroup; ++i) out[j + i] = v[i];
  }
}

template <class Plan> struct SimtTile {
  typedef typename Plan::acc T;
  typedef typename Plan::index Index;
  typedef OperandTile<Plan, Plan::tile_m, Plan::a_along_k, Plan::a_vector> TileA;
  typedef OperandTile<Plan, Plan::tile_n, Plan::b_along_k, Plan::b_vector> TileB;
  static constexpr int kAcrossM = Plan::tile_m / Plan::thread_m, kAcrossN = Plan::tile_n / Plan::thread_n;
  static constexpr int kStageBytes = TileA::kBytes + TileB::kBytes;
  static_assert(kAcrossM * kAcrossN == Plan::threads, "the tile does not divide among the threads");
  T acc[Plan::thread_m][Plan::thread_n];

  INGOT_DEV void clear() {
#pragma unroll
    for (int i = 0; i < Plan::thread_m; ++i) {
#pragma unroll
      for (int j = 0; j < Plan::thread_n; ++j) acc[i][j] = 0;
    }
  }
  INGOT_DEV void multiply(u32 stage) {
    const int tm = threadIdx.x / kAcrossN, tn = threadIdx.x % kAcrossN;
#pragma unroll 4
    for (int k = 0; k < Plan::tile_k; ++k) {
      T a[Plan::thread_m], b[Plan::thread_n];
      load_fragment<T, Plan::thread_m, kAcrossM>(a, stage + k * TileA::kRow * (int)sizeof(T), tm);
      load_fragment<T, Plan::thread_n, kAcrossN>(b, stage + TileA::kBytes + k * TileB::kRow * (int)sizeof(T), tn);
#pragma unroll
      for (int i = 0; i < Plan::thread_m; ++i) {
#pragma unroll
        for (int j = 0; j < Plan::thread_n; ++j) acc[i][j] += a[i] * b[j];
      }
    }
  }
  template <class PrologueA, class PrologueB>
  INGOT_DEV void accumulate(const PrologueA& a, const PrologueB& b, Index batch, Index m0, Index n0, Index m_end,
                            Index n_end, Index k_end, u32 shared) {
    TileA tile_a;
    TileB tile_b;
    clear();
    const Index steps = (k_end + Plan::tile_k - 1) / Plan::tile_k;
    if (steps > 0) {
      tile_a.fetch(a, batch, m0, m_end, 0, k_end);
      tile_b.fetch(b, batch, n0, n_end, 0, k_end);
      tile_a.store(shared);
      tile_b.store(shared + TileA::kBytes);
      cta_sync();
    }
    for (Index step = 0; step < steps; ++step) {
      const u32 now = shared + (step % 2) * kStageBytes, next = shared + (1 - step % 2) * kStageBytes;
      const bool more = step + 1 < steps;
      if (more) {
        tile_a.fetch(a, batch, m0, m_end, (step + 1) * Plan::tile_k, k_end);
        tile_b.fetch(b, batch, n0, n_end, (step + 1) * Plan::tile_k, k_end);
      }
      multiply(now);
      if (more) {
        tile_a.store(next);
        tile_b.store(next + TileA::kBytes);
      }
      cta_sync();
    }
  }
  /// Hands the results to the epilogue by way of shared memory, a row (or column) of every thread at a time, so that
  /// consecutive threads write consecutive elements.
  template <class Epilogue>
  INGOT_DEV void finish(const Epilogue& epilogue, Index batch, Index m0, Index n0, Index m_end, Index n_end,
                        u32 shared) {
    constexpr int kSteps = Plan::out_along_m ? Plan::thread_n : Plan::thread_m;
    constexpr int kLong = Plan::out_along_m ? Plan::tile_m : Plan::tile_n;
    constexpr int kShort = Plan::out_along_m ? kAcrossN : kAcrossM;
    constexpr int kRow = kLong + kSharedGroup<T>;
    const int tm = threadIdx.x / kAcrossN, tn = threadIdx.x % kAcrossN;
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      const u32 row = shared + (Plan::out_along_m ? tn : tm) * kRow * (int)sizeof(T);
#pragma unroll
      for (int j = 0; j < (Plan::out_along_m ? Plan::thread_m : Plan::thread_n); ++j) {
        const int at = Plan::out_along_m ? tile_position<T, kAcrossM>(tm, j) : tile_position<T, kAcrossN>(tn, j);
        sts(row + at * (int)sizeof(T), Plan::out_along_m ? acc[j][s] : acc[s][j]);
      }
      cta_sync();
#pragma unroll 1
      for (int i = threadIdx.x; i < kShort * kLong; i += Plan::threads) {
        const int r = i / kLong, c = i % kLong;
        const Index m = m0 + (Plan::out_along_m ? c : tile_position<T, kAcrossM>(r, s));
        const Index n = n0 + (Plan::out_along_m ? tile_position<T, kAcrossN>(r, s) : c);
        if (m < m_end && n < n_end) epilogue(batch, m, n, lds<T>(shared + (r * kRow + c) * (int)sizeof(T)));
      }
      cta_sync();
    }
  }
};

/// One block computes tile blockIdx.x of every batch index blockIdx.z, blockIdx.z + gridDim.z, ...
template <class Plan, class PrologueA, class PrologueB, class Epilogue>
INGOT_DEV void contraction_simt(const PrologueA& a, const PrologueB& b, const Epilogue& epilogue,
                                typename Plan::index batches, typename Plan::index m_end, typename Plan::index n_end,
                                typename Plan::index k_end, u32 shared) {
  typedef typename Plan::index Index;
  const Index tiles_n = (n_end + Plan::tile_n - 1) / Plan::tile_n;
  const Index m0 = blockIdx.x / tiles_n * Plan::tile_m, n0 = blockIdx.x % tiles_n * Plan::tile_n;
  for (Index batch = blockIdx.z; batch < batches; batch += gridDim.z) {
    SimtTile<Plan> tile;
    tile.accumulate(a, b, batch, m0, n0, m_end, n_end, k_end, shared);
    tile.finish(epilogue, batch, m0, n0, m_end, n_end, shared);
  }
}
