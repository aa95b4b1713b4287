// The C++ API: a batcher in front of two replicas serves requests of several threads.
//   serve_engine ENGINE.ingot [DEVICE DEVICE…]      (default: cpu:1 cpu:1)
// Every thread sends one row at a time; its answers must equal those of a session of its own.
#include <cstdio>
#include <cstring>
#include <ingot/ingot.hpp>
#include <random>
#include <thread>

namespace api = ingot::api;

namespace {

/// Random rows for every input of the engine: [1, …], dynamic dimensions at 8 or their bounds.
struct Request {
  std::vector<std::vector<float>> data;
  std::vector<ingot_tensor> tensors;
  Request(const api::Engine& engine, std::mt19937& rng) {
    std::normal_distribution<float> normal;
    for (const ingot_binding& b : engine.inputs()) {
      std::vector<int64_t> dims(b.dims, b.dims + b.rank);
      size_t count = 1;
      for (size_t d = 0; d < dims.size(); ++d) {
        if (d == 0) dims[d] = 1;
        else if (dims[d] < 0) dims[d] = std::min<int64_t>(std::max<int64_t>(8, b.low[d]), b.high[d]);
        count *= static_cast<size_t>(dims[d]);
      }
      data.emplace_back(count);
      for (float& x : data.back()) x = normal(rng);
      tensors.push_back(api::view(data.back().data(), dims));
    }
  }
};

int serve(const char* path, const std::vector<std::string>& names) {
  std::vector<api::Engine> engines;
  for (const std::string& name : names) {
    auto device = api::Device::open(name);
    if (!device) return std::fprintf(stderr, "%s\n", device.error().message.c_str()), 1;
    auto engine = api::Engine::load(path, *device, /*trust_host_code=*/name.rfind("cpu", 0) == 0);
    if (!engine) return std::fprintf(stderr, "%s\n", engine.error().message.c_str()), 1;
    engines.push_back(std::move(engine).value());
  }
  auto pool = api::Pool::create(engines, 1);
  if (!pool) return std::fprintf(stderr, "%s\n", pool.error().message.c_str()), 1;
  auto batcher = api::Batcher::create(*pool, 8, 1.0);
  if (!batcher) return std::fprintf(stderr, "%s\n", batcher.error().message.c_str()), 1;

  constexpr int kThreads = 4, kRequests = 25;
  int wrong[kThreads] = {};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      std::mt19937 rng(static_cast<unsigned>(t));
      auto session = api::Session::create(engines[0]);
      for (int i = 0; i < kRequests; ++i) {
        const Request request(engines[0], rng);
        auto future = batcher->submit(request.tensors);
        auto got = future ? future->wait() : api::Result<std::vector<ingot_tensor>>(future.error());
        auto want = session->run(request.tensors);
        if (!got || !want) {
          ++wrong[t];
          continue;
        }
        for (size_t o = 0; o < got->size(); ++o) {
          const auto *a = static_cast<const float*>((*got)[o].data), *b = static_cast<const float*>((*want)[o].data);
          for (uint64_t k = 0; k < (*got)[o].bytes / sizeof(float); ++k)
            if (std::abs(a[k] - b[k]) > 1e-4f + 1e-4f * std::abs(b[k])) {
              ++wrong[t];
              break;
            }
        }
      }
    });
  for (std::thread& t : threads) t.join();
  int bad = 0;
  for (int w : wrong) bad += w;
  std::printf("%d requests of %d threads, %d wrong; batches served:", kThreads * kRequests, kThreads, bad);
  for (size_t r = 0; r < names.size(); ++r)
    std::printf(" %s %llu", names[r].c_str(), static_cast<unsigned long long>(pool->served(static_cast<int>(r))));
  std::printf("\n");
  return bad ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return std::fprintf(stderr, "usage: serve_engine ENGINE.ingot [DEVICE…]\n"), 2;
  std::vector<std::string> devices(argv + 2, argv + argc);
  if (devices.empty()) devices = {"cpu:1", "cpu:1"};
  return serve(argv[1], devices);
}
