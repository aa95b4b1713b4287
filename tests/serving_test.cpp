// What a service leans on: pipelines, replica pools, batchers, sessions in many threads, recordings, limits, cancelled and
// failed runs, and the C API. Kernels are functions; devices are the CPU device and one whose streams are queues.
#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

#include "catch2/catch.hpp"
#include "runtime/batcher.h"
#include "runtime/c_api.h"
#include "runtime/cpu/cpu_device.h"
#include "runtime/host_copy.h"
#include "runtime/pipeline.h"
#include "tests/lazy_device.h"
#include "tests/program_builder.h"

using namespace ingot;
using namespace ingot::runtime;
using ingot::testing::Lines;

namespace {

std::atomic<int> kernel_delay_ms{0};

/// out[i] = a[i] + b[i], a task for each 4 elements; dims[0] is the count.
void add_kernel(void* const* buffers, const int64_t* dims, int64_t first, int64_t last, void*) {
  if (kernel_delay_ms > 0) std::this_thread::sleep_for(std::chrono::milliseconds(kernel_delay_ms));
  const auto *a = static_cast<const float*>(buffers[0]), *b = static_cast<const float*>(buffers[1]);
  auto* out = static_cast<float*>(buffers[2]);
  for (int64_t i = first * 4; i < std::min(last * 4, dims[0]); ++i) out[i] = a[i] + b[i];
}

Result<CpuCode> load_by_name(const KernelInfo&) { return CpuCode{add_kernel, nullptr}; }

std::shared_ptr<Device> cpu(int threads = 1) { return std::make_shared<CpuDevice>(load_by_name, threads); }
std::shared_ptr<testing::LazyDevice> lazy(unsigned seed = 1) {
  const auto add = [](const std::vector<void*>& b, const std::vector<int64_t>& d) {
    add_kernel(b.data(), d.data(), 0, (d[0] + 3) / 4, nullptr);
  };
  return std::make_shared<testing::LazyDevice>(std::map<std::string, testing::LazyKernel>{{"Add", add}}, seed);
}
std::shared_ptr<const Engine> engine_on(std::shared_ptr<Device> device, int steps = 2) {
  return Engine::create(testing::sums_program(steps), std::move(device)).value();
}

/// x[N,3] = seed, seed + 1, …
Tensor rows(int64_t n, double seed) {
  Tensor t(DType::F32, {n, 3});
  for (int64_t i = 0; i < t.count(); ++i) t.set_float(i, seed + static_cast<double>(i));
  return t;
}
/// The sums program adds x once for each step: y = (steps + 1) x.
bool right(const Result<std::vector<Tensor>>& out, const Tensor& x, int steps = 2) {
  if (!out || out.value()[0].dims() != x.dims()) return false;
  for (int64_t i = 0; i < x.count(); ++i)
    if (out.value()[0].float_at(i) != (steps + 1) * x.float_at(i)) return false;
  return true;
}
std::string message(const Status& s) { return s ? "" : s.error().to_string(); }
template <class T>
std::string message(const Result<T>& r) {
  return r ? "" : r.error().to_string();
}
bool contains(const std::string& text, const std::string& part) {
  INFO(text);
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("kernels that divide sums find their counters at zero, whatever ran before", "[divided]") {
  constexpr int64_t kSteps = 3;
  auto program = testing::sums_program(kSteps);
  for (Instruction& in : program->instructions) in.part_bytes = program->values[0].bytes;
  REQUIRE(program->verify());
  int wrong = 0, launches = 0;
  const auto add = [&](const std::vector<void*>& b, const std::vector<int64_t>& d) {
    add_kernel(b.data(), d.data(), 0, (d[0] + 3) / 4, nullptr);
    ++launches;
    if (b.size() != 5) return void(++wrong);
    const auto* counters = static_cast<const int32_t*>(b[3]);
    for (int64_t i = 0; i < kCounters; ++i) wrong += counters[i] != 0;
    // Parts lie in memory of their own.
    const auto bytes = static_cast<size_t>(d[0]) * 4;
    for (int i = 0; i < 4; ++i) wrong += b[static_cast<size_t>(i)] == b[4];
    std::memset(b[4], 0x7f, bytes);
  };
  auto device = std::make_shared<testing::LazyDevice>(std::map<std::string, testing::LazyKernel>{{"Add", add}});
  auto session = Session::create(Engine::create(program, device).value()).value();
  for (const int64_t n : {5, 700, 2, 900, 5}) {
    const Tensor x = rows(n, 1);
    CHECK(right(session->run({x}), x, kSteps));
  }
  REQUIRE(session->trim());
  CHECK(right(session->run({rows(7, 2)}), rows(7, 2), kSteps));
  CHECK(wrong == 0);
  CHECK(launches == 6 * kSteps);
}

TEST_CASE("a pipeline gives every request its own outputs", "[serving]") {
  for (unsigned seed = 1; seed <= 20; ++seed) {
    auto device = lazy(seed);
    {
      auto pipeline = Pipeline::create(engine_on(device), 3).value();
      std::vector<Tensor> sent;
      for (int i = 0; i < 12; ++i) {
        if (i >= 3) CHECK(right(pipeline->fetch(static_cast<uint64_t>(i) - 3), sent[static_cast<size_t>(i) - 3]));
        sent.push_back(rows(1 + i % 4, i * 10.0));
        REQUIRE(pipeline->submit({sent.back()}).value() == static_cast<uint64_t>(i));
      }
      CHECK(contains(message(pipeline->submit({sent[0]})), "must be fetched"));
      CHECK(contains(message(pipeline->fetch(3)), "not in flight"));
      for (uint64_t i = 9; i < 12; ++i) CHECK(right(pipeline->fetch(i), sent[i]));
      CHECK(!pipeline->submit({}).ok());
    }
    CHECK(device->live_allocations == 0);
  }
  auto on_host = Pipeline::create(engine_on(cpu()), 2).value();
  const Tensor x = rows(5, 1);
  CHECK(right(on_host->fetch(on_host->submit({x}).value()), x));
}

TEST_CASE("large copies are whole, by whatever thread, and leave what is around them", "[serving]") {
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (unsigned t = 0; t < 4; ++t) {
    threads.emplace_back([&wrong, t] {
      for (size_t bytes : {size_t{0}, size_t{1}, size_t{1} << 20, (size_t{5} << 20) + 37 + t}) {
        std::vector<unsigned char> from(bytes + 2), to(bytes + 2, 7);
        for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<unsigned char>(i * 131 + i / 251 + t);
        copy_bytes(to.data() + 1, from.data() + 1, bytes);
        wrong += to.front() != 7 || to.back() != 7 || !std::equal(from.begin() + 1, from.end() - 1, to.begin() + 1);
      }
    });
  }
  for (std::thread& t : threads) t.join();
  CHECK(wrong == 0);
}

TEST_CASE("a pool spreads requests over two devices", "[serving]") {
  auto pool = ReplicaPool::create({engine_on(cpu()), engine_on(cpu())}, 2).value();
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 6; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) {
        const Tensor x = rows(1 + (i + t) % 7, t);
        if (!right(pool->run({x}), x)) ++wrong;
      }
    });
  for (std::thread& t : threads) t.join();
  CHECK(wrong == 0);
  const auto served = pool->served();
  REQUIRE(served.size() == 2);
  CHECK(served[0] + served[1] == 300);
  CHECK(served[0] > 50);
  CHECK(served[1] > 50);
  CHECK(pool->trim().ok());
  auto other = testing::sums_program(2);
  other->inputs[0].name = "another";
  auto engine = Engine::create(other, cpu()).value();
  CHECK(contains(message(ReplicaPool::create({engine_on(cpu()), engine}, 1)), "of one model"));
}

