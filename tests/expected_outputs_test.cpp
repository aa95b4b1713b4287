// What random graphs are compared with (random_graphs/expected.h): which elements may come out otherwise, and which may not.
#include <catch2/catch.hpp>

#include <cmath>

#include "compiler/ir/text.h"
#include "compiler/ops/registry.h"
#include "tests/random_graphs/expected.h"

using namespace ingot;
using namespace ingot::testing;

namespace {

Tensor row(const std::vector<double>& values) {
  Tensor t(DType::F32, {static_cast<int64_t>(values.size())});
  for (size_t i = 0; i < values.size(); ++i) t.set_float(static_cast<int64_t>(i), values[i]);
  return t;
}
/// The output of a graph of one f32 row, as closely as a doubtful output is looked at.
ExpectedOutput expected(const std::string& body, const std::string& type, const std::vector<double>& x,
                        DType storage = DType::F32) {
  const std::string text =
      "graph (%0 \"x\": f32[" + std::to_string(x.size()) + "]) {\n" + body + ": " + type + "\n  return %9 \"y\"\n}\n";
  INFO(text);
  auto graph = parse_graph(text, find_op);
  if (!graph) FAIL(graph.error().to_string());
  auto prepared = Expectation::prepare(*graph, {}, {row(x)});
  if (!prepared) FAIL(prepared.error().to_string());
  auto outputs = prepared->evaluate({.samples = 48, .amplitude = 2, .storage = storage});
  if (!outputs) FAIL(outputs.error().to_string());
  return std::move(outputs->at(0));
}
bool may_flip(const ExpectedOutput& y, size_t i) { return std::isnan(y.slack[i]) || y.slack[i] >= 1; }

}  // namespace

TEST_CASE("what may be equal may also differ, by the type that it is stored in") {
  // sin(x) is x to the last place of f32 for the first, of f16 for the second, and far from it for the third.
  const std::string sine = "  %1 = Sin(%0): f32[3]\n  %9 = Equal(%0, %1)";
  const ExpectedOutput wide = expected(sine, "bool[3]", {0x1.3p-12, 0.05, 1});
  CHECK(wide.value == std::vector<double>{0, 0, 0});
  CHECK(may_flip(wide, 0));
  CHECK_FALSE(may_flip(wide, 1));
  CHECK_FALSE(may_flip(wide, 2));
  const ExpectedOutput narrow = expected(sine, "bool[3]", {0x1.3p-12, 0.05, 1}, DType::F16);
  CHECK(may_flip(narrow, 0));
  CHECK(may_flip(narrow, 1));
  CHECK_FALSE(may_flip(narrow, 2));
}

TEST_CASE("what nothing has rounded is equal or not") {
  const ExpectedOutput same = expected("  %1 = Relu(%0): f32[3]\n  %9 = Equal(%0, %1)", "bool[3]", {1e-30, -1e-30, 0});
  const ExpectedOutput itself = expected("  %1 = Exp(%0): f32[2]\n  %9 = Equal(%1, %1)", "bool[2]", {1, NAN});
  CHECK(same.value == std::vector<double>{1, 0, 1});
  CHECK(itself.value == std::vector<double>{1, 0});
  CHECK(same.slack == std::vector<double>{0, 0, 0});
  CHECK(itself.slack[0] == 0);
}

TEST_CASE("what cancels may be zero") {
  // (x + 1000) - 1000 in bf16 has nothing left of a small x.
  const std::string cancelled =
      "  %1 = const \"\": f32[2] {1000, 1000}\n  %2 = Add(%0, %1): f32[2]\n  %3 = Sub(%2, %1): f32[2]\n";
  const ExpectedOutput truth = expected(cancelled + "  %9 = Cast(%3) {to=bool}", "bool[2]", {1e-3, 700}, DType::BF16);
  CHECK(truth.value == std::vector<double>{1, 1});
  CHECK(may_flip(truth, 0));
  CHECK_FALSE(may_flip(truth, 1));
  const ExpectedOutput first =
      expected(cancelled + "  %9 = ArgMax(%3) {axes=[0]}", "i64[1]", {1e-3, 2e-3}, DType::BF16);
  CHECK(first.whole == std::vector<int64_t>{1});
  CHECK(may_flip(first, 0));
  // All of many at once, too.
  const ExpectedOutput largest = expected(
      "  %1 = const \"\": f32[] {1000}\n  %2 = Add(%0, %1): f32[12]\n  %3 = Sub(%2, %1): f32[12]\n"
      "  %4 = ReduceMax(%3) {axes=[0]}: f32[1]\n  %9 = Cast(%4) {to=bool}",
      "bool[1]", std::vector<double>(12, 5e-5));
  CHECK(largest.value == std::vector<double>{1});
  CHECK(may_flip(largest, 0));
}

