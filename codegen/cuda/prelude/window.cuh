// Windows that slide over the rows and columns of an image with channels last: depthwise convolutions and pools. For all
// (outer, y, x, c):  acc = combine over (ty, tx) of input(y * step_y + ty, x * step_x + tx, c) with weight(ty, tx, c), then the
// epilogue. A thread has `vector` channels of rows x columns neighbouring outputs; it goes down the input's rows, and asks for
// the next one before it uses the one it has. Each element is loaded once for all outputs of the thread.
//
// A kernel brings functors and a Plan:
//   Window     types Input and Weight; kWeights, kStart, kFill; load(outer, y, x, c), weight(ty, tx, c): vectors;
//              inside_y(y), inside_x(x): else the element counts as kFill; combine(acc, x, w)
//   Epilogue   e(outer, y, x, c, acc): called for `vector` neighbouring channels
//   Plan       index, vector, rows, columns, taps_y, taps_x, step_y, step_x, out_y, out_x, channels, threads; rows and columns
//              divide out_y and out_x, vector divides channels
#pragma once
#include "prelude/memory.cuh"
#include "prelude/sync.cuh"

INGOT_DEV float element_value(float x) { return x; }
template <class T> INGOT_DEV float element_value(T x) { return to_f32(x); }
INGOT_DEV void set_fill(float& to, float value) { to = value; }
INGOT_DEV void set_fill(f16& to, float value) { to = to_f16(value); }
INGOT_DEV void set_fill(bf16& to, float value) { to = to_bf16(value); }

template <class Plan, class Window> struct WindowRow {
  typedef typename Plan::index Index;
  typedef Vec<typename Window::Input, Plan::vector> Elements;
  typedef Vec<u32, sizeof(Elements) / 4> Words;  // whole registers: parts of them would be put together behind each load
  static constexpr int kColumns = (Plan::columns - 1) * Plan::step_x + Plan::taps_x;
  Words words[kColumns];

  INGOT_DEV void load(const Window& window, Index outer, Index y, Index x, Index c) {
    const bool row = window.inside_y(y);
    Elements fill;
#pragma unroll
    for (int v = 0; v < Plan::vector; ++v) set_fill(fill[v], Window::kFill);
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
      words[i] = bits_as<Words>(fill);
      if (row && window.inside_x(x + i)) words[i] = bits_as<Words>(window.load(outer, y, x + i, c));
    }
  }
  INGOT_DEV float value(int i, int v) const { return element_value(bits_as<Elements>(words[i])[v]); }
};

template <class Plan, class Window> struct WindowSums {
  typedef typename Plan::index Index;
  static constexpr int kTaps = Plan::taps_y * Plan::taps_x;
  float acc[Plan::rows][Plan::columns][Plan::vector];
  typedef Vec<typename Window::Weight, Plan::vector> Weights;
  Weights weight[Window::kWeights ? kTaps : 1];

  INGOT_DEV void start(const Window& window, Index c) {
    if constexpr (Window::kWeights) {
#pragma unroll
      for (int t = 0; t < kTaps; ++t) weight[t] = window.weight(t / Plan::taps_x, t % Plan::taps_x, c);
    }
#pragma unroll
    for (int i = 0; i < Plan::rows * Plan::columns * Plan::vector; ++i)
      acc[i / Plan::vector / Plan::columns][i / Plan::vector % Plan::columns][i % Plan::vector] = Window::kStart;
  }
  /// Row r of the input, counted from the first that the thread reads.
  INGOT_DEV void add(const Window& window, const WindowRow<Plan, Window>& row, int r) {
#pragma unroll
    for (int i = 0; i < WindowRow<Plan, Window>::kColumns; ++i) {
#pragma unroll
      for (int tx = 0; tx < Plan::taps_x; ++tx) {
        const int column = (i - tx) / Plan::step_x;
        if (i < tx || (i - tx) % Plan::step_x != 0 || column >= Plan::columns) continue;
#pragma unroll
        for (int y = 0; y < Plan::rows; ++y) {
          const int ty = r - y * Plan::step_y;
          if (ty < 0 || ty >= Plan::taps_y) continue;
#pragma unroll
          for (int v = 0; v < Plan::vector; ++v) {
            float w = 0;
            if constexpr (Window::kWeights) w = element_value(weight[ty * Plan::taps_x + tx][v]);
            acc[y][column][v] = window.combine(acc[y][column][v], row.value(i, v), w);
          }
        }
      }
    }
  }
};

template <class Plan, class Window, class Epilogue>
INGOT_DEV void window(const Window& window, const Epilogue& epilogue, typename Plan::index outers) {
  typedef typename Plan::index Index;
  constexpr int kGroups = Plan::channels / Plan::vector, kAcross = Plan::out_x / Plan::columns, kDown = Plan::out_y / Plan::rows;
  constexpr int kRows = (Plan::rows - 1) * Plan::step_y + Plan::taps_y;
  const Index thread = (Index)blockIdx.x * Plan::threads + (Index)threadIdx.x;
  const Index c = thread % kGroups * Plan::vector, at = thread / kGroups;
  const Index x = at % kAcross * Plan::columns, y = at / kAcross % kDown * Plan::rows, outer = at / kAcross / kDown;
  WindowSums<Plan, Window> sums;
  sums.start(window, c);
  pdl_begin();
  if (outer >= outers) return;
  WindowRow<Plan, Window> now, next;
  next.load(window, outer, y * Plan::step_y, x * Plan::step_x, c);
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    now = next;
    if (r + 1 < kRows) next.load(window, outer, y * Plan::step_y + r + 1, x * Plan::step_x, c);
    sums.add(window, now, r);
    if ((r - Plan::taps_y + 1) % Plan::step_y != 0 || r < Plan::taps_y - 1) continue;
    const int done = (r - Plan::taps_y + 1) / Plan::step_y;
#pragma unroll
    for (int i = 0; i < Plan::columns; ++i) epilogue(outer, y + done, x + i, c, sums.acc[done][i]);
  }
}
