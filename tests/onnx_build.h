// Short ways to write ONNX models in tests: messages of our own schema, filled by hand.
#pragma once

#include <string>
#include <vector>

#include "frontend/onnx_import.h"
#include "frontend/onnx_ir.pb.h"
#include "frontend/onnx_model.h"

namespace ingot::test {

// ONNX's numbers of element types.
constexpr int kFloat = 1, kInt32 = 6, kInt64 = 7, kString = 8, kBool = 9, kFloat16 = 10;

inline onnx::Model new_model(int opset = 17, int ir_version = 8) {
  onnx::Model model;
  model.set_ir_version(ir_version);
  model.add_opset_import()->set_version(opset);
  model.mutable_graph()->set_name("test");
  return model;
}

/// A dimension is a number, a name, or "" for an unknown one.
inline void set_type(onnx::ValueInfo& info, const std::string& name, int type, const std::vector<std::string>& dims) {
  info.set_name(name);
  auto& tensor = *info.mutable_type()->mutable_tensor_type();
  tensor.set_elem_type(type);
  tensor.mutable_shape();
  for (const std::string& d : dims) {
    auto& dim = *tensor.mutable_shape()->add_dim();
    if (d.empty()) continue;
    if (d[0] == '-' || (d[0] >= '0' && d[0] <= '9')) dim.set_dim_value(std::stoll(d));
    else dim.set_dim_param(d);
  }
}
inline void add_input(onnx::Model& model, const std::string& name, const std::vector<std::string>& dims,
                      int type = kFloat) {
  set_type(*model.mutable_graph()->add_input(), name, type, dims);
}
inline void add_output(onnx::Graph& graph, const std::string& name) { graph.add_output()->set_name(name); }
inline void add_output(onnx::Model& model, const std::string& name) { add_output(*model.mutable_graph(), name); }

inline void fill_node(onnx::Node& node, const std::string& op, const std::vector<std::string>& inputs,
                      const std::vector<std::string>& outputs, const std::string& name = "",
                      const std::string& domain = "") {
  node.set_op_type(op);
  node.set_domain(domain);
  node.set_name(name);
  for (const std::string& i : inputs) node.add_input(i);
  for (const std::string& o : outputs) node.add_output(o);
}
template <class Owner>
onnx::Node& add_node(Owner& owner, const std::string& op, const std::vector<std::string>& inputs,
                     const std::vector<std::string>& outputs, const std::string& name = "",
                     const std::string& domain = "") {
  onnx::Node* node;
  if constexpr (std::is_same_v<Owner, onnx::Model>) node = owner.mutable_graph()->add_node();
  else node = owner.add_node();
  fill_node(*node, op, inputs, outputs, name, domain);
  return *node;
}
inline onnx::Attribute& add_attr(onnx::Node& node, const std::string& name, int type) {
  onnx::Attribute& a = *node.add_attribute();
  a.set_name(name);
  a.set_type(type);
  return a;
}
inline void add_int(onnx::Node& node, const std::string& name, int64_t value) { add_attr(node, name, 2).set_i(value); }
inline void add_string(onnx::Node& node, const std::string& name, const std::string& value) {
  add_attr(node, name, 3).set_s(value);
}

inline onnx::Tensor floats(const std::string& name, const std::vector<int64_t>& dims,
                           const std::vector<float>& values) {
  onnx::Tensor t;
  t.set_name(name);
  t.set_data_type(kFloat);
  for (int64_t d : dims) t.add_dims(d);
  for (float v : values) t.add_float_data(v);
  return t;
}
inline onnx::Tensor bools(const std::string& name, const std::vector<int64_t>& dims, const std::vector<int>& values) {
  onnx::Tensor t;
  t.set_name(name);
  t.set_data_type(kBool);
  for (int64_t d : dims) t.add_dims(d);
  for (int v : values) t.add_int32_data(v);
  return t;
}
template <class Owner>
void add_initialiser(Owner& owner, onnx::Tensor tensor) {
  if constexpr (std::is_same_v<Owner, onnx::Model>) *owner.mutable_graph()->add_initializer() = std::move(tensor);
  else *owner.add_initializer() = std::move(tensor);
}

inline Result<Graph> import(const onnx::Model& model, const ImportOptions& options = {},
                            ImportReport* report = nullptr) {
  const OnnxModel parsed = INGOT_TRY(parse_model(model.SerializeAsString(), "test.onnx"));
  return import_graph(parsed, options, report);
}

}  // namespace ingot::test
