// Attention with few queries, as when a model writes one token after the other: there the keys are what is divided, among the
// warps of a block and the blocks of a cluster (prelude/attention.cuh), and heads that share keys and values are rows of one
// tile, so that both are read once.
#include <algorithm>
#include <cmath>
#include <cstdlib>

#include <fmt/format.h>

#include "codegen/cuda/mma_cost.h"
#include "codegen/cuda/plan_cuda.h"
#include "codegen/lower/kernel_walk.h"
#include "compiler/expr/simplify.h"

namespace ingot {

namespace {

constexpr int64_t kMostHeads = 128;  // of an axis that is looked at for heads that share their keys
constexpr int64_t kManyKeys = 4096;  // where nothing is known of their number
constexpr int64_t kFewRows = 64;  // of a kernel with forms for few rows and for many

/// Which of the batch axes has heads in groups of `share` that see the same keys and values.
struct SharedHeads {
  size_t axis = 0;
  int64_t share = 1;
};

Expr split_axis(const Axis& a, int64_t share, Axis& outer, Axis& inner) {
  const Expr count = *a.extent.as_int() / share;
  outer = {Expr::index(a.var.name() + "_group", count), count};
  inner = {Expr::index(a.var.name() + "_member", share), Expr(share)};
  return outer.var * share + inner.var;
}

SharedHeads find_shared_heads(const Attend& t) {
  for (size_t i = 0; i < t.batch.size(); ++i) {
    const Axis& a = t.batch[i];
    const int64_t heads = a.extent.as_int().value_or(0);
    if (heads > kMostHeads) continue;
    for (int64_t share = heads; share > 1; --share) {
      if (heads % share != 0) continue;
      Axis outer, inner;
      const Bindings bindings{{a.var.name(), split_axis(a, share, outer, inner)}};
      const auto tells_apart = [&](const Expr& e) {
        return depends_on(simplify(substitute(e, bindings)), inner.var.name());
      };
      if (!tells_apart(t.key) && !tells_apart(t.value)) return {i, share};
    }
  }
  return {};
}

Expr rows_of(const Kernel& kernel) {
  const Attend& t = *kernel.attend();
  return simplify(total_of(t.m) * find_shared_heads(t).share);
}

double count(const std::vector<Axis>& axes, const DimValues& at, int64_t otherwise) {
  const Expr total = total_of(axes);
  return static_cast<double>(evaluate_int(total, at).value_or(estimate(total, otherwise)));
}

/// Sizes of an attention with few queries.
struct FewQueries {
  double rows, n, batch, head, columns;
  int size;  // bytes of an element in shared memory
};

/// Instructions of a warp for a step: copies, loads of fragments and products, weights, and the scale of earlier results.
double instructions(const FewQueries& p, const MmaTile& t) {
  const double keys = static_cast<double>(t.n) / t.k_warps, depth = 32.0 / p.size;  // k of a product by tensor cores
  const double products = p.size == 4 ? 9 : 1;  // three, of operands that are split
  const double copies = t.n * (p.head + p.columns) * p.size / 16 / t.threads();
  const double multiply =
      p.head / depth * (1 + keys / 8 * (0.5 + products)) + keys / depth * p.columns / 8 * (0.5 + products);
  return 8 * copies + multiply + 4.5 * keys + p.columns / 2 + 80;
}

/// Cycles of the busiest SM. What it can have is bounded by what is on its way: memory is some 1200 cycles off.
double estimated_cycles_by_copies(const FewQueries& p, const TargetTraits& target, const MmaMachine& machine,
                                  const MmaTile& t, int cluster, int block_bytes) {
  constexpr double kAlone = 2.5;  // cycles between instructions of a warp
  const double tiles = std::ceil(p.rows / t.m) * p.batch, blocks = tiles * cluster;
  const double steps = std::ceil(p.n / (t.n * cluster)), bytes = t.n * (p.head + p.columns) * p.size;
  const double registers = 80 + p.columns / 2 + t.n / t.k_warps / 2.0;
  const double by_registers = std::floor(65536 / (t.threads() * registers));
  const double residents =
      std::max(1.0, std::min(by_registers, std::floor((target.shared_bytes + 1024.0) / (block_bytes + 1024))));
  const double busiest = std::ceil(blocks / machine.sms), together = std::min(residents, busiest);
  const double ahead = together * std::min(t.stages - 1.5, steps) * bytes;  // half a stage is being multiplied
  // An SM takes up to 32 bytes a cycle; all together, what memory gives.
  const double share = machine.memory_bytes * machine.sms / std::min(blocks, machine.sms);
  const double rate = std::min({32.0, ahead / 1200, share});
  const double work = instructions(p, t) * std::max(kAlone, together * t.threads() / 128) + 150;
  const double step = std::max(together * bytes / rate, work) + work / 8;  // neither hides the other entirely
  // Where several blocks have place on an SM, those of the next kernel take some of it early, and the rest is filled unevenly.
  const double uneven = together > 1 ? 1.1 : 1.0;
  return std::ceil(busiest / together) * (steps * step * uneven + 1500) + 2500 + (cluster > 1 ? 400 : 0) +
         150.0 * t.k_warps;
}

/// The same where keys and values arrive as boxes. What is on its way is all that the stages hold, and memory under load some 1700
/// cycles off. `alone`: an SM has no place for another block.
double estimated_cycles_by_boxes(const FewQueries& p, const MmaMachine& machine, const MmaTile& t, int cluster,
                                 bool alone) {
  const double tiles = std::ceil(p.rows / t.m) * p.batch, at_once = std::max(1.0, std::floor(machine.sms / cluster));
  const double steps = std::ceil(p.n / (t.n * cluster)), bytes = t.n * (p.head + p.columns) * p.size;
  const double blocks = std::min(tiles, at_once) * cluster, rounds = std::ceil(tiles / at_once);
  const double ahead = std::min(t.stages - 0.5, steps * rounds) * bytes;  // half a stage is being multiplied
  const double share = std::min(45.0, 1.08 * machine.memory_bytes * machine.sms / blocks);
  const double chain = 200 + 25.0 * t.n / t.k_warps;  // of a warp's instructions for a step, which wait for each other
  // Clusters of the next kernel come while these run. Where they cannot have the same SMs, all takes 1.5 times as long (measured):
  // presumably two of them share a part of the chip, and what L2 gives it.
  const bool crowded = cluster > 1 && blocks <= machine.sms / 2 && alone;
  // The longest of the three, and more where another is nearly as long.
  const double longest =
      std::pow(std::pow(bytes / share, 4) + std::pow(bytes * 1700 / ahead, 4) + std::pow(chain, 4), 0.25);
  const double step = longest * (crowded ? 1.5 : 1.0);
  return rounds * (steps * step + 1500) + 2500 + (cluster > 1 ? 400 : 0) + 100.0 * t.k_warps;
}

}  // namespace

bool shares_keys(const Schedule& s) { return s.kind == Schedule::Kind::Attention && s.tile.k_warps > 1; }

Kernel heads_as_rows(Kernel kernel) {
  for (Stmt& stmt : kernel.body) {
    auto* t = std::get_if<Attend>(&stmt.node);
    if (!t) continue;
    const SharedHeads heads = find_shared_heads(*t);
    if (heads.share == 1) continue;
    Axis outer, inner;
    const Axis whole = t->batch[heads.axis];
    const Bindings bindings{{whole.var.name(), split_axis(whole, heads.share, outer, inner)}};
    t->batch[heads.axis] = outer;
    t->m.push_back(inner);
    map_exprs(kernel, [&](const Expr& e) { return simplify(substitute(e, bindings)); });
  }
  return kernel;
}

bool has_few_form(const Kernel& kernel) {
  const Expr rows = rows_of(kernel);
  if (rows.as_int() || bounds_of(rows).low > kFewRows || bounds_of(rows).high <= kFewRows) return false;
  return !proves_less(total_of(kernel.attend()->n), simplify(rows + 1));
}
Expr is_few(const Kernel& kernel) { return le(rows_of(kernel), Expr(kFewRows)); }
bool is_few(const Kernel& kernel, const DimValues& at) {
  return evaluate_int(rows_of(kernel), at).value_or(kFewRows + 1) <= kFewRows;
}

std::vector<RankedPlan> rank_few_queries(const Kernel& given, const TargetTraits& target, const DimValues& at,
                                         Schedule s) {
  const Kernel kernel = heads_as_rows(given);
  const Attend& t = *kernel.attend();
  const MmaMachine machine = mma_machine(target, s.unit);
  const AttentionDetails d = attention_details(kernel, s);
  const FewQueries p{.rows = count(t.m, at, 16),
                     .n = count(t.n, at, kManyKeys),
                     .batch = count(t.batch, at, 64),
                     .head = static_cast<double>(d.head),
                     .columns = static_cast<double>(d.columns),
                     .size = static_cast<int>(size_of(element_of(s.unit)))};
  const char* forced = std::getenv("INGOT_TILE");
  std::vector<RankedPlan> plans;
  const int m = p.rows <= 16 ? 16 : p.rows <= 32 ? 32 : 64;
  const bool boxes = target.compute_capability == 90 && key_rows(kernel, element_of(s.unit));
  s.most_blocks = boxes ? target.parallel_units : 0;
  for (int key_warps : {2, 4, 8}) {
    for (int keys : {16, 32}) {
      if (m / 16 * key_warps > 8 || (d.columns > 128 && keys > 16 && (boxes || p.size == 4))) continue;
      for (int stages = 2; stages <= (boxes ? 6 : 4); ++stages) {
        s.tile = {.m = m,
                  .n = key_warps * keys,
                  .k = d.head,
                  .warp_m = 16,
                  .warp_n = key_warps * keys,
                  .k_warps = key_warps,
                  .stages = stages,
                  .boxes = boxes};
        s.threads = s.tile.threads();
        for (s.cluster_k = 1; s.cluster_k <= (machine.clusters ? 8 : 1); s.cluster_k *= 2) {
          const AttentionDetails form = attention_details(kernel, s);
          if (form.shared_bytes > target.shared_bytes) continue;
          const bool taken =
              forced && fmt::format("{}x{}/{}w{}c{}s", m, s.tile.n, key_warps, s.cluster_k, stages) == forced;
          if (taken) return {{s, 1}};
          const double blocks = std::ceil(p.rows / m) * p.batch * s.cluster_k;
          if (s.cluster_k > 1 && (blocks > 4 * machine.sms || p.n < s.cluster_k * s.tile.n)) break;
          const double cycles =
              boxes ? estimated_cycles_by_boxes(p, machine, s.tile, s.cluster_k, form.blocks_per_sm == 1)
                    : estimated_cycles_by_copies(p, target, machine, s.tile, s.cluster_k, form.shared_bytes);
          plans.push_back({s, cycles});
        }
      }
    }
  }
  return plans;
}

std::vector<Schedule> plan_few_queries(const Kernel& kernel, const TargetTraits& target, const Schedule& s) {
  const Attend& t = *kernel.attend();
  std::vector<Schedule> forms;
  int64_t last = 0;
  for (int64_t batch : {1, 8, 64}) {
    DimValues at;
    const auto set = [&](const std::vector<Axis>& axes, int64_t value) {
      visit(total_of(axes), [&](const Expr& e) {
        if (e.op() == ExprOp::Symbol) at.emplace(e.name(), std::clamp(value, e.low(), e.high()));
      });
    };
    set(t.m, 1);
    set(t.batch, batch);
    set(t.n, kManyKeys);
    const auto plans = rank_few_queries(kernel, target, at, s);
    if (plans.empty()) return {};
    Schedule best = std::min_element(plans.begin(), plans.end(), [](const RankedPlan& a, const RankedPlan& b) {
                      return a.cycles < b.cycles;
                    })->schedule;
    const auto results = static_cast<int64_t>(count(t.m, at, 1) * count(t.batch, at, 1) * count(t.d, at, 1));
    const bool same = !forms.empty() &&
                      (results <= last || (best.tile == forms.back().tile && best.cluster_k == forms.back().cluster_k));
    if (!same) {
      const auto middle = static_cast<int64_t>(std::sqrt(static_cast<double>(last) * static_cast<double>(results))) + 1;
      if (!forms.empty()) forms.back().below = best.from = middle;
      forms.push_back(best);
    }
    last = std::max(last, results);
  }
  return forms;
}

}  // namespace ingot
