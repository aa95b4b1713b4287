// What the frontend refuses, and the words it uses. Every message names the thing that is wrong.
#include <catch2/catch.hpp>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "frontend/tensor_file.h"
#include "tests/onnx_build.h"

using namespace ingot;
using namespace ingot::test;
using Catch::Matchers::Contains;

namespace {

std::string error_of(const onnx::Model& model, const ImportOptions& options = {}) {
  auto graph = import(model, options);
  return graph ? "imported" : graph.error().to_string();
}
std::string parse_error(const std::string& bytes) {
  auto model = parse_model(bytes, "bytes");
  return model ? "parsed" : model.error().to_string();
}

onnx::Model relu_model() {
  onnx::Model model = new_model();
  add_input(model, "x", {"N", "4"});
  add_node(model, "Relu", {"x"}, {"y"}, "relu");
  add_output(model, "y");
  return model;
}

/// x + w with the given w.
onnx::Model weight_model(onnx::Tensor w) {
  onnx::Model model = new_model();
  add_input(model, "x", {"4"});
  w.set_name("w");
  add_initialiser(model, std::move(w));
  add_node(model, "Add", {"x", "w"}, {"y"}, "add");
  add_output(model, "y");
  return model;
}

void set_external(onnx::Tensor& t, const std::string& location, const std::string& offset = "",
                  const std::string& length = "") {
  t.clear_float_data();
  t.set_data_location(1);
  for (const auto& [key, value] :
       {std::pair<std::string, std::string>{"location", location}, {"offset", offset}, {"length", length}}) {
    if (value.empty()) continue;
    auto& e = *t.add_external_data();
    e.set_key(key);
    e.set_value(value);
  }
}

}  // namespace

TEST_CASE("files that are no models", "[errors]") {
  CHECK_THAT(parse_error(""), Contains("the file is empty"));
  CHECK_THAT(parse_error("this is not a protobuf message"), Contains("not an ONNX model"));
  CHECK_THAT(parse_error("\x93NUMPY"), Contains("not an ONNX model"));
  const std::string bytes = relu_model().SerializeAsString();
  CHECK(parse_error(bytes) == "parsed");
  CHECK_THAT(parse_error(bytes.substr(0, bytes.size() / 2)), Contains("truncated"));
  onnx::Model no_graph;
  no_graph.set_ir_version(8);
  CHECK_THAT(parse_error(no_graph.SerializeAsString()), Contains("has no graph"));
  auto missing = read_model("/nonexistent/model.onnx");
  REQUIRE(!missing);
  CHECK(missing.error().kind == ErrorKind::NotFound);
  CHECK_THAT(missing.error().to_string(), Contains("cannot open \"/nonexistent/model.onnx\""));
}

TEST_CASE("every prefix of a model is refused or read, never worse", "[errors]") {
  const std::string bytes = weight_model(floats("w", {4}, {1, 2, 3, 4})).SerializeAsString();
  for (size_t n = 0; n < bytes.size(); ++n)
    if (auto model = parse_model(bytes.substr(0, n), "prefix")) static_cast<void>(import_graph(model.value()));
}

TEST_CASE("faults in the graph", "[errors]") {
  onnx::Model ghost = relu_model();
  ghost.mutable_graph()->mutable_node(0)->set_input(0, "ghost");
  CHECK_THAT(error_of(ghost), Contains("the input \"ghost\" of node \"relu\" is not defined anywhere"));

  onnx::Model twice = relu_model();
  add_node(twice, "Neg", {"x"}, {"y"}, "neg");
  CHECK_THAT(error_of(twice), Contains("the value \"y\" is defined twice: by node \"relu\" and by node \"neg\""));

  onnx::Model cycle = new_model();
  add_input(cycle, "x", {"4"});
  add_node(cycle, "Add", {"x", "b"}, {"a"}, "first");
  add_node(cycle, "Neg", {"a"}, {"b"}, "second");
  add_output(cycle, "b");
  CHECK_THAT(error_of(cycle), Contains("the graph has a cycle: \"first\" -> \"second\" -> \"first\""));

  onnx::Model untyped = relu_model();
  untyped.mutable_graph()->mutable_input(0)->clear_type();
  CHECK_THAT(error_of(untyped), Contains("input \"x\" has no type"));

  onnx::Model negative = new_model();
  add_input(negative, "x", {"-7"});
  add_node(negative, "Relu", {"x"}, {"y"});
  add_output(negative, "y");
  CHECK_THAT(error_of(negative), Contains("input \"x\": dimension 0 is -7"));

  onnx::Model lost = relu_model();
  add_output(lost, "z");
  CHECK_THAT(error_of(lost), Contains("the output \"z\" is not defined anywhere"));

  onnx::Model other_type = relu_model();
  other_type.mutable_graph()->mutable_output(0)->mutable_type()->mutable_tensor_type()->set_elem_type(kInt64);
  CHECK_THAT(error_of(other_type), Contains("the output \"y\" is declared as i64, but is f32"));

  onnx::Model newer = new_model(99);
  add_output(newer, "y");
  CHECK_THAT(error_of(newer), Contains("opset 99 is newer than 28"));
}

