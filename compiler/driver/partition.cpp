#include "compiler/driver/partition.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "compiler/ops/control.h"

namespace ingot {
namespace {

using Symbols = std::map<std::string, Expr>;

bool is_control(const Node& n) { return !n.branches.empty(); }

void collect(const Expr& e, Symbols& to) {
  visit(e, [&](const Expr& x) {
    if (x.op() == ExprOp::Symbol && !x.extent().valid()) to.emplace(x.name(), x);
  });
}
void collect(const Shape& s, Symbols& to) {
  for (const Expr& d : s) collect(d, to);
}
/// The symbols that decide what the node computes: of its attributes and the types around it.
Symbols symbols_of(const Graph& g, const Node& n) {
  Symbols found;
  n.attrs.mapped([&](const Expr& e) {
    collect(e, found);
    return e;
  });
  for (ValueId v : n.inputs)
    if (v.valid()) collect(g.value(v).type.shape, found);
  for (ValueId v : n.outputs) collect(g.value(v).type.shape, found);
  return found;
}

/// Cuts one graph, and by recursion those of its control nodes.
class Cutter {
 public:
  Cutter(const Graph& g, Partition& out, size_t script) : g_(g), out_(out), script_(script) {
    for (const DerivedSymbol& d : g.derived_symbols) derived_.emplace(d.symbol.name(), d.definition);
    for (const ValueSymbol& s : g.value_symbols) read_.emplace(s.symbol.name(), s.value);
    for (ValueId v : g.inputs) note_carrier(v);
    for (NodeId id : g.order())
      if (is_control(g.node(id)))
        for (ValueId v : g.node(id).outputs) note_carrier(v);
  }

  Status run() {
    const std::vector<NodeId> order = live_order();
    int last = 0;
    for (NodeId id : order) last = std::max(last, INGOT_TRY(stage_of(id)));
    for (ValueId v : g_.inputs) script().inputs.push_back(number(v));
    for (int stage = 0; stage <= last; ++stage) {
      std::vector<NodeId> plain, control;
      for (NodeId id : order)
        if (stages_.at(id) == stage) (is_control(g_.node(id)) ? control : plain).push_back(id);
      if (!plain.empty()) add_part(plain);
      for (NodeId id : control) INGOT_TRY(add_control(g_.node(id)));
    }
    for (ValueId v : g_.outputs) script().outputs.push_back(number(v));
    script().values = static_cast<int32_t>(numbers_.size());
    out_.names.resize(std::max(out_.names.size(), script_ + 1));
    out_.names[script_].resize(numbers_.size());
    for (const auto& [v, n] : numbers_) out_.names[script_][static_cast<size_t>(n)] = name_of(v);
    return {};
  }

 private:
  runtime::Script& script() { return out_.scripts[script_]; }

  void note_carrier(ValueId v) {
    for (const Expr& d : g_.value(v).type.shape)
      if (d.op() == ExprOp::Symbol) carriers_.emplace(d.name(), v);
  }

  /// Nodes that an output, a control node or a size needs, producers first.
  std::vector<NodeId> live_order() const {
    std::set<NodeId> needed;
    std::vector<ValueId> open(g_.outputs.begin(), g_.outputs.end());
    std::set<std::string> seen;
    const auto need_symbols = [&](const Symbols& list) {
      for (const auto& [name, e] : list) need_symbol(name, open, seen);
    };
    while (!open.empty()) {
      const ValueId v = open.back();
      open.pop_back();
      if (!v.valid()) continue;
      Symbols own;
      collect(g_.value(v).type.shape, own);
      need_symbols(own);
      const NodeId p = g_.value(v).producer;
      if (!p.valid() || !needed.insert(p).second) continue;
      const Node& n = g_.node(p);
      open.insert(open.end(), n.inputs.begin(), n.inputs.end());
      need_symbols(symbols_of(g_, n));
    }
    std::vector<NodeId> order = g_.order();
    std::erase_if(order, [&](NodeId id) { return !needed.count(id); });
    return order;
  }
  void need_symbol(const std::string& name, std::vector<ValueId>& open, std::set<std::string>& seen) const {
    if (!seen.insert(name).second) return;
    if (auto r = read_.find(name); r != read_.end()) open.push_back(r->second);
    if (auto c = carriers_.find(name); c != carriers_.end()) open.push_back(c->second);
    if (auto d = derived_.find(name); d != derived_.end()) {
      Symbols inner;
      collect(d->second, inner);
      for (const auto& [n, e] : inner) need_symbol(n, open, seen);
    }
  }

