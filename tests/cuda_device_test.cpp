// The CUDA device over a driver table of our own: memory is the host's, a launch runs a C++ function. Covers staging of
// large copies, launches, recordings and errors without a GPU. Links the runtime only.
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <utility>

#include "catch2/catch.hpp"
#include "runtime/cuda/cuda_device.h"
#include "runtime/executor.h"

using namespace ingot;
using namespace ingot::runtime;
using cuda::DriverStatus;

namespace {

struct Counts {
  int launches = 0, copies_in = 0, replays = 0, live = 0, streams = 0;
  std::map<cuda::Stream, int> work;  // calls on each stream; null is the default one
};
Counts counts;
/// Notes a call that puts work on a stream.
void put_on(cuda::Stream stream) { ++counts.work[stream]; }
thread_local cuda::Context current = nullptr;
bool can_record = true, out_of_memory = false;
std::vector<std::function<void()>>* capture = nullptr;

void run_or_capture(const std::function<void()>& work) {
  if (capture) capture->push_back(work);
  else work();
}

/// out[i] = a[i] + b[i] for i < n, whatever the grid.
DriverStatus launch(cuda::Function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, cuda::Stream stream,
                    void** parameters, void**) {
  put_on(stream);
  const auto pointer = [&](int i) { return *static_cast<float**>(parameters[i]); };
  float *a = pointer(0), *b = pointer(1), *out = pointer(2);
  const int64_t n = *static_cast<int64_t*>(parameters[3]);
  run_or_capture([=] {
    ++counts.launches;
    for (int64_t i = 0; i < n; ++i) out[i] = a[i] + b[i];
  });
  return cuda::kSuccess;
}

cuda::DriverApi fake_driver() {
  cuda::DriverApi d;
  d.get_error_name = [](DriverStatus, const char** t) { return *t = "CUDA_ERROR_FAKE", cuda::kSuccess; };
  d.get_error_string = [](DriverStatus, const char** t) { return *t = "made up", cuda::kSuccess; };
  d.driver_get_version = [](int* v) { return *v = 13000, cuda::kSuccess; };
  d.device_get_count = [](int* n) { return *n = 1, cuda::kSuccess; };
  d.device_get = [](cuda::DeviceOrdinal* device, int i) { return *device = i, cuda::kSuccess; };
  d.device_get_name = [](char* name, int, cuda::DeviceOrdinal) {
    return std::strcpy(name, "Fake GPU"), cuda::kSuccess;
  };
  d.device_get_attribute = [](int* v, cuda::DeviceAttribute a, cuda::DeviceOrdinal) {
    return *v = a == cuda::DeviceAttribute::ComputeCapabilityMajor ? 9 : 0, cuda::kSuccess;
  };
  d.device_total_mem = [](size_t* n, cuda::DeviceOrdinal) { return *n = 1 << 30, cuda::kSuccess; };
  d.primary_ctx_retain = [](cuda::Context* context, cuda::DeviceOrdinal) {
    return *context = reinterpret_cast<cuda::Context>(&counts), cuda::kSuccess;
  };
  d.primary_ctx_release = [](cuda::DeviceOrdinal) { return cuda::kSuccess; };
  d.ctx_set_current = [](cuda::Context context) { return current = context, cuda::kSuccess; };
  d.ctx_get_current = [](cuda::Context* context) { return *context = current, cuda::kSuccess; };
  d.module_load_data = [](cuda::Module*, const void* image) {
    return std::memcmp(image, "good", 5) == 0 ? cuda::kSuccess : cuda::kErrorInvalidImage;
  };
  d.module_unload = [](cuda::Module) { return cuda::kSuccess; };
  d.module_get_function = [](cuda::Function*, cuda::Module, const char* name) {
    return std::strcmp(name, "add") == 0 ? cuda::kSuccess : cuda::kErrorNotFound;
  };
  d.mem_alloc = [](cuda::DevicePtr* p, size_t n) {
    if (out_of_memory) return cuda::kErrorOutOfMemory;
    ++counts.live;
    return *p = reinterpret_cast<cuda::DevicePtr>(std::malloc(n)), cuda::kSuccess;
  };
  d.mem_free = [](cuda::DevicePtr p) { return --counts.live, std::free(reinterpret_cast<void*>(p)), cuda::kSuccess; };
  d.mem_host_alloc = [](void** p, size_t n, unsigned) { return *p = std::malloc(n), cuda::kSuccess; };
  d.mem_free_host = [](void* p) { return std::free(p), cuda::kSuccess; };
  d.mem_get_info = [](size_t* free, size_t* total) { return *free = 1 << 20, *total = 1 << 30, cuda::kSuccess; };
  d.memcpy_htod_async = [](cuda::DevicePtr to, const void* from, size_t n, cuda::Stream stream) {
    return put_on(stream), ++counts.copies_in, std::memcpy(reinterpret_cast<void*>(to), from, n), cuda::kSuccess;
  };
  d.memcpy_dtoh_async = [](void* to, cuda::DevicePtr from, size_t n, cuda::Stream stream) {
    return put_on(stream), std::memcpy(to, reinterpret_cast<void*>(from), n), cuda::kSuccess;
  };
  d.memcpy_dtod_async = [](cuda::DevicePtr to, cuda::DevicePtr from, size_t n, cuda::Stream stream) {
    put_on(stream);
    run_or_capture([=] { std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), n); });
    return cuda::kSuccess;
  };
  d.stream_create = [](cuda::Stream* stream, unsigned flags) {
    *stream = reinterpret_cast<cuda::Stream>(static_cast<uintptr_t>(++counts.streams));
    return flags == cuda::kStreamNonBlocking ? cuda::kSuccess : 1;
  };
  d.stream_destroy = [](cuda::Stream) { return cuda::kSuccess; };
  d.stream_synchronize = [](cuda::Stream) { return cuda::kSuccess; };
  d.stream_wait_event = [](cuda::Stream stream, cuda::Event, unsigned) { return put_on(stream), cuda::kSuccess; };
  d.event_create = [](cuda::Event*, unsigned) { return cuda::kSuccess; };
  d.event_destroy = [](cuda::Event) { return cuda::kSuccess; };
  d.event_record = [](cuda::Event, cuda::Stream stream) { return put_on(stream), cuda::kSuccess; };
  d.event_synchronize = [](cuda::Event) { return cuda::kSuccess; };
  d.event_elapsed_time = [](float* ms, cuda::Event, cuda::Event) { return *ms = 0.5f, cuda::kSuccess; };
  d.launch_kernel = launch;
  d.stream_begin_capture = [](cuda::Stream, int) {
    if (!can_record) return cuda::kErrorNotSupported;
    return capture = new std::vector<std::function<void()>>, cuda::kSuccess;
  };
  d.stream_end_capture = [](cuda::Stream, cuda::Graph* graph) {
    *graph = reinterpret_cast<cuda::Graph>(std::exchange(capture, nullptr));
    return cuda::kSuccess;
  };
  d.graph_instantiate = [](cuda::GraphExec* exec, cuda::Graph graph, uint64_t) {
    return *exec = reinterpret_cast<cuda::GraphExec>(graph), cuda::kSuccess;
  };
  d.graph_launch = [](cuda::GraphExec exec, cuda::Stream stream) {
    put_on(stream);
    ++counts.replays;
    for (const auto& work : *reinterpret_cast<std::vector<std::function<void()>>*>(exec)) work();
    return cuda::kSuccess;
  };
  d.graph_exec_destroy = [](cuda::GraphExec exec) {
    delete reinterpret_cast<std::vector<std::function<void()>>*>(exec);
    return cuda::kSuccess;
  };
  d.graph_destroy = [](cuda::Graph) { return cuda::kSuccess; };
  return d;
}

