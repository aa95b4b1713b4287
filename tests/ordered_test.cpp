// Operators along a long axis, whose work goes block by block: against a sort and a running sum.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <numeric>
#include <random>

#include "tests/emulated_models.h"
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

/// x sorted by TopK with k elements, on a device; the places it gives.
Tensor top_places(const Tensor& x, int64_t axis, int64_t k, bool largest, const std::string& device, int32_t type = kFloat) {
  onnx::Model m = new_model();
  std::vector<std::string> dims;
  for (int64_t d : x.dims()) dims.push_back(std::to_string(d));
  add_input(m, "x", dims, type);
  onnx::Tensor count;
  count.set_name("k"), count.set_data_type(kInt64), count.add_dims(1), count.add_int64_data(k);
  add_initialiser(m, count);
  onnx::Node& n = add_node(m, "TopK", {"x", "k"}, {"y", "at"});
  add_int(n, "largest", largest);
  add_int(n, "axis", axis);
  add_output(m, "y");
  add_output(m, "at");
  const ModelFile file(m);
  const auto outputs = run(load(file, device), {x});
  return outputs[1];
}

TEST_CASE("a long axis is sorted by merging: NaN, both zeros, infinities, the order of equals, lengths beside powers of two") {
  for (const int64_t length : {1025, 2048, 3001, 20011})
    for (const bool largest : {true, false}) {
      Tensor x = crowded({2, length, 2});
      for (int64_t i = 0; i < x.count(); i += 97) x.set_float(i, i % 2 ? -0.0 : 0.0);
      x.set_float(11, INFINITY), x.set_float(14, -INFINITY), x.set_float(500, -NAN);
      for (const char* device : {"cpu", "interpreter", "emulator"}) {
        if (length > 1025 && std::string(device) != "cpu") continue;
        const Tensor at = top_places(x, 1, length, largest, device);
        for (int64_t row = 0; row < 4; ++row) {
          const auto place = [&](int64_t i) { return (row / 2 * length + i) * 2 + row % 2; };
          std::vector<int64_t> order(static_cast<size_t>(length));
          std::iota(order.begin(), order.end(), 0);
          std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
            return before(x.float_at(place(a)), x.float_at(place(b)), largest);
          });
          int wrong = 0;
          for (int64_t i = 0; i < length; ++i) wrong += at.int_at(place(i)) != order[static_cast<size_t>(i)];
          INFO(length << (largest ? " largest " : " smallest ") << "row " << row << " on " << device);
          REQUIRE(wrong == 0);
        }
      }
    }
}

TEST_CASE("a million elements are sorted in seconds: comparing them all takes minutes") {
  constexpr int64_t kLength = 1'000'000;
  const Tensor x = crowded({kLength});
  const auto start = std::chrono::steady_clock::now();
  const Tensor at = top_places(x, 0, kLength, false, "cpu");
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(40));
  int wrong = 0;
  for (int64_t i = 1; i < kLength; ++i) {
    const double a = x.float_at(at.int_at(i - 1)), b = x.float_at(at.int_at(i));
    wrong += before(b, a, false) || (!before(a, b, false) && at.int_at(i) < at.int_at(i - 1));
  }
  CHECK(wrong == 0);
}

TEST_CASE("a long axis of integers and of f16 is sorted by merging") {
  constexpr int64_t kLength = 1500;
  for (const auto& [type, onnx_type] : {std::pair{DType::I64, kInt64}, std::pair{DType::I32, kInt32}, std::pair{DType::F16, kFloat16}})
    for (const bool largest : {true, false}) {
      Tensor x(type, {kLength});
      std::mt19937_64 random(5);
      for (int64_t i = 0; i < kLength; ++i) {
        if (is_float(type)) x.set_float(i, i % 50 == 7 ? NAN : static_cast<double>(random() % 300) / 8 - 20);
        else x.set_int(i, i % 3 ? static_cast<int64_t>(random() % 200) - 100 : static_cast<int64_t>(random()));
      }
      if (type == DType::I64) x.set_int(9, INT64_MIN), x.set_int(13, INT64_MAX);
      std::vector<int64_t> order(kLength);
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
        if (is_float(type)) return before(x.float_at(a), x.float_at(b), largest);
        return largest ? x.int_at(a) > x.int_at(b) : x.int_at(a) < x.int_at(b);
      });
      const Tensor at = top_places(x, 0, 700, largest, "cpu", onnx_type);
      int wrong = 0;
      for (int64_t i = 0; i < 700; ++i) wrong += at.int_at(i) != order[static_cast<size_t>(i)];
      INFO(name_of(type) << (largest ? " largest" : " smallest"));
      CHECK(wrong == 0);
    }
}

TEST_CASE("Unique of many elements: values, first places, inverse and counts") {
  constexpr int64_t kLength = 5000;
  onnx::Model m = new_model();
  add_input(m, "x", {std::to_string(kLength)});
  add_node(m, "Unique", {"x"}, {"y", "first", "inverse", "counts"});
  for (const char* name : {"y", "first", "inverse", "counts"}) add_output(m, name);
  const ModelFile file(m);
  Tensor x(DType::F32, {kLength});
  std::mt19937 random(8);
  std::map<double, std::vector<int64_t>> places;
  for (int64_t i = 0; i < kLength; ++i) {
    x.set_float(i, static_cast<double>(random() % 700) / 4 - 80);
    places[x.float_at(i)].push_back(i);
  }
  const auto outputs = run(load(file, "cpu"), {x});
  REQUIRE(outputs[0].count() == static_cast<int64_t>(places.size()));
  int64_t row = 0;
  for (const auto& [value, at] : places) {
    CHECK(outputs[0].float_at(row) == value);
    CHECK(outputs[1].int_at(row) == at.front());
    CHECK(outputs[3].int_at(row) == static_cast<int64_t>(at.size()));
    for (int64_t i : at) REQUIRE(outputs[2].int_at(i) == row);
    ++row;
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
