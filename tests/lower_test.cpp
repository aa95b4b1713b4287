// Fused against unfused on the interpreter: the same graph, once with every node a kernel of its own and once in groups,
// must give the same numbers, for several sizes of its dynamic dimensions, zero included.
#include <catch2/catch.hpp>
#include <random>

#include <fmt/format.h>

#include "compiler/driver/reference.h"
#include "compiler/ir/text.h"
#include "compiler/ops/registry.h"
#include "passes/pass_manager.h"
#include "passes/plan_memory.h"
#include "tests/fused_graphs.h"
#include "tests/join_graphs.h"

using namespace ingot;

namespace {

struct Prepared {
  Graph graph;
  MemoryPlan plan;
  LoweredProgram lowered;
};
Prepared prepare(const std::string& text, bool fuse, const TargetTraits& target = {}, DType precision = DType::F32) {
  auto g = parse_graph(text, find_op);
  INFO((g.ok() ? "" : g.error().to_string()));
  REQUIRE(g.ok());
  PassContext ctx;
  ctx.evaluate = evaluate_node;
  ctx.fuse = fuse;
  ctx.target = target;
  ctx.precision = precision;
  auto trace = run_pipeline(*g, ctx, {});
  INFO((trace.ok() ? "" : trace.error().to_string()));
  REQUIRE(trace.ok());
  Prepared p{std::move(*g), {}, {}};
  p.plan = plan_memory(p.graph, target.kind == TargetKind::Cuda ? 4 : 1);
  auto lowered = lower_program(p.graph, p.plan);
  REQUIRE(lowered.ok());
  p.lowered = std::move(*lowered);
  return p;
}
Tensor random_tensor(std::vector<int64_t> dims, uint64_t seed) {
  Tensor t(DType::F32, std::move(dims));
  std::mt19937_64 rng(seed);
  std::normal_distribution<float> normal;
  for (int64_t i = 0; i < t.count(); ++i) t.set_float(i, normal(rng));
  return t;
}
/// Runs both forms and compares; returns how many kernels the fused one has.
size_t expect_equal(const std::string& text, const std::vector<std::vector<int64_t>>& dims, const TargetTraits& target = {},
                    DType precision = DType::F32) {
  const Prepared fused = prepare(text, true, target, precision), apart = prepare(text, false);
  std::vector<Tensor> inputs;
  for (size_t i = 0; i < dims.size(); ++i) inputs.push_back(random_tensor(dims[i], i + 1));
  auto got = run_reference(fused.graph, fused.plan, fused.lowered, {}, inputs);
  auto want = run_reference(apart.graph, apart.plan, apart.lowered, {}, inputs);
  INFO((got.ok() ? "" : got.error().to_string()));
  REQUIRE(got.ok());
  REQUIRE(want.ok());
  for (size_t i = 0; i < got->size(); ++i) {
    REQUIRE((*got)[i].dims() == (*want)[i].dims());
    double largest = 1;  // sums are rounded in another order
    for (int64_t k = 0; k < (*want)[i].count(); ++k) largest = std::max(largest, std::abs((*want)[i].float_at(k)));
    for (int64_t k = 0; k < (*got)[i].count(); ++k) {
      const double g = (*got)[i].float_at(k), w = (*want)[i].float_at(k);
      INFO("output " << i << " element " << k);
      REQUIRE(g == Approx(w).margin((precision == DType::F32 ? 1e-5 : 2e-3) * largest));
    }
  }
  return fused.lowered.kernels.size();
}

const char* const kBlock = R"(graph (%0 "x": f32[N,4,H,6]) where N in [0, inf], H in [1, inf] {
  %1 = const "w": f32[8,4,3,3] data 1111
  %2 = Conv(%0, %1) {kernel=[3, 3], strides=[2, 1], dilations=[1, 1], begins=[1, 1], ends=[1, 1]}: f32[N,8,(H - 1)//2 + 1,6]
  %3 = const "s": f32[8] data 2222
  %4 = const "b": f32[8] data 3333
  %5 = const "m": f32[8] data 4444
  %6 = const "v": f32[] {1.5}
  %7 = Expand(%6) {shape=[8]}: f32[8]
  %8 = BatchNormalization(%2, %3, %4, %5, %7): f32[N,8,(H - 1)//2 + 1,6]
  %9 = Relu(%8): f32[N,8,(H - 1)//2 + 1,6]
  %10 = ReduceMean(%9) {axes=[2, 3]}: f32[N,8,1,1]
  %11 = Sigmoid(%10): f32[N,8,1,1]
  %12 = Mul(%9, %11): f32[N,8,(H - 1)//2 + 1,6]
  return %12 "y", %9 "z"
})";
const char* const kAttention = R"(graph (%0 "q": f32[B,S,8]) {
  %1 = Reshape(%0) {shape=[B, S, 2, 4]}: f32[B,S,2,4]
  %2 = Transpose(%1) {perm=[0, 2, 1, 3]}: f32[B,2,S,4]
  %3 = Transpose(%1) {perm=[0, 2, 3, 1]}: f32[B,2,4,S]
  %4 = MatMul(%2, %3): f32[B,2,S,S]
  %5 = Softmax(%4) {axis=3}: f32[B,2,S,S]
  %6 = MatMul(%5, %2): f32[B,2,S,4]
  %7 = Transpose(%6) {perm=[0, 2, 1, 3]}: f32[B,S,2,4]
  %8 = Reshape(%7) {shape=[B, S, 8]}: f32[B,S,8]
  %9 = LayerNormalization(%8) {axis=2}: f32[B,S,8]
  return %9 "y"
})";

}  // namespace

