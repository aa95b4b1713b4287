#include "frontend/model_outline.h"

#include "frontend/node_order.h"

namespace ingot {
namespace {

/// Adds the nodes of a graph and, behind each, those of its subgraphs.
class Outliner {
 public:
  explicit Outliner(ModelOutline& outline) : outline_(outline) {}

  void add(const onnx::Graph& graph, const std::string& prefix) {
    for (const onnx::Tensor& t : graph.initializer()) initialisers_.insert(t.name());
    for (const onnx::SparseTensor& t : graph.sparse_initializer()) initialisers_.insert(t.values().name());
    for (int i = 0; i < graph.node_size(); ++i) add_node(graph.node(i), prefix + label_of(graph.node(i), i));
  }
  bool is_initialiser(std::string_view name) const { return initialisers_.count(name) != 0; }

 private:
  void add_node(const onnx::Node& node, const std::string& label) {
    const bool standard = node.domain().empty() || node.domain() == "ai.onnx";
    OutlineNode out{label, standard ? node.op_type() : node.domain() + "." + node.op_type(), {}, {}, {}};
    const auto read = [&](const std::string& name) {
      if (!name.empty()) (is_initialiser(name) ? out.weights : out.inputs).push_back(name);
    };
    for (const std::string& name : node.input()) read(name);
    for (const onnx::Attribute& a : node.attribute())
      if (a.has_g())
        for (const onnx::ValueInfo& result : a.g().output()) read(result.name());
    for (const std::string& name : node.output())
      if (!name.empty()) out.outputs.push_back(name);
    outline_.nodes.push_back(std::move(out));
    for (const onnx::Attribute& a : node.attribute())
      if (a.has_g()) add(a.g(), label + "/");
  }

  ModelOutline& outline_;
  NameSet initialisers_;
};

}  // namespace

ModelOutline outline_of(const OnnxModel& model) {
  const onnx::Graph& graph = model.proto().graph();
  ModelOutline outline;
  Outliner outliner(outline);
  outliner.add(graph, "");
  for (const onnx::ValueInfo& info : graph.input())
    if (!outliner.is_initialiser(info.name())) outline.inputs.push_back(info.name());
  for (const onnx::ValueInfo& info : graph.output()) outline.outputs.push_back(info.name());
  return outline;
}

}  // namespace ingot