TEST_CASE("the flat part of a function does not hide how far off its argument is") {
  // A reciprocal of what is off by a fifth of itself, taken far into the flat part and back out of it.
  const std::string flat =
      "  %1 = const \"\": f32[1] {1000}\n  %2 = Add(%0, %1): f32[1]\n  %3 = Sub(%2, %1): f32[1]\n"
      "  %4 = const \"\": f32[] {60}\n  %5 = Div(%4, %3): f32[1]\n  %9 = Tanh(%5)";
  const ExpectedOutput y = expected(flat, "f32[1]", {10}, DType::BF16);
  CHECK(y.value[0] == Approx(1).margin(1e-4));
  CHECK((std::isnan(y.slack[0]) || y.slack[0] > 0.1));
}

TEST_CASE("a value near a threshold may pass it, and equal ones do so together") {
  // A third of 0.375 is half a step, a tie; the greatest of eight equal rows is the lower step only if all of them are.
  const std::string quantised =
      "  %1 = const \"\": f32[] {3}\n  %2 = Div(%0, %1): f32[8]\n  %3 = const \"\": f32[] {0.25}\n  %4 = const \"\": "
      "i8[] {0}\n"
      "  %5 = QuantizeTo(%2, %3, %4) {to=i8}: i8[8]\n  %9 = ReduceMax(%5) {axes=[0]}";
  const ExpectedOutput near = expected(quantised, "i8[1]", std::vector<double>(8, 0.375));
  CHECK(near.whole == std::vector<int64_t>{0});
  CHECK(near.slack[0] >= 1);
  const ExpectedOutput far = expected(quantised, "i8[1]", std::vector<double>(8, 0.4));
  CHECK(far.whole == std::vector<int64_t>{1});
  CHECK(far.slack[0] < 1);
}

TEST_CASE("the tolerance of a plain result is a few units of its type") {
  const ExpectedOutput y = expected("  %1 = Exp(%0): f32[2]\n  %9 = Mul(%1, %0)", "f32[2]", {1, 2});
  for (size_t i = 0; i < 2; ++i) CHECK(y.slack[i] < 120 * 0x1p-24 * y.value[i]);
  const ExpectedOutput sum = expected("  %9 = ReduceSum(%0) {axes=[0]}", "f32[1]", std::vector<double>(64, 1));
  CHECK(sum.slack[0] < 64 * 120 * 0x1p-24);
}

TEST_CASE("squares that f32 does not hold are missing in a sum") {
  // The second square vanishes on a CPU that takes small numbers for zero; beside 1 it does not count.
  const std::string norm = "  %1 = ReduceL2(%0) {axes=[0]}: f32[1]\n  %9 = Div(%0, %1)";
  CHECK(expected(norm, "f32[2]", {0x1.8p-59, 0x1.8p-64}).slack[0] > 1e-3);
  CHECK(expected(norm, "f32[2]", {1, 0x1.8p-64}).slack[0] < 1e-5);
}

TEST_CASE("factors are folded into weights behind a movement, too") {
  const auto slack = [](const std::string& weight) {
    return expected("  %1 = Cast(%0) {to=f16}: f16[4]\n  %2 = Reshape(%1) {shape=[1, 4]}: f16[1,4]\n" + weight +
                        "  %5 = MatMul(%2, %4): f16[1,1]\n  %9 = Cast(%5) {to=f32}",
                    "f32[1,1]", {8, -8, 1, 1})
        .slack[0];
  };
  const double direct = slack("  %4 = const \"w\": f16[4,1] {1, 1, 1.25, 0.75}\n");
  const double turned = slack("  %3 = const \"w\": f16[1,4] {1, 1, 1.25, 0.75}\n  %4 = Transpose(%3) {perm=[1, 0]}: f16[4,1]\n");
  CHECK(direct > 2e-2);  // the rounding of the result alone: 8e-3
  CHECK(turned > 2e-2);
}

TEST_CASE("a quotient by what vanishes is an infinity of either sign") {
  // Gelu of the first is 4e-9 below zero in exact arithmetic and a zero in f32, whose sign says nothing.
  const ExpectedOutput y = expected("  %1 = Gelu(%0): f32[2]\n  %2 = Div(%0, %1): f32[2]\n  %9 = Sign(%2)", "f32[2]", {-6, 1});
  CHECK(may_flip(y, 0));
  CHECK_FALSE(may_flip(y, 1));
}

TEST_CASE("operands that are left out are no values") {
  const ExpectedOutput y = expected("  %1 = const \"\": f32[] {2}\n  %9 = Clip(%0, _, %1)", "f32[2]", {1, 3});
  CHECK(y.value == std::vector<double>{1, 2});
}

TEST_CASE("weights that are zero in exact arithmetic may be off by the rounding of their coordinates") {
  const ExpectedOutput y = expected("  %9 = ResizeFilter(%0) {mode=\"cubic\", sizes=[6], scales=[0.6]}", "f32[6]", {0, 1, 0, 0, 0, 0, 0, 0, 0, 0});
  for (size_t i = 0; i < 6; ++i) CHECK(y.slack[i] > 1e-7);
  CHECK(y.slack[0] < 1e-3);
}
