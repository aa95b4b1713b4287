#include "compiler/driver/reference.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "codegen/kernel/interpret.h"
#include "codegen/lower/lower_group.h"
#include "compiler/ops/joins.h"
#include "compiler/ops/registry.h"

namespace ingot {
namespace {

Result<Tensor> make_tensor(const TensorType& type, const SymbolValues& symbols) {
  std::vector<int64_t> dims;
  for (const Expr& d : type.shape) {
    const auto v = evaluate_int(d, symbols);
    if (!v || *v < 0) return invalid(fmt::format("dimension {} has no valid value", to_string(d)));
    dims.push_back(*v);
  }
  INGOT_TRY(checked_count(dims, size_of(type.dtype)));
  return Tensor(type.dtype, dims);
}

Status run_kernel(const Kernel& k, std::vector<Tensor*> args, const SymbolValues& symbols) {
  std::vector<void*> buffers;
  std::vector<int64_t> sizes;
  for (Tensor* t : args) {
    buffers.push_back(t->mutable_data());
    sizes.push_back(t->count());
  }
  return interpret(k, buffers, sizes, symbols);
}

}  // namespace

Result<SymbolValues> bind_symbols(const Graph& g, const std::vector<Tensor>& inputs) {
  if (inputs.size() != g.inputs.size()) return invalid(fmt::format("{} inputs given, the model has {}", inputs.size(), g.inputs.size()));
  SymbolValues symbols;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Value& v = g.value(g.inputs[i]);
    const auto& dims = inputs[i].dims();
    if (inputs[i].type() != v.type.dtype || dims.size() != v.type.rank())
      return invalid(fmt::format("input \"{}\" is {}, the model wants {}", v.name, describe(inputs[i].type(), dims), to_string(v.type)));
    for (size_t d = 0; d < dims.size(); ++d)
      if (const Expr& e = v.type.shape[d]; e.op() == ExprOp::Symbol) symbols.emplace(e.name(), dims[d]);
  }
  for (const ValueSymbol& s : g.value_symbols) {
    const auto at = static_cast<size_t>(std::find(g.inputs.begin(), g.inputs.end(), s.value) - g.inputs.begin());
    if (at == g.inputs.size()) return unsupported("sizes that follow from computed values");
    symbols[s.symbol.name()] = inputs[at].bits_at(s.element);
  }
  for (const DerivedSymbol& d : g.derived_symbols) {
    const auto value = evaluate_int(d.definition, symbols);
    if (!value) return unsupported(fmt::format("the size {} needs more than integer arithmetic", to_string(d.definition)));
    symbols[d.symbol.name()] = *value;
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Value& v = g.value(g.inputs[i]);
    for (size_t d = 0; d < v.type.rank(); ++d)
      if (evaluate_int(v.type.shape[d], symbols) != inputs[i].dims()[d])
        return invalid(fmt::format("input \"{}\" is {}, the model wants {}", v.name,
                                   describe(inputs[i].type(), inputs[i].dims()), to_string(v.type)));
  }
  return symbols;
}

Result<std::vector<Tensor>> run_reference(const Graph& g, const MemoryPlan& plan, const LoweredProgram& lowered,
                                          const std::vector<ShapeRequirement>& requirements, const std::vector<Tensor>& inputs) {
  const SymbolValues symbols = INGOT_TRY(bind_symbols(g, inputs));
  for (const ShapeRequirement& r : requirements)
    if (evaluate_int(r.condition, symbols) != 1) return invalid(r.message);
  std::map<ValueId, Tensor> values;  // by their holders
  for (size_t i = 0; i < inputs.size(); ++i) values.emplace(g.inputs[i], inputs[i]);
  auto get = [&](ValueId v) -> Tensor* {
    v = holder_of(g, v);
    if (auto it = values.find(v); it != values.end()) return &it->second;
    return &values.emplace(v, *g.value(v).constant).first->second;
  };
  IdMap<ValueId, int> uses(g.value_count(), 0);
  for (NodeId id : plan.order)
    for (ValueId v : g.node(id).inputs) ++uses[holder_of(g, v)];
  for (size_t i = 0; i < plan.order.size(); ++i) {
    const Node& n = g.node(plan.order[i]);
    std::vector<Tensor*> args;
    for (ValueId v : n.inputs) args.push_back(get(v));
    for (ValueId v : n.outputs) {
      const ValueId holder = holder_of(g, v);
      if (!values.count(holder)) values.emplace(holder, INGOT_TRY(make_tensor(g.value(holder).type, symbols)));
      args.push_back(get(holder));
    }
    INGOT_TRY(run_kernel(lowered.kernels[i], args, symbols));
    for (ValueId v : n.inputs)
      if (const ValueId holder = holder_of(g, v); --uses[holder] == 0 && !g.is_output(holder)) values.erase(holder);
  }
  std::vector<Tensor> outputs;
  for (ValueId v : g.outputs) outputs.push_back(*get(v));
  return outputs;
}

