#include "runtime/cpu/thread_pool.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>

namespace ingot::runtime {
namespace {

constexpr int kSpins = 1500;          // some 50 us: longer than the gap between two kernels of a model
constexpr int kChunksPerThread = 4;   // evens out tasks of different cost

void pause_cpu() { __builtin_ia32_pause(); }

int thread_count(int asked) {
  if (asked > 0) return asked;
  if (const char* text = std::getenv("INGOT_THREADS")) {
    const int n = std::atoi(text);
    if (n > 0) return std::min(n, 1024);
  }
  return std::max(1u, std::thread::hardware_concurrency());
}

}  // namespace

ThreadPool::ThreadPool(int threads) {
  const int n = thread_count(threads);
  for (int i = 1; i < n; ++i) workers_.emplace_back([this] { worker_main(); });
}

ThreadPool::~ThreadPool() {
  stop_ = true;
  jobs_.fetch_add(1);
  jobs_.notify_all();
  for (std::thread& t : workers_) t.join();
}

void ThreadPool::drain() {
  const int64_t tasks = tasks_, chunk = chunk_;
  for (;;) {
    const int64_t first = next_.fetch_add(chunk, std::memory_order_relaxed);
    if (first >= tasks) return;
    work_(context_, first, std::min(first + chunk, tasks));
  }
}

bool ThreadPool::wait_for_job(uint32_t& seen) {
  for (int spin = 0; spin < kSpins; ++spin) {
    if (jobs_.load(std::memory_order_acquire) != seen) break;
    pause_cpu();
  }
  if (jobs_.load() == seen) {
    sleepers_.fetch_add(1);
    jobs_.wait(seen);  // returns at once when the value has changed meanwhile
    sleepers_.fetch_sub(1);
  }
  seen = jobs_.load();
  return !stop_.load();
}

void ThreadPool::worker_main() {
  uint32_t seen = 0;
  while (wait_for_job(seen)) {
    // A worker that comes late must not touch a job that its caller has left: it announces itself before it looks.
    inside_.fetch_add(1);
    if (open_.load()) drain();
    inside_.fetch_sub(1);
  }
}

void ThreadPool::run(int64_t tasks, Work work, void* context) {
  if (tasks <= 0) return;
  if (tasks == 1 || workers_.empty() || !busy_.try_lock()) return work(context, 0, tasks);
  std::lock_guard<std::mutex> lock(busy_, std::adopt_lock);
  work_ = work;
  context_ = context;
  tasks_ = tasks;
  chunk_ = std::max<int64_t>(1, tasks / (threads() * kChunksPerThread));
  next_.store(0);
  open_.store(true);
  jobs_.fetch_add(1);
  if (sleepers_.load() > 0) jobs_.notify_all();
  drain();
  open_.store(false);
  for (int spin = 0; inside_.load() != 0; ++spin) spin < kSpins ? pause_cpu() : std::this_thread::yield();
}

}  // namespace ingot::runtime
