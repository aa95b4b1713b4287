#include "frontend/weights_apart.h"

#include <fmt/format.h>

#include <set>

#include "frontend/onnx_ir.pb.h"
#include "frontend/onnx_weights.h"
#include "frontend/text.h"

namespace ingot {
namespace {

constexpr uint64_t kSmall = 256;  // bytes

Result<bool> is_weight(const onnx::Tensor& t) {
  auto type = dtype_from_onnx(t.data_type());
  if (!type || !is_float(*type) || is_packed(*type)) return false;  // what cannot be imported is found out elsewhere
  const std::vector<int64_t> dims(t.dims().begin(), t.dims().end());
  return static_cast<uint64_t>(INGOT_TRY(checked_count(dims, size_of(*type)))) * size_of(*type) > kSmall;
}

/// Calls visit(name, tensor) for every weight of the main graph. Graph is onnx::Graph, const or not.
template <class Graph, class F>
Status each_weight(Graph& graph, F visit) {
  const auto offer = [&](const std::string& name, auto& tensor) -> Status {
    if (!INGOT_TRY(is_weight(tensor))) return {};
    return visit(name, tensor);
  };
  if constexpr (std::is_const_v<Graph>) {
    for (const onnx::Tensor& t : graph.initializer()) INGOT_TRY(offer(t.name(), t));
    for (const onnx::Node& n : graph.node())
      if (n.op_type() == "Constant" && n.domain().empty() && n.output_size() == 1)
        for (const onnx::Attribute& a : n.attribute())
          if (a.has_t()) INGOT_TRY(offer(n.output(0), a.t()));
  } else {
    for (onnx::Tensor& t : *graph.mutable_initializer()) INGOT_TRY(offer(t.name(), t));
    for (onnx::Node& n : *graph.mutable_node())
      if (n.op_type() == "Constant" && n.domain().empty() && n.output_size() == 1)
        for (onnx::Attribute& a : *n.mutable_attribute())
          if (a.has_t()) INGOT_TRY(offer(n.output(0), *a.mutable_t()));
  }
  return {};
}

void clear_data(onnx::Tensor& t) {
  t.clear_float_data();
  t.clear_int32_data();
  t.clear_double_data();
  t.clear_raw_data();
  t.clear_external_data();
  t.clear_data_location();
}

Status fill(const std::string& name, onnx::Tensor& to, const Weights& weights) {
  const auto it = weights.find(name);
  if (it == weights.end()) return invalid(fmt::format("the new weights lack {}", quote_name(name)));
  const Tensor& from = *it->second;
  const DType type = INGOT_TRY(dtype_from_onnx(to.data_type()));
  const std::vector<int64_t> dims(to.dims().begin(), to.dims().end());
  if (from.type() != type || from.dims() != dims)
    return invalid(fmt::format("weight {} is {}, the model has {}", quote_name(name),
                               describe(from.type(), from.dims()), describe(type, dims)));
  to.set_raw_data(from.data(), from.bytes());
  return {};
}

}  // namespace

Result<Weights> weights_of(const OnnxModel& model) {
  WeightLoader loader(model.owner(), model.folder());
  Weights weights;
  INGOT_TRY(each_weight(model.proto().graph(), [&](const std::string& name, const onnx::Tensor& t) -> Status {
    weights[name] = INGOT_TRY(loader.load(t));
    return {};
  }));
  return weights;
}

Result<std::string> without_weights(const OnnxModel& model) {
  // Copied piece by piece: a copy of the whole would hold all weights a second time.
  const onnx::Model& from = model.proto();
  onnx::Model bare;
  for (const auto& opset : from.opset_import()) *bare.add_opset_import() = opset;
  for (const auto& function : from.functions()) *bare.add_functions() = function;
  bare.set_ir_version(from.ir_version());
  onnx::Graph& graph = *bare.mutable_graph();
  graph.set_name(from.graph().name());
  for (const auto& x : from.graph().input()) *graph.add_input() = x;
  for (const auto& x : from.graph().output()) *graph.add_output() = x;
  for (const auto& x : from.graph().value_info()) *graph.add_value_info() = x;
  for (const auto& x : from.graph().sparse_initializer()) *graph.add_sparse_initializer() = x;
  for (const onnx::Tensor& t : from.graph().initializer()) {
    onnx::Tensor& copy = *graph.add_initializer();
    if (!INGOT_TRY(is_weight(t))) {
      copy = t;
      continue;
    }
    *copy.mutable_dims() = t.dims();
    copy.set_data_type(t.data_type());
    copy.set_name(t.name());
  }
  for (const onnx::Node& n : from.graph().node()) *graph.add_node() = n;
  INGOT_TRY(each_weight(graph, [](const std::string&, onnx::Tensor& t) -> Status {
    clear_data(t);
    return {};
  }));
  std::string bytes;
  if (!bare.SerializePartialToString(&bytes)) return unsupported("the model's graph is too large to be kept");
  return bytes;
}

Result<OnnxModel> with_weights(std::string_view bytes, const Weights& weights, const std::string& name) {
  OnnxModel model = INGOT_TRY(parse_model(bytes, name));
  auto filled = std::make_shared<onnx::Model>(model.proto());
  std::set<std::string> used;
  INGOT_TRY(each_weight(*filled->mutable_graph(), [&](const std::string& weight, onnx::Tensor& t) -> Status {
    used.insert(weight);
    return fill(weight, t, weights);
  }));
  for (const auto& [weight, tensor] : weights)
    if (!used.count(weight)) return invalid(fmt::format("the model has no weight {}", quote_name(weight)));
  return OnnxModel::of_message(std::move(filled), name);
}

}  // namespace ingot
