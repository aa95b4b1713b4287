// Scatters of many updates, which are sorted first: against a loop over the updates in their order.
#include <chrono>
#include <functional>
#include <random>

#include "tests/emulated_models.h"
#include "tests/model_tools.h"

using namespace ingot;
using namespace ingot::test;

namespace {

struct ScatterCase {
  const char* op;  // ScatterElements or ScatterND
  std::vector<int64_t> data, indices;
  int64_t axis = 0;
  int64_t places = 0;  // updates hit only so many places of an axis; 0: all
};

std::vector<std::string> names(const std::vector<int64_t>& dims) {
  std::vector<std::string> text;
  for (int64_t d : dims) text.push_back(std::to_string(d));
  return text;
}
std::vector<int64_t> update_dims(const ScatterCase& c) {
  if (std::string(c.op) == "ScatterElements") return c.indices;
  std::vector<int64_t> dims(c.indices.begin(), c.indices.end() - 1);
  dims.insert(dims.end(), c.data.begin() + c.indices.back(), c.data.end());
  return dims;
}
onnx::Model model_of(const ScatterCase& c, const std::string& reduction) {
  onnx::Model m = new_model(18);
  add_input(m, "data", names(c.data), kInt64);
  add_input(m, "indices", names(c.indices), kInt64);
  add_input(m, "updates", names(update_dims(c)), kInt64);
  onnx::Node& n = add_node(m, c.op, {"data", "indices", "updates"}, {"y"});
  if (reduction != "none") add_string(n, "reduction", reduction);
  if (std::string(c.op) == "ScatterElements") add_int(n, "axis", c.axis);
  add_output(m, "y");
  return m;
}
Tensor numbers(const std::vector<int64_t>& dims, int seed, const std::function<int64_t(int64_t, uint64_t)>& value) {
  Tensor t(DType::I64, dims);
  std::mt19937_64 random(static_cast<uint64_t>(seed));
  for (int64_t i = 0; i < t.count(); ++i) t.set_int(i, value(i, random()));
  return t;
}
/// Positive and negative indices.
Tensor indices_of(const ScatterCase& c) {
  const bool nd = std::string(c.op) == "ScatterND";
  return numbers(c.indices, 2, [&](int64_t i, uint64_t random) {
    const int64_t dim = c.data[static_cast<size_t>(nd ? i % c.indices.back() : c.axis)];
    const auto at = static_cast<int64_t>(random % static_cast<uint64_t>(c.places ? c.places : dim));
    return random >> 40 & 1 ? at - dim : at;
  });
}
int64_t combined(const std::string& reduction, int64_t a, int64_t b) {
  if (reduction == "add") return a + b;
  if (reduction == "mul") return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
  if (reduction == "max") return std::max(a, b);
  return reduction == "min" ? std::min(a, b) : b;
}
/// The elements of the data that update `i` of the case touches, as a linear index.
int64_t place_of(const ScatterCase& c, const Tensor& indices, const std::vector<int64_t>& dims, int64_t i) {
  const size_t rank = c.data.size();
  std::vector<int64_t> at(dims.size());
  for (size_t d = dims.size(); d-- > 0; i /= dims[d]) at[d] = i % dims[d];
  std::vector<int64_t> place(rank);
  if (std::string(c.op) == "ScatterElements") {
    int64_t linear = 0;
    for (size_t d = 0; d < rank; ++d) linear = linear * dims[d] + at[d];
    place = at;
    place[static_cast<size_t>(c.axis)] = indices.int_at(linear);
  } else {
    const size_t tuples = c.indices.size() - 1;
    const auto depth = static_cast<size_t>(c.indices.back());
    int64_t linear = 0;
    for (size_t d = 0; d < tuples; ++d) linear = linear * c.indices[d] + at[d];
    for (size_t d = 0; d < depth; ++d) place[d] = indices.int_at(linear * c.indices.back() + static_cast<int64_t>(d));
    for (size_t d = depth; d < rank; ++d) place[d] = at[tuples + d - depth];
  }
  int64_t linear = 0;
  for (size_t d = 0; d < rank; ++d) linear = linear * c.data[d] + (place[d] < 0 ? place[d] + c.data[d] : place[d]);
  return linear;
}

void check(const ScatterCase& c, const std::string& reduction, const std::string& device) {
  INFO(c.op << " " << reduction << " on " << device << ", " << describe(DType::I64, c.indices));
  const ModelFile file(model_of(c, reduction));
  const auto small = [](int64_t, uint64_t random) { return static_cast<int64_t>(random % 11) - 5; };
  const Tensor data = numbers(c.data, 1, small), indices = indices_of(c), updates = numbers(update_dims(c), 3, small);
  const Tensor y = run(load(file, device), {data, indices, updates})[0];
  Tensor want(DType::I64, c.data);
  for (int64_t i = 0; i < want.count(); ++i) want.set_int(i, data.int_at(i));
  for (int64_t i = 0; i < updates.count(); ++i) {
    const int64_t at = place_of(c, indices, updates.dims(), i);
    want.set_int(at, combined(reduction, want.int_at(at), updates.int_at(i)));
  }
  int64_t wrong = 0;
  for (int64_t i = 0; i < want.count(); ++i) wrong += y.int_at(i) != want.int_at(i);
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("many updates are sorted: every reduction, along an axis and by tuples") {
  const ScatterCase cases[] = {
      {"ScatterElements", {700, 3}, {900, 3}, 0, 0},
      {"ScatterElements", {2, 3000}, {2, 5000}, 1, 40},  // long segments, of several levels
      {"ScatterND", {40, 50, 3}, {33, 77, 2}, 0, 0},
      {"ScatterND", {2000, 5}, {1000, 1}, 0, 3},
      {"ScatterND", {30, 30, 30}, {3000, 3}, 0, 7},
  };
  for (const ScatterCase& c : cases)
    for (const char* reduction : {"none", "add", "mul", "max", "min"}) check(c, reduction, "cpu");
  for (const char* reduction : {"none", "add", "max"})
    for (const char* device : {"interpreter", "emulator"}) check(cases[0], reduction, device);
  check(cases[3], "add", "emulator");
}

TEST_CASE("few updates, and lines of other lengths than the data's, are searched") {
  for (const char* reduction : {"none", "add"}) {
    check({"ScatterElements", {20, 3}, {31, 3}, 0, 0}, reduction, "cpu");
    check({"ScatterElements", {700, 3}, {900, 2}, 0, 0}, reduction, "cpu");
    check({"ScatterND", {20, 3}, {31, 1}, 0, 0}, reduction, "cpu");
  }
}

TEST_CASE("half a million updates of as many places take seconds: comparing them all takes minutes") {
  for (const char* reduction : {"none", "add"}) {
    const auto start = std::chrono::steady_clock::now();
    check({"ScatterElements", {700'000}, {600'000}, 0, 0}, reduction, "cpu");
    CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(40));
  }
}
