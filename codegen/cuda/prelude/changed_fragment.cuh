// Rows of A that are changed on their way to the tensor cores, in the registers that they pass through: 16 rows and 16 of k of a
// warp, four words of two neighbours along k, of rows lane / 4 and 8 below and of k (lane % 4) * 2 and 8 behind. The functor has
// types Side and Depth, what it needs of a row and of a place along k, and
//   Side side(batch, m) const; Depth depth(k) const
//   u32 touch_inputs(const Side&, const Depth&) const    touches what else the elements are computed from (memory.cuh)
//   kPairs: u32 pair(u32 x, const Side&, const Depth&) const     elements (m, k) and (m, k + 1); or else
//   void operator()(float (&x)[2], const Side&, const Depth&, float (&out)[2]) const
#pragma once
#include "prelude/mma_operand.cuh"

INGOT_DEV u32 pack_pair(f16, float low, float high) { return pack_f16x2(low, high); }
INGOT_DEV u32 pack_pair(bf16, float low, float high) { return pack_bf16x2(low, high); }

/// Products of two neighbours, each rounded once, as a product in f32 would be.
INGOT_DEV u32 multiply_pairs(f16, u32 x, u32 y) {
  u32 z;
  INGOT_PTX(asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(z) : "r"(x), "r"(y));)
  INGOT_HOST(const auto a = bits_as<Vec<f16, 2>>(x); const auto b = bits_as<Vec<f16, 2>>(y);
             z = pack_f16x2(to_f32(a[0]) * to_f32(b[0]), to_f32(a[1]) * to_f32(b[1]));)
  return z;
}
INGOT_DEV u32 multiply_pairs(bf16, u32 x, u32 y) {
  u32 z;
  INGOT_PTX(asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(z) : "r"(x), "r"(y));)
  INGOT_HOST(const auto a = bits_as<Vec<bf16, 2>>(x); const auto b = bits_as<Vec<bf16, 2>>(y);
             z = pack_bf16x2(to_f32(a[0]) * to_f32(b[0]), to_f32(a[1]) * to_f32(b[1]));)
  return z;
}

/// The two rows of a thread; those behind the last are like it.
template <class Prologue, bool Changes> struct FragmentSides {
  template <class Index> INGOT_DEV void start(const Prologue&, Index, Index, Index) {}
};
template <class Prologue> struct FragmentSides<Prologue, true> {
  typename Prologue::Side of[2];
  template <class Index> INGOT_DEV void start(const Prologue& prologue, Index batch, Index m0, Index m_end) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const Index m = m0 + threadIdx.x % 32 / 4 + i * 8;
      of[i] = prologue.side(batch, m < m_end ? m : m_end - 1);
    }
  }
};

/// What the rows of a warp are changed by at `Steps` steps of 64 from k on, on its way to L1: each step would wait for its own.
template <int Steps, class Prologue, class Sides, class Index>
INGOT_DEV u32 touch_changes(const Prologue& prologue, const Sides& sides, Index k, Index k_end) {
  u32 word = 0;
#pragma unroll
  for (int step = 0; step < Steps; ++step) {
    const Index at = k + step * 64 + threadIdx.x % 32 * 2;
    if (at < k_end) word ^= prologue.touch_inputs(sides.of[0], prologue.depth(at));
  }
  return word;
}

/// A fragment from k on. What lies behind the end of k is zero, whatever the functor makes of it.
template <class T, class Prologue, class Sides, class Index>
INGOT_DEV void change_fragment(const Prologue& prologue, const Sides& sides, Index k, Index k_end, u32 (&words)[4]) {
#pragma unroll
  for (int q = 0; q < 4; ++q) {
    const Index at = k + q / 2 * 8 + threadIdx.x % 4 * 2;
    const auto depth = prologue.depth(at < k_end ? at : k_end - 2);
    u32 changed;
    if constexpr (Prologue::kPairs) {
      changed = prologue.pair(words[q], sides.of[q % 2], depth);
    } else {
      const auto pair = bits_as<Vec<T, 2>>(words[q]);
      float x[2] = {to_f32(pair[0]), to_f32(pair[1])}, out[2];
      prologue(x, sides.of[q % 2], depth, out);
      changed = pack_pair(T{}, out[0], out[1]);
    }
    words[q] = at < k_end ? changed : 0;
  }
}
