// What contractions on tensor cores share whatever multiplies: which block computes which tile, and the way of a tile of
// results through shared memory to the epilogue. Functors and plan are described in contraction_mma.cuh.
#pragma once
#include "prelude/cp_async.cuh"
#include "prelude/memory.cuh"
#include "prelude/sync.cuh"
#include "prelude/warp.cuh"

/// A barrier of the threads that finish a tile: the first Plan::workers of the block.
template <class Plan> INGOT_DEV void workers_sync() {
  if constexpr (Plan::workers == Plan::threads) cta_sync();
  else bar_sync(1, Plan::workers);
}

/// The results in shared memory: rows along the direction of the output, padded against bank conflicts.
template <class Plan> struct ResultTile {
  typedef typename Plan::index Index;
  static constexpr int kLong = Plan::out_along_m ? Plan::tile_m : Plan::tile_n;
  static constexpr int kShort = Plan::out_along_m ? Plan::tile_n : Plan::tile_m;
  static constexpr int kRow = (kLong + (Plan::out_along_m ? 4 : 8)) * 4;

  /// Adds N results from (m, n) on, along the rows, to what is there; the first of those that share a tile starts.
  template <int N, class V> static INGOT_DEV void put(u32 shared, int m, int n, const V* values, bool first) {
    const u32 at = shared + (Plan::out_along_m ? n : m) * kRow + (Plan::out_along_m ? m : n) * 4;
    Vec<V, N> v = {};
    if (!first) v = lds<Vec<V, N>>(at);
#pragma unroll
    for (int i = 0; i < N; ++i) v[i] += values[i];
    sts(at, v);
  }
  /// The results of a warpgroup, as its product has them.
  template <class Product> static INGOT_DEV void put_product(u32 shared, const Product& product, bool first) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < Product::kM; ++i) {
#pragma unroll
      for (int j = 0; j < Product::kN; j += 4) {
        const int m = product.group_m() + i * 64 + product.warp % 4 * 16 + lane / 4, n = product.group_n() + j * 2 + lane % 4 * 2;
        put_fragment(shared, m, n, product.acc[i] + j, first);
      }
    }
  }
  /// The same for what a thread holds of 16x8 results from (m, n) on: pairs along n, the second one eight rows down.
  template <class V> static INGOT_DEV void put_fragment(u32 shared, int m, int n, const V* values, bool first) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if constexpr (Plan::out_along_m) {
        put<1>(shared, m + h * 8, n, values + h * 2, first);
        put<1>(shared, m + h * 8, n + 1, values + h * 2 + 1, first);
      } else {
        put<2>(shared, m + h * 8, n, values + h * 2, first);
      }
    }
  }
  template <class V = float, class Epilogue>
  INGOT_DEV void finish(const Epilogue& epilogue, Index batch, Index m0, Index n0, Index m_end, Index n_end,
                        u32 shared) {
    constexpr int kVector = Plan::e_vector, kAcross = kLong / kVector, kPartRows = kShort / Plan::cluster_k;
    const int first = Plan::cluster_k > 1 ? (int)cluster_rank() * kPartRows : 0;
    // Several at a time: their loads are on their way together.
    constexpr int kTotal = kPartRows * kAcross, kTogether = kTotal % (Plan::workers * 4) == 0 ? 4 : 1;
#pragma unroll 1
    for (int i = threadIdx.x; i < kTotal; i += Plan::workers * kTogether) {
      typename Epilogue::Inputs in[kTogether];
      Index m[kTogether], n[kTogether];
#pragma unroll
      for (int j = 0; j < kTogether; ++j) {
        const int r = first + (i + j * Plan::workers) / kAcross, c = (i + j * Plan::workers) % kAcross * kVector;
        m[j] = m0 + (Plan::out_along_m ? c : r);
        n[j] = n0 + (Plan::out_along_m ? r : c);
        if (m[j] < m_end && n[j] < n_end) in[j] = epilogue.load(batch, m[j], n[j]);
      }
#pragma unroll
      for (int j = 0; j < kTogether; ++j) {
        if (m[j] >= m_end || n[j] >= n_end) continue;
        V values[kVector];
        gather(values, shared + (first + (i + j * Plan::workers) / kAcross) * kRow + (i + j * Plan::workers) % kAcross * kVector * 4);
        epilogue(batch, m[j], n[j], values, in[j]);
      }
    }
  }
  /// For groups of `together` rows: each value as the epilogue makes it from the sum, then their combination, then the
  /// epilogue, once for a group. The blocks of a cluster divide the columns; where one puts its values, no other reads.
  template <class Epilogue>
  INGOT_DEV void finish_groups(const Epilogue& epilogue, Index batch, Index m0, Index n0, Index m_end, Index n_end,
                               u32 shared) {
    static_assert(!Plan::out_along_m, "groups are of rows, results go along n");
    constexpr int kVector = Plan::e_vector, kAcross = Plan::tile_n / kVector;
    constexpr int kPart = (kAcross + Plan::cluster_k - 1) / Plan::cluster_k, kGroups = Plan::step_m / Plan::together;
    const int first = Plan::cluster_k > 1 ? (int)cluster_rank() * kPart : 0;
    const auto place = [&](int r, int c) { return shared + r * kRow + c * kVector * 4; };
#pragma unroll 1
    for (int i = threadIdx.x; i < Plan::step_m * kPart; i += Plan::workers) {
      const int r = i / kPart, c = first + i % kPart;
      const Index m = m0 + r, n = n0 + c * kVector;
      if (c >= kAcross || m >= m_end || n >= n_end) continue;
      float values[kVector];
      gather(values, place(r, c));
      epilogue.value(batch, m, n, values);
#pragma unroll
      for (int v = 0; v < kVector; ++v) sts(place(r, c) + v * 4, values[v]);
    }
    workers_sync<Plan>();
#pragma unroll 1
    for (int i = threadIdx.x; i < kGroups * kPart; i += Plan::workers) {
      const int r = i / kPart * Plan::together, c = first + i % kPart;
      const Index m = m0 + r, n = n0 + c * kVector;
      if (c >= kAcross || m >= m_end || n >= n_end) continue;
      const auto in = epilogue.load(batch, m, n);
      float values[kVector];
#pragma unroll
      for (int v = 0; v < kVector; ++v) values[v] = lds<float>(place(r, c) + v * 4);
#pragma unroll 4
      for (int j = 1; j < Plan::together; ++j) {
#pragma unroll
        for (int v = 0; v < kVector; ++v) values[v] = Epilogue::combine(values[v], lds<float>(place(r + j, c) + v * 4));
      }
      epilogue(batch, m, n, values, in);
    }
  }
  template <class V, int N> static INGOT_DEV void gather(V (&values)[N], u32 at) {
    constexpr int kGroup = N < 4 ? N : 4;
#pragma unroll
    for (int g = 0; g < N; g += kGroup) {
      Vec<V, kGroup> sum = {};
      if constexpr (Plan::cluster_k == 1) {
        sum = lds<Vec<V, kGroup>>(at + g * 4);
      } else {
#pragma unroll
        for (int rank = 0; rank < Plan::cluster_k; ++rank) {
          const auto part = bits_as<Vec<V, kGroup>>(lds_cluster<kGroup>(at + g * 4, rank));
#pragma unroll
          for (int i = 0; i < kGroup; ++i) sum[i] += part[i];
        }
      }
#pragma unroll
      for (int i = 0; i < kGroup; ++i) values[g + i] = sum[i];
    }
  }
};

