// Rows of A that are changed on their way to the tensor cores, in the registers that they pass through: 16 rows and 16 of k of a
// warp, four words of two neighbours along k, of rows lane / 4 and 8 below and of k (lane % 4) * 2 and 8 behind. The functor has
// types Side and Depth, what it needs of a row and of a place along k, and
//   Side side(batch, m) const; Depth depth(k) const
//   void operator()(float (&x)[2], const Side&, const Depth&, float (&out)[2]) const     elements (m, k) and (m, k + 1)
#pragma once
#include "prelude/mma_operand.cuh"

INGOT_DEV u32 pack_pair(f16, float low, float high) { return pack_f16x2(low, high); }
INGOT_DEV u32 pack_pair(bf16, float low, float high) { return pack_bf16x2(low, high); }

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

/// A fragment from k on. What lies behind the end of k is zero, whatever the functor makes of it.
template <class T, class Prologue, class Sides, class Index>
INGOT_DEV void change_fragment(const Prologue& prologue, const Sides& sides, Index k, Index k_end, u32 (&words)[4]) {
#pragma unroll
  for (int q = 0; q < 4; ++q) {
    const Index at = k + q / 2 * 8 + threadIdx.x % 4 * 2;
    const auto pair = bits_as<Vec<T, 2>>(words[q]);
    float x[2] = {to_f32(pair[0]), to_f32(pair[1])}, out[2];
    prologue(x, sides.of[q % 2], prologue.depth(at < k_end ? at : k_end - 2), out);
    words[q] = at < k_end ? pack_pair(T{}, out[0], out[1]) : 0;
  }
}
