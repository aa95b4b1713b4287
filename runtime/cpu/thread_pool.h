// A pool of persistent threads that share the tasks of one kernel launch. Starting a job costs well under a microsecond
// while the workers still spin; idle workers sleep. Used by cpu_device.h.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace ingot::runtime {

class ThreadPool {
 public:
  /// `threads` counts the caller; 0 means $INGOT_THREADS, or else the number of hardware threads.
  explicit ThreadPool(int threads = 0);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  /// Calls work(context, first, last) for ranges that cover [0, tasks), on the caller and on idle workers. When another
  /// caller's job occupies the workers, the caller does everything itself. Returns when all is done.
  using Work = void (*)(void* context, int64_t first, int64_t last);
  void run(int64_t tasks, Work work, void* context);

 private:
  void worker_main();
  void drain();
  bool wait_for_job(uint32_t& seen);

  std::vector<std::thread> workers_;
  std::mutex busy_;  // held by the caller whose job the workers serve

  // The current job; written by the caller before `open_` is set.
  Work work_ = nullptr;
  void* context_ = nullptr;
  int64_t tasks_ = 0, chunk_ = 1;
  alignas(64) std::atomic<int64_t> next_{0};
  alignas(64) std::atomic<bool> open_{false};
  alignas(64) std::atomic<int> inside_{0};  // workers that may be reading the job
  alignas(64) std::atomic<uint32_t> jobs_{0};  // counts jobs; workers wait for a change
  std::atomic<int> sleepers_{0};
  std::atomic<bool> stop_{false};
};

}  // namespace ingot::runtime
