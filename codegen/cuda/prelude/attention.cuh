// Attention with an online softmax, on tensor cores (mma.sync): for all (b, m, d),
//   acc = sum over n of softmax over n of score(b, m, n, sum over k of q*key) * value, then the epilogue.
// No score leaves the registers.
//
// A kernel brings functors and a Plan:
//   PrologueQ   elements (m, k); PrologueK: elements (n, k), as in contraction_mma.cuh, contiguous along k
//   PrologueV   elements (n, d), contiguous along d: its rows are the keys
//   Score       s(b, m, n, dot): the logit, but for the factor Score::kScale > 0; kLoads: it reads memory for each key; and
//               reach(b, m, n_end): keys from there on, at most n_end, have weights of zero in rows up to m. kMasks: some of it are masks:
//               seen(b, m, n_end): those before are masked in no row from m on, and their logits are plain(b, m, n, dot);
//               kLimits: all others of row m are masked
//   Epilogue    e(b, m, d, acc): called for e_vector neighbouring results along d
//   Plan        element, index, tile_m (16 rows for each row of warps), tile_n (keys of a step), key_warps (warps that have
//               the same rows, and each its part of a step's keys), cluster_k (blocks of a cluster that have the same rows,
//               and take turns at the steps), head (columns of q and key), tile_d (columns of value), both rounded up to 16,
//               stages, threads, q_vector, q_raw, ..., v_raw, e_vector,
//               no_logit (the result of a row without a logit: kNoLogitNan, kNoLogitZero, kNanIsZero)
//
// A warp owns 16 rows of queries. Keys and values pass through a ring of stages each: while one is multiplied, others fill.
// With few queries the keys are what is divided: among warps, and among blocks.
#pragma once
#include "prelude/contraction_mma.cuh"
#include "prelude/joined_parts.cuh"
#include "prelude/online_softmax.cuh"

template <class Plan> struct QueryPlan : Plan {
  static constexpr int tile_k = Plan::head, stages = 2;
};
template <class Plan> struct ValuePlan : Plan {
  static constexpr int tile_k = Plan::tile_n, stages = 2;
};
template <class Plan> struct AttentionResult : Plan {
  static constexpr int tile_n = Plan::tile_d, workers = Plan::threads;
  static constexpr bool out_along_m = false;
};

template <class Plan>
using AttentionSoftmax =
    OnlineSoftmax<Plan::tile_n / Plan::key_warps, Plan::tile_d, Plan::key_warps == 1 ? 0 : Plan::tile_m / 16>;