TEST_CASE("a batcher gathers rows and gives each caller its own", "[serving]") {
  auto pool = ReplicaPool::create({engine_on(cpu())}, 1).value();
  auto batcher = Batcher::create(pool, {8, 20.0, 1024}).value();
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 20; ++i) {
        const Tensor x = rows(1 + (i + t) % 3, 100.0 * t + i);
        if (!right(batcher->submit({x}).get(), x)) ++wrong;
      }
    });
  for (std::thread& t : threads) t.join();
  CHECK(wrong == 0);
  const BatcherCounters c = batcher->counters();
  CHECK(c.requests == 160);
  CHECK(c.batches < 120);
  CHECK(!batcher->submit({rows(9, 0)}).get().ok());
  CHECK(!batcher->submit({Tensor(DType::F64, {1, 3})}).get().ok());
  CHECK(!batcher->submit({}).get().ok());
  const Tensor lone = rows(1, 5);
  const auto start = std::chrono::steady_clock::now();
  CHECK(right(batcher->submit({lone}).get(), lone));
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(2));  // not forever
}

TEST_CASE("a batcher refuses what it cannot hold, and a failing batch reaches every caller", "[serving]") {
  auto pool = ReplicaPool::create({engine_on(cpu())}, 1).value();
  {
    auto batcher = Batcher::create(pool, {4, 50.0, 3}).value();
    std::vector<std::future<Result<std::vector<Tensor>>>> futures;
    kernel_delay_ms = 20;
    int refused = 0;
    for (int i = 0; i < 12; ++i) futures.push_back(batcher->submit({rows(4, i)}));
    for (auto& f : futures) refused += !f.get().ok();
    kernel_delay_ms = 0;
    CHECK(refused > 0);
    CHECK(batcher->counters().refused == static_cast<uint64_t>(refused));
  }
  auto bad = Batcher::create(pool, {64, 30.0, 100}).value();
  auto a = bad->submit({rows(7, 0)}), b = bad->submit({rows(6, 0)});  // 13 rows: the program refuses them
  CHECK(contains(message(a.get()), "N must not be 13"));
  CHECK(contains(message(b.get()), "N must not be 13"));
  auto fixed = testing::sums_program(1);
  fixed->inputs[0].symbols = {-1, -1};
  fixed->symbols[0].high = fixed->symbols[0].low = 3;
  CHECK(contains(message(batch_symbol(*fixed)), "no batch"));
}

