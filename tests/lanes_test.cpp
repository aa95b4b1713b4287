// Lanes: random graphs with many branches, planned for several streams, give the same numbers in whatever order unordered
// launches happen; and a program whose waits are missing is refused.
#include <fmt/format.h>

#include <set>

#include "catch2/catch.hpp"
#include "codegen/build_program.h"
#include "codegen/kernel/interpret.h"
#include "compiler/driver/reference.h"
#include "compiler/ir/text.h"
#include "compiler/ops/registry.h"
#include "passes/assign_lanes.h"
#include "passes/pass_manager.h"
#include "passes/plan_memory.h"
#include "runtime/executor.h"
#include "tests/join_graphs.h"
#include "tests/lazy_device.h"
#include "tests/program_builder.h"

using namespace ingot;
using namespace ingot::runtime;

namespace {

constexpr int64_t kCount = 16;

/// A graph of `nodes` additions and multiplications over earlier values, every dead end an output.
std::string random_graph(int nodes, std::mt19937& rng) {
  std::set<int> unread;
  std::string body;
  for (int v = 2; v < nodes + 2; ++v) {
    // Mostly recent values, so that there are chains and not only a bush.
    const int x = v - 1 - static_cast<int>(rng() % std::min<unsigned>(static_cast<unsigned>(v), 2 + rng() % 12));
    int y = x;
    while (y == x) y = static_cast<int>(rng() % static_cast<unsigned>(v));
    body += fmt::format("  %{} = {}(%{}, %{}): f32[16]\n", v, rng() % 2 ? "Add" : "Sub", x, y);
    unread.erase(x), unread.erase(y);
    unread.insert(v);
  }
  std::string outputs;
  for (int v : unread) outputs += fmt::format("{}%{} \"out{}\"", outputs.empty() ? "" : ", ", v, v);
  return "graph (%0 \"a\": f32[16], %1 \"b\": f32[16]) {\n" + body + "  return " + outputs + "\n}\n";
}

Result<Program> build(const std::string& text, int lanes, PassContext ctx, const KernelCompiler& compile) {
  Graph graph = INGOT_TRY(parse_graph(text, find_op));
  ctx.evaluate = evaluate_node;
  INGOT_TRY(run_pipeline(graph, ctx, {}));
  const MemoryPlan plan = plan_memory(graph, lanes);
  const LoweredProgram lowered = INGOT_TRY(lower_program(graph, plan));
  BuildOptions options;
  options.threads = 1;
  return build_program(graph, plan, {}, lowered, compile, options);
}

Result<Program> build(const std::string& text, int lanes) {
  PassContext ctx;
  ctx.fuse = false;
  int number = 0;
  return build(text, lanes, ctx, [&](const Kernel& k) -> Result<std::vector<BuiltKernel>> {
    BuiltKernel b;
    b.info.name = k.name + std::to_string(number++);
    b.info.summary = k.name;
    return std::vector{b};
  });
}

template <class F>
testing::LazyKernel pointwise(F f) {
  return [f](const std::vector<void*>& b, const std::vector<int64_t>&) {
    // Of two equal operands, which merging twins makes, the kernel has one buffer.
    const auto *x = static_cast<const float*>(b[0]), *y = static_cast<const float*>(b[b.size() - 2]);
    for (int64_t i = 0; i < kCount; ++i) static_cast<float*>(b.back())[i] = f(x[i], y[i]);
  };
}
std::map<std::string, testing::LazyKernel> kernels() {
  return {{"Add", pointwise([](float x, float y) { return x + y; })},
          {"Sub", pointwise([](float x, float y) { return x - y; })}};
}

std::vector<Tensor> inputs() {
  std::vector<Tensor> list;
  for (double scale : {1.0, 0.25}) {
    Tensor t(DType::F32, {kCount});
    for (int64_t i = 0; i < kCount; ++i) t.set_float(i, scale * static_cast<double>(i % 5));
    list.push_back(std::move(t));
  }
  return list;
}

std::vector<Tensor> run(const Program& program, unsigned seed, const std::map<std::string, testing::LazyKernel>& code, const std::vector<Tensor>& in) {
  auto device = std::make_shared<testing::LazyDevice>(code, seed);
  auto engine = Engine::create(std::make_shared<const Program>(program), device);
  if (!engine) FAIL(engine.error().to_string());
  SessionOptions options;
  options.lanes = Lanes::Always;
  auto session = Session::create(engine.value(), options);
  auto out = session.value()->run(in);
  if (!out) FAIL(out.error().to_string());
  return std::move(out).value();
}
std::vector<Tensor> run(const Program& program, unsigned seed) { return run(program, seed, kernels(), inputs()); }

/// A fused program whose kernels are interpreted, of one name each.
Result<Program> build_fused(const std::string& text, int lanes, const TargetTraits& target, std::map<std::string, testing::LazyKernel>& code) {
  PassContext ctx;
  ctx.target = target;
  return build(text, lanes, ctx, [&](const Kernel& k) -> Result<std::vector<BuiltKernel>> {
    BuiltKernel b;
    b.info.name = b.info.summary = k.name + std::to_string(code.size());
    code[b.info.name] = [k](const std::vector<void*>& buffers, const std::vector<int64_t>& dims) {
      std::unordered_map<std::string, int64_t> at{{"N", 3}, {"M", 3}};  // of a whole, which the kernel may not know
      for (size_t i = 0; i < dims.size(); ++i) at[k.dims[i].name()] = dims[i];
      std::vector<int64_t> sizes;
      for (const Buffer& buffer : k.buffers) sizes.push_back(*evaluate_int(product(buffer.shape), at));
      REQUIRE(interpret(k, buffers, sizes, at).ok());
    };
    return std::vector{b};
  });
}

}  // namespace