template <class Plan, class OperandQ, class OperandK, class OperandV> struct AttentionTile : AttentionSoftmax<Plan> {
  typedef typename Plan::element T;
  static constexpr int kWarpKeys = Plan::tile_n / Plan::key_warps;
  static constexpr int kKeys = kWarpKeys / 8, kColumns = Plan::tile_d / 8, kStep = MmaTraits<T>::k;
  using AttentionSoftmax<Plan>::scores;
  using AttentionSoftmax<Plan>::acc;

  static INGOT_DEV int part() { return Plan::key_warps == 1 ? 0 : threadIdx.x / 32 / (Plan::tile_m / 16); }
  /// Where this warp's keys begin among those of a step.
  static INGOT_DEV int first_key() { return part() * kWarpKeys; }

  /// Four results of a product, in an array of them.
  static INGOT_DEV float (&four(float* values, int j))[4] { return *(float(*)[4])(values + j * 4); }

  INGOT_DEV void dot_products(u32 q, u32 key) {
    const int x = this->warp_row(), n = first_key();
#pragma unroll
    for (int i = 0; i < kKeys * 4; ++i) scores[i] = 0;
    // Not all at once: the compiler would load every fragment first.
    constexpr bool kSplits = kStep == 8 && !Plan::single;
#pragma unroll(Plan::tile_d > (kSplits ? 32 : 128) ? 1 : 2)
    for (int k = 0; k < Plan::head; k += kStep) {
      u32 a[4];
      OperandQ::load16(a, q, x, k);
#pragma unroll
      for (int j = 0; j < kKeys; j += 2) {
        u32 r[4];
        OperandK::load8x2(r, key, n + j * 8, k);
        multiply(four(scores, j), four(scores, j + 1), a, r);
      }
    }
  }
  /// Adds the products of a with the first two words of b to one fragment, with the others to the next one.
  static INGOT_DEV void multiply(float (&first)[4], float (&second)[4], const u32 (&a)[4], const u32 (&b)[4]) {
    const u32 b_first[2] = {b[0], b[1]}, b_second[2] = {b[2], b[3]};
    if constexpr (kStep == 16) {
      mma_16816<MmaTraits<T>::type>(first, a, b_first);
      mma_16816<MmaTraits<T>::type>(second, a, b_second);
    } else if constexpr (Plan::single) {
      mma_1688_tf32(first, a, b_first);
      mma_1688_tf32(second, a, b_second);
    } else {
      multiply_tf32_carefully(a, b, first, second);
    }
  }
  INGOT_DEV void add_values(u32 value) {
    const int n = first_key();
    if constexpr (kStep == 16) {
#pragma unroll
      for (int k = 0; k < kKeys; k += 2) {
        u32 a[4];
        this->template operand<T>(a, k * 8);
#pragma unroll
        for (int j = 0; j < kColumns; j += 2) {
          u32 r[4];
          OperandV::load8x2(r, value, j * 8, n + k * 8);
          multiply(four(acc, j), four(acc, j + 1), a, r);
        }
      }
    } else {
      // The order of the keys in a sum is free: each lane multiplies the two neighbouring keys whose weights it has.
      const int lane = threadIdx.x % 32;
#pragma unroll
      for (int k = 0; k < kKeys; ++k) {
        const float* w = scores + k * 4;
        const u32 a[4] = {bits_as<u32>(w[0]), bits_as<u32>(w[2]), bits_as<u32>(w[1]), bits_as<u32>(w[3])};
#pragma unroll
        for (int j = 0; j < kColumns; j += 2) {
          const u32 at = value + (n + k * 8 + lane % 4 * 2) * OperandV::kRow + (j * 8 + lane / 4) * 4;
          const u32 b[4] = {lds<u32>(at), lds<u32>(at + OperandV::kRow), lds<u32>(at + 32), lds<u32>(at + OperandV::kRow + 32)};
          multiply(four(acc, j), four(acc, j + 1), a, b);
        }
      }
    }
  }
};

template <class Operand, class Prologue, class Index>
INGOT_DEV void load_tile(Operand& in, const Prologue& prologue, u32 to, Index step, Index k_end) {
  in.copy(prologue, to, step, (Index)0, k_end);
  in.fetch(prologue, step, (Index)0, k_end);
  in.store(to);
}

