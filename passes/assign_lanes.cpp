#include "passes/assign_lanes.h"

#include <algorithm>

#include "compiler/ops/joins.h"
#include "passes/typical.h"

namespace ingot {
namespace {

// Rough times of a GPU, in microseconds. Only their relation counts: a kernel costs at least its launch, and waiting for
// another stream costs about half of that.
constexpr double kLaunch = 3, kWait = 1.5, kBytesPerMicrosecond = 2e6;

double cost_of(const Graph& g, const Node& n) {
  int64_t bytes = 0;
  for (const auto* list : {&n.inputs, &n.outputs})
    for (ValueId v : *list)
      if (v.valid()) bytes += typical_bytes(g.value(v).type);
  return kLaunch + static_cast<double>(bytes) / kBytesPerMicrosecond;
}

class LaneScheduler {
 public:
  LaneScheduler(const Graph& g, const std::vector<NodeId>& order, int max_lanes)
      : g_(g), order_(order), max_lanes_(static_cast<size_t>(std::max(max_lanes, 1))) {}

  LanePlan run() {
    std::vector<int> position(g_.node_count(), -1);
    for (size_t i = 0; i < order_.size(); ++i) position[order_[i].index] = static_cast<int>(i);
    for (size_t i = 0; i < order_.size(); ++i) {
      std::vector<int> producers;
      for (ValueId v : g_.node(order_[i]).inputs)
        for (NodeId w : writers_of(g_, v)) producers.push_back(position[w.index]);
      std::sort(producers.begin(), producers.end(), std::greater<>());
      producers.erase(std::unique(producers.begin(), producers.end()), producers.end());
      place(i, producers);
    }
    return std::move(plan_);
  }

 private:
  double start_on(size_t lane, const std::vector<int>& producers) const {
    double start = lane < free_.size() ? free_[lane] : 0;
    if (producers.empty() && lane > 0) start = std::max(start, kWait);
    for (int p : producers)
      start = std::max(start, finish_[p] + (static_cast<size_t>(plan_.lane[p]) == lane ? 0 : kWait));
    return start;
  }

  void place(size_t i, const std::vector<int>& producers) {
    // Home is the lane of the producer that is ready last.
    size_t home = 0;
    double ready = -1;
    for (int p : producers)
      if (finish_[p] > ready) ready = finish_[p], home = static_cast<size_t>(plan_.lane[p]);
    size_t best = home;
    double start = start_on(home, producers);
    for (size_t lane = 0; lane < std::min(free_.size() + 1, max_lanes_); ++lane) {
      const double other = start_on(lane, producers);
      if (other + kWait < start) best = lane, start = other;
    }
    if (best >= free_.size()) free_.resize(best + 1, 0), last_.resize(best + 1, -1);
    free_[best] = start + cost_of(g_, g_.node(order_[i]));
    finish_.push_back(free_[best]);
    plan_.lane.push_back(static_cast<int32_t>(best));
    plan_.waits.push_back(waits_of(best, producers));
    last_[best] = static_cast<int>(i);
  }

  /// Producers of other lanes, latest first, without those that are known to have finished: by the own lane's earlier
  /// launches, by a wait for a later one, or by what those waited for.
  std::vector<int32_t> waits_of(size_t lane, const std::vector<int>& producers) {
    std::vector<int32_t> waits;
    std::vector<int> clock(max_lanes_, -1);  // per lane, the last position that has finished
    const auto reach = [&](int p) {
      for (size_t l = 0; l < max_lanes_; ++l) clock[l] = std::max(clock[l], clocks_[p][l]);
      clock[plan_.lane[p]] = std::max(clock[plan_.lane[p]], p);
    };
    if (last_[lane] >= 0) reach(last_[lane]);
    for (int p : producers) {
      if (p <= clock[plan_.lane[p]]) continue;
      waits.push_back(p);
      reach(p);
    }
    clocks_.push_back(std::move(clock));
    std::sort(waits.begin(), waits.end());
    return waits;
  }

  const Graph& g_;
  const std::vector<NodeId>& order_;
  size_t max_lanes_;
  LanePlan plan_;
  std::vector<double> free_, finish_;  // per lane: when it is idle; per position: when it is done
  std::vector<int> last_;  // per lane: the last position placed on it
  std::vector<std::vector<int>> clocks_;  // per position: per lane, what has finished when it starts
};

}  // namespace

LanePlan assign_lanes(const Graph& graph, const std::vector<NodeId>& order, int max_lanes) {
  return LaneScheduler(graph, order, max_lanes).run();
}

LaneOrder::LaneOrder(const LanePlan& plan) : lane_(plan.lane) {
  for (int32_t lane : lane_) lanes_ = std::max(lanes_, static_cast<size_t>(lane) + 1);
  clocks_.resize(lane_.size() * lanes_, -1);
  std::vector<int> last(lanes_, -1);
  for (size_t i = 0; i < lane_.size(); ++i) {
    int* const clock = &clocks_[i * lanes_];
    const auto reach = [&](int p) {
      for (size_t l = 0; l < lanes_; ++l) clock[l] = std::max(clock[l], clocks_[static_cast<size_t>(p) * lanes_ + l]);
      clock[lane_[static_cast<size_t>(p)]] = std::max(clock[lane_[static_cast<size_t>(p)]], p);
    };
    int& previous = last[static_cast<size_t>(lane_[i])];
    if (previous >= 0) reach(previous);
    for (int32_t w : plan.waits[i]) reach(w);
    previous = static_cast<int>(i);
  }
}

bool LaneOrder::before(int earlier, int later) const {
  return clocks_[static_cast<size_t>(later) * lanes_ + static_cast<size_t>(lane_[static_cast<size_t>(earlier)])] >=
         earlier;
}

}  // namespace ingot