TEST_CASE("branches on lanes give the numbers of one stream", "[lanes]") {
  std::mt19937 rng(7);
  int with_lanes = 0;
  for (int round = 0; round < 40; ++round) {
    const std::string text = random_graph(10 + static_cast<int>(rng() % 60), rng);
    INFO(text);
    auto serial = build(text, 1), parallel = build(text, 4);
    if (!serial) FAIL(serial.error().to_string());
    if (!parallel) FAIL(parallel.error().to_string());
    CHECK(lanes_of(*serial) == 1);
    with_lanes += lanes_of(*parallel) > 1;
    const std::vector<Tensor> want = run(*serial, 1);
    for (unsigned seed = 1; seed <= 5; ++seed) {
      const std::vector<Tensor> got = run(*parallel, seed);
      REQUIRE(got.size() == want.size());
      for (size_t o = 0; o < want.size(); ++o) CHECK(std::memcmp(got[o].data(), want[o].data(), want[o].bytes()) == 0);
    }
  }
  CHECK(with_lanes > 20);
}

TEST_CASE("a missing wait is found", "[lanes]") {
  std::mt19937 rng(3);
  int removed = 0, found = 0;
  for (int round = 0; round < 10; ++round) {
    auto program = build(random_graph(40, rng), 4);
    REQUIRE(program.ok());
    CHECK(program->verify().ok());
    for (Instruction& in : program->instructions)
      for (size_t w = 0; w < in.waits.size(); ++w) {
        const std::vector<int32_t> all = in.waits;
        in.waits.erase(in.waits.begin() + static_cast<std::ptrdiff_t>(w));
        ++removed;
        found += !program->verify().ok();
        in.waits = all;
      }
  }
  CHECK(removed > 50);
  CHECK(found == removed);  // every wait is needed
}

TEST_CASE("parts of one value are written on several lanes", "[lanes]") {
  int lanes = 0, removed = 0, found = 0;
  for (const testing::JoinGraph& g : testing::join_graphs()) {
    INFO(g.name);
    for (const TargetTraits& target : {TargetTraits{}, cuda_traits(90)}) {
      std::map<std::string, testing::LazyKernel> serial_code, parallel_code;
      auto serial = build_fused(g.text, 1, target, serial_code), parallel = build_fused(g.text, 4, target, parallel_code);
      if (!serial) FAIL(serial.error().to_string());
      if (!parallel) FAIL(parallel.error().to_string());
      const Status verified = parallel->verify();
      if (!verified) FAIL(verified.error().to_string());
      lanes += lanes_of(*parallel) > 1;
      std::vector<Tensor> in;
      for (const auto& dims : testing::dims_of(g, 3)) {
        in.emplace_back(DType::F32, dims);
        for (int64_t i = 0; i < in.back().count(); ++i) in.back().set_float(i, static_cast<double>(i * 7 % 11) - 5);
      }
      const std::vector<Tensor> want = run(*serial, 1, serial_code, in);
      for (unsigned seed = 1; seed <= 5; ++seed) {
        const std::vector<Tensor> got = run(*parallel, seed, parallel_code, in);
        for (size_t o = 0; o < want.size(); ++o) CHECK(std::memcmp(got[o].data(), want[o].data(), want[o].bytes()) == 0);
      }
      for (Instruction& i : parallel->instructions) {
        const std::vector<int32_t> all = std::exchange(i.waits, {});
        removed += !all.empty();
        found += !all.empty() && !parallel->verify().ok();
        i.waits = all;
      }
    }
  }
  CHECK(lanes > 10);
  CHECK(removed > 10);
  CHECK(found == removed);
}

