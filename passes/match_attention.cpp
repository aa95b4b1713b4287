#include "passes/match_attention.h"

#include "compiler/expr/simplify.h"
#include "passes/typical.h"

namespace ingot {
namespace {

class Matcher {
 public:
  explicit Matcher(const Graph& graph) : g_(graph) {}

  std::optional<AttentionMatch> run(NodeId product) {
    found_.values = product;
    const Node& values = g_.node(product);
    if (!plain_product(values)) return std::nullopt;
    shape_ = g_.value(values.inputs[0]).type.shape;
    const ValueId logits = softmax_input(values.inputs[0]);
    if (!logits.valid() || !follow(logits)) return std::nullopt;
    found_.nodes.push_back(product);
    return found_;
  }

 private:
  /// A MatMul whose operands have the rank of the result.
  bool plain_product(const Node& n) const {
    const size_t rank = g_.value(n.outputs[0]).type.rank();
    return n.op->name == "MatMul" && g_.value(n.inputs[0]).type.rank() == rank &&
           g_.value(n.inputs[1]).type.rank() == rank && rank >= 2 &&
           (rank > 2 || !g_.value(n.inputs[1]).constant);
  }
  const Node* producer(ValueId v, std::string_view op) const {
    const Node* n = g_.producer(v);
    return n && n->op->name == op ? n : nullptr;
  }
  /// Takes the node in, if `uses` readers are all that its result has.
  bool take(ValueId v, size_t uses) {
    const Value& value = g_.value(v);
    if (value.users.size() != uses || g_.is_output(v)) return false;
    found_.nodes.push_back(value.producer);
    return true;
  }
  ValueId through_casts(ValueId v) {
    for (const Node* n = producer(v, "Cast"); n; n = producer(v, "Cast")) {
      if (!is_float(g_.value(n->inputs[0]).type.dtype) || !take(v, 1)) return ValueId();
      v = n->inputs[0];
    }
    return v;
  }
  /// Where(IsNaN(w), 0, w), as exporters write the weights of rows without a finite logit.
  ValueId through_nan_guard(ValueId v) {
    const Node* where = producer(v, "Where");
    if (!where) return v;
    const ValueId weights = where->inputs[2];
    const Node* test = producer(where->inputs[0], "IsNaN");
    if (!test || test->inputs[0] != weights || !is_number(where->inputs[1], 0)) return ValueId();
    if (!take(v, 1) || !take(where->inputs[0], 1)) return ValueId();
    guarded_ = true;
    return weights;
  }
  bool reduces_last(const Node& n) const {
    const auto* r = n.op->lowers_as<Reduction>();
    const NodeView view(g_, n);
    const ReductionForm form = r->form(*view);
    return form.axes.size() == 1 && form.axes[0] + 1 == shape_.size() && form.keep;
  }
  /// Where(Equal(sum, 0), 1, sum): a sum that may be of nothing. Takes these nodes in.
  ValueId through_zero_guard(ValueId v) {
    const Node* where = producer(v, "Where");
    if (!where) return v;
    const ValueId sum = where->inputs[2];
    const Node* test = producer(where->inputs[0], "Equal");
    if (!test || test->inputs[0] != sum || !is_number(test->inputs[1], 0) || !is_number(where->inputs[1], 1)) return ValueId();
    if (!take(v, 1) || !take(where->inputs[0], 1)) return ValueId();
    summed_ = true;
    return sum;
  }
  bool is_number(ValueId v, double number) const {
    const TensorPtr& c = g_.value(v).constant;
    return c && c->count() == 1 && c->float_at(0) == number;
  }
  /// FiniteOrZero(max): what is subtracted where a row may have no logit. It goes with a guarded sum, or neither is there.
  ValueId through_finite(ValueId v) {
    const Node* finite = producer(v, "FiniteOrZero");
    if (!finite) return summed_ ? ValueId() : v;
    return summed_ && take(v, 1) ? finite->inputs[0] : ValueId();
  }
  /// What the softmax whose result is `v` is taken of; invalid when there is none.
  ValueId softmax_input(ValueId v) {
    v = through_casts(v);
    if (v.valid()) v = through_nan_guard(v);
    const Node* div = v.valid() ? producer(v, "Div") : nullptr;
    if (!div || !take(v, guarded_ ? 2 : 1)) return ValueId();
    const ValueId e = div->inputs[0], total = through_zero_guard(div->inputs[1]);
    const Node *exp = producer(e, "Exp"), *sum = total.valid() ? producer(total, "ReduceSum") : nullptr;
    if (!exp || !sum || sum->inputs[0] != e || !reduces_last(*sum) || !take(total, summed_ ? 2 : 1) || !take(e, 2)) return ValueId();
    const ValueId shifted = exp->inputs[0];
    const Node* sub = producer(shifted, "Sub");
    if (!sub || !take(shifted, 1)) return ValueId();
    const ValueId x = sub->inputs[0], most = through_finite(sub->inputs[1]);
    const Node* max = most.valid() ? producer(most, "ReduceMax") : nullptr;
    if (!max || max->inputs[0] != x || !reduces_last(*max) || !take(most, 1)) return ValueId();
    // The only value that two nodes of the softmax read.
    const Value& logits = g_.value(x);
    return logits.users.size() == 2 && !g_.is_output(x) ? x : ValueId();
  }
  /// True when v is the first product, or pointwise work on it; takes those nodes in.
  bool follow(ValueId v) {
    const Node* n = g_.producer(v);
    if (!n || !same_shape(g_.value(v).type.shape, shape_)) return false;
    if (n->op->lowers_as<Contraction>()) {
      if (!plain_product(*n) || found_.scores.valid()) return false;
      found_.scores = g_.value(v).producer;
      found_.nodes.push_back(found_.scores);
      return true;
    }
    if (!n->op->lowers_as<Pointwise>()) return false;
    bool holds_product = false;
    for (ValueId in : n->inputs) {
      if (!in.valid() || g_.value(in).users.size() != 1 || g_.is_output(in)) continue;
      holds_product |= follow(in);
    }
    if (holds_product) found_.nodes.push_back(g_.value(v).producer);
    return holds_product;
  }

