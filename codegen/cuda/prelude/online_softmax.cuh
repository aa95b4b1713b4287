// Softmax over keys that arrive a few at a time, in the registers of a warp's tensor cores: 16 queries, of which a thread has
// two rows, and of every 8 keys (or columns of the result) two neighbours.
#pragma once
#include "prelude/math.cuh"
#include "prelude/warp.cuh"

enum : int { kNoLogitNan, kNoLogitZero, kNanIsZero };

INGOT_DEV void compiler_barrier() { INGOT_PTX(asm volatile("" ::: "memory");) }

INGOT_DEV u32 pack_pair(f16, float low, float high) { return pack_f16x2(low, high); }
INGOT_DEV u32 pack_pair(bf16, float low, float high) { return pack_bf16x2(low, high); }

/// acc is the sum of weight * value over the keys so far, for weights relative to the largest logit so far.
template <int Keys, int Columns> struct OnlineSoftmax {
  static constexpr float kLog2e = 1.4426950408889634f;
  float scores[Keys / 2], acc[Columns / 2], top[2], sum[2];

  static INGOT_DEV int row() { return threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4; }  // and the one 8 below
  static INGOT_DEV int column() { return threadIdx.x % 4 * 2; }                       // and the next, of every 8

  INGOT_DEV void clear() {
#pragma unroll
    for (int i = 0; i < Columns / 2; ++i) acc[i] = 0;
#pragma unroll
    for (int h = 0; h < 2; ++h) top[h] = -kInf, sum[h] = 0;
  }
  /// Products of query and key become logits, but for Score::kScale. Keys from n_end on are as if they were not there.
  template <class Score, class Index>
  INGOT_DEV void logits(const Score& score, Index batch, Index m0, Index n0, Index m_end, Index n_end) {
    if (n0 + Keys <= n_end) some_logits<true>(score, batch, m0, n0, m_end, n_end);
    else some_logits<false>(score, batch, m0, n0, m_end, n_end);
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
  /// The weights of 16 keys from `k` on as an operand of a product, in T's precision.
  template <class T> INGOT_DEV void operand(u32 (&a)[4], int k) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) a[i] = pack_pair(T{}, scores[k / 2 + i * 2], scores[k / 2 + i * 2 + 1]);
  }
  /// The results. Of a row without a logit they are NaN, or zero where the model says so; also of one with a NaN (kNanIsZero).
  template <int NoLogit> INGOT_DEV void finish() {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float total = sum[h];
      total += shfl_xor(total, 1);
      total += shfl_xor(total, 2);
      const float part = 1.0f / total;
      const bool none = NoLogit == kNanIsZero ? !(total > 0) : NoLogit == kNoLogitZero && total == 0;
#pragma unroll
      for (int j = 0; j < Columns / 8; ++j) {
#pragma unroll
        for (int e = j * 4 + h * 2; e < j * 4 + h * 2 + 2; ++e) acc[e] = none ? 0.0f : acc[e] * part;
      }
    }
  }
};
