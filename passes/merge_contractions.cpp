// Products that read the same value with different constant weights become one: Q, K and V; the branches of an inception
// block. What follows every one of them alike (bias, activation) is done once on the joined result, too.
#include <algorithm>
#include <limits>
#include <map>

#include "compiler/ops/compose.h"
#include "compiler/ops/spatial.h"
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
  if (n.op->name == "Conv" && n.attrs.as<ConvAttrs>().groups == 1) return JoinAxes{1, 0};
  return std::nullopt;
}

/// The rest of the weight's shape and the attributes decide which products fit together.
std::string family_of(const Graph& g, const Node& n, const JoinAxes& axes) {
  Shape rest = g.value(n.inputs[1]).type.shape;
  rest[axes.weight] = 1;
  return std::string(n.op->name) + "(" + n.attrs.text() + ")" + to_string(TensorType{g.value(n.inputs[1]).type.dtype, rest});
}

/// The constant operand of a binary node that reads v, if it has one element a channel or one in all.
std::optional<ValueId> channel_operand(const Graph& g, const Node& n, ValueId v, size_t axis) {
  if (n.inputs.size() != 2) return std::nullopt;
  const ValueId c = n.inputs[0] == v ? n.inputs[1] : n.inputs[0];
  const bool commutes = n.op->name == "Add" || n.op->name == "Mul";
  if (!g.value(c).constant || (n.inputs[0] != v && !commutes)) return std::nullopt;
  const Shape &s = g.value(c).type.shape, &out = g.value(v).type.shape;
  if (s.size() + axis < out.size()) return std::nullopt;
  for (size_t d = 0; d < s.size(); ++d) {
    const bool channel = d + out.size() - s.size() == axis;
    if (channel ? !s[d].same(out[axis]) : !s[d].is_const(1)) return std::nullopt;
  }
  return c;
}

/// The pointwise node that each branch goes on with, when it is the same one; no readers otherwise.
struct Step {
  std::vector<const Node*> readers;
  std::vector<ValueId> operands;
};
Step common_step(const Graph& g, const std::vector<Branch>& branches, const JoinAxes& axes) {
  Step step;
  for (const Branch& b : branches) {
    const Node* n = g.only_reader(b.at);
    if (!n || !n->op->lowers_as<Pointwise>()) return {};
    const Node* first = step.readers.empty() ? n : step.readers[0];
    if (n->op != first->op || !(n->attrs == first->attrs) || n->inputs.size() != first->inputs.size()) return {};
    if (n->inputs.size() > 1) {
      const auto c = channel_operand(g, *n, b.at, axes.output);
      if (!c || (!step.operands.empty() && g.value(*c).type.rank() != g.value(step.operands[0]).type.rank())) return {};
      step.operands.push_back(*c);
    }
    step.readers.push_back(n);
  }
  return step;
}
/// Where the branches part, one of them goes on with pointwise work that would no longer ride on its product.
bool loses_epilogue(const Graph& g, std::vector<Branch> branches, const JoinAxes& axes) {
  for (;;) {
    const Step step = common_step(g, branches, axes);
    if (step.readers.empty()) break;
    for (size_t i = 0; i < branches.size(); ++i) branches[i].at = step.readers[i]->outputs[0];
  }
  for (const Branch& b : branches)
    for (NodeId u : g.value(b.at).users)
      if (g.node(u).op->lowers_as<Pointwise>()) return true;
  return false;
}

