// Sums over k that several blocks divide among them (Plan::grid_k), where a product has fewer tiles than there are SMs. Each has its
// part of a tile's sums in registers. A tile is finished a strip of columns at a time, by one block for each strip: the other
// blocks put their parts of it in memory and count on the strip's counter.
//
// The strips of a tile are shared out, and their owners wait for the others, but not for ever: whether the others run at all is
// not this block's to know. An owner that gives up leaves its part in memory like the others, and counts. Whoever counts last,
// then, finishes the strip. So no block depends on another one's being there, and all add up in the same order: results
// do not depend on who finishes.
#pragma once
#include "prelude/contraction_tile.cuh"

/// Counters, all zero before and after, and room for the parts of every tile.
struct PartMemory {
  int* counters;
  float* parts;
};

template <class Plan, class Product> struct DividedSums {
  typedef typename Plan::index Index;
  typedef typename Product::Sum Sum;
  typedef ResultTile<Plan> Tile;
  static constexpr int kParts = Plan::grid_k, kColumns = 16, kStrips = Plan::warp_n / kColumns;
  static constexpr int kPieces = Product::kM * 2;  // of 16 bytes: what a thread has of a strip
  static constexpr u32 kAll = (u32)((1ull << kStrips) - 1), kFlags = 128;
  static constexpr int kSharedBytes = kFlags + Plan::tile_m * Tile::kRow;
  static_assert(Plan::warp_n % kColumns == 0 && kStrips <= 32 && !Plan::out_along_m, "a lane counts for each strip");
  PartMemory memory;
  u32 tile, part, shared;

  INGOT_DEV u32 results() const { return shared + kFlags; }
  INGOT_DEV int* counter(int strip) const { return memory.counters + (tile * kStrips + strip); }
  /// What this thread has of a strip, where block `of` puts it: neighbours lie side by side.
  INGOT_DEV Sum* place(u32 of, int strip, int piece) const {
    const u64 at = ((u64)(tile * kParts + of) * kStrips + strip) * kPieces + piece;
    return (Sum*)memory.parts + (at * Plan::workers + threadIdx.x) * 4;
  }
  /// The strips that this block is to finish.
  INGOT_DEV u32 own() const {
    const u32 first = part * kStrips / kParts, end = (part + 1) * kStrips / kParts;
    return (u32)((1ull << end) - (1ull << first));
  }
  INGOT_DEV void put_parts(const Product& product, u32 strips) const {
#pragma unroll
    for (int s = 0; s < kStrips; ++s) {
      if (!(strips >> s & 1)) continue;
#pragma unroll
      for (int i = 0; i < kPieces; ++i) {
        Vec<Sum, 4> piece;
#pragma unroll
        for (int v = 0; v < 4; ++v) piece[v] = product.acc[i / 2][s * 8 + i % 2 * 4 + v];
        store_vec(place(part, s, i), piece);
      }
    }
  }
  /// By all that multiply: which of `strips` nobody else will finish, now that this block's parts of them are in memory. And of
  /// `own`, where that is given, those that all others have put in memory; they are waited for.
  INGOT_DEV u32 count(u32 strips, u32 own_strips) const {
    workers_sync<Plan>();  // the stores of the other warps
    if (threadIdx.x < 32) {
      const int s = threadIdx.x;
      bool mine = false;
      if (s < kStrips && (strips >> s & 1)) {
        fence_gpu();
        mine = count_up(counter(s)) == kParts - 1;
      }
      if (s < kStrips && (own_strips >> s & 1)) mine = wait_for_count(counter(s), kParts - 1);
      const u32 flags = ballot(mine);
      if (mine) stg(counter(s), 0);
      fence_gpu();
      if (s == 0) sts(shared, flags);
    }
    workers_sync<Plan>();
    return lds<u32>(shared);
  }
  /// The sums of these strips, in the order of k, as a tile of results in shared memory.
  INGOT_DEV void add_up(const Product& product, u32 strips) const {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int s = 0; s < kStrips; ++s) {
      if (!(strips >> s & 1)) continue;
#pragma unroll
      for (int i = 0; i < Product::kM; ++i) {
        Vec<Sum, 4> parts[kParts][2];
#pragma unroll
        for (int p = 0; p < kParts; ++p) {
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            if (p == (int)part) {
#pragma unroll
              for (int v = 0; v < 4; ++v) parts[p][h][v] = product.acc[i][s * 8 + h * 4 + v];
            } else {
              parts[p][h] = load_vec_l2<4>(place(p, s, i * 2 + h));
            }
          }
        }
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          Vec<Sum, 4> sum = parts[0][h];
#pragma unroll
          for (int p = 1; p < kParts; ++p) {
#pragma unroll
            for (int v = 0; v < 4; ++v) sum[v] += parts[p][h][v];
          }
          Tile::put_fragment(results(), product.group_m() + i * 64 + product.warp % 4 * 16 + lane / 4,
                             product.group_n() + s * kColumns + h * 8 + lane % 4 * 2, sum.v, true);
        }
      }
    }
  }
  /// Gives `call` the row, the column and the place of every vector of results of these strips.
  template <class Call> INGOT_DEV void each_vector(u32 strips, int rows, const Call& call) const {
    constexpr int kRun = kColumns / Plan::e_vector, kAcross = kRun * Product::kGroupsN;
#pragma unroll 1
    for (; strips; strips &= strips - 1) {
      const int first = lowest_bit(strips) * kColumns;
#pragma unroll 1
      for (int i = threadIdx.x; i < rows * kAcross; i += Plan::workers) {
        const int r = i / kAcross, c = i % kAcross / kRun * Plan::warp_n + first + i % kRun * Plan::e_vector;
        call(r, c, results() + r * Tile::kRow + c * 4);
      }
    }
  }
  template <class Epilogue>
  INGOT_DEV void store(const Epilogue& epilogue, const TilePlace<Index>& at, Index m_end, Index n_end, u32 strips) const {
    each_vector(strips, Plan::tile_m, [&](int r, int c, u32 place) {
      const Index m = at.m + r, n = at.n + c;
      if (m >= m_end || n >= n_end) return;
      const typename Epilogue::Inputs in = epilogue.load(at.batch, m, n);
      Sum values[Plan::e_vector];
      Tile::gather(values, place);
      epilogue(at.batch, m, n, values, in);
    });
  }
  /// The same for groups of rows, as ResultTile::finish_groups has them.
  template <class Epilogue>
  INGOT_DEV void store_groups(const Epilogue& epilogue, const TilePlace<Index>& at, Index m_end, Index n_end, u32 strips) const {
    constexpr int kVector = Plan::e_vector;
    each_vector(strips, Plan::step_m, [&](int r, int c, u32 place) {
      const Index m = at.m + r, n = at.n + c;
      if (m >= m_end || n >= n_end) return;
      float values[kVector];
      Tile::gather(values, place);
      epilogue.value(at.batch, m, n, values);
#pragma unroll
      for (int v = 0; v < kVector; ++v) sts(place + v * 4, values[v]);
    });
    workers_sync<Plan>();
    each_vector(strips, Plan::step_m / Plan::together, [&](int group, int c, u32) {
      const Index m = at.m + group * Plan::together, n = at.n + c;
      if (m >= m_end || n >= n_end) return;
      const u32 first = results() + group * Plan::together * Tile::kRow + c * 4;
      const auto in = epilogue.load(at.batch, m, n);
      float values[kVector], next[kVector];
      Tile::gather(values, first);
#pragma unroll 4
      for (int j = 1; j < Plan::together; ++j) {
        Tile::gather(next, first + j * Tile::kRow);
#pragma unroll
        for (int v = 0; v < kVector; ++v) values[v] = Epilogue::combine(values[v], next[v]);
      }
      epilogue(at.batch, m, n, values, in);
    });
  }
  template <class Epilogue>
  INGOT_DEV void finish(const Product& product, const Epilogue& epilogue, const TilePlace<Index>& at, Index m_end, Index n_end) const {
    const u32 mine = own();
    put_parts(product, kAll & ~mine);
    u32 strips = count(kAll & ~mine, mine);
    if (const u32 left = mine & ~strips) {
      put_parts(product, left);
      strips |= count(left, 0);
    }
    if (strips == 0) return;
    add_up(product, strips);
    workers_sync<Plan>();
    if constexpr (Plan::together > 1) store_groups(epilogue, at, m_end, n_end, strips);
    else store(epilogue, at, m_end, n_end, strips);
  }
};
