#include "passes/plan_memory.h"

#include <fmt/format.h>

#include <algorithm>

#include "compiler/expr/simplify.h"
#include "compiler/ops/joins.h"
#include "compiler/ops/rows.h"
#include "passes/assign_lanes.h"
#include "passes/typical.h"

namespace ingot {
namespace {

class SlotPlanner {
 public:
  explicit SlotPlanner(const LaneOrder& order) : order_(order) {}

  /// A slot for a value that the launches at these positions write.
  int take(const Expr& bytes, const std::vector<int>& writers) {
    int best = -1;
    int64_t best_cost = INT64_MAX;
    const int64_t want = typical(bytes);
    for (int s : free_) {
      if (!std::all_of(writers.begin(), writers.end(), [&](int w) { return reusable(s, w); })) continue;
      const int64_t have = typical(bytes_[static_cast<size_t>(s)]);
      // Growing a slot costs what it grows by; a larger one wastes what it is larger by, which is cheaper.
      const int64_t cost = have >= want ? (have - want) / 4 : want - have;
      if (cost < best_cost && cost < want) best = s, best_cost = cost;
    }
    if (best < 0) {
      bytes_.push_back(bytes);
      touched_.emplace_back();
      return static_cast<int>(bytes_.size()) - 1;
    }
    free_.erase(std::find(free_.begin(), free_.end(), best));
    Expr& slot = bytes_[static_cast<size_t>(best)];
    slot = simplify(max(slot, bytes));
    touched_[static_cast<size_t>(best)].clear();
    return best;
  }
  /// The launch at `position` reads or writes the slot's value.
  void touch(int slot, int position) { touched_[static_cast<size_t>(slot)].push_back(position); }
  void release(int slot) { free_.push_back(slot); }
  std::vector<Expr> take_bytes() { return std::move(bytes_); }

 private:
  bool reusable(int slot, int position) const {
    const auto& touched = touched_[static_cast<size_t>(slot)];
    return std::all_of(touched.begin(), touched.end(), [&](int t) { return order_.before(t, position); });
  }
  const LaneOrder& order_;
  std::vector<Expr> bytes_;
  std::vector<std::vector<int>> touched_;  // per slot: launches that use its present value
  std::vector<int> free_;
};

/// Which launches write and read the memory of a value: its own, or that of the parts it is joined from.
class Uses {
 public:
  Uses(const Graph& graph, const std::vector<NodeId>& order)
      : holder_(graph.value_count()), last_(graph.value_count(), -1), writers_(graph.value_count()) {
    for (size_t i = 0; i < order.size(); ++i) {
      const Node& n = graph.node(order[i]);
      std::vector<ValueId> touched;
      for (const auto* list : {&n.inputs, &n.outputs})
        for (ValueId v : *list) touched.push_back(holder_[v] = holder_of(graph, v));
      std::sort(touched.begin(), touched.end());
      touched.erase(std::unique(touched.begin(), touched.end()), touched.end());
      for (ValueId v : touched) last_[v] = static_cast<int>(i);
      for (ValueId v : n.outputs) writers_[holder_[v]].push_back(static_cast<int>(i));
      touched_.push_back(std::move(touched));
    }
  }
  ValueId holder(ValueId v) const { return holder_.at(v); }
  const std::vector<ValueId>& at(int position) const { return touched_[static_cast<size_t>(position)]; }
  int last(ValueId holder) const { return last_.at(holder); }
  const std::vector<int>& writers(ValueId holder) const { return writers_.at(holder); }

