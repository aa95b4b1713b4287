// Sums over parts of a product's rows: of every Plan::part_width results along n, as they are stored (0: none). Of the
// epilogue's functor:
//   kSums                                     sums of a part
//   static add(stored, float (&sums)[kSums])  one result more
//   store_sums(batch, m, n, sums)             n: the first column of the part
// Columns are whole parts.
// And values of a row that its results need (rows(batch, m).of of the functor, Plan::row_values floats): with two warpgroups that
// multiply, warps beside the sender compute those of the next tile meanwhile (RowRing); else each thread does, of its rows.
#pragma once
#include "prelude/contraction_tile.cuh"
#include "prelude/memory.cuh"
#include "prelude/sync.cuh"
#include "prelude/warp.cuh"

/// The sums of the two rows that a thread has of 16 (tensor cores leave four pairs of 16x16 results in it, pair k of row k % 2).
template <class Plan, class Epilogue, bool Has = (Plan::part_width > 0)> struct ThreadPartSums {
  INGOT_DEV void clear() {}
  template <class V> INGOT_DEV void add(int, const V (&)[2]) {}
  template <class Index> INGOT_DEV void store(const Epilogue&, Index, Index, Index, Index) const {}
};
template <class Plan, class Epilogue> struct ThreadPartSums<Plan, Epilogue, true> {
  float sums[2][Epilogue::kSums];

  INGOT_DEV void clear() {
#pragma unroll
    for (int i = 0; i < 2 * Epilogue::kSums; ++i) sums[i / Epilogue::kSums][i % Epilogue::kSums] = 0;
  }
  INGOT_DEV void add(int k, const float (&results)[2]) {
    Epilogue::add(results[0], sums[k % 2]);
    Epilogue::add(results[1], sums[k % 2]);
  }
  /// Four neighbouring lanes have a row between them, from row m on.
  template <class Index> INGOT_DEV void store(const Epilogue& epilogue, Index batch, Index m, Index n, Index m_end) const {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float all[Epilogue::kSums];
#pragma unroll
      for (int s = 0; s < Epilogue::kSums; ++s) {
        all[s] = sums[h][s] + shfl_xor(sums[h][s], 1);
        all[s] += shfl_xor(all[s], 2);
      }
      const Index row = m + lane / 4 + h * 8;
      if (lane % 4 == 0 && row < m_end) epilogue.store_sums(batch, row, n, all);
    }
  }
};

/// ResultTile::finish, where the sums follow: stored values go back to the tile, and four lanes add up a part of a row. The
/// blocks of a cluster divide the rows; where one puts its values, no other reads.
template <class Plan, class V, class Epilogue>
INGOT_DEV void finish_parts(const Epilogue& epilogue, typename Plan::index batch, typename Plan::index m0, typename Plan::index n0,
                            typename Plan::index m_end, typename Plan::index n_end, u32 shared) {
  typedef typename Plan::index Index;
  typedef ResultTile<Plan> Tile;
  static_assert(!Plan::out_along_m && Plan::tile_n % Plan::part_width == 0, "rows of a tile are whole parts");
  constexpr int kVector = Plan::e_vector, kAcross = Plan::tile_n / kVector, kRows = Plan::tile_m / Plan::cluster_k;
  constexpr int kParts = Plan::tile_n / Plan::part_width, kLanes = 4, kWork = kRows * kParts * kLanes;
  const int first = Plan::cluster_k > 1 ? (int)cluster_rank() * kRows : 0;
#pragma unroll 1
  for (int i = threadIdx.x; i < kRows * kAcross; i += Plan::workers) {
    const int r = first + i / kAcross, c = i % kAcross * kVector;
    const Index m = m0 + r, n = n0 + c;
    if (m >= m_end || n >= n_end) continue;
    const auto in = epilogue.load(batch, m, n);
    V values[kVector];
    Tile::gather(values, shared + r * Tile::kRow + c * 4);
    epilogue(batch, m, n, values, in);
#pragma unroll
    for (int v = 0; v < kVector; ++v) sts(shared + r * Tile::kRow + (c + v) * 4, values[v]);
  }
  workers_sync<Plan>();
#pragma unroll 1
  for (int i = threadIdx.x; i < (kWork + 31) / 32 * 32; i += Plan::workers) {  // by whole warps
    const int r = first + i / kLanes / kParts, c = i / kLanes % kParts * Plan::part_width;
    const Index m = m0 + r, n = n0 + c;
    const bool has = i < kWork && m < m_end && n < n_end;
    float sums[Epilogue::kSums] = {};
#pragma unroll 4
    for (int j = i % kLanes; has && j < Plan::part_width; j += kLanes) Epilogue::add(lds<float>(shared + r * Tile::kRow + (c + j) * 4), sums);
#pragma unroll
    for (int s = 0; s < Epilogue::kSums; ++s) {
      sums[s] += shfl_xor(sums[s], 1);
      sums[s] += shfl_xor(sums[s], 2);
    }
    if (has && i % kLanes == 0) epilogue.store_sums(batch, m, n, sums);
  }
}

