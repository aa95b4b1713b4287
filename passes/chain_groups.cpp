// Which small reductions and products become one kernel, one after the other, for each position of the first dimension. Such a
// kernel has one block a position, so what a block reads is bounded by what it reads while another kernel would start.
#include <algorithm>
#include <optional>

#include "compiler/expr/simplify.h"
#include "compiler/ops/rows.h"
#include "passes/groups.h"
#include "passes/typical.h"

namespace ingot {
namespace {

// What one block reads in about the time in which another kernel starts and ends (2 us): values that it waits for, and weights.
constexpr int64_t kRowBytes = 128 << 10, kWeightBytes = 256 << 10;
constexpr int64_t kStageElements = 4096;  // of a value between two stages
// Multiplications for each element of the largest tensor that the positions come from: where that is large, positions are few.
constexpr int64_t kFlopsForElement = 4;

bool is_window(const OpView& v, const Reduction& r) { return r.form(v).axes.empty(); }

class Chainer {
 public:
  Chainer(Groups& groups, const PassContext& ctx) : groups_(groups), g_(groups.graph()), ctx_(ctx) {}

  void run() {
    for (int g = 0; g < static_cast<int>(groups_.size()); ++g)
      while (const auto from = chained_producer(g)) {
        for (NodeId n : between_) groups_.add(g, n);
        groups_.merge(*from, g);
        groups_[g].kind = "chain";
      }
  }

 private:
  struct Work {
    int64_t row_bytes = 0, weights = 0;
  };
  int64_t size() const { return ctx_.precision == DType::F32 ? 4 : 2; }
  /// Elements of one position of the first dimension.
  std::optional<int64_t> row_elements(ValueId v) const {
    const Shape& s = g_.value(v).type.shape;
    return s.empty() ? std::nullopt : element_count(Shape(s.begin() + 1, s.end())).as_int();
  }

  /// Every element at a position of the first dimension needs elements at that position alone, of inputs that are no weights.
  bool keeps_rows(NodeId id) const {
    const Node& n = g_.node(id);
    const NodeView view(g_, n);
    if (n.outputs.size() != 1 || g_.value(n.outputs[0]).type.rank() == 0) return false;
    const Shape& out = g_.value(n.outputs[0]).type.shape;
    if (const auto* r = n.op->lowers_as<Reduction>()) {
      if (is_window(*view, *r)) return false;
      const auto axes = r->form(*view).axes;
      return std::find(axes.begin(), axes.end(), 0) == axes.end();
    }
    if (n.op->lowers_as<Pointwise>()) {
      return std::all_of(n.inputs.begin(), n.inputs.end(), [&](ValueId v) {
        if (!v.valid() || !comes_from_stage(v)) return true;
        const Shape& s = g_.value(v).type.shape;
        return s.size() == out.size() && proves_equal(s[0], out[0]);
      });
    }
    Index index;
    for (size_t d = 0; d < out.size(); ++d) index.push_back(Expr::index("i" + std::to_string(d), out[d]));
    if (const auto* m = n.op->lowers_as<Movement>()) return reads_row(n, m->element(*view, index), index[0]);
    if (const auto* c = n.op->lowers_as<Contraction>()) {
      const ContractionForm form = c->form(*view);
      return form.out[0].op() == ExprOp::Symbol && reads_row(n, form.a, form.out[0]) && reads_row(n, form.b, form.out[0]);
    }
    return false;
  }
  bool reads_row(const Node& n, const Expr& e, const Expr& row) const {
    bool all = true;
    visit(e, [&](const Expr& x) {
      if (x.op() != ExprOp::Read || g_.value(n.inputs[static_cast<size_t>(x.buffer())]).constant) return;
      all &= !x.args().empty() && simplify(x.arg(0)).same(row);
    });
    return all;
  }
  bool comes_from_stage(ValueId v) const { return g_.value(v).producer.valid() && !g_.value(v).constant; }

