// Which launches run beside each other. A lane is a sequence of launches, a stream at run time; a launch may also wait
// for launches of other lanes. Decided before memory is planned, because values that are alive at the same time must not
// share a slot.
#pragma once

#include "compiler/ir/memory_plan.h"

namespace ingot {

/// Lanes for the nodes of `order`, which must be topological, by list scheduling: a node goes where it can start first,
/// and to another lane than its producer's only where that gains more than the wait costs. Uses up to `max_lanes`.
LanePlan assign_lanes(const Graph& graph, const std::vector<NodeId>& order, int max_lanes);

/// What a lane plan orders: by lane, by waits, and by what follows from both.
class LaneOrder {
 public:
  explicit LaneOrder(const LanePlan& plan);
  /// True when position `earlier` has finished before position `later` starts.
  bool before(int earlier, int later) const;

 private:
  std::vector<int32_t> lane_;
  size_t lanes_ = 1;
  std::vector<int> clocks_;  // per position and lane: the last position of the lane that has finished when it starts
};

}  // namespace ingot