TEST_CASE("the best batch is measured", "[serving]") {
  const auto speeds = measure_batches(engine_on(cpu()), 0.005, 64);
  REQUIRE(speeds.ok());
  REQUIRE(speeds.value().size() >= 3);
  CHECK(speeds.value()[1].batch == 2);
  CHECK(best_batch({{1, 1, 1000}, {2, 1, 2000}, {4, 1, 3950}, {8, 1, 4000}}).batch == 4);
}

TEST_CASE("sixteen threads with shapes of their own share an engine", "[serving]") {
  auto engine = engine_on(cpu(2));
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 16; ++t)
    threads.emplace_back([&, t] {
      auto session = Session::create(engine).value();
      for (int i = 0; i < 40; ++i) {
        const Tensor x = rows(20 + (i * 5 + t * 3) % 90, t);
        if (!right(session->run({x}), x)) ++wrong;
      }
    });
  for (std::thread& t : threads) t.join();
  CHECK(wrong == 0);
}

TEST_CASE("sessions leave no memory behind, whether runs succeed or fail", "[serving]") {
  auto device = lazy();
  for (int i = 0; i < 2000; ++i) {
    auto engine = engine_on(device);
    auto session = Session::create(engine).value();
    device->launches = 0;
    device->failing_launch = i % 5 == 1 ? 1 : -1;
    device->faulting_launch = i % 5 == 2 ? 0 : -1;
    const Tensor x = rows(1 + i % 9, i);
    const auto out = session->run({x});
    CHECK((i % 5 == 1 || i % 5 == 2 ? !out.ok() : right(out, x)));
  }
  CHECK(device->live_allocations == 0);
}

