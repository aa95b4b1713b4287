// The runtime on its own: shape programs, program checks, sessions on the CPU device with hand-written kernels, the
// thread pool, the choice of CUDA binaries. Links the runtime only.
#include <atomic>
#include <bit>
#include <cmath>
#include <thread>

#include "catch2/catch.hpp"
#include "runtime/cpu/cpu_device.h"
#include "runtime/cuda/cuda_device.h"
#include "runtime/executor.h"
#include "tests/program_builder.h"

using namespace ingot;
using namespace ingot::runtime;
using ingot::testing::Lines;

namespace {

/// out[i] = a[i] + b[i], a task for each 4 elements; dims[0] is the count.
void add_kernel(void* const* buffers, const int64_t* dims, int64_t first, int64_t last, void*) {
  const auto* a = static_cast<const float*>(buffers[0]);
  const auto* b = static_cast<const float*>(buffers[1]);
  auto* out = static_cast<float*>(buffers[2]);
  for (int64_t i = first * 4; i < std::min(last * 4, dims[0]); ++i) out[i] = a[i] + b[i];
}

Result<CpuCode> load_by_name(const KernelInfo& kernel) {
  if (kernel.name == "add") return CpuCode{add_kernel, nullptr};
  return make_error(ErrorKind::NotFound, "no kernel " + kernel.name);
}

/// y = (x + w) + x for x f32[N,3], w f32[N*3] restricted to N in [0, 1000]; also returns x itself and, as a
/// requirement, N != 13.
std::shared_ptr<Program> sample_program() {
  auto p = std::make_shared<Program>();
  p->target = "cpu";
  p->symbols = {{"N", 0, 1000}};
  Lines l;
  const ShapeRef n = l.symbol(0), three = l.constant(3), count = l.op(ShapeOp::Mul, n, three);
  const ShapeRef bytes = l.op(ShapeOp::Mul, count, l.constant(4));
  const ShapeRef tasks = l.op(ShapeOp::FloorDiv, l.op(ShapeOp::Add, count, three), l.constant(4));
  const ShapeRef one = l.constant(1), weight_bytes = l.constant(12000), not_13 = l.op(ShapeOp::Ne, n, l.constant(13));
  p->shapes = l.program;
  p->inputs = {{"x", DType::F32, {n, three}, {0, -1}}};
  p->outputs = {{"y", DType::F32, {n, three}, {}}, {"same", DType::F32, {n, three}, {}}};
  auto w = std::make_shared<Tensor>(DType::F32, Dims{3000});
  for (int64_t i = 0; i < 3000; ++i) w->set_float(i, 0.5);
  p->constants = {{"w", DType::F32, {3000}, w}};
  p->slots = {{bytes}};
  p->values = {{Place::Input, 0, DType::F32, bytes, "x"},
               {Place::Constant, 0, DType::F32, weight_bytes, "w"},
               {Place::Arena, 0, DType::F32, bytes, "t"},
               {Place::Output, 0, DType::F32, bytes, "y"},
               {Place::Output, 1, DType::F32, bytes, "same"}};
  KernelInfo add;
  add.name = "add";
  add.summary = "Add";
  p->kernels = {add};
  const auto launch = [&](std::vector<int32_t> args) {
    Instruction i;
    i.kernel = 0;
    i.args = std::move(args);
    i.dims = {count};
    i.grid = {tasks, one, one};
    i.bytes = bytes;
    i.flops = count;
    return i;
  };
  Instruction copy;
  copy.kind = Instruction::Kind::Copy;
  copy.args = {0, 4};
  p->instructions = {launch({0, 1, 2}), launch({2, 0, 3}), copy};
  p->requirements = {{not_13, "N must not be 13"}};
  return p;
}

std::unique_ptr<Session> sample_session(int threads = 2) {
  auto engine = Engine::create(sample_program(), std::make_shared<CpuDevice>(load_by_name, threads));
  REQUIRE(engine.ok());
  return Session::create(engine.value()).value();
}

Tensor ramp(Dims dims) {
  Tensor t(DType::F32, std::move(dims));
  for (int64_t i = 0; i < t.count(); ++i) t.set_float(i, static_cast<double>(i));
  return t;
}

std::string error_of(Session& s, const std::vector<Tensor>& inputs) {
  auto r = s.run(inputs);
  return r.ok() ? "no error" : r.error().to_string();
}

bool contains(const std::string& text, const std::string& part) {
  INFO(text);
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("shape programs evaluate, and find overflow", "[runtime]") {
  Lines l;
  const ShapeRef n = l.symbol(0), minus = l.constant(-7), two = l.constant(2), zero = l.constant(0);
  const ShapeRef fd = l.op(ShapeOp::FloorDiv, minus, two), fm = l.op(ShapeOp::FloorMod, minus, two);
  const ShapeRef dz = l.op(ShapeOp::Div, n, zero), sel = l.op(ShapeOp::Select, zero, n, two);
  const ShapeRef td = l.op(ShapeOp::Div, minus, two);
  std::vector<int64_t> values;
  const std::vector<int64_t> symbols = {5};
  REQUIRE(l.program.evaluate(symbols, values).ok());
  CHECK(values[fd] == -4);
  CHECK(values[fm] == 1);
  CHECK(values[td] == -3);
  CHECK(values[dz] == 0);
  CHECK(values[sel] == 2);
  l.op(ShapeOp::Mul, l.constant(INT64_MAX), n);
  const Status s = l.program.evaluate(symbols, values);
  REQUIRE(!s.ok());
  CHECK(contains(s.error().message, "overflow"));
  CHECK(l.program.verify(1).ok());
  CHECK(!l.program.verify(0).ok());
  l.program.lines[3] = {ShapeOp::Add, 3, 0, 0, 0};
  CHECK(!l.program.verify(1).ok());
}

TEST_CASE("shape programs compute with floats, by the bits of doubles", "[runtime]") {
  Lines l;
  const ShapeRef n = l.symbol(0), scale = l.push({ShapeOp::SingleBits, l.symbol(1)});
  const ShapeRef exact = l.op(ShapeOp::FloatMul, l.push({ShapeOp::ToFloat, n}), scale);
  const ShapeRef whole = l.push({ShapeOp::ToInteger, l.push({ShapeOp::Floor, exact})});
  const ShapeRef rounded = l.push({ShapeOp::ToInteger, l.push({ShapeOp::ToSingle, exact})});
  const ShapeRef positive = l.op(ShapeOp::FloatLt, l.push({ShapeOp::ToFloat, l.constant(0)}), scale);
  const ShapeRef even = l.push({ShapeOp::ToInteger, l.push({ShapeOp::Round, exact})});
  const ShapeRef up = l.push({ShapeOp::ToInteger, l.push({ShapeOp::Ceil, l.op(ShapeOp::FloatMax, exact, scale)})});
  REQUIRE(l.program.verify(2).ok());
  std::vector<int64_t> v;
  const auto run = [&](int64_t count, float factor) {
    REQUIRE(l.program.evaluate(std::vector<int64_t>{count, std::bit_cast<int32_t>(factor)}, v).ok());
  };
  run(5, 2.8f);  // just below 14 as a double, 14 as a float
  CHECK(v[whole] == 13);
  CHECK(v[rounded] == 14);
  CHECK(v[positive] == 1);
  run(5, 0.5f);
  CHECK(v[even] == 2);
  CHECK(v[up] == 3);
  run(3, -1.5f);
  CHECK(v[positive] == 0);
  CHECK(v[whole] == -5);
  CHECK(v[up] == -1);
  run(1, NAN);
  CHECK(v[whole] == 0);
  run(INT64_MAX, 1e30f);
  CHECK(v[whole] == INT64_MAX);
  l.program.lines.push_back({static_cast<ShapeOp>(static_cast<int>(ShapeOp::Abs) + 1)});
  CHECK_FALSE(l.program.verify(2).ok());
}
TEST_CASE("a program with a number out of range is refused", "[runtime]") {
  CHECK(sample_program()->verify().ok());
  const auto broken = [](const std::function<void(Program&)>& edit) {
    auto p = sample_program();
    edit(*p);
    return !p->verify().ok();
  };
  CHECK(broken([](Program& p) { p.values[0].index = 1; }));
  CHECK(broken([](Program& p) { p.instructions[0].args[0] = 99; }));
  CHECK(broken([](Program& p) { p.instructions[0].kernel = -1; }));
  CHECK(broken([](Program& p) { p.instructions[2].args.pop_back(); }));
  CHECK(broken([](Program& p) { p.slots[0].bytes = 1000; }));
  CHECK(broken([](Program& p) { p.inputs[0].symbols[0] = 5; }));
  CHECK(broken([](Program& p) { p.kernels.push_back(p.kernels[0]); }));
  CHECK(broken([](Program& p) { p.requirements[0].condition = -1; }));
  CHECK(broken([](Program& p) { p.constants[0].dims = {4000}; }));
  CHECK(broken([](Program& p) { p.values[1].part_of = 1; }));  // of itself
  CHECK(broken([](Program& p) { p.values[1].part_of = 0; }));  // of a value that lies elsewhere
}

TEST_CASE("a session runs any shape and leaves its inputs alone", "[runtime]") {
  auto session = sample_session();
  for (int64_t n : {2, 0, 1000, 2, 7}) {
    const Tensor x = ramp({n, 3});
    auto out = session->run({x});
    REQUIRE(out.ok());
    REQUIRE(out.value().size() == 2);
    CHECK(out.value()[0].dims() == Dims{n, 3});
    CHECK(out.value()[1].data() != x.data());
    int64_t wrong = 0;
    for (int64_t i = 0; i < n * 3; ++i) {
      wrong += out.value()[0].float_at(i) != 2.0 * static_cast<double>(i) + 0.5;
      wrong += out.value()[1].float_at(i) != static_cast<double>(i) || x.float_at(i) != static_cast<double>(i);
    }
    CHECK(wrong == 0);
  }
  CHECK(session->output_dims({{4, 3}}).value()[0] == Dims{4, 3});
}

TEST_CASE("wrong inputs are named", "[runtime]") {
  auto session = sample_session();
  CHECK(contains(error_of(*session, {}), "0 inputs given, the model has 1"));
  CHECK(contains(error_of(*session, {Tensor(DType::F64, {2, 3})}), "type f64"));
  CHECK(contains(error_of(*session, {ramp({6})}), "rank 1"));
  CHECK(contains(error_of(*session, {ramp({2, 4})}), "dimension 1 must be 3"));
  CHECK(contains(error_of(*session, {ramp({1001, 3})}), "1001; the model was built for 0 to 1000"));
  CHECK(contains(error_of(*session, {ramp({13, 3})}), "N must not be 13"));
  CHECK(error_of(*session, {ramp({2, 3})}) == "no error");
}

TEST_CASE("memory that cannot be had is explained", "[runtime]") {
  auto p = sample_program();
  p->shapes.lines.push_back({ShapeOp::Constant, 0, 0, 0, int64_t{1} << 60});
  p->slots[0].bytes = static_cast<ShapeRef>(p->shapes.lines.size()) - 1;
  auto engine = Engine::create(p, std::make_shared<CpuDevice>(load_by_name, 1));
  auto session = Session::create(engine.value()).value();
  const std::string text = error_of(*session, {ramp({2, 3})});
  CHECK(contains(text, "out of memory"));
  CHECK(contains(text, "intermediate values at N=2"));
}

TEST_CASE("a kernel that cannot be loaded is named", "[runtime]") {
  auto p = sample_program();
  p->kernels[0].name = "other";
  auto engine = Engine::create(p, std::make_shared<CpuDevice>(load_by_name, 1));
  REQUIRE(!engine.ok());
  CHECK(contains(engine.error().to_string(), "while loading kernel other"));
}

TEST_CASE("enqueue works on the caller's memory", "[runtime]") {
  auto session = sample_session();
  Tensor x = ramp({5, 3}), y(DType::F32, {5, 3}), same(DType::F32, {5, 3});
  const DeviceTensor in{x.mutable_data(), {5, 3}};
  void* outs[] = {y.mutable_data(), same.mutable_data()};
  REQUIRE(session->enqueue({&in, 1}, outs, nullptr).ok());
  REQUIRE(session->synchronize().ok());
  CHECK(y.float_at(14) == 28.5);
  CHECK(!session->enqueue({&in, 1}, std::span<void* const>(outs, 1), nullptr).ok());
}

TEST_CASE("a profile lists every launch", "[runtime]") {
  auto session = sample_session();
  auto profile = session->profile({ramp({10, 3})});
  REQUIRE(profile.ok());
  REQUIRE(profile.value().kernels.size() == 3);
  CHECK(profile.value().kernels[0].name == "add");
  CHECK(profile.value().kernels[0].flops == 30);
  CHECK(profile.value().kernels[2].name == "copy");
}

TEST_CASE("sessions of one engine run in threads", "[runtime]") {
  auto engine = Engine::create(sample_program(), std::make_shared<CpuDevice>(load_by_name, 3)).value();
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      auto session = Session::create(engine).value();
      for (int i = 0; i < 200; ++i) {
        const int64_t n = 14 + (i * 7 + t) % 50;
        auto out = session->run({ramp({n, 3})});
        if (!out || out.value()[0].float_at(n * 3 - 1) != 2.0 * static_cast<double>(n * 3 - 1) + 0.5) ++wrong;
      }
    });
  for (std::thread& t : threads) t.join();
  CHECK(wrong == 0);
}

