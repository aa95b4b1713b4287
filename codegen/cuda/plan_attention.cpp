// Plans of attention: how many queries and keys a block works on at a time.
#include <algorithm>
#include <cmath>
#include <cstdlib>

#include <fmt/format.h>

#include "codegen/cuda/mma_cost.h"
#include "codegen/cuda/plan_cuda.h"
#include "codegen/kernel/attention_masks.h"
#include "codegen/text/c_printer.h"
#include "compiler/expr/simplify.h"

namespace ingot {
namespace {

constexpr int kLargestShared = 227 * 1024;  // of a block of sm_90

int rounded(const std::vector<Axis>& axes) { return static_cast<int>((estimate(total_of(axes), 256) + 15) / 16 * 16); }

/// Of prelude/attention.cuh, whose parts of a tile take the place of the stages when they join.
int shared_bytes(const AttentionDetails& d, const MmaTile& t, int size, int cluster) {
  const int row = d.head * size + 16, value_row = d.columns * size + (size == 2 ? 16 : 32);
  const int stages = t.m * row + t.stages * t.n * (row + value_row);
  const int parts = t.k_warps * t.m * ((d.columns + 8) * 4 + 8);
  const int sent = cluster > 1 ? t.m * (d.columns * 4 + 8) : 0;
  return std::max(stages, parts) + sent;
}

/// Of prelude/attention_keys.cuh.
int key_bytes(const AttentionDetails& d, const MmaTile& t, int cluster) {
  const int stages = t.stages * t.n * ((d.head + 63) / 64 + (d.columns + 63) / 64) * 128;
  const int parts = t.k_warps * d.part_rows * ((d.columns + 8) * 4 + 8), rest = t.m * (d.head * 2 + 16) + t.stages * 16;
  return cluster > 1 ? std::max(stages, parts) + d.part_rows * (d.columns * 4 + 8) + rest : stages + parts + rest;
}

/// How many blocks of prelude/attention_keys.cuh an SM has place for, two at most: the next kernel's come while these run. What
/// registers a thread takes has been read off what NVRTC makes of it.
int key_blocks(const AttentionDetails& d, const MmaTile& t, int bytes) {
  const int warps = (t.threads() / 32 * 2 + 3) / 4 * 4, registers = 65536 / (warps * 32) / 8 * 8;
  const int needed = 48 + d.columns / 2 + d.head / 4 + t.n / t.k_warps * 7 / 5;
  return needed <= registers && 2 * (bytes + 1024) <= kLargestShared + 1024 ? 2 : 1;
}

}  // namespace

Contract score_product(const Attend& t) {
  return {.batch = t.batch, .m = t.m, .n = t.n, .k = t.k, .a = t.q, .b = t.key, .acc = t.dot, .epilogue = {}};
}
Contract value_product(const Attend& t) {
  return {
      .batch = t.batch, .m = t.m, .n = t.d, .k = t.n, .a = t.value, .b = t.value, .acc = t.acc, .epilogue = t.epilogue};
}

namespace {

/// The sizes of an attention, as far as they are known, and what its logits cost.
struct AttentionProblem {
  double m, n, batch, head, columns, work;
  double products = 1;  // of 16 bits that take as long as one of an element
  int size = 2;         // bytes of an element
  bool grows = false;  // the last query sees all keys, each one before it one less

