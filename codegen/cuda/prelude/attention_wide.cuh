// Attention of f32 by warpgroups (attention_boxes.cuh): what multiplies, and the warps that turn the values.
//
// The weights are A of the second product and stay in registers. What a thread has of them are two neighbouring keys of
// every 8, where an operand has the fourth ones: so the keys of the turned values are permuted, even ones before odd
// ones of every 8.
//
// With the accuracy of f32 three products stand for one, as in split_product.cuh: of the images in shared memory what
// arrives is the big part, as the tensor cores ignore the rest of it, and an image of the small part lies beside.
// Tensor cores truncate sums: those of a step leave them, and are added by additions that round.
#pragma once
#include "prelude/attention_memory.cuh"
#include "prelude/online_softmax.cuh"
#include "prelude/wgmma.cuh"

/// Four elements of a row in an image of rows of 128 bytes: a chunk of 16 bytes.
INGOT_DEV u32 image_chunk(u32 image, int row, int chunk) { return image + row * 128 + (chunk ^ row % 8) * 16; }

/// The warps beside the sender, in the order of the sender's boxes.
template <class Plan>
struct AttentionTurner {
  typedef AttentionMemory<Plan> Memory;
  static constexpr int kThreads = Memory::kTurners * 32;
  Memory memory;
  int thread;  // of those that turn

  /// What this warp has written becomes visible to the tensor cores, and the barrier hears of it.
  static INGOT_DEV void tell(u32 barrier) {
    fence_proxy_async();
    warp_sync();
    if (threadIdx.x % 32 == 0) mbar_arrive(barrier);
  }
  /// The small part of the keys: nothing in it depends on where an element is.
  INGOT_DEV void keys() {
    memory.keys.wait_full();
    const u32 from = memory.key_stage(), to = from + Memory::kKeys;
#pragma unroll 2
    for (u32 i = thread * 16; i < Memory::kKeys; i += kThreads * 16) {
      Vec<u32, 4> words = lds<Vec<u32, 4>>(from + i);
#pragma unroll
      for (int q = 0; q < 4; ++q) words[q] = cut_off_tf32(words[q]);
      sts(to + i, words);
    }
    tell(memory.keys_whole());
    memory.keys.advance();
  }
  /// Four keys, every other one, and four columns at a time; eight lanes read and write in all banks.
  INGOT_DEV void values() {
    constexpr int kBlocks = Plan::tile_n / 32 * Memory::kValuePanels * 64;
    memory.arriving.wait_full();
    memory.values.wait_empty();
    const u32 from = memory.arriving_stage(), to = memory.value_stage(memory.values.slot);
#pragma unroll 1
    for (int b = thread; b < kBlocks; b += kThreads) {
      const int unit = b / 64, panel = unit / (Plan::tile_n / 32),
                first = unit % (Plan::tile_n / 32) * 32;  // columns, keys
      const int chunk = b % 8, odd = (b / 2 ^ b / 8) % 2, eight = b / 32 % 2 * 2 + (b / 4 ^ b / 16) % 2;
      if (Plan::tile_d % 32 != 0 && panel * 32 + chunk * 4 >= Plan::tile_d) continue;
      Vec<u32, 4> in[4];
#pragma unroll
      for (int i = 0; i < 4; ++i)
        in[i] = lds<Vec<u32, 4>>(image_chunk(from + panel * Memory::kPanel, first + eight * 8 + odd + i * 2, chunk));
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        Vec<u32, 4> out = {in[0][c], in[1][c], in[2][c], in[3][c]};
        const u32 at = image_chunk(to + first / 32 * Memory::kTurnedPanel, panel * 32 + chunk * 4 + c, eight * 2 + odd);
        sts(at, out);
        if constexpr (Memory::kSplit) {
#pragma unroll
          for (int q = 0; q < 4; ++q) out[q] = cut_off_tf32(out[q]);
          sts(at + Memory::kTurned, out);
        }
      }
    }
    tell(memory.values.full());
    memory.arriving.release();
    memory.arriving.advance();
    memory.values.advance();
  }
  template <class Score>
  INGOT_DEV void run(const AttentionTiles<Plan, Score>& tiles) {
    typedef typename Plan::index Index;
#pragma unroll 1
    for (Index round = 0; tiles.of_round(round) < tiles.total; ++round) {
      const auto [batch, m0] = tiles.place(tiles.of_round(round));
      const Index steps = tiles.steps(batch, m0, Plan::tile_m);
#pragma unroll 1
      for (Index step = 0; step < steps; ++step) {
        if constexpr (Memory::kSplit) keys();
        values();
      }
    }
  }
};