  // ---- stages: a node runs in the first in which its inputs and its sizes are known --------------------------------------
  Result<int> available(ValueId v) {
    const Node* p = g_.producer(v);
    if (!p) return 0;
    return INGOT_TRY(stage_of(g_.value(v).producer)) + (is_control(*p) ? 1 : 0);
  }
  /// A value that a part computes can be looked at when the part has ended.
  Result<int> stage_of_symbol(const std::string& name) {
    if (auto d = derived_.find(name); d != derived_.end()) {
      Symbols inner;
      collect(d->second, inner);
      return stage_of_symbols(inner);
    }
    if (auto r = read_.find(name); r != read_.end()) {
      const Node* p = g_.producer(r->second);
      return INGOT_TRY(available(r->second)) + (p && !is_control(*p) ? 1 : 0);
    }
    auto c = carriers_.find(name);
    return c == carriers_.end() ? Result<int>(0) : available(c->second);
  }
  Result<int> stage_of_symbols(const Symbols& symbols) {
    int stage = 0;
    for (const auto& [name, e] : symbols) stage = std::max(stage, INGOT_TRY(stage_of_symbol(name)));
    return stage;
  }
  Result<int> stage_of(NodeId id) {
    if (auto it = stages_.find(id); it != stages_.end()) {
      if (it->second < 0) return unsupported("sizes that follow from one another in a circle");
      return it->second;
    }
    stages_[id] = -1;
    const Node& n = g_.node(id);
    int stage = is_control(n) ? 0 : INGOT_TRY(stage_of_symbols(symbols_of(g_, n)));
    for (ValueId v : n.inputs)
      if (v.valid()) stage = std::max(stage, INGOT_TRY(available(v)));
    return stages_[id] = stage;
  }

  /// Of a value that import made, the node of the model that it stands for.
  std::string name_of(ValueId v) const {
    const Node* p = g_.producer(v);
    if (!g_.value(v).name.empty() || !p || p->origin.nodes.empty()) return g_.value(v).name;
    return fmt::format("{} %{}", p->origin.nodes[0], v.index);
  }

  // ---- steps -------------------------------------------------------------------------------------------------------------
  /// The script's number of a value; a constant gets its data there.
  int32_t number(ValueId v) {
    if (!v.valid()) return -1;
    const auto [it, fresh] = numbers_.emplace(v, static_cast<int32_t>(numbers_.size()));
    if (fresh && g_.value(v).constant) script().constants.emplace_back(it->second, g_.value(v).constant);
    return it->second;
  }
  std::vector<int32_t> numbers(const std::vector<ValueId>& values) {
    std::vector<int32_t> list;
    for (ValueId v : values) list.push_back(number(v));
    return list;
  }

  bool leaves(ValueId v, const std::set<NodeId>& members) const {
    if (g_.is_output(v)) return true;
    const auto& users = g_.value(v).users;
    return std::any_of(users.begin(), users.end(), [&](NodeId u) { return stages_.count(u) && !members.count(u); });
  }
  void add_part(const std::vector<NodeId>& nodes);
  Status add_control(const Node& n);

  const Graph& g_;
  Partition& out_;
  size_t script_;
  std::map<std::string, Expr> derived_;
  std::map<std::string, ValueId> read_, carriers_;
  std::map<NodeId, int> stages_;
  std::map<ValueId, int32_t> numbers_;
};

/// Copies nodes into a graph of their own, whose inputs also bring every symbol that they use.
class PartBuilder {
 public:
  PartBuilder(const Graph& from, const std::map<std::string, Expr>& derived, const std::map<std::string, ValueId>& read,
              const std::map<std::string, ValueId>& carriers)
      : from_(from), derived_(derived), read_(read), carriers_(carriers) {}

  void add(const Node& n) {
    std::vector<ValueId> in;
    for (ValueId v : n.inputs) in.push_back(v.valid() ? inside(v) : v);
    std::vector<TensorType> types;
    for (ValueId v : n.outputs) types.push_back(from_.value(v).type);
    const NodeId copy = graph.add_node(n.op, n.attrs, in, types, n.origin);
    for (size_t i = 0; i < n.outputs.size(); ++i) {
      Value& to = graph.value(graph.node(copy).outputs[i]);
      to.name = from_.value(n.outputs[i]).name;
      to.content = from_.value(n.outputs[i]).content;
      map_[n.outputs[i]] = graph.node(copy).outputs[i];
    }
    for (const auto& [name, e] : symbols_of(from_, n)) use(name);
  }
  void add_output(ValueId v) {
    graph.outputs.push_back(map_.at(v));
    graph.output_names.push_back(fmt::format("out{}", graph.outputs.size()));
    outputs.push_back(v);
  }
  /// Once all nodes are in: definitions in the order of the model's.
  void finish() {
    for (const ShapeRequirement& r : from_.requirements) add_if_known(r);
    for (const DerivedSymbol& d : from_.derived_symbols)
      if (used_.count(d.symbol.name())) graph.derived_symbols.push_back(d);
    for (const ValueSymbol& s : from_.value_symbols)
      if (used_.count(s.symbol.name())) graph.value_symbols.push_back({s.symbol, map_.at(s.value), s.element});
    Symbols all;
    for (ValueId v : graph.inputs) collect(graph.value(v).type.shape, all);
    for (const auto& [name, e] : all)
      if (!derived_.count(name) && !read_.count(name)) graph.symbols.push_back(e);
    graph.name = from_.name;
  }

