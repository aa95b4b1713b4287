// The standard's Attention with masks, biases, key lengths, causality and softcap: one kernel for a GPU, which stores no scores.
// Its results under the emulator are compared with those of the CPU, where the products and the softmax are kernels apart.
#include <cmath>
#include <random>

#include "tests/emulated_models.h"
#include "tests/model_tools.h"

using namespace ingot;
using namespace ingot::test;

namespace {

struct AttentionCase {
  const char* name;
  std::vector<std::string> mask{};  // dims; empty: none
  bool bool_mask = false, lengths = false, causal = false;
  float softcap = 0;
  const char* kv_heads = "2";
  const char* queries = "S";
  bool past = false;  // keys and values of before
};
const AttentionCase kCases[] = {
    {"bias", {"S", "T"}},
    {"bias for each head", {"B", "4", "S", "T"}},
    {"mask", {"B", "1", "S", "T"}, true},
    {"lengths", {}, false, true},
    {"lengths, causal", {}, false, true, true},
    {"softcap", {}, false, false, false, 5.0f},
    {"all", {"B", "1", "S", "T"}, false, true, true, 3.0f},
    {"mask, causal, softcap", {"S", "T"}, true, false, true, 2.0f},
    {"bias, as many heads of keys", {"B", "4", "S", "T"}, false, false, false, 0, "4"},
    {"one query", {}, false, false, false, 0, "2", "1"},
    {"one query, lengths, causal", {}, false, true, true, 0, "2", "1"},
    {"one query, bias for each head", {"B", "4", "1", "T"}, false, true, false, 0, "2", "1"},
    {"one query, mask for each head", {"4", "1", "T"}, true, false, false, 0, "1", "1"},
    {"a few queries behind others, causal", {}, false, false, true, 0, "2", "3", true},
    {"queries behind others, causal", {}, false, false, true, 0, "2", "S", true},
};
constexpr int64_t kBatch = 2, kQueries = 19, kKeys = 45, kPast = 30, kWidth = 32,
                  kHidden = 3;  // query kHidden sees no key of a mask

onnx::Model model_of(const AttentionCase& c, int type) {
  onnx::Model m = new_model(24, 11);
  add_input(m, "q", {"B", "4", c.queries, "32"}, type);
  add_input(m, "k", {"B", c.kv_heads, "T", "32"}, type);
  add_input(m, "v", {"B", c.kv_heads, "T", "32"}, type);
  for (const char* name : {"past_k", "past_v"})
    if (c.past) add_input(m, name, {"B", c.kv_heads, "P", "32"}, type);
  std::vector<std::string> inputs{"q", "k", "v"};
  if (!c.mask.empty()) {
    add_input(m, "mask", c.mask, c.bool_mask ? kBool : type);
    inputs.emplace_back("mask");
  }
  if (c.lengths) {
    add_input(m, "lengths", {"B"}, kInt64);
    inputs.resize(6);
    inputs.emplace_back("lengths");
  }
  if (c.past) {
    inputs.resize(4);
    inputs.insert(inputs.end(), {"past_k", "past_v"});
  }
  onnx::Node& n = add_node(m, "Attention", inputs, {"y"});
  if (c.causal) add_int(n, "is_causal", 1);
  if (c.softcap > 0) add_attr(n, "softcap", 1).set_f(c.softcap);
  add_output(m, "y");
  return m;
}

int64_t size_of_dim(const std::string& dim) {
  return dim == "B" ? kBatch : dim == "S" ? kQueries : dim == "T" ? kKeys : dim == "P" ? kPast : std::stoll(dim);
}
std::vector<Tensor> inputs_of(const AttentionCase& c, DType type) {
  std::mt19937_64 random(7);
  std::normal_distribution<double> normal;
  std::vector<Tensor> inputs;
  const auto add = [&](const std::vector<std::string>& dims, DType t) -> Tensor& {
    std::vector<int64_t> sizes;
    for (const std::string& d : dims) sizes.push_back(size_of_dim(d));
    Tensor& x = inputs.emplace_back(t, sizes);
    for (int64_t i = 0; i < x.count(); ++i)
      t == DType::Bool ? x.set_int(i, static_cast<int64_t>(random() % 2)) : x.set_float(i, normal(random));
    return x;
  };
  add({"B", "4", c.queries, "32"}, type);
  add({"B", c.kv_heads, "T", "32"}, type);
  add({"B", c.kv_heads, "T", "32"}, type);
  for (int i = 0; i < 2 && c.past; ++i) add({"B", c.kv_heads, "P", "32"}, type);
  if (!c.mask.empty()) {
    Tensor& mask = add(c.mask, c.bool_mask ? DType::Bool : type);
    for (int64_t i = 0; i < mask.count() && size_of_dim(c.queries) == kQueries; ++i)
      if (i / kKeys % kQueries == kHidden) c.bool_mask ? mask.set_int(i, 0) : mask.set_float(i, -INFINITY);
  }
  if (c.lengths) {
    inputs.emplace_back(DType::I64, std::vector<int64_t>{kBatch});
    inputs.back().set_int(0, kKeys);
    inputs.back().set_int(1, kKeys / 2);
  }
  return inputs;
}

size_t kernels_for(const char* target, const onnx::Model& m) {
  CompileOptions o;
  o.targets = {target};
  auto parsed = parse_model(m.SerializeAsString(), "test.onnx");
  REQUIRE(parsed.ok());
  auto c = lower_model(*parsed, o);
  INFO((c ? "" : c.error().to_string()));
  REQUIRE(c.ok());
  return c->lowered.kernels.size();
}

}  // namespace

