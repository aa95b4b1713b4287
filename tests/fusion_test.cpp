// What exporters write, and the kernels that it becomes for a GPU: import and all passes, where goldens look at one pass.
#include "codegen/text/kernel_name.h"
#include "compiler/driver/reference.h"
#include "compiler/ir/text.h"
#include "compiler/ops/registry.h"
#include "passes/neighbours.h"
#include "passes/pass_manager.h"
#include "tests/fused_graphs.h"
#include "tests/model_tools.h"

using namespace ingot;
using namespace ingot::test;

namespace {

Compilation lowered(const onnx::Model& m) {
  CompileOptions o;
  o.targets = {"sm_90a"};
  auto model = parse_model(m.SerializeAsString(), "test.onnx");
  REQUIRE(model.ok());
  auto c = lower_model(*model, o);
  INFO((c ? "" : c.error().to_string()));
  REQUIRE(c.ok());
  return std::move(c).value();
}
/// Kernels of the model; each pair of neighbours among them must have a reason.
size_t kernels(const onnx::Model& m) {
  const Compilation c = lowered(m);
  for (const Neighbours& n : explain_neighbours(c.graph, c.refusals)) CHECK_FALSE(n.reason.empty());
  return c.lowered.kernels.size();
}
std::vector<float> ramp_of(int64_t count) {
  std::vector<float> v;
  for (int64_t i = 0; i < count; ++i) v.push_back(static_cast<float>((i * 5) % 17) / 16 + 0.1f);
  return v;
}
void add_weight(onnx::Model& m, const std::string& name, const std::vector<int64_t>& dims) {
  int64_t count = 1;
  for (int64_t d : dims) count *= d;
  add_initialiser(m, floats(name, dims, ramp_of(count)));
}
onnx::Tensor byte(const std::string& name, int type, int value) {
  onnx::Tensor t;
  t.set_name(name);
  t.set_data_type(type);
  t.add_int32_data(value);
  return t;
}

}  // namespace

TEST_CASE("Dropout and Identity are gone") {
  onnx::Model m = new_model();
  add_input(m, "x", {"N", "16"});
  add_weight(m, "w", {16, 8});
  add_weight(m, "b", {8});
  add_node(m, "MatMul", {"x", "w"}, {"p"});
  add_node(m, "Dropout", {"p"}, {"d"});
  add_node(m, "Identity", {"d"}, {"i"});
  add_node(m, "Add", {"i", "b"}, {"y"});
  add_output(m, "y");
  CHECK(kernels(m) == 1);
}

TEST_CASE("a convolution, its BatchNormalization as a node, a residual and an activation") {
  for (const char* activation : {"Relu", "Sigmoid", "HardSwish", "Tanh"}) {
    onnx::Model m = new_model();
    add_input(m, "x", {"N", "4", "8", "8"});
    add_weight(m, "w", {4, 4, 1, 1});
    for (const char* name : {"scale", "bias", "mean", "var"}) add_weight(m, name, {4});
    add_node(m, "Conv", {"x", "w"}, {"c"});
    add_node(m, "BatchNormalization", {"c", "scale", "bias", "mean", "var"}, {"n"});
    add_node(m, "Add", {"n", "x"}, {"s"});
    add_node(m, activation, {"s"}, {"y"});
    add_output(m, "y");
    INFO(activation);
    CHECK(kernels(m) == 1);
  }
}

TEST_CASE("a product of quantised operands, quantised again") {
  onnx::Model m = new_model();
  add_input(m, "x", {"N", "16"}, 2);  // u8
  add_input(m, "w", {"16", "8"}, 3);  // i8
  for (const char* name : {"xs", "ws", "ys"}) add_initialiser(m, floats(name, {}, {0.5f}));
  add_initialiser(m, byte("xz", 2, 128));
  add_initialiser(m, byte("wz", 3, 0));
  add_initialiser(m, byte("yz", 2, 100));
  add_node(m, "DequantizeLinear", {"x", "xs", "xz"}, {"a"});
  add_node(m, "DequantizeLinear", {"w", "ws", "wz"}, {"b"});
  add_node(m, "MatMul", {"a", "b"}, {"p"});
  add_node(m, "QuantizeLinear", {"p", "ys", "yz"}, {"y"});
  add_output(m, "y");
  CHECK(kernels(m) == 1);
}