TEST_CASE("the thread pool runs every task once", "[runtime]") {
  ThreadPool pool(4);
  CHECK(pool.threads() == 4);
  for (int64_t tasks : {0, 1, 2, 5, 1000}) {
    std::vector<std::atomic<int>> counts(static_cast<size_t>(tasks));
    for (int round = 0; round < 50; ++round)
      pool.run(
          tasks,
          [](void* c, int64_t first, int64_t last) {
            for (int64_t i = first; i < last; ++i)
              ++(*static_cast<std::vector<std::atomic<int>>*>(c))[static_cast<size_t>(i)];
          },
          &counts);
    CHECK(std::all_of(counts.begin(), counts.end(), [](const std::atomic<int>& n) { return n == 50; }));
  }
}

TEST_CASE("the best CUDA binary is picked", "[runtime]") {
  KernelInfo k;
  k.name = "k";
  for (const char* t : {"sm_80", "sm_90a", "ptx_75", "ptx_80"}) k.binaries.push_back({t, {}});
  CHECK(pick_cuda_binary(k, 90).value()->target == "sm_90a");
  CHECK(pick_cuda_binary(k, 86).value()->target == "sm_80");
  CHECK(pick_cuda_binary(k, 120).value()->target == "ptx_80");
  CHECK(pick_cuda_binary(k, 75).value()->target == "ptx_75");
  const auto none = pick_cuda_binary(k, 70);
  REQUIRE(!none.ok());
  CHECK(contains(none.error().message, "sm_80, sm_90a, ptx_75, ptx_80"));
}
