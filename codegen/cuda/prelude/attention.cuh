// Attention with an online softmax, on tensor cores (mma.sync): for all (b, m, d),
//   acc = sum over n of softmax over n of score(b, m, n, sum over k of q*key) * value, then the epilogue.
// No score leaves the registers.
//
// A kernel brings functors and a Plan:
//   PrologueQ   elements (m, k); PrologueK: elements (n, k), as in contraction_mma.cuh, contiguous along k
//   PrologueV   elements (n, d), contiguous along d: its rows are the keys
//   Score       s(b, m, n, dot): the logit, but for the factor Score::kScale > 0; kLoads: it reads memory; and
//               reach(b, m, n_end): keys from there on have weights of zero in rows up to m
//   Epilogue    e(b, m, d, acc): called for e_vector neighbouring results along d
//   Plan        element, index, tile_m (16 rows for each warp), tile_n (keys of a step), head (columns of q and key),
//               tile_d (columns of value), both rounded up to 16, threads, q_vector, q_raw, ..., v_raw, e_vector,
//               no_logit (the result of a row without a logit: kNoLogitNan, kNoLogitZero, kNanIsZero)
//
// A warp owns 16 rows of queries. Keys and values pass through two buffers each: while one is multiplied, the other fills.
#pragma once
#include "prelude/contraction_mma.cuh"
#include "prelude/online_softmax.cuh"

template <class Plan> struct QueryPlan : Plan {
  static constexpr int tile_k = Plan::head, stages = 2;
};
template <class Plan> struct ValuePlan : Plan {
  static constexpr int tile_k = Plan::tile_n, stages = 2;
};
template <class Plan> struct AttentionResult : Plan {
  static constexpr int tile_n = Plan::tile_d, cluster_k = 1;
  static constexpr bool out_along_m = false;
};

template <class Plan, class OperandQ, class OperandK, class OperandV>
struct AttentionTile : OnlineSoftmax<Plan::tile_n, Plan::tile_d> {
  typedef typename Plan::element T;
  static constexpr int kKeys = Plan::tile_n / 8, kColumns = Plan::tile_d / 8, kStep = MmaTraits<T>::k;
  using OnlineSoftmax<Plan::tile_n, Plan::tile_d>::scores;
  using OnlineSoftmax<Plan::tile_n, Plan::tile_d>::acc;

  /// Four results of a product, in an array of them.
  static INGOT_DEV float (&four(float* values, int j))[4] { return *(float(*)[4])(values + j * 4); }

  INGOT_DEV void dot_products(u32 q, u32 key) {
    const int x = threadIdx.x / 32 * 16;
#pragma unroll
    for (int i = 0; i < kKeys * 4; ++i) scores[i] = 0;
    // Not all at once: the compiler would load every fragment first.
#pragma unroll(Plan::tile_d > 128 ? 1 : 2)
    for (int k = 0; k < Plan::head; k += kStep) {
      u32 a[4];
      OperandQ::load16(a, q, x, k);
#pragma unroll
      for (int j = 0; j < kKeys; j += 2) {
        u32 r[4];
        OperandK::load8x2(r, key, j * 8, k);
        const u32 first[2] = {r[0], r[1]}, second[2] = {r[2], r[3]};
        multiply(four(scores, j), a, first);
        multiply(four(scores, j + 1), a, second);
      }
    }
  }
  static INGOT_DEV void multiply(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    if constexpr (kStep == 16) {
      mma_16816<MmaTraits<T>::type>(d, a, b);
    } else if constexpr (Plan::single) {
      mma_1688_tf32(d, a, b);
    } else {
      u32 a_big[4], a_small[4], b_big[2], b_small[2];
      split_tf32(a, a_big, a_small);
      split_tf32(b, b_big, b_small);
      mma_1688_tf32(d, a_small, b_big);
      mma_1688_tf32(d, a_big, b_small);
      mma_1688_tf32(d, a_big, b_big);
    }
  }
  INGOT_DEV void add_values(u32 value) {
    if constexpr (kStep == 16) {
#pragma unroll
      for (int k = 0; k < kKeys; k += 2) {
        u32 a[4];
        this->template operand<T>(a, k * 8);
#pragma unroll
        for (int j = 0; j < kColumns; j += 2) {
          u32 r[4];
          OperandV::load8x2(r, value, j * 8, k * 8);
          const u32 first[2] = {r[0], r[1]}, second[2] = {r[2], r[3]};
          multiply(four(acc, j), a, first);
          multiply(four(acc, j + 1), a, second);
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
        for (int j = 0; j < kColumns; ++j) {
          const u32 at = value + (k * 8 + lane % 4 * 2) * OperandV::kRow + (j * 8 + lane / 4) * 4;
          const u32 b[2] = {lds<u32>(at), lds<u32>(at + OperandV::kRow)};
          multiply(four(acc, j), a, b);
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

/// Block blockIdx.x takes tile_m rows of every batch index blockIdx.z, blockIdx.z + gridDim.z, ...
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
  const Index m0 = (Index)blockIdx.x * Plan::tile_m;
  const u32 keys = shared + OperandQ::kBytes, values = keys + 2 * OperandK::kBytes;
  for (Index batch = blockIdx.z; batch < batches; batch += gridDim.z) {
    OperandQ in_q;
    OperandK in_k;
    OperandV in_v;
    in_q.start(q, batch, m0, m_end);
    in_k.start(key, batch, (Index)0, n_end);
    in_v.start(value, batch, (Index)0, d_end);
    load_tile(in_q, q, shared, (Index)0, k_end);
    load_tile(in_k, key, keys, (Index)0, k_end);
    cp_async_commit();
    load_tile(in_v, value, values, (Index)0, n_end);
    cp_async_commit();
    Tile tile;
    tile.clear();
    const Index reach = score.reach(batch, (m0 + Plan::tile_m < m_end ? m0 + Plan::tile_m : m_end) - 1, n_end);
    const Index n_stop = reach < n_end ? reach : n_end;
#pragma unroll 1
    for (Index step = 0; step * Plan::tile_n < n_stop; ++step) {
      const Index n0 = step * Plan::tile_n;
      const bool more = n0 + Plan::tile_n < n_stop;
      const int now = (int)(step % 2), next = 1 - now;
      cp_async_wait<1>();
      cta_sync();  // these keys are there, and everybody has left the ones before
      if (more) {
        in_k.start(key, batch, n0 + Plan::tile_n, n_end);
        load_tile(in_k, key, keys + next * OperandK::kBytes, (Index)0, k_end);
      }
      cp_async_commit();
      tile.dot_products(shared, keys + now * OperandK::kBytes);
      float scale[2];
      tile.logits(score, batch, m0, n0, m_end, n_end);
      tile.template weights<Score>(scale);
      tile.rescale(scale);
      cp_async_wait<1>();
      cta_sync();  // and now the values
      if (more) load_tile(in_v, value, values + next * OperandV::kBytes, step + 1, n_end);
      cp_async_commit();
      tile.add_values(values + now * OperandV::kBytes);
    }
    cp_async_wait<0>();
    cta_sync();
    tile.template finish<Plan::no_logit>();
#pragma unroll
    for (int j = 0; j < Tile::kColumns; ++j)
      Results::put_fragment(shared, Tile::row(), j * 8 + Tile::column(), tile.acc + j * 4, true);
    cta_sync();
    Results().finish(epilogue, batch, m0, (Index)0, m_end, d_end, shared);
    cta_sync();
  }
}
