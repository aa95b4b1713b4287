// Softmax over keys that arrive a few at a time, in the registers of a warp's tensor cores: 16 queries, of which a thread has
// two rows, and of every 8 keys (or columns of the result) two neighbours.
#pragma once
#include "prelude/math.cuh"
#include "prelude/memory.cuh"
#include "prelude/sync.cuh"
#include "prelude/warp.cuh"

enum : int { kNoLogitNan, kNoLogitZero, kNanIsZero };

INGOT_DEV void compiler_barrier() { INGOT_PTX(asm volatile("" ::: "memory");) }

INGOT_DEV u32 pack_pair(f16, float low, float high) { return pack_f16x2(low, high); }
INGOT_DEV u32 pack_pair(bf16, float low, float high) { return pack_bf16x2(low, high); }

/// A bound of the keys as one of them: bounds that come from memory may be any number.
template <class Index, class Bound> INGOT_DEV Index key_limit(Bound bound, Index n_end) {
  return bound < 0 ? (Index)0 : bound < n_end ? (Index)bound : n_end;
}

/// Sums of weight * value times `scale`, where the weights of all keys sum to `weights`. Of a row without a logit they are NaN, or
/// zero where the model says so; also of one with a NaN (kNanIsZero).
template <int NoLogit, int N> INGOT_DEV void scale_results(float (&values)[N], float scale, float weights) {
  const bool none = NoLogit == kNanIsZero ? !(weights > 0) : NoLogit == kNoLogitZero && weights == 0;
#pragma unroll
  for (int i = 0; i < N; ++i) values[i] = none ? 0.0f : values[i] * scale;
}

/// The logits of keys that no mask takes away.
template <class Score> struct SeenScore {
  static constexpr bool kLoads = Score::kLoads;
  const Score* score;
  template <class Index> INGOT_DEV float operator()(Index batch, Index m, Index n, float dot) const {
    return score->plain(batch, m, n, dot);
  }
};

/// acc is the sum of weight * value over the keys so far, for weights relative to the largest logit so far. RowWarps: warps
/// with rows of their own, behind which warps have the same rows again (and other keys); 0: each has its own.
template <int Keys, int Columns, int RowWarps = 0> struct OnlineSoftmax {
  static constexpr float kLog2e = 1.4426950408889634f;
  float scores[Keys / 2], acc[Columns / 2], top[2], sum[2];

  /// The first row of this warp.
  static INGOT_DEV int warp_row() {
    const int warp = threadIdx.x / 32;
    return (RowWarps > 0 ? warp % (RowWarps > 0 ? RowWarps : 1) : warp) * 16;
  }
  static INGOT_DEV int row() { return warp_row() + threadIdx.x % 32 / 4; }  // and the one 8 below
  static INGOT_DEV int column() { return threadIdx.x % 4 * 2; }                       // and the next, of every 8

  INGOT_DEV void clear() {
#pragma unroll
    for (int i = 0; i < Columns / 2; ++i) acc[i] = 0;
#pragma unroll
    for (int h = 0; h < 2; ++h) top[h] = -kInf, sum[h] = 0;
  }
  /// Products of query and key become logits, but for Score::kScale. Keys from n_end on are as if they were not there. Masks are
  /// left out where the first row of this warp sees all the keys, and so the others do.
  template <class Score, class Index>
  INGOT_DEV void logits(const Score& score, Index batch, Index m0, Index n0, Index m_end, Index n_end) {
    if constexpr (Score::kMasks) {
      const Index first = m0 + warp_row();
      if (n0 + Keys <= score.seen(batch, first < m_end ? first : m_end - 1, n_end)) {
        some_logits<true>(SeenScore<Score>{&score}, batch, m0, n0, m_end, n_end);
      } else if constexpr (Score::kLimits) {
        limited_logits(score, batch, m0, n0, m_end, n_end);
      } else {
        some_logits<false>(score, batch, m0, n0, m_end, n_end);
      }
    } else if (n0 + Keys <= n_end) {
      some_logits<true>(score, batch, m0, n0, m_end, n_end);
    } else {
      some_logits<false>(score, batch, m0, n0, m_end, n_end);
    }
  }
  template <bool All, class Score, class Index>
  INGOT_DEV void some_logits(const Score& score, Index batch, Index m0, Index n0, Index m_end, Index n_end) {
#pragma unroll
    for (int j = 0; j < Keys / 8; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const Index n = n0 + j * 8 + column() + e % 2, m = m0 + row() + e / 2 * 8;
        float& s = scores[j * 4 + e];
        s = All || n < n_end ? score(batch, m < m_end ? m : m_end - 1, n, s) : -kInf;
      }
      if (Score::kLoads && j % 2 == 1) compiler_barrier();  // or the loads of all masks would be in flight, and hold registers
    }
  }
  /// The same where a row sees all keys up to the first that is masked, and no other.
  template <class Score, class Index>
  INGOT_DEV void limited_logits(const Score& score, Index batch, Index m0, Index n0, Index m_end, Index n_end) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const Index row_of = m0 + row() + h * 8, m = row_of < m_end ? row_of : m_end - 1;
      const Index limit = score.seen(batch, m, n_end);