  double keys_of(double row) const { return grows ? std::clamp(row + 1 + n - m, 0.0, n) : n; }
};

/// The time of a tile of queries from m0 on, on an SM with as many other blocks: warpgroups take turns at the tensor
/// cores and at the exponentials; one alone has both, one after the other for the most part.
double tile_cycles(const AttentionProblem& p, const MmaTile& t, int blocks, double m0) {
  // Queries come from shared memory for every step: with few keys it is busy as long as the tensor cores.
  const double again = 1 + (p.size == 4 ? 8.0 : 4.0) / t.n;
  const double elements = 64.0 * t.n, multiply = elements * (p.head * again + p.columns) * p.products / 1800;
  const double weigh = elements * (1.0 / 16 + p.work / 128);
  double all = 0, most = 0;  // steps
  for (double row = m0; row < std::min(p.m, m0 + t.m); row += 64) {
    const double steps = std::ceil(p.keys_of(std::min(p.m, row + 64) - 1) / t.n);
    all += steps;
    most = std::max(most, steps);
  }
  if (!p.grows) all = most * t.groups();
  return std::max(all * blocks * std::max(multiply, weigh), most * (multiply + weigh + 350));
}

/// Cycles of the busiest SM.
double estimated_cycles(const AttentionProblem& p, const TargetTraits& target, const MmaTile& t, int blocks) {
  const double rows = std::ceil(p.m / t.m), steps = std::ceil(p.n / t.n);
  // TMA fills what is outside with zeros, a row at a time; and what a tile reads and writes passes at 19 bytes a cycle
  // and SM.
  const double outside = (t.m - p.m / rows) + 2 * (steps * t.n - p.n);
  const double bytes = p.size * (p.m * (p.head + p.columns) + p.n * (p.head + p.columns)) / rows;
  const auto with_rest = [&](double cycles) {
    return std::max(cycles + 1500 + 8 * outside, bytes * blocks / 19 + 10 * steps);
  };
  const double places = static_cast<double>(target.parallel_units) * blocks;
  if (!p.grows) return std::ceil(rows * p.batch / places) * with_rest(tile_cycles(p, t, blocks, 0)) + 3000;
  double all = 0, last = 0;
  for (double r = 0; r < rows; ++r) all += last = with_rest(tile_cycles(p, t, blocks, r * t.m));
  // Blocks have about as much to do each (prelude/attention_boxes.cuh), but for a part of the longest tile.
  return std::max(all * p.batch / places + last / 2, last) + 3000;
}

/// What the logits of a thread take in registers, beside themselves.
enum class LogitCost { Scale, Other, Masks, MasksAndLoads };

/// Registers of a thread: logits, weights and results, and what the rest takes (measured: where ptxas begins to spill).
bool fits_registers(const MmaTile& t, int columns, LogitCost cost) {
  constexpr int kLimits[] = {128, 232, 160,
                             112};  // for 1 to 4 warpgroups (prelude/warp_results.cuh; of one, two blocks an SM)
  const int rest[] = {40, columns < 128 ? 44 : columns <= 128 ? 56 : 64, 45, cost == LogitCost::Scale ? 25 : 33};
  const int masks = cost == LogitCost::MasksAndLoads ? 16 : cost == LogitCost::Masks ? 8 : 0;
  const auto groups = static_cast<size_t>(t.groups() - 1);
  return t.n / 2 + t.n / 4 + columns / 2 + rest[groups] + masks <= kLimits[groups];
}

/// The same for elements of 32 bits (prelude/attention_wide.cuh): with the accuracy of f32, small parts and the sums of
/// a step besides.
bool fits_registers_wide(const MmaTile& t, const AttentionDetails& d, bool single, LogitCost cost) {
  const int products = single ? t.n + d.columns / 2 : 3 * t.n / 2 + d.columns;
  const int masks = cost == LogitCost::Scale ? 0 : cost == LogitCost::Masks ? 8 : 48;
  return products + (single ? 40 : 68) + masks <= 224;
}

/// What an element is, and how many products stand for one of two elements.
struct BoxElement {
  int size = 2;
  bool single = true;