  /// What a block reads for the group; nullopt when it is not small or not known.
  std::optional<Work> work_of(int group) const {
    Work w;
    for (NodeId id : groups_.at(group).nodes) {
      const Node& n = g_.node(id);
      if (!keeps_rows(id)) return std::nullopt;
      const bool reduces = n.op->lowers_as<Reduction>() != nullptr;
      const auto made = row_elements(n.outputs[0]);
      if (!made || (*made > kStageElements && (reduces || n.op->lowers_as<Contraction>()))) return std::nullopt;
      if (reduces) {
        const auto read = row_elements(n.inputs[0]);
        if (!read) return std::nullopt;
        w.row_bytes = std::max(w.row_bytes, *read * size());
      }
      if (n.op->lowers_as<Contraction>()) {
        const NodeView view(g_, n);
        int64_t terms = 1;
        for (const Expr& k : n.op->lowers_as<Contraction>()->form(*view).k) terms *= k.extent().as_int().value_or(kWeightBytes);
        // Each weight is for one product of a position: where they are for many (pixels), tensor cores pay.
        const auto& weight = g_.value(n.inputs[1]).constant;
        if (!weight || g_.value(n.inputs[0]).constant || weight->count() != terms * *made) return std::nullopt;
        w.weights += weight->count();
      }
    }
    if (w.row_bytes > kRowBytes || w.weights * size() > kWeightBytes) return std::nullopt;
    return w;
  }
  /// The largest value that the node's result is computed from, per position.
  int64_t largest_source(NodeId id) const {
    std::set<ValueId> seen;
    std::vector<ValueId> work = g_.node(id).inputs;
    int64_t largest = 0;
    while (!work.empty()) {
      const ValueId at = work.back();
      work.pop_back();
      if (!at.valid() || g_.value(at).constant || !seen.insert(at).second) continue;
      largest = std::max(largest, row_elements(at).value_or(0));
      if (const Node* n = g_.producer(at)) work.insert(work.end(), n->inputs.begin(), n->inputs.end());
    }
    return largest;
  }

  /// A group whose results only `group` reads, with free nodes between them at most; these are in between_ then.
  std::optional<int> chained_producer(int group) {
    if (!is_stage_group(group)) return std::nullopt;
    const auto own = work_of(group);
    if (!own) return std::nullopt;
    for (NodeId n : groups_.at(group).nodes)
      for (ValueId v : g_.node(n).inputs) {
        const auto from = v.valid() ? producer_through(v, group) : std::nullopt;
        if (!from) continue;
        const bool small = work_of(*from).has_value();
        if (!small && groups_.at(*from).kind != "rows") continue;
        const char* why = small ? refusal(*from, group, *own) : "one block would read too much for a position";
        if (!why) return from;
        const auto pair = std::make_pair(groups_.at(*from).anchor, n);
        if (told_.insert(pair).second) ctx_.refuse(groups_.label(pair.first), groups_.label(pair.second), why);
      }
    return std::nullopt;
  }
  bool is_stage_group(int group) const {
    const std::string& kind = groups_.at(group).kind;
    if (groups_.at(group).moved.valid()) return false;
    return !groups_.at(group).nodes.empty() && (kind == "contraction" || kind == "rows" || kind == "chain");
  }
  /// The group that v comes from, through free nodes that only lead to `group`.
  std::optional<int> producer_through(ValueId v, int group) {
    between_.clear();
    for (;;) {
      const NodeId p = g_.value(v).producer;
      if (!p.valid()) return std::nullopt;
      const int owner = groups_.group_of(p);
      if (owner == group) return std::nullopt;
      if (owner >= 0) return is_stage_group(owner) ? std::optional<int>(owner) : std::nullopt;
      const Node& n = g_.node(p);
      if (n.inputs.size() != 1 || !n.op->lowers_as<Movement>() || !keeps_rows(p)) return std::nullopt;
      between_.push_back(p);
      v = n.inputs[0];
    }
  }
  const char* refusal(int from, int group, const Work& own) const {
    const auto w = work_of(from);
    for (NodeId n : groups_.at(from).nodes)
      for (ValueId v : g_.node(n).outputs) {
        if (g_.is_output(v)) return "its result is an output";
        for (NodeId u : g_.value(v).users)
          if (groups_.group_of(u) != from && groups_.group_of(u) != group && std::find(between_.begin(), between_.end(), u) == between_.end())
            return "others read its result, too";
      }
    for (NodeId n : between_)
      if (g_.value(g_.node(n).outputs[0]).users.size() != 1) return "others read its result, too";
    const Shape &a = g_.value(g_.node(groups_.at(from).anchor).outputs[0]).type.shape, &b = g_.value(g_.node(groups_.at(group).anchor).outputs[0]).type.shape;
    if (!proves_equal(a[0], b[0])) return "they have different positions";
    const int64_t products = own.weights + w->weights;
    if (products * size() > kWeightBytes) return "together they are too much for one block";
    if (typical(a[0]) > 2 * ctx_.target.parallel_units) return "there are too many positions for a block each";
    if (products > kFlopsForElement * largest_source(groups_.at(from).anchor)) return "there may be too many positions for a block each";
    return nullptr;
  }

  Groups& groups_;
  const Graph& g_;
  const PassContext& ctx_;
  std::vector<NodeId> between_;
  std::set<std::pair<NodeId, NodeId>> told_;
};

}  // namespace

void chain_groups(Groups& groups, const PassContext& ctx) {
  if (ctx.target.kind != TargetKind::Cuda) return;
  Chainer(groups, ctx).run();
}

}  // namespace ingot
