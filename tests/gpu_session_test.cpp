// Sessions on a real GPU: the same numbers with and without lanes and recordings, inside a capture of the caller's, through a
// pipeline and in threads; memory that cannot be had; two thousand rounds of load, run and free without growth; two GPUs
// where there are two. Links the runtime only.
//   gpu_session_test FILE.ingot [ROUNDS]      (for the GPU and this CPU; gpu_session_test.sh compiles one)
#include <atomic>
#include <cstdio>
#include <thread>

#include "runtime/cpu/object_loader.h"
#include "runtime/cuda/cuda_device.h"
#include "runtime/engine_file.h"
#include "runtime/pipeline.h"
#include "runtime/replica_pool.h"
#include "tests/random_inputs.h"

using namespace ingot;
using namespace ingot::runtime;
using namespace ingot::testing;

namespace {

int failures = 0;
void check(bool ok, const char* what) {
  std::printf("  %s: %s\n", ok ? "ok" : "FAILED", what);
  failures += !ok;
}
template <class T>
T must(Result<T> r) {
  if (!r) {
    std::printf("%s\n", r.error().to_string().c_str());
    std::exit(1);
  }
  return std::move(r).value();
}
void must(const Status& s) {
  if (!s) {
    std::printf("%s\n", s.error().to_string().c_str());
    std::exit(1);
  }
}

struct Setup {
  std::string path;
  const cuda::DriverApi* api;
  std::shared_ptr<Device> gpu;
  std::shared_ptr<const Engine> on_gpu, on_cpu;
  std::shared_ptr<const Engine> load(std::shared_ptr<Device> device) const {
    const EngineFile file = must(load_engine(path, {true}));
    return must(Engine::create(must(program_for(file, *device)), device));
  }
};

using Outputs = std::vector<Tensor>;

void same_numbers(const Setup& s) {
  std::mt19937 rng(1);
  auto cpu = must(Session::create(s.on_cpu));
  double worst = 0;
  bool same = true;
  for (const Lanes lanes : {Lanes::Always, Lanes::WhereTheyHelp, Lanes::Never})
    for (bool recordings : {true, false}) {
      SessionOptions o;
      o.lanes = lanes, o.recordings = recordings;
      auto session = must(Session::create(s.on_gpu, o)),
           plain = must(Session::create(s.on_gpu, SessionOptions{Lanes::Never, false}));
      for (int i = 0; i < 12; ++i) {
        const auto inputs =
            i % 3 ? inputs_of_size(s.on_gpu->program(), {64}, rng) : random_inputs(s.on_gpu->program(), 40, rng);
        const Outputs got = must(session->run(inputs));
        same &= same_bytes(got, must(plain->run(inputs)));
        worst = std::max(worst, worst_difference(got, must(cpu->run(inputs))));
      }
      if (recordings) check(session->counters().replays > 0, "recordings are replayed");
    }
  check(same, "lanes and recordings change no bit");
  std::printf("    largest difference to the CPU %.2g\n", worst);
  check(worst < 2e-3, "the CPU's numbers");
}

void callers_capture(const Setup& s) {
  std::mt19937 rng(2);
  const auto inputs = inputs_of_size(s.on_gpu->program(), {64}, rng);
  auto session = must(Session::create(s.on_gpu));
  const Outputs want = must(session->run(inputs));
  Device& d = *s.gpu;
  std::vector<DeviceMemory> memory;
  std::vector<DeviceTensor> in;
  std::vector<void*> out;
  const auto reserve = [&](uint64_t bytes) {
    void* p = must(d.allocate(bytes));
    memory.emplace_back(s.gpu, p, bytes);
    return p;
  };
  const auto stream = must(d.create_stream());
  for (const Tensor& t : inputs) {
    in.push_back({reserve(t.bytes()), t.dims()});
    must(d.copy_to_device(in.back().data, t.data(), t.bytes(), stream.get()));
  }
  for (const Tensor& t : want) out.push_back(reserve(t.bytes()));
  must(d.synchronize(stream.get()));
  must(d.begin_recording(stream.get()));
  must(session->enqueue(in, out, stream.get()));
  const auto graph = must(d.end_recording(stream.get()));
  for (int i = 0; i < 5; ++i) must(d.replay(*graph, stream.get()));
  Outputs got;
  for (size_t o = 0; o < want.size(); ++o) {
    got.emplace_back(want[o].type(), want[o].dims());
    must(d.copy_to_host(got[o].mutable_data(), out[o], got[o].bytes(), stream.get()));
  }
  must(d.synchronize(stream.get()));
  check(same_bytes(got, want), "the caller's CUDA graph gives the same numbers");
}

void many_requests(const Setup& s) {
  std::mt19937 rng(3);
  auto plain = must(Session::create(s.on_gpu));
  std::vector<std::vector<Tensor>> inputs;
  std::vector<Outputs> want;
  for (int i = 0; i < 16; ++i) {
    inputs.push_back(random_inputs(s.on_gpu->program(), 32, rng));
    want.push_back(must(plain->run(inputs.back())));
  }
  auto pipeline = must(Pipeline::create(s.on_gpu, 3));
  bool same = true;
  for (uint64_t i = 0; i < 200; ++i) {
    if (i >= 3) same &= same_bytes(must(pipeline->fetch(i - 3)), want[(i - 3) % 16]);
    must(pipeline->submit(inputs[i % 16]));
  }
  check(same, "a pipeline of 200 requests");
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 16; ++t)
    threads.emplace_back([&, t] {
      auto session = must(Session::create(s.on_gpu));
      for (size_t i = 0; i < 40; ++i) {
        const size_t k = (t + 5 * i) % 16;
        wrong += !same_bytes(must(session->run(inputs[k])), want[k]);
      }
    });
  for (std::thread& t : threads) t.join();
  check(wrong == 0, "sixteen threads with shapes of their own");
}

