// What tuning measures: for a kernel at given sizes, the plan that the estimate takes and the few others that it thinks
// nearly as good; and how the plans that were found faster become the forms of the kernel. Nothing is measured here.
#pragma once

#include <vector>

#include "codegen/cuda/cuda_backend.h"
#include "codegen/cuda/plan_cuda.h"

namespace ingot {

struct TuningCandidates {
  DimValues at;
  size_t form = 0;  // of the default's forms, the one that is launched at these sizes
  int64_t results = 0;  // by which forms tell sizes apart
  std::vector<Schedule> schedules;  // without ranges; the default's is the first. Empty: there is nothing to choose
};
/// At most `most` plans of a product, an attention or a sliding window, of several structures where the estimate does
/// not rule them out. A plan that cannot be printed or needs more shared memory than there is is not among them.
TuningCandidates tuning_candidates(const PlannedKernel& planned, const TargetTraits& target, const DimValues& at,
                                   size_t most = 8);

/// A plan that was found best for sizes of this many results.
struct TunedPlan {
  int64_t results = 0;
  Schedule schedule;
};
/// The forms with those plans in place of theirs. Where a form has several, it is cut halfway (on a scale of factors)
/// between the sizes that were measured; a form without one stays as it is.
std::vector<Schedule> tuned_forms(const std::vector<Schedule>& forms, std::vector<TunedPlan> plans);

/// Equal but for the range of sizes.
bool same_plan(const Schedule& a, const Schedule& b);

}  // namespace ingot
