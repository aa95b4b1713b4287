// What only the run decides: sizes from elements of inputs and of computed values, If, Loop, and sequences of any length. Each
// model compiles once and runs with several values, on the interpreter and on the CPU.
#include "runtime/engine_file.h"
#include "tests/model_tools.h"

using namespace ingot;
using namespace ingot::test;

TEST_CASE("a shape that is an input: sizes, 0 and -1") {
  onnx::Model m = new_model();
  add_input(m, "x", {"N", "6"});
  add_input(m, "shape", {"3"}, kInt64);
  add_node(m, "Reshape", {"x", "shape"}, {"r"});
  add_node(m, "Relu", {"r"}, {"y"});
  add_output(m, "y");
  const ModelFile file(m);
  for (const char* device : kDevices) {
    const Model model = load(file, device);
    const Tensor x = ramp({4, 6});
    using Dims = std::vector<int64_t>;
    CHECK(run(model, {x, Tensor::ints({2, 3, 4})})[0].dims() == Dims{2, 3, 4});
    CHECK(run(model, {x, Tensor::ints({0, -1, 2})})[0].dims() == Dims{4, 3, 2});
    const Tensor y = run(model, {x, Tensor::ints({-1, 0, 1})})[0];
    CHECK(y.dims() == Dims{4, 6, 1});
    for (int64_t i = 0; i < y.count(); ++i) REQUIRE(y.float_at(i) == std::max(0.0, x.float_at(i)));
    CHECK_FALSE(model.run_ordered({x, Tensor::ints({5, 5, 5})}).ok());
  }
}

TEST_CASE("a slice whose bounds and step are inputs") {
  onnx::Model m = new_model();
  add_input(m, "x", {"10"});
  for (const char* name : {"start", "end", "step"}) add_input(m, name, {"1"}, kInt64);
  onnx::Tensor axis;
  axis.set_name("axis");
  axis.set_data_type(kInt64);
  axis.add_dims(1);
  axis.add_int64_data(0);
  add_initialiser(m, axis);
  add_node(m, "Slice", {"x", "start", "end", "axis", "step"}, {"y"});
  add_output(m, "y");
  const ModelFile file(m);
  for (const char* device : kDevices) {
    const Model model = load(file, device);
    const Tensor x = ramp({10});
    for (const auto& [start, end, step] :
         {std::array<int64_t, 3>{2, 9, 3}, {-1, -11, -2}, {0, INT64_MAX, 1}, {7, 3, 1}, {8, 1, -3}}) {
      std::vector<double> want;
      const int64_t from = start < 0 ? start + 10 : start, to = end < -10 ? -1
                                                                : end < 0 ? end + 10
                                                                          : std::min<int64_t>(end, 10);
      for (int64_t i = from; step > 0 ? i < to : i > to; i += step) want.push_back(x.float_at(i));
      const Tensor y = run(model, {x, Tensor::ints({start}), Tensor::ints({end}), Tensor::ints({step})})[0];
      REQUIRE(y.count() == static_cast<int64_t>(want.size()));
      for (int64_t i = 0; i < y.count(); ++i) CHECK(y.float_at(i) == want[static_cast<size_t>(i)]);
    }
  }
}

