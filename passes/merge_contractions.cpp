// Products that read the same value with different constant weights become one: Q, K and V; the branches of an inception
// block. What follows every one of them alike (bias, activation) is done once on the joined result, too.
#include <map>

#include "compiler/ops/compose.h"
#include "passes/passes.h"

namespace ingot {
namespace {

/// One branch: its product, and the value that its chain has reached.
struct Branch {
  NodeId product;
  ValueId at;
};

/// Along which axis outputs and weights are joined; nullopt for products that cannot be.
struct JoinAxes {
  size_t output, weight;
};
std::optional<JoinAxes> join_axes(const Graph& g, const Node& n) {
  if (n.inputs.size() < 2 || !g.value(n.inputs[1]).constant || g.value(n.inputs[0]).constant) return std::nullopt;
  const size_t weight_rank = g.value(n.inputs[1]).type.rank();
  if (n.op->name == "MatMul" && weight_rank == 2) return JoinAxes{g.value(n.outputs[0]).type.rank() - 1, 1};
  if (n.op->name == "Conv" && n.attrs.text().find("groups") == std::string::npos) return JoinAxes{1, 0};
  return std::nullopt;
}

/// The rest of the weight's shape and the attributes decide which products fit together.
std::string family_of(const Graph& g, const Node& n, const JoinAxes& axes) {
  Shape rest = g.value(n.inputs[1]).type.shape;
  rest[axes.weight] = 1;
  return std::string(n.op->name) + "(" + n.attrs.text() + ")" + to_string(TensorType{g.value(n.inputs[1]).type.dtype, rest});
}

/// The only reader of v, or null.
const Node* only_reader(const Graph& g, ValueId v) {
  const auto& users = g.value(v).users;
  return users.size() == 1 && !g.is_output(v) ? &g.node(users[0]) : nullptr;
}
/// The constant operand of a binary node that reads v, if it has one element a channel or one in all.
std::optional<ValueId> channel_operand(const Graph& g, const Node& n, ValueId v, size_t axis) {
  if (n.inputs.size() != 2) return std::nullopt;
  const ValueId c = n.inputs[0] == v ? n.inputs[1] : n.inputs[0];
  if (!g.value(c).constant || n.inputs[0] != v) return std::nullopt;
  const Shape &s = g.value(c).type.shape, &out = g.value(v).type.shape;
  if (s.size() + axis < out.size()) return std::nullopt;
  for (size_t d = 0; d < s.size(); ++d) {
    const bool channel = d + out.size() - s.size() == axis;
    if (channel ? !s[d].same(out[axis]) : !s[d].is_const(1)) return std::nullopt;
  }
  return c;
}

class Merger {
 public:
  Merger(Graph& g, std::vector<Branch> branches, JoinAxes axes) : g_(g), b_(g), branches_(std::move(branches)), axes_(axes) {
    for (const Branch& b : branches_) b_.origin.merge(g.node(b.product).origin);
  }

  Status run() {
    const Node first = g_.node(branches_[0].product);
    std::vector<ValueId> weights;
    for (const Branch& b : branches_) {
      weights.push_back(g_.node(b.product).inputs[1]);
      sizes_.push_back(b_.shape(b.at)[axes_.output]);
    }
    ValueId joined = INGOT_TRY(b_.add(*first.op, first.attrs, {first.inputs[0], INGOT_TRY(concat(weights, axes_.weight))}));
    for (;;) {
      const ValueId next = INGOT_TRY(step(joined));
      if (!next.valid()) break;
      joined = next;
    }
    return split(joined);
  }

 private:
  Result<ValueId> concat(const std::vector<ValueId>& parts, size_t axis) {
    Compose c(b_);
    const ValueId joined = c.concat(parts, axis);
    return INGOT_TRY(c.result({joined}))[0];
  }
  /// When every branch goes on with the same pointwise operator, does it on the joined value.
  Result<ValueId> step(ValueId joined) {
    std::vector<const Node*> readers;
    std::vector<ValueId> operands;
    for (const Branch& b : branches_) {
      const Node* n = only_reader(g_, b.at);
      if (!n || !n->op->lowers_as<Pointwise>()) return ValueId();
      if (!readers.empty() && (n->op != readers[0]->op || !(n->attrs == readers[0]->attrs) || n->inputs.size() != readers[0]->inputs.size())) return ValueId();
      if (n->inputs.size() > 1) {
        const auto c = channel_operand(g_, *n, b.at, axes_.output);
        if (!c || (!operands.empty() && b_.shape(*c).size() != b_.shape(operands[0]).size())) return ValueId();
        operands.push_back(*c);
      }
      readers.push_back(n);
    }
    std::vector<ValueId> next;
    for (const Node* n : readers) {
      next.push_back(n->outputs[0]);
      b_.origin.merge(n->origin);
    }
    const OpDef& row = *readers[0]->op;
    const AttrsBox attrs = readers[0]->attrs;
    std::vector<ValueId> inputs{joined};
    if (!operands.empty()) {
      const size_t rank = b_.shape(operands[0]).size();
      inputs.push_back(INGOT_TRY(concat(operands, rank - (b_.shape(joined).size() - axes_.output))));
    }
    for (size_t i = 0; i < branches_.size(); ++i) branches_[i].at = next[i];
    return b_.add(row, attrs, inputs);
  }
  Status split(ValueId joined) {
    Expr start = 0;
    for (size_t i = 0; i < branches_.size(); ++i) {
      Compose c(b_);
      const ValueId slice = c.slice(joined, axes_.output, start, sizes_[i]);
      const ValueId part = INGOT_TRY(c.result({slice}))[0];
      g_.value(part).name = g_.value(branches_[i].at).name;
      g_.replace_all_uses(branches_[i].at, part);
      g_.erase_if_dead(g_.value(branches_[i].at).producer);
      start = start + sizes_[i];
    }
    return {};
  }

  Graph& g_;
  GraphBuilder b_;
  std::vector<Branch> branches_;
  JoinAxes axes_;
  std::vector<Expr> sizes_;
};

}  // namespace

Result<bool> merge_contractions(Graph& graph, const PassContext&) {
  std::map<std::pair<ValueId, std::string>, std::vector<Branch>> families;
  for (NodeId id : graph.order()) {
    const Node& n = graph.node(id);
    const auto axes = n.op->lowers_as<Contraction>() ? join_axes(graph, n) : std::nullopt;
    if (!axes || graph.is_output(n.outputs[0]) || !graph.value(n.outputs[0]).type.shape[axes->output].is_const()) continue;
    families[{n.inputs[0], family_of(graph, n, *axes)}].push_back({id, n.outputs[0]});
  }
  bool changed = false;
  for (auto& [key, branches] : families) {
    if (branches.size() < 2) continue;
    const JoinAxes axes = *join_axes(graph, graph.node(branches[0].product));
    INGOT_TRY(Merger(graph, branches, axes).run());
    changed = true;
  }
  return changed;
}

}  // namespace ingot
