// Operators along a long axis, whose work goes block by block: against a sort and a running sum.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "tests/model_tools.h"

using namespace ingot;
using namespace ingot::test;

namespace {

/// Few distinct values, so that many compare equal; some NaN, which are the greatest.
Tensor crowded(std::vector<int64_t> dims) {
  Tensor t(DType::F32, std::move(dims));
  std::mt19937 random(3);
  for (int64_t i = 0; i < t.count(); ++i)
    t.set_float(i, random() % 1000 == 0 ? NAN : static_cast<double>(random() % 4000) - 2000);
  return t;
}
bool before(double a, double b, bool largest) {
  if (std::isnan(a) || std::isnan(b))
    return largest ? std::isnan(a) && !std::isnan(b) : std::isnan(b) && !std::isnan(a);
  return largest ? a > b : a < b;
}

}  // namespace

TEST_CASE("TopK of a long axis: values, positions, and the order of equals") {
  constexpr int64_t kRows = 2, kLength = 9001, kCount = 40;
  for (bool largest : {true, false}) {
    onnx::Model m = new_model();
    add_input(m, "x", {"2", std::to_string(kLength)});
    onnx::Tensor k;
    k.set_name("k"), k.set_data_type(kInt64), k.add_dims(1), k.add_int64_data(kCount);
    add_initialiser(m, k);
    add_int(add_node(m, "TopK", {"x", "k"}, {"y", "at"}), "largest", largest);
    add_output(m, "y");
    add_output(m, "at");
    const ModelFile file(m);
    const Tensor x = crowded({kRows, kLength});
    const auto outputs = run(load(file, "cpu"), {x});
    for (int64_t row = 0; row < kRows; ++row) {
      std::vector<int64_t> order(kLength);
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
        return before(x.float_at(row * kLength + a), x.float_at(row * kLength + b), largest);
      });
      for (int64_t i = 0; i < kCount; ++i)
        REQUIRE(outputs[1].int_at(row * kCount + i) == order[static_cast<size_t>(i)]);
    }
  }
}

TEST_CASE("CumSum of a long axis, fixed and dynamic, in both directions") {
  for (const char* length : {"5000", "N"})
    for (int flags = 0; flags < 4; ++flags) {
      onnx::Model m = new_model();
      add_input(m, "x", {"2", length}, kInt64);
      onnx::Tensor axis;
      axis.set_name("axis"), axis.set_data_type(kInt64), axis.add_int64_data(1);
      add_initialiser(m, axis);
      onnx::Node& n = add_node(m, "CumSum", {"x", "axis"}, {"y"});
      add_int(n, "exclusive", flags & 1);
      add_int(n, "reverse", flags >> 1);
      add_output(m, "y");
      const ModelFile file(m);
      Tensor x(DType::I64, {2, 5000});
      for (int64_t i = 0; i < x.count(); ++i) x.set_int(i, (i * 37) % 101 - 50);
      const Tensor y = run(load(file, "cpu"), {x})[0];
      for (int64_t row = 0; row < 2; ++row) {
        int64_t sum = 0;
        for (int64_t i = 0; i < 5000; ++i) {
          const int64_t at = row * 5000 + (flags >> 1 ? 4999 - i : i);
          if (flags & 1) REQUIRE(y.int_at(at) == sum);
          sum += x.int_at(at);
          if (!(flags & 1)) REQUIRE(y.int_at(at) == sum);
        }
      }
    }
}
