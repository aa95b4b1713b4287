// Attention with an online softmax, on tensor cores (mma.sync): for all (b, m, d),
//   acc = sum over n of softmax over n of score(b, m, n, sum over k of q*key) * value, then the epilogue.
// No score leaves the registers.
//
// A kernel brings functors and a Plan:
//   PrologueQ   elements (m, k); PrologueK: elements (n, k), as in contraction_mma.cuh, contiguous along k
//   PrologueV   elements (n, d), contiguous along d: its rows are the keys
//   Score       s(b, m, n, dot): the logit
//   Epilogue    e(b, m, d, acc): called for e_vector neighbouring results along d
//   Plan        element, index, tile_m (16 rows for each warp), tile_n (keys of a step), head (columns of q and key),
//               tile_d (columns of value), both rounded up to 16, threads, q_vector, q_raw, ..., v_raw, e_vector,
//               nan_is_zero (the result of a row without a finite logit is 0)
//
// A warp owns 16 rows of queries. Keys and values pass through two buffers each: while one is multiplied, the other fills.
#pragma once
#include "prelude/contraction_mma.cuh"
#include "prelude/math.cuh"
#include "prelude/warp.cuh"

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

INGOT_DEV void compiler_barrier() { INGOT_PTX(asm volatile("" ::: "memory");) }

INGOT_DEV u32 pack_pair(f16, float low, float high) { return pack_f16x2(low, high); }
INGOT_DEV u32 pack_pair(bf16, float low, float high) { return pack_bf16x2(low, high); }

