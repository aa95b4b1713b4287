// Scopes and single nodes: names to values, values to operators by way of the registry's import rules.
#include <fmt/format.h>

#include <algorithm>

#include "compiler/ops/registry.h"
#include "frontend/importer.h"
#include "frontend/onnx_attributes.h"
#include "frontend/text.h"

namespace ingot {
namespace {

// Far beyond real models; functions that call functions could otherwise multiply without end.
constexpr size_t kMostNodes = 1 << 20;
// Broadcasting became numpy's in this opset, and most operators took the form they still have.
constexpr int kModernOpset = 7;
constexpr int kShownInputs = 16;

/// Before opset 7, a `broadcast` with an `axis` aligned dimensions in a way that no later rule knows.
bool has_legacy_broadcast(const onnx::Node& node) {
  return std::any_of(node.attribute().begin(), node.attribute().end(),
                     [](const onnx::Attribute& a) { return a.name() == "broadcast" && a.i() != 0; }) &&
         std::any_of(node.attribute().begin(), node.attribute().end(),
                     [](const onnx::Attribute& a) { return a.name() == "axis"; });
}

/// The rule of the opset; for opsets before 7 also the oldest later one, whose inference meaning is the same.
const ImportRule* find_rule(const OpDef& row, const NodeSite& site) {
  if (!site.domain.empty() || site.opset >= kModernOpset) return find_import(row, site.opset);
  if (has_legacy_broadcast(site.node) && !row.imports.empty() && row.imports.front().since >= kModernOpset) return nullptr;
  if (const ImportRule* rule = find_import(row, site.opset)) return rule;
  const bool modern = !row.imports.empty() && row.imports.front().since <= kModernOpset;
  return modern ? &row.imports.front() : nullptr;
}

Error no_rule(const OpDef& row, const NodeSite& site) {
  if (site.domain.empty() && site.opset < kModernOpset && has_legacy_broadcast(site.node))
    return unsupported("broadcasting along an axis, as before opset 7, is not supported");
  return unsupported(fmt::format("its form in opset {} is not supported; it is from opset {} on", site.opset,
                                 row.imports.front().since));
}

Status check_inputs(const OpDef& row, const std::vector<ValueId>& inputs) {
  const auto n = static_cast<int>(inputs.size());
  if (n > row.max_inputs) return invalid(fmt::format("it has {} inputs, but takes at most {}", n, row.max_inputs));
  for (int i = 0; i < row.min_inputs; ++i)
    if (i >= n || !inputs[static_cast<size_t>(i)].valid()) return invalid(fmt::format("input {} is missing", i));
  return {};
}

}  // namespace

std::string Importer::unique_name(const std::string& wanted) {
  std::string name = wanted;
  for (int i = 2; !names_.insert(name).second; ++i) name = fmt::format("{}_{}", wanted, i);
  return name;
}

Binding* Importer::find(Frame& frame, std::string_view name) {
  for (Frame* f = &frame; f; f = f->sees_outer ? f->outer : nullptr) {
    if (auto it = f->bindings.find(name); it != f->bindings.end()) return &it->second;
    if (f->nested) return capture(*f, name);
  }
  return nullptr;
}

/// Brings a name of the outer graph into a nested one: constants are bound again, other values become inputs.
Binding* Importer::capture(Frame& frame, std::string_view name) {
  Binding* outer = find(*frame.outer, name);
  if (!outer) return nullptr;
  Binding inner = target_of(*outer);
  const bool constant = inner.tensor || inner.sparse || inner.loaded;
  inner.value = inner.value.valid() && !constant ? frame.nested->capture(inner.value) : ValueId();
  return &(frame.bindings[name] = std::move(inner));
}

Result<ValueId> Importer::resolve(Binding& binding, const std::string& name) {
  Binding& b = target_of(binding);
  if (!b.missing.empty()) return unsupported(b.missing);
  if (b.value.valid() || (!b.tensor && !b.sparse && !b.loaded)) return b.value;
  if (!b.loaded) {
    auto loaded = b.tensor ? weights_.load(*b.tensor) : weights_.load(*b.sparse);
    b.poisoned = !loaded;
    b.loaded = INGOT_TRY(std::move(loaded));
  }
  return b.value = graph().add_constant(b.loaded, unique_name(name));
}

Status Importer::bind_initialisers(Frame& frame, const onnx::Graph& graph) {
  auto bind = [&frame](const std::string& name, Binding binding) -> Status {
    if (name.empty()) return invalid("an initialiser has no name");
    if (!frame.bindings.emplace(name, std::move(binding)).second)
      return invalid(fmt::format("the initialiser {} is defined twice", quote_name(name)));
    return {};
  };
  for (const onnx::Tensor& t : graph.initializer()) {
    Binding binding;
    binding.tensor = &t;
    INGOT_TRY(bind(t.name(), std::move(binding)));
  }
  for (const onnx::SparseTensor& t : graph.sparse_initializer()) {
    Binding binding;
    binding.sparse = &t;
    INGOT_TRY(bind(t.values().name(), std::move(binding)));
  }
  return {};
}

Status Importer::import_nodes(Frame& frame, const NodeList& nodes, const std::vector<std::string_view>& outputs) {
  NameSet defined;
  for (const auto& [name, binding] : frame.bindings) defined.insert(name);
  auto is_visible = [&](std::string_view name) { return frame.sees_outer && find(*frame.outer, name) != nullptr; };
  const auto order = INGOT_TRY(order_nodes({nodes, defined, is_visible, outputs}));
  for (int i : order) {
    const onnx::Node& node = nodes[i];
    if (++report_.nodes > kMostNodes)
      return unsupported(fmt::format("the model has more than {} nodes once its functions are inlined", kMostNodes));
    NodeSite site{frame,
                  node,
                  frame.prefix + label_of(node, i),
                  domain_of(node.domain()),
                  0,
                  static_cast<size_t>(i) + 1,
                  static_cast<size_t>(nodes.size())};
    auto opset = frame.opsets.find(site.domain);
    site.opset = opset != frame.opsets.end() ? opset->second : site.domain.empty() ? 0 : 1;
    INGOT_TRY(import_node(site));
  }
  return {};
}

Status Importer::import_node(const NodeSite& site) {
  if (const onnx::Function* function = find_function(site.node, site.domain)) return call_function(site, *function);
  if (site.domain.empty() && site.opset == 0) {
    fail(site, invalid("the model does not say which opset of ONNX's own domain it uses"));
    return {};
  }
  if (site.domain.empty() && site.node.op_type() == "If") return import_if(site);
  if (site.domain.empty() && site.node.op_type() == "Loop") return import_loop(site);
  if (site.domain.empty() && site.node.op_type() == "Scan") return import_scan(site);
  if (!site.domain.empty() || site.node.op_type() != "Constant") return import_by_rule(site);
  import_constant(site);
  return {};
}

const onnx::Attribute* Importer::find_attribute(const NodeSite& site, std::string_view name) const {
  for (const onnx::Attribute& a : site.node.attribute()) {
    if (a.name() != name) continue;
    if (a.ref_attr_name().empty()) return &a;
    auto it = site.frame.params.find(a.ref_attr_name());
    return it != site.frame.params.end() ? it->second : nullptr;
  }
  return nullptr;
}

void Importer::import_constant(const NodeSite& site) {
  if (site.node.output_size() != 1)
    return fail(site, invalid(fmt::format("it has {} outputs instead of 1", site.node.output_size())));
  Binding binding;
  for (const onnx::Attribute& own : site.node.attribute()) {
    const onnx::Attribute* a = find_attribute(site, own.name());
    if (!a) continue;
    if (own.name() == "value" && a->has_t()) binding.tensor = &a->t();
    else if (own.name() == "sparse_value" && a->has_sparse_tensor()) binding.sparse = &a->sparse_tensor();
    else {
      onnx::Attribute renamed = *a;  // a reference carries the caller's name
      renamed.set_name(own.name());
      auto value = constant_from_attr(renamed);
      if (!value) return fail(site, value.error());
      binding.loaded = *value;
    }
  }
  if (!binding.tensor && !binding.sparse && !binding.loaded) return fail(site, invalid("it has no value"));
  site.frame.bindings[site.node.output(0)] = std::move(binding);
}

Status Importer::import_by_rule(const NodeSite& site) {
  std::vector<ValueId> inputs;
  bool poisoned = false;
  for (int i = 0; i < site.node.input_size(); ++i) {
    const std::string& name = site.node.input(i);
    Binding* binding = name.empty() ? nullptr : find(site.frame, name);
    if (!binding) {
      inputs.emplace_back();
      continue;
    }
    if (target_of(*binding).poisoned) {
      poisoned = true;
      continue;
    }
    auto value = resolve(*binding, site.frame.prefix + name);
    if (value) {
      inputs.push_back(*value);
      continue;
    }
    value.error().add(fmt::format("input {}", i));
    const bool of_files = value.error().kind == ErrorKind::NotFound || value.error().kind == ErrorKind::Io;
    if (of_files)
      return std::move(
          value.error().add(fmt::format("of node {}", quote_name(site.label))));  // the next node would say the same
    fail(site, value.error());
    return {};
  }
  if (poisoned) {
    poison_outputs(site);
    return {};
  }
  while (!inputs.empty() && !inputs.back().valid()) inputs.pop_back();
  auto outputs = apply_rule(site, std::move(inputs));
  if (outputs) bind_outputs(site, *outputs);
  else fail(site, outputs.error());
  return {};
}

Result<std::vector<ValueId>> Importer::apply_rule(const NodeSite& site, std::vector<ValueId> inputs) {
  const OpDef* row = find_op(site.node.op_type(), site.domain);
  if (!row || row->imports.empty())
    return unsupported(site.domain.empty()
                           ? "the operator is not supported"
                           : fmt::format("the operator of domain {} is not supported", quote_name(site.domain)));
  const ImportRule* rule = find_rule(*row, site);
  if (!rule) return no_rule(*row, site);
  INGOT_TRY(check_inputs(*row, inputs));
  OnnxNode view;
  view.op = site.node.op_type(), view.domain = site.domain, view.name = site.label, view.opset = site.opset;
  view.position = site.position, view.total = site.total;
  view.inputs.assign(site.node.input().begin(), site.node.input().end());
  view.outputs.assign(site.node.output().begin(), site.node.output().end());
  for (const onnx::Attribute& own : site.node.attribute()) {
    const onnx::Attribute* a = find_attribute(site, own.name());
    if (!a) continue;
    auto value = INGOT_TRY(attr_from_onnx(*a, weights_));
    if (value && !view.attrs.emplace(own.name(), std::move(*value)).second)
      return invalid(fmt::format("attribute {} is given twice", quote_name(own.name())));
  }
  builder().origin.nodes = {site.label};
  ImportContext context(view, builder(), std::move(inputs));
  auto outputs = rule->apply(context);
  if (!outputs) note_deciding(context.wanted);
  return outputs;
}

/// Adds the graph inputs that the values are computed from to the report.
void Importer::note_deciding(const std::vector<ValueId>& wanted) {
  std::vector<ValueId> open = wanted;
  std::unordered_set<uint32_t> seen;
  while (!open.empty()) {
    const ValueId v = open.back();
    open.pop_back();
    if (!v.valid() || !seen.insert(v.index).second) continue;
    if (const Node* n = graph().producer(v)) {
      open.insert(open.end(), n->inputs.begin(), n->inputs.end());
      continue;
    }
    const bool is_input = std::find(graph().inputs.begin(), graph().inputs.end(), v) != graph().inputs.end();
    auto& list = report_.deciding;
    if (is_input && std::find(list.begin(), list.end(), graph().value(v).name) == list.end())
      list.push_back(graph().value(v).name);
  }
}

void Importer::bind_outputs(const NodeSite& site, const std::vector<ValueId>& values) {
  for (int i = 0; i < site.node.output_size(); ++i) {
    const std::string& name = site.node.output(i);
    if (name.empty()) continue;
    Binding binding;
    if (static_cast<size_t>(i) < values.size()) binding.value = values[static_cast<size_t>(i)];
    if (!binding.value.valid()) {
      binding.missing = fmt::format("{} is output {} of {} {}, which is not supported", quote_name(name), i,
                                    site.node.op_type(), quote_name(site.label));
    } else if (Value& value = graph().value(binding.value); value.name.empty()) {
      value.name = unique_name(site.frame.prefix + name);
    }
    site.frame.bindings[name] = std::move(binding);
  }
}

void Importer::poison_outputs(const NodeSite& site) {
  Binding binding;
  binding.poisoned = true;
  for (const std::string& name : site.node.output())
    if (!name.empty()) site.frame.bindings[name] = binding;
}

std::string Importer::describe_inputs(const NodeSite& site) {
  std::string list;
  for (int i = 0; i < std::min(site.node.input_size(), kShownInputs); ++i) {
    const std::string& name = site.node.input(i);
    Binding* binding = name.empty() ? nullptr : find(site.frame, name);
    const ValueId value = binding ? target_of(*binding).value : ValueId();
    list += (i ? ", " : "") + (value.valid() ? to_string(graph().value(value).type) : name.empty() ? "none" : "?");
  }
  if (site.node.input_size() > kShownInputs) list += ", …";
  return list.empty() ? "no inputs" : "inputs " + list;
}

void Importer::fail(const NodeSite& site, const Error& error) {
  const std::string name = site.domain.empty() ? site.node.op_type() : site.domain + "." + site.node.op_type();
  std::string line =
      fmt::format("{} {} ({} of {}), opset {}, {}: {}", name.empty() ? "?" : name, quote_name(site.label),
                  site.position, site.total, site.opset, describe_inputs(site), error.message);
  for (const std::string& context : error.context)
    if (!context.starts_with("in " + site.node.op_type() + "("))
      line += "; " + context;  // the line has the types already
  failures_.push_back(std::move(line));
  any_unsupported_ |= error.kind == ErrorKind::Unsupported;
  poison_outputs(site);
}

}  // namespace ingot