/// The pointwise work that a branch's product leads to, as long as nothing else reads it: what tells experts from their gate.
std::string chain_of(const Graph& g, ValueId at, const JoinAxes& axes) {
  std::string text;
  for (const Node* n = g.only_reader(at); n && n->op->lowers_as<Pointwise>(); n = g.only_reader(at)) {
    if (n->inputs.size() > 1 && !channel_operand(g, *n, at, axes.output)) break;
    text += std::string(n->op->name) + "(" + n->attrs.text() + ")";
    at = n->outputs[0];
  }
  return text;
}
/// The branches by what they lead to.
std::vector<std::vector<Branch>> alike(const Graph& g, const std::vector<Branch>& branches, const JoinAxes& axes) {
  std::map<std::string, std::vector<Branch>> parts;
  for (const Branch& b : branches) parts[chain_of(g, b.at, axes)].push_back(b);
  std::vector<std::vector<Branch>> list;
  for (auto& [text, part] : parts) list.push_back(std::move(part));
  return list;
}

std::string branches_label(const Graph& g, const std::vector<Branch>& branches) {
  std::string text;
  for (const Branch& b : branches) {
    const Origin& o = g.node(b.product).origin;
    text += (text.empty() ? "" : ", ") + (o.nodes.empty() ? std::string(g.node(b.product).op->name) : o.nodes[0]);
  }
  return text;
}

/// Where some branches go on with the addition of a constant and others do not (keys without a bias), adds zeros to those.
bool even_biases(Graph& g, const std::vector<Branch>& branches, const JoinAxes& axes) {
  std::vector<const Node*> biased;
  std::vector<size_t> bare;
  for (size_t i = 0; i < branches.size(); ++i) {
    const Node* n = g.only_reader(branches[i].at);
    const bool adds = n && n->op->name == "Add" && channel_operand(g, *n, branches[i].at, axes.output);
    if (adds) biased.push_back(n);
    else bare.push_back(i);
  }
  if (biased.empty() || bare.empty()) return false;
  const Node model = *biased[0];  // a copy: adding nodes moves them
  const ValueId bias = g.value(model.inputs[0]).constant ? model.inputs[0] : model.inputs[1];
  for (size_t i : bare) {
    const ValueId v = branches[i].at;
    std::vector<int64_t> dims(g.value(bias).type.rank(), 1);
    const size_t back = g.value(v).type.rank() - axes.output;
    if (back > dims.size()) return false;
    dims[dims.size() - back] = *g.value(v).type.shape[axes.output].as_int();
    const ValueId zeros = g.add_constant(std::make_shared<Tensor>(g.value(bias).type.dtype, dims));
    const std::vector<NodeId> users = g.value(v).users;
    const NodeId sum = g.add_node(&op("Add"), model.attrs, {v, zeros}, {g.value(v).type}, g.node(branches[i].product).origin);
    for (NodeId u : users) g.replace_use(u, v, g.node(sum).outputs[0]);
  }
  return true;
}

/// Where some branches go on with a Relu behind their bias, and the others with no pointwise work, makes it a Max with 0 for the
/// columns of those and with -inf for the columns of these.
bool even_relus(Graph& g, const std::vector<Branch>& branches, const JoinAxes& axes) {
  std::vector<ValueId> at;
  size_t relus = 0;
  const auto ends = [&](ValueId v) {
    const auto& users = g.value(v).users;
    return std::none_of(users.begin(), users.end(), [&](NodeId u) { return g.node(u).op->lowers_as<Pointwise>(); });
  };
  for (const Branch& b : branches) {
    const Node* n = g.only_reader(b.at);
    at.push_back(n && n->op->name == "Add" && channel_operand(g, *n, b.at, axes.output) ? n->outputs[0] : b.at);
    const Node* next = g.only_reader(at.back());
    const bool relu = next && next->op->name == "Relu";
    if (!ends(relu ? next->outputs[0] : at.back()) || !is_float(g.value(b.at).type.dtype)) return false;
    relus += relu;
  }
  if (relus == 0 || relus == branches.size()) return false;
  for (ValueId v : at) {
    const Node* next = g.only_reader(v);
    const bool relu = next && next->op->name == "Relu";
    const size_t back = g.value(v).type.rank() - axes.output;
    std::vector<int64_t> dims(back, 1);
    dims[0] = *g.value(v).type.shape[axes.output].as_int();
    auto least = std::make_shared<Tensor>(g.value(v).type.dtype, dims);
    if (!relu)
      for (int64_t i = 0; i < least->count(); ++i) least->set_float(i, -std::numeric_limits<double>::infinity());
    const Origin origin = g.node(g.value(v).producer).origin;
    const std::vector<NodeId> users = g.value(v).users;
    const NodeId limited = g.add_node(&op("Max"), {}, {v, g.add_constant(std::move(least))}, {g.value(v).type}, origin);
    const ValueId result = g.node(limited).outputs[0];
    if (relu) g.replace_all_uses(g.node(users[0]).outputs[0], result);
    else
      for (NodeId u : users) g.replace_use(u, v, result);
    if (relu) g.erase_if_dead(users[0]);
  }
  return true;
}