/// Cluster (or block) blockIdx.x takes tile_m rows of every batch index blockIdx.z, blockIdx.z + gridDim.z, ...
template <class Plan, class PrologueQ, class PrologueK, class PrologueV, class Score, class Epilogue>
INGOT_DEV void attention(const PrologueQ& q, const PrologueK& key, const PrologueV& value, const Score& score,
                         const Epilogue& epilogue, typename Plan::index batches, typename Plan::index m_end,
                         typename Plan::index n_end, typename Plan::index k_end, typename Plan::index d_end, u32 shared) {
  typedef typename Plan::index Index;
  typedef MmaOperand<QueryPlan<Plan>, PrologueQ, Plan::tile_m, true, Plan::q_vector, Plan::q_raw, false> OperandQ;
  typedef MmaOperand<QueryPlan<Plan>, PrologueK, Plan::tile_n, true, Plan::k_vector, Plan::k_raw, false> OperandK;
  typedef MmaOperand<ValuePlan<Plan>, PrologueV, Plan::tile_d, false, Plan::v_vector, Plan::v_raw, false> OperandV;
  typedef AttentionTile<Plan, OperandQ, OperandK, OperandV> Tile;
  typedef ResultTile<AttentionResult<Plan>> Results;
  typedef JoinedParts<Plan> Joined;
  constexpr bool kCluster = Plan::cluster_k > 1;
  constexpr u32 kStages = OperandQ::kBytes + Plan::stages * (OperandK::kBytes + OperandV::kBytes);
  constexpr int kAhead = Plan::stages - 1;
  const Index m0 = (Index)(blockIdx.x / Plan::cluster_k) * Plan::tile_m;
  const Index first = kCluster ? (Index)cluster_rank() : (Index)0;
  const u32 keys = shared + OperandQ::kBytes, values = keys + Plan::stages * OperandK::kBytes;
  for (Index batch = blockIdx.z; batch < batches; batch += gridDim.z) {
    const Index n_stop = score.reach(batch, (m0 + Plan::tile_m < m_end ? m0 + Plan::tile_m : m_end) - 1, n_end);
    if constexpr (kCluster) cluster_arrive();
    OperandQ in_q;
    OperandK in_k;
    OperandV in_v;
    const auto load_keys = [&](Index step, int slot) {
      if (step * Plan::tile_n < n_stop) {
        in_k.start(key, batch, step * Plan::tile_n, n_stop);
        load_tile(in_k, key, keys + slot * OperandK::kBytes, (Index)0, k_end);
      }
      cp_async_commit();
    };
    const auto load_values = [&](Index step, int slot) {
      if (step * Plan::tile_n < n_stop) load_tile(in_v, value, values + slot * OperandV::kBytes, step, n_stop);
      cp_async_commit();
    };
    in_q.start(q, batch, m0, m_end);
    in_v.start(value, batch, (Index)0, d_end);
    load_tile(in_q, q, shared, (Index)0, k_end);
#pragma unroll 1
    for (int s = 0; s < kAhead; ++s) {
      load_keys(first + s * Plan::cluster_k, s);
      load_values(first + s * Plan::cluster_k, s);
    }
    Tile tile;
    tile.clear();
    int slot = 0;
#pragma unroll 1
    for (Index step = first; step * Plan::tile_n < n_stop; step += Plan::cluster_k) {
      const int next = slot == 0 ? kAhead : slot - 1;  // the stage that has just been left
      cp_async_wait<2 * kAhead - 1>();
      cta_sync();  // these keys are there, and everybody has left the ones before
      load_keys(step + kAhead * Plan::cluster_k, next);
      tile.dot_products(shared, keys + slot * OperandK::kBytes);
      float scale[2];
      tile.logits(score, batch, m0, step * Plan::tile_n + Tile::first_key(), m_end, n_stop);
      tile.template weights<Score>(scale);
      tile.rescale_if_larger(scale);
      cp_async_wait<2 * kAhead - 1>();
      cta_sync();  // and now the values
      load_values(step + kAhead * Plan::cluster_k, next);
      tile.add_values(values + slot * OperandV::kBytes);
      slot = slot == kAhead ? 0 : slot + 1;
    }
    cp_async_wait<0>();
    cta_sync();
    if constexpr (kCluster || Plan::key_warps > 1) {
      const Joined joined{shared, shared + (kStages > Joined::kBytes ? kStages : Joined::kBytes)};
      joined.template put<Score>(tile, Tile::part());
      joined.template finish_all<Plan::no_logit>(epilogue, batch, m0, m_end, d_end);
    } else {
      tile.template finish<Plan::no_logit>();
#pragma unroll
      for (int j = 0; j < Tile::kColumns; ++j)
        Results::put_fragment(shared, Tile::row(), j * 8 + Tile::column(), tile.acc + j * 4, true);
      cta_sync();
      Results().finish(epilogue, batch, m0, (Index)0, m_end, d_end, shared);
      cta_sync();
    }
  }
}