TEST_CASE("all nodes that cannot be imported are listed at once", "[errors]") {
  onnx::Model model = new_model(13);
  add_input(model, "x", {"N", "4"});
  add_node(model, "Frobnicate", {"x"}, {"a"}, "one");
  add_node(model, "Relu", {"a"}, {"b"}, "innocent");
  add_node(model, "Defrobnicate", {"x", "x"}, {"c"}, "two", "com.example");
  add_node(model, "Add", {"b", "c"}, {"y"}, "add");
  add_output(model, "y");
  const std::string text = error_of(model);
  CHECK_THAT(text, Contains("unsupported: 2 nodes cannot be imported"));
  CHECK_THAT(text, Contains("Frobnicate \"one\" (1 of 4), opset 13, inputs f32[N,4]: the operator is not supported"));
  CHECK_THAT(text, Contains("com.example.Defrobnicate \"two\" (3 of 4), opset 1, inputs f32[N,4], f32[N,4]: the "
                            "operator of domain \"com.example\""));
  CHECK_THAT(text, !Contains("innocent"));
  CHECK_THAT(text, Contains("while importing test.onnx"));
}

TEST_CASE("a result with less than no elements", "[errors]") {
  onnx::Model model = new_model();
  add_input(model, "x", {"1", "1", "0"});
  add_initialiser(model, floats("w", {1, 1, 1}, {1}));
  auto& strides = *add_node(model, "ConvTranspose", {"x", "w"}, {"y"}, "wide").add_attribute();
  strides.set_name("strides");
  strides.set_type(7);
  strides.add_ints(2);
  add_output(model, "y");
  CHECK_THAT(error_of(model), Contains("wide") && Contains("negative dimension"));
}

TEST_CASE("payloads that disagree with their dims", "[errors]") {
  CHECK_THAT(error_of(weight_model(floats("w", {4}, {1, 2}))),
             Contains("f32[4] needs 4 items of data, but 2 are there"));
  CHECK_THAT(error_of(weight_model(floats("w", {-4}, {1, 2}))), Contains("negative dimension -4"));
  CHECK_THAT(error_of(weight_model(floats("w", {1 << 20, 1 << 20, 4}, {1, 2}))),
             Contains("items of data, but 2 are there"));
  CHECK_THAT(error_of(weight_model(floats("w", {INT64_MAX, INT64_MAX, 0}, {}))), Contains("does not fit in 63 bits"));
  onnx::Tensor raw;
  raw.set_data_type(kFloat);
  raw.add_dims(4);
  raw.set_raw_data("12345678");
  CHECK_THAT(error_of(weight_model(raw)), Contains("f32[4] needs 16 bytes of data, but 8 are there"));
  raw.set_data_type(14);
  CHECK_THAT(error_of(weight_model(raw)), Contains("element type complex64 is not supported"));
  raw.set_data_type(kString);
  CHECK_THAT(error_of(weight_model(raw)),
             Contains("Add \"add\" (1 of 1)") && Contains("element type string is not supported"));
}

TEST_CASE("external data stays in the model's folder", "[errors]") {
  std::string pattern = (std::filesystem::temp_directory_path() / "ingot-test-XXXXXX").string();
  const std::filesystem::path root = ::mkdtemp(pattern.data()), folder = root / "model";
  std::filesystem::create_directory(folder);
  std::ofstream(root / "outside.bin") << "0123456789abcdef";
  std::ofstream(folder / "inside.bin") << "0123456789abcdef";
  std::filesystem::create_symlink("../outside.bin", folder / "link.bin");
  std::filesystem::create_hard_link(root / "outside.bin", folder / "hard.bin");
  auto error_with = [&](const std::string& location, const std::string& offset = "", const std::string& length = "") {
    onnx::Tensor w = floats("w", {4}, {});
    set_external(w, location, offset, length);
    std::ofstream(folder / "m.onnx", std::ios::binary) << weight_model(w).SerializeAsString();
    auto model = read_model((folder / "m.onnx").string());
    if (!model) return model.error().to_string();
    auto graph = import_graph(model.value());
    return graph ? std::string("imported") : graph.error().to_string();
  };
  CHECK(error_with("inside.bin") == "imported");
  CHECK(error_with("inside.bin", "0", "16") == "imported");
  CHECK_THAT(error_with("../outside.bin"), Contains("leaves the model's folder"));
  CHECK_THAT(error_with("a/../../outside.bin"), Contains("leaves the model's folder"));
  CHECK_THAT(error_with((root / "outside.bin").string()), Contains("is absolute"));
  CHECK_THAT(error_with("link.bin"), Contains("outside the model's folder"));
  CHECK_THAT(error_with("hard.bin"), Contains("several hard links"));
  CHECK_THAT(error_with("absent.bin"), Contains("cannot open \"absent.bin\""));
  CHECK_THAT(error_with("."), Contains("external data"));
  CHECK_THAT(error_with("inside.bin", "8"), Contains("bytes 8 to 24 are wanted, but \"inside.bin\" has only 16"));
  CHECK_THAT(error_with("inside.bin", "0", "8"), Contains("length is 8, but the tensor's dims need 16 bytes"));
  CHECK_THAT(error_with("inside.bin", "-8"), Contains("offset is \"-8\""));
  CHECK_THAT(error_with("inside.bin", "9223372036854775807"), Contains("are wanted"));
  std::filesystem::remove_all(root);
}

