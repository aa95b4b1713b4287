// Axes, scales and block shapes that are inputs: a model compiles once, its engine file runs with several values, and each
// result is that of a model compiled for the value.
#include "runtime/engine_file.h"
#include "tests/model_tools.h"

using namespace ingot;
using namespace ingot::test;

namespace {

/// The model as an engine file beside it, loaded from there.
Model through_engine(const ModelFile& file) {
  CompileOptions o;
  o.targets = {"cpu"};
  auto compiled = compile_model(file.path(), o);
  INFO((compiled ? "" : compiled.error().to_string()));
  REQUIRE(compiled.ok());
  runtime::EngineFile engine;
  engine.programs.push_back(std::make_shared<const runtime::Program>(compiled->program));
  const std::string path = file.path() + ".ingot";
  REQUIRE(runtime::save_engine(engine, path).ok());
  auto loaded = Model::load(path, "cpu");
  INFO((loaded ? "" : loaded.error().to_string()));
  REQUIRE(loaded.ok());
  return std::move(loaded).value();
}

Tensor reals(const std::vector<double>& values) {
  Tensor t(DType::F32, {static_cast<int64_t>(values.size())});
  for (size_t i = 0; i < values.size(); ++i) t.set_float(static_cast<int64_t>(i), values[i]);
  return t;
}

onnx::Tensor integers(const std::string& name, const std::vector<int64_t>& values) {
  onnx::Tensor t;
  t.set_name(name);
  t.set_data_type(kInt64);
  t.add_dims(static_cast<int64_t>(values.size()));
  for (int64_t v : values) t.add_int64_data(v);
  return t;
}

/// One model with one input `name` of which every value is a case; the other inputs are given.
struct Cases {
  std::string name;
  std::vector<Tensor> values;
  std::vector<Tensor> before, after;  // the other inputs, around it
};

void check_against_constants(const onnx::Model& m, const Cases& cases) {
  const ModelFile file(m);
  const Model interpreted = load(file, "interpreter"), engine = through_engine(file);
  for (const Tensor& value : cases.values) {
    CompileOptions o;
    o.constants[cases.name] = std::make_shared<const Tensor>(value);
    auto fixed = Model::load(file.path(), "cpu", o);
    REQUIRE(fixed.ok());
    std::vector<Tensor> all = cases.before, others = cases.before;
    all.push_back(value);
    for (const Tensor& t : cases.after) all.push_back(t), others.push_back(t);
    const Tensor want = run(fixed.value(), others)[0];
    for (const Model* any : {&interpreted, &engine}) {
      const Tensor got = run(*any, all)[0];
      REQUIRE(got.dims() == want.dims());
      REQUIRE(got.type() == want.type());
      double largest = 1;  // sums are rounded in another order
      for (int64_t i = 0; i < want.count(); ++i) largest = std::max(largest, std::abs(want.float_at(i)));
      for (int64_t i = 0; i < want.count(); ++i) REQUIRE(got.float_at(i) == Approx(want.float_at(i)).margin(1e-6 * largest));
    }
  }
}

onnx::Model axes_model(const std::string& op, int opset, const std::string& count, const std::vector<std::string>& dims = {"N", "3", "M", "4"}) {
  onnx::Model m = new_model(opset);
  add_input(m, "x", dims);
  add_input(m, "axes", {count}, kInt64);
  add_node(m, op, {"x", "axes"}, {"y"}, "it");
  add_output(m, "y");
  return m;
}

}  // namespace

TEST_CASE("reductions over axes that are an input") {
  for (const char* op : {"ReduceSum", "ReduceMean", "ReduceMax", "ReduceL2", "ReduceLogSumExp"})
    for (int keep : {0, 1}) {
      onnx::Model m = axes_model(op, 18, "2");
      add_int(*m.mutable_graph()->mutable_node(0), "keepdims", keep);
      check_against_constants(m, {"axes", {Tensor::ints({0, 1}), Tensor::ints({3, 1}), Tensor::ints({-1, -2}), Tensor::ints({2, 0})}, {ramp({2, 3, 5, 4})}, {}});
    }
}

TEST_CASE("a reduction over such axes shares a kernel with what is around it") {
  onnx::Model m = new_model(18);
  add_input(m, "x", {"N", "3", "8"});
  add_input(m, "axes", {"1"}, kInt64);
  add_node(m, "Exp", {"x"}, {"e"});
  add_node(m, "ReduceSum", {"e", "axes"}, {"sum"});
  add_node(m, "Div", {"e", "sum"}, {"y"});
  add_output(m, "y");
  check_against_constants(m, {"axes", {Tensor::ints({0}), Tensor::ints({1}), Tensor::ints({-1})}, {ramp({4, 3, 8})}, {}});
}

