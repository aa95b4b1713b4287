// If, Loop and Scan that only the run decides: their graphs are imported as graphs of their own, inside a node
// (compiler/ops/control.h).
#include <fmt/format.h>

#include <algorithm>

#include "frontend/importer.h"
#include "frontend/text.h"

namespace ingot {

Result<ValueId> Importer::resolve_input(const NodeSite& site, int i) {
  if (i >= site.node.input_size() || site.node.input(i).empty()) return ValueId();
  Binding* binding = find(site.frame, site.node.input(i));
  if (!binding) return ValueId();
  return resolve(*binding, site.frame.prefix + site.node.input(i));
}

/// Imports `body` into the nested graph; its outputs there. `inputs` are the nested graph's inputs for the body's.
Result<std::vector<ValueId>> Importer::nest(const NodeSite& site, const onnx::Graph& body, NestedGraph& nested,
                                            const std::vector<ValueId>& inputs) {
  GraphBuilder inside(nested.graph);
  GraphBuilder* const outside = std::exchange(current_, &inside);
  Frame inner(site.frame, site.label + "/");
  inner.nested = &nested;
  const auto import_all = [&]() -> Result<std::vector<ValueId>> {
    INGOT_TRY(bind_initialisers(inner, body));
    for (int i = 0; i < body.input_size(); ++i) {
      Binding b;
      b.value = inputs[static_cast<size_t>(i)];
      const bool scalar = inside.shape(b.value).empty();  // the count and the condition may be declared with one element
      if (scalar && body.input(i).type().tensor_type().shape().dim_size() == 1)
        b.value = INGOT_TRY(build_reshape(inside, b.value, {1}));
      inner.bindings[body.input(i).name()] = b;
    }
    std::vector<std::string_view> names;
    for (const onnx::ValueInfo& info : body.output()) names.push_back(info.name());
    INGOT_TRY(import_nodes(inner, body.node(), names));
    std::vector<ValueId> outputs;
    for (std::string_view name : names) {
      Binding* binding = find(inner, name);
      if (!binding || target_of(*binding).poisoned) return unsupported("its graph has nodes that cannot be imported");
      outputs.push_back(INGOT_TRY(resolve(*binding, inner.prefix + std::string(name))));
      if (!outputs.back().valid()) return invalid(fmt::format("the output {} has no value", quote_name(std::string(name))));
    }
    return outputs;
  };
  auto outputs = import_all();
  current_ = outside;
  builder().origin.nodes = {site.label};
  return outputs;
}

void Importer::bind_results(const NodeSite& site, const std::vector<ValueId>& values) {
  for (int i = 0; i < site.node.output_size() && static_cast<size_t>(i) < values.size(); ++i) {
    const std::string& name = site.node.output(i);
    if (name.empty()) continue;
    const ValueId v = values[static_cast<size_t>(i)];
    if (graph().value(v).name.empty()) graph().value(v).name = unique_name(site.frame.prefix + name);
    site.frame.bindings[name] = Binding{};
    site.frame.bindings[name].value = v;
  }
}

Status Importer::run_time_if(const NodeSite& site, ValueId condition) {
  builder().origin.nodes = {site.label};
  const auto branch = [&](const char* name) {
    return [this, &site, name](NestedGraph& nested, const std::vector<ValueId>&) -> Result<std::vector<ValueId>> {
      const onnx::Attribute* a = find_attribute(site, name);
      if (!a || !a->has_g()) return invalid(fmt::format("it has no {}", name));
      if (a->g().input_size() != 0 || a->g().output_size() < site.node.output_size())
        return invalid(fmt::format("its {} has {} inputs and {} outputs", name, a->g().input_size(), a->g().output_size()));
      return nest(site, a->g(), nested, {});
    };
  };
  bind_results(site, INGOT_TRY(build_if(builder(), condition, branch("then_branch"), branch("else_branch"))));
  return {};
}

Status Importer::run_time_loop(const NodeSite& site) {
  const onnx::Graph* body = find_body(site);
  const int states = site.node.input_size() - 2;
  if (!body || states < 0 || body->input_size() != states + 2 || body->output_size() < states + 1)
    return invalid("its body does not fit its inputs");
  LoopSpec spec;
  spec.trips = INGOT_TRY(resolve_input(site, 0));
  spec.condition = INGOT_TRY(resolve_input(site, 1));
  for (int i = 0; i < states; ++i) {
    spec.states.push_back(INGOT_TRY(resolve_input(site, i + 2)));
    if (!spec.states.back().valid()) return unsupported("a state without a value");
  }
  spec.body = [&](NestedGraph& nested, const std::vector<ValueId>& inputs) { return nest(site, *body, nested, inputs); };
  builder().origin.nodes = {site.label};
  bind_results(site, INGOT_TRY(build_loop(builder(), spec)));
  return {};
}

Status Importer::run_time_scan(const NodeSite& site) {
  const onnx::Graph* body = find_body(site);
  const onnx::Attribute* count = find_attribute(site, "num_scan_inputs");
  const int scanned = count ? static_cast<int>(count->i()) : 0, states = site.node.input_size() - scanned;
  if (!body || scanned < 1 || states < 0 || body->input_size() != site.node.input_size() || body->output_size() < states)
    return invalid("its body does not fit its inputs");
  const auto axes = INGOT_TRY(scan_list(site, "scan_input_axes", static_cast<size_t>(scanned)));
  const auto reversed = INGOT_TRY(scan_list(site, "scan_input_directions", static_cast<size_t>(scanned)));
  LoopSpec spec;
  std::vector<ValueId> sequences;
  for (int i = 0; i < site.node.input_size(); ++i) {
    const ValueId v = INGOT_TRY(resolve_input(site, i));
    if (!v.valid()) return invalid("an input is missing");
    (i < states ? spec.states : sequences).push_back(v);
  }
  builder().origin.nodes = {site.label};
  std::vector<int64_t> along;
  for (size_t i = 0; i < sequences.size(); ++i) along.push_back(INGOT_TRY(wrap_axis(axes[i], builder().shape(sequences[i]).size())));
  const Expr length = builder().shape(sequences[0])[static_cast<size_t>(along[0])];
  spec.trips = INGOT_TRY(build_values(builder(), DType::I64, {}, {length}));
  spec.body = [&](NestedGraph& nested, const std::vector<ValueId>& inputs) -> Result<std::vector<ValueId>> {
    GraphBuilder inside(nested.graph);
    std::vector<ValueId> given(inputs.begin() + 2, inputs.end());
    for (size_t i = 0; i < sequences.size(); ++i) {
      const ValueId all = nested.capture(sequences[i]);
      ValueId at = inputs[0];
      if (reversed[i]) {
        const Expr last = inside.shape(all)[static_cast<size_t>(along[i])] - 1;
        at = INGOT_TRY(build_binary(inside, "Sub", INGOT_TRY(build_values(inside, DType::I64, {}, {last})), at));
      }
      given.push_back(INGOT_TRY(build_gather(inside, all, at, static_cast<size_t>(along[i]))));
    }
    std::vector<ValueId> outputs = INGOT_TRY(nest(site, *body, nested, given));
    outputs.insert(outputs.begin(), inside.scalar(DType::Bool, 1));
    return outputs;
  };
  std::vector<ValueId> results = INGOT_TRY(build_loop(builder(), spec));
  const size_t collected = results.size() - static_cast<size_t>(states);
  const auto out_axes = INGOT_TRY(scan_list(site, "scan_output_axes", collected));
  const auto out_reversed = INGOT_TRY(scan_list(site, "scan_output_directions", collected));
  for (size_t i = 0; i < collected; ++i) {
    ValueId& v = results[static_cast<size_t>(states) + i];
    const Shape s = builder().shape(v);
    if (out_reversed[i]) v = INGOT_TRY(build_slice(builder(), v, 0, s[0] - 1, s[0], -1));
    const int64_t axis = INGOT_TRY(wrap_axis(out_axes[i], s.size()));
    std::vector<int64_t> perm;
    for (size_t d = 1; d < s.size(); ++d) perm.push_back(static_cast<int64_t>(d));
    perm.insert(perm.begin() + axis, 0);
    if (axis != 0) v = INGOT_TRY(build_transpose(builder(), v, perm));
  }
  bind_results(site, results);
  return {};
}

}  // namespace ingot
