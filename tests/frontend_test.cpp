// The frontend on good input: payloads of every element type, inlining, order, symbols, and names.
#include <catch2/catch.hpp>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "compiler/ops/registry.h"
#include "frontend/onnx_weights.h"
#include "frontend/text.h"
#include "tests/onnx_build.h"

using namespace ingot;
using namespace ingot::test;

namespace {

/// A folder that goes away with the test.
struct TempFolder {
  std::filesystem::path path;
  TempFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "ingot-test-XXXXXX").string();
    path = ::mkdtemp(pattern.data());
  }
  ~TempFolder() { std::filesystem::remove_all(path); }
  std::string file(const std::string& name) const { return (path / name).string(); }
  void write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path / name, std::ios::binary) << bytes;
  }
};

template <class T>
T good(Result<T> result) {
  if (!result) FAIL(result.error().to_string());
  return std::move(result).value();
}

TensorPtr load(const onnx::Tensor& message) {
  auto owner = std::make_shared<onnx::Tensor>(message);
  WeightLoader loader(owner, "");
  return good(loader.load(*owner));
}

std::vector<std::string> op_names(const Graph& graph) {
  std::vector<std::string> names;
  for (NodeId id : graph.order()) names.emplace_back(graph.node(id).op->name);
  return names;
}

}  // namespace

TEST_CASE("typed payloads of every element type", "[frontend]") {
  struct Case {
    int type;
    DType dtype;
  };
  for (auto [type, dtype] : {Case{2, DType::U8}, Case{3, DType::I8}, Case{4, DType::U16}, Case{5, DType::I16},
                             Case{6, DType::I32}, Case{9, DType::Bool}}) {
    onnx::Tensor t;
    t.set_data_type(type);
    t.add_dims(2);
    t.add_int32_data(1);
    t.add_int32_data(0);
    const TensorPtr loaded = load(t);
    CHECK(loaded->type() == dtype);
    CHECK(loaded->int_at(0) == 1);
    CHECK(loaded->int_at(1) == 0);
  }
  onnx::Tensor half;
  half.set_data_type(kFloat16);
  half.add_dims(1);
  half.add_int32_data(0xc000);  // -2
  CHECK(load(half)->float_at(0) == -2.0);
  half.set_data_type(16);
  CHECK(load(half)->float_at(0) == -2.0);  // the same bits in bfloat16
  onnx::Tensor eight;
  eight.set_data_type(17);
  eight.add_dims(1);
  eight.add_int32_data(0xb8);  // e4m3: -1
  CHECK(load(eight)->float_at(0) == -1.0);
  onnx::Tensor u32;
  u32.set_data_type(12);
  u32.add_dims(1);
  u32.add_uint64_data(4000000000u);
  CHECK(load(u32)->int_at(0) == 4000000000);
  CHECK(load(floats("", {}, {2.5f}))->float_at(0) == 2.5);
  CHECK(load(floats("", {0, 3}, {}))->count() == 0);
}

TEST_CASE("4-bit elements are unpacked, low half first", "[frontend]") {
  onnx::Tensor t;
  t.set_data_type(22);  // int4
  t.add_dims(3);
  t.set_raw_data(std::string("\xf1\x07", 2));
  const TensorPtr raw = load(t);
  CHECK(raw->int_at(0) == 1);
  CHECK(raw->int_at(1) == -1);
  CHECK(raw->int_at(2) == 7);
  t.clear_raw_data();
  t.set_data_type(21);  // uint4
  t.add_int32_data(0xf1);
  t.add_int32_data(0x07);
  const TensorPtr typed = load(t);
  CHECK(typed->int_at(1) == 15);
  CHECK(typed->int_at(2) == 7);
}

TEST_CASE("large raw payloads are referenced, not copied", "[frontend]") {
  auto message = std::make_shared<onnx::Tensor>();
  message->set_data_type(kFloat);
  message->add_dims(4096);
  message->set_raw_data(std::string(4096 * 4, '\0'));
  WeightLoader loader(message, "");
  TensorPtr tensor = good(loader.load(*message));
  CHECK(tensor->data() == message->raw_data().data());
  message.reset();
  CHECK(tensor->float_at(4095) == 0);  // the tensor keeps the message alive
}

TEST_CASE("sparse tensors become dense", "[frontend]") {
  auto sparse = std::make_shared<onnx::SparseTensor>();
  *sparse->mutable_values() = floats("", {2}, {5, 7});
  sparse->mutable_indices()->set_data_type(kInt64);
  sparse->mutable_indices()->add_dims(2);
  sparse->mutable_indices()->add_dims(2);
  for (int64_t i : {0, 1, 1, 0}) sparse->mutable_indices()->add_int64_data(i);
  sparse->add_dims(2);
  sparse->add_dims(2);
  WeightLoader loader(sparse, "");
  const TensorPtr dense = good(loader.load(*sparse));
  CHECK(dense->dims() == std::vector<int64_t>{2, 2});
  CHECK(dense->float_at(1) == 5);
  CHECK(dense->float_at(2) == 7);
  CHECK(dense->float_at(3) == 0);
}