TEST_CASE("parts of a concatenation are written where they belong") {
  for (const testing::JoinGraph& g : testing::join_graphs()) {
    INFO(g.name);
    for (const Kernel& k : prepare(g.text, true).lowered.kernels)
      for (const std::string& line : k.header) CHECK_FALSE(line.starts_with("Concat"));
    for (int64_t n : {1, 3, 0}) {
      const auto dims = testing::dims_of(g, n);
      CHECK(expect_equal(g.text, dims) == g.kernels);
      expect_equal(g.text, dims, cuda_traits(90));
    }
  }
}
TEST_CASE("small reductions and products are one kernel, stage by stage") {
  for (const testing::FusedGraph& g : testing::chain_graphs()) {
    INFO(g.name);
    for (int64_t n : {1, 3, 0}) CHECK(expect_equal(g.text, {testing::dims_of(g, n)}, cuda_traits(90)) == g.kernels);
  }
}
TEST_CASE("rows of a product are reduced in its epilogue") {
  for (const testing::FusedGraph& g : testing::row_group_graphs()) {
    INFO(g.name);
    for (int64_t n : {1, 3, 0}) CHECK(expect_equal(g.text, {testing::dims_of(g, n)}, cuda_traits(90)) == g.kernels);
  }
}
TEST_CASE("the columns of a stem's window are channels of a copy, in either width") {
  const auto text = [](int taps, int stride, int begin, int columns) {
    return fmt::format(R"(graph (%0 "x": f32[N,3,12,{0}]) where N in [0, inf] {{
  %1 = const "w": f32[8,3,{1},{1}] data 11
  %2 = Conv(%0, %1) {{kernel=[{1}, {1}], strides=[{2}, {2}], dilations=[1, 1], begins=[{3}, {3}], ends=[{3}, {3}]}}: f32[N,8,{4},{5}]
  %3 = Relu(%2): f32[N,8,{4},{5}]
  return %3 "y"
}})", columns, taps, stride, begin, (12 + 2 * begin - taps) / stride + 1, (columns + 2 * begin - taps) / stride + 1);
  };
  for (DType precision : {DType::F32, DType::F16})
    for (int64_t n : {1, 3, 0}) {
      expect_equal(text(3, 2, 1, 16), {{n, 3, 12, 16}}, cuda_traits(90), precision);
      expect_equal(text(7, 2, 3, 18), {{n, 3, 12, 18}}, cuda_traits(90), precision);
      expect_equal(text(5, 1, 0, 9), {{n, 3, 12, 9}}, cuda_traits(90), precision);
    }
}
TEST_CASE("attention in windows with masks of their own is one kernel") {
  const testing::FusedGraph g = testing::masked_windows();
  for (int64_t n : {1, 3, 0}) CHECK(expect_equal(g.text, {testing::dims_of(g, n)}, cuda_traits(90)) == g.kernels);
}
TEST_CASE("experts of one shape are two products, weighted by their gate") {
  std::string text = "graph (%0 \"x\": f32[N,12]) where N in [0, inf] {\n";
  int next = 1;
  const auto add = [&](const std::string& line) {
    text += "  %" + std::to_string(next) + " = " + line + "\n";
    return "%" + std::to_string(next++);
  };
  const auto product = [&](const std::string& x, int from, int to) {
    const std::string type = "f32[N," + std::to_string(to) + "]";
    const std::string w = add("const \"w\": f32[" + std::to_string(from) + "," + std::to_string(to) + "] data " + std::to_string(100 + next));
    const std::string b = add("const \"b\": f32[" + std::to_string(to) + "] data " + std::to_string(100 + next));
    return add("Add(" + add("MatMul(" + x + ", " + w + "): " + type) + ", " + b + "): " + type);
  };
  const std::string gate = add("Softmax(" + product("%0", 12, 3) + ") {axis=1}: f32[N,3]");
  std::string sum;
  for (int e = 0; e < 3; ++e) {
    const std::string y = product(add("Relu(" + product("%0", 12, 16) + "): f32[N,16]"), 16, 8);
    const std::string g = add("Slice(" + gate + ") {starts=[0, " + std::to_string(e) + "], steps=[1, 1], sizes=[N, 1]}: f32[N,1]");
    const std::string weighted = add("Mul(" + g + ", " + y + "): f32[N,8]");
    sum = sum.empty() ? weighted : add("Add(" + sum + ", " + weighted + "): f32[N,8]");
  }
  text += "  return " + sum + " \"y\"\n}\n";
  for (int64_t n : {1, 3, 0}) {
    CHECK(expect_equal(text, {{n, 12}}) == 4);  // the gate's product, its softmax, the experts
    CHECK(expect_equal(text, {{n, 12}}, cuda_traits(90)) == 3);  // there these two are one
  }
}
TEST_CASE("rows of a batch do not depend on each other") {
  for (const testing::JoinGraph& g : testing::join_graphs()) {
    INFO(g.name);
    for (const TargetTraits& target : {TargetTraits{}, cuda_traits(90)}) {
      const Prepared p = prepare(g.text, true, target);
      std::vector<Tensor> batch, last;
      for (const auto& dims : testing::dims_of(g, 3)) {
        batch.push_back(random_tensor(dims, dims.size() + batch.size()));
        std::vector<int64_t> one = dims;
        one[0] = 1;
        Tensor t(DType::F32, one);
        for (int64_t i = 0; i < t.count(); ++i) t.set_float(i, batch.back().float_at(batch.back().count() - t.count() + i));
        last.push_back(std::move(t));
      }
      if (std::string(g.name) == "a place that a dimension decides") continue;  // its rows are not one batch
      auto all = run_reference(p.graph, p.plan, p.lowered, {}, batch), one = run_reference(p.graph, p.plan, p.lowered, {}, last);
      REQUIRE(all.ok());
      REQUIRE(one.ok());
      for (size_t o = 0; o < one->size(); ++o) {
        const int64_t count = (*one)[o].count();
        for (int64_t i = 0; i < count; ++i) REQUIRE((*all)[o].float_at(2 * count + i) == Approx((*one)[o].float_at(i)).margin(1e-6));
      }
    }
  }
}
TEST_CASE("an infinite pixel beside a window does not reach its result") {
  // On GPUs the three columns of a window become four, of which the last has no weight.
  const char* text = R"(graph (%0 "x": f32[1,2,2,9]) {
  %1 = const "w": f32[1,2,1,3] {1, 2, 3, 4, 5, 6}
  %2 = Conv(%0, %1) {kernel=[1, 3], strides=[1, 2], dilations=[1, 1], begins=[0, 1], ends=[0, 1]}: f32[1,1,2,5]
  return %2 "y"
})";
  const Prepared fused = prepare(text, true, cuda_traits(90)), apart = prepare(text, false);
  for (double strange : {HUGE_VAL, std::nan("")})
    for (int64_t at = 0; at < 9; ++at) {
      Tensor x = random_tensor({1, 2, 2, 9}, 5);
      x.set_float(at, strange);
      auto got = run_reference(fused.graph, fused.plan, fused.lowered, {}, {x});
      auto want = run_reference(apart.graph, apart.plan, apart.lowered, {}, {x});
      REQUIRE(got.ok());
      REQUIRE(want.ok());
      for (int64_t i = 0; i < 10; ++i) {
        INFO("pixel " << at << ", element " << i);
        const double g = (*got)[0].float_at(i), w = (*want)[0].float_at(i);
        if (std::isfinite(w)) REQUIRE(g == Approx(w).margin(1e-5));
        else REQUIRE_FALSE(std::isfinite(g));
      }
    }
}
TEST_CASE("shifted windows: products read and store through rolls") {
  const char* text = R"(graph (%0 "x": f32[N,4,4,6]) where N in [0, inf] {
  %1 = Pad(%0) {begins=[0, 0, 0, 0], ends=[0, 0, 0, 0], mode="constant"}: f32[N,4,4,6]
  %2 = Slice(%1) {starts=[0, 1, 0, 0], steps=[1, 1, 1, 1], sizes=[N, 3, 4, 6]}: f32[N,3,4,6]
  %3 = Slice(%1) {starts=[0, 0, 0, 0], steps=[1, 1, 1, 1], sizes=[N, 1, 4, 6]}: f32[N,1,4,6]
  %4 = Concat(%2, %3) {axis=1}: f32[N,4,4,6]
  %5 = Reshape(%4) {shape=[N, 2, 2, 2, 2, 6]}: f32[N,2,2,2,2,6]
  %6 = Transpose(%5) {perm=[0, 1, 3, 2, 4, 5]}: f32[N,2,2,2,2,6]
  %7 = Reshape(%6) {shape=[4*N, 4, 6]}: f32[4*N,4,6]
  %8 = const "w": f32[6,6] data 21
  %9 = MatMul(%7, %8): f32[4*N,4,6]
  %10 = Reshape(%9) {shape=[N, 2, 2, 2, 2, 6]}: f32[N,2,2,2,2,6]
  %11 = Transpose(%10) {perm=[0, 1, 3, 2, 4, 5]}: f32[N,2,2,2,2,6]
  %12 = Reshape(%11) {shape=[N, 4, 4, 6]}: f32[N,4,4,6]
  %13 = Slice(%12) {starts=[0, 3, 0, 0], steps=[1, 1, 1, 1], sizes=[N, 1, 4, 6]}: f32[N,1,4,6]
  %14 = Slice(%12) {starts=[0, 0, 0, 0], steps=[1, 1, 1, 1], sizes=[N, 3, 4, 6]}: f32[N,3,4,6]
  %15 = Concat(%13, %14) {axis=1}: f32[N,4,4,6]
  %16 = Add(%0, %15): f32[N,4,4,6]
  return %16 "y"
})";
  for (int64_t n : {1, 3, 0}) {
    CHECK(expect_equal(text, {{n, 4, 4, 6}}) == 1);
    CHECK(expect_equal(text, {{n, 4, 4, 6}}, cuda_traits(90)) == 1);
  }
}
TEST_CASE("a convolution block with squeeze and excite") {
  for (int64_t n : {1, 3})
    for (int64_t h : {1, 5, 8}) CHECK(expect_equal(kBlock, {{n, 4, h, 6}}) == 2);
  expect_equal(kBlock, {{0, 4, 5, 6}});
}
TEST_CASE("norms over groups of channels are one kernel, with what follows in the shape of the image") {
  const char* text = R"(graph (%0 "x": f32[N,12,5,H]) where N in [0, inf], H in [1, inf] {
  %1 = const "scale": f32[12] {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}
  %2 = const "bias": f32[12] {12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1}
  %3 = GroupNormalization(%0, %1, %2) {groups=3}: f32[N,12,5,H]
  %4 = Sigmoid(%3): f32[N,12,5,H]
  %5 = Mul(%3, %4): f32[N,12,5,H]
  %6 = Add(%5, %0): f32[N,12,5,H]
  return %6 "y", %3 "norm"
})";
  for (int64_t n : {0, 1, 3})
    for (int64_t h : {1, 4, 7})
      for (const TargetTraits& target : {TargetTraits{}, cuda_traits(90)}) CHECK(expect_equal(text, {{n, 12, 5, h}}, target) == 1);
}
TEST_CASE("a norm of channels between convolutions, whose channels are last on a GPU") {
  const char* text = R"(graph (%0 "x": f32[N,4,6,5]) where N in [0, inf] {
  %1 = const "w": f32[8,4,1,1] data 11
  %2 = Conv(%0, %1) {kernel=[1, 1], strides=[1, 1], dilations=[1, 1], begins=[0, 0], ends=[0, 0]}: f32[N,8,6,5]
  %3 = const "scale": f32[8] data 12
  %4 = const "bias": f32[8] data 13
  %5 = InstanceNormalization(%2, %3, %4) {groups=0}: f32[N,8,6,5]
  %6 = Relu(%5): f32[N,8,6,5]
  %7 = const "v": f32[4,8,1,1] data 14
  %8 = Conv(%6, %7) {kernel=[1, 1], strides=[1, 1], dilations=[1, 1], begins=[0, 0], ends=[0, 0]}: f32[N,4,6,5]
  return %8 "y"
})";
  for (int64_t n : {0, 1, 3})
    for (const TargetTraits& target : {TargetTraits{}, cuda_traits(90)}) CHECK(expect_equal(text, {{n, 4, 6, 5}}, target) == 3);
}
TEST_CASE("pointwise work of one shape is one kernel, whatever reads its parts") {
  const char* text = R"(graph (%0 "a": f32[N,9], %1 "b": f32[N,9], %2 "w": f32[9,5]) where N in [0, inf] {
  %3 = Exp(%0): f32[N,9]
  %4 = Tanh(%1): f32[N,9]
  %5 = MatMul(%4, %2): f32[N,5]
  return %3 "y", %5 "z"
})";
  for (int64_t n : {0, 1, 3})
    for (const TargetTraits& target : {TargetTraits{}, cuda_traits(90)}) CHECK(expect_equal(text, {{n, 9}, {n, 9}, {9, 5}}, target) == 2);
}
TEST_CASE("a convolution on a GPU reads the pixels that a Resize repeats where they come from") {
  const char* text = R"(graph (%0 "x": f32[N,4,5,3]) where N in [0, inf] {
  %1 = const "w": f32[24,4,1,1] data 11
  %2 = Conv(%0, %1) {kernel=[1, 1], strides=[1, 1], dilations=[1, 1], begins=[0, 0], ends=[0, 0]}: f32[N,24,5,3]
  %3 = Relu(%2): f32[N,24,5,3]
  %4 = Resize(%3) {sizes=[N, 24, 10, 6], scales=[1, 1, 2, 2], mode="nearest", transform="asymmetric", nearest="floor"}: f32[N,24,10,6]
  %5 = const "v": f32[16,24,3,3] data 12
  %6 = Conv(%4, %5) {kernel=[3, 3], strides=[1, 1], dilations=[1, 1], begins=[1, 1], ends=[1, 1]}: f32[N,16,10,6]
  return %6 "y"
})";
  for (int64_t n : {0, 1, 3}) {
    CHECK(expect_equal(text, {{n, 4, 5, 3}}) == 3);
    CHECK(expect_equal(text, {{n, 4, 5, 3}}, cuda_traits(90)) == 2);
  }
}
TEST_CASE("attention and layer norm") {
  for (int64_t b : {1, 2})
    for (int64_t s : {1, 7}) CHECK(expect_equal(kAttention, {{b, s, 8}}) <= 5);
}
TEST_CASE("movement into and out of pointwise work") {
  const char* text = R"(graph (%0 "x": f32[N,6], %1 "y": f32[N,3]) {
  %2 = Transpose(%0) {perm=[1, 0]}: f32[6,N]
  %3 = Slice(%2) {starts=[4, 0], steps=[-2, 1], sizes=[3, N]}: f32[3,N]
  %4 = Transpose(%3) {perm=[1, 0]}: f32[N,3]
  %5 = Add(%4, %1): f32[N,3]
  %6 = Concat(%5, %0) {axis=1}: f32[N,9]
  %7 = Exp(%6): f32[N,9]
  return %7 "z"
})";
  CHECK(expect_equal(text, {{5, 6}, {5, 3}}) == 1);
}

