#include "runtime/replica_pool.h"

#include <fmt/format.h>

namespace ingot::runtime {
namespace {

bool same_interface(const Program& a, const Program& b) {
  const auto same = [](const std::vector<Binding>& x, const std::vector<Binding>& y) {
    if (x.size() != y.size()) return false;
    for (size_t i = 0; i < x.size(); ++i)
      if (x[i].name != y[i].name || x[i].type != y[i].type || x[i].dims.size() != y[i].dims.size()) return false;
    return true;
  };
  return same(a.inputs, b.inputs) && same(a.outputs, b.outputs);
}

}  // namespace

Result<std::shared_ptr<ReplicaPool>> ReplicaPool::create(const std::vector<std::shared_ptr<const Engine>>& engines,
                                                         size_t sessions, SessionOptions options) {
  if (engines.empty() || sessions == 0) return invalid("a pool needs an engine and a session");
  std::shared_ptr<ReplicaPool> pool(new ReplicaPool);
  for (const auto& engine : engines) {
    if (!same_interface(engine->program(), engines[0]->program()))
      return invalid(fmt::format("the engines of a pool must be of one model: {} has other inputs or outputs",
                                 engine->device()->name()));
    Replica replica{engine, {}, 0};
    for (size_t i = 0; i < sessions; ++i) replica.idle.push_back(INGOT_TRY(Session::create(engine, options)));
    pool->replicas_.push_back(std::move(replica));
    pool->sessions_ += sessions;
  }
  return pool;
}

/// The replica with the most idle sessions, of these the one that has served least; null when none is idle.
ReplicaPool::Replica* ReplicaPool::least_busy() {
  Replica* best = nullptr;
  for (Replica& r : replicas_) {
    if (r.idle.empty()) continue;
    if (!best || r.idle.size() > best->idle.size() || (r.idle.size() == best->idle.size() && r.served < best->served))
      best = &r;
  }
  return best;
}

Result<std::vector<Tensor>> ReplicaPool::run(const std::vector<Tensor>& inputs) {
  std::unique_lock<std::mutex> lock(mutex_);
  Replica* replica = nullptr;
  freed_.wait(lock, [&] { return (replica = least_busy()) != nullptr; });
  std::unique_ptr<Session> session = std::move(replica->idle.back());
  replica->idle.pop_back();
  lock.unlock();
  auto outputs = session->run(inputs);
  lock.lock();
  replica->idle.push_back(std::move(session));
  ++replica->served;
  lock.unlock();
  freed_.notify_one();
  return outputs;
}

std::vector<uint64_t> ReplicaPool::served() const {
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<uint64_t> counts;
  for (const Replica& r : replicas_) counts.push_back(r.served);
  return counts;
}

Status ReplicaPool::trim() {
  std::lock_guard<std::mutex> lock(mutex_);
  for (Replica& r : replicas_)
    for (auto& session : r.idle) INGOT_TRY(session->trim());
  return {};
}

}  // namespace ingot::runtime