TEST_CASE("attention with any score expression is one kernel, right also for queries that see nothing") {
  for (const AttentionCase& c : kCases)
    for (const auto& [type, onnx_type] : {std::pair{DType::F32, kFloat}, std::pair{DType::F16, kFloat16}}) {
      INFO(c.name << " " << name_of(type));
      const onnx::Model m = model_of(c, onnx_type);
      CHECK(kernels_for("sm_90a", m) == (c.past ? 3 : 1));  // keys and values are joined before
      const ModelFile file(m);
      const std::vector<Tensor> inputs = inputs_of(c, type);
      const Tensor got = run(load(file, "emulator"), inputs)[0], want = run(load(file, "cpu"), inputs)[0];
      REQUIRE(got.dims() == want.dims());
      double worst = 0;
      for (int64_t i = 0; i < want.count(); ++i) {
        const double difference = std::abs(got.float_at(i) - want.float_at(i));
        worst = std::max(worst, std::isnan(difference) ? INFINITY : difference);
        if (!c.mask.empty() && size_of_dim(c.queries) == kQueries && i / kWidth % kQueries == kHidden) REQUIRE(got.float_at(i) == 0);
      }
      CHECK(worst <= (type == DType::F32 ? 1e-5 : 4e-3));
    }
}

TEST_CASE("on the CPU, scores of a gigabyte and more are not stored") {
  for (const bool large : {false, true}) {
    onnx::Model m = new_model(24, 11);
    const std::string tokens = large ? "16384" : "1024";
    for (const char* name : {"q", "k", "v"}) add_input(m, name, {"1", "2", tokens, "64"});
    add_node(m, "Attention", {"q", "k", "v"}, {"y"});
    add_output(m, "y");
    CHECK((kernels_for("cpu", m) == 1) == large);
  }
}

TEST_CASE("a NaN among the logits is seen") {
  const AttentionCase& c = kCases[0];
  const ModelFile file(model_of(c, kFloat));
  std::vector<Tensor> inputs = inputs_of(c, DType::F32);
  inputs[3].set_float(5 * kKeys + 7, NAN);  // the bias of query 5
  for (const char* device : {"emulator", "cpu", "interpreter"}) {
    const Tensor y = run(load(file, device), inputs)[0];
    INFO(device);
    int wrong = 0;
    for (int64_t i = 0; i < y.count(); ++i) wrong += std::isnan(y.float_at(i)) != (i / kWidth % kQueries == 5);
    CHECK(wrong == 0);
  }
}