/// The products of a warpgroup.
template <class Plan>
struct WideProducts : OnlineSoftmax<Plan::tile_n, Plan::tile_d> {
  typedef AttentionMemory<Plan> Memory;
  static constexpr bool kSplit = Memory::kSplit;
  static constexpr int kSteps = Plan::tile_n / 8;
  u32 operands[kSteps][4], small[kSplit ? kSteps : 1][4];  // weights
  float step_sums[kSplit ? Plan::tile_d / 2 : 1], step_scale[2];
  Memory memory;
  int warp, group;  // of the block's, those of this thread

  INGOT_DEV WideProducts(u32 shared, int of) : memory(shared), warp(of), group(of / 4) {}

  INGOT_DEV u32 query_rows() const { return memory.query_stage() + group * 64 * 128; }
  INGOT_DEV u32 small_rows() const { return memory.shared + Memory::kSmallAt + group * 64 * 128; }
  /// Before the first product of a tile, whose queries are there: their small part, by the warpgroup whose they are.
  INGOT_DEV void begin() {
    if constexpr (kSplit) {
      bar_sync(1 + group, 128);  // all four warps have waited for the products before
#pragma unroll 1
      for (int i = threadIdx.x % 128 * 16; i < Memory::kPanels * 64 * 128; i += 128 * 16) {
        const int at = i / (64 * 128) * Memory::kQueryPanel + i % (64 * 128);
        Vec<u32, 4> words = lds<Vec<u32, 4>>(query_rows() + at);
#pragma unroll
        for (int q = 0; q < 4; ++q) words[q] = cut_off_tf32(words[q]);
        sts(small_rows() + at, words);
      }
      fence_proxy_async();
      bar_sync(1 + group, 128);  // and it is all there
      step_scale[0] = step_scale[1] = 0;
    }
  }
  INGOT_DEV void start_scores() {
    const u64 q = wgmma_desc(query_rows(), 16, 1024, kSwizzle128),
              key = wgmma_desc(memory.key_stage(), 16, 1024, kSwizzle128);
    const auto of_query = [&](int k, u64 from) {
      return wgmma_further(from, k / 32 * Memory::kQueryPanel + k % 32 * 4);
    };
    const auto of_key = [&](int k, u32 further) {
      return wgmma_further(key, k / 32 * Memory::kPanel + k % 32 * 4 + further);
    };
    wgmma_fence();
    if constexpr (kSplit) {  // mixed terms first: what is cut off behind them is small, too
      const u64 rest = wgmma_desc(small_rows(), 16, 1024, kSwizzle128);
#pragma unroll
      for (int k = 0; k < Plan::head; k += 8) wgmma<kTF32, 0, 0>(this->scores, of_query(k, rest), of_key(k, 0), k > 0);
#pragma unroll
      for (int k = 0; k < Plan::head; k += 8)
        wgmma<kTF32, 0, 0>(this->scores, of_query(k, q), of_key(k, Memory::kKeys), 1);
    }
#pragma unroll
    for (int k = 0; k < Plan::head; k += 8)
      wgmma<kTF32, 0, 0>(this->scores, of_query(k, q), of_key(k, 0), kSplit || k > 0);
    wgmma_commit();
  }
  template <int L>
  INGOT_DEV void multiply_values(float (&sums)[L], const u32 (&a)[kSteps][4], u32 image, int first) {
    const u64 value = wgmma_desc(image, 16, 1024, kSwizzle128);
#pragma unroll
    for (int s = 0; s < kSteps; ++s)
      wgmma_ra<kTF32, 0>(sums, a[s], wgmma_further(value, s / 4 * Memory::kTurnedPanel + s % 4 * 32), first + s > 0);
  }
  INGOT_DEV void start_values(u32 slot) {
    const u32 image = memory.value_stage(slot);
    wgmma_operands(operands);
    if constexpr (kSplit) wgmma_operands(small);
    wgmma_fence();
    if constexpr (kSplit) {
      multiply_values(step_sums, small, image, 0);
      multiply_values(step_sums, operands, image + Memory::kTurned, 1);
      multiply_values(step_sums, operands, image, 1);
    } else {
      multiply_values(this->acc, operands, image, 1);
    }
    wgmma_commit();
  }
  /// Weights of the keys from n0 on, whose products have been waited for.
  template <class Score, class Index>
  INGOT_DEV void weigh(const Score& score, Index batch, Index m0, Index n0, Index m_end, Index n_end,
                       float (&scale)[2]) {
    wgmma_results(this->scores);
    const float top[2] = {this->top[0], this->top[1]}, sum[2] = {this->sum[0], this->sum[1]};
#pragma unroll 1
    for (int turn = 0;; ++turn) {
      this->logits(score, batch, m0, n0, m_end, n_end);
      this->template weights<Score>(scale);
      if (!kSplit || turn > 0) break;
      // An infinite operand makes a NaN of a mixed term, and so of its row or column.
      const bool none = sum[0] == sum[0] && this->sum[0] != this->sum[0],
                 other = sum[1] == sum[1] && this->sum[1] != this->sum[1];
      if (!warp_any(none || other)) break;
      multiply_carefully();
#pragma unroll
      for (int h = 0; h < 2; ++h) this->top[h] = top[h], this->sum[h] = sum[h];
    }
    memory.keys.release();
    memory.keys.advance();
  }
  /// The products with the values have been waited for; `slot`: these values. `scale`: of the sums, from now on.
  INGOT_DEV void finish_values(u32 slot, const float (&scale)[2]) {
    wgmma_operands(operands);
    if constexpr (kSplit) {
      wgmma_operands(small);
      wgmma_results(step_sums);
      float zero = 0;
#pragma unroll
      for (int i = 0; i < Plan::tile_d / 2; i += 4) zero += step_sums[i] * 0.0f + step_sums[i + 1] * 0.0f;
      if (warp_any(zero != 0.0f && this->sum[0] == this->sum[0])) add_carefully(slot);
#pragma unroll
      for (int i = 0; i < Plan::tile_d / 2; ++i) this->acc[i] = fmaf(this->acc[i], step_scale[i / 2 % 2], step_sums[i]);
      step_scale[0] = scale[0], step_scale[1] = scale[1];
    } else {
      wgmma_results(this->acc);
      this->rescale(scale);
    }
  }
  INGOT_DEV void pack() {
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      const float* w = this->scores + s * 4;
      const u32 words[4] = {bits_as<u32>(w[0]), bits_as<u32>(w[2]), bits_as<u32>(w[1]), bits_as<u32>(w[3])};
#pragma unroll
      for (int q = 0; q < 4; ++q) {
        operands[s][q] = kSplit ? words[q] : round_tf32(words[q]);
        if constexpr (kSplit) small[s][q] = cut_off_tf32(words[q]);
      }
    }
  }
  /// The same products one by one, where an operand is infinite: a mixed term would be no number. In few registers: it
  /// is rare.
  INGOT_DEV void multiply_carefully() {
    const int row = warp % 4 * 16 + threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
#pragma unroll 1
    for (int j = 0; j < Plan::tile_n / 8; ++j) {
      float sums[4] = {};
#pragma unroll 1
      for (int k = 0; k < Plan::head; ++k) {
        const u32 q = query_rows() + k / 32 * Memory::kQueryPanel, key = memory.key_stage() + k / 32 * Memory::kPanel;
#pragma unroll
        for (int e = 0; e < 4; ++e)
          sums[e] = fmaf(element(q, row + e / 2 * 8, k % 32), element(key, j * 8 + column + e % 2, k % 32), sums[e]);
      }
#pragma unroll
      for (int i = 0; i < Plan::tile_n / 2; ++i)
        if (i / 4 == j) this->scores[i] = sums[i % 4];
    }
    warp_sync();  // all lanes have read the keys
  }
  INGOT_DEV void add_carefully(u32 slot) {
    const int column = threadIdx.x % 4 * 2;
#pragma unroll 1
    for (int j = 0; j < Plan::tile_d / 8; ++j) {
      float sums[4] = {};
#pragma unroll 1
      for (int lane = 0; lane < 4; ++lane) {  // whose weights these are: of keys at its place and the fourth from there
#pragma unroll
        for (int i = 0; i < kSteps * 4; ++i) {
          const u32 image = memory.value_stage(slot) + i / 16 * Memory::kTurnedPanel;
          const float weight = bits_as<float>(shfl(operands[i / 4][i % 4], (int)(threadIdx.x % 32 & ~3u) + lane));
#pragma unroll
          for (int e = i % 2 * 2; e < i % 2 * 2 + 2; ++e)
            sums[e] =
                fmaf(weight, element(image, j * 8 + column + e % 2, i / 4 % 4 * 8 + i % 4 / 2 * 4 + lane), sums[e]);
        }
      }
#pragma unroll
      for (int i = 0; i < Plan::tile_d / 2; ++i)
        if (i / 4 == j) step_sums[i] = sums[i % 4];
    }
    warp_sync();  // all lanes have read the values
  }
  static INGOT_DEV float element(u32 image, int row, int k) {
    return lds<float>(image_chunk(image, row, k / 4) + k % 4 * 4);
  }
};
