// Results of a warpgroup, of 8, 16 or 32 bits, on their way to memory by TMA: 16 rows of a warp at a time, as the tensor cores leave
// them, into shared memory that only this warp uses, and from there in one piece: up to 64 columns as a box (BoxedResults), or
// all columns of rows of 16-bit results that lie one behind the other (RowsOfResults). What the epilogue reads of the same form (a residual) has come by TMA into the
// very places that its results take. Of the plan:
//   buffers       pieces of a warp: on their way in, in use, or on their way out
//   staged_input  the epilogue has such an input
//   result_size   bytes of a result, and of such an input
//   column_inputs what the epilogue loads follows from the column alone
// The functor of the epilogue is that of contraction_wgmma.cuh for two neighbours, with `result` in place of operator():
//   void result(batch, m, n, Sum (&acc)[2], const Inputs& in, Vec<StagedInput, 2> staged, const Rows& row, Result (&out)[2]) const
//   Rows rows(batch, m) const: what follows from the row alone
// with the types StagedInput and StagedOutput, of memory, and Result, which is computed. Sums over parts of rows: row_parts.cuh.
#pragma once
#include "prelude/changed_fragment.cuh"
#include "prelude/memory.cuh"
#include "prelude/mma.cuh"
#include "prelude/row_parts.cuh"
#include "prelude/sync.cuh"
#include "prelude/tma.cuh"
#include "prelude/warp.cuh"

INGOT_DEV void set_result(float& to, float value) { to = value; }
INGOT_DEV void set_result(i8& to, i8 value) { to = value; }
INGOT_DEV void set_result(u8& to, u8 value) { to = value; }
INGOT_DEV void set_result(f8e4m3& to, float value) { to = to_f8e4m3(value); }
INGOT_DEV void set_result(f8e5m2& to, float value) { to = to_f8e5m2(value); }

/// Boxes of 64 columns, or 32 of 32-bit results: 64 or 128 bytes a row, whose 16-byte chunks are permuted by the row.
template <class Plan> struct BoxedResults {
  typedef typename Plan::index Index;
  static constexpr int kColumns = Plan::result_size == 4 ? 32 : 64, kPerRow = Plan::warp_n / kColumns;
  static constexpr int kRow = kColumns * Plan::result_size, kBytes = 16 * kRow;
  static constexpr bool kByRows = false;
  static_assert(Plan::warp_n % kColumns == 0, "boxes are whole");
  const TensorMap *out, *in;

  static INGOT_DEV u32 place(u32 buffer, int row, int chunk) {
    return buffer + row * kRow + (chunk ^ (kRow == 128 ? row % 8 : row / 2 % 4)) * 16;
  }
  static INGOT_DEV int there(int row, Index, Index) { return row; }  // rows behind the last are zeros
  INGOT_DEV void load(u32 to, u32 barrier, Index batch, Index m, Index n, Index) const {
    mbar_arrive_expect_tx(barrier, kBytes);
    tma_load3(to, in, barrier, (int)n, (int)m, Plan::batched ? (int)batch : 0);
  }
  INGOT_DEV void store(u32 from, Index batch, Index m, Index n, Index) const {
    tma_store3(out, from, (int)n, (int)m, Plan::batched ? (int)batch : 0);
  }
};

/// Whole rows of Plan::tile_n columns, one behind the other as they lie in memory.
template <class Plan, class Output, class Input> struct RowsOfResults {
  typedef typename Plan::index Index;
  static constexpr int kColumns = Plan::tile_n, kPerRow = 1, kRow = kColumns * 2, kBytes = 16 * kRow;
  static constexpr bool kByRows = true;
  Output* out;
  const Input* in;

  static INGOT_DEV u32 place(u32 buffer, int row, int chunk) { return buffer + row * kRow + chunk * 16; }
  /// The row itself, or the last one that has arrived.
  static INGOT_DEV int there(int row, Index m, Index m_end) { return row < m_end - m ? row : (int)(m_end - m) - 1; }
  static INGOT_DEV u32 bytes(Index m, Index m_end) { return (u32)(m_end - m < 16 ? m_end - m : 16) * kRow; }
  INGOT_DEV void load(u32 to, u32 barrier, Index, Index m, Index, Index m_end) const {
    mbar_arrive_expect_tx(barrier, bytes(m, m_end));
    bulk_load(to, in + (i64)m * kColumns, bytes(m, m_end), barrier);
  }
  INGOT_DEV void store(u32 from, Index, Index m, Index, Index m_end) const {
    bulk_store(out + (i64)m * kColumns, from, bytes(m, m_end));
  }
};