TEST_CASE("NonZero of any length: what comes after has its size") {
  onnx::Model m = new_model();
  add_input(m, "x", {"N", "3"});
  add_node(m, "NonZero", {"x"}, {"at"});
  add_node(m, "Cast", {"at"}, {"wide"}).add_attribute();
  auto& to = *m.mutable_graph()->mutable_node(1)->mutable_attribute(0);
  to.set_name("to"), to.set_type(2), to.set_i(kFloat);
  add_node(m, "Exp", {"wide"}, {"y"});
  add_output(m, "at");
  add_output(m, "y");
  const ModelFile file(m);
  for (const char* device : kDevices) {
    const Model model = load(file, device);
    for (int64_t rows : {0, 1, 5, 700}) {
      Tensor x(DType::F32, {rows, 3});
      std::vector<int64_t> want;
      for (int64_t i = 0; i < x.count(); ++i) {
        x.set_float(i, i % 4 == 1 || i % 7 == 3 ? i + 1 : 0);
        if (x.float_at(i) != 0) want.push_back(i);
      }
      const auto outputs = run(model, {x});
      const auto n = static_cast<int64_t>(want.size());
      REQUIRE(outputs[0].dims() == std::vector<int64_t>{2, n});
      REQUIRE(outputs[1].dims() == outputs[0].dims());
      for (int64_t i = 0; i < n; ++i) {
        REQUIRE(outputs[0].int_at(i) == want[static_cast<size_t>(i)] / 3);
        REQUIRE(outputs[0].int_at(n + i) == want[static_cast<size_t>(i)] % 3);
      }
    }
  }
}

TEST_CASE("a loop whose count and condition are computed, with a state that grows") {
  onnx::Model m = new_model();
  add_input(m, "n", {}, kInt64);
  add_input(m, "x", {"B"});
  onnx::Node& loop = add_node(m, "Loop", {"n", "", "x"}, {"grown", "sums"});
  onnx::Graph& body = *add_attr(loop, "body", 5).mutable_g();
  body.set_name("body");
  set_type(*body.add_input(), "i", kInt64, {});
  set_type(*body.add_input(), "go", kBool, {});
  set_type(*body.add_input(), "s", kFloat, {""});
  add_node(body, "ReduceSum", {"s"}, {"sum"});
  add_int(*body.mutable_node(0), "keepdims", 0);
  add_initialiser(body, floats("limit", {}, {40}));
  add_node(body, "Less", {"sum", "limit"}, {"on"});
  add_initialiser(body, floats("one", {1}, {1}));
  add_node(body, "Concat", {"s", "one"}, {"next"});
  add_int(*body.mutable_node(2), "axis", 0);
  for (const char* name : {"on", "next", "sum"}) add_output(body, name);
  add_output(m, "grown");
  add_output(m, "sums");
  const ModelFile file(m);
  for (const char* device : kDevices) {
    const Model model = load(file, device);
    Tensor x(DType::F32, {2});
    x.set_float(0, 3), x.set_float(1, 4);
    auto outputs = run(model, {number(DType::I64, 5), x});
    CHECK(outputs[0].dims() == std::vector<int64_t>{7});
    REQUIRE(outputs[1].dims() == std::vector<int64_t>{5});
    for (int64_t i = 0; i < 5; ++i) CHECK(outputs[1].float_at(i) == static_cast<double>(7 + i));
    CHECK(run(model, {number(DType::I64, 0), x})[1].dims() == std::vector<int64_t>{0});
    outputs = run(model, {number(DType::I64, 1000), x});  // ends by its condition: 7 + i < 40
    CHECK(outputs[1].dims() == std::vector<int64_t>{34});
  }
}

TEST_CASE("a branch that a computed condition chooses") {
  onnx::Model m = new_model();
  add_input(m, "x", {"N"});
  add_node(m, "ReduceSum", {"x"}, {"sum"});
  add_int(*m.mutable_graph()->mutable_node(0), "keepdims", 0);
  add_initialiser(m, floats("zero", {}, {0}));
  add_node(m, "Greater", {"sum", "zero"}, {"positive"});
  onnx::Node& choose = add_node(m, "If", {"positive"}, {"r"});
  onnx::Graph& yes = *add_attr(choose, "then_branch", 5).mutable_g();
  add_node(yes, "Add", {"x", "sum"}, {"a"});
  add_output(yes, "a");
  onnx::Graph& no = *add_attr(choose, "else_branch", 5).mutable_g();
  add_node(no, "Concat", {"x", "x"}, {"b"});
  add_int(*no.mutable_node(0), "axis", 0);
  add_output(no, "b");
  add_node(m, "Neg", {"r"}, {"y"});
  add_output(m, "y");
  const ModelFile file(m);
  for (const char* device : kDevices) {
    const Model model = load(file, device);
    Tensor x(DType::F32, {2});
    x.set_float(0, 1), x.set_float(1, 2);
    const Tensor up = run(model, {x})[0];
    REQUIRE(up.dims() == std::vector<int64_t>{2});
    CHECK(up.float_at(1) == -5);
    x.set_float(0, -9);
    const Tensor down = run(model, {x})[0];
    REQUIRE(down.dims() == std::vector<int64_t>{4});
    CHECK(down.float_at(2) == 9);
  }
}