TEST_CASE("the Attention operator with grouped heads, causal or not, is one kernel") {
  for (int causal : {0, 1}) {
    onnx::Model m = new_model(23, 10);
    add_input(m, "q", {"B", "8", "M", "16"}, kFloat16);
    add_input(m, "k", {"B", "2", "M", "16"}, kFloat16);
    add_input(m, "v", {"B", "2", "M", "16"}, kFloat16);
    add_int(add_node(m, "Attention", {"q", "k", "v"}, {"y"}), "is_causal", causal);
    add_output(m, "y");
    CHECK(kernels(m) == 1);
  }
}

TEST_CASE("GroupNormalization as PyTorch exports it, with its activation") {
  onnx::Model m = new_model();
  add_input(m, "x", {"N", "8", "6", "6"});
  onnx::Tensor grouped, image;
  for (auto& [t, name, dims] :
       {std::tuple{&grouped, "grouped", std::vector<int64_t>{0, 4, -1}}, {&image, "image", {-1, 8, 6, 6}}}) {
    t->set_name(name);
    t->set_data_type(kInt64);
    t->add_dims(static_cast<int64_t>(dims.size()));
    for (int64_t d : dims) t->add_int64_data(d);
    add_initialiser(m, *t);
  }
  add_initialiser(m, floats("one", {4}, {1, 1, 1, 1}));
  add_initialiser(m, floats("zero", {4}, {0, 0, 0, 0}));
  add_weight(m, "scale", {8, 1, 1});
  add_weight(m, "bias", {8, 1, 1});
  add_node(m, "Reshape", {"x", "grouped"}, {"g"});
  add_node(m, "InstanceNormalization", {"g", "one", "zero"}, {"n"});
  add_node(m, "Reshape", {"n", "image"}, {"i"});
  add_node(m, "Mul", {"i", "scale"}, {"s"});
  add_node(m, "Add", {"s", "bias"}, {"t"});
  add_node(m, "Relu", {"t"}, {"y"});
  add_output(m, "y");
  CHECK(kernels(m) == 1);
}

TEST_CASE("a network exported with channels last has the kernels of one with channels first") {
  size_t count[2] = {};
  for (int last : {0, 1}) {
    onnx::Model m = new_model();
    add_input(m, "x",
              last ? std::vector<std::string>{"N", "8", "8", "16"} : std::vector<std::string>{"N", "16", "8", "8"});
    add_weight(m, "w", {16, 16, 1, 1});
    std::string at = "x";
    for (int i = 0; i < 3; ++i) {
      const std::string n = std::to_string(i);
      const auto turn = [&](const std::string& from, const std::string& to, std::vector<int64_t> perm) {
        auto& a = add_attr(add_node(m, "Transpose", {from}, {to}), "perm", 7);
        for (int64_t p : perm) a.add_ints(p);
        return to;
      };
      if (last) at = turn(at, "f" + n, {0, 3, 1, 2});
      add_node(m, "Conv", {at, "w"}, {"c" + n});
      at = "c" + n;
      if (last) at = turn(at, "l" + n, {0, 2, 3, 1});
      add_node(m, "Relu", {at}, {"r" + n});
      at = "r" + n;
    }
    add_node(m, "Sigmoid", {at}, {"y"});
    add_output(m, "y");
    count[last] = kernels(m);
  }
  CHECK(count[0] == 4);  // a copy of the input, channels last, is the first
  CHECK(count[1] == 3);
}

namespace {

/// Kernels that the passes make of a graph's text.
size_t kernels_of(const std::string& text, DType precision) {
  PassContext ctx;
  ctx.evaluate = evaluate_node;
  ctx.target = cuda_traits(90);
  ctx.precision = precision;
  INFO(text);
  auto graph = parse_graph(text, find_op);
  REQUIRE(graph.ok());
  auto trace = run_pipeline(*graph, ctx, {});
  INFO((trace ? "" : trace.error().to_string()));
  REQUIRE(trace.ok());
  return graph->live_nodes();
}

}  // namespace

TEST_CASE("a model of 16-bit floats becomes the kernels of one of f32 whose values are stored so") {
  std::vector<testing::FusedGraph> graphs = testing::chain_graphs();
  for (const auto& more : {testing::row_group_graphs(), testing::norm_graphs(), {testing::masked_windows()}})
    graphs.insert(graphs.end(), more.begin(), more.end());
  for (const testing::FusedGraph& g : graphs) {
    INFO(g.name);
    const size_t more =
        g.name ==
        std::string(
            "one direction of pixels that are one axis");  // nothing follows what drops an axis: the output's cast
    for (const auto& [name, type] : {std::pair{"f16", DType::F16}, {"bf16", DType::BF16}})
      CHECK(kernels_of(replace_all(g.text, "f32", name), DType::F32) == kernels_of(g.text, type) + more);
  }
}
