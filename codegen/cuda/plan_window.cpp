// Plans of sliding windows: the channels of a thread, and the rows and columns of outputs that it computes. More of them share
// what is loaded; fewer leave more threads.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "codegen/cuda/plan_cuda.h"
#include "codegen/cuda/window_form.h"
#include "codegen/text/c_printer.h"
#include "compiler/expr/simplify.h"

namespace ingot {
namespace {

constexpr int kThreads = 128, kMostThreads = 512;
constexpr int kSector = 32;  // bytes that memory brings at a time
constexpr double kLineSync = 400;  // cycles of the barrier and of the sums behind it
constexpr int64_t kFew = 1, kMany = 64;  // of a dimension that only a call knows
constexpr int kRegisters = 240;
constexpr int kMostSharing =
    4;  // rows of a thread that share a line of weights: of more, ptxas has too many of them at a time
constexpr int64_t kManyTaps = 49;  // of a window whose weights take too many registers
constexpr double kSumWork = 12;  // instructions that add up a result's part of a sum with those of other lanes
constexpr int64_t kMostSums = 2800;  // of a thread: all are unrolled, and ptxas takes its time
constexpr int64_t kMostTurns = 12000;  // of the loops that are unrolled for them: from 16,000 on NVRTC gives up
constexpr double kLoad = 6;  // instructions that an access takes the time of
constexpr int kSides[] = {1, 2, 3, 4, 5, 7, 8};

int64_t rows_read(const WindowSide& s, int outputs) { return (outputs - 1) * s.step + s.taps; }

/// Registers of a thread: sums, weights as they are stored, two rows of input, and what the rest takes.
int registers(const Kernel& kernel, const WindowForm& w, int vector, int rows, int columns, bool shared_weights) {
  const auto size = [&](const Expr& load) {
    return static_cast<int>(size_of(kernel.buffers[static_cast<size_t>(load.buffer())].type));
  };
  const int words = std::max(vector * size(w.input) / 4, 1);
  const int weights =
      w.weight.valid() ? static_cast<int>(w.y.taps * w.x.taps) * std::max(vector * size(w.weight) / 4, 1) : 0;
  const int across = static_cast<int>(rows_read(w.x, columns));
  const int live =
      std::min<int>(rows, static_cast<int>((w.y.taps + w.y.step - 1) / w.y.step));  // rows that are being summed
  const int taps = static_cast<int>(w.y.taps * w.x.taps);
  const int behind = 36 + (w.line ? vector + 16 : 0) + columns * static_cast<int>(w.parts.sums.size());
  // A line of weights, and one of converted inputs; of f32 and of many columns ptxas has more at a time.
  if (shared_weights)
    return live * columns * vector + static_cast<int>(w.x.taps) * vector + across * (words + vector) + behind - 4 +
           (columns > 4 ? 24 : 0) + (size(w.input) > 2 ? 60 : 0);
  return live * columns * vector + weights + 2 * across * words + behind +
         (taps > 9 ? 2 * taps : 0);  // ptxas moves loads up
}

/// Vectors of channels and threads of a block.
struct BlockSize {
  int groups = 0, threads = kThreads;
};
/// A block with lines has whole ones: of channels that fill the sectors of memory, if such a block has not too many threads; then
/// as many strips as fill a block.
BlockSize block_size(const Kernel& kernel, const WindowForm& w, int vector, int columns) {
  if (!w.line) return {};
  const int across = static_cast<int>(w.x.outputs) / columns,
            all = static_cast<int>(*w.channels.extent.as_int()) / vector;
  const int bytes = vector * static_cast<int>(size_of(kernel.buffers[static_cast<size_t>(w.input.buffer())].type));
  BlockSize best;
  bool whole = false;  // sectors
  for (int groups = 1; groups * across <= kMostThreads && groups <= all; ++groups) {
    if (all % groups != 0) continue;
    const bool fills = groups * bytes % kSector == 0 || groups == all;
    if (best.groups == 0 || (groups * across <= kThreads ? fills || !whole : fills && !whole))
      best.groups = groups, whole = fills;
  }
  best.threads = best.groups * across * std::max(1, kThreads / std::max(1, best.groups * across));
  return best;
}

/// Both are neighbours and aligned for vectors of channels.
bool loads_vectors(const WindowForm& w, int vector) {
  for (const Expr& load : {w.input, w.weight}) {
    if (!load.valid()) continue;
    const auto c = linear_coefficient(load.arg(0), w.channels.var.name());
    const Expr rest = substitute(load.arg(0), {{w.channels.var.name(), Expr(0)}});
    if (!c || !c->is_const(1) || !is_multiple(simplify(rest), vector)) return false;
  }
  return true;
}

/// `blocks`: of an SM, that registers must suffice for.
Schedule window_schedule(int vector, int rows, int columns, int blocks, const BlockSize& size, bool shared_weights) {
  Schedule s;
  s.kind = Schedule::Kind::Window;
  s.threads = size.threads;
  s.vector = vector;
  s.tile.m = rows;
  s.tile.n = columns;
  s.tile.k = size.groups;
  s.tile.stages = blocks;
  s.shared_weights = shared_weights;
  return s;
}

/// INGOT_TILE=4x7/2b3: rows, columns, channels and blocks of an SM ("s" behind it: weights in shared memory), for measurements; 0x0: no
/// kernel of its own.
std::optional<Schedule> forced_window(const Kernel& kernel, const WindowForm& w) {
  const char* text = std::getenv("INGOT_TILE");
  int rows = 0, columns = 0, vector = 2, blocks = 2;
  if (!text || std::sscanf(text, "%dx%d/%db%d", &rows, &columns, &vector, &blocks) != 4) return std::nullopt;
  const auto divides = [](int part, int64_t all) { return part > 0 && all % part == 0; };
  if (!divides(rows, w.y.outputs) || !divides(columns, w.x.outputs) || !divides(vector, *w.channels.extent.as_int()))
    return Schedule{};
  return window_schedule(vector, rows, columns, blocks, block_size(kernel, w, vector, columns),
                         std::string_view(text).ends_with("s") && w.weight.valid());
}

/// Cycles of the busiest SM.
double cycles_of(const WindowForm& w, const TargetTraits& target, const Schedule& s, int64_t outer) {
  const int vector = s.vector, rows = s.tile.m, columns = s.tile.n;
  const double taps = static_cast<double>(w.y.taps * w.x.taps), results = rows * columns;
  const double down = static_cast<double>(rows_read(w.y, rows)), across = static_cast<double>(rows_read(w.x, columns));
  double work = w.line ? 1 : 0;
  if (w.parts.width > 0) work += kSumWork * static_cast<double>(w.parts.sums.size()) / vector;
  for (const Stmt& e : w.epilogue) {
    if (auto* l = e.as<Let>()) work += static_cast<double>(count_flops(l->value));
    if (auto* st = e.as<Store>()) work += static_cast<double>(count_flops(st->value));
  }
  const double convert = !w.weight.valid() ? 0 : s.shared_weights ? rows * taps : rows * taps * vector / 2;
  const double weights = w.weight.valid() ? taps * kLoad : 0;
  const double instructions = taps * results * vector + down * across * (vector + kLoad) + convert + weights +
                              results * (vector * (work + 1) + kLoad) + 60;
  const double channels = static_cast<double>(*w.channels.extent.as_int());
  const double threads = static_cast<double>(outer * w.y.outputs * w.x.outputs) / results * (channels / vector);
  const double in_block = std::ceil(s.threads / 32.0);
  const double warps = std::ceil(threads / s.threads) * in_block / target.parallel_units;
  const double resident = s.tile.stages * in_block;
  const double rounds = std::max(1.0, std::ceil(warps / resident));
  // Warps of an SM take turns at its four schedulers; one alone waits for its own results, and for each row.
  const double issue = warps * instructions / (3.2 * std::min(1.0, (resident + 4) / 20));
  // Weights of all lanes pass through shared memory, 128 bytes in a cycle of the SM, where elements of the image come from, too.
  const double passes = s.shared_weights ? warps * (rows * taps * vector + down * across) : 0;
  const double busy = std::max(issue, passes) + 0.25 * std::min(issue, passes),
               alone = rounds * (instructions * 1.5 + 700 + 60 * down + (w.line ? kLineSync : 0));
  return std::max(busy, alone);
}

int64_t outer_at(const WindowForm& w, int64_t dim) {
  int64_t n = 1;
  for (const Axis& a : w.outer)
    n *= a.extent.as_int().value_or(std::clamp<int64_t>(dim, 1, std::max<int64_t>(estimate(a.extent, dim), 1)));
  return n;
}

/// Neighbouring lanes of a warp have a part between them.
bool shares_parts(int width, int vector) {
  const int lanes = width / vector;
  return width % vector == 0 && lanes <= 32 && (lanes & (lanes - 1)) == 0;
}

std::vector<RankedPlan> plans_of(const Kernel& kernel, const WindowForm& w, const TargetTraits& target, int64_t outer,
                                 int widest) {
  std::vector<RankedPlan> plans;
  for (int vector = 2; vector <= widest; vector *= 2) {
    for (int rows : kSides) {
      for (int columns : kSides) {
        if (w.y.outputs % rows != 0 || w.x.outputs % columns != 0) continue;
        if (w.y.taps * w.x.taps * rows * columns * vector > kMostSums) continue;
        if (rows_read(w.y, rows) * rows_read(w.x, columns) * w.x.taps * rows * vector > kMostTurns) continue;
        const BlockSize size = block_size(kernel, w, vector, columns);
        if (w.line && size.groups == 0) continue;
        if (w.parts.width > 0 && !shares_parts(w.parts.width, vector)) continue;
        for (const bool shared : {false, true}) {
          if (shared && (!w.weight.valid() || w.y.taps * w.x.taps < kManyTaps || rows > kMostSharing)) continue;
          const int used = registers(kernel, w, vector, rows, columns, shared);
          Schedule s = window_schedule(vector, rows, columns, 1, size, shared);
          int blocks = std::clamp(65536 / (used * size.threads), 0, 8 * kThreads / std::min(size.threads, kThreads));
          if (shared) blocks = std::min(blocks, target.shared_bytes / (window_shared(w, s).bytes + 1024));
          if (used > kRegisters || blocks == 0) continue;
          s.tile.stages = std::min(blocks, 8);
          plans.push_back({s, cycles_of(w, target, s, outer)});
        }
      }
    }
  }
  return plans;
}
Schedule best_of(const Kernel& kernel, const WindowForm& w, const TargetTraits& target, int64_t outer, int widest) {
  RankedPlan best;
  best.schedule.vector = 0;
  for (const RankedPlan& x : plans_of(kernel, w, target, outer, widest))
    if (best.schedule.vector == 0 || x.cycles < best.cycles) best = x;
  return best.schedule;
}

/// The widest vector of channels, where the kernel can have a form of its own.
int widest_channels(const Kernel& kernel, const WindowForm& w) {
  if (!w.channels.extent.as_int()) return 0;
  Body body{{w.reduce}};
  body.insert(body.end(), w.epilogue.begin(), w.epilogue.end());
  if (w.line) body.insert(body.end(), w.line->epilogue.begin(), w.line->epilogue.end());
  const int widest = widest_vector(kernel, body, w.channels.var, w.channels.extent, 4);
  return widest >= 2 && loads_vectors(w, widest) ? widest : 0;
}

}  // namespace

std::vector<RankedPlan> rank_window(const Kernel& kernel, const TargetTraits& target, const DimValues& at) {
  const auto w = window_form(kernel);
  const int widest = w ? widest_channels(kernel, *w) : 0;
  if (widest == 0) return {};
  int64_t outer = 1;
  for (const Axis& a : w->outer) outer *= evaluate_int(a.extent, at).value_or(estimate(a.extent, kMany));
  return plans_of(kernel, *w, target, outer, widest);
}

std::vector<Schedule> plan_window(const Kernel& kernel, const TargetTraits& target) {
  const auto w = window_form(kernel);
  const int widest = w ? widest_channels(kernel, *w) : 0;
  if (widest == 0) return {};
  if (const auto forced = forced_window(kernel, *w)) {
    const bool fits = forced->kind == Schedule::Kind::Window && forced->vector <= widest &&
                      (!w->line || forced->tile.k > 0) &&
                      (w->parts.width == 0 || shares_parts(w->parts.width, forced->vector));
    return fits ? std::vector<Schedule>{*forced} : std::vector<Schedule>{};
  }
  const Schedule few = best_of(kernel, *w, target, outer_at(*w, kFew), widest),
                 many = best_of(kernel, *w, target, outer_at(*w, kMany), widest);
  if (few.vector == 0 || many.vector == 0) return {};  // too many registers
  const bool known =
      std::all_of(w->outer.begin(), w->outer.end(), [](const Axis& a) { return a.extent.as_int().has_value(); });
  const bool same = few.vector == many.vector && few.tile.m == many.tile.m && few.tile.n == many.tile.n;
  if (known || same) return {many};
  const int64_t image = w->y.outputs * w->x.outputs * *w->channels.extent.as_int();
  for (int64_t dim = kFew; dim <= kMany; ++dim) {
    const int64_t outer = outer_at(*w, dim);
    if (dim < kMany && cycles_of(*w, target, many, outer) >= cycles_of(*w, target, few, outer)) continue;
    std::vector<Schedule> forms{few, many};
    forms[0].below = forms[1].from = outer * image;
    return forms;
  }
  return {many};
}

}  // namespace ingot