TEST_CASE("an LSTM of dynamic length equals the unrolled one") {
  onnx::Model m = new_model();
  add_input(m, "x", {"T", "2", "3"});
  std::vector<float> w(2 * 16 * 3), r(2 * 16 * 4);
  for (size_t i = 0; i < w.size(); ++i) w[i] = static_cast<float>((i * 5) % 13) / 13 - 0.5f;
  for (size_t i = 0; i < r.size(); ++i) r[i] = static_cast<float>((i * 3) % 11) / 11 - 0.5f;
  add_initialiser(m, floats("w", {2, 16, 3}, w));
  add_initialiser(m, floats("r", {2, 16, 4}, r));
  onnx::Node& n = add_node(m, "LSTM", {"x", "w", "r"}, {"y", "h", "c"});
  add_int(n, "hidden_size", 4);
  add_attr(n, "direction", 3).set_s("bidirectional");
  for (const char* name : {"y", "h", "c"}) add_output(m, name);
  const ModelFile file(m);
  for (const char* device : kDevices) {
    const Model any = load(file, device);
    for (int64_t steps : {1, 9}) {
      CompileOptions o;
      o.shapes["x"] = {std::to_string(steps), "2", "3"};
      auto fixed = Model::load(file.path(), device, o);
      REQUIRE(fixed.ok());
      const auto got = run(any, {ramp({steps, 2, 3})}), want = run(fixed.value(), {ramp({steps, 2, 3})});
      for (size_t i = 0; i < want.size(); ++i) {
        REQUIRE(got[i].dims() == want[i].dims());
        for (int64_t k = 0; k < want[i].count(); ++k)
          REQUIRE(got[i].float_at(k) == Approx(want[i].float_at(k)).margin(1e-6));
      }
    }
  }
}

TEST_CASE("an engine file holds the parts of a model and the script that runs them") {
  onnx::Model m = new_model();
  add_input(m, "x", {"N"});
  add_node(m, "NonZero", {"x"}, {"at"});
  add_node(m, "Transpose", {"at"}, {"y"});
  add_output(m, "y");
  const ModelFile file(m);
  CompileOptions o;
  o.targets = {"cpu"};
  auto compiled = compile_model(file.path(), o);
  REQUIRE(compiled.ok());
  CHECK(compiled->program.parts.size() == 2);
  runtime::EngineFile engine;
  engine.programs.push_back(std::make_shared<const runtime::Program>(compiled->program));
  const std::string path = file.path() + ".ingot";
  REQUIRE(runtime::save_engine(engine, path).ok());
  auto loaded = Model::load(path, "cpu");
  REQUIRE(loaded.ok());
  Tensor x(DType::F32, {6});
  for (int64_t i : {1, 2, 5}) x.set_float(i, 1);
  const Tensor y = run(loaded.value(), {x})[0];
  REQUIRE(y.dims() == std::vector<int64_t>{3, 1});
  CHECK(y.int_at(2) == 5);

  runtime::Program broken = compiled->program;  // a step that takes what nothing gives
  broken.scripts[0].steps[0].inputs[0] = broken.scripts[0].outputs[0];
  CHECK_FALSE(broken.verify().ok());
  broken = compiled->program;
  broken.scripts[0].steps[0].part = 7;
  CHECK_FALSE(broken.verify().ok());
}