 private:
  IdMap<ValueId, ValueId> holder_;
  IdMap<ValueId, int> last_;
  IdMap<ValueId, std::vector<int>> writers_;
  std::vector<std::vector<ValueId>> touched_;  // per position: the values whose memory it reads or writes
};

}  // namespace

MemoryPlan plan_memory(const Graph& graph, int max_lanes) {
  MemoryPlan plan;
  for (NodeId id : graph.order())
    if (!is_join(graph.node(id))) plan.order.push_back(id);
  plan.slot = IdMap<ValueId, int>(graph.value_count(), -1);
  plan.lanes = assign_lanes(graph, plan.order, max_lanes);
  const LaneOrder order(plan.lanes);
  SlotPlanner slots(order);
  const Uses uses(graph, plan.order);
  for (int i = 0; i < static_cast<int>(plan.order.size()); ++i) {
    const Node& n = graph.node(plan.order[static_cast<size_t>(i)]);
    for (ValueId v : n.outputs) {
      const ValueId holder = uses.holder(v);
      if (graph.is_output(holder)) continue;
      const TensorType& t = graph.value(holder).type;
      if (plan.slot[holder] < 0)
        plan.slot[holder] = slots.take(simplify(element_count(t.shape) * static_cast<int64_t>(size_of(t.dtype))), uses.writers(holder));
      plan.slot[v] = plan.slot[holder];
    }
    for (ValueId holder : uses.at(i))
      if (plan.slot.at(holder) >= 0) slots.touch(plan.slot[holder], i);
    for (ValueId holder : uses.at(i))
      if (plan.slot.at(holder) >= 0 && uses.last(holder) == i) slots.release(plan.slot[holder]);
  }
  plan.slot_bytes = slots.take_bytes();
  return plan;
}

namespace {

class Requirements {
 public:
  /// Equal, or a gives way to b.
  void broadcasts(const Expr& a, const Expr& b, const Node& n, const char* what) {
    std::vector<std::pair<Expr, Expr>> pairs;
    if (!broadcast({a}, {b}, &pairs).ok() || !pairs.empty()) equal(a, b, n, what);
  }
  void equal(const Expr& a, const Expr& b, const Node& n, const char* what) {
    if (a.is_const(1) || (!a.is_const() && bounds_of(a).high <= 1) || proves_equal(a, b)) return;
    const std::string where = n.origin.nodes.empty() ? std::string(n.op->name) : fmt::format("{} \"{}\"", n.op->name, n.origin.nodes[0]);
    const std::string message = fmt::format("{}: {} {} and {} must be equal", where, what, to_string(a), to_string(b));
    for (const ShapeRequirement& r : list_)
      if (r.condition.same(eq(a, b))) return;
    list_.push_back({eq(a, b), message});
  }
  std::vector<ShapeRequirement> list_;
};

}  // namespace

std::vector<ShapeRequirement> shape_requirements(const Graph& graph) {
  Requirements need;
  for (NodeId id : graph.order()) {
    const Node& n = graph.node(id);
    const NodeView view(graph, n);
    const Shape& out = view->outputs[0].shape;
    if (n.op->lowers_as<Pointwise>()) {
      for (size_t i = 0; i < n.inputs.size(); ++i)
        if (view->has(i))
          for (size_t d = 0; d < view->inputs[i].rank(); ++d)
            need.broadcasts(view->inputs[i].shape[d], out[out.size() - view->inputs[i].rank() + d], n, "dimensions");
    } else if (n.op->name == "MatMul") {
      const Shape &a = view->inputs[0].shape, &b = view->inputs[1].shape;
      need.equal(a.back(), b[b.size() - 2], n, "inner dimensions");
      for (const Shape* s : {&a, &b})
        for (size_t d = 0; d + 2 < s->size(); ++d) need.broadcasts((*s)[d], out[out.size() - s->size() + d], n, "dimensions");
    } else if (n.op->name == "Reshape") {
      need.equal(element_count(view->inputs[0].shape), element_count(out), n, "element counts");
      need.equal(element_count(out), element_count(view->inputs[0].shape), n, "element counts");
    } else if (n.op->name == "Concat") {
      const Expr joined = out[static_cast<size_t>(n.attrs.as<AxisAttrs>().axis)];
      for (size_t i = 1; i < n.inputs.size(); ++i)
        for (size_t d = 0; d < out.size(); ++d)
          if (!out[d].same(joined)) need.equal(view->inputs[i].shape[d], out[d], n, "dimensions");
    }
  }
  need.list_.insert(need.list_.end(), graph.requirements.begin(), graph.requirements.end());
  for (const DerivedSymbol& d : graph.derived_symbols)
    if (d.symbol.low() >= 0 && bounds_of(d.definition).low < 0)
      need.list_.push_back({le(0, d.symbol), fmt::format("the size {} must not be negative", to_string(d.definition))});
  return need.list_;
}

}  // namespace ingot