TEST_CASE("functions that recur and branches that are not known", "[errors]") {
  onnx::Model model = new_model();
  for (const char* name : {"F", "G"}) {
    onnx::Function& f = *model.add_functions();
    f.set_name(name);
    f.set_domain("custom");
    f.add_input("a");
    f.add_output("b");
    add_node(f, name[0] == 'F' ? "G" : "F", {"a"}, {"b"}, "", "custom");
  }
  add_input(model, "x", {"4"});
  add_node(model, "F", {"x"}, {"y"}, "call", "custom");
  add_output(model, "y");
  CHECK_THAT(error_of(model), Contains("the function \"F\" calls itself: F -> G -> F"));

  onnx::Model branch = new_model();
  add_input(branch, "c", {}, kBool);
  add_node(branch, "If", {"c"}, {"y"}, "choose");
  add_output(branch, "y");
  CHECK_THAT(error_of(branch),
             Contains("If \"choose\" (1 of 1), opset 17, inputs bool[]: it has no then_branch"));
}

TEST_CASE("a Scan whose sequence is left out", "[errors]") {
  onnx::Model model = new_model();
  add_input(model, "x", {"3", "2"});
  onnx::Node& scan = add_node(model, "Scan", {"x", ""}, {"y"}, "scan");
  add_int(scan, "num_scan_inputs", 1);
  onnx::Graph& body = *add_attr(scan, "body", 5).mutable_g();
  set_type(*body.add_input(), "state", kFloat, {"3", "2"});
  set_type(*body.add_input(), "row", kFloat, {"2"});
  add_node(body, "Identity", {"state"}, {"next"});
  add_output(body, "next");
  add_output(model, "y");
  CHECK_THAT(error_of(model), Contains("Scan \"scan\" (1 of 1)") && Contains("its input 1 is missing"));
}

TEST_CASE("shape options that contradict the model", "[errors]") {
  auto error_with = [](const std::string& input, std::vector<std::string> dims) {
    ImportOptions options;
    options.shapes[input] = std::move(dims);
    return error_of(relu_model(), options);
  };
  CHECK(error_with("x", {"1..8", "4"}) == "imported");
  CHECK_THAT(error_with("x", {"1..8", "5"}), Contains("is given as \"5\", but the model fixes it at 4"));
  CHECK_THAT(error_with("x", {"8"}), Contains("has 1 dimensions, the model's has 2"));
  CHECK_THAT(error_with("x", {"8..1", "4"}), Contains("it may be a number"));
  CHECK_THAT(error_with("q", {"8"}), Contains("a shape is given for \"q\", but the model's inputs are \"x\""));
  ImportOptions options;
  options.ranges["M"] = {1, 2};
  CHECK_THAT(error_of(relu_model(), options), Contains("no input has a dimension of that name"));
}

TEST_CASE("tensor files that are damaged", "[errors]") {
  Tensor t(DType::F32, {2, 3});
  const std::string bytes = format_npy(t).value();
  for (size_t n = 0; n < bytes.size(); ++n) CHECK(!parse_npy(bytes.substr(0, n)));
  CHECK(!parse_npz("PK\x05\x06"));
  CHECK(!parse_tensor_proto("garbage that is no message"));
  std::string huge = bytes;
  huge.replace(huge.find("(2, 3, )"), 8, "(9999999");
  CHECK(!parse_npy(huge));
}

TEST_CASE("models rebuilt from public fault reports are refused", "[errors]") {
  const char* shared = std::getenv("INGOT_SHARED");
  const std::filesystem::path cases = std::filesystem::path(shared ? shared : "../shared") / "cases";
  std::ifstream index(cases / "index.tsv");
  if (!index) {
    WARN("skipped: " << cases << " is absent (INGOT_SHARED)");
    return;
  }
  for (std::string line; std::getline(index, line);) {
    std::istringstream fields(line);
    std::string name, bug, kind;
    fields >> name >> bug >> kind;
    if (kind != "must_reject") continue;
    INFO(name);
    auto model = read_model((cases / name / "model.onnx").string());
    if (!model) continue;
    CHECK(!import_graph(model.value()));
  }
}
