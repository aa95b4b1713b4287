// Plans of contractions: tile shapes by waves and reuse, and how operands and results lie in memory.
#include <algorithm>
#include <cmath>

#include "codegen/cuda/plan_cuda.h"
#include "codegen/text/c_printer.h"
#include "compiler/expr/simplify.h"

namespace ingot {

namespace {

constexpr int64_t kGuess = 512;  // of an extent without a bound

constexpr int64_t kRun = 64;  // elements that lie side by side: more of them gain nothing

/// Length of the run that consecutive threads read along `axis`: its extent, as far as it matters, over the stride of the
/// access.
double run_length(const Body& body, const Axis* axis, bool stores) {
  if (!axis) return 0;
  double best = 0;
  each_access(body, [&](int, const Expr& index, bool is_store) {
    if (is_store != stores) return;
    const auto coefficient = linear_coefficient(index, axis->var.name());
    const auto stride = coefficient ? coefficient->as_int() : std::nullopt;
    if (!stride || *stride == 0) return;
    best = std::max(best, static_cast<double>(std::min(estimate(axis->extent, kGuess), kRun)) /
                              static_cast<double>(std::abs(*stride)));
  });
  return best;
}

int operand_vector(const Kernel& kernel, const Expr& value, const Axis* inner, int most) {
  return inner ? widest_vector(kernel, as_body(value), inner->var, inner->extent, most) : 1;
}

struct Candidate {
  int tile_m, tile_n, thread_m, thread_n;
  double efficiency;
};
constexpr Candidate kCandidates[] = {
    {128, 128, 8, 8, 1.0}, {128, 64, 8, 4, 0.85}, {64, 128, 4, 8, 0.85}, {64, 64, 4, 4, 0.7}, {128, 32, 8, 4, 0.6},
    {32, 128, 4, 8, 0.6},  {64, 32, 4, 4, 0.5},   {32, 64, 4, 4, 0.5},   {32, 32, 4, 4, 0.4},
};

bool is_thin(const std::vector<Axis>& axes) { return estimate(total_of(axes), kThinLimit + 1) <= kThinLimit; }

void plan_skinny(const Kernel& kernel, const Contract& c, const TargetTraits& target, Schedule& s) {
  const bool thin_is_m = is_thin(c.m) && (!is_thin(c.n) || estimate(total_of(c.m), 1) <= estimate(total_of(c.n), 1));
  const std::vector<Axis>&thin_axes = thin_is_m ? c.m : c.n, &wide_axes = thin_is_m ? c.n : c.m;
  const Expr& wide = thin_is_m ? c.b : c.a;
  const int thin = static_cast<int>(std::max<int64_t>(estimate(total_of(thin_axes), kThinLimit), 1));
  const int64_t k = estimate(total_of(c.k), kGuess), count = estimate(total_of(wide_axes), kGuess);
  const bool along_k =
      run_length(as_body(wide), inner_axis(c.k), false) >= run_length(as_body(wide), inner_axis(wide_axes), false);
  int columns = 1;
  s.thread_m = s.thread_n = 0;
  s.stages = 1;
  s.threads = 256;
  if (along_k) {
    s.vector = operand_vector(kernel, wide, inner_axis(c.k), thin > 4 ? 4 : 8);
    if (count >= static_cast<int64_t>(target.parallel_units) * 64 && thin <= 4) columns = 2;
    const int64_t warps = count / columns, wanted = static_cast<int64_t>(target.parallel_units) * 16;
    s.split_k = 1;
    while (s.split_k < 8 && warps * s.split_k < wanted && k >= int64_t{s.split_k} * 2 * 32 * s.vector) s.split_k *= 2;
  } else {
    s.vector = operand_vector(kernel, wide, inner_axis(wide_axes), 4);
    while (s.vector > 1 && count / (32 * s.vector) < target.parallel_units) s.vector /= 2;
    s.split_k = s.threads / 32;
  }
  s.tile_m = thin_is_m ? thin : columns;
  s.tile_n = thin_is_m ? columns : thin;
}

int accumulator_bytes(const Contract& c) { return static_cast<int>(size_of(c.acc.type())); }

/// The operand's vector must divide what a thread fetches of a tile.
int fit_vector(int vector, int tile, const Schedule& s) {
  while (vector > 1 && (tile * s.tile_k) % (s.threads * vector) != 0) vector /= 2;
  return vector;
}

}  // namespace

Body as_body(const Expr& value) {
  Body body;
  body.push_back({Let{Expr::local("value", value.type()), value}});
  return body;
}

/// Tiles of plain arithmetic.
static std::vector<RankedPlan> rank_plain(const Kernel& kernel, const TargetTraits& target, Schedule s,
                                          const DimValues& at) {
  const Contract& c = *kernel.contract();
  const auto count = [&](const std::vector<Axis>& axes, int64_t guess) {
    const Expr total = total_of(axes);
    return static_cast<double>(evaluate_int(total, at).value_or(estimate(total, guess)));
  };
  const double m = count(c.m, kGuess), n = count(c.n, kGuess), batch = count(c.batch, 16);
  std::vector<RankedPlan> plans;
  for (const Candidate& x : kCandidates) {
    if (accumulator_bytes(c) == 8 && x.thread_m * x.thread_n > 32) continue;  // registers
    if (target.compute_capability < 80 && x.thread_m * x.thread_n > 32) continue;  // they do not suffice there
    const double tiles = std::ceil(m / x.tile_m) * std::ceil(n / x.tile_n) * batch;
    const double waves = std::ceil(tiles / target.parallel_units);
    s.tile_m = x.tile_m;
    s.tile_n = x.tile_n;
    s.thread_m = x.thread_m;
    s.thread_n = x.thread_n;
    s.threads = s.tile_m / s.thread_m * (s.tile_n / s.thread_n);
    s.tile_k = 16;
    s.stages = 2;
    plans.push_back({s, waves * x.tile_m * x.tile_n / x.efficiency});
  }
  return plans;
}

/// The schedule of a skinny product, and beside it those with fewer and more warps that share a sum.
static std::vector<RankedPlan> rank_skinny(const Kernel& kernel, const TargetTraits& target, Schedule s) {
  const Contract& c = *kernel.contract();
  plan_skinny(kernel, c, target, s);
  std::vector<RankedPlan> plans{{s, 0}};
  const TileDetails d = tile_details(kernel, s);
  const auto k = total_of(c.k).as_int();
  if (!k || !(d.thin_is_m ? d.b_along_k : d.a_along_k)) return plans;  // all warps share
  for (int split = 1; split <= 8; split *= 2) {
    Schedule other = s;
    other.split_k = split;
    if (split != s.split_k && *k >= int64_t{split} * 32 * s.vector)
      plans.push_back({other, 1.0 + std::abs(split - s.split_k)});
  }
  return plans;
}

/// Products with a few rows or columns, whose operand is read once. Where its rows are not along k, boxes bring more at a time.
static bool is_skinny(const Kernel& kernel, const TargetTraits& target) {
  const Contract& c = *kernel.contract();
  if (!c.group.empty() || c.parts.width > 0 || (!is_thin(c.m) && !is_thin(c.n))) return false;
  const DType element = element_of(multiply_unit(kernel, target));
  const bool boxes =
      target.compute_capability == 90 && size_of(element) == 2 && is_thin(c.m) && takes_boxes(kernel, element);
  return !boxes || tile_details(kernel, {}).b_along_k;
}

std::vector<RankedPlan> rank_tiles(const Kernel& kernel, const TargetTraits& target, const DimValues& at) {
  Schedule s;
  s.kind = Schedule::Kind::Tiles;
  if (is_skinny(kernel, target)) return rank_skinny(kernel, target, s);
  s.unit = multiply_unit(kernel, target);
  return s.unit == MultiplyUnit::Simt ? rank_plain(kernel, target, s, at) : rank_mma(kernel, target, s, at);
}

std::vector<Schedule> plan_tiles(const Kernel& kernel, const TargetTraits& target) {
  const Contract& c = *kernel.contract();
  Schedule s;
  s.kind = Schedule::Kind::Tiles;
  if (is_skinny(kernel, target)) {
    plan_skinny(kernel, c, target, s);
    return {s};
  }
  s.unit = multiply_unit(kernel, target);
  if (s.unit != MultiplyUnit::Simt) return plan_mma(kernel, target, s);
  RankedPlan best;
  for (const RankedPlan& x : rank_plain(kernel, target, s, {}))
    if (best.cycles == 0 || x.cycles < best.cycles) best = x;
  return {best.schedule};
}

TileDetails tile_details(const Kernel& kernel, const Schedule& s) {
  const Contract& c = *kernel.contract();
  TileDetails d;
  d.a_along_k = run_length(as_body(c.a), inner_axis(c.k), false) >= run_length(as_body(c.a), inner_axis(c.m), false);
  d.b_along_k = run_length(as_body(c.b), inner_axis(c.k), false) >= run_length(as_body(c.b), inner_axis(c.n), false);
  d.out_along_m = run_length(c.epilogue, inner_axis(c.m), true) > run_length(c.epilogue, inner_axis(c.n), true);
  const int bytes = accumulator_bytes(c);
  if (s.thread_m == 0) {
    d.skinny = true;
    const int64_t m = estimate(total_of(c.m), kThinLimit + 1);
    d.thin_is_m = m <= s.tile_m;
    d.thin = d.thin_is_m ? s.tile_m : s.tile_n;
    d.columns = d.thin_is_m ? s.tile_n : s.tile_m;
    bool& wide_along_k = d.thin_is_m ? d.b_along_k : d.a_along_k;
    bool& thin_along_k = d.thin_is_m ? d.a_along_k : d.b_along_k;
    thin_along_k = true;
    (d.thin_is_m ? d.b_vector : d.a_vector) = s.vector;
    (d.thin_is_m ? d.a_vector : d.b_vector) = wide_along_k ? s.vector : 1;
    d.shared_bytes =
        wide_along_k ? (s.split_k > 1 ? s.threads * bytes : 0) : s.split_k * d.thin * 32 * s.vector * bytes;
    return d;
  }
  if (s.unit != MultiplyUnit::Simt) {
    mma_details(kernel, s, d);
    return d;
  }
  const Axis *a_inner = inner_axis(d.a_along_k ? c.k : c.m), *b_inner = inner_axis(d.b_along_k ? c.k : c.n);
  d.a_vector = fit_vector(operand_vector(kernel, c.a, a_inner, 4), s.tile_m, s);
  d.b_vector = fit_vector(operand_vector(kernel, c.b, b_inner, 4), s.tile_n, s);
  const int pad = 16 / bytes;
  const int stages = 2 * s.tile_k * (s.tile_m + pad + s.tile_n + pad) * bytes;
  const int across_m = s.tile_m / s.thread_m, across_n = s.tile_n / s.thread_n;
  const int finish = (d.out_along_m ? across_n * (s.tile_m + pad) : across_m * (s.tile_n + pad)) * bytes;
  d.shared_bytes = std::max(stages, finish);
  return d;
}

}  // namespace ingot