/// y = (x + x) + w for x f32[N] and w f32[3000000].
std::shared_ptr<Program> sample_program() {
  auto p = std::make_shared<Program>();
  p->target = "sm_90a";
  p->symbols = {{"N", 0, 3'000'000}};
  p->shapes.lines = {{ShapeOp::Symbol, 0, 0, 0, 0},
                     {ShapeOp::Constant, 0, 0, 0, 4},
                     {ShapeOp::Mul, 0, 1, 0, 0},
                     {ShapeOp::Constant, 0, 0, 0, 1},
                     {ShapeOp::Constant, 0, 0, 0, 12'000'000}};
  p->inputs = {{"x", DType::F32, {0}, {0}}};
  p->outputs = {{"y", DType::F32, {0}, {}}};
  auto w = std::make_shared<Tensor>(DType::F32, Dims{3'000'000});
  w->set_float(2'999'999, 0.25);
  p->constants = {{"w", DType::F32, {3'000'000}, w}};
  p->slots = {{2}};
  p->values = {{Place::Input, 0, DType::F32, 2, "x"},
               {Place::Arena, 0, DType::F32, 2, "t"},
               {Place::Constant, 0, DType::F32, 4, "w"},
               {Place::Output, 0, DType::F32, 2, "y"}};
  KernelInfo add;
  add.name = "add";
  add.binaries = {{"sm_90a", {'g', 'o', 'o', 'd'}}};
  p->kernels = {add};
  for (const std::vector<int32_t>& args : {std::vector<int32_t>{0, 0, 1}, {1, 2, 3}}) {
    Instruction i;
    i.kernel = 0;
    i.args = args;
    i.dims = {0};
    i.grid = {3, 3, 3};
    i.bytes = 2;
    i.flops = 0;
    p->instructions.push_back(i);
  }
  return p;
}

