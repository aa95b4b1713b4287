// The nodes of one ONNX graph or function body in an order in which they can be imported. Checks what makes such an order
// possible: every value is defined once, every input exists, there is no cycle.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "compiler/support/result.h"
#include "frontend/onnx_ir.pb.h"

namespace ingot {

using NodeList = google::protobuf::RepeatedPtrField<onnx::Node>;
using NameSet = std::unordered_set<std::string_view>;

/// The node's name, or its operator and position where it has none.
std::string label_of(const onnx::Node& node, int index);

/// Names that the node's subgraphs use from outside themselves.
std::vector<std::string_view> captured_names(const onnx::Node& node);

struct OrderRequest {
  const NodeList& nodes;
  const NameSet& defined;  // inputs and initialisers of this graph
  std::function<bool(std::string_view)> is_visible;  // names of the graphs around it
  const std::vector<std::string_view>& outputs;
};
/// The nodes that the outputs need, producers first; the file's order where that is one.
Result<std::vector<int>> order_nodes(const OrderRequest& request);

}  // namespace ingot
