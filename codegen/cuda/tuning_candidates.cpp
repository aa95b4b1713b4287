#include "codegen/cuda/tuning_candidates.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>

#include "codegen/cuda/window_form.h"
#include "compiler/expr/simplify.h"

namespace ingot {
namespace {

constexpr double kHopeless = 2.5;  // times the best estimate: the estimate is not that wrong

Schedule without_range(Schedule s) {
  s.from = s.below = 0;
  return s;
}

/// Plans of one structure differ in their numbers only.
int structure_of(const Schedule& s) {
  const MmaTile& t = s.tile;
  if (s.kind != Schedule::Kind::Tiles || s.unit == MultiplyUnit::Simt) return s.tile.boxes + 2 * shares_keys(s) * s.cluster_k;
  const int by = t.row_teams > 0 ? 5 : !t.boxes ? t.warpgroups ? 1 + t.overlap : 0 : t.in_turn ? 3 : 4;
  return by * 3 + (s.cluster_k > 1 ? 1 : t.k_warps > 1 || s.grid_k > 1 ? 2 : 0);
}

std::vector<RankedPlan> ranked(const PlannedKernel& planned, const TargetTraits& target, const DimValues& at) {
  std::vector<RankedPlan> plans;
  if (planned.kernel.contract()) plans = rank_tiles(planned.kernel, target, at);
  else if (planned.kernel.attend()) plans = rank_attention(planned.kernel, target, at);
  else if (planned.forms[0].kind == Schedule::Kind::Window) plans = rank_window(planned.kernel, target, at);
  std::stable_sort(plans.begin(), plans.end(),
                   [](const RankedPlan& a, const RankedPlan& b) { return a.cycles < b.cycles; });
  return plans;
}

/// The products, outputs or points that the forms of this kernel are told apart by.
Expr results_of(const Kernel& kernel) {
  if (const Contract* c = kernel.contract()) return total_of(c->m) * total_of(c->n) * total_of(c->batch);
  if (const Attend* t = kernel.attend()) return total_of(t->m) * total_of(t->d) * total_of(t->batch);
  return window_results(kernel);
}

/// `few`: of attention, the form is one for few queries, if there are any.
size_t form_for(const std::vector<Schedule>& forms, int64_t results, bool few) {
  const auto is_range = [&](const Schedule& s) { return results >= s.from && (s.below == 0 || results < s.below); };
  for (size_t i = 0; i < forms.size(); ++i)
    if (shares_keys(forms[i]) == few && is_range(forms[i])) return i;
  for (size_t i = 0; i < forms.size(); ++i)
    if (is_range(forms[i])) return i;
  return 0;
}

}  // namespace

bool same_plan(const Schedule& a, const Schedule& b) {
  const auto numbers = [](const Schedule& s) {
    return std::tuple(s.kind, s.threads, s.vector, s.points_per_thread, s.rows_per_block, s.tile_m, s.tile_n, s.tile_k,
                      s.thread_m, s.thread_n, s.stages, s.split_k, s.unit, s.cluster_k, s.grid_k, s.most_blocks,
                      s.shared_weights);
  };
  return numbers(a) == numbers(b) && a.tile == b.tile;
}

TuningCandidates tuning_candidates(const PlannedKernel& planned, const TargetTraits& target, const DimValues& at,
                                   size_t most) {
  TuningCandidates c;
  c.at = at;
  const auto results = evaluate_int(results_of(planned.kernel), at);
  if (!results || *results <= 0) return c;
  c.results = *results;
  const Kernel& kernel = planned.kernel;
  c.form = form_for(planned.forms, c.results, kernel.attend() && has_few_form(kernel) && is_few(kernel, at));
  const std::vector<RankedPlan> plans = ranked(planned, target, at);
  if (plans.empty()) return c;
  c.schedules.push_back(without_range(planned.forms[c.form]));
  std::set<int> structures{structure_of(c.schedules[0])};
  const auto take = [&](const RankedPlan& x, bool of_new_structure) {
    const auto is_it = [&](const Schedule& s) { return same_plan(s, x.schedule); };
    if (c.schedules.size() >= most || (plans[0].cycles > 0 && x.cycles > plans[0].cycles * kHopeless)) return;
    if (std::any_of(c.schedules.begin(), c.schedules.end(), is_it)) return;
    if (of_new_structure && structures.count(structure_of(x.schedule))) return;
    auto launch = cuda_launch(planned.kernel, x.schedule);
    if (!launch || launch->shared_bytes > target.shared_bytes) return;
    structures.insert(structure_of(x.schedule));
    c.schedules.push_back(without_range(x.schedule));
  };
  // The best half by the estimate, then one of each structure that is not among them, then the rest.
  for (size_t i = 0; i < plans.size() && c.schedules.size() < (most + 1) / 2 + 1; ++i) take(plans[i], false);
  for (const RankedPlan& x : plans) take(x, true);
  for (const RankedPlan& x : plans) take(x, false);
  if (c.schedules.size() == 1) c.schedules.clear();
  return c;
}

std::vector<Schedule> tuned_forms(const std::vector<Schedule>& forms, std::vector<TunedPlan> plans) {
  std::sort(plans.begin(), plans.end(), [](const TunedPlan& a, const TunedPlan& b) { return a.results < b.results; });
  std::vector<Schedule> cut;
  for (size_t f = 0; f < forms.size(); ++f) {
    std::vector<const TunedPlan*> own;
    for (const TunedPlan& p : plans)
      if (form_for(forms, p.results, shares_keys(p.schedule)) == f && (own.empty() || own.back()->results < p.results)) own.push_back(&p);
    if (own.empty()) cut.push_back(forms[f]);
    for (size_t i = 0; i < own.size(); ++i) {
      Schedule s = own[i]->schedule;
      const auto between = [&](size_t a, size_t b) {
        return static_cast<int64_t>(
                   std::sqrt(static_cast<double>(own[a]->results) * static_cast<double>(own[b]->results))) +
               1;
      };
      s.from = i == 0 ? forms[f].from : between(i - 1, i);
      s.below = i + 1 == own.size() ? forms[f].below : between(i, i + 1);
      cut.push_back(s);
    }
  }
  std::vector<Schedule> joined;
  for (const Schedule& s : cut) {
    if (!joined.empty() && same_plan(joined.back(), s)) joined.back().below = s.below;
    else joined.push_back(s);
  }
  return joined;
}

}  // namespace ingot
