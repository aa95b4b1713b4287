// What `check` blames: a group whose result is not what its operators say, the pass that changes a result, or neither.
#include "compiler/driver/bisect.h"

#include <array>

#include "compiler/driver/reference.h"
#include "tests/model_tools.h"

using namespace ingot;

namespace {

/// Two products with a factor between them that a pass moves into the first weight.
onnx::Model scaled_products() {
  onnx::Model m = test::new_model();
  test::add_input(m, "x", {"N", "3"});
  test::add_initialiser(m, test::floats("w", {3, 2}, {0.3f, -0.7f, 1.1f, 0.9f, -0.2f, 0.6f}));
  test::add_initialiser(m, test::floats("f", {}, {0.1f}));
  test::add_initialiser(m, test::floats("v", {2, 2}, {1, 2, 3, 4}));
  test::add_node(m, "MatMul", {"x", "w"}, {"first"});
  test::add_node(m, "Mul", {"first", "f"}, {"scaled"});
  test::add_node(m, "MatMul", {"scaled", "v"}, {"second"});
  test::add_node(m, "Relu", {"second"}, {"y"});
  test::add_output(m, "y");
  return m;
}
Tensor numbers() {
  Tensor x(DType::F32, {2, 3});
  for (int64_t i = 0; i < x.count(); ++i) x.set_float(i, 0.37 * static_cast<double>(i) - 0.8);
  return x;
}
/// What each group gives on the interpreter.
ValueTensors all_values(const Compilation& c, const std::vector<Tensor>& inputs) {
  ValueTensors values{{c.graph.inputs[0], inputs[0]}};
  const auto symbols = bind_symbols(c.graph, inputs);
  REQUIRE(symbols.ok());
  for (NodeId id : c.plan.order) {
    const Node& n = c.graph.node(id);
    std::vector<Tensor> in;
    for (ValueId v : n.inputs) in.push_back(values.count(v) ? values.at(v) : *c.graph.value(v).constant);
    auto out = run_apart(*n.body, in, symbols.value());
    REQUIRE(out.ok());
    for (size_t i = 0; i < out->size(); ++i) values.insert_or_assign(n.outputs[i], (*out)[i]);
  }
  return values;
}

}  // namespace

TEST_CASE("the first group whose result differs is named, with its nodes") {
  const test::ModelFile file(scaled_products());
  auto c = lower_model(file.path(), {});
  REQUIRE(c.ok());
  const std::vector<Tensor> inputs{numbers()};
  ValueTensors values = all_values(*c, inputs);
  auto none = first_wrong_group(*c, inputs, values, {1e-5, 1e-6});
  REQUIRE(none.ok());
  CHECK(!none->has_value());

  const ValueId last = c->graph.node(c->plan.order.back()).outputs[0];
  values.at(last).set_float(3, 100);
  auto wrong = first_wrong_group(*c, inputs, values, {1e-5, 1e-6});
  REQUIRE(wrong.ok());
  REQUIRE(wrong->has_value());
  CHECK((*wrong)->position + 1 == c->plan.order.size());
  CHECK((*wrong)->interpreter_agrees);
  CHECK((*wrong)->comparison.worst > 1);
}
TEST_CASE("a value beside a tie may be rounded either way, another may not") {
  onnx::Model m = test::new_model();
  test::add_input(m, "x", {"N"});
  test::add_initialiser(m, test::floats("one", {}, {1}));
  test::add_node(m, "QuantizeLinear", {"x", "one"}, {"q"});
  test::add_node(m, "DequantizeLinear", {"q", "one"}, {"y"});
  test::add_output(m, "y");
  const test::ModelFile file(m);
  auto c = lower_model(file.path(), {});
  REQUIRE(c.ok());
  REQUIRE(c->plan.order.size() == 1);
  Tensor x(DType::F32, {4});
  for (int64_t i = 0; i < 4; ++i) x.set_float(i, std::array<double, 4>{6.5, 2.2, 9, 7.499999}[static_cast<size_t>(i)]);
  const ValueTensors right = all_values(*c, {x});
  const ValueId y = c->graph.node(c->plan.order[0]).outputs[0];
  const auto judged = [&](int64_t element, double value, int& ties) {
    ValueTensors values = right;
    values.at(y).set_float(element, value);
    auto wrong = first_wrong_group(*c, {x}, values, {1e-5, 1e-6}, &ties);
    REQUIRE(wrong.ok());
    return wrong->has_value();
  };
  int ties = 0;
  CHECK_FALSE(judged(0, 7, ties));
  CHECK_FALSE(judged(3, 8, ties));
  CHECK(ties == 2);
  CHECK(judged(0, 8, ties));  // two steps
  CHECK(judged(1, 3, ties));  // no tie
  CHECK(ties == 2);
}
TEST_CASE("a group is judged by the inputs that it had, so that only the first wrong one is named") {
  const test::ModelFile file(scaled_products());
  auto c = lower_model(file.path(), {});
  REQUIRE(c.ok());
  REQUIRE(c->plan.order.size() == 2);
  const std::vector<Tensor> inputs{numbers()};
  ValueTensors values = all_values(*c, inputs);
  const ValueId first = c->graph.node(c->plan.order[0]).outputs[0];
  values.at(first).set_float(0, 100);
  auto wrong = first_wrong_group(*c, inputs, values, {1e-5, 1e-6});
  REQUIRE(wrong.ok());
  REQUIRE(wrong->has_value());
  CHECK((*wrong)->position == 0);
}
TEST_CASE("the pass that changes a result is named") {
  const test::ModelFile file(scaled_products());
  const auto model = read_model(file.path());
  REQUIRE(model.ok());
  // No difference at all is allowed, so a factor that moves is one.
  auto pass = first_wrong_pass(model.value(), {}, {numbers()}, {0, 0});
  REQUIRE(pass.ok());
  CHECK(*pass == "fold_scales");
  auto none = first_wrong_pass(model.value(), {}, {numbers()}, {1e-5, 1e-6});
  REQUIRE(none.ok());
  CHECK(none->empty());
}
TEST_CASE("a program that is right gets no blame") {
  const test::ModelFile file(scaled_products());
  auto text = explain_difference(file.path(), "cpu", {}, {numbers()}, {1e-5, 1e-6});
  REQUIRE(text.ok());
  CHECK(text->text.find("add up") != std::string::npos);
}
TEST_CASE("values that would be written into a concatenation are looked at, too") {
  onnx::Model m = scaled_products();
  m.mutable_graph()->clear_output();
  test::add_initialiser(m, test::floats("t", {3, 2}, {0.1f, 0.2f, 0.3f, 0.4f, 0.5f, 0.6f}));
  test::add_node(m, "MatMul", {"x", "t"}, {"other"});
  test::add_node(m, "Exp", {"other"}, {"side"});
  test::add_int(test::add_node(m, "Concat", {"y", "side"}, {"both"}), "axis", 1);
  test::add_initialiser(m, test::floats("u", {4, 1}, {1, -1, 2, 0.5f}));
  test::add_node(m, "MatMul", {"both", "u"}, {"z"});
  test::add_output(m, "z");
  const test::ModelFile file(m);
  auto text = explain_difference(file.path(), "interpreter", {}, {numbers()}, {1e-5, 1e-6});
  INFO((text.ok() ? text->text : text.error().to_string()));
  REQUIRE(text.ok());
  CHECK(text->text.find("add up") != std::string::npos);
}
