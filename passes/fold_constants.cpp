#include <fmt/format.h>

#include "compiler/ops/rows.h"
#include "compiler/support/tensor_moves.h"
#include "passes/passes.h"

namespace ingot {
namespace {

constexpr int64_t kFreeBytes = 64 << 10;  // results up to this size are folded whatever they came from

Tensor tensor_of(const TensorType& type, const std::vector<Expr>& items) {
  Tensor t(type.dtype, *static_dims(type.shape));
  for (size_t i = 0; i < items.size(); ++i) {
    if (is_float(type.dtype)) t.set_float(static_cast<int64_t>(i), items[i].float_value());
    else t.set_int(static_cast<int64_t>(i), items[i].int_value());
  }
  return t;
}

bool all_constant(const std::vector<Expr>& items) {
  for (const Expr& e : items)
    if (!e.is_const()) return false;
  return true;
}

/// True when every input is a constant and the result is not much larger than what it came from.
bool worth_evaluating(const Graph& g, const Node& n) {
  if (n.inputs.empty() || n.op->lowers_as<Fused>() || n.op->lowers_as<Decompose>()) return false;
  int64_t in = 0, out = 0;
  for (ValueId v : n.inputs) {
    if (!v.valid()) continue;
    if (!g.value(v).constant) return false;
    in += static_cast<int64_t>(g.value(v).constant->bytes());
  }
  for (ValueId v : n.outputs) {
    const auto dims = static_dims(g.value(v).type.shape);
    if (!dims) return false;
    auto count = checked_count(*dims, size_of(g.value(v).type.dtype));
    if (!count) return false;
    out += *count * static_cast<int64_t>(size_of(g.value(v).type.dtype));
  }
  return out <= kFreeBytes || out <= 4 * in;
}

/// What only moves elements, done without the interpreter.
std::optional<Tensor> moved(const Graph& g, const Node& n) {
  if (g.value(n.inputs[0]).type.dtype == DType::String) return std::nullopt;
  if (n.op->name == "Transpose") return transposed(*g.value(n.inputs[0]).constant, n.attrs.as<PermAttrs>().perm);
  if (n.op->name != "Concat") return std::nullopt;
  std::vector<TensorPtr> parts;
  for (ValueId v : n.inputs) parts.push_back(g.value(v).constant);
  return concatenated(parts, static_cast<size_t>(n.attrs.as<AxisAttrs>().axis));
}

void replace_output(Graph& g, const Node& n, size_t i, Tensor t) {
  const ValueId old = n.outputs[i];
  const std::string name = g.value(old).name;
  const ValueId fresh = g.add_constant(std::make_shared<const Tensor>(std::move(t)), name);
  g.replace_all_uses(old, fresh);
}

}  // namespace

Result<bool> fold_constants(Graph& graph, const PassContext& ctx) {
  bool changed = false;
  for (NodeId id : graph.order()) {
    if (graph.node(id).dead) continue;
    const Node n = graph.node(id);
    if (widens_bytes_of_product(graph, n, ctx)) continue;
    const Value& first = graph.value(n.outputs[0]);
    if (first.content && all_constant(*first.content) && n.outputs.size() == 1) {
      replace_output(graph, n, 0, tensor_of(first.type, *first.content));
      changed |= graph.erase_if_dead(id);
      continue;
    }
    if (!ctx.evaluate || !worth_evaluating(graph, n)) continue;
    if (auto tensor = moved(graph, n)) {
      replace_output(graph, n, 0, std::move(*tensor));
      changed |= graph.erase_if_dead(id);
      continue;
    }
    auto tensors = ctx.evaluate(graph, n);
    if (!tensors) {
      std::string nodes;
      for (const std::string& o : n.origin.nodes) nodes += " \"" + o + "\"";
      return std::move(tensors.error().add(fmt::format("while folding {}{}", n.op->name, nodes)));
    }
    for (size_t i = 0; i < tensors->size(); ++i) replace_output(graph, n, i, std::move((*tensors)[i]));
    changed |= graph.erase_if_dead(id);
  }
  return changed;
}

}  // namespace ingot