/// Two buffers of a tile's row values, filled and used in turn, and their barriers.
template <class Plan> struct RowRing {
  static constexpr bool kUsed = Plan::row_values > 0 && Plan::staged && Plan::groups == 2 && Plan::cluster_k == 1;
  static constexpr int kWriters = 3;  // warps
  static constexpr int kTeams = Plan::in_turn ? 2 : 1, kReaders = Plan::groups / kTeams * 4;
  static constexpr int kBytes = Plan::tile_m * Plan::row_values * 4;
  u32 shared;

  INGOT_DEV u32 full(int buffer) const { return shared + buffer * 16; }
  INGOT_DEV u32 empty(int buffer) const { return full(buffer) + 8; }
  INGOT_DEV u32 at(int buffer, int row) const { return shared + 32 + buffer * kBytes + row * (Plan::row_values * 4); }
  /// By one thread, before all others use them.
  INGOT_DEV void start() const {
    if constexpr (kUsed) {
#pragma unroll
      for (int b = 0; b < 2; ++b) {
        mbar_init(full(b), kWriters);
        mbar_init(empty(b), kReaders);
      }
    }
  }
  /// By the warps that write, for all tiles of this block. `writer`: which of them.
  template <class Epilogue, class Tiles>
  INGOT_DEV void fill(const Epilogue& epilogue, const Tiles& tiles, typename Plan::index m_end, int writer) const {
    typedef typename Plan::index Index;
    const int lane = threadIdx.x % 32;
    pdl_begin();
    u32 count = 0;
#pragma unroll 1
    for (Index t = blockIdx.x; t < tiles.total; t += gridDim.x, ++count) {
      const auto place = tiles.place(t);
      const int buffer = count % 2;
      mbar_wait(empty(buffer), (count / 2 & 1) ^ 1);
#pragma unroll 1
      for (int r = writer * 32 + lane; r < Plan::tile_m; r += kWriters * 32) {
        const Index m = place.m + r < m_end ? place.m + r : m_end - 1;  // results behind the last row are computed, and not stored
        const auto row = epilogue.rows(place.batch, m);
#pragma unroll
        for (int i = 0; i < Plan::row_values; ++i) sts(at(buffer, r) + i * 4, row.of[i]);
      }
      warp_sync();
      if (lane == 0) mbar_arrive(full(buffer));
    }
  }
  /// Row `row` of this block's tile number `count`, behind `wait`; then `release`, by all lanes of a warp.
  INGOT_DEV void wait(u32 count) const { mbar_wait(full(count % 2), count / 2 & 1); }
  template <class Rows> INGOT_DEV Rows take(u32 count, int row) const {
    Rows values;
#pragma unroll
    for (int i = 0; i < Plan::row_values; ++i) values.of[i] = lds<float>(at(count % 2, row) + i * 4);
    return values;
  }
  INGOT_DEV void release(u32 count) const {
    warp_sync();
    if (threadIdx.x % 32 == 0) mbar_arrive(empty(count % 2));
  }
};