/// The pieces of one warp, the tile's from (m0, n0) on: 16 rows, and the same 64 rows further for each further row of acc.
template <class Plan, class Epilogue, class Way> struct StagedWarp {
  typedef typename Plan::index Index;
  typedef typename Epilogue::Inputs Inputs;
  static constexpr int kBuffers = Plan::buffers, kPerRow = Way::kPerRow, kDown = Plan::warp_m / 64, kPieces = kDown * kPerRow;  // of a tile
  static constexpr int kRows = kDown * 2;  // of a thread
  // What the epilogue reads follows from the column alone: it is read once for all pieces of a column, and ahead of them. Four
  // warpgroups have no registers for that.
  static constexpr bool kAhead = Plan::column_inputs && Plan::groups <= 2 && !Way::kByRows;
  static constexpr int kColumnInputs = kAhead ? Way::kColumns / 8 : 1;
  static_assert(kPieces % kBuffers == 0, "buffers are used in turn");
  static_assert(Plan::part_width == 0 || Plan::part_width == Way::kColumns, "a piece is a part of its rows");
  static_assert(!Plan::staged_input || kBuffers == kPieces, "each input of a tile has its place");
  const Epilogue* epilogue;
  Way way;
  u32 shared, barriers, phases = 0;  // a bit for each buffer
  Index batch = 0, m0 = 0, n0 = 0, m_end, n_end;
  typename Epilogue::Rows rows[kRows];
  ThreadPartSums<Plan, Epilogue> sums;
  Inputs of_columns[2][kColumnInputs];
  u32 row_room = 0, tile = 0;  // where the values of rows are, and which of the block's tiles this is
  int first_row = 0;           // of this warp in the tile

  INGOT_DEV u32 buffer(int p) const { return shared + p % kBuffers * Way::kBytes; }
  INGOT_DEV u32 barrier(int p) const { return barriers + p % kBuffers * 8; }
  INGOT_DEV Index row(int p) const { return m0 + p % kDown * 64; }
  INGOT_DEV Index column(int p) const { return n0 + p / kDown * Way::kColumns; }
  INGOT_DEV bool has(int p) const { return row(p) < m_end && column(p) < n_end; }
  static INGOT_DEV bool leads() { return threadIdx.x % 32 == 0; }

  /// Before the products of a tile: its inputs are on their way beside them.
  INGOT_DEV void begin(Index at_batch, Index at_m, Index at_n) {
    batch = at_batch;
    m0 = at_m;
    n0 = at_n;
    if constexpr (!rows_come_from_others()) {
#pragma unroll
      for (int i = 0; i < kRows; ++i) rows[i] = epilogue->rows(batch, pair_m(i / 2, i % 2));
    }
    if constexpr (kAhead) read_columns(0);
    if constexpr (Plan::staged_input) {
      if (!leads()) return;
      bulk_wait_read<0>();
#pragma unroll
      for (int p = 0; p < kPieces; ++p)
        if (has(p)) way.load(buffer(p), barrier(p), batch, row(p), column(p), m_end);
    }
  }
  /// Of the pieces of column `c`.
  INGOT_DEV void read_columns(int c) {
#pragma unroll
    for (int i = 0; i < kColumnInputs; ++i) of_columns[c % 2][i] = epilogue->load(batch, m0, pair_n(c * kDown, i / 2 * 16, i % 2 * 2));
  }
  static constexpr bool rows_come_from_others() {
    if constexpr (Way::kByRows || Plan::row_values == 0) return false;
    else return RowRing<Plan>::kUsed;
  }
  /// Before the results of a tile.
  INGOT_DEV void take_rows() {
    if constexpr (rows_come_from_others()) {
      const RowRing<Plan> ring{row_room};
      ring.wait(tile);
#pragma unroll
      for (int i = 0; i < kRows; ++i)
        rows[i] = ring.template take<typename Epilogue::Rows>(tile, first_row + i / 2 * 64 + threadIdx.x % 32 / 4 + i % 2 * 8);
      ring.release(tile);
    }
  }
  /// Waits until piece p may be written.
  INGOT_DEV void open(int p) {
    if constexpr (Plan::staged_input) {
      mbar_wait(barrier(p), phases >> p & 1);
      phases ^= 1u << p;
    } else {
      if (leads()) bulk_wait_read<kBuffers - 1>();
      warp_sync();
    }
  }
  INGOT_DEV void close(int p) const {
    fence_proxy_async();
    warp_sync();
    if (!leads()) return;
    way.store(buffer(p), batch, row(p), column(p), m_end);
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
  /// The same as `block` for results of 8 or 32 bits, which no matrix load or store moves: a pair is 2 or 8 bytes. Chunks of a row
  /// differ from the first ones in bits that its permutation leaves alone: one address serves all.
  template <int Pairs, class V> INGOT_DEV void pair_block(int p, int c, const V* acc, const Inputs* inputs) {
    typedef typename Epilogue::StagedOutput Output;
    constexpr int kSize = sizeof(Output);
    const int lane = threadIdx.x % 32, byte = lane % 4 * 2 * kSize;
    const u32 first = Way::place(buffer(p), lane / 4, byte / 16) + byte % 16;
#pragma unroll
    for (int k = 0; k < Pairs; ++k) {
      const u32 at = (first ^ (c + k / 2 * 8) * kSize) + k % 2 * (8 * Way::kRow);
      V pair[2] = {acc[k / 2 * 4 + k % 2 * 2], acc[k / 2 * 4 + k % 2 * 2 + 1]};
      Vec<typename Epilogue::StagedInput, 2> staged = {};
      if constexpr (Plan::staged_input) staged = lds<Vec<typename Epilogue::StagedInput, 2>>(at);
      typename Epilogue::Result results[2];
      epilogue->result(batch, pair_m(p, k), pair_n(p, c, k), pair, inputs[k], staged, rows[p % kDown * 2 + k % 2], results);
      Vec<Output, 2> out;
      set_result(out[0], results[0]);
      set_result(out[1], results[1]);
      sts(at, out);
    }
  }
  /// The first `Pairs` of the four pairs from column c on: all, or those of the last 8 columns.
  template <int Pairs, class V> INGOT_DEV void block(int p, int c, const V* acc, const Inputs* inputs) {
    const int lane = threadIdx.x % 32;
    const u32 at = Way::place(buffer(p), lane % 16, c / 8 + lane / 16);
    const auto word = [&](int row) { return Way::place(buffer(p), row, c / 8) + lane % 4 * 4; };
    u32 words[4] = {};
    if constexpr (Plan::staged_input) {
      const auto there = [&](int r) { return Way::there(r, row(p), m_end); };
      if constexpr (Pairs == 4) {
        ldmatrix4(Way::place(buffer(p), there(lane % 16), c / 8 + lane / 16), words);
      } else {
        words[0] = lds<u32>(word(there(lane / 4)));
        words[1] = lds<u32>(word(there(lane / 4 + 8)));
      }
    }
#pragma unroll
    for (int k = 0; k < Pairs; ++k) {
      V pair[2] = {acc[k / 2 * 4 + k % 2 * 2], acc[k / 2 * 4 + k % 2 * 2 + 1]};
      float results[2];
      const auto staged = bits_as<Vec<typename Epilogue::StagedInput, 2>>(words[k]);
      epilogue->result(batch, pair_m(p, k), pair_n(p, c, k), pair, inputs[k], staged, rows[p % kDown * 2 + k % 2], results);
      sums.add(k, results);
      words[k] = pack_pair(typename Epilogue::StagedOutput{}, results[0], results[1]);
    }
    if constexpr (Pairs == 4) {
      stmatrix4(at, words);
    } else {
      sts(word(lane / 4), words[0]);
      sts(word(lane / 4 + 8), words[1]);
    }
  }
  /// Up to 64 columns of piece p from c0 on; `Opens`: they are the piece's first.
  template <int Count, bool Opens, class V> INGOT_DEV void columns(int p, int c0, const V* acc) {
    constexpr int kBlocks = (Count + 15) / 16;
    constexpr bool kPairs = sizeof(typename Epilogue::StagedOutput) != 2;
    Inputs inputs[kBlocks][4];  // on their way together
#pragma unroll
    for (int i = 0; i < kBlocks * 4; ++i) {
      if constexpr (kAhead) inputs[i / 4][i % 4] = of_columns[p / kDown % 2][i / 2];
      else inputs[i / 4][i % 4] = epilogue->load(batch, pair_m(p, i % 4), pair_n(p, c0 + i / 4 * 16, i % 4));
    }
    if constexpr (Opens) open(p);
#pragma unroll
    for (int c = 0; c + 16 <= Count; c += 16) {
      if constexpr (kPairs) pair_block<4>(p, c0 + c, acc + (c0 + c) / 2, inputs[c / 16]);
      else block<4>(p, c0 + c, acc + (c0 + c) / 2, inputs[c / 16]);
    }
    if constexpr (Count % 16 != 0) block<2>(p, c0 + Count - 8, acc + (c0 + Count - 8) / 2, inputs[Count / 16]);
  }
  template <int Rows, int Columns, class V> INGOT_DEV void store(const V (&acc)[Rows][Columns]) {
    constexpr int kFirst = Way::kColumns < 64 ? Way::kColumns : 64, kLast = Way::kColumns % 64;
    take_rows();
#pragma unroll
    for (int p = 0; p < kPieces; ++p) {
      if constexpr (kAhead) {
        if (p % kDown == kDown - 1 && p / kDown + 1 < kPerRow) read_columns(p / kDown + 1);
      }
      if (!has(p)) {
        if (leads()) bulk_commit();  // an empty one: the count of those behind a buffer's own stays
        continue;
      }
      const V* piece = acc[p % kDown] + p / kDown * Way::kColumns / 2;
      sums.clear();
      columns<kFirst, true>(p, 0, piece);
#pragma unroll
      for (int c = 64; c + 64 <= Way::kColumns; c += 64) columns<64, false>(p, c, piece);
      if constexpr (Way::kColumns > 64 && kLast > 0) columns<kLast, false>(p, Way::kColumns - kLast, piece);
      close(p);
      sums.store(*epilogue, batch, row(p), column(p), m_end);
    }
  }
  /// Shared memory belongs to the next block when all has been read.
  INGOT_DEV void finish() const {
    if (leads()) bulk_wait_read<0>();
  }
};
