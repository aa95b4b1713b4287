#include "passes/join_bodies.h"

#include <algorithm>
#include <map>
#include <set>

#include "compiler/expr/simplify.h"
#include "compiler/ops/rows.h"
#include "passes/typical.h"

namespace ingot {
namespace {

/// Elements of the inputs go to one place each. A Cast does not change what join_tree lets through.
bool only_moves(const Node& n) {
  const auto* move = n.op->lowers_as<Movement>();
  return n.op->name == "Concat" || n.op->name == "Cast" || (move && move->inverse);
}

class TreeBuilder {
 public:
  explicit TreeBuilder(const Graph& body) : from_(body), type_(body.value(body.outputs[0]).type.dtype) {}

  std::optional<JoinTree> run() {
    tree_.body = std::make_shared<Graph>();
    tree_.body->symbols = from_.symbols;
    const ValueId result = copy(from_.outputs[0], true);
    tree_.body->outputs = {result};
    tree_.body->output_names = {"out0"};
    if (!concatenates_ || narrows_ || tree_.leaves.size() < 2) return std::nullopt;
    return std::move(tree_);
  }

 private:
  ValueId copy(ValueId v, bool is_result) {
    const Value& value = from_.value(v);
    // Widening what is stored narrow, and narrowing it again, changes nothing; anything else would.
    narrows_ |= value.type.dtype != type_ && (value.type.dtype != DType::F32 || !is_float(type_) || size_of(type_) > 2);
    const Node* n = from_.producer(v);
    if (!n || !only_moves(*n) || value.users.size() != (is_result ? 0 : 1)) {
      tree_.leaves.push_back(v);
      return tree_.body->add_input({type_, value.type.shape}, value.name);
    }
    if (n->op->name == "Cast") return copy(n->inputs[0], false);
    concatenates_ |= n->op->name == "Concat";
    std::vector<ValueId> inputs;
    for (ValueId in : n->inputs) inputs.push_back(copy(in, false));
    const NodeId made = tree_.body->add_node(n->op, n->attrs, inputs, {{type_, value.type.shape}}, n->origin);
    return tree_.body->node(made).outputs[0];
  }