TEST_CASE("what parts of a value share is told from what they do not", "[lanes]") {
  // Value 0 is the whole of the slot, 1 and 2 are its parts, 3 is a part of 1; 4 is another value of the same slot.
  Program p;
  p.shapes.lines = {{ShapeOp::Constant, 0, 0, 0, 4}};
  p.slots = {{0}};
  const auto value = [&](int32_t part_of) { p.values.push_back({Place::Arena, 0, DType::F32, 0, "v", part_of}); };
  for (int32_t part_of : {-1, 0, 0, 1, -1}) value(part_of);
  KernelInfo k;
  k.name = "k";
  p.kernels = {k};
  const auto may_run_together = [&](int32_t a, int32_t b, bool second_reads) {
    p.instructions.clear();
    for (int32_t v : {a, b}) {
      Instruction in;
      in.kernel = 0;
      in.args = {v};
      in.lane = static_cast<int32_t>(p.instructions.size());
      in.first_written = second_reads && in.lane == 1;
      p.instructions.push_back(in);
    }
    return p.verify().ok();
  };
  for (bool reads : {false, true}) {
    CHECK(may_run_together(1, 2, reads));
    CHECK(may_run_together(3, 2, reads));
    CHECK(may_run_together(2, 3, reads));
    CHECK_FALSE(may_run_together(0, 1, reads));
    CHECK_FALSE(may_run_together(1, 3, reads));
    CHECK_FALSE(may_run_together(3, 0, reads));
    CHECK_FALSE(may_run_together(1, 4, reads));
    CHECK_FALSE(may_run_together(2, 2, reads));
  }
  // A write of one part orders nothing for the other: the slot's last value was read on lane 0, and lane 1 did not wait.
  const auto step = [&](int32_t v, int32_t lane, bool writes) {
    Instruction in;
    in.kernel = 0;
    in.args = {v};
    in.lane = lane;
    in.first_written = !writes;
    p.instructions.push_back(in);
  };
  p.instructions.clear();
  step(4, 0, false), step(1, 0, true), step(2, 1, true);
  CHECK_FALSE(p.verify().ok());
  p.instructions[2].waits = {0};
  CHECK(p.verify().ok());
}

TEST_CASE("a chain stays on one lane, and a wait that costs more than it gains is not taken", "[lanes]") {
  auto chain = build(
      "graph (%0 \"a\": f32[16], %1 \"b\": f32[16]) {\n  %2 = Add(%0, %1): f32[16]\n  %3 = Sub(%2, %1): f32[16]\n"
      "  return %3 \"out\"\n}\n",
      4);
  REQUIRE(chain.ok());
  CHECK(lanes_of(*chain) == 1);
}

TEST_CASE("a launch that reads early starts early only behind the one that it may run beside", "[lanes]") {
  auto program = testing::sums_program(4);
  const auto early_launches = [&](int64_t rows) {
    auto device = std::make_shared<testing::LazyDevice>(kernels());
    auto engine = Engine::create(program, device);
    REQUIRE(engine.ok());
    SessionOptions options;
    options.recordings = false;
    auto session = Session::create(engine.value(), options);
    REQUIRE(session.value()->run({Tensor(DType::F32, {rows, 3})}).ok());
    return device->early;
  };
  CHECK(early_launches(6) == std::vector<bool>{true, true, true, true});
  program->instructions[2].early_behind = 1;
  CHECK(early_launches(6) == std::vector<bool>{true, true, true, true});
  // The launch in front has nothing to do for 5 rows: what is in front then is what wrote the values.
  testing::Lines lines{program->shapes};
  program->instructions[1].grid[0] = lines.op(ShapeOp::Ne, lines.symbol(0), lines.constant(5));
  program->shapes = lines.program;
  CHECK(early_launches(6) == std::vector<bool>{true, true, true, true});
  CHECK(early_launches(5) == std::vector<bool>{true, false, true});
  program->instructions[2].early_behind = 4;
  CHECK_FALSE(program->verify().ok());
}

TEST_CASE("lanes are used where branches are longer than their events", "[lanes]") {
  // Two sums of x, one on each lane, and what adds them.
  const auto streams_for = [](int64_t bytes_of_branch) {
    auto program = testing::sums_program(3);
    testing::Lines lines{program->shapes};
    const ShapeRef bytes = lines.constant(bytes_of_branch);
    program->shapes = lines.program;
    auto& in = program->instructions;
    in[0].args = {0, 0, 2}, in[1].args = {0, 0, 3}, in[2].args = {2, 3, 1};
    in[0].bytes = in[1].bytes = bytes;
    in[1].lane = 1;
    in[2].waits = {1};
    auto device = std::make_shared<testing::LazyDevice>(kernels());
    auto engine = Engine::create(program, device);
    if (!engine) FAIL(engine.error().to_string());
    auto session = Session::create(engine.value());
    REQUIRE(session.value()->run({Tensor(DType::F32, {2, 3})}).ok());
    return device->streams;
  };
  CHECK(streams_for(300 << 20) == streams_for(1 << 10) + 1);
}
