// The results of a tile of queries whose keys warps, and blocks of a cluster, have divided (attention.cuh). Each part has sums of
// weight * value for weights relative to the largest logit of its own; joined they are a sum of parts that are scaled to what
// all have in common. Warps join through the shared memory of their block; then a block sends each of the others the rows that
// this one finishes, so that nobody waits for what is far away but once.
#pragma once
#include "prelude/memory.cuh"
#include "prelude/online_softmax.cuh"
#include "prelude/sync.cuh"

/// Of a plan as in attention.cuh. What arrives from other blocks has a place that no stage of the main loop takes: some blocks
/// are done earlier. `Some`: the block has other threads than those of the plan, which do not come here.
template <class Plan, bool Some = false> struct JoinedParts {
  typedef typename Plan::index Index;
  static constexpr int kRows = Plan::tile_m, kWarps = Plan::key_warps, kBlocks = Plan::cluster_k;
  static constexpr int kOwnRows = kRows / kBlocks;  // that a block finishes
  static_assert(kRows % kBlocks == 0, "blocks of a cluster finish as many rows each");
  static constexpr u32 kRow = (Plan::tile_d + 8) * 4, kSentRow = Plan::tile_d * 4;
  static constexpr u32 kPairsAt = kWarps * kRows * kRow, kBytes = kPairsAt + kWarps * kRows * 8;
  static constexpr u32 kSentPairsAt = kRows * kSentRow;
  static constexpr int kVector = Plan::e_vector;
  u32 parts, sent;  // where the parts of this block are, and what arrives

  static INGOT_DEV void sync() {
    if constexpr (Some) bar_sync(1, Plan::threads);
    else cta_sync();
  }

  /// Sums of N columns over parts that lie `step` bytes apart, relative to `base`: the largest logit of all, in powers of two.
  template <int N> struct Sum {
    Vec<float, N> values;
    float base, weights;
  };
  template <int N, int Parts>
  static INGOT_DEV Sum<N> join(u32 at, u32 step, u32 pairs, u32 pair_step) {
    Vec<float, 2> pair[Parts];
    Sum<N> sum = {{}, -kInf, 0};
#pragma unroll
    for (int p = 0; p < Parts; ++p) {
      pair[p] = lds<Vec<float, 2>>(pairs + p * pair_step);
      sum.base = fmaxf(sum.base, pair[p][0]);
    }
    const float base = sum.base == -kInf ? 0.0f : sum.base;  // no difference of infinities
#pragma unroll
    for (int p = 0; p < Parts; ++p) {
      const float scale = fast_exp2(pair[p][0] - base);
      const auto part = lds_vec<N, float>(at + p * step);
      sum.weights += scale * pair[p][1];
#pragma unroll
      for (int i = 0; i < N; ++i) sum.values[i] = fmaf(scale, part[i], sum.values[i]);
    }
    return sum;
  }
  /// The part of a warp. Of 16 rows the upper eight are left out where a tile has no more.
  template <class Score, class Softmax> INGOT_DEV void put(const Softmax& x, int part) const {
    const u32 rows = parts + (part * kRows + x.row()) * kRow, pairs = parts + kPairsAt + (part * kRows + x.row()) * 8;
#pragma unroll
    for (int h = 0; h < (kRows < 16 ? 1 : 2); ++h) {
#pragma unroll
      for (int j = 0; j < Plan::tile_d / 8; ++j)
        sts(rows + h * 8 * kRow + (j * 8 + x.column()) * 4, Vec<float, 2>{x.acc[j * 4 + h * 2], x.acc[j * 4 + h * 2 + 1]});
      const float weights = x.total(h);
      if (threadIdx.x % 4 == 0) sts(pairs + h * 64, Vec<float, 2>{x.top[h] * (x.kLog2e * Score::kScale), weights});
    }
  }
  /// The first `rows` rows of this block's parts, joined, to the blocks that finish them.
  INGOT_DEV void send(Index rows) const {
    constexpr int kAcross = Plan::tile_d / 4;
    const u32 rank = cluster_rank();
#pragma unroll 1
    for (int i = threadIdx.x; i < kRows * kAcross; i += Plan::threads) {
      const int r = i / kAcross, c = i % kAcross;
      if (r >= rows) break;
      const auto sum = join<4, kWarps>(parts + r * kRow + c * 16, kRows * kRow, parts + kPairsAt + r * 8, kRows * 8);
      const u32 to = rank * kOwnRows + r % kOwnRows;
      sts_cluster(sent + to * kSentRow + c * 16, sum.values, r / kOwnRows);
      if (c == 0) sts_cluster(sent + kSentPairsAt + to * 8, Vec<float, 2>{sum.base, sum.weights}, r / kOwnRows);
    }
  }
  /// Results of Rows rows from m0 on, of parts as they lie in this block.
  template <int Rows, int Parts, int NoLogit, class Epilogue>
  static INGOT_DEV void finish(const Epilogue& epilogue, Index batch, Index m0, Index m_end, Index d_end, u32 at, u32 row,
                               u32 pairs) {
    constexpr int kAcross = Plan::tile_d / kVector;
#pragma unroll 1
    for (int i = threadIdx.x; i < Rows * kAcross; i += Plan::threads) {
      const int r = i / kAcross, d = i % kAcross * kVector;
      if (m0 + r >= m_end || d >= d_end) continue;
      const auto in = epilogue.load(batch, m0 + r, (Index)d);
      auto sum = join<kVector, Parts>(at + r * row + d * 4, Rows * row, pairs + r * 8, Rows * 8);
      scale_results<NoLogit>(sum.values.v, 1.0f / sum.weights, sum.weights);
      epilogue(batch, m0 + r, (Index)d, sum.values.v, in);
    }
  }
  /// After put(), by all threads. The caller has arrived at the barrier of the cluster before, since nothing of the round before is
  /// read any more; afterwards the memory of the stages may be filled again (with `Some` after the next barrier).
  template <int NoLogit, class Epilogue>
  INGOT_DEV void finish_all(const Epilogue& epilogue, Index batch, Index m0, Index m_end, Index d_end) const {
    sync();
    if constexpr (kBlocks == 1) {
      finish<kRows, kWarps, NoLogit>(epilogue, batch, m0, m_end, d_end, parts, kRow, parts + kPairsAt);
      if constexpr (!Some) cta_sync();
    } else {
      cluster_wait();  // what has arrived in the round before has been read
      send(m_end - m0);
      cluster_sync();
      finish<kOwnRows, kBlocks, NoLogit>(epilogue, batch, m0 + (Index)cluster_rank() * kOwnRows, m_end, d_end, sent, kSentRow,
                                         sent + kSentPairsAt);
    }
  }
};
