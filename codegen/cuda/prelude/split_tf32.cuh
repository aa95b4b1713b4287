// Products of f32 by tensor cores that hold tf32: x = big + small, and three products of the parts. Infinities and NaN have
// products of their own, because an infinite operand makes a NaN of a mixed term (inf * 0).
#pragma once
#include "prelude/mma.cuh"

/// x = big + small, both with the 11 significant bits of a tf32 (the multiplier ignores what small has beyond them).
template <int N>
INGOT_DEV void split_tf32(const u32 (&x)[N], u32 (&big)[N], u32 (&small)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) {
    big[i] = (x[i] + 0x1000) & 0xffffe000;
    small[i] = bits_as<u32>(bits_as<float>(x[i]) - bits_as<float>(big[i]));
  }
}
/// What is small of x where x itself stands for its big part: the multiplier cuts off what lies beyond a tf32. It has 13
/// significant bits, of which 11 stay, rounded.
INGOT_DEV u32 cut_off_tf32(u32 x) { return bits_as<u32>(bits_as<float>(x) - bits_as<float>(x & 0xffffe000)) + 0x1000; }

/// The same for any x: infinities and NaN have no small part, and nothing is rounded up to one. The NaN that arithmetic makes
/// here has all bits set: rounded, it would carry into the sign and be a zero.
INGOT_DEV void split_tf32_carefully(u32 x, u32& big, u32& small) {
  const u32 magnitude = x & 0x7fffffff, rounded = (x + 0x1000) & 0xffffe000;
  big = (rounded & 0x7fffffff) >= 0x7f800000 ? x & 0xffffe000 : rounded;
  if (magnitude > 0x7f800000) big = 0x7fffe000;
  small = magnitude >= 0x7f800000 ? 0 : bits_as<u32>(bits_as<float>(x) - bits_as<float>(big));
}
/// Adds the products of any operands, 8 of k, to 16 rows of twice 8 results: a and b as an mma takes them.
INGOT_DEV void multiply_tf32_carefully(const u32 (&a)[4], const u32 (&b)[4], float (&first)[4], float (&second)[4]) {
  u32 a_big[4], a_small[4];
#pragma unroll
  for (int q = 0; q < 4; ++q) split_tf32_carefully(a[q], a_big[q], a_small[q]);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    u32 b_big[2], b_small[2];
#pragma unroll
    for (int q = 0; q < 2; ++q) split_tf32_carefully(b[h * 2 + q], b_big[q], b_small[q]);
    float mixed[4] = {};
    mma_1688_tf32(mixed, a_small, b_big);
    mma_1688_tf32(mixed, a_big, b_small);
    // Small halves may have the other sign: an infinity of theirs says nothing that the big halves do not.
    float(&sums)[4] = h == 0 ? first : second;
#pragma unroll
    for (int q = 0; q < 4; ++q) sums[q] += fabsf(mixed[q]) < kInf ? mixed[q] : 0.0f;
    mma_1688_tf32(sums, a_big, b_big);
  }
}
