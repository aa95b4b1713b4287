#include "frontend/onnx_import.h"

#include <fmt/format.h>

#include <algorithm>

#include "frontend/importer.h"
#include "frontend/input_shapes.h"
#include "frontend/text.h"

namespace ingot {
namespace {

// IR version 4 is the first in which an initialiser need not be an input, so that being one means something.
constexpr int64_t kFirstOverridable = 4;
constexpr size_t kShownFailures = 500;

std::string function_key(const std::string& domain, const std::string& name, const std::string& overload) {
  return domain + '\0' + name + '\0' + overload;
}

}  // namespace

Result<std::map<std::string, int>> read_opsets(const google::protobuf::RepeatedPtrField<onnx::OperatorSetId>& imports) {
  std::map<std::string, int> opsets;
  for (const onnx::OperatorSetId& id : imports) {
    const std::string domain = domain_of(id.domain());
    if (domain.empty() && id.version() > kNewestOpset)
      return unsupported(
          fmt::format("opset {} is newer than {}, the newest that this build knows", id.version(), kNewestOpset));
    if (id.version() < 0 || id.version() > INT32_MAX)
      return invalid(fmt::format("opset {} of domain {} is out of range", id.version(), quote_name(domain)));
    int& version = opsets[domain];
    version = std::max(version, static_cast<int>(id.version()));
  }
  return opsets;
}

Status Importer::index_functions() {
  for (const onnx::Function& f : model_.proto().functions())
    if (!functions_.emplace(function_key(domain_of(f.domain()), f.name(), f.overload()), &f).second)
      return invalid(
          fmt::format("the function {} of domain {} is defined twice", quote_name(f.name()), quote_name(f.domain())));
  return {};
}

const onnx::Function* Importer::find_function(const onnx::Node& node, const std::string& domain) const {
  auto it = functions_.find(function_key(domain, node.op_type(), node.overload()));
  return it != functions_.end() ? it->second : nullptr;
}

Status Importer::bind_given_constants(Frame& frame) {
  for (const auto& [name, tensor] : options_.constants) {
    const auto& inputs = model_.proto().graph().input();
    auto info = std::find_if(inputs.begin(), inputs.end(), [&name = name](const auto& i) { return i.name() == name; });
    if (info == inputs.end())
      return invalid(fmt::format("a value is given for {}, which is no input of the model", quote_name(name)));
    const DType declared = INGOT_TRY(dtype_from_onnx(info->type().tensor_type().elem_type()));
    if (declared != tensor->type())
      return invalid(fmt::format("the value given for input {} is {}, but the model wants {}", quote_name(name),
                                 name_of(tensor->type()), name_of(declared)));
    Binding binding;
    binding.loaded = tensor;
    frame.bindings[info->name()] = std::move(binding);
  }
  return {};
}

Status Importer::import_inputs(Frame& frame) {
  std::vector<const onnx::ValueInfo*> infos;
  NameSet seen;
  for (const onnx::ValueInfo& info : model_.proto().graph().input()) {
    if (info.name().empty()) return invalid("an input of the graph has no name");
    if (!seen.insert(info.name()).second)
      return invalid(fmt::format("the input {} is listed twice", quote_name(info.name())));
    auto initialiser = frame.bindings.find(info.name());
    if (initialiser == frame.bindings.end()) {
      infos.push_back(&info);
      continue;
    }
    if (model_.proto().ir_version() < kFirstOverridable || options_.constants.contains(info.name())) continue;
    Overridable overridable{info.name(), options_.keep_overridable, nullptr};
    if (overridable.is_input) {
      const Binding& b = initialiser->second;
      overridable.value = b.tensor ? INGOT_TRY(weights_.load(*b.tensor)) : INGOT_TRY(weights_.load(*b.sparse));
      infos.push_back(&info);
    }
    report_.overridable.push_back(std::move(overridable));
  }
  InputShapes shapes(options_);
  const auto types = INGOT_TRY(shapes.resolve(infos));
  for (size_t i = 0; i < infos.size(); ++i) {
    Binding binding;
    binding.value = graph().add_input(types[i], unique_name(infos[i]->name()));
    frame.bindings[infos[i]->name()] = binding;
  }
  graph().symbols = shapes.symbols();
  return {};
}

Status Importer::import_outputs(Frame& frame) {
  for (const onnx::ValueInfo& info : model_.proto().graph().output()) {
    Binding* binding = find(frame, info.name());
    INGOT_CHECK(binding != nullptr, "order_nodes lets an undefined output through");
    if (target_of(*binding).poisoned) continue;
    auto value = resolve(*binding, info.name());
    if (!value) return std::move(value.error().add(fmt::format("for the output {}", quote_name(info.name()))));
    if (!value->valid()) return invalid(fmt::format("the output {} has no value", quote_name(info.name())));
    const DType actual = graph().value(*value).type.dtype;
    const int32_t declared = info.type().tensor_type().elem_type();
    if (declared != 0 && declared != dtype_to_onnx(actual)) {
      const auto wanted = dtype_from_onnx(declared);
      return invalid(fmt::format("the output {} is declared as {}, but is {}", quote_name(info.name()),
                                 wanted.ok() ? name_of(wanted.value()) : fmt::format("element type {}", declared),
                                 name_of(actual)));
    }
    graph().outputs.push_back(*value);
    graph().output_names.push_back(info.name());
  }
  return {};
}

Error Importer::failure() const {
  const std::string message = failures_.size() == 1 ? "1 node cannot be imported"
                                                    : fmt::format("{} nodes cannot be imported", failures_.size());
  Error error = any_unsupported_ ? unsupported(message) : invalid(message);
  for (size_t i = 0; i < std::min(failures_.size(), kShownFailures); ++i) error.add(failures_[i]);
  if (failures_.size() > kShownFailures) error.add(fmt::format("and {} more", failures_.size() - kShownFailures));
  return error;
}

void Importer::note_symbolic() {
  for (const ValueSymbol& s : graph().value_symbols) {
    const std::string& name = graph().value(s.value).name;
    const bool is_input = std::find(graph().inputs.begin(), graph().inputs.end(), s.value) != graph().inputs.end();
    if (is_input && (report_.symbolic.empty() || report_.symbolic.back() != name)) report_.symbolic.push_back(name);
  }
}

Result<Graph> Importer::run() {
  const onnx::Model& proto = model_.proto();
  Frame frame;
  frame.opsets = INGOT_TRY(read_opsets(proto.opset_import()));
  if (proto.ir_version() < 3 && frame.opsets.empty()) frame.opsets[""] = 1;  // older than the field
  if (auto it = frame.opsets.find(""); it != frame.opsets.end()) report_.opset = it->second;
  graph().name = proto.graph().name();
  INGOT_TRY(index_functions());
  INGOT_TRY(bind_initialisers(frame, proto.graph()));
  INGOT_TRY(bind_given_constants(frame));
  INGOT_TRY(import_inputs(frame));
  std::vector<std::string_view> outputs;
  for (const onnx::ValueInfo& info : proto.graph().output()) outputs.push_back(info.name());
  if (outputs.empty()) return invalid("the graph has no outputs");
  INGOT_TRY(import_nodes(frame, proto.graph().node(), outputs));
  INGOT_TRY(import_outputs(frame));
  note_symbolic();
  if (!failures_.empty()) return failure();
  return std::move(graph());
}

std::vector<std::string> required_inputs(const OnnxModel& model) {
  const onnx::Graph& graph = model.proto().graph();
  NameSet initialisers;
  for (const onnx::Tensor& t : graph.initializer()) initialisers.insert(t.name());
  for (const onnx::SparseTensor& t : graph.sparse_initializer()) initialisers.insert(t.values().name());
  std::vector<std::string> names;
  for (const onnx::ValueInfo& info : graph.input())
    if (!initialisers.contains(info.name())) names.push_back(info.name());
  return names;
}

std::vector<std::string> listed_inputs(const OnnxModel& model) {
  std::vector<std::string> names;
  for (const onnx::ValueInfo& info : model.proto().graph().input()) names.push_back(info.name());
  return names;
}

Result<Graph> import_graph(const OnnxModel& model, const ImportOptions& options, ImportReport* report) {
  Importer importer(model, options);
  auto graph = importer.run();
  if (report) *report = std::move(importer.report());
  if (!graph) return std::move(graph.error().add("while importing " + model.path()));
  return graph;
}

}  // namespace ingot