Result<NodeKernel> lower_node(const Graph& graph, const Node& node) {
  Graph g;
  g.name = "constant";
  auto body = std::make_shared<Graph>();
  std::vector<ValueId> outer, inner;
  NodeKernel result;
  std::map<ValueId, ValueId> known;
  for (ValueId v : node.inputs) {
    if (!v.valid()) {
      inner.push_back(v);
      continue;
    }
    if (!known.count(v)) {
      known[v] = body->add_input(graph.value(v).type, "");
      body->value(known[v]).content = graph.value(v).content;
      outer.push_back(g.add_input(graph.value(v).type, ""));
      result.inputs.push_back(v);
    }
    inner.push_back(known[v]);
  }
  std::vector<TensorType> types;
  for (ValueId v : node.outputs) types.push_back(graph.value(v).type);
  const NodeId id = body->add_node(node.op, node.attrs, inner, types, {});
  body->outputs = body->node(id).outputs;
  body->output_names.assign(types.size(), "");
  GroupKind kind = GroupKind::Points;
  if (node.op->lowers_as<Contraction>()) kind = GroupKind::Contraction;
  if (auto* r = node.op->lowers_as<Reduction>()) {
    const NodeView view(graph, node);
    kind = r->form(*view).axes.empty() ? GroupKind::Windows : GroupKind::Rows;
  }
  const NodeId fused = g.add_node(&op("fused"), AttrsBox::of(FusedAttrs{name_of(kind)}), outer, types, {});
  g.node(fused).body = body;
  g.outputs = g.node(fused).outputs;
  MemoryPlan plan;
  plan.order = {fused};
  result.kernel = std::move(INGOT_TRY(lower_program(g, plan)).kernels[0]);
  return result;
}

Result<std::vector<Tensor>> run_kernel_alone(const Kernel& kernel, const std::vector<Tensor>& inputs, const std::vector<TensorType>& outputs,
                                             const SymbolValues& symbols) {
  std::vector<Tensor> in = inputs, out;
  for (const TensorType& t : outputs) out.push_back(INGOT_TRY(make_tensor(t, symbols)));
  std::vector<Tensor*> args;
  for (auto* list : {&in, &out})
    for (Tensor& t : *list) args.push_back(&t);
  INGOT_TRY(run_kernel(kernel, args, symbols));
  return out;
}

Result<std::vector<Tensor>> run_apart(const Graph& g, const std::vector<Tensor>& inputs, const SymbolValues& symbols, const BeforeNode& before) {
  std::map<ValueId, Tensor> values;
  for (size_t i = 0; i < inputs.size(); ++i) values.emplace(g.inputs[i], inputs[i]);
  const auto get = [&](ValueId v) { return values.count(v) ? values.at(v) : *g.value(v).constant; };
  for (NodeId id : g.order()) {
    const Node& n = g.node(id);
    const NodeKernel lowered = INGOT_TRY(lower_node(g, n));
    std::vector<Tensor> in;
    std::vector<TensorType> types;
    for (ValueId v : lowered.inputs) in.push_back(get(v));
    for (ValueId v : n.outputs) types.push_back(g.value(v).type);
    if (before) before(g, n, in);
    std::vector<Tensor> out = INGOT_TRY(run_kernel_alone(lowered.kernel, in, types, symbols));
    for (size_t i = 0; i < out.size(); ++i) values.insert_or_assign(n.outputs[i], std::move(out[i]));
  }
  std::vector<Tensor> outputs;
  for (ValueId v : g.outputs) outputs.push_back(get(v));
  return outputs;
}

Result<std::vector<Tensor>> evaluate_node(const Graph& graph, const Node& node) {
  const NodeKernel lowered = INGOT_TRY(lower_node(graph, node));
  std::vector<Tensor> inputs;
  std::vector<TensorType> types;
  for (ValueId v : lowered.inputs) inputs.push_back(*graph.value(v).constant);
  for (ValueId v : node.outputs) types.push_back(graph.value(v).type);
  return run_kernel_alone(lowered.kernel, inputs, types, {});
}

}  // namespace ingot