TEST_CASE("external data is mapped from the model's folder", "[frontend]") {
  const TempFolder folder;
  onnx::Model model = new_model();
  add_input(model, "x", {"2048"});
  onnx::Tensor w;
  w.set_name("w");
  w.set_data_type(kFloat);
  w.add_dims(2048);
  w.set_data_location(1);
  auto entry = [&w](const char* key, const char* value) {
    auto& e = *w.add_external_data();
    e.set_key(key);
    e.set_value(value);
  };
  entry("location", "weights/w.bin");
  entry("offset", "4096");
  entry("length", "8192");
  add_initialiser(model, w);
  add_node(model, "Add", {"x", "w"}, {"y"});
  add_output(model, "y");
  std::filesystem::create_directory(folder.path / "weights");
  std::string bytes(4096 + 8192, '\0');
  const float value = 1.5f;
  std::memcpy(bytes.data() + 4096 + 4, &value, 4);
  folder.write("weights/w.bin", bytes);
  folder.write("m.onnx", model.SerializeAsString());
  const Graph graph = good(import_graph(good(read_model(folder.file("m.onnx")))));
  const Node& add = graph.node(graph.order().at(0));
  const TensorPtr constant = graph.value(add.inputs.at(1)).constant;
  REQUIRE(constant);
  CHECK(constant->float_at(1) == 1.5);
  CHECK(graph.value(add.inputs.at(1)).name == "w");
}

TEST_CASE("dimensions become named symbols", "[frontend]") {
  onnx::Model model = new_model();
  add_input(model, "image", {"batch size", "3", "", "-1"});
  add_input(model, "other", {"batch size", "int"});
  add_node(model, "Relu", {"image"}, {"y"});
  add_node(model, "Relu", {"other"}, {"z"});
  add_output(model, "y");
  add_output(model, "z");
  const Graph graph = good(import(model));
  CHECK(to_string(graph.value(graph.inputs[0]).type) == "f32[batch_size,3,image_d2,image_d3]");
  CHECK(to_string(graph.value(graph.inputs[1]).type) == "f32[batch_size,int_]");
  CHECK(graph.symbols.size() == 4);

  ImportOptions options;
  options.shapes["image"] = {"8", "3", "H=16..64", "?"};
  const Graph fixed = good(import(model, options));
  CHECK(to_string(fixed.value(fixed.inputs[0]).type) == "f32[8,3,H,image_d3]");
  CHECK(to_string(fixed.value(fixed.inputs[1]).type) == "f32[8,int_]");

  ImportOptions ranged;
  ranged.ranges["batch size"] = {1, 64};
  const Graph narrow = good(import(model, ranged));
  CHECK(to_string(narrow.symbols.at(0)) == "batch_size");
}

TEST_CASE("nodes out of order are sorted, dead ones left out", "[frontend]") {
  onnx::Model model = new_model();
  add_input(model, "x", {"4"});
  add_node(model, "Neg", {"t"}, {"y"}, "second");
  add_node(model, "Relu", {"x"}, {"t"}, "first");
  add_node(model, "Frobnicate", {"x"}, {"nobody"});
  add_output(model, "y");
  add_output(model, "y");
  const Graph graph = good(import(model));
  CHECK(op_names(graph) == std::vector<std::string>{"Relu", "Neg"});
  CHECK(graph.output_names == std::vector<std::string>{"y", "y"});
  const Node& neg = graph.node(graph.order().at(1));
  CHECK(neg.origin.nodes == std::vector<std::string>{"second"});
  CHECK(graph.value(neg.inputs.at(0)).name == "t");
}

TEST_CASE("a chain of 20,000 nodes needs no deep stack", "[frontend]") {
  onnx::Model model = new_model();
  add_input(model, "v0", {"2"});
  constexpr int kLength = 20000;
  for (int i = kLength; i > 0; --i) add_node(model, "Neg", {"v" + std::to_string(i - 1)}, {"v" + std::to_string(i)});
  add_output(model, "v20000");
  CHECK(good(import(model)).live_nodes() == kLength);
}

TEST_CASE("functions are inlined with their attributes, and names cannot clash", "[frontend]") {
  onnx::Model model = new_model();
  auto& id = *model.add_opset_import();
  id.set_domain("custom");
  id.set_version(1);
  onnx::Function& f = *model.add_functions();
  f.set_name("LeakyTwice");
  f.set_domain("custom");
  f.add_input("a");
  f.add_output("b");
  f.add_opset_import()->set_version(17);
  onnx::Attribute& fallback = *f.add_attribute_proto();
  fallback.set_name("slope");
  fallback.set_type(1);
  fallback.set_f(0.5f);
  for (auto [from, to] : {std::pair{"a", "t"}, std::pair{"t", "b"}}) {
    onnx::Attribute& alpha = add_attr(add_node(f, "LeakyRelu", {from}, {to}), "alpha", 1);
    alpha.set_ref_attr_name("slope");
  }
  add_input(model, "x", {"4"});
  add_node(model, "LeakyTwice", {"x"}, {"t"}, "call1", "custom");  // "t" is a local name of the function too
  add_attr(add_node(model, "LeakyTwice", {"t"}, {"y"}, "call2", "custom"), "slope", 1).set_f(0.25f);
  add_output(model, "y");
  ImportReport report;
  const Graph graph = good(import(model, {}, &report));
  CHECK(report.inlined_calls == 2);
  CHECK(op_names(graph) == std::vector<std::string>(4, "LeakyRelu"));
  const auto order = graph.order();
  CHECK(graph.node(order[0]).attrs.text().find("0.5") != std::string::npos);
  CHECK(graph.node(order[3]).attrs.text().find("0.25") != std::string::npos);
  CHECK(graph.node(order[0]).origin.nodes == std::vector<std::string>{"call1/LeakyRelu_0"});
  CHECK(graph.value(graph.node(order[1]).outputs[0]).name == "t");
}

