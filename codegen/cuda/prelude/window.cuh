// Windows that slide over the rows and columns of an image with channels last: depthwise convolutions and pools. For all
// (outer, y, x, c):  acc = combine over (ty, tx) of input(y * step_y + ty, x * step_x + tx, c) with weight(ty, tx, c), then the
// epilogue. A thread has `vector` channels of rows x columns neighbouring outputs; it goes down the input's rows, and asks for
// the next one before it uses the one it has. Each element is loaded once for all outputs of the thread.
//
// A kernel brings functors and a Plan:
//   Window     types Input and Weight; kWeights, kStart, kFill; load(outer, y, x, c), weight(ty, tx, c): vectors;
//              inside_y(y), inside_x(x): else the element counts as kFill; combine(acc, x, w)
//   Epilogue   e(outer, y, x, c, acc): called for `vector` neighbouring channels
//   Line       what becomes of all results of a line, if there is that: value(outer, y, x, c, acc) changes acc to what is combined;
//              combine(a, b), l(outer, y, c, combined)
//   ChannelParts  sums over parts of a result's channels, if there are: kLanes neighbouring threads, a power of two of a warp, have a part;
//              value as that of Line; kSums, add(stored, sums), store_sums(outer, y, x, c, sums): c is the part's first
//   Plan       index, vector, rows, columns, taps_y, taps_x, step_y, step_x, out_y, out_x, channels, threads; rows and columns
//              divide out_y and out_x, vector divides channels; groups: 0, or so many vectors of channels of a block, which
//              divides all of them. A block then has whole strips of `rows` lines: threads is a multiple of groups * out_x / columns;
//              weights_at: where in shared memory each thread has its weights, as f32; -1: in registers, as they are stored
#pragma once
#include "prelude/memory.cuh"
#include "prelude/sync.cuh"
#include "prelude/warp.cuh"

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
  static constexpr bool kShared = Window::kWeights && Plan::weights_at >= 0;
  typedef Vec<typename Window::Weight, Plan::vector> Weights;
  typedef Vec<float, Plan::vector> Factors;
  Weights weight[Window::kWeights && !kShared ? kTaps : 1];
  u32 shared;

  INGOT_DEV void start(const Window& window, Index c) {
    if constexpr (kShared) {
      INGOT_DYN_SHARED(dynamic);
      shared = dynamic + Plan::weights_at + threadIdx.x * (u32)sizeof(Factors);
    }
    if constexpr (Window::kWeights) {
#pragma unroll
      for (int t = 0; t < kTaps; ++t) {
        const Weights w = window.weight(t / Plan::taps_x, t % Plan::taps_x, c);
        if constexpr (kShared) sts_vec(place(t), factors(w));
        else weight[t] = w;
      }
    }
#pragma unroll
    for (int i = 0; i < Plan::rows * Plan::columns * Plan::vector; ++i)
      acc[i / Plan::vector / Plan::columns][i / Plan::vector % Plan::columns][i % Plan::vector] = Window::kStart;
  }
  static INGOT_DEV Factors factors(const Weights& w) {
    Factors f;
#pragma unroll
    for (int v = 0; v < Plan::vector; ++v) f[v] = element_value(w[v]);
    return f;
  }
  INGOT_DEV u32 place(int tap) const { return shared + tap * (Plan::threads * (u32)sizeof(Factors)); }
  /// The same with weights in shared memory: a line of them at a time, for the line of results that it belongs to.
  INGOT_DEV void add_shared(const Window& window, const WindowRow<Plan, Window>& row, int r) {
#pragma unroll
    for (int y = 0; y < Plan::rows; ++y) {
      const int ty = r - y * Plan::step_y;
      if (ty < 0 || ty >= Plan::taps_y) continue;
      Factors w[Plan::taps_x];
#pragma unroll
      for (int tx = 0; tx < Plan::taps_x; ++tx) w[tx] = lds_vec_again<Plan::vector>(place(ty * Plan::taps_x + tx));
#pragma unroll
      for (int tx = 0; tx < Plan::taps_x; ++tx) {
#pragma unroll
        for (int i = 0; i < Plan::columns * Plan::vector; ++i) {
          const int column = i / Plan::vector, v = i % Plan::vector;
          acc[y][column][v] = window.combine(acc[y][column][v], row.value(column * Plan::step_x + tx, v), w[tx][v]);
        }
      }
    }
  }
  /// Row r of the input, counted from the first that the thread reads.
  INGOT_DEV void add(const Window& window, const WindowRow<Plan, Window>& row, int r) {
    if constexpr (kShared) return add_shared(window, row, r);
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

/// What a thread computes: so many rows and columns from there on.
template <class Plan> struct WindowPlace {
  typedef typename Plan::index Index;
  static constexpr int kGroups = Plan::channels / Plan::vector, kAcross = Plan::out_x / Plan::columns, kDown = Plan::out_y / Plan::rows;
  Index c, x, y, outer;

  /// The place of thread lane * Plan::groups + group of a block with whole strips.
  INGOT_DEV WindowPlace(int group, int lane) {
    constexpr int kParts = kGroups / Plan::groups, kLanes = Plan::threads / Plan::groups;
    c = ((Index)blockIdx.x % kParts * Plan::groups + group) * Plan::vector;
    split((Index)blockIdx.x / kParts * kLanes + lane);
  }
  /// That of a thread of any block.
  INGOT_DEV explicit WindowPlace(Index thread) {
    c = thread % kGroups * Plan::vector;
    split(thread / kGroups);
  }

 private:
  INGOT_DEV void split(Index at) {
    x = at % kAcross * Plan::columns;
    y = at / kAcross % kDown * Plan::rows;
    outer = at / kAcross / kDown;
  }
};

/// The lines of a block's results, combined: first those of a thread, then those of the threads beside it.
template <class Plan, class Line> struct WindowLines {
  typedef typename Plan::index Index;
  typedef Vec<float, Plan::vector> Values;
  typedef WindowPlace<Plan> Place;
  static constexpr int kAcross = Place::kAcross;
  const Line& line;
  const Place& at;
  Index outers;
  u32 shared;  // where there are threads beside each other
  Values sum;  // of the thread's present row

  INGOT_DEV WindowLines(const Line& l, const Place& place, Index n) : line(l), at(place), outers(n), shared(0) {
    if constexpr (kAcross > 1) {
      INGOT_DYN_SHARED(dynamic);
      shared = dynamic;
    }
  }
  /// A result: columns of a row come one after the other.
  INGOT_DEV void add(int row, int column, float (&acc)[Plan::vector]) {
    line.value(at.outer, at.y + row, at.x + column, at.c, acc);
#pragma unroll
    for (int v = 0; v < Plan::vector; ++v) sum[v] = column == 0 ? acc[v] : Line::combine(sum[v], acc[v]);
    if (column + 1 < Plan::columns) return;
    if constexpr (kAcross == 1) store(at, row, sum);
    else sts_vec(place((int)threadIdx.x / Plan::groups, row, (int)threadIdx.x % Plan::groups), sum);
  }
  /// By all threads of the block, those behind the last strip included.
  INGOT_DEV void finish() {
    if constexpr (kAcross > 1) {
      cta_sync();
      constexpr int kStrips = Plan::threads / Plan::groups / kAcross, kLines = kStrips * Plan::rows * Plan::groups;
      for (int i = (int)threadIdx.x; i < kLines; i += Plan::threads)
        finish_line(i % Plan::groups, i / Plan::groups % Plan::rows, i / Plan::groups / Plan::rows);
    }
  }

 private:
  INGOT_DEV u32 place(int lane, int row, int group) const {
    return shared + (u32)(((lane * Plan::rows + row) * Plan::groups + group) * (int)sizeof(Values));
  }
  INGOT_DEV void finish_line(int group, int row, int strip) {
    const Place own(group, strip * kAcross);
    if (own.outer >= outers) return;
    Values all = lds_vec<Plan::vector, float>(place(strip * kAcross, row, group));
#pragma unroll 8
    for (int x = 1; x < kAcross; ++x) {
      const Values next = lds_vec<Plan::vector, float>(place(strip * kAcross + x, row, group));
#pragma unroll
      for (int v = 0; v < Plan::vector; ++v) all[v] = Line::combine(all[v], next[v]);
    }
    store(own, row, all);
  }
  INGOT_DEV void store(const Place& to, int row, const Values& all) const {
    float acc[Plan::vector];
#pragma unroll
    for (int v = 0; v < Plan::vector; ++v) acc[v] = all[v];
    line(to.outer, to.y + row, to.c, acc);
  }
};

/// Rows of the input go by; each finishes a row of results at most. `use(row, column, acc)` for each result.
template <class Plan, class Window, class Use>
INGOT_DEV void window_rows(const Window& window, const WindowPlace<Plan>& at, WindowSums<Plan, Window>& sums, const Use& use) {
  constexpr int kRows = (Plan::rows - 1) * Plan::step_y + Plan::taps_y;
  WindowRow<Plan, Window> now, next;
  next.load(window, at.outer, at.y * Plan::step_y, at.x * Plan::step_x, at.c);
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    now = next;
    if (r + 1 < kRows) next.load(window, at.outer, at.y * Plan::step_y + r + 1, at.x * Plan::step_x, at.c);
    sums.add(window, now, r);
    if ((r - Plan::taps_y + 1) % Plan::step_y != 0 || r < Plan::taps_y - 1) continue;
    const int done = (r - Plan::taps_y + 1) / Plan::step_y;
#pragma unroll
    for (int i = 0; i < Plan::columns; ++i) use(done, i, sums.acc[done][i]);
  }
}