TEST_CASE("a failing kernel is named with its nodes, and the session goes on", "[serving]") {
  auto device = lazy();
  SessionOptions options;
  options.synchronous = true;
  auto session = Session::create(engine_on(device), options).value();
  device->faulting_launch = 1;
  const Tensor x = rows(3, 1);
  const std::string text = message(session->run({x}));
  CHECK(contains(text, "kernel add1 (Add)"));
  CHECK(contains(text, "'node 1'"));
  CHECK(right(session->run({x}), x));
}

TEST_CASE("a run can be cancelled", "[serving]") {
  auto session = Session::create(engine_on(cpu(), 200)).value();
  kernel_delay_ms = 5;
  std::thread stopper([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(60));
    session->cancel();
  });
  const Tensor x = rows(2, 1);
  const auto start = std::chrono::steady_clock::now();
  CHECK(contains(message(session->run({x})), "cancelled"));
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::milliseconds(800));
  stopper.join();
  kernel_delay_ms = 0;
  CHECK(right(session->run({x}), x, 200));
}

TEST_CASE("cancelled runs leave no memory behind, and the next run is right", "[serving]") {
  auto device = lazy();
  {
    auto session = Session::create(engine_on(device, 6)).value();
    const Tensor x = rows(9, 1);
    REQUIRE(right(session->run({x}), x, 6));
    const int held = device->live_allocations, streams = device->streams;
    for (int i = 0; i < 500; ++i) {
      const int at = i % 5;
      device->launches = 0;
      device->on_launch = [&](int number) {
        if (number == at) session->cancel();
      };
      CHECK(contains(message(session->run({x})), "cancelled"));
      CHECK(device->launches == at + 1);  // it stops before the next launch
      device->on_launch = nullptr;
      CHECK(right(session->run({x}), x, 6));
    }
    CHECK(device->live_allocations == held);
    CHECK(device->streams == streams);
  }
  CHECK(device->live_allocations == 0);
}

TEST_CASE("shapes that grow step by step cost few allocations, and little more than the largest needs", "[serving]") {
  auto session = Session::create(engine_on(lazy())).value();
  uint64_t first = 0;
  for (int64_t n = 20; n <= 1000; ++n) {
    const Tensor x = rows(n, 1);
    REQUIRE(right(session->run({x}), x));
    if (n == 20) first = session->counters().arena_bytes;
  }
  const SessionCounters c = session->counters();
  CHECK(first <= 512);  // one slot of 240 bytes beside another: what the shape needs, aligned
  CHECK(c.arena_growths <= 20);
  CHECK(c.arena_bytes < 2 * 12000 * 5 / 4 + 1024);
  SessionOptions tight;
  tight.max_arena_bytes = 24'576;
  auto limited = Session::create(engine_on(lazy()), tight).value();
  for (int64_t n : {900, 990, 1000}) CHECK(right(limited->run({rows(n, 2)}), rows(n, 2)));
  CHECK(limited->counters().arena_bytes <= tight.max_arena_bytes);
}

TEST_CASE("plans and the arena stay bounded, and trim gives memory back", "[serving]") {
  auto device = lazy();
  SessionOptions options;
  options.max_plans = 4;
  options.max_arena_bytes = 8 << 10;
  auto session = Session::create(engine_on(device), options).value();
  for (int i = 0; i < 60; ++i) {
    const Tensor x = rows(20 + i % 12, 0);
    CHECK(right(session->run({x}), x));
  }
  SessionCounters c = session->counters();
  CHECK(c.runs == 60);
  CHECK(c.plans_made == 60);  // twelve shapes in turn are too many for four plans
  CHECK(c.plans_dropped == 56);
  CHECK(c.arena_growths <= 12);
  CHECK(c.last_plan_us > 0);
  CHECK(contains(message(session->run({rows(900, 0)})), "this session may use"));
  const int before = device->live_allocations;
  REQUIRE(session->trim().ok());
  c = session->counters();
  CHECK(device->live_allocations < before);
  CHECK(c.arena_bytes == 0);
  CHECK(c.staging_bytes == 0);
  const Tensor x = rows(30, 1);
  CHECK(right(session->run({x}), x));
}