  const Graph& from_;
  DType type_;
  JoinTree tree_;
  bool concatenates_ = false, narrows_ = false;
};

/// Copies what v is computed from into another body; `inputs` maps the values that it starts from.
ValueId copy_value(const Graph& from, ValueId v, Graph& to, std::map<ValueId, ValueId>& done) {
  if (!v.valid()) return v;
  if (const auto it = done.find(v); it != done.end()) return it->second;
  const Value& value = from.value(v);
  if (value.constant) return done[v] = to.add_constant(value.constant, value.name);
  const Node n = *from.producer(v);  // a copy: `to` may be the same graph
  std::vector<ValueId> inputs;
  for (ValueId in : n.inputs) inputs.push_back(copy_value(from, in, to, done));
  std::vector<TensorType> types;
  for (ValueId out : n.outputs) types.push_back(from.value(out).type);
  const NodeId made = to.add_node(n.op, n.attrs, inputs, types, n.origin);
  for (size_t i = 0; i < n.outputs.size(); ++i) {
    const ValueId out = to.node(made).outputs[i];
    to.value(out).content = from.value(n.outputs[i]).content;
    done[n.outputs[i]] = out;
  }
  return done.at(v);
}

/// Where along `axis` the elements begin that the slice takes, if it takes all of the others and a piece of this one that
/// touches its end (or begins it); invalid otherwise.
Expr start_of_end_slice(const Graph& body, const Node& slice, size_t axis, bool is_tail) {
  const auto& a = slice.attrs.as<SliceAttrs>();
  const Shape& whole = body.value(slice.inputs[0]).type.shape;
  for (size_t d = 0; d < whole.size(); ++d) {
    const bool all = a.starts[d].is_const(0) && proves_equal(a.sizes[d], whole[d]);
    const bool end = is_tail ? proves_equal(a.starts[d] + a.sizes[d], whole[d]) : a.starts[d].is_const(0);
    if (!a.steps[d].is_const(1) || !(d == axis ? end : all)) return Expr();
  }
  return a.starts[axis];
}

/// The body of `wider`: the concatenation of these parts, and what comes after it, last first.
void rebuild_wider(const Graph& body, const Node& concat, std::vector<ValueId> parts, const std::vector<const Node*>& after, WiderBody& wider) {
  Graph& to = *(wider.body = std::make_shared<Graph>());
  to.symbols = body.symbols;
  std::map<ValueId, ValueId> done;
  for (ValueId in : body.inputs) done[in] = to.add_input(body.value(in).type, body.value(in).name);
  TensorType type = body.value(concat.outputs[0]).type;
  type.shape[wider.axis] = 0;
  for (ValueId& p : parts) {
    type.shape[wider.axis] = simplify(type.shape[wider.axis] + body.value(p).type.shape[wider.axis]);
    p = copy_value(body, p, to, done);
  }
  ValueId result = to.node(to.add_node(concat.op, concat.attrs, parts, {type}, concat.origin)).outputs[0];
  for (auto it = after.rbegin(); it != after.rend(); ++it) {
    const Node& m = **it;
    if (m.op->name == "Transpose") {
      const auto& perm = m.attrs.as<PermAttrs>().perm;
      const Shape from = type.shape;
      for (size_t d = 0; d < perm.size(); ++d) type.shape[d] = from[static_cast<size_t>(perm[d])];
      wider.axis = static_cast<size_t>(std::find(perm.begin(), perm.end(), static_cast<int64_t>(wider.axis)) - perm.begin());
    }
    type.dtype = body.value(m.outputs[0]).type.dtype;
    result = to.node(to.add_node(m.op, m.attrs, {result}, {type}, m.origin)).outputs[0];
  }
  to.outputs = {result};
  to.output_names = body.output_names;
}

/// v in that type, as a value that a group may store: an input of the body may not.
ValueId storable(Graph& body, ValueId v, DType type) {
  TensorType t = body.value(v).type;
  if (t.dtype == type && body.producer(v)) return v;
  const bool narrow = t.dtype != type;
  t.dtype = type;
  const OpDef& row = op(narrow ? "Cast" : "Contiguous");
  const NodeId n = body.add_node(&row, narrow ? AttrsBox::of(CastAttrs{type}) : AttrsBox(), {v}, {t}, {});
  return body.node(n).outputs[0];
}

/// One more output of a group.
ValueId add_output(Graph& graph, NodeId id, ValueId inside, std::string name) {
  Graph& body = *graph.node(id).body;
  body.outputs.push_back(inside);
  body.output_names.push_back("out" + std::to_string(body.outputs.size() - 1));
  const ValueId v = graph.append_output(id, body.value(inside).type);
  graph.value(v).name = std::move(name);
  return v;
}

}  // namespace

std::optional<JoinTree> join_tree(const Graph& body) { return TreeBuilder(body).run(); }

std::optional<WiderBody> wider_body(const Graph& body) {
  std::vector<const Node*> after;
  ValueId v = body.outputs[0];
  const Node* n = body.producer(v);
  for (; n && (n->op->name == "Transpose" || n->op->name == "Cast"); n = body.producer(v)) {
    after.push_back(n);
    v = n->inputs[0];
  }
  if (!n || n->op->name != "Concat" || body.value(v).users.size() > 1) return std::nullopt;
  WiderBody wider;
  wider.axis = static_cast<size_t>(n->attrs.as<AxisAttrs>().axis);
  std::vector<ValueId> parts = n->inputs;
  for (size_t end : {size_t{0}, parts.size() - 1}) {
    const Node* slice = body.producer(parts[end]);
    if (wider.start.valid() || !slice || slice->op->name != "Slice" || body.value(parts[end]).users.size() > 1) continue;
    wider.start = start_of_end_slice(body, *slice, wider.axis, end == 0);
    if (wider.start.valid()) parts[end] = slice->inputs[0];
  }
  if (!wider.start.valid()) return std::nullopt;
  rebuild_wider(body, *n, parts, after, wider);
  return wider;
}

void widen(Graph& graph, NodeId id, WiderBody wider) {
  const ValueId v = graph.node(id).outputs[0];
  const TensorType old = graph.value(v).type;
  const TensorType now = wider.body->value(wider.body->outputs[0]).type;
  SliceAttrs slice{std::vector<Expr>(old.rank(), 0), std::vector<Expr>(old.rank(), 1), old.shape};
  slice.starts[wider.axis] = wider.start;
  graph.value(v).type = now;
  graph.node(id).body = std::move(wider.body);
  std::set<NodeId> readers(graph.value(v).users.begin(), graph.value(v).users.end());
  for (NodeId r : readers) {
    Graph& body = *graph.node(r).body;
    for (size_t i = 0; i < graph.node(r).inputs.size(); ++i) {
      if (graph.node(r).inputs[i] != v) continue;
      const ValueId in = body.inputs[i];
      const std::vector<NodeId> users = body.value(in).users;
      body.value(in).type = now;
      const NodeId made = body.add_node(&op("Slice"), AttrsBox::of(slice), {in}, {old}, {});
      for (NodeId u : users) body.replace_use(u, in, body.node(made).outputs[0]);
    }
  }
}

std::vector<ValueId> inputs_below(const Graph& body, ValueId v) {
  std::set<ValueId> seen;
  std::vector<ValueId> work{v}, found;
  while (!work.empty()) {
    const ValueId at = work.back();
    work.pop_back();
    if (!at.valid() || !seen.insert(at).second) continue;
    if (const Node* n = body.producer(at)) work.insert(work.end(), n->inputs.begin(), n->inputs.end());
    else if (!body.value(at).constant) found.push_back(at);
  }
  return found;
}

std::optional<int64_t> contiguous_run(const Graph& body, ValueId part) {
  const Shape& shape = body.value(part).type.shape;
  Index index;
  for (size_t d = 0; d < shape.size(); ++d) index.push_back(Expr::index("i" + std::to_string(d), shape[d]));
  const Expr at = linear_index(body.value(body.outputs[0]).type.shape, index_in_join(body, part, index));
  std::multimap<int64_t, int64_t> strides;  // to extents
  for (size_t d = 0; d < shape.size(); ++d) {
    const auto stride = linear_coefficient(at, index[d].name());
    if (!stride) return std::nullopt;
    if (!shape[d].is_const(1)) strides.emplace(typical(*stride), typical(shape[d]));
  }
  int64_t run = 1;
  for (const auto& [stride, extent] : strides)
    if (stride == run) run *= extent;
  return run;
}

ValueId unmoved_output(const Graph& body, ValueId v) {
  for (const Node* n = body.producer(v); n; n = body.producer(v)) {
    const auto* move = n->op->lowers_as<Movement>();
    if (!move || !move->inverse) break;
    v = n->inputs[0];
  }
  return v;
}

ValueId store_again(Graph& graph, ValueId v) {
  const NodeId id = graph.value(v).producer;
  Graph& body = *graph.node(id).body;
  const ValueId stored = body.outputs[graph.value(v).output_index], source = unmoved_output(body, stored);
  const NodeId twin = body.add_node(&op("Contiguous"), {}, {source}, {body.value(source).type}, {});
  std::map<ValueId, ValueId> done{{source, body.node(twin).outputs[0]}};
  return add_output(graph, id, copy_value(body, stored, body, done), graph.value(v).name);
}

ValueId store_beside(Graph& graph, NodeId from, ValueId v, NodeId carrier) {
  const Node source = graph.node(from);
  Graph& body = *graph.node(carrier).body;
  std::map<ValueId, ValueId> done;
  std::vector<ValueId> inputs = graph.node(carrier).inputs;
  for (ValueId in : inputs_below(*source.body, v)) {
    const auto i = std::find(source.body->inputs.begin(), source.body->inputs.end(), in) - source.body->inputs.begin();
    const ValueId outside = source.inputs[static_cast<size_t>(i)];
    const auto known = std::find(inputs.begin(), inputs.end(), outside);
    done[in] = known != inputs.end() ? body.inputs[static_cast<size_t>(known - inputs.begin())]
                                     : body.add_input(graph.value(outside).type, graph.value(outside).name);
    if (known == inputs.end()) inputs.push_back(outside);
  }
  graph.set_inputs(carrier, inputs);
  const ValueId inside = copy_value(*source.body, v, body, done);
  const DType type = graph.value(source.outputs[0]).type.dtype;
  graph.node(carrier).origin.merge(source.origin);
  return add_output(graph, carrier, storable(body, inside, type), source.body->value(v).name);
}

ValueId store_apart(Graph& graph, NodeId from, ValueId v) {
  const NodeId id = graph.add_node(&op("fused"), AttrsBox::of(FusedAttrs{"points"}), {}, {}, {});
  graph.node(id).body = std::make_shared<Graph>();
  graph.node(id).body->symbols = graph.node(from).body->symbols;
  return store_beside(graph, from, v, id);
}

}  // namespace ingot