template <class Plan, class Window, class Epilogue>
INGOT_DEV void window(const Window& window, const Epilogue& epilogue, typename Plan::index outers) {
  typedef typename Plan::index Index;
  const WindowPlace<Plan> at((Index)blockIdx.x * Plan::threads + (Index)threadIdx.x);
  WindowSums<Plan, Window> sums;
  sums.start(window, at.c);
  pdl_begin();
  if (at.outer >= outers) return;
  window_rows<Plan>(window, at, sums, [&](int row, int column, float (&acc)[Plan::vector]) {
    epilogue(at.outer, at.y + row, at.x + column, at.c, acc);
  });
}

/// What is summed up of a thread's results, with those of the threads beside it.
template <class Plan, class Parts> struct ChannelSums {
  static constexpr int kPadded = Plan::columns > 4 ? 8 : Plan::columns > 2 ? 4 : Plan::columns, kShare = Parts::kLanes / kPadded;
  static_assert(Plan::columns <= 8 && kShare > 0, "a lane has a column at most");
  float sums[kPadded][Parts::kSums];

  INGOT_DEV void add(const Parts& parts, const WindowPlace<Plan>& at, int row, int column, float (&acc)[Plan::vector]) {
    parts.value(at.outer, at.y + row, at.x + column, at.c, acc);
#pragma unroll
    for (int s = 0; s < Parts::kSums; ++s) sums[column][s] = 0;
#pragma unroll
    for (int v = 0; v < Plan::vector; ++v) Parts::add(acc[v], sums[column]);
  }
  /// The upper half of 2 * Half columns goes to the lanes with this bit, the lower half to the others; then halves of these.
  template <int Half, int Lanes> INGOT_DEV void halve(int lane) {
    if constexpr (Half > 0) {
      const bool upper = lane & Lanes;
#pragma unroll
      for (int i = 0; i < Half * Parts::kSums; ++i) {
        float &low = sums[i / Parts::kSums][i % Parts::kSums], &high = sums[Half + i / Parts::kSums][i % Parts::kSums];
        const float goes = upper ? low : high;
        low = (upper ? high : low) + shfl_xor(goes, Lanes);
      }
      halve<Half / 2, Lanes / 2>(lane);
    }
  }
  /// All columns of a row are there. Halves of them go to halves of the lanes, until each lane has the sums of one column, which other
  /// lanes may share.
  INGOT_DEV void finish(const Parts& parts, const WindowPlace<Plan>& at, int row, bool there) {
    const int lane = (int)threadIdx.x % Parts::kLanes;
#pragma unroll
    for (int i = Plan::columns * Parts::kSums; i < kPadded * Parts::kSums; ++i) sums[i / Parts::kSums][i % Parts::kSums] = 0;
    halve<kPadded / 2, Parts::kLanes / 2>(lane);
#pragma unroll
    for (int lanes = kShare / 2; lanes > 0; lanes /= 2) {
#pragma unroll
      for (int s = 0; s < Parts::kSums; ++s) sums[0][s] += shfl_xor(sums[0][s], lanes);
    }
    const int column = lane / kShare;
    if (there && lane % kShare == 0 && column < Plan::columns) parts.store_sums(at.outer, at.y + row, at.x + column, at.c, sums[0]);
  }
};

