// Nodes that stand for other nodes: calls of the model's own functions, and If with a condition known at import. Both are
// inlined as scopes of their own, so names inside can never clash with names outside.
#include <fmt/format.h>

#include "frontend/importer.h"
#include "frontend/text.h"

namespace ingot {
namespace {

// Scopes nest by recursion; real models stay below ten.
constexpr int kDeepest = 64;

/// "a -> b -> a" when the function is being inlined already.
std::string recursion(const Frame& frame, const onnx::Function& function) {
  std::string path = function.name();
  for (const Frame* f = &frame; f; f = f->outer) {
    if (!f->function || f->sees_outer) continue;
    path = f->function->name() + " -> " + path;
    if (f->function == &function) return path;
  }
  return "";
}

}  // namespace

Status Importer::call_function(const NodeSite& site, const onnx::Function& function) {
  if (const std::string path = recursion(site.frame, function); !path.empty())
    return invalid(fmt::format("the function {} calls itself: {}", quote_name(function.name()), path));
  if (site.frame.depth >= kDeepest)
    return unsupported(fmt::format("functions and branches nest deeper than {}", kDeepest));
  if (site.node.input_size() > function.input_size() || site.node.output_size() > function.output_size())
    return invalid(fmt::format("node {} passes {} inputs and {} outputs to the function {}, which has {} and {}",
                               quote_name(site.label), site.node.input_size(), site.node.output_size(),
                               quote_name(function.name()), function.input_size(), function.output_size()));
  ++report_.inlined_calls;
  Frame inner;
  inner.outer = &site.frame;
  inner.function = &function;
  inner.depth = site.frame.depth + 1;
  inner.prefix = site.label + "/";
  inner.opsets = INGOT_TRY(read_opsets(function.opset_import()));
  inner.opsets.insert(site.frame.opsets.begin(), site.frame.opsets.end());
  for (const onnx::Attribute& a : function.attribute_proto()) inner.params[a.name()] = &a;
  for (const onnx::Attribute& a : site.node.attribute())
    if (const onnx::Attribute* value = find_attribute(site, a.name())) inner.params[a.name()] = value;
  for (int i = 0; i < function.input_size(); ++i) {
    Binding binding;
    if (i < site.node.input_size() && !site.node.input(i).empty()) binding.alias = find(site.frame, site.node.input(i));
    if (!inner.bindings.emplace(function.input(i), binding).second)
      return invalid(fmt::format("the function {} has two inputs named {}", quote_name(function.name()),
                                 quote_name(function.input(i))));
  }
  const std::vector<std::string_view> outputs(function.output().begin(), function.output().end());
  const size_t first_new_value = graph().value_count();
  auto status = import_nodes(inner, function.node(), outputs);
  if (!status)
    return std::move(status.error().add(
        fmt::format("in the function {}, called by node {}", quote_name(function.name()), quote_name(site.label))));
  export_outputs(site, inner, outputs, first_new_value);
  return {};
}

Status Importer::import_if(const NodeSite& site) {
  Binding* condition = site.node.input_size() == 1 ? find(site.frame, site.node.input(0)) : nullptr;
  if (!condition) {
    fail(site, invalid("it must have one input, the condition"));
    return {};
  }
  if (target_of(*condition).poisoned) {
    poison_outputs(site);
    return {};
  }
  auto value = resolve(*condition, site.frame.prefix + site.node.input(0));
  if (!value) {
    fail(site, value.error());
    return {};
  }
  const Content content = builder().content(*value);
  const bool is_bool = value->valid() && graph().value(*value).type.dtype == DType::Bool;
  if (!is_bool || (content && content->size() != 1)) {
    fail(site, invalid("its condition is not one bool"));
    return {};
  }
  if (!content || !content->front().is_const()) {
    auto outcome = run_time_if(site, *value);
    if (outcome) return {};
    note_deciding({*value});
    fail(site, outcome.error());
    return {};
  }
  const std::string_view name = content->front().int_value() ? "then_branch" : "else_branch";
  for (const onnx::Attribute& a : site.node.attribute())
    if (a.name() == name && a.has_g()) return inline_branch(site, a.g());
  fail(site, invalid(fmt::format("it has no {}", name)));
  return {};
}

Status Importer::inline_branch(const NodeSite& site, const onnx::Graph& branch) {
  if (site.frame.depth >= kDeepest)
    return unsupported(fmt::format("functions and branches nest deeper than {}", kDeepest));
  if (branch.input_size() != 0 || branch.output_size() < site.node.output_size()) {
    fail(site,
         invalid(fmt::format("its branch has {} inputs and {} outputs", branch.input_size(), branch.output_size())));
    return {};
  }
  Frame inner(site.frame, site.frame.prefix);
  INGOT_TRY(bind_initialisers(inner, branch));
  std::vector<std::string_view> outputs;
  for (const onnx::ValueInfo& info : branch.output()) outputs.push_back(info.name());
  const size_t first_new_value = graph().value_count();
  auto status = import_nodes(inner, branch.node(), outputs);
  if (!status) return std::move(status.error().add(fmt::format("in a branch of node {}", quote_name(site.label))));
  export_outputs(site, inner, outputs, first_new_value);
  return {};
}

void Importer::export_outputs(const NodeSite& site, Frame& inner, const std::vector<std::string_view>& names,
                              size_t first_new_value) {
  for (int i = 0; i < site.node.output_size(); ++i) {
    const std::string& name = site.node.output(i);
    if (name.empty()) continue;
    Binding binding;
    if (auto own = inner.bindings.find(names[static_cast<size_t>(i)]); own != inner.bindings.end())
      binding = own->second;
    else binding.alias = find(inner, names[static_cast<size_t>(i)]);
    // A value that the call made is better known by the caller's name for it.
    const ValueId value = binding.value;
    if (value.valid() && value.index >= first_new_value && graph().value(value).producer.valid())
      graph().value(value).name = unique_name(site.frame.prefix + name);
    site.frame.bindings[name] = std::move(binding);
  }
}

}  // namespace ingot