/// Where a branch's chain ends in a Concat: 1 as its first part, -1 as its last, 0 otherwise.
int place_in_concat(const Graph& g, ValueId v) {
  const Node* n = g.only_reader(v);
  for (; n && n->op->lowers_as<Pointwise>(); n = g.only_reader(v)) v = n->outputs[0];
  if (!n || n->op->name != "Concat") return 0;
  return n->inputs.front() == v ? 1 : n->inputs.back() == v ? -1 : 0;
}
/// The branch that a Concat begins with comes last, one that a Concat ends with first: the joined product may then be written
/// where the concatenation is (join_parts).
void order_for_concat(const Graph& g, std::vector<Branch>& branches) {
  std::stable_sort(branches.begin(), branches.end(),
                   [&](const Branch& a, const Branch& b) { return place_in_concat(g, a.at) < place_in_concat(g, b.at); });
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
    const Step next = common_step(g_, branches_, axes_);
    if (next.readers.empty()) return ValueId();
    const OpDef& row = *next.readers[0]->op;
    const AttrsBox attrs = next.readers[0]->attrs;
    for (size_t i = 0; i < branches_.size(); ++i) {
      branches_[i].at = next.readers[i]->outputs[0];
      b_.origin.merge(next.readers[i]->origin);
    }
    std::vector<ValueId> inputs{joined};
    if (!next.operands.empty()) {
      const size_t rank = b_.shape(next.operands[0]).size();
      inputs.push_back(INGOT_TRY(concat(next.operands, rank - (b_.shape(joined).size() - axes_.output))));
    }
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

Result<bool> merge_contractions(Graph& graph, const PassContext& ctx) {
  std::map<std::pair<ValueId, std::string>, std::vector<Branch>> families;
  for (NodeId id : graph.order()) {
    const Node& n = graph.node(id);
    const auto axes = n.op->lowers_as<Contraction>() ? join_axes(graph, n) : std::nullopt;
    if (!axes || graph.is_output(n.outputs[0]) || !graph.value(n.outputs[0]).type.shape[axes->output].is_const()) continue;
    families[{n.inputs[0], family_of(graph, n, *axes)}].push_back({id, n.outputs[0]});
  }
  bool changed = false;
  for (auto& [key, family] : families) {
    if (family.size() < 2) continue;
    const JoinAxes axes = *join_axes(graph, graph.node(family[0].product));
    changed |= even_biases(graph, family, axes);
    changed |= even_relus(graph, family, axes);
    std::vector<std::vector<Branch>> parts{family};
    if (loses_epilogue(graph, family, axes)) {
      ctx.refuse(branches_label(graph, family), "each other", "joined, their epilogues would be kernels of their own");
      parts = alike(graph, family, axes);
    }
    for (std::vector<Branch>& branches : parts) {
      if (branches.size() < 2 || loses_epilogue(graph, branches, axes)) continue;
      order_for_concat(graph, branches);
      INGOT_TRY(Merger(graph, branches, axes).run());
      changed = true;
    }
  }
  return changed;
}

}  // namespace ingot