TEST_CASE("If with a known condition is inlined and sees the outer scope", "[frontend]") {
  for (int condition : {0, 1}) {
    onnx::Model model = new_model();
    add_input(model, "x", {"2"});
    add_initialiser(model, floats("w", {2}, {1, 2}));
    add_initialiser(model, bools("c", {}, {condition}));
    onnx::Node& node = add_node(model, "If", {"c"}, {"y"}, "choose");
    onnx::Graph& then_branch = *add_attr(node, "then_branch", 5).mutable_g();
    add_node(then_branch, "Add", {"x", "w"}, {"then_out"});
    add_output(then_branch, "then_out");
    onnx::Graph& else_branch = *add_attr(node, "else_branch", 5).mutable_g();
    add_node(else_branch, "Mul", {"x", "w"}, {"else_out"});
    add_output(else_branch, "else_out");
    add_output(model, "y");
    const Graph graph = good(import(model));
    CHECK(op_names(graph) == std::vector<std::string>{condition ? "Add" : "Mul"});
  }
}

TEST_CASE("initialisers that are inputs: constants before IR 4, overridable from then on", "[frontend]") {
  for (int ir : {3, 8}) {
    onnx::Model model = new_model(13, ir);
    add_input(model, "x", {"2"});
    add_input(model, "w", {"2"});
    add_initialiser(model, floats("w", {2}, {1, 2}));
    add_node(model, "Add", {"x", "w"}, {"y"});
    add_output(model, "y");
    ImportReport report;
    CHECK(good(import(model, {}, &report)).inputs.size() == 1);
    CHECK(report.overridable.size() == (ir >= 4 ? 1 : 0));
    ImportOptions options;
    options.keep_overridable = true;
    CHECK(good(import(model, options, &report)).inputs.size() == (ir >= 4 ? 2 : 1));
    if (ir >= 4) CHECK(report.overridable.at(0).value->float_at(1) == 2);
  }
}

TEST_CASE("inputs can be given as constants", "[frontend]") {
  onnx::Model model = new_model();
  add_input(model, "x", {"2", "3"});
  add_input(model, "shape", {"1"}, kInt64);
  add_node(model, "Reshape", {"x", "shape"}, {"y"});
  add_output(model, "y");
  const Graph open = good(import(model));  // the element is a symbol that the program binds
  REQUIRE(open.value_symbols.size() == 1);
  CHECK(open.value_symbols[0].value == open.inputs[1]);
  CHECK(open.derived_symbols.size() == 1);
  ImportOptions options;
  options.constants["shape"] = std::make_shared<const Tensor>(Tensor::ints({-1}));
  const Graph graph = good(import(model, options));
  CHECK(graph.inputs.size() == 1);
  CHECK(to_string(graph.value(graph.outputs[0]).type) == "f32[6]");
  options.constants["shape"] = std::make_shared<const Tensor>(Tensor::scalar(DType::F32, 6));
  CHECK(!import(model, options));
}

TEST_CASE("Constant nodes in every form", "[frontend]") {
  onnx::Model model = new_model();
  add_input(model, "x", {"2"});
  *add_attr(add_node(model, "Constant", {}, {"a"}), "value", 4).mutable_t() = floats("", {2}, {1, 2});
  add_attr(add_node(model, "Constant", {}, {"b"}), "value_float", 1).set_f(3);
  onnx::Attribute& list = add_attr(add_node(model, "Constant", {}, {"c"}), "value_floats", 6);
  list.add_floats(4);
  list.add_floats(5);
  add_node(model, "Add", {"x", "a"}, {"t"});
  add_node(model, "Add", {"t", "b"}, {"u"});
  add_node(model, "Add", {"u", "c"}, {"y"});
  add_output(model, "y");
  const Graph graph = good(import(model));
  CHECK(op_names(graph) == std::vector<std::string>(3, "Add"));
}

TEST_CASE("names are made fit for identifiers and messages", "[frontend]") {
  CHECK(identifier("batch size") == "batch_size");
  CHECK(identifier("2N") == "d2N");
  CHECK(identifier("for") == "for_");
  CHECK(quote_name("a\nb") == "\"a\\x0ab\"");
  CHECK(quote_name(std::string(1000, 'x')).size() < 200);
}