TEST_CASE("norms of groups of channels, in the order in which these lie in memory") {
  for (const char* shapes : {"5,7,24", "5,8,24", "4,4,24"}) {
    const std::string s = shapes, h = s.substr(0, 1), w = s.substr(2, 1);
    const std::string first = "[N,24," + h + "," + w + "]", last = "[N," + h + "," + w + ",24]";
    for (const bool channels_last : {false, true}) {
      const std::string text = "graph (%0 \"x\": f32" + last + ") where N in [0, inf] {\n  %1 = const \"scale\": f32[24] data 5\n" +
                               "  %2 = const \"bias\": f32[24] data 6\n  %3 = Transpose(%0) {perm=[0, 3, 1, 2]}: f32" + first +
                               "\n  %4 = GroupNormalization(%3, %1, %2) {groups=4}: f32" + first + "\n  %5 = Sigmoid(%4): f32" + first +
                               "\n  %6 = Mul(%4, %5): f32" + first +
                               (channels_last ? "\n  %7 = Transpose(%6) {perm=[0, 2, 3, 1]}: f32" + last + "\n  return %7 \"y\"\n}\n"
                                              : "\n  return %6 \"y\"\n}\n");
      INFO(text);
      for (const int64_t n : {0, 1, 3})
        CHECK(expect_equal(text, {{n, h[0] - '0', w[0] - '0', 24}}, cuda_traits(90)) == 1);
    }
  }
}
