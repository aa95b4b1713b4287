#include "frontend/model_outline.h"

#include "frontend/node_order.h"

namespace ingot {

ModelOutline outline_of(const OnnxModel& model) {
  const onnx::Graph& graph = model.proto().graph();
  NameSet initialisers;
  for (const onnx::Tensor& t : graph.initializer()) initialisers.insert(t.name());
  for (const onnx::SparseTensor& t : graph.sparse_initializer()) initialisers.insert(t.values().name());
  ModelOutline outline;
  for (const onnx::ValueInfo& info : graph.input())
    if (!initialisers.count(info.name())) outline.inputs.push_back(info.name());
  for (const onnx::ValueInfo& info : graph.output()) outline.outputs.push_back(info.name());
  for (int i = 0; i < graph.node_size(); ++i) {
    const onnx::Node& node = graph.node(i);
    const bool standard = node.domain().empty() || node.domain() == "ai.onnx";
    OutlineNode out{label_of(node, i), standard ? node.op_type() : node.domain() + "." + node.op_type(), {}, {}, {}};
    auto read = [&](std::string_view name) {
      if (!name.empty()) (initialisers.count(name) ? out.weights : out.inputs).emplace_back(name);
    };
    for (const std::string& name : node.input()) read(name);
    for (std::string_view name : captured_names(node)) read(name);
    for (const std::string& name : node.output())
      if (!name.empty()) out.outputs.push_back(name);
    outline.nodes.push_back(std::move(out));
  }
  return outline;
}

}  // namespace ingot