/// With sums over parts of channels. Threads behind the last place compute what is there, for those of their warp.
template <class Plan, class Window, class Epilogue, class Parts>
INGOT_DEV void window_with_parts(const Window& window, const Epilogue& epilogue, const Parts& parts, typename Plan::index outers) {
  typedef typename Plan::index Index;
  WindowPlace<Plan> at((Index)blockIdx.x * Plan::threads + (Index)threadIdx.x);
  WindowSums<Plan, Window> sums;
  sums.start(window, at.c);
  pdl_begin();
  const bool there = at.outer < outers;
  if (!there) at.outer = outers - 1;
  ChannelSums<Plan, Parts> channels;
  window_rows<Plan>(window, at, sums, [&](int row, int column, float (&acc)[Plan::vector]) {
    if (there) epilogue(at.outer, at.y + row, at.x + column, at.c, acc);
    channels.add(parts, at, row, column, acc);
    if (column + 1 == Plan::columns) channels.finish(parts, at, row, there);
  });
}

/// With lines: Plan::groups is not 0.
template <class Plan, class Window, class Epilogue, class Line>
INGOT_DEV void window(const Window& window, const Epilogue& epilogue, const Line& line, typename Plan::index outers) {
  const WindowPlace<Plan> at((int)threadIdx.x % Plan::groups, (int)threadIdx.x / Plan::groups);
  WindowSums<Plan, Window> sums;
  sums.start(window, at.c);
  pdl_begin();
  WindowLines<Plan, Line> lines(line, at, outers);
  if (at.outer < outers)
    window_rows<Plan>(window, at, sums, [&](int row, int column, float (&acc)[Plan::vector]) {
      epilogue(at.outer, at.y + row, at.x + column, at.c, acc);
      lines.add(row, column, acc);
    });
  lines.finish();
}
