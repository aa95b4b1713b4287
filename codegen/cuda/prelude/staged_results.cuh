// 16-bit results of a warpgroup on their way to memory by TMA: 16 rows of a warp and 64 columns at a time, as the tensor cores
// leave them, into shared memory that only this warp uses, and from there as a box. What the epilogue reads of the same form (a
// residual) has come by TMA into the very places that its results take. Of the plan:
//   buffers       boxes of a warp: on their way in, in use, or on their way out
//   staged_input  the epilogue has such an input; it comes by the second map
// The functor of the epilogue is that of contraction_wgmma.cuh for two neighbours, with `result` in place of operator():
//   void result(batch, m, n, float (&acc)[2], const Inputs& in, Vec<StagedInput, 2> staged, float (&out)[2]) const
// with the types StagedInput and StagedOutput.
#pragma once
#include "prelude/mma.cuh"
#include "prelude/sync.cuh"
#include "prelude/tma.cuh"
#include "prelude/warp.cuh"

INGOT_DEV u32 pack_pair(f16, float low, float high) { return pack_f16x2(low, high); }
INGOT_DEV u32 pack_pair(bf16, float low, float high) { return pack_bf16x2(low, high); }

template <class Plan> struct StagedBoxes {
  static constexpr int kBuffers = Plan::buffers, kBox = 16 * 128, kBytes = kBuffers * kBox;  // of a warp, without barriers
  static constexpr int kPerRow = Plan::warp_n / 64, kBoxes = Plan::warp_m / 64 * kPerRow;    // of a tile
  static_assert(Plan::warp_n % 64 == 0, "a box is 64 columns");
  static_assert(kBoxes % kBuffers == 0, "buffers are used in turn");
  static_assert(!Plan::staged_input || kBuffers == kBoxes, "each input of a tile has its place");
};

/// The boxes of one warp, the tile's from (m0, n0) on: 16 rows, and the same 64 rows further for each further row of acc.
template <class Plan, class Epilogue> struct StagedWarp {
  typedef typename Plan::index Index;
  typedef StagedBoxes<Plan> Boxes;
  typedef typename Epilogue::Inputs Inputs;
  const Epilogue* epilogue;
  const TensorMap *out, *in;
  u32 shared, barriers, phases = 0;  // a bit for each buffer
  Index batch = 0, m0 = 0, n0 = 0, m_end, n_end;

  INGOT_DEV u32 buffer(int p) const { return shared + p % Boxes::kBuffers * Boxes::kBox; }
  INGOT_DEV u32 barrier(int p) const { return barriers + p % Boxes::kBuffers * 8; }
  INGOT_DEV Index row(int p) const { return m0 + p / Boxes::kPerRow * 64; }
  INGOT_DEV Index column(int p) const { return n0 + p % Boxes::kPerRow * 64; }
  INGOT_DEV bool has(int p) const { return row(p) < m_end && column(p) < n_end; }
  static INGOT_DEV bool leads() { return threadIdx.x % 32 == 0; }

  INGOT_DEV void send_input(int p) const {
    mbar_arrive_expect_tx(barrier(p), Boxes::kBox);
    tma_load3(buffer(p), in, barrier(p), (int)column(p), (int)row(p), Plan::batched ? (int)batch : 0);
  }
  /// Before the products of a tile: its inputs are on their way beside them.
  INGOT_DEV void begin(Index at_batch, Index at_m, Index at_n) {
    batch = at_batch;
    m0 = at_m;
    n0 = at_n;
    if constexpr (Plan::staged_input) {
      if (!leads()) return;
      bulk_wait_read<0>();
#pragma unroll
      for (int p = 0; p < Boxes::kBoxes; ++p)
        if (has(p)) send_input(p);
    }
  }
  /// Waits until box p may be written.
  INGOT_DEV void open(int p) {
    if constexpr (Plan::staged_input) {
      mbar_wait(barrier(p), phases >> p & 1);
      phases ^= 1u << p;
    } else {
      if (leads()) bulk_wait_read<Boxes::kBuffers - 1>();
      warp_sync();
    }
  }
  INGOT_DEV void close(int p) const {
    fence_proxy_async();
    warp_sync();
    if (!leads()) return;
    tma_store3(out, buffer(p), (int)column(p), (int)row(p), Plan::batched ? (int)batch : 0);
    bulk_commit();
  }
  // Of 16x16 results, which tensor cores leave in a thread as four pairs, where pair k of those from column c on is. What lies
  // outside is computed like its neighbour, and not stored.
  INGOT_DEV Index pair_m(int p, int k) const {
    const Index m = row(p) + threadIdx.x % 32 / 4 + k % 2 * 8;
    return m < m_end ? m : m_end - 1;
  }
  INGOT_DEV Index pair_n(int p, int c, int k) const {
    const Index n = column(p) + c + k / 2 * 8 + threadIdx.x % 4 * 2;
    return n < n_end ? n : n_end - 2;
  }
  INGOT_DEV void block(int p, int c, const float* acc, const Inputs* inputs) const {
    const int lane = threadIdx.x % 32;
    const u32 at = buffer(p) + lane % 16 * 128 + ((c / 8 + lane / 16) ^ lane % 8) * 16;
    u32 words[4] = {};
    if constexpr (Plan::staged_input) ldmatrix4(at, words);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      float pair[2] = {acc[k / 2 * 4 + k % 2 * 2], acc[k / 2 * 4 + k % 2 * 2 + 1]}, results[2];
      const auto staged = bits_as<Vec<typename Epilogue::StagedInput, 2>>(words[k]);
      epilogue->result(batch, pair_m(p, k), pair_n(p, c, k), pair, inputs[k], staged, results);
      words[k] = pack_pair(typename Epilogue::StagedOutput{}, results[0], results[1]);
    }
    stmatrix4(at, words);
  }
  template <int Rows, int Columns> INGOT_DEV void store(const float (&acc)[Rows][Columns]) {
#pragma unroll
    for (int p = 0; p < Boxes::kBoxes; ++p) {
      if (!has(p)) {
        if (leads()) bulk_commit();  // an empty one: the count of those behind a buffer's own stays
        continue;
      }
      Inputs inputs[16];  // on their way together
#pragma unroll
      for (int i = 0; i < 16; ++i) inputs[i] = epilogue->load(batch, pair_m(p, i % 4), pair_n(p, i / 4 * 16, i % 4));
      open(p);
#pragma unroll
      for (int c = 0; c < 64; c += 16)
        block(p, c, acc[p / Boxes::kPerRow] + (p % Boxes::kPerRow * 64 + c) / 2, inputs + c / 4);
      close(p);
    }
  }
  /// Shared memory belongs to the next block when all has been read.
  INGOT_DEV void finish() const {
    if (leads()) bulk_wait_read<0>();
  }
};
