// A sum of products is a product along a longer k: experts whose results are added, weighted by their gate, become one
// product, which reads and writes its results once.
#include <algorithm>
#include <optional>

#include "compiler/expr/simplify.h"
#include "compiler/ops/compose.h"
#include "compiler/ops/layout_ops.h"
#include "passes/passes.h"

namespace ingot {
namespace {

/// A term of a sum: factor * (x * weight + bias), where factor and bias may be missing.
struct Term {
  ValueId x, weight, bias, factor;
  NodeId product;
};

class SumJoiner {
 public:
  SumJoiner(Graph& g, NodeId root) : g_(g), root_(root), out_(g.node(root).outputs[0]) {}

  Result<bool> run() {
    if (shape(out_).empty()) return false;  // no rows
    collect(g_.node(root_));
    if (terms_.size() < 2 || !operands_are_free()) return false;
    GraphBuilder b(g_);
    for (const Term& t : terms_) b.origin.merge(g_.node(t.product).origin);
    b.origin.merge(g_.node(root_).origin);
    Compose c(b);
    std::vector<ValueId> weights;
    for (const Term& t : terms_) weights.push_back(t.weight);
    ValueId sum = c.matmul(operand(c), c.concat(weights, 0));
    for (const Term& t : terms_)
      if (t.bias.valid()) sum = c.add(sum, t.factor.valid() ? c.mul(t.factor, t.bias) : t.bias);
    for (ValueId v : others_) sum = c.add(sum, v);
    const ValueId result = INGOT_TRY(c.result({sum}))[0];
    g_.value(result).name = g_.value(out_).name;
    g_.replace_all_uses(out_, result);
    g_.erase_if_dead(root_);
    return true;
  }

 private:
  /// The terms of an Add, and of the Adds that only it reads.
  void collect(const Node& add) {
    for (ValueId v : add.inputs) {
      const Node* n = g_.producer(v);
      if (const auto term = term_of(v)) terms_.push_back(*term);
      else if (n && n->op->name == "Add" && g_.only_reader(v) && same_shape(shape(v), shape(out_))) collect(Node(*n));
      else others_.push_back(v);
    }
  }
  const Shape& shape(ValueId v) const { return g_.value(v).type.shape; }
  std::optional<Term> term_of(ValueId v) const {
    Term t;
    const Node* n = read_once(v);
    if (n && n->op->name == "Mul") {
      const size_t i = is_factor(n->inputs[0]) ? 0 : 1;
      if (!is_factor(n->inputs[i])) return std::nullopt;
      t.factor = n->inputs[i];
      n = read_once(n->inputs[1 - i]);
    }
    if (n && n->op->name == "Add") {
      const size_t i = is_bias(n->inputs[0]) ? 0 : 1;
      if (!is_bias(n->inputs[i])) return std::nullopt;
      t.bias = n->inputs[i];
      n = read_once(n->inputs[1 - i]);
    }
    if (!n || n->op->name != "MatMul" || !g_.value(n->inputs[1]).constant || shape(n->inputs[1]).size() != 2) return std::nullopt;
    t.x = n->inputs[0];
    t.weight = n->inputs[1];
    t.product = g_.value(n->outputs[0]).producer;
    const bool fits = !g_.value(t.x).constant && shape(t.x).size() == shape(out_).size() && same_shape(shape(n->outputs[0]), shape(out_)) &&
                      shape(t.x).back().as_int().has_value();
    return fits ? std::optional<Term>(t) : std::nullopt;
  }
  const Node* read_once(ValueId v) const { return g_.only_reader(v) ? g_.producer(v) : nullptr; }
  /// One element a row.
  bool is_factor(ValueId v) const {
    const Shape& s = shape(v);
    if (g_.value(v).constant || s.size() != shape(out_).size() || !s.back().is_const(1)) return false;
    for (size_t d = 0; d + 1 < s.size(); ++d)
      if (!proves_equal(s[d], shape(out_)[d])) return false;
    return true;
  }
  /// One element a column.
  bool is_bias(ValueId v) const {
    const Shape& s = shape(v);
    if (!g_.value(v).constant || s.empty() || !proves_equal(s.back(), shape(out_).back())) return false;
    return std::all_of(s.begin(), s.end() - 1, [](const Expr& d) { return d.is_const(1); });
  }

  /// Side by side they cost no copy: parts of one value, or values that only their product reads.
  bool operands_are_free() const {
    const Node* first = g_.producer(terms_[0].x);
    bool slices = first && first->op->name == "Slice", own = true;
    for (const Term& t : terms_) {
      const Node* n = g_.producer(t.x);
      slices &= n && n->op->name == "Slice" && n->inputs[0] == first->inputs[0];
      own &= n && g_.only_reader(t.x) && !n->op->lowers_as<Movement>();
    }
    return slices || own;
  }
  /// What the products multiply, side by side, times their factors.
  ValueId operand(Compose& c) const {
    const size_t axis = shape(out_).size() - 1;
    const Expr& width = shape(terms_[0].x).back();
    const bool even = std::all_of(terms_.begin(), terms_.end(), [&](const Term& t) { return t.factor.valid() && shape(t.x).back().same(width); });
    std::vector<ValueId> parts, factors;
    for (const Term& t : terms_) {
      parts.push_back(!even && t.factor.valid() ? c.mul(t.x, t.factor) : t.x);
      factors.push_back(t.factor);
    }
    const ValueId joined = c.concat(parts, axis);
    if (!even) return joined;
    // One factor for each run of `width` columns.
    Shape apart(shape(out_).begin(), shape(out_).end() - 1), whole = apart, one = apart;
    const auto count = static_cast<int64_t>(terms_.size());
    apart.insert(apart.end(), {Expr(count), width});
    one.insert(one.end(), {Expr(count), Expr(1)});
    whole.push_back(simplify(width * count));
    return c.reshape(c.mul(c.reshape(joined, apart), c.reshape(c.concat(factors, axis), one)), whole);
  }

  Graph& g_;
  NodeId root_;
  ValueId out_;
  std::vector<Term> terms_;
  std::vector<ValueId> others_;
};

/// The Add at the end of a sum: what reads it is no further Add of the same sum.
bool ends_sum(const Graph& g, const Node& n) {
  if (n.op->name != "Add" || !is_float(g.value(n.outputs[0]).type.dtype)) return false;
  const Node* next = g.only_reader(n.outputs[0]);
  return !next || next->op->name != "Add" || !same_shape(g.value(next->outputs[0]).type.shape, g.value(n.outputs[0]).type.shape);
}

}  // namespace

Result<bool> join_sums(Graph& graph, const PassContext& ctx) {
  if (!ctx.fuse) return false;
  bool changed = false;
  for (NodeId id : graph.order())
    if (!graph.node(id).dead && ends_sum(graph, graph.node(id))) changed |= INGOT_TRY(SumJoiner(graph, id).run());
  return changed;
}

}  // namespace ingot
