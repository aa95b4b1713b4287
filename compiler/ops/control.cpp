#include "compiler/ops/control.h"

#include <fmt/format.h>

#include <algorithm>

#include "compiler/expr/simplify.h"

namespace ingot {
namespace {

using OpenDims = std::vector<std::set<size_t>>;  // by state

/// A symbol that a control node's output defines.
Expr result_symbol(const Graph& g, size_t& count) { return Expr::symbol(fmt::format("run{}_{}", g.node_count(), count++)); }

bool all_known(const Content& content) {
  return content && std::all_of(content->begin(), content->end(), [](const Expr& e) { return e.is_const(); });
}

Status check_state(const TensorType& before, const TensorType& after, size_t i) {
  if (before.dtype == after.dtype && before.rank() == after.rank()) return {};
  return unsupported(fmt::format("state {} is {} before an iteration and {} after it", i, to_string(before), to_string(after)));
}

/// Adds to `open` the dims of states that an iteration changes; true when there were new ones.
bool note_changes(const Graph& body, size_t states, OpenDims& open) {
  bool changed = false;
  for (size_t i = 0; i < states; ++i) {
    const Shape &before = body.value(body.inputs[i + 2]).type.shape, &after = body.value(body.outputs[i + 1]).type.shape;
    for (size_t d = 0; d < before.size(); ++d)
      if (!open[i].count(d) && !proves_equal(before[d], after[d])) changed |= open[i].insert(d).second;
  }
  return changed;
}

void name_interface(Graph& g) {
  g.output_names.clear();
  for (size_t i = 0; i < g.outputs.size(); ++i) g.output_names.push_back(fmt::format("out{}", i));
  for (size_t i = 0; i < g.inputs.size(); ++i)
    if (g.value(g.inputs[i]).name.empty()) g.value(g.inputs[i]).name = fmt::format("in{}", i);
}

/// One try at the body, given which dims of the states are open.
Result<std::unique_ptr<NestedGraph>> build_body(GraphBuilder& b, const LoopSpec& spec, const OpenDims& open) {
  auto nested = std::make_unique<NestedGraph>(b.graph());
  std::vector<ValueId> inputs{nested->graph.add_input({DType::I64, {}}, "iteration"),
                              nested->graph.add_input({DType::Bool, {}}, "condition")};
  for (size_t i = 0; i < spec.states.size(); ++i) inputs.push_back(nested->add_input(spec.states[i], open[i]));
  Graph& g = nested->graph;
  std::vector<ValueId> outputs = INGOT_TRY(spec.body(*nested, inputs));
  if (outputs.size() < spec.states.size() + 1) return invalid("the body gives too few outputs");
  g.outputs = std::move(outputs);
  if (g.value(g.outputs[0]).type.dtype != DType::Bool) return invalid("the body's condition is not a bool");
  for (size_t i = 0; i < spec.states.size(); ++i)
    INGOT_TRY(check_state(g.value(g.inputs[i + 2]).type, g.value(g.outputs[i + 1]).type, i));
  return nested;
}

constexpr OpDef control_row(std::string_view name, std::string_view doc) {
  OpDef d;
  d.name = name, d.doc = doc, d.min_inputs = 1, d.max_inputs = 1 << 20;
  return d;
}
const OpDef kControl[] = {
    control_row("If", "one of two graphs, chosen at run time"),
    [] {
      OpDef d = control_row("Loop", "a graph, repeated as often as run time says");
      d.parse_attrs = parse_attrs<LoopAttrs>;
      return d;
    }(),
};

}  // namespace

std::span<const OpDef> control_ops() { return kControl; }

Expr NestedGraph::fresh() {
  graph.symbols.push_back(Expr::symbol(fmt::format("d{}", graph.symbols.size())));
  return graph.symbols.back();
}
Expr NestedGraph::inner_dim(const Expr& outer) {
  if (outer.is_const()) return outer;
  for (const auto& [from, to] : dims_)
    if (from.same(outer)) return to;
  dims_.emplace_back(outer, fresh());
  return dims_.back().second;
}
Expr NestedGraph::outer_dim(const Expr& inner) const {
  Bindings back;
  for (const auto& [outer, symbol] : dims_) back.emplace(symbol.name(), outer);
  bool known = true;
  visit(inner, [&](const Expr& x) { known &= x.op() != ExprOp::Symbol || back.count(x.name()); });
  return known ? simplify(substitute(inner, back)) : Expr();
}
ValueId NestedGraph::add_input(ValueId outer, const std::set<size_t>& open) {
  TensorType type = outer_.value(outer).type;
  for (size_t d = 0; d < type.rank(); ++d) type.shape[d] = open.count(d) ? fresh() : inner_dim(type.shape[d]);
  return graph.add_input(std::move(type), fmt::format("in{}", graph.inputs.size()));
}
ValueId NestedGraph::capture(ValueId outer) {
  for (const auto& [from, to] : inside_)
    if (from == outer) return to;
  const Value& value = outer_.value(outer);
  ValueId inner;
  if (value.constant) {
    inner = graph.add_constant(value.constant, value.name);
  } else if (const auto dims = static_dims(value.type.shape); dims && all_known(value.content)) {
    Tensor t(value.type.dtype, *dims);
    for (size_t i = 0; i < value.content->size(); ++i) {
      const Expr& e = (*value.content)[i];
      is_float(t.type()) ? t.set_float(static_cast<int64_t>(i), e.float_value()) : t.set_int(static_cast<int64_t>(i), e.int_value());
    }
    inner = graph.add_constant(std::make_shared<const Tensor>(std::move(t)), value.name);
  } else {
    inner = add_input(outer);
    captured.push_back(outer);
  }
  inside_.emplace_back(outer, inner);
  return inner;
}

Result<Values> build_loop(GraphBuilder& b, const LoopSpec& spec) {
  const size_t states = spec.states.size();
  OpenDims open(states);
  auto body = INGOT_TRY(build_body(b, spec, open));
  while (note_changes(body->graph, states, open)) body = INGOT_TRY(build_body(b, spec, open));
  name_interface(body->graph);
  Graph& g = b.graph();
  std::vector<TensorType> types;
  size_t symbols = 0;
  for (size_t i = 0; i < states; ++i) {
    types.push_back(g.value(spec.states[i]).type);
    for (size_t d : open[i]) types.back().shape[d] = result_symbol(g, symbols);
  }
  for (size_t i = states + 1; i < body->graph.outputs.size(); ++i) {
    const TensorType& row = body->graph.value(body->graph.outputs[i]).type;
    TensorType all{row.dtype, {result_symbol(g, symbols)}};
    for (const Expr& d : row.shape) {
      const Expr outside = body->outer_dim(d);
      all.shape.push_back(outside.valid() ? outside : result_symbol(g, symbols));
    }
    types.push_back(std::move(all));
  }
  std::vector<ValueId> inputs{spec.trips, spec.condition};
  inputs.insert(inputs.end(), spec.states.begin(), spec.states.end());
  inputs.insert(inputs.end(), body->captured.begin(), body->captured.end());
  const NodeId id = g.add_node(&op("Loop"), AttrsBox::of(LoopAttrs{static_cast<int64_t>(states)}), inputs, types, b.origin);
  g.node(id).branches = {std::make_shared<Graph>(std::move(body->graph))};
  return g.node(id).outputs;
}

Result<Values> build_if(GraphBuilder& b, ValueId condition, const BuildNested& then_branch, const BuildNested& else_branch) {
  Graph& g = b.graph();
  NestedGraph branches[] = {NestedGraph(g), NestedGraph(g)};
  branches[0].graph.outputs = INGOT_TRY(then_branch(branches[0], {}));
  branches[1].graph.outputs = INGOT_TRY(else_branch(branches[1], {}));
  std::vector<TensorType> types;
  size_t symbols = 0;
  const size_t count = std::min(branches[0].graph.outputs.size(), branches[1].graph.outputs.size());
  for (size_t i = 0; i < count; ++i) {
    const auto type_in = [&](size_t n) -> const TensorType& { return branches[n].graph.value(branches[n].graph.outputs[i]).type; };
    TensorType type = type_in(0);
    if (type.dtype != type_in(1).dtype || type.rank() != type_in(1).rank())
      return unsupported(fmt::format("output {} is {} in one branch and {} in the other", i, to_string(type), to_string(type_in(1))));
    for (size_t d = 0; d < type.rank(); ++d) {
      const Expr one = branches[0].outer_dim(type_in(0).shape[d]), other = branches[1].outer_dim(type_in(1).shape[d]);
      type.shape[d] = one.valid() && other.valid() && proves_equal(one, other) ? one : result_symbol(g, symbols);
    }
    types.push_back(std::move(type));
  }
  std::vector<ValueId> inputs{condition};
  for (NestedGraph& n : branches) {
    n.graph.outputs.resize(count);
    name_interface(n.graph);
    inputs.insert(inputs.end(), n.captured.begin(), n.captured.end());
  }
  const NodeId id = g.add_node(&op("If"), {}, inputs, types, b.origin);
  for (NestedGraph& n : branches) g.node(id).branches.push_back(std::make_shared<Graph>(std::move(n.graph)));
  return g.node(id).outputs;
}

}  // namespace ingot