void memory(const Setup& s, int rounds) {
  std::mt19937 rng(4);
  auto session = must(Session::create(s.on_gpu));
  const auto small = inputs_of_size(s.on_gpu->program(), {4}, rng);
  const Outputs want = must(session->run(small));
  // What is free goes into one allocation, so that the next shape cannot be served.
  std::vector<void*> hogs;
  for (uint64_t bytes = s.gpu->memory_info().free_bytes; bytes > (1 << 20); bytes /= 2)
    if (auto p = s.gpu->allocate(bytes)) hogs.push_back(p.value());
  const auto refused = session->run(inputs_of_size(s.on_gpu->program(), {20000, 64, 64, 64}, rng));
  check(!refused && refused.error().kind == ErrorKind::OutOfMemory, "memory that cannot be had is an error");
  if (!refused) std::printf("    %s\n", refused.error().message.c_str());
  for (void* p : hogs) s.gpu->release(p);
  check(same_bytes(must(session->run(small)), want), "and the session goes on");

  uint64_t free_before = 0;
  int64_t resident = 0;
  for (int i = 0; i < rounds; ++i) {
    if (i == rounds / 10) free_before = s.gpu->memory_info().free_bytes, resident = resident_bytes();
    auto again = must(Session::create(s.load(s.gpu)));
    must(again->run(small));
  }
  const auto lost = static_cast<int64_t>(free_before) - static_cast<int64_t>(s.gpu->memory_info().free_bytes);
  std::printf("    %d rounds: device memory lost %lld bytes, host %lld\n", rounds, static_cast<long long>(lost),
              static_cast<long long>(resident_bytes() - resident));
  check(lost < (4 << 20) && resident_bytes() - resident < (4 << 20), "rounds of load, run and free");
}

void two_gpus(const Setup& s) {
  if (must(list_cuda_devices(*s.api)).size() < 2) {
    std::printf("  one GPU: nothing to spread\n");
    return;
  }
  const auto second = must(open_cuda_device(*s.api, 1));
  auto pool = must(ReplicaPool::create({s.on_gpu, s.load(second)}, 2));
  std::mt19937 rng(6);
  const auto inputs = inputs_of_size(s.on_gpu->program(), {16}, rng);
  const Outputs want = must(must(Session::create(s.on_gpu))->run(inputs));
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) wrong += !same_bytes(must(pool->run(inputs)), want);
    });
  for (std::thread& t : threads) t.join();
  const auto served = pool->served();
  std::printf("    served %llu and %llu\n", static_cast<unsigned long long>(served[0]),
              static_cast<unsigned long long>(served[1]));
  check(wrong == 0 && served[0] > 300 && served[1] > 300, "two GPUs share the requests");
}

}  // namespace

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  if (argc < 2) return std::fprintf(stderr, "usage: %s FILE.ingot\n", argv[0]), 2;
  auto api = cuda::load_driver();
  if (!api) return std::printf("skipped: %s\n", api.error().message.c_str()), 77;
  Setup s{argv[1], api.value(), must(open_cuda_device(*api.value(), 0)), nullptr, nullptr};
  s.on_gpu = s.load(s.gpu);
  s.on_cpu = s.load(std::make_shared<CpuDevice>(object_loader()));
  std::printf("%s on %s, %d lanes\n", argv[1], s.gpu->name().c_str(), s.on_gpu->lanes());
  same_numbers(s);
  callers_capture(s);
  many_requests(s);
  memory(s, argc > 2 ? std::atoi(argv[2]) : 2000);
  two_gpus(s);
  return failures ? 1 : 0;
}