const cuda::DriverApi& driver() {
  static const cuda::DriverApi api = fake_driver();
  return api;
}

void check_runs(bool recording) {
  can_record = recording;
  counts = {};
  {
    auto device = open_cuda_device(driver(), 0);
    REQUIRE(device.ok());
    auto engine = Engine::create(sample_program(), device.value());
    REQUIRE(engine.ok());
    CHECK(counts.copies_in == 3);  // 12 MB of weights through 4 MB of pinned memory
    auto session = Session::create(engine.value()).value();
    for (int64_t n : {3, 3, 3, 3'000'000, 3, 3'000'000, 3'000'000}) {
      Tensor x(DType::F32, {n});
      for (int64_t i = 0; i < n; ++i) x.mutable_as<float>()[i] = static_cast<float>(i % 1000);
      auto out = session->run({x});
      REQUIRE(out.ok());
      CHECK(out.value()[0].float_at(n - 1) == 2.0 * static_cast<double>((n - 1) % 1000) + (n > 3 ? 0.25 : 0.0));
    }
    CHECK(counts.launches == 14);
    CHECK((counts.replays > 0) == recording);
    CHECK(session->profile({Tensor(DType::F32, {5})}).value().kernels.size() == 2);
  }
  CHECK(counts.live == 0);
  CHECK(counts.work.count(nullptr) == 0);  // never the default stream
}

}  // namespace

TEST_CASE("a program runs on the CUDA device, recorded or not", "[runtime]") {
  check_runs(false);
  check_runs(true);
}

