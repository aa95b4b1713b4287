#include "compiler/ir/graph.h"

#include <algorithm>
#include <queue>

namespace ingot {

void Origin::merge(const Origin& other) {
  for (const std::string& n : other.nodes)
    if (std::find(nodes.begin(), nodes.end(), n) == nodes.end()) nodes.push_back(n);
}

ValueId Graph::add_input(TensorType type, std::string name) {
  Value v;
  v.type = std::move(type);
  v.name = std::move(name);
  values_.push_back(std::move(v));
  inputs.push_back(ValueId(values_.size() - 1));
  return inputs.back();
}

ValueId Graph::add_constant(TensorPtr tensor, std::string name) {
  Value v;
  v.type.dtype = tensor->type();
  for (int64_t d : tensor->dims()) v.type.shape.push_back(d);
  v.name = std::move(name);
  if (tensor->count() <= kMaxContent && tensor->type() != DType::String) {
    std::vector<Expr> items;
    const DType compute = compute_type(tensor->type());
    for (int64_t i = 0; i < tensor->count(); ++i)
      items.push_back(is_float(compute) ? Expr::real(compute, tensor->float_at(i)) : Expr::integer(compute, tensor->int_at(i)));
    v.content = std::make_shared<const std::vector<Expr>>(std::move(items));
  }
  v.constant = std::move(tensor);
  values_.push_back(std::move(v));
  return ValueId(values_.size() - 1);
}

NodeId Graph::add_node(const OpDef* op, AttrsBox attrs, std::vector<ValueId> in, std::vector<TensorType> out, Origin origin) {
  const NodeId id(nodes_.size());
  Node n;
  n.op = op;
  n.attrs = std::move(attrs);
  n.inputs = std::move(in);
  n.origin = std::move(origin);
  for (ValueId v : n.inputs)
    if (v.valid()) value(v).users.push_back(id);
  for (size_t i = 0; i < out.size(); ++i) {
    Value v;
    v.type = std::move(out[i]);
    v.producer = id;
    v.output_index = static_cast<uint32_t>(i);
    values_.push_back(std::move(v));
    n.outputs.push_back(ValueId(values_.size() - 1));
  }
  nodes_.push_back(std::move(n));
  return id;
}

void Graph::replace_use(NodeId user, ValueId from, ValueId to) {
  if (from == to) return;
  for (ValueId& v : node(user).inputs) {
    if (v != from) continue;
    v = to;
    auto& users = value(from).users;
    users.erase(std::find(users.begin(), users.end(), user));
    value(to).users.push_back(user);
  }
}

void Graph::replace_all_uses(ValueId from, ValueId to) {
  if (from == to) return;
  value(to).keeps_f32 |= value(from).keeps_f32;
  const std::vector<NodeId> users = value(from).users;
  for (NodeId u : users) replace_use(u, from, to);
  for (ValueId& o : outputs)
    if (o == from) o = to;
  for (ValueSymbol& s : value_symbols)
    if (s.value == from) s.value = to;
}

void Graph::set_inputs(NodeId id, std::vector<ValueId> inputs) {
  for (ValueId v : node(id).inputs) {
    if (!v.valid()) continue;
    auto& users = value(v).users;
    users.erase(std::find(users.begin(), users.end(), id));
  }
  for (ValueId v : inputs)
    if (v.valid()) value(v).users.push_back(id);
  node(id).inputs = std::move(inputs);
}

ValueId Graph::append_output(NodeId id, TensorType type) {
  Value v;
  v.type = std::move(type);
  v.producer = id;
  v.output_index = static_cast<uint32_t>(node(id).outputs.size());
  values_.push_back(std::move(v));
  node(id).outputs.push_back(ValueId(values_.size() - 1));
  return node(id).outputs.back();
}

bool Graph::erase_if_dead(NodeId start) {
  bool changed = false;
  std::vector<NodeId> work{start};
  while (!work.empty()) {
    const NodeId id = work.back();
    work.pop_back();
    Node& n = node(id);
    if (n.dead) continue;
    const bool used = std::any_of(n.outputs.begin(), n.outputs.end(),
                                  [&](ValueId v) { return !value(v).users.empty() || is_output(v); });
    if (used) continue;
    n.dead = changed = true;
    for (ValueId v : n.inputs) {
      if (!v.valid()) continue;
      auto& users = value(v).users;
      users.erase(std::find(users.begin(), users.end(), id));
      if (value(v).producer.valid()) work.push_back(value(v).producer);
    }
  }
  return changed;
}

size_t Graph::live_nodes() const {
  return static_cast<size_t>(std::count_if(nodes_.begin(), nodes_.end(), [](const Node& n) { return !n.dead; }));
}

bool Graph::is_output(ValueId id) const {
  return std::find(outputs.begin(), outputs.end(), id) != outputs.end() || is_read_back(id);
}
bool Graph::is_read_back(ValueId id) const {
  return std::any_of(value_symbols.begin(), value_symbols.end(), [id](const ValueSymbol& s) { return s.value == id; });
}

std::vector<NodeId> Graph::order() const {
  std::vector<uint32_t> missing(nodes_.size(), 0);
  std::priority_queue<uint32_t, std::vector<uint32_t>, std::greater<>> ready;
  for (uint32_t i = 0; i < nodes_.size(); ++i) {
    if (nodes_[i].dead) continue;
    for (ValueId v : nodes_[i].inputs) missing[i] += v.valid() && value(v).producer.valid();
    if (missing[i] == 0) ready.push(i);
  }
  std::vector<NodeId> result;
  while (!ready.empty()) {
    const uint32_t i = ready.top();
    ready.pop();
    result.push_back(NodeId(i));
    for (ValueId v : nodes_[i].outputs)
      for (NodeId u : value(v).users)
        if (!nodes_[u.index].dead && --missing[u.index] == 0) ready.push(u.index);
  }
  INGOT_CHECK(result.size() == live_nodes(), "the graph has a cycle");
  return result;
}

const Node* Graph::producer(ValueId id) const {
  if (!id.valid() || !value(id).producer.valid()) return nullptr;
  return &node(value(id).producer);
}
const Node* Graph::only_reader(ValueId id) const {
  const auto& users = value(id).users;
  return users.size() == 1 && !is_output(id) ? &node(users[0]) : nullptr;
}

OpView Graph::view(const Node& n, std::vector<TensorType>& in, std::vector<TensorType>& out) const {
  for (ValueId v : n.inputs) in.push_back(v.valid() ? value(v).type : TensorType{DType::String, {}});
  for (ValueId v : n.outputs) out.push_back(value(v).type);
  return OpView{n.attrs, in, out};
}

void Graph::compact() {
  const std::vector<NodeId> sorted = order();
  std::vector<ValueId> renamed(values_.size());
  std::vector<Value> values;
  std::vector<Node> nodes;
  auto keep = [&](ValueId old) {
    if (!old.valid() || renamed[old.index].valid()) return;
    renamed[old.index] = ValueId(values.size());
    values.push_back(std::move(values_[old.index]));
    values.back().users.clear();
    values.back().producer = NodeId();
  };
  for (ValueId v : inputs) keep(v);
  for (NodeId id : sorted)
    for (ValueId v : nodes_[id.index].inputs)
      if (v.valid() && !values_[v.index].producer.valid()) keep(v);
  for (ValueId v : outputs)
    if (!values_[v.index].producer.valid() && !renamed[v.index].valid()) keep(v);
  for (const ValueSymbol& s : value_symbols)
    if (!values_[s.value.index].producer.valid() && !renamed[s.value.index].valid()) keep(s.value);
  for (NodeId id : sorted) {
    Node n = std::move(nodes_[id.index]);
    const NodeId fresh(nodes.size());
    for (ValueId& v : n.inputs)
      if (v.valid()) {
        v = renamed[v.index];
        values[v.index].users.push_back(fresh);
      }
    for (ValueId& v : n.outputs) {
      keep(v);
      v = renamed[v.index];
      values[v.index].producer = fresh;
    }
    nodes.push_back(std::move(n));
  }
  for (ValueId& v : inputs) v = renamed[v.index];
  for (ValueId& v : outputs) v = renamed[v.index];
  for (ValueSymbol& s : value_symbols) s.value = renamed[s.value.index];
  values_ = std::move(values);
  nodes_ = std::move(nodes);
}

}  // namespace ingot