  explicit BoxElement(MultiplyUnit unit)
      : size(static_cast<int>(size_of(element_of(unit)))), single(unit != MultiplyUnit::Tf32x3) {}
};

int box_bytes(const AttentionDetails& d, const MmaTile& t, BoxElement x) {
  const int of_panel = 128 / x.size, panels = (d.head + of_panel - 1) / of_panel,
            value_panels = (d.columns + of_panel - 1) / of_panel;
  const int scratch = t.groups() * 4 * 16 * (d.chunk + 8) * 4, queries = d.q_stages * t.m * panels * 128;
  const int keys = t.n * panels * 128, values = t.n * value_panels * 128;
  if (x.size == 2) return queries + t.stages * (keys + values) + scratch + (d.q_stages + 2 * t.stages + 1) * 16;
  const int turned = t.n / 32 * d.columns * 128, parts = x.single ? 1 : 2;
  const int small = x.single ? 0 : t.m * panels * 128;
  return queries + small + t.stages * parts * (keys + turned) + d.arriving * values + scratch +
         (d.q_stages + 3 * t.stages + d.arriving) * 16;
}

int blocks_of(const MmaTile& t) { return t.groups() == 1 ? 2 : 1; }

/// What follows from the tile, but for the stages: two of the queries, and of values that are to be turned, where two
/// of all fit.
void box_details(AttentionDetails& d, const MmaTile& t, BoxElement x, int shared_bytes) {
  d.chunk = d.columns % 64 == 0 && d.columns < 128 && x.size == 2 ? 64 : d.columns % 32 == 0 && x.single ? 32 : 16;
  d.blocks_per_sm = blocks_of(t);
  d.q_stages = d.arriving = 2;
  MmaTile two = t;
  two.stages = 2;
  const int most = shared_bytes / d.blocks_per_sm - 1024;
  if (box_bytes(d, two, x) > most) d.q_stages = 1;
  if (box_bytes(d, two, x) > most) d.arriving = 1;
}

struct RankedTile {
  MmaTile tile;
  double cycles;
};
/// The tiles whose operands arrive as boxes, with extents where the dims are known.
std::vector<RankedTile> rank_boxes(const Kernel& kernel, const TargetTraits& target, AttentionDetails d,
                                   MultiplyUnit unit, const DimValues& at) {
  const Attend& a = *kernel.attend();
  const BoxElement x(unit);
  const auto count = [&](const std::vector<Axis>& axes) {
    const Expr total = total_of(axes);
    return static_cast<double>(evaluate_int(total, at).value_or(estimate(total, 512)));
  };
  std::vector<RankedTile> tiles;
  AttentionProblem p{};
  p.m = count(a.m);
  p.n = count(a.n);
  p.batch = count(a.batch);
  p.head = d.head;
  p.columns = d.columns;
  p.size = x.size;
  p.products = x.size == 2 ? 1 : x.single ? 2 : 6;
  const Expr logit = split_scale(a.score, a.dot).logit, plain = seen_keys(a, logit).plain;
  p.work = 5.0 + static_cast<double>(count_flops(plain.valid() ? plain : logit));
  p.grows = grows_with_row(a, reach_of(a));
  bool loads = false;
  visit(plain.valid() ? plain : logit, [&](const Expr& e) { loads |= e.op() == ExprOp::Load; });
  const LogitCost cost = plain.valid()       ? loads ? LogitCost::MasksAndLoads : LogitCost::Masks
                         : logit.same(a.dot) ? LogitCost::Scale
                                             : LogitCost::Other;
  const char* forced = std::getenv("INGOT_TILE");
  const auto fits = [&](const MmaTile& t) {
    return x.size == 2 ? fits_registers(t, d.columns, cost) : fits_registers_wide(t, d, x.single, cost);
  };
  // Of 32 bits: two warpgroups, and keys by whole panels.
  const int first = x.size == 2 ? d.columns > 128 ? 32 : 64 : 32, step = x.size == 2 ? 16 : 32;
  for (int groups = x.size == 2 ? 1 : 2; groups <= (x.size == 2 ? 4 : 2); ++groups) {
    for (int n = first; n <= 208; n += step) {
      MmaTile t{.m = groups * 64, .n = n, .k = d.head, .warp_m = 64, .warp_n = n, .warpgroups = true, .boxes = true};
      const int limit = target.shared_bytes / blocks_of(t) - (blocks_of(t) > 1 ? 1024 : 0);
      box_details(d, t, x, target.shared_bytes);
      t.stages = 2;
      const bool taken = forced && fmt::format("{}x{}", t.m, t.n) == forced;
      if (!(taken || fits(t)) || box_bytes(d, t, x) > limit) continue;
      while (t.stages < 4) {
        ++t.stages;
        if (box_bytes(d, t, x) > limit) break;
      }
      if (box_bytes(d, t, x) > limit) --t.stages;
      const double cycles = estimated_cycles(p, target, t, blocks_of(t));
      if (taken) return {{t, cycles}};
      tiles.push_back({t, cycles});
    }
  }
  return tiles;
}

/// The tiles of mma.sync that fit, the best first.
std::vector<MmaTile> rank_warps(const AttentionDetails& d, int size, int limit) {
  std::vector<MmaTile> tiles;
  constexpr std::pair<int, int> kTiles[] = {{64, 64}, {64, 32}, {32, 32}, {16, 32}, {16, 16}};
  MmaTile t;
  for (const auto& [m, n] : kTiles) {
    t = {.m = m, .n = n, .k = d.head, .warp_m = 16, .warp_n = n, .stages = 2};
    const bool crowded = (d.columns > 128 || size == 4) && n > 32;  // registers
    if (!crowded && shared_bytes(d, t, size, 1) <= limit) tiles.push_back(t);
  }
  if (tiles.empty()) tiles.push_back(t);
  return tiles;
}

}  // namespace

namespace {

Schedule schedule_of(const Attend& t, const TargetTraits& target) {
  Schedule s;
  s.kind = Schedule::Kind::Attention;
  s.unit = t.q_type == DType::F16    ? MultiplyUnit::F16
           : t.q_type == DType::BF16 ? MultiplyUnit::BF16
           : target.allow_tf32       ? MultiplyUnit::Tf32
                                     : MultiplyUnit::Tf32x3;
  return s;
}

/// Tiles with queries enough for each warp, or warpgroup, to have its own.
std::vector<RankedPlan> rank_many_queries(const Kernel& kernel, const TargetTraits& target, const DimValues& at) {
  const Attend& t = *kernel.attend();
  Schedule s = schedule_of(t, target);
  const int size = static_cast<int>(size_of(element_of(s.unit)));
  AttentionDetails d;
  d.head = rounded(t.k);
  d.columns = rounded(t.d);
  std::vector<RankedPlan> plans;
  if (target.compute_capability == 90 && d.columns <= 256 && attention_rows(kernel, element_of(s.unit))) {
    for (const RankedTile& x : rank_boxes(kernel, target, d, s.unit, at)) {
      s.tile = x.tile;
      s.threads = s.tile.threads();
      s.most_blocks = target.parallel_units * blocks_of(s.tile);
      plans.push_back({s, x.cycles});
    }
  }
  if (!plans.empty()) return plans;
  for (const MmaTile& tile : rank_warps(d, size, target.shared_bytes)) {
    s.tile = tile;
    s.threads = s.tile.m / 16 * 32;
    plans.push_back({s, static_cast<double>(plans.size())});
  }
  return plans;
}

bool less_cycles(const RankedPlan& a, const RankedPlan& b) { return a.cycles < b.cycles; }

}  // namespace

std::vector<RankedPlan> rank_attention(const Kernel& kernel, const TargetTraits& target, const DimValues& at) {
  const Attend& t = *kernel.attend();
  const auto queries = total_of(t.m).as_int();
  const bool few = has_few_form(kernel) ? is_few(kernel, at) : queries && *queries <= 16;  // a warp's rows are 16
  std::vector<RankedPlan> plans;
  if (!few) plans = rank_many_queries(kernel, target, at);
  // A few more queries may fill too few tiles. Without an estimate of the others nothing is gained by a choice.
  const int64_t batch = estimate(total_of(t.batch), 512);
  const bool narrow = queries && *queries <= 64 && batch < target.parallel_units;
  if (few || (narrow && plans[0].cycles > 0)) {
    for (RankedPlan& x : rank_few_queries(kernel, target, at, schedule_of(t, target))) plans.push_back(std::move(x));
  }
  return plans.empty() ? rank_many_queries(kernel, target, at) : plans;
}

std::vector<Schedule> plan_attention(const Kernel& kernel, const TargetTraits& target) {
  const auto best = [](const std::vector<RankedPlan>& plans) {
    return std::min_element(plans.begin(), plans.end(), less_cycles)->schedule;
  };
  if (!has_few_form(kernel)) return {best(rank_attention(kernel, target, {}))};
  std::vector<Schedule> forms = plan_few_queries(kernel, target, schedule_of(*kernel.attend(), target));
  forms.push_back(best(rank_many_queries(kernel, target, {})));
  return forms;
}

AttentionDetails attention_details(const Kernel& kernel, const Schedule& s) {
  const Attend& t = *kernel.attend();
  const DType element = element_of(s.unit);
  AttentionDetails d;
  d.q = operand_form(kernel, t.q, inner_axis(t.k), element);
  d.key = operand_form(kernel, t.key, inner_axis(t.k), element);
  d.value = operand_form(kernel, t.value, inner_axis(t.d), element);
  const Axis* out = inner_axis(t.d);
  d.e_vector = out ? widest_vector(kernel, t.epilogue, out->var, out->extent, 8) : 1;
  d.head = rounded(t.k);
  d.columns = rounded(t.d);
  if (s.tile.boxes && shares_keys(s)) {
    const auto rows = total_of(t.m).as_int();
    d.part_rows = s.tile.m == 16 && rows && *rows <= 8 ? 8 : s.tile.m;
    d.shared_bytes = key_bytes(d, s.tile, s.cluster_k);
    d.blocks_per_sm = key_blocks(d, s.tile, d.shared_bytes);
  } else if (s.tile.boxes) {
    box_details(d, s.tile, BoxElement(s.unit), kLargestShared);
    d.shared_bytes = box_bytes(d, s.tile, BoxElement(s.unit));
  } else {
    d.shared_bytes = shared_bytes(d, s.tile, static_cast<int>(size_of(element)), s.cluster_k);
  }
  return d;
}

}  // namespace ingot