TEST_CASE("axes that repeat or do not exist are refused, with the node's name") {
  const ModelFile file(axes_model("ReduceSum", 18, "2"));
  const Model interpreted = load(file, "interpreter"), engine = through_engine(file);
  for (const Model* model : {&interpreted, &engine})
    for (const auto& axes : {std::vector<int64_t>{1, 1}, {0, 4}, {-5, 0}, {1, -3}}) {
      const auto result = model->run_ordered({ramp({2, 3, 5, 4}), Tensor::ints(axes)});
      REQUIRE_FALSE(result.ok());
      CHECK(result.error().to_string().find("ReduceSum \"it\": its 2 axes must differ") != std::string::npos);
    }
}

TEST_CASE("how many axes there are must be known") {
  const ModelFile file(axes_model("ReduceSum", 18, "K"));
  const auto model = Model::load(file.path(), "interpreter");
  REQUIRE_FALSE(model.ok());
  CHECK(model.error().to_string().find("dynamic number of elements") != std::string::npos);
}

TEST_CASE("Squeeze and Unsqueeze with axes that are an input") {
  check_against_constants(axes_model("Squeeze", 13, "2", {"A", "B", "C", "D"}),
                          {"axes", {Tensor::ints({0, 2}), Tensor::ints({-2, 0})}, {ramp({1, 6, 1, 5})}, {}});
  const ModelFile file(axes_model("Squeeze", 13, "1", {"A", "B"}));
  CHECK_FALSE(through_engine(file).run_ordered({ramp({2, 3}), Tensor::ints({1})}).ok());
  check_against_constants(axes_model("Unsqueeze", 13, "2", {"A", "B"}),
                          {"axes", {Tensor::ints({0, 1}), Tensor::ints({3, 1}), Tensor::ints({-1, -2})}, {ramp({4, 3})}, {}});
}

TEST_CASE("running sums and Fourier transforms along an axis that is an input") {
  for (const char* op : {"CumSum", "DFT"}) {
    const bool sums = std::string(op) == "CumSum";
    onnx::Model m = new_model(sums ? 14 : 20);
    add_input(m, "x", {"N", "5", "M", "1"});
    add_input(m, "axis", {}, kInt64);
    add_node(m, op, sums ? std::vector<std::string>{"x", "axis"} : std::vector<std::string>{"x", "", "axis"}, {"y"});
    add_output(m, "y");
    std::vector<Tensor> axes;
    for (int64_t a : {0, 1, 2, -2, -3}) axes.push_back(number(DType::I64, a));
    check_against_constants(m, {"axis", axes, {ramp({3, 5, 70, 1})}, {}});
  }
}

TEST_CASE("axes that are computed: the part that uses them checks them") {
  onnx::Model m = new_model(18);
  add_input(m, "x", {"N", "3", "4"});
  add_input(m, "data", {"3"});
  onnx::Node& best = add_node(m, "ArgMax", {"data"}, {"axis"});
  add_int(best, "keepdims", 1);
  add_node(m, "ReduceSum", {"x", "axis"}, {"sum"});
  add_node(m, "Add", {"axis", "axis"}, {"twice"});
  add_initialiser(m, integers("zero", {0}));
  add_initialiser(m, integers("one", {1}));
  add_node(m, "Slice", {"sum", "zero", "one", "twice"}, {"y"}, "cut");
  add_output(m, "y");
  const ModelFile file(m);
  const Model interpreted = load(file, "interpreter"), engine = through_engine(file);
  for (const Model* model : {&interpreted, &engine}) {
    const Tensor first = run(*model, {ramp({2, 3, 4}), reals({5, 1, 2})})[0];
    CHECK(first.dims() == std::vector<int64_t>{1, 3, 4});
    CHECK(first.float_at(0) == Approx(ramp({2, 3, 4}).float_at(0) + ramp({2, 3, 4}).float_at(12)));
    CHECK(run(*model, {ramp({2, 3, 4}), reals({1, 5, 2})})[0].dims() == std::vector<int64_t>{2, 1, 1});
    const auto outside = model->run_ordered({ramp({2, 3, 4}), reals({1, 2, 5})});  // axis 4
    REQUIRE_FALSE(outside.ok());
    CHECK(outside.error().to_string().find("Slice \"cut\"") != std::string::npos);
  }
}

