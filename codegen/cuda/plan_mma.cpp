// Plans of contractions on tensor cores: the unit by the operands' types, the tile by an estimate of its time from the
// multiplications, the bytes, the gathers and the waves, and how k is shared where there are too few tiles for all SMs.
#include <algorithm>
#include <cmath>
#include <unordered_map>
#include <vector>

#include "codegen/cuda/plan_cuda.h"
#include "codegen/text/c_printer.h"
#include "compiler/expr/simplify.h"

namespace ingot {

namespace {

constexpr int64_t kGuess = 512;  // of an extent that is no function of the dims
// Extents known at run time only: the two tiles are for dims of 1, and of 64 or what makes a few waves of large tiles.
constexpr int64_t kSmallDim = 1, kLargeDim = 64, kLargestDim = 4096;
constexpr int kTableBytes = 16;  // of an entry: up to four 32-bit indices
constexpr double kManyResults = 4 << 20;

struct MmaCandidate {
  int tile_m, tile_n, warp_m, warp_n, k_warps;
};
constexpr MmaCandidate kCandidates[] = {
    {128, 128, 64, 32, 1}, {64, 256, 64, 32, 1}, {256, 64, 64, 32, 1}, {128, 64, 64, 32, 1}, {64, 128, 64, 32, 1},
    {128, 64, 32, 32, 1},  {64, 128, 32, 32, 1}, {64, 64, 32, 32, 1},  {64, 64, 32, 32, 2},  {64, 32, 32, 32, 2},
    {32, 64, 32, 32, 2},   {64, 32, 32, 32, 4},  {32, 64, 32, 32, 4},  {32, 32, 32, 32, 4},  {32, 32, 32, 32, 8},
};
// 16-bit operands only: there the larger tile of a warp is worth its registers.
constexpr MmaCandidate kWideCandidates[] = {{128, 256, 64, 64, 1}, {256, 128, 64, 64, 1}, {128, 128, 64, 64, 1}};

/// What the estimate knows about one operand.
struct OperandCost {
  double bytes = 4, gather = 0;  // of an element: in memory, and cycles of one SM to fetch it
};

/// Numbers of one SM, in a cycle.
struct Machine {
  double sms = 132, multiplies = 1000, shared_bytes = 128, l2_bytes = 40, memory_bytes = 18;
  bool clusters = false;
};

struct Problem {
  double m = 1, n = 1, k = 1, batch = 1;
  OperandCost a, b;
  double result_bytes = 4;  // of one result: what the epilogue loads and stores
  int element = 4, shared_limit = 0;
  bool a_along_k = true, b_along_k = true, out_along_m = false, window = false;
};

int step_of(const Problem& p, const MmaCandidate& x) { return (p.element == 2 ? 32 : 16) * x.k_warps; }
int row_bytes(bool along_k, int tile, int tile_k, int element) {
  return along_k ? tile * (tile_k * element + 16) : tile_k * (tile * element + (element == 2 ? 16 : 32));
}
int result_bytes(int tile_m, int tile_n, bool along_m) {
  return along_m ? tile_n * (tile_m + 4) * 4 : tile_m * (tile_n + 8) * 4;
}

int stage_bytes(const Problem& p, int tile_m, int tile_n, int tile_k) {
  return row_bytes(p.a_along_k, tile_m, tile_k, p.element) + row_bytes(p.b_along_k, tile_n, tile_k, p.element);
}
bool fits(const Problem& p, const MmaCandidate& x) {
  return std::max(2 * stage_bytes(p, x.tile_m, x.tile_n, step_of(p, x)),
                  result_bytes(x.tile_m, x.tile_n, p.out_along_m)) <= p.shared_limit;
}

int threads_of(const MmaCandidate& x) { return x.tile_m / x.warp_m * (x.tile_n / x.warp_n) * x.k_warps * 32; }

/// Blocks that registers allow on one SM; more than 1 is asked of the compiler (__launch_bounds__).
int blocks_by_registers(int element, bool window, int warp_results, int threads) {
  const int registers = element == 4 ? warp_results / 16 + (window ? 128 : 64) : warp_results / 32 + 80;
  return std::clamp(65536 / (registers * threads), 1, 2);
}
double residents(const Problem& p, const MmaCandidate& x) {
  const int shared =
      std::max(3 * stage_bytes(p, x.tile_m, x.tile_n, step_of(p, x)), result_bytes(x.tile_m, x.tile_n, p.out_along_m));
  return std::clamp(p.shared_limit / shared, 1,
                    blocks_by_registers(p.element, p.window, x.warp_m * x.warp_n, threads_of(x)));
}

/// Cycles of the busiest SM.
double estimated_cycles(const Problem& p, const Machine& machine, const MmaCandidate& x, int cluster) {
  const double tiles = std::ceil(p.m / x.tile_m) * std::ceil(p.n / x.tile_n) * p.batch;
  const double blocks = std::ceil(tiles * cluster / machine.sms);  // on that SM
  const double tile_k = step_of(p, x), k = std::ceil(p.k / cluster / tile_k) * tile_k;
  const double together = std::min(blocks, residents(p, x)), warps = threads_of(x) / 32.0;
  const double busy = std::min(1.0, std::min(together * warps, 16.0) / 10.0);  // fewer warps wait for each other
  const double multiplies = x.tile_m * x.tile_n * k / (machine.multiplies * busy);
  const double reads = x.tile_m * x.tile_n * (1.0 / x.warp_m + 1.0 / x.warp_n), writes = x.tile_m + x.tile_n;
  const double fragments = (reads + writes) * k * p.element / machine.shared_bytes;
  const double memory = (x.tile_m * p.a.bytes + x.tile_n * p.b.bytes) * k / machine.l2_bytes;
  const double gathers = (x.tile_m * p.a.gather + x.tile_n * p.b.gather) * k;
  const double results = x.tile_m * x.tile_n * p.result_bytes / machine.memory_bytes / cluster +
                         (cluster > 1 ? x.tile_m * x.tile_n / 16.0 : 0);
  // The warps of a block are in step: one gathers, multiplies or stores while another does the same. Another block of the
  // SM fills the gaps.
  const double work = std::max({multiplies, fragments, memory});
  const double main = together > 1 ? std::max(work, gathers) + 0.3 * std::min(work, gathers) : work + gathers;
  const double fill = 800 + stage_bytes(p, x.tile_m, x.tile_n, step_of(p, x)) / 20.0;
  const double overlapped = std::max(std::max(main, results), (main + fill + results) / together);
  const double latency = 1500 + fill + 60 * k / tile_k + (cluster > 1 ? 1500 : 0) + 150 * x.k_warps;
  return blocks * overlapped + latency;
}

double bytes_of(const Kernel& kernel, const Body& body) {
  double bytes = 0;
  each_access(body, [&](int buffer, const Expr&, bool) {
    if (buffer < static_cast<int>(kernel.buffers.size()))
      bytes += static_cast<double>(size_of(kernel.buffers[static_cast<size_t>(buffer)].type));
  });
  return std::max(bytes, 1.0);
}
OperandCost cost_of(const Kernel& kernel, const Expr& value, int vector, bool raw) {
  OperandCost cost;
  cost.bytes = bytes_of(kernel, as_body(value));
  // About 15 instructions for an access, 128 in a cycle; arithmetic on top where there is any.
  cost.gather = (15.0 / vector + (raw ? 0 : static_cast<double>(count_flops(value)))) / 128.0;
  return cost;
}

int vector_along(const Kernel& kernel, const Expr& value, const Axis* inner, int most) {
  return inner ? widest_vector(kernel, as_body(value), inner->var, inner->extent, most) : 1;
}

struct OperandForm {
  int vector = 1;
  bool raw = false;
};
OperandForm operand_form(const Kernel& kernel, const Expr& value, const Axis* inner, DType element) {
  OperandForm form;
  const int most = 16 / static_cast<int>(size_of(element));
  form.vector = vector_along(kernel, value, inner, most);
  const auto access = raw_access(kernel, value, element);
  form.raw = access.has_value();
  if (access && access->guard.valid() && inner && depends_on(access->guard, inner->var.name())) form.vector = 1;
  return form;
}

/// Elements of a window: their place along k is a channel, a row and a column, and costs divisions and registers.
int k_axes_of(const Contract& c, const Expr& value) {
  const OperandView view = view_of(c, value);
  int axes = 0;
  for (const Axis& a : view.k) axes += depends_on(view.value, a.var.name()) && !a.extent.is_const(1);
  return axes;
}
bool has_window(const Contract& c) { return k_axes_of(c, c.a) > 1 || k_axes_of(c, c.b) > 1; }
bool needs_table(const Kernel& kernel, const Expr& value, bool along_k) {
  const int axes = k_axes_of(*kernel.contract(), value);
  return !along_k && axes > 1 && axes <= kTableBytes / 4 && fits_i32(kernel);
}

Machine machine_of(const TargetTraits& target, MultiplyUnit unit) {
  Machine m;
  m.sms = target.parallel_units;
  const int cc = target.compute_capability;
  // What mma.sync reaches; consumer chips have half the units of a data-centre one.
  const double f16 = cc == 80 || cc == 90 || cc == 100 ? 1000 : 500;
  m.multiplies = unit == MultiplyUnit::Tf32x3 ? f16 / 6 : f16;
  m.clusters = cc >= 90;
  return m;
}

int stages_for(const Problem& p, const Schedule& s) {
  const int limit = std::min(p.shared_limit, 100 << 10);  // two blocks on a large SM
  return std::clamp(limit / stage_bytes(p, s.tile_m, s.tile_n, s.tile_k), 2, 4);
}

}  // namespace

DType element_of(MultiplyUnit unit) {
  switch (unit) {
    case MultiplyUnit::F16: return DType::F16;
    case MultiplyUnit::BF16: return DType::BF16;
    default: return DType::F32;
  }
}

MultiplyUnit multiply_unit(const Contract& c, const TargetTraits& target) {
  const auto fits = [](DType t) { return t == DType::F32 || t == DType::F16 || t == DType::BF16; };
  if (c.acc.type() != DType::F32 || !fits(c.a_type) || !fits(c.b_type)) return MultiplyUnit::Simt;
  if (c.a_type == DType::F16 && c.b_type == DType::F16) return MultiplyUnit::F16;
  if (target.compute_capability < 80) return MultiplyUnit::Simt;
  return c.a_type == DType::BF16 && c.b_type == DType::BF16 ? MultiplyUnit::BF16 : MultiplyUnit::Tf32x3;
}

void mma_details(const Kernel& kernel, const Schedule& s, TileDetails& d) {
  const Contract& c = *kernel.contract();
  const DType element = element_of(s.unit);
  const OperandView view_a = view_of(c, c.a), view_b = view_of(c, c.b);
  const OperandForm a = operand_form(kernel, view_a.value, inner_axis(d.a_along_k ? view_a.k : c.m), element);
  const OperandForm b = operand_form(kernel, view_b.value, inner_axis(d.b_along_k ? view_b.k : c.n), element);
  d.a_vector = a.vector;
  d.b_vector = b.vector;
  d.a_raw = a.raw;
  d.b_raw = b.raw;
  d.a_table = needs_table(kernel, c.a, d.a_along_k);
  d.b_table = needs_table(kernel, c.b, d.b_along_k);
  const int warp_results = std::max(s.warp_m * s.warp_n, s.large_warp_m * s.large_warp_n);
  const bool window = has_window(c) || (element == DType::F32 && !(d.a_raw && d.b_raw));
  d.blocks_per_sm = blocks_by_registers(static_cast<int>(size_of(element)), window, warp_results, s.threads);
  const Axis* out = inner_axis(d.out_along_m ? c.m : c.n);
  d.e_vector = out ? widest_vector(kernel, c.epilogue, out->var, out->extent, 8) : 1;
  const int size = static_cast<int>(size_of(element));
  const auto shared_of = [&](const Schedule& t) {
    const int stage =
        row_bytes(d.a_along_k, t.tile_m, t.tile_k, size) + row_bytes(d.b_along_k, t.tile_n, t.tile_k, size);
    const int tables = (d.a_table + d.b_table) * t.stages * t.tile_k * kTableBytes;
    return std::max(t.stages * stage + tables, result_bytes(t.tile_m, t.tile_n, d.out_along_m));
  };
  d.shared_bytes = shared_of(s);
  if (s.large_from) d.shared_bytes = std::max(d.shared_bytes, shared_of(large_schedule(s)));
}

namespace {

/// The product of the extents where each dim has the given value, or what is nearest to it in its range.
double count_at(const Kernel& kernel, const std::vector<Axis>& axes, int64_t dim) {
  std::unordered_map<std::string, int64_t> values;
  for (const Expr& d : kernel.dims) values[d.name()] = std::clamp(dim, d.low(), d.high());
  const Expr total = total_of(axes);
  return static_cast<double>(std::max<int64_t>(evaluate_int(total, values).value_or(estimate(total, kGuess)), 1));
}

void set_extents(Problem& p, const Kernel& kernel, int64_t dim) {
  const Contract& c = *kernel.contract();
  p.m = count_at(kernel, c.m, dim);
  p.n = count_at(kernel, c.n, dim);
  p.k = count_at(kernel, c.k, dim);
  p.batch = count_at(kernel, c.batch, dim);
}

struct Choice {
  MmaCandidate tile{};
  int cluster = 1;
  double cycles = 0;  // 0: none
};
/// The best tile, of so many threads (0: of any).
Choice choose(const Problem& p, const Machine& machine, const std::vector<MmaCandidate>& candidates, int threads,
              bool clusters) {
  Choice best;
  for (const MmaCandidate& x : candidates) {
    if (p.window && x.warp_m * x.warp_n > 64 * 32) continue;  // no registers left for the gathers
    if (!fits(p, x) || (threads && threads_of(x) != threads)) continue;
    for (int cluster = 1; cluster <= (clusters ? 8 : 1); cluster *= 2) {
      // Where there are tiles enough, sharing k only costs; a block needs some steps of its own.
      const double tiles = std::ceil(p.m / x.tile_m) * std::ceil(p.n / x.tile_n) * p.batch;
      if (cluster > 1 && (tiles * cluster > 0.97 * machine.sms || p.k < cluster * 2.0 * step_of(p, x))) break;
      const double cycles = estimated_cycles(p, machine, x, cluster);
      if (best.cycles == 0 || cycles < best.cycles) best = {x, cluster, cycles};
    }
  }
  return best;
}

void set_tile(Schedule& s, const Problem& p, const Choice& choice) {
  s.tile_m = choice.tile.tile_m;
  s.tile_n = choice.tile.tile_n;
  s.tile_k = step_of(p, choice.tile);
  s.warp_m = choice.tile.warp_m;
  s.warp_n = choice.tile.warp_n;
  s.split_k = choice.tile.k_warps;
  s.cluster_k = choice.cluster;
  s.threads = threads_of(choice.tile);
  s.stages = stages_for(p, s);
}

bool same(const Choice& a, const Choice& b) {
  return a.tile.tile_m == b.tile.tile_m && a.tile.tile_n == b.tile.tile_n && a.tile.k_warps == b.tile.k_warps &&
         a.cluster == b.cluster;
}

/// Two tiles of as many threads each, and from where on the larger one is faster.
void plan_two(const Kernel& kernel, const Machine& machine, const std::vector<MmaCandidate>& candidates, Problem p,
              Schedule& s) {
  Problem large = p;
  set_extents(p, kernel, kSmallDim);
  int64_t many = kLargeDim;
  for (set_extents(large, kernel, many); many < kLargestDim && large.m * large.n * large.batch < kManyResults;
       many *= 2)
    set_extents(large, kernel, many * 2);
  const double best_small = choose(p, machine, candidates, 0, machine.clusters).cycles;
  const double best_large = choose(large, machine, candidates, 0, false).cycles;
  Choice a, b;
  double least = 0;
  for (int threads : {128, 256}) {
    const Choice x = choose(p, machine, candidates, threads, machine.clusters);
    const Choice y = choose(large, machine, candidates, threads, false);
    if (x.cycles == 0 || y.cycles == 0) continue;
    const double loss = x.cycles / best_small + y.cycles / best_large;
    if (least != 0 && loss >= least) continue;
    least = loss;
    a = x;
    b = y;
  }
  Schedule second = s;
  set_tile(second, large, b);
  set_tile(s, p, a);
  if (same(a, b)) return;
  for (int64_t dim = kSmallDim; dim <= many; ++dim) {
    Problem q = p;
    set_extents(q, kernel, dim);
    if (dim < many && estimated_cycles(q, machine, b.tile, 1) >= estimated_cycles(q, machine, a.tile, a.cluster))
      continue;
    s.large_from = static_cast<int64_t>(q.m * q.n * q.batch);
    break;
  }
  s.large_m = second.tile_m;
  s.large_n = second.tile_n;
  s.large_k = second.tile_k;
  s.large_warp_m = second.warp_m;
  s.large_warp_n = second.warp_n;
  s.large_split_k = second.split_k;
  s.large_stages = second.stages;
}

bool is_known(const std::vector<Axis>& axes) { return total_of(axes).as_int().has_value(); }

}  // namespace

Schedule large_schedule(const Schedule& schedule) {
  Schedule s = schedule;
  s.tile_m = s.large_m;
  s.tile_n = s.large_n;
  s.tile_k = s.large_k;
  s.warp_m = s.large_warp_m;
  s.warp_n = s.large_warp_n;
  s.split_k = s.large_split_k;
  s.stages = s.large_stages;
  s.cluster_k = 1;
  s.large_from = 0;
  return s;
}

void plan_mma(const Kernel& kernel, const TargetTraits& target, Schedule& s) {
  const Contract& c = *kernel.contract();
  const Machine machine = machine_of(target, s.unit);
  const TileDetails d = tile_details(kernel, s);
  Problem p;
  p.element = static_cast<int>(size_of(element_of(s.unit)));
  p.shared_limit = target.shared_bytes;
  p.a_along_k = d.a_along_k;
  p.b_along_k = d.b_along_k;
  p.out_along_m = d.out_along_m;
  p.result_bytes = bytes_of(kernel, c.epilogue);
  p.window = has_window(c);
  p.a = cost_of(kernel, c.a, d.a_vector, d.a_raw);
  p.b = cost_of(kernel, c.b, d.b_vector, d.b_raw);
  std::vector<MmaCandidate> candidates(std::begin(kCandidates), std::end(kCandidates));
  if (p.element == 2 && target.compute_capability >= 80)
    candidates.insert(candidates.end(), std::begin(kWideCandidates), std::end(kWideCandidates));
  if (!is_known(c.m) || !is_known(c.n) || !is_known(c.batch)) return plan_two(kernel, machine, candidates, p, s);
  set_extents(p, kernel, kLargeDim);
  set_tile(s, p, choose(p, machine, candidates, 0, machine.clusters));
}

}  // namespace ingot