#pragma unroll
      for (int j = 0; j < Keys / 8; ++j) {
#pragma unroll
        for (int e = j * 4 + h * 2; e < j * 4 + h * 2 + 2; ++e) {
          const Index n = n0 + j * 8 + column() + e % 2;
          scores[e] = n < limit ? score.plain(batch, m, n, scores[e]) : -kInf;
        }
        if (Score::kLoads && j % 2 == 1) compiler_barrier();
      }
    }
  }
  /// Logits become weights; `scale` is what the sums so far are to be multiplied by (acc is left to rescale()).
  template <class Score> INGOT_DEV void weights(float (&scale)[2]) {
    constexpr float kFactor = kLog2e * Score::kScale;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float most = top[h];
#pragma unroll
      for (int j = 0; j < Keys / 8; ++j) most = fmaxf(most, fmaxf(scores[j * 4 + h * 2], scores[j * 4 + h * 2 + 1]));
      most = fmaxf(most, shfl_xor(most, 1));
      most = fmaxf(most, shfl_xor(most, 2));
      // A row without any logit so far has weights of zero, and no difference of infinities.
      const float base = most == -kInf ? 0.0f : most * kFactor;
      scale[h] = fast_exp2(top[h] * kFactor - base);
      top[h] = most;
      sum[h] *= scale[h];
#pragma unroll
      for (int j = 0; j < Keys / 8; ++j) {
#pragma unroll
        for (int e = j * 4 + h * 2; e < j * 4 + h * 2 + 2; ++e) {
          scores[e] = fast_exp2(fmaf(scores[e], kFactor, -base));
          sum[h] += scores[e];
        }
      }
    }
  }
  INGOT_DEV void rescale(const float (&scale)[2]) {
#pragma unroll
    for (int i = 0; i < Columns / 2; ++i) acc[i] *= scale[i / 2 % 2];
  }
  /// The same, but for the case that no row of the warp has found a larger logit, which is the rule after a few steps. Beside
  /// products of a warpgroup the question costs more than it saves: 8% of long sequences.
  INGOT_DEV void rescale_if_larger(const float (&scale)[2]) {
    if (warp_any(scale[0] != 1.0f || scale[1] != 1.0f)) rescale(scale);
  }
  /// The weights of 16 keys from `k` on as an operand of a product, in T's precision.
  template <class T> INGOT_DEV void operand(u32 (&a)[4], int k) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) a[i] = pack_pair(T{}, scores[k / 2 + i * 2], scores[k / 2 + i * 2 + 1]);
  }
  /// The sum of the weights of row h.
  INGOT_DEV float total(int h) const {
    const float some = sum[h] + shfl_xor(sum[h], 1);
    return some + shfl_xor(some, 2);
  }
  /// The results.
  template <int NoLogit> INGOT_DEV void finish() {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float all = total(h), part = 1.0f / all;
#pragma unroll
      for (int j = 0; j < Columns / 8; ++j) scale_results<NoLogit>(*(float(*)[2])(acc + j * 4 + h * 2), part, all);
    }
  }
};