/// ResultTile::finish for results whose sums over parts of rows are stored as well (row_parts.cuh).
template <class Plan, class V, class Epilogue>
INGOT_DEV void finish_parts(const Epilogue& epilogue, typename Plan::index batch, typename Plan::index m0, typename Plan::index n0,
                            typename Plan::index m_end, typename Plan::index n_end, u32 shared);

/// True in all threads of the block when it is in one.
template <int Threads> INGOT_DEV bool any_thread(bool p, u32 scratch) {
  const bool mine = warp_any(p);
  if (threadIdx.x % 32 == 0) sts<u32>(scratch + threadIdx.x / 32 * 4, mine);
  cta_sync();
  u32 any = 0;
#pragma unroll
  for (int w = 0; w < Threads / 32; ++w) any |= lds<u32>(scratch + w * 4);
  cta_sync();
  return any != 0;
}

/// Starts the copies of the first `Stages` stages. What does not depend on the kernel's predecessor is on its way before it waits for that
/// (`first`: it has not waited yet).
template <class Plan, int Stages, class CopyA, class CopyB>
INGOT_DEV void fill_ring(const CopyA& copy_a, const CopyB& copy_b, bool first) {
#pragma unroll 1
  for (int s = 0; s < Stages; ++s) {
    if constexpr (Plan::a_early) copy_a(s);
    if constexpr (Plan::b_early) copy_b(s);
  }
  if (first) pdl_begin();
#pragma unroll 1
  for (int s = 0; s < Stages; ++s) {
    if constexpr (!Plan::a_early) copy_a(s);
    if constexpr (!Plan::b_early) copy_b(s);
    cp_async_commit();
  }
}

/// Where a tile of results is.
template <class Index> struct TilePlace { Index batch, m, n; };