TEST_CASE("a slice whose axes, bounds and steps are inputs") {
  onnx::Model m = new_model();
  add_input(m, "x", {"N", "6", "7"});
  for (const char* name : {"starts", "ends", "axes", "steps"}) add_input(m, name, {"2"}, kInt64);
  add_node(m, "Slice", {"x", "starts", "ends", "axes", "steps"}, {"y"});
  add_output(m, "y");
  check_against_constants(m, {"axes",
                              {Tensor::ints({0, 1}), Tensor::ints({2, 0}), Tensor::ints({-1, 1})},
                              {ramp({5, 6, 7}), Tensor::ints({1, -1}), Tensor::ints({INT64_MAX, -7})},
                              {Tensor::ints({2, -2})}});
}

TEST_CASE("padding of axes that are an input") {
  for (const char* mode : {"constant", "reflect", "edge"}) {
    onnx::Model m = new_model(18);
    add_input(m, "x", {"N", "6", "7"});
    add_input(m, "pads", {"4"}, kInt64);
    add_input(m, "axes", {"2"}, kInt64);
    add_attr(add_node(m, "Pad", {"x", "pads", "", "axes"}, {"y"}), "mode", 3).set_s(mode);
    add_output(m, "y");
    check_against_constants(m, {"axes", {Tensor::ints({0, 1}), Tensor::ints({-1, 0})}, {ramp({5, 6, 7}), Tensor::ints({1, 2, 0, 3})}, {}});
  }
}

TEST_CASE("Resize by scales that are an input") {
  for (const char* mode : {"nearest", "linear", "cubic"})
    for (int antialias : {0, 1}) {
      onnx::Model m = new_model(18);
      add_input(m, "x", {"N", "2", "H", "6"});
      add_input(m, "scales", {"4"});
      onnx::Node& n = add_node(m, "Resize", {"x", "", "scales"}, {"y"});
      add_attr(n, "mode", 3).set_s(mode);
      add_int(n, "antialias", antialias && std::string(mode) != "nearest");
      add_output(m, "y");
      check_against_constants(m, {"scales", {reals({1, 1, 2, 2}), reals({1, 1, 0.6, 0.5}), reals({1, 1, 1.7, 1})}, {ramp({2, 2, 7, 6})}, {}});
      const ModelFile file(m);
      CHECK_FALSE(load(file, "cpu").run_ordered({ramp({1, 2, 7, 6}), reals({1, 1, -1, 1})}).ok());
    }
}

TEST_CASE("Resize to sizes that keep the aspect ratio") {
  for (const char* policy : {"not_larger", "not_smaller"}) {
    onnx::Model m = new_model(18);
    add_input(m, "x", {"1", "1", "H", "6"});
    add_input(m, "sizes", {"2"}, kInt64);
    onnx::Node& n = add_node(m, "Resize", {"x", "", "", "sizes"}, {"y"});
    add_attr(n, "keep_aspect_ratio_policy", 3).set_s(policy);
    onnx::Attribute& axes = add_attr(n, "axes", 7);
    axes.add_ints(2), axes.add_ints(3);
    add_output(m, "y");
    check_against_constants(m, {"sizes", {Tensor::ints({7, 8}), Tensor::ints({3, 9}), Tensor::ints({20, 4})}, {ramp({1, 1, 5, 6})}, {}});
  }
}

TEST_CASE("a float range, a one-hot depth and a block shape that are inputs") {
  onnx::Model range = new_model();
  for (const char* name : {"start", "limit", "delta"}) add_input(range, name, {});
  add_node(range, "Range", {"start", "limit", "delta"}, {"y"});
  add_output(range, "y");
  const auto scalar = [](double v) { return Tensor::scalar(DType::F32, v); };
  check_against_constants(range, {"limit", {scalar(4), scalar(1.1), scalar(-3)}, {scalar(1)}, {scalar(0.3)}});

  onnx::Model hot = new_model();
  add_input(hot, "indices", {"N"}, kInt64);
  add_input(hot, "depth", {});
  add_initialiser(hot, floats("values", {2}, {0, 1}));
  add_node(hot, "OneHot", {"indices", "depth", "values"}, {"y"});
  add_output(hot, "y");
  check_against_constants(hot, {"depth", {scalar(3), scalar(7)}, {Tensor::ints({0, 2, -1})}, {}});

  onnx::Model fold = new_model(18);
  add_input(fold, "x", {"1", "12", "L"});
  add_input(fold, "image", {"2"}, kInt64);
  add_input(fold, "block", {"2"}, kInt64);
  add_node(fold, "Col2Im", {"x", "image", "block"}, {"y"});
  add_output(fold, "y");
  check_against_constants(fold, {"block", {Tensor::ints({2, 2}), Tensor::ints({1, 3})}, {ramp({1, 12, 12}), Tensor::ints({4, 5})}, {}});
}
