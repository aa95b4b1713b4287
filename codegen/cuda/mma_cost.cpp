#include "codegen/cuda/mma_cost.h"

#include "codegen/cuda/plan_cuda.h"
#include "runtime/program.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <string>
#include <utility>

#include <fmt/format.h>

namespace ingot {
namespace {

constexpr MmaTile warps(int m, int n, int warp_m, int warp_n, int k_warps = 1) {
  return {.m = m, .n = n, .warp_m = warp_m, .warp_n = warp_n, .k_warps = k_warps};
}
constexpr MmaTile kCandidates[] = {
    warps(128, 128, 64, 32),  warps(64, 256, 64, 32),   warps(256, 64, 64, 32),   warps(128, 64, 64, 32),
    warps(64, 128, 64, 32),   warps(128, 64, 32, 32),   warps(64, 128, 32, 32),   warps(64, 64, 32, 32),
    warps(64, 64, 32, 32, 2), warps(64, 32, 32, 32, 2), warps(32, 64, 32, 32, 2), warps(64, 32, 32, 32, 4),
    warps(32, 64, 32, 32, 4), warps(32, 32, 32, 32, 4), warps(32, 32, 32, 32, 8),
};
// 16-bit operands only: there the larger tile of a warp is worth its registers.
constexpr MmaTile kWideCandidates[] = {warps(128, 256, 64, 64), warps(256, 128, 64, 64), warps(128, 128, 64, 64)};

constexpr MmaTile groups(int m, int n, int warp_m, int warp_n, bool overlap) {
  return {.m = m, .n = n, .k = 64, .warp_m = warp_m, .warp_n = warp_n, .warpgroups = true, .overlap = overlap};
}
constexpr MmaTile kGroupCandidates[] = {
    groups(128, 256, 64, 256, true),  groups(256, 128, 128, 128, true), groups(128, 192, 64, 192, true),
    groups(128, 128, 64, 128, false), groups(128, 128, 64, 128, true),  groups(64, 256, 64, 128, false),
    groups(128, 64, 64, 64, false),   groups(256, 64, 128, 64, false),  groups(64, 128, 64, 64, false),
    groups(128, 96, 64, 96, false),   groups(128, 32, 64, 32, false),   groups(64, 128, 64, 128, false),
    groups(64, 64, 64, 64, false),    groups(64, 96, 64, 96, false),    groups(64, 32, 64, 32, false),
    groups(128, 64, 128, 64, false),  groups(256, 32, 128, 32, false),  groups(128, 32, 128, 32, false),
};

constexpr MmaTile boxes(int m, int n, int warp_m, int warp_n, bool in_turn) {
  MmaTile x = groups(m, n, warp_m, warp_n, true);
  x.boxes = true;
  x.in_turn = in_turn;
  return x;
}
constexpr MmaTile kBoxCandidates[] = {
    boxes(128, 256, 64, 256, false), boxes(256, 128, 128, 128, false), boxes(128, 192, 64, 192, false),
    boxes(192, 128, 64, 128, false), boxes(128, 128, 128, 128, true),  boxes(64, 256, 64, 256, true),
    boxes(128, 64, 128, 64, true),   boxes(64, 128, 64, 128, true),    boxes(64, 192, 64, 192, true),
    boxes(64, 96, 64, 96, true),     boxes(64, 64, 64, 64, true),      boxes(128, 128, 64, 128, false),
    boxes(64, 128, 64, 128, false),  boxes(64, 64, 64, 64, false),     boxes(64, 32, 64, 32, false),
    boxes(128, 32, 128, 32, true),   boxes(128, 128, 64, 128, true),   boxes(128, 96, 64, 96, true),
    boxes(128, 64, 64, 64, true),    boxes(64, 256, 64, 128, true),    boxes(128, 64, 64, 64, false),
    boxes(64, 256, 64, 128, false),
};

// Of f32 with its accuracy: each warpgroup has two sets of sums for its 64 rows, and two parts of A, in registers.
constexpr MmaTile split(int m, int n, int warp_n, bool in_turn) {
  MmaTile x = boxes(m, n, 64, warp_n, in_turn);
  x.split = true;
  return x;
}
constexpr MmaTile kSplitCandidates[] = {
    split(128, 128, 128, false), split(128, 96, 96, false), split(128, 64, 64, false), split(64, 256, 128, false),
    split(64, 192, 96, false),   split(64, 128, 64, false), split(192, 64, 64, false), split(64, 128, 128, true),
    split(64, 96, 96, true),     split(64, 64, 64, true),   split(64, 32, 32, true),   split(128, 32, 32, false),
    split(64, 64, 32, false),    split(64, 64, 64, false),  split(64, 32, 32, false),
};

// Of f8: each warpgroup has the sums of a step beside those of all.
constexpr MmaTile kSettlingCandidates[] = {
    boxes(128, 128, 64, 128, false), boxes(64, 256, 64, 128, false), boxes(128, 96, 64, 96, false),
    boxes(64, 192, 64, 96, false),   boxes(192, 64, 64, 64, false),  boxes(128, 64, 64, 64, false),
    boxes(64, 128, 64, 64, false),   boxes(64, 128, 64, 128, true),  boxes(64, 96, 64, 96, true),
    boxes(64, 64, 64, 64, true),     boxes(64, 32, 64, 32, true),    boxes(64, 64, 64, 64, false),
    boxes(64, 32, 64, 32, false),
};

int step_of(const MmaProblem& p, const MmaTile& x) {
  if (x.warpgroups) return (x.boxes && p.half_steps ? 64 : 128) / p.element;
  return (p.element == 1 ? 64 : p.element == 2 ? 32 : 16) * x.k_warps;
}

bool fits(const MmaProblem& p, const MmaMachine& machine, MmaTile x) {
  x.k = step_of(p, x);
  if (p.together > x.m) return false;
  const bool turns = p.element == 1 && !(p.a_along_k && p.b_along_k);  // by way of registers: no long steps
  if (turns && (x.warpgroups || x.k_warps > 1)) return false;
  if (p.together > 1 && x.boxes && (x.warp_m != 64 || x.warp_n != x.n)) return false;  // a team has all rows at once
  if (x.warpgroups) {
    if (p.settles && (x.warp_m != 64 || x.warp_n > 128 || (x.overlap && !x.boxes))) return false;  // registers
    // Operands that are not along k lie in panels of 64.
    const bool in_panels = !p.b_along_k && p.element == 2;
    if (machine.group_multiplies == 0 || (p.element == 4 && !x.boxes) || (in_panels && x.warp_n % 64 != 0))
      return false;
    // Registers: two steps of A beside the sums.
    if (x.boxes && p.a_changes && (x.warp_m != 64 || (x.groups() > 2 && x.warp_n >= 96))) return false;
    if (x.boxes) {
      const bool along_k = p.a_along_k && p.b_along_k;
      x.stages = 3;
      return p.boxes && (p.element == 2 || along_k) &&
             box_shared_bytes(x, p.element, p.staging, p.staged_size) <= machine.shared_limit;
    }
  } else if (p.window && x.warp_m * x.warp_n > 64 * 32) {
    return false;  // no registers left for the gathers
  }
  const int stages = (2 + x.overlap) * (mma_stage_bytes(x, p.a_along_k, p.b_along_k, p.element) + x.k * p.table_bytes);
  return std::max(stages, mma_result_bytes(x, p.out_along_m)) <= machine.shared_limit;
}

int row_bytes(bool along_k, int tile, int tile_k, int element) {
  return along_k || element == 1 ? tile * (tile_k * element + 16)
                                 : tile_k * (tile * element + (element == 2 ? 16 : 32));
}

}  // namespace

int mma_stage_bytes(const MmaTile& x, bool a_along_k, bool b_along_k, int element) {
  if (x.warpgroups) return (x.m + x.n * (x.split ? 2 : 1)) * x.k * element;
  return row_bytes(a_along_k, x.m, x.k, element) + row_bytes(b_along_k, x.n, x.k, element);
}
double tiles_of(const MmaProblem& p, const MmaTile& x) {
  return std::ceil(p.m / whole_rows(x.m, p.together)) * std::ceil(p.n / x.n) * p.batch;
}
bool may_divide(const MmaProblem& p, const MmaMachine& machine, const MmaTile& x) {
  constexpr double kMemory = 16, kLong = 60e3;  // bytes in a cycle and SM; cycles
  const double bytes = (p.m * p.k / p.reuse * p.a.bytes + p.n * p.k * p.b.bytes) * p.batch;
  const double multiplies = p.m * p.n * p.k * p.batch / machine.group_multiplies / machine.sms,
               memory = bytes / kMemory / machine.sms;
  if (multiplies < memory && memory < kLong) return false;
  if (!x.boxes || x.in_turn || x.row_teams > 0 || p.part_width > 0 || p.out_along_m || x.warp_n % kDividedColumns != 0)
    return false;
  MmaProblem most = p;
  most.m = std::max(p.m, p.most_m);
  most.n = std::max(p.n, p.most_n);
  most.batch = std::max(p.batch, p.most_batch);
  return tiles_of(most, x) * (x.warp_n / kDividedColumns) <= static_cast<double>(runtime::kCounters);
}
int box_chunk(const MmaTile& x) { return !x.split && x.warp_n % 64 == 0 && x.n <= 128 && x.groups() <= 2 ? 64 : 32; }
Staging staging_of(const std::optional<StagedResults>& staged) {
  return !staged ? Staging::None : staged->load.valid() ? Staging::Inputs : Staging::Results;
}
int staged_columns(int result_size) { return result_size == 4 ? 32 : 64; }
int staged_buffers(const MmaTile& x, Staging staging, int result_size) {
  const int columns = staged_columns(result_size), boxes = x.warp_m / 64 * (x.warp_n / columns);
  if (staging == Staging::None || x.warp_n % columns != 0) return 0;
  if (staging == Staging::Inputs && boxes > 4) return 0;  // each has its place: too much shared memory
  return staging == Staging::Results && boxes % 2 == 0 ? 2 : boxes;
}
int box_shared_bytes(const MmaTile& x, int element, Staging staging, int result_size, int cluster) {
  const int stages = x.stages * (mma_stage_bytes(x, true, true, element) + 16) + x.groups() * 8;
  if (cluster > 1) return stages;
  const int buffers = staged_buffers(x, staging, result_size);
  const int warp =
      buffers > 0 ? buffers * (16 * staged_columns(result_size) * result_size + 8) : 16 * (box_chunk(x) + 8) * 4;
  return stages + x.groups() * 4 * warp;
}
int row_value_bytes(const MmaTile& x, int values, int cluster) {
  if (values == 0) return 0;
  return cluster > 1 ? x.m * values * 4 : x.groups() == 2 ? 2 * x.m * values * 4 + 32 : 0;
}
int mma_result_bytes(const MmaTile& x, bool along_m) { return along_m ? x.n * (x.m + 4) * 4 : x.m * (x.n + 8) * 4; }

int blocks_by_registers(const MmaTile& x, int element, bool window) {
  if (x.row_teams > 0) return 1;
  if (x.split) return x.groups() > 1 || x.warp_n > 32 ? 1 : 2;
  if (x.boxes) return x.groups() > 1 ? 1 : x.warp_n > 64 ? 2 : 3;
  if (x.warpgroups) return std::clamp(65536 / ((x.warp_m * x.warp_n / 128 + (window ? 112 : 84)) * x.threads()), 1, 6);
  const int results = x.warp_m * x.warp_n;
  const int registers = element == 4 ? results / 16 + (window ? 128 : 64) : results / 32 + 80;
  return std::clamp(65536 / (registers * x.threads()), 1, 2);
}

MmaMachine mma_machine(const TargetTraits& target, MultiplyUnit unit) {
  MmaMachine m;
  m.sms = target.parallel_units;
  const int cc = target.compute_capability;
  // What mma.sync reaches; consumer chips have half the units of a data-centre one.
  const double f16 = cc == 80 || cc == 90 || cc == 100 ? 1000 : 500;
  m.multiplies = unit == MultiplyUnit::Bytes    ? f16 * 2
                 : unit == MultiplyUnit::F8     ? (cc == 90 ? f16 : f16 * 2)  // by warps, Hopper multiplies f8 as f16
                 : unit == MultiplyUnit::Tf32x3 ? f16 / 6
                 : unit == MultiplyUnit::Tf32   ? f16 / 2
                                                : f16;
  const bool narrow = unit == MultiplyUnit::F16 || unit == MultiplyUnit::BF16;
  if (unit == MultiplyUnit::Bytes || unit == MultiplyUnit::F8) m.group_multiplies = cc == 90 ? 3400 : 0;
  else
    m.group_multiplies = cc == 90 && narrow                         ? 1800
                         : cc == 90 && unit == MultiplyUnit::Tf32   ? 900
                         : cc == 90 && unit == MultiplyUnit::Tf32x3 ? 300
                                                                    : 0;
  m.shared_limit = target.shared_bytes;
  m.clusters = cc >= 90;
  return m;
}

/// INGOT_TILE: the tile, and behind an @ or a % what shares k.
static std::pair<std::string, Sharing> forced_plan() {
  const char* forced = std::getenv("INGOT_TILE");
  const std::string text = forced ? forced : "";
  const size_t at = text.find_first_of("@%");
  if (at == std::string::npos) return {text, {0, 0}};
  const int blocks = std::atoi(text.c_str() + at + 1);
  return {text.substr(0, at), text[at] == '@' ? Sharing{blocks, 1} : Sharing{1, blocks}};
}
Sharing forced_sharing() { return forced_plan().second; }

std::vector<MmaTile> mma_candidates(const MmaProblem& p, const MmaMachine& machine) {
  std::vector<MmaTile> tiles;
  const std::string forced = forced_plan().first;
  const auto add = [&](const auto& list) {
    for (const MmaTile& x : list)
      if (fits(p, machine, x)) tiles.push_back(x);
  };
  if (machine.group_multiplies > 0) {
    add(kGroupCandidates);
    if (p.split) add(kSplitCandidates);
    else if (p.settles) add(kSettlingCandidates);
    else add(kBoxCandidates);
    for (const MmaTile& x : rows_tiles(p, machine)) tiles.push_back(x);
  }
  // Warpgroups read f32 as boxes only: what does not arrive so is for warps.
  if (tiles.empty() || p.element == 4) add(kCandidates);
  if (machine.group_multiplies == 0 && p.element == 2 && machine.shared_limit > (64 << 10)) add(kWideCandidates);
  if (!forced.empty()) {
    const auto differs = [&](const MmaTile& x) {
      if (x.row_teams > 0) return fmt::format("rows{}", x.m) != forced;
      return fmt::format("{}x{}/{}x{}{}", x.m, x.n, x.warp_m, x.warp_n,
                         x.in_turn   ? "t"
                         : x.boxes   ? "b"
                         : x.overlap ? "o"
                                     : "") != forced;
    };
    if (!std::all_of(tiles.begin(), tiles.end(), differs)) std::erase_if(tiles, differs);
  }
  return tiles;
}

MmaTile completed(const MmaProblem& p, const MmaMachine& machine, MmaTile x, Sharing sharing) {
  if (x.row_teams > 0) return x;
  x.k = step_of(p, x);
  const int sharers = sharing.blocks();
  const double tiles = tiles_of(p, x) * sharers;
  const int stage = mma_stage_bytes(x, p.a_along_k, p.b_along_k, p.element) + (x.boxes ? 0 : x.k * p.table_bytes);
  if (!x.warpgroups) {
    x.stages = std::clamp(std::min(machine.shared_limit, 100 << 10) / stage, 2, 4);  // two blocks on a large SM
    return x;
  }
  const int blocks = std::min(blocks_by_registers(x, p.element, p.window),
                              static_cast<int>(std::max(1.0, std::ceil(tiles / machine.sms))));
  if (x.boxes) {
    const int all = box_shared_bytes(x, p.element, p.staging, p.staged_size, sharers);
    const int rows = 16 + row_value_bytes(x, sharing.grid > 1 ? 0 : p.row_values, sharing.cluster);
    const int most = machine.shared_limit / blocks - 1024 - rows - (all - x.stages * (stage + 16));
    x.stages = std::clamp(most / (stage + 16), 2, 12);
    return x;
  }
  const int steps = static_cast<int>(std::ceil(p.k / sharers / x.k)),
            least = steps == 1 && p.k_known ? 1 : 2 + x.overlap;
  x.stages = std::clamp((machine.shared_limit / blocks - 1024) / stage, least, 8);
  x.stages = steps == 1 && p.k_known ? 1 : std::clamp(steps + x.overlap, least, x.stages);
  return x;
}

bool holds_results(const MmaTile& x, const MmaProblem& p) {
  constexpr int kFlags = 128;  // of prelude/divided_sums.cuh
  return mma_result_bytes(x, false) + kFlags <= x.stages * mma_stage_bytes(x, true, true, p.element);
}
MmaTile trimmed(const MmaProblem& p, const MmaMachine& machine, MmaTile x, Sharing sharing) {
  const int sharers = sharing.blocks();
  if (!x.boxes || x.row_teams > 0 || !p.k_known || tiles_of(p, x) * sharers > machine.sms) return x;
  const double steps = std::ceil((p.box_k > 0 ? p.box_k : p.k) / x.k / sharers);
  x.stages = static_cast<int>(std::clamp<double>(steps, 2, x.stages));
  while (sharers > 1 && !holds_results(x, p)) ++x.stages;
  return x;
}

namespace {

/// With boxes. A tile's main loop is bound by multiplications, shared memory, copies, or boxes that TMA fills; its results by
/// their warps' instructions. In turn, or beside another block of the SM, the two overlap; all that goes through shared memory,
/// L2 and memory shares those. Fitted to three sweeps on an H200, each with 10 to 20 tiles: 60 products and convolutions of four models
/// one by one, 20 products of four models while the card was at its power limit, and 45 products of five models at batch 1 (and 64) with
/// clusters. What it chooses takes 2%, 1% and 4% longer in sum than the best.
double box_cycles(const MmaProblem& p, const MmaMachine& machine, const MmaTile& x, Sharing sharing) {
  constexpr double kL2 = 45, kMemory = 20, kFilledRow = 12, kWarpIssue = 0.67, kMostIssue = 0.77, kGap = 820;
  constexpr double kCopies = 1.19;  // what copies cost beside all else that passes through shared memory
  // One tile for each block: all begin with the same rows and columns, and what several SMs ask for at a time leaves L2 once. Blocks
  // of a cluster ask for different parts of k.
  constexpr double kCopiesOfOne = 0.72, kL2OfOne = 76, kL2OfCluster = 22, kLatency = 2200, kMeet = 620,
                   kOtherBlocks = 27, kChange = 470;
  // Where they are of the grid, blocks with the same part of k run side by side. Their sums go through L2, and their counters.
  constexpr double kL2OfGrid = 60, kParts = 16, kCount = 4500, kDoubt = 1.05;
  constexpr double kLaunch = 2360, kThread = 5.1;
  const int cluster = sharing.cluster, sharers = sharing.blocks();
  const double tiles = tiles_of(p, x) * sharers, rounds = std::ceil(tiles / machine.sms), results = x.m * x.n;
  const double k = std::ceil((p.box_k > 0 ? p.box_k : p.k) / x.k / sharers) * x.k;
  const bool staged = sharers == 1 && staged_buffers(x, p.staging, p.staged_size) > 0;
  // Four warpgroups get in each other's way; three do not where a block has one tile.
  // Between two steps of f32 or f8 a warpgroup adds its sums; another one may multiply meanwhile.
  const bool alone = x.groups() / x.teams() == 1;
  const double gaps = p.split ? k / x.k * (alone ? 250 : 100) : p.settles ? k / x.k * (alone ? 150 : 60) : 0;
  const double multiplies =
      results * k / machine.group_multiplies * (x.groups() > (sharing.grid > 1 ? 3 : 2) ? 1.35 : 1.0) + gaps;
  const double reads_b = p.split ? 3.0 / 64 : 1.0 / 64, passes_b = p.split ? 3 : 1;
  const double copies = (results * (reads_b + 1.0 / x.warp_n) + x.m + x.n * passes_b) * k * p.element;
  const double bytes = std::max(p.staged_size, 2);  // pairs of bytes take as long
  const double passes = results * (!staged ? 19 : bytes * (p.staging == Staging::Inputs ? 4 : 2));
  const double operands = (std::min<double>(x.m, p.m) * p.a.bytes + x.n * p.b.bytes) * k,
               moved = results * p.result_bytes / sharers;
  const double filled = kFilledRow * p.partial_steps * (x.m + x.n);
  // Instructions, half of the issue slots; and a warp waits for its own in each step.
  const double changes =
      !p.a_changes ? 0 : std::max(x.m * k * (6 + p.a.gather * 32) / 128, k / x.k * kChange);  // instructions, half of the issue slots
  const bool one = rounds == 1;
  const double l2 = cluster > 1        ? kL2OfCluster * machine.sms / std::min(tiles, machine.sms)
                    : sharing.grid > 1 ? kL2OfGrid
                    : one              ? kL2OfOne
                                       : kL2;
  const double costs = one && cluster == 1 ? kCopiesOfOne : kCopies;
  const double in_flight = x.stages * (std::min<double>(x.m, p.m) + x.n) * x.k * p.element;
  const double main = std::max({multiplies, copies * std::min(costs, 1.0) / machine.shared_bytes, filled, operands / l2,
                                changes, operands * kLatency / in_flight});
  const double team = x.groups() / (x.in_turn ? 2.0 : 1.0), work = p.result_work + (staged ? 3.7 : 9.9);
  // Blocks that share a tile put their sums in shared memory, wait for each other, and add up a part each.
  const double met = cluster > 1 ? results * (8 / machine.shared_bytes + 4.0 * (cluster - 1) / cluster / kOtherBlocks) +
                                       cluster * kMeet
                     : sharing.grid > 1 ? results * 8 * (sharers - 1) / sharers / kParts + kCount
                                        : 0;
  const double stored = results * work / sharers / (128 * std::min(kWarpIssue * team, kMostIssue)) + met;
  const double all = (p.m * p.k / p.reuse * p.a.bytes + p.n * p.k * p.b.bytes) * p.batch / tiles + moved;
  const double shared =
      std::max({(costs * copies + passes) / machine.shared_bytes, (operands + moved) / l2, all / kMemory});
  const double started = kLaunch + kThread * x.threads();
  // What comes behind the products of the only tile is hidden by nothing. Where that gains little, other ways are better known.
  if (sharing.grid > 1) return kDoubt * (rounds * (std::max(main, shared) + stored + kGap) + started);
  const double residents = x.in_turn ? 2 : std::min<double>(blocks_by_registers(x, p.element, false), rounds);
  const double busy = std::max({main, shared, (main + stored + kGap) / residents});
  return rounds * busy + std::max(main + stored - busy, 0.0) + started;
}

}  // namespace

double estimated_cycles(const MmaProblem& p, const MmaMachine& machine, const MmaTile& tile, Sharing sharing) {
  if (tile.row_teams > 0) return rows_cycles(p, machine, tile);
  const MmaTile x = completed(p, machine, tile, sharing);
  if (tile.boxes) return box_cycles(p, machine, x, sharing);
  const int cluster = sharing.cluster;
  const double tiles = tiles_of(p, x);
  const double blocks = std::ceil(tiles * cluster / machine.sms);  // on that SM
  const double k = std::ceil(p.k / cluster / x.k) * x.k;
  const int stage = mma_stage_bytes(x, p.a_along_k, p.b_along_k, p.element);
  const int shared = std::max((x.warpgroups ? x.stages : 3) * stage, mma_result_bytes(x, p.out_along_m));
  const double residents = std::clamp(machine.shared_limit / shared, 1, blocks_by_registers(x, p.element, p.window));
  const double together = std::min(blocks, residents), warps = x.threads() / 32.0;
  // Fewer warps wait for each other; products of a warpgroup run by themselves.
  const double busy = x.warpgroups ? 1.0 : std::min(1.0, std::min(together * warps, 16.0) / 10.0);
  const double multiplies = x.m * x.n * k / ((x.warpgroups ? machine.group_multiplies : machine.multiplies) * busy);
  const double rows = x.warpgroups ? 64 : x.warp_m, reads = x.m * x.n * (1.0 / rows + 1.0 / x.warp_n);
  const double fragments = (reads + x.m + x.n) * k * p.element / machine.shared_bytes;
  const double memory = (x.m * p.a.bytes + x.n * p.b.bytes) * k / machine.l2_bytes;
  const double gathers = (x.m * p.a.gather + x.n * p.b.gather) * k;
  const double results = x.m * x.n * std::max(p.result_access / machine.memory_bytes, p.result_work / 90) / cluster +
                         (cluster > 1 ? x.m * x.n / 4 : 0) + (x.warpgroups ? x.m * x.n * 8 / machine.shared_bytes : 0);
  // Threads that copy reach about 420 TFLOP/s where boxes of whole steps reach 640.
  const double work = std::max({multiplies * (x.warpgroups && p.partial_steps == 0 ? 1.3 : 1.0), fragments, memory});
  // The warps of a block are in step: one gathers, multiplies or stores while another does the same. Another block of the
  // SM fills the gaps; a warpgroup's product runs beside its gathers, but for the wait at the end of a step.
  const double gaps = x.warpgroups ? (x.overlap ? 40 : 120) * k / x.k : 0;
  const double main = together > 1   ? std::max(work, gathers) + 0.3 * std::min(work, gathers)
                      : x.warpgroups ? std::max(work, gathers) + gaps
                                     : work + gathers;
  const double fill = 800 + stage / 20.0;
  const double overlapped = std::max(std::max(main, results), (main + fill + results) / together);
  const double latency = 1500 + fill + 60 * k / x.k + (cluster > 1 ? 1500 : 0) + 150 * x.k_warps;
  return blocks * overlapped + latency;
}

}  // namespace ingot
