// Where the rows of contraction_rows.cuh come from, a tile of them at a time, and how they lie in a stage of shared memory: one behind the
// other as a matrix has them (MatrixRows), or lines of an image that the pixels' windows overlap in (LinesOfImage). Of the plan:
//   tile_m, k    contraction_rows.cuh
//   lines        rows are windows; then
//   channels     elements of a window's line, one behind the other, `present` of which count: a multiple of 16
//   taps, dilation      lines of a window, and from one to the next
//   out_w, out_h        pixels of the output
//   in_h, step_h, low_h lines of the input, from one line of outputs to the next, and the first
//   pixel, line, tile_lines     elements from one pixel's window to the next, of a line in shared memory, and lines of a tile
//   line_stride, image_stride   elements, in memory
#pragma once
#include "prelude/memory.cuh"
#include "prelude/sync.cuh"
#include "prelude/tma.cuh"
#include "prelude/warp.cuh"

/// Rows from m0 on, before `end`.
template <class Index> struct RowTile {
  Index m0, end;

  template <class Plan> INGOT_DEV int rows() const { return end - m0 < Plan::tile_m ? (int)(end - m0) : Plan::tile_m; }
};

template <class Plan> struct MatrixRows {
  typedef typename Plan::index Index;
  typedef typename Plan::element T;
  static constexpr int kSenders = 1, kRow = Plan::k * 2, kBytes = Plan::tile_m * kRow;
  const T* a;

  static INGOT_DEV Index tiles(Index m_end) { return (m_end + Plan::tile_m - 1) / Plan::tile_m; }
  static INGOT_DEV RowTile<Index> tile(Index t, Index m_end) { return {t * Plan::tile_m, m_end}; }
  INGOT_DEV void send(const RowTile<Index>& at, u32 stage, u32 full) const {
    const u32 bytes = (u32)at.template rows<Plan>() * kRow;
    mbar_arrive_expect_tx(full, bytes);
    bulk_load(stage, a + (i64)at.m0 * Plan::k, bytes, full);
  }
  static INGOT_DEV u32 row(const RowTile<Index>&, u32 stage, int row) { return stage + row * kRow; }
  /// From a row to its 16 of k from 16 * step on.
  static constexpr INGOT_DEV int piece(int step) { return step * 32; }
  static INGOT_DEV void clear_absent(int, u32 (&)[4]) {}
};

/// Tiles do not reach into the next image.
template <class Plan> struct LinesOfImage {
  typedef typename Plan::index Index;
  typedef typename Plan::element T;
  static constexpr int kSenders = 32, kLine = Plan::line * 2, kBytes = Plan::tile_lines * kLine, kPixels = Plan::out_h * Plan::out_w;
  static constexpr int kTiles = (kPixels + Plan::tile_m - 1) / Plan::tile_m, kReach = (Plan::taps - 1) * Plan::dilation + 1;
  static_assert(Plan::channels % 16 == 0 && Plan::present % 2 == 0, "pieces of a window's line");
  const T* a;

  static INGOT_DEV Index tiles(Index m_end) { return m_end / kPixels * kTiles; }
  static INGOT_DEV RowTile<Index> tile(Index t, Index) {
    const Index image = t / kTiles;
    return {image * kPixels + t % kTiles * Plan::tile_m, (image + 1) * kPixels};
  }
  /// By a warp. Lines outside of the image are zeros.
  INGOT_DEV void send(const RowTile<Index>& at, u32 stage, u32 full) const {
    const Index image = at.m0 / kPixels;
    const int lane = threadIdx.x % 32, from = (int)(at.m0 % kPixels), top = from / Plan::out_w;
    const int count = ((from + at.template rows<Plan>() - 1) / Plan::out_w - top) * Plan::step_h + kReach;
    const int first = top * Plan::step_h + Plan::low_h;  // of the image's lines
    const int begin = first < 0 ? -first : 0, end = count < Plan::in_h - first ? count : Plan::in_h - first;
    if (begin > 0 || end < count) {
#pragma unroll 1
      for (int i = lane; i < count * (kLine / 16); i += 32) {
        const int l = i / (kLine / 16);
        if (l < begin || l >= end) sts(stage + i * 16, Vec<u32, 4>{});
      }
      fence_proxy_async();
      warp_sync();
    }
    if (lane == 0) mbar_arrive_expect_tx(full, end > begin ? (u32)(end - begin) * kLine : 0);
    warp_sync();
    const T* line = a + (i64)image * Plan::image_stride;
#pragma unroll 1
    for (int l = begin + lane; l < end; l += 32) bulk_load(stage + l * kLine, line + (i64)(first + l) * Plan::line_stride, kLine, full);
  }
  static INGOT_DEV u32 row(const RowTile<Index>& at, u32 stage, int row) {
    const int from = (int)(at.m0 % kPixels), pixel = from + row, h = pixel / Plan::out_w;
    return stage + (h - from / Plan::out_w) * (Plan::step_h * kLine) + pixel % Plan::out_w * (Plan::pixel * 2);
  }
  static constexpr INGOT_DEV int piece(int step) {
    return step * 16 / Plan::channels * (Plan::dilation * kLine) + step * 16 % Plan::channels * 2;
  }
  /// What lies behind the window's line belongs to another one, and is no number perhaps.
  static INGOT_DEV void clear_absent(int step, u32 (&words)[4]) {
    const int first = step * 16 % Plan::channels;
    if (first + 16 <= Plan::present) return;
#pragma unroll
    for (int q = 0; q < 4; ++q)
      if (first + q / 2 * 8 + (int)threadIdx.x % 4 * 2 >= Plan::present) words[q] = 0;
  }
};

template <class Plan, bool Lines = Plan::lines> struct RowSource {
  typedef MatrixRows<Plan> Type;
};
template <class Plan> struct RowSource<Plan, true> {
  typedef LinesOfImage<Plan> Type;
};