  const Graph& g_;
  bool guarded_ = false;  // weights that are NaN count as zero
  bool summed_ = false;   // a sum of nothing counts as one
  Shape shape_;  // of the scores
  AttentionMatch found_;
};

/// The CPU multiplies faster in kernels apart, whose scores stay in its caches; not storing them is for what memory cannot hold.
constexpr int64_t kLargeScores = int64_t{1} << 30;  // bytes

/// Without clusters a block has all the keys of its few queries. Where that leaves most of the machine without work, products
/// apart are faster.
bool leaves_machine_idle(const Shape& scores, const TargetTraits& target) {
  constexpr int64_t kFewQueries = 16, kManyKeys = 1024;
  if (target.compute_capability >= 90) return false;
  const size_t rank = scores.size();
  const int64_t heads = typical(product(Shape(scores.begin(), scores.end() - 2)));
  return scores[rank - 2].as_int().value_or(kFewQueries + 1) <= kFewQueries && typical(scores[rank - 1]) >= kManyKeys &&
         heads * 2 < target.parallel_units;
}

}  // namespace

std::optional<AttentionMatch> match_attention(const Graph& graph, NodeId product, const TargetTraits& target) {
  if (target.kind == TargetKind::Cuda && target.compute_capability < 80) return std::nullopt;
  auto match = Matcher(graph).run(product);
  if (!match) return std::nullopt;
  if (target.kind == TargetKind::Cpu) {
    TensorType scores = graph.value(graph.node(match->scores).outputs[0]).type;
    scores.dtype = DType::F32;
    if (typical_bytes(scores) < kLargeScores) return std::nullopt;
  }
  if (target.kind == TargetKind::Cuda &&
      leaves_machine_idle(graph.value(graph.node(match->scores).outputs[0]).type.shape, target))
    return std::nullopt;
  const TensorType& q = graph.value(graph.node(match->scores).inputs[0]).type;
  const TensorType& v = graph.value(graph.node(match->values).inputs[1]).type;
  const auto channels = q.shape.back().as_int(), columns = v.shape.back().as_int();
  const bool narrow = q.dtype == DType::F16 || q.dtype == DType::BF16;
  const int64_t most = narrow ? 256 : 128;
  if (q.dtype != v.dtype || !(narrow || q.dtype == DType::F32)) return std::nullopt;
  if (!channels || !columns || *channels > most || *columns > most || *channels < 1 || *columns < 1) return std::nullopt;
  return match;
}

}  // namespace ingot