TEST_CASE("work on the same addresses is replayed, other work is not, and graphs stay bounded", "[runtime]") {
  can_record = true;
  auto device = open_cuda_device(driver(), 0).value();
  SessionOptions options;
  options.max_recordings = 3;
  auto session = Session::create(Engine::create(sample_program(), device).value(), options).value();
  std::vector<DeviceMemory> memory;
  const auto reserve = [&] {
    void* p = device->allocate(64).value();
    memory.emplace_back(device, p, 64);
    return p;
  };
  const auto enqueue = [&](void* x, void* y, int64_t n) {
    for (int64_t i = 0; i < n; ++i) static_cast<float*>(x)[i] = static_cast<float>(i + 1);
    std::memset(y, 0, 64);
    const DeviceTensor in{x, {n}};
    REQUIRE(session->enqueue({&in, 1}, {&y, 1}, nullptr).ok());
    CHECK(static_cast<float*>(y)[n - 1] == 2 * static_cast<float>(n));
  };
  std::vector<std::pair<void*, void*>> pairs;
  for (int i = 0; i < 5; ++i) pairs.emplace_back(reserve(), reserve());
  for (int i = 0; i < 4; ++i) enqueue(pairs[0].first, pairs[0].second, 8);
  CHECK(session->counters().recordings_made == 1);
  CHECK(session->counters().replays == 3);
  enqueue(pairs[1].first, pairs[1].second, 8);  // other addresses
  enqueue(pairs[0].first, pairs[0].second, 4);  // another shape
  CHECK(session->counters().replays == 3);
  for (int round = 0; round < 3; ++round)  // five pairs by turns: too many for three graphs
    for (const auto& [x, y] : pairs) enqueue(x, y, 8);
  CHECK(session->counters().recordings_dropped >= 10);
  const DeviceTensor crooked{static_cast<char*>(pairs[0].first) + 4, {4}};
  CHECK(!session->enqueue({&crooked, 1}, {&pairs[0].second, 1}, nullptr).ok());
}

TEST_CASE("a caller's stream gets all of its work, and the default stream none", "[runtime]") {
  for (const bool recording : {false, true}) {
    can_record = recording;
    counts = {};
    auto device = open_cuda_device(driver(), 0).value();
    auto session = Session::create(Engine::create(sample_program(), device).value()).value();
    const auto native = reinterpret_cast<cuda::Stream>(&counts);
    const auto stream = device->borrow_stream(native).value();
    DeviceMemory x(device, device->allocate(64).value(), 64), y(device, device->allocate(64).value(), 64);
    const DeviceTensor in{x.data(), {4}};
    void* const out = y.data();
    counts.work.clear();
    for (int i = 0; i < 3; ++i) REQUIRE(session->enqueue({&in, 1}, {&out, 1}, stream.get()).ok());
    CHECK(counts.launches == 6);
    CHECK(counts.work.count(nullptr) == 0);
    CHECK(counts.work[native] == (recording ? 2 + 1 + 1 : 6));  // launches, then replays
    int elsewhere = 0;  // what is recorded is put on the session's own stream, and runs on the caller's
    for (const auto& [s, calls] : counts.work) elsewhere += s == native ? 0 : calls;
    CHECK(elsewhere == (recording ? 2 : 0));
  }
}

TEST_CASE("a context of the caller's stays current", "[runtime]") {
  const auto another = reinterpret_cast<cuda::Context>(&can_record);
  current = another;
  {
    auto device = open_cuda_device(driver(), 0).value();
    auto session = Session::create(Engine::create(sample_program(), device).value()).value();
    REQUIRE(session->run({Tensor(DType::F32, {5})}).ok());
    CHECK(current == another);
  }
  CHECK(current == another);
  current = nullptr;
}

TEST_CASE("GPUs are listed and described", "[runtime]") {
  auto list = list_cuda_devices(driver());
  REQUIRE(list.ok());
  REQUIRE(list.value().size() == 1);
  CHECK(list.value()[0].name == "Fake GPU");
  CHECK(list.value()[0].compute_capability == 90);
  const auto missing = open_cuda_device(driver(), 4);
  REQUIRE(!missing.ok());
  CHECK(missing.error().message == "no device cuda:4: the driver sees 1 GPU");
}

TEST_CASE("driver errors carry the call and the kernel", "[runtime]") {
  auto device = open_cuda_device(driver(), 0).value();
  auto p = sample_program();
  p->kernels[0].binaries[0].code = {'b', 'a', 'd'};
  const auto bad = Engine::create(p, device);
  REQUIRE(!bad.ok());
  CHECK(bad.error().to_string().find("module_load_data") != std::string::npos);
  CHECK(bad.error().to_string().find("kernel add") != std::string::npos);
  out_of_memory = true;
  const auto full = Engine::create(sample_program(), device);
  out_of_memory = false;
  REQUIRE(!full.ok());
  CHECK(full.error().kind == ErrorKind::OutOfMemory);
  CHECK(full.error().message.find("needed for the weights") != std::string::npos);
}
