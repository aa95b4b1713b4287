// Batcher: requests of many threads are gathered to one batch, within a time limit, and run as one. The batch is the
// first dimension of every input and output. Over a ReplicaPool, so that batches spread over devices.
#pragma once

#include <deque>
#include <future>
#include <thread>

#include "runtime/replica_pool.h"

namespace ingot::runtime {

struct BatcherOptions {
  int64_t max_batch = 0;          // rows; 0: as many as the program takes, at most 64 (measure_batches knows better)
  double max_delay_ms = 2;        // a request waits no longer for others
  size_t max_queue = 1024;        // requests waiting; more are refused
};

struct BatcherCounters {
  uint64_t requests = 0, refused = 0, batches = 0, rows = 0;
};

class Batcher {
 public:
  /// Error: the program has no batch: a first dimension that all inputs and outputs share and that may vary.
  static Result<std::unique_ptr<Batcher>> create(std::shared_ptr<ReplicaPool> pool, BatcherOptions options = {});
  /// Refuses new requests and finishes those that wait.
  ~Batcher();

  /// From any thread; `inputs` hold one row or more. The future gives the rows of this request, or the batch's error.
  std::future<Result<std::vector<Tensor>>> submit(std::vector<Tensor> inputs);
  BatcherCounters counters() const;
  int64_t max_batch() const { return options_.max_batch; }

 private:
  struct Request {
    std::vector<Tensor> inputs;
    int64_t rows = 0;
    std::chrono::steady_clock::time_point arrived;
    std::promise<Result<std::vector<Tensor>>> promise;
  };
  Batcher(std::shared_ptr<ReplicaPool> pool, BatcherOptions options);
  Result<int64_t> rows_of(const std::vector<Tensor>& inputs) const;
  void work();
  std::vector<Request> next_batch(std::unique_lock<std::mutex>& lock);
  void run_batch(std::vector<Request> batch);

  std::shared_ptr<ReplicaPool> pool_;
  BatcherOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<Request> queue_;
  bool stopping_ = false;
  BatcherCounters counters_;
  std::vector<std::thread> workers_;
};

/// How fast the engine is at a batch size.
struct BatchSpeed {
  int64_t batch = 0;
  double ms = 0, rows_per_second = 0;
  double plan_us = 0;  // host time of planning this size, which was new to the session
};
/// The number of the symbol that is the batch, or an Error that says why there is none.
Result<int32_t> batch_symbol(const Program& program);
/// Measures doubling batches on zeros, until the range ends, memory does, or rows per second stop growing; `seconds` for
/// each. The last entry is the largest batch tried.
Result<std::vector<BatchSpeed>> measure_batches(const std::shared_ptr<const Engine>& engine, double seconds = 0.2,
                                                int64_t limit = 1024);
/// Of measured batches, the smallest that is within 5% of the best rate.
BatchSpeed best_batch(const std::vector<BatchSpeed>& speeds);

}  // namespace ingot::runtime