TEST_CASE("the C API reports errors and gives results", "[serving][c]") {
  ingot_device* device = nullptr;
  CHECK(ingot_device_open("tpu", &device) == INGOT_INVALID);
  CHECK(contains(ingot_last_error(), "'tpu' is not a device"));
  CHECK(ingot_device_open("cpu:x", &device) == INGOT_INVALID);
  CHECK(ingot_device_open("cpu:2", &device) == INGOT_OK);
  CHECK(std::string(ingot_last_error()).empty());
  CHECK(contains(ingot_device_name(device), "2 threads"));
  ingot_engine* none = nullptr;
  CHECK(ingot_engine_load("/no/such/file", device, nullptr, &none) == INGOT_NOT_FOUND);
  CHECK(ingot_engine_load(nullptr, device, nullptr, &none) == INGOT_INVALID);
  ingot_device_free(device);

  ingot_engine engine{engine_on(cpu())};
  ingot_binding binding = INGOT_INIT(ingot_binding);
  REQUIRE(ingot_engine_input(&engine, 0, &binding) == INGOT_OK);
  CHECK(std::string(binding.name) == "x");
  CHECK(binding.dims[0] == -1);
  CHECK(binding.high[0] == 1000);
  CHECK(binding.dims[1] == 3);
  CHECK(ingot_engine_input(&engine, 1, &binding) == INGOT_INVALID);
  // A caller compiled against an older, shorter structure gets no more than it has room for.
  struct {
    ingot_binding b;
    char guard;
  } old{{}, 'g'};
  old.b.size = offsetof(ingot_binding, rank);
  old.b.rank = -7;
  REQUIRE(ingot_engine_input(&engine, 0, &old.b) == INGOT_OK);
  CHECK(old.b.rank == -7);

  ingot_session* session = nullptr;
  REQUIRE(ingot_session_create(&engine, nullptr, &session) == INGOT_OK);
  const Tensor x = rows(4, 1);
  ingot_tensor in{}, out{};
  in.data = const_cast<void*>(x.data());
  in.bytes = x.bytes();
  in.type = INGOT_F32;
  in.rank = 2;
  in.dims[0] = 4, in.dims[1] = 3;
  for (int i = 0; i < 3; ++i) {  // lent memory may be handed in again
    REQUIRE(ingot_session_run(session, &in, 1, &out, 1) == INGOT_OK);
    CHECK(static_cast<const float*>(out.data)[11] == 36);
    CHECK(out.dims[0] == 4);
    CHECK(out.bytes == 48);
  }
  float small[3];
  ingot_tensor given{};
  given.data = small;
  given.bytes = sizeof small;
  CHECK(ingot_session_run(session, &in, 1, &given, 1) == INGOT_INVALID);
  CHECK(contains(ingot_last_error(), "needs 48 bytes, 12 given"));
  in.bytes = 40;
  CHECK(ingot_session_run(session, &in, 1, &out, 1) == INGOT_INVALID);
  in.bytes = x.bytes();
  in.rank = 99;
  CHECK(ingot_session_run(session, &in, 1, &out, 1) == INGOT_INVALID);
  in.rank = 2;
  in.type = 1234;
  CHECK(ingot_session_run(session, &in, 1, &out, 1) == INGOT_INVALID);
  ingot_counters counters = INGOT_INIT(ingot_counters);
  REQUIRE(ingot_session_counters(session, &counters) == INGOT_OK);
  CHECK(counters.runs == 4);
  CHECK(ingot_session_run(nullptr, &in, 1, &out, 1) == INGOT_INVALID);
  ingot_session_free(session);
  ingot_session_free(nullptr);
}