template <class Plan, class OperandQ, class OperandK, class OperandV> struct AttentionTile {
  typedef typename Plan::element T;
  static constexpr int kKeys = Plan::tile_n / 8, kColumns = Plan::tile_d / 8, kStep = MmaTraits<T>::k;
  static constexpr float kLog2e = 1.4426950408889634f;
  float scores[kKeys][4], acc[kColumns][4], top[2], sum[2];

  static INGOT_DEV int row() { return threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4; }  // and the one 8 below
  static INGOT_DEV int column() { return threadIdx.x % 4 * 2; }                       // and the next, of every 8

  INGOT_DEV void clear() {
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
#pragma unroll
      for (int q = 0; q < 4; ++q) acc[j][q] = 0;
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) top[h] = -bits_as<float>(0x7f800000u), sum[h] = 0;
  }
  INGOT_DEV void dot_products(u32 q, u32 key) {
    const int x = threadIdx.x / 32 * 16;
#pragma unroll
    for (int j = 0; j < kKeys; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) scores[j][e] = 0;
    }
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
        multiply(scores[j], a, first);
        multiply(scores[j + 1], a, second);
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
  template <class Score, class Index>
  INGOT_DEV void logits(const Score& score, Index batch, Index m0, Index n0, Index m_end, Index n_end) {
#pragma unroll
    for (int j = 0; j < kKeys; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const Index n = n0 + j * 8 + column() + e % 2, m = m0 + row() + e / 2 * 8;
        scores[j][e] = n < n_end ? score(batch, m < m_end ? m : m_end - 1, n, scores[j][e])
                                 : -bits_as<float>(0x7f800000u);
      }
      if (j % 2 == 1) compiler_barrier();  // or the loads of all masks would be in flight, and hold registers
    }
  }
  /// Logits become weights relative to the row's largest logit so far; what was summed up before is scaled to it.
  INGOT_DEV void weights() {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float most = top[h];
#pragma unroll
      for (int j = 0; j < kKeys; ++j) most = fmaxf(most, fmaxf(scores[j][h * 2], scores[j][h * 2 + 1]));
      most = fmaxf(most, shfl_xor(most, 1));
      most = fmaxf(most, shfl_xor(most, 2));
      // A row without any logit so far has weights of zero, and no difference of infinities.
      const float base = most == -bits_as<float>(0x7f800000u) ? 0.0f : most * kLog2e;
      const float scale = fast_exp2(top[h] * kLog2e - base);
      top[h] = most;
      sum[h] *= scale;
#pragma unroll
      for (int j = 0; j < kColumns; ++j) acc[j][h * 2] *= scale, acc[j][h * 2 + 1] *= scale;
#pragma unroll
      for (int j = 0; j < kKeys; ++j) {
#pragma unroll
        for (int e = h * 2; e < h * 2 + 2; ++e) {
          scores[j][e] = fast_exp2(fmaf(scores[j][e], kLog2e, -base));
          sum[h] += scores[j][e];
        }
      }
    }
  }
  INGOT_DEV void add_values(u32 value) {
    if constexpr (kStep == 16) {
#pragma unroll
      for (int k = 0; k < kKeys; k += 2) {
        u32 a[4];
#pragma unroll
        for (int i = 0; i < 4; ++i)
          a[i] = pack_pair(T{}, scores[k + i / 2][i % 2 * 2], scores[k + i / 2][i % 2 * 2 + 1]);
#pragma unroll
        for (int j = 0; j < kColumns; j += 2) {
          u32 r[4];
          OperandV::load8x2(r, value, j * 8, k * 8);
          const u32 first[2] = {r[0], r[1]}, second[2] = {r[2], r[3]};
          multiply(acc[j], a, first);
          multiply(acc[j + 1], a, second);
        }
      }
    } else {
      // The order of the keys in a sum is free: each lane multiplies the two neighbouring keys whose weights it has.
      const int lane = threadIdx.x % 32;
#pragma unroll
      for (int k = 0; k < kKeys; ++k) {
        const float* w = scores[k];
        const u32 a[4] = {bits_as<u32>(w[0]), bits_as<u32>(w[2]), bits_as<u32>(w[1]), bits_as<u32>(w[3])};
#pragma unroll
        for (int j = 0; j < kColumns; ++j) {
          const u32 at = value + (k * 8 + lane % 4 * 2) * OperandV::kRow + (j * 8 + lane / 4) * 4;
          const u32 b[2] = {lds<u32>(at), lds<u32>(at + OperandV::kRow)};
          multiply(acc[j], a, b);
        }
      }
    }
  }
  INGOT_DEV void finish() {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float total = sum[h];
      total += shfl_xor(total, 1);
      total += shfl_xor(total, 2);
      const float part = 1.0f / total;
      const bool none = Plan::nan_is_zero && !(total > 0);
#pragma unroll
      for (int j = 0; j < kColumns; ++j) {
#pragma unroll
        for (int e = h * 2; e < h * 2 + 2; ++e) acc[j][e] = none ? 0.0f : acc[j][e] * part;
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
#pragma unroll 1
    for (Index step = 0; step * Plan::tile_n < n_end; ++step) {
      const Index n0 = step * Plan::tile_n;
      const bool more = n0 + Plan::tile_n < n_end;
      const int now = (int)(step % 2), next = 1 - now;
      cp_async_wait<1>();
      cta_sync();  // these keys are there, and everybody has left the ones before
      if (more) {
        in_k.start(key, batch, n0 + Plan::tile_n, n_end);
        load_tile(in_k, key, keys + next * OperandK::kBytes, (Index)0, k_end);
      }
      cp_async_commit();
      tile.dot_products(shared, keys + now * OperandK::kBytes);
      tile.logits(score, batch, m0, n0, m_end, n_end);
      tile.weights();
      cp_async_wait<1>();
      cta_sync();  // and now the values
      if (more) load_tile(in_v, value, values + next * OperandV::kBytes, step + 1, n_end);
      cp_async_commit();
      tile.add_values(values + now * OperandV::kBytes);
    }
    cp_async_wait<0>();
    cta_sync();
    tile.finish();
#pragma unroll
    for (int j = 0; j < Tile::kColumns; ++j)
      Results::put_fragment(shared, Tile::row(), j * 8 + Tile::column(), tile.acc[j], true);
    cta_sync();
    Results().finish(epilogue, batch, m0, (Index)0, m_end, d_end, shared);
    cta_sync();
  }
}