/// The tiles of a product (step_m rows apart: tile_m, or fewer where only whole groups of rows count), in an order in which neighbours share columns of B, eight rows of tiles at a time, for the sake
/// of L2.
template <class Plan> struct TileGrid {
  typedef typename Plan::index Index;
  static constexpr int kBand = 8;
  Index tiles_m, tiles_n, total;

  INGOT_DEV TileGrid(Index batches, Index m_end, Index n_end)
      : tiles_m((m_end + Plan::step_m - 1) / Plan::step_m),
        tiles_n((n_end + Plan::tile_n - 1) / Plan::tile_n),
        total(tiles_m * tiles_n * batches) {}
  INGOT_DEV TilePlace<Index> place(Index tile) const {
    const Index batch = tile / (tiles_m * tiles_n);
    return place(batch, tile - batch * (tiles_m * tiles_n));
  }
  INGOT_DEV TilePlace<Index> place(Index batch, Index in) const {
    const Index band = in / (kBand * tiles_n) * kBand;
    const Index rows = tiles_m - band < kBand ? tiles_m - band : kBand, at = in - band * tiles_n;
    return {batch, (band + at % rows) * Plan::step_m, at / rows * Plan::tile_n};
  }
};

/// The tile that a block begins with. Blocks with the same part of k (Plan::grid_k) lie side by side: they fetch the same rows and columns.
template <class Plan> INGOT_DEV typename Plan::index first_tile(const TileGrid<Plan>& tiles) {
  if constexpr (Plan::grid_k > 1) return (typename Plan::index)blockIdx.x % tiles.total;
  else return blockIdx.x / Plan::cluster_k;
}

/// The steps of k of a block: of a cluster, or of those that divide them.
template <class Plan> struct ShareOfSteps {
  typename Plan::index first = 0, count;

  INGOT_DEV ShareOfSteps(typename Plan::index steps, const TileGrid<Plan>& tiles) : ShareOfSteps(steps) {
    if constexpr (Plan::grid_k > 1) {
      const auto part = (typename Plan::index)blockIdx.x / tiles.total;
      first = steps * part / Plan::grid_k;
      count = steps * (part + 1) / Plan::grid_k - first;
    }
  }
  INGOT_DEV explicit ShareOfSteps(typename Plan::index steps) : count(steps) {
    if constexpr (Plan::cluster_k > 1) {
      const auto share = (steps + Plan::cluster_k - 1) / Plan::cluster_k;
      first = (typename Plan::index)cluster_rank() * share;
      count = first >= steps ? 0 : steps - first < share ? steps - first : share;
    }
  }
};

/// One cluster (or block) computes a tile of every batch index blockIdx.z, blockIdx.z + gridDim.z, ...
template <class Plan, class Tile, class OperandA, class OperandB, class PrologueA, class PrologueB, class Epilogue>
INGOT_DEV void contraction_tiles(const PrologueA& a, const PrologueB& b, const Epilogue& epilogue,
                                 typename Plan::index batches, typename Plan::index m_end,
                                 typename Plan::index n_end, typename Plan::index k_end, u32 shared) {
  typedef typename Plan::index Index;
  const TileGrid<Plan> tiles(1, m_end, n_end);
  const TilePlace<Index> at = tiles.place(0, blockIdx.x / Plan::cluster_k);
  const Index m0 = at.m, n0 = at.n;
  const ShareOfSteps<Plan> share((k_end + Plan::tile_k - 1) / Plan::tile_k);
  const Index k_begin = share.first * Plan::tile_k, k_behind = k_begin + share.count * Plan::tile_k;
  const Index k_stop = k_behind < k_end ? k_behind : k_end;
  for (Index batch = blockIdx.z; batch < batches; batch += gridDim.z) {
    Tile tile;
    OperandA in_a;
    OperandB in_b;
    in_a.start(a, batch, m0, m_end);
    in_b.start(b, batch, n0, n_end);
    tile.clear();
    Tile::accumulate(tile, in_a, in_b, a, b, k_begin, k_stop, shared, batch == (Index)blockIdx.z);
    if constexpr (Tile::kHasCareful) {
      if (any_thread<Plan::threads>(!tile.is_finite(), shared)) {
        tile.clear();
        tile.careful = true;
        Tile::accumulate(tile, in_a, in_b, a, b, k_begin, k_stop, shared, false);
      }
    }
#pragma unroll
    for (int w = 0; w < Plan::k_warps; ++w) {
      if (Tile::warp_k() == w) tile.put_all(shared, w == 0);
      if (Plan::cluster_k == 1 || w + 1 < Plan::k_warps) cta_sync();
    }
    if constexpr (Plan::cluster_k > 1) cluster_sync();
    if constexpr (Plan::together > 1) tile.finish_groups(epilogue, batch, m0, n0, m_end, n_end, shared);
    else if constexpr (Plan::part_width > 0) finish_parts<Plan, typename Tile::Sum>(epilogue, batch, m0, n0, m_end, n_end, shared);
    else tile.template finish<typename Tile::Sum>(epilogue, batch, m0, n0, m_end, n_end, shared);
    if constexpr (Plan::cluster_k > 1) cluster_sync();
    else cta_sync();
  }
}