  Graph graph;
  std::vector<ValueId> inputs, outputs;  // of the graph, as values of the other one

 private:
  /// A requirement belongs to each part that knows all that it asks about.
  void add_if_known(const ShapeRequirement& r) {
    Symbols asks;
    collect(r.condition, asks);
    if (!std::all_of(asks.begin(), asks.end(), [&](const auto& s) { return follows_from_used(s.first); })) return;
    for (const auto& [name, e] : asks) use(name);
    graph.requirements.push_back(r);
  }
  bool follows_from_used(const std::string& name) const {
    const auto d = derived_.find(name);
    if (used_.count(name) || d == derived_.end()) return used_.count(name) != 0;
    Symbols inner;
    collect(d->second, inner);
    return std::all_of(inner.begin(), inner.end(), [&](const auto& s) { return follows_from_used(s.first); });
  }
  ValueId inside(ValueId v) {
    if (auto it = map_.find(v); it != map_.end()) return it->second;
    const Value& value = from_.value(v);
    ValueId to;
    if (value.constant) {
      to = graph.add_constant(value.constant, value.name);
    } else {
      to = graph.add_input(value.type, fmt::format("in{}", inputs.size()));
      inputs.push_back(v);
      Symbols own;
      collect(value.type.shape, own);
      map_[v] = to;
      for (const auto& [name, e] : own) use(name);
    }
    graph.value(to).content = value.content;
    return map_[v] = to;
  }
  void use(const std::string& name) {
    if (!used_.insert(name).second) return;
    if (auto d = derived_.find(name); d != derived_.end()) {
      Symbols inner;
      collect(d->second, inner);
      for (const auto& [n, e] : inner) use(n);
    } else if (auto r = read_.find(name); r != read_.end()) {
      inside(r->second);
    } else if (auto c = carriers_.find(name); c != carriers_.end()) {
      inside(c->second);
    }
  }

  const Graph& from_;
  const std::map<std::string, Expr>& derived_;
  const std::map<std::string, ValueId>&read_, &carriers_;
  std::map<ValueId, ValueId> map_;
  std::set<std::string> used_;
};

void Cutter::add_part(const std::vector<NodeId>& nodes) {
  const std::set<NodeId> members(nodes.begin(), nodes.end());
  PartBuilder part(g_, derived_, read_, carriers_);
  for (NodeId id : nodes) part.add(g_.node(id));
  for (NodeId id : nodes)
    for (ValueId v : g_.node(id).outputs)
      if (leaves(v, members)) part.add_output(v);
  part.finish();
  runtime::ScriptStep step;
  step.part = static_cast<int32_t>(out_.parts.size());
  step.inputs = numbers(part.inputs);
  step.outputs = numbers(part.outputs);
  out_.parts.push_back(std::move(part.graph));
  script().steps.push_back(std::move(step));
}

Status Cutter::add_control(const Node& n) {
  runtime::ScriptStep step;
  const bool loops = n.op->name == "Loop";
  step.kind = loops ? runtime::ScriptStep::Kind::Loop : runtime::ScriptStep::Kind::If;
  step.name =
      n.origin.nodes.empty() ? std::string(n.op->name) : fmt::format("{} \"{}\"", n.op->name, n.origin.nodes[0]);
  step.inputs = numbers(n.inputs);
  step.outputs = numbers(n.outputs);
  if (loops) step.states = static_cast<int32_t>(n.attrs.as<LoopAttrs>().states);
  for (size_t i = static_cast<size_t>(step.states); loops && i < n.outputs.size(); ++i) {
    const TensorType& t = g_.value(n.outputs[i]).type;
    std::vector<int64_t> dims;
    for (size_t d = 1; d < t.rank(); ++d) dims.push_back(t.shape[d].as_int().value_or(-1));
    step.collected.emplace_back(t.dtype, std::move(dims));
  }
  for (const auto& branch : n.branches) {
    step.scripts.push_back(static_cast<int32_t>(out_.scripts.size()));
    out_.scripts.emplace_back();
    INGOT_TRY(Cutter(*branch, out_, out_.scripts.size() - 1).run());
  }
  script().steps.push_back(std::move(step));
  return {};
}

}  // namespace

bool needs_partition(const Graph& graph) {
  for (NodeId id : graph.order())
    if (is_control(graph.node(id))) return true;
  return std::any_of(graph.value_symbols.begin(), graph.value_symbols.end(),
                     [&](const ValueSymbol& s) { return graph.producer(s.value) != nullptr; });
}

Result<Partition> partition(const Graph& graph) {
  Partition p;
  p.scripts.emplace_back();
  INGOT_TRY(Cutter(graph, p, 0).run());
  return p;
}

}  // namespace ingot
