// ReplicaPool: one model on several devices, or several sessions on one. Any thread may call run; a request goes to the
// device with the fewest requests in progress, and waits when every session is busy.
#pragma once

#include <condition_variable>
#include <mutex>

#include "runtime/executor.h"

namespace ingot::runtime {

class ReplicaPool {
 public:
  /// `sessions` of each engine; the engines must be of one model (equal inputs and outputs).
  static Result<std::shared_ptr<ReplicaPool>> create(const std::vector<std::shared_ptr<const Engine>>& engines,
                                                     size_t sessions = 2, SessionOptions options = {});

  Result<std::vector<Tensor>> run(const std::vector<Tensor>& inputs);

  size_t size() const { return replicas_.size(); }
  size_t sessions() const { return sessions_; }
  const Program& program() const { return replicas_[0].engine->program(); }
  /// Requests that each replica has finished so far.
  std::vector<uint64_t> served() const;
  /// Session::trim of every session that is idle.
  Status trim();

 private:
  struct Replica {
    std::shared_ptr<const Engine> engine;
    std::vector<std::unique_ptr<Session>> idle;
    uint64_t served = 0;
  };
  ReplicaPool() = default;
  Replica* least_busy();

  mutable std::mutex mutex_;
  std::condition_variable freed_;
  std::vector<Replica> replicas_;
  size_t sessions_ = 0;  // of all replicas
};

}  // namespace ingot::runtime
