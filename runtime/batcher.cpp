#include "runtime/batcher.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace ingot::runtime {
namespace {

/// The rows of several tensors, one after the other. They agree in all dimensions but the first.
Tensor join(const std::vector<const Tensor*>& parts, int64_t rows) {
  Dims dims = parts[0]->dims();
  dims[0] = rows;
  Tensor joined(parts[0]->type(), dims);
  char* to = static_cast<char*>(joined.mutable_data());
  for (const Tensor* part : parts) {
    if (part->bytes()) std::memcpy(to, part->data(), part->bytes());
    to += part->bytes();
  }
  return joined;
}

/// Rows [first, first + rows) of a tensor, as a copy.
Tensor rows_of_tensor(const Tensor& t, int64_t first, int64_t rows) {
  Dims dims = t.dims();
  const size_t row_bytes = dims[0] ? t.bytes() / static_cast<size_t>(dims[0]) : 0;
  dims[0] = rows;
  Tensor out(t.type(), dims);
  if (out.bytes())
    std::memcpy(out.mutable_data(), static_cast<const char*>(t.data()) + static_cast<size_t>(first) * row_bytes,
                out.bytes());
  return out;
}

bool fit_together(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  for (size_t i = 0; i < a.size(); ++i)
    if (a[i].type() != b[i].type() ||
        !std::equal(a[i].dims().begin() + 1, a[i].dims().end(), b[i].dims().begin() + 1, b[i].dims().end()))
      return false;
  return true;
}

}  // namespace

Result<int32_t> batch_symbol(const Program& p) {
  if (p.inputs.empty() || p.inputs[0].symbols.empty() || p.inputs[0].symbols[0] < 0)
    return unsupported("the model has no batch: the first dimension of its first input is fixed");
  const int32_t batch = p.inputs[0].symbols[0];
  for (const Binding& b : p.inputs)
    if (b.symbols.empty() || b.symbols[0] != batch)
      return unsupported(
          fmt::format("the model has no batch: the first dimension of input '{}' is another one", b.name));
  // An output's first dimension must be the batch itself, whatever the other dimensions are.
  for (int64_t n : {p.symbols[batch].low + 1, p.symbols[batch].low + 2}) {
    std::vector<int64_t> symbols, lines;
    for (const SymbolInfo& s : p.symbols) symbols.push_back(std::max<int64_t>(s.low, std::min<int64_t>(s.high, 64)));
    symbols[batch] = std::min(n, p.symbols[batch].high);
    INGOT_TRY(p.shapes.evaluate(symbols, lines));
    for (const Binding& b : p.outputs)
      if (b.dims.empty() || lines[b.dims[0]] != symbols[batch])
        return unsupported(fmt::format(
            "the model has no batch: output '{}' does not have one row for each row of the inputs", b.name));
  }
  return batch;
}

Batcher::Batcher(std::shared_ptr<ReplicaPool> pool, BatcherOptions options)
    : pool_(std::move(pool)), options_(options) {}

Result<std::unique_ptr<Batcher>> Batcher::create(std::shared_ptr<ReplicaPool> pool, BatcherOptions options) {
  constexpr int64_t kDefaultBatch = 64;
  const Program& p = pool->program();
  const SymbolInfo& symbol = p.symbols[static_cast<size_t>(INGOT_TRY(batch_symbol(p)))];
  if (options.max_batch <= 0) options.max_batch = kDefaultBatch;
  options.max_batch = std::min(options.max_batch, symbol.high);
  std::unique_ptr<Batcher> batcher(new Batcher(std::move(pool), options));
  for (size_t i = 0; i < batcher->pool_->sessions(); ++i)
    batcher->workers_.emplace_back([b = batcher.get()] { b->work(); });
  return batcher;
}

Batcher::~Batcher() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  arrived_.notify_all();
  for (std::thread& t : workers_) t.join();
}

Result<int64_t> Batcher::rows_of(const std::vector<Tensor>& inputs) const {
  const Program& p = pool_->program();
  if (inputs.size() != p.inputs.size())
    return invalid(fmt::format("{} inputs given, the model has {}", inputs.size(), p.inputs.size()));
  int64_t rows = -1;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].type() != p.inputs[i].type || inputs[i].dims().size() != p.inputs[i].dims.size() ||
        inputs[i].dims().empty())
      return invalid(fmt::format("input '{}' has another type or rank", p.inputs[i].name));
    if (rows >= 0 && inputs[i].dims()[0] != rows)
      return invalid(
          fmt::format("input '{}' has {} rows, another input has {}", p.inputs[i].name, inputs[i].dims()[0], rows));
    rows = inputs[i].dims()[0];
  }
  if (rows > options_.max_batch)
    return invalid(fmt::format("{} rows given, a batch holds {}", rows, options_.max_batch));
  return rows;
}

std::future<Result<std::vector<Tensor>>> Batcher::submit(std::vector<Tensor> inputs) {
  Request request;
  auto future = request.promise.get_future();
  auto rows = rows_of(inputs);
  std::unique_lock<std::mutex> lock(mutex_);
  ++counters_.requests;
  if (rows && (stopping_ || queue_.size() >= options_.max_queue))
    rows = make_error(ErrorKind::Device,
                      stopping_ ? "the batcher is stopping" : fmt::format("{} requests wait already", queue_.size()));
  if (!rows) {
    ++counters_.refused;
    request.promise.set_value(rows.error());
    return future;
  }
  request.rows = *rows;
  request.inputs = std::move(inputs);
  request.arrived = std::chrono::steady_clock::now();
  queue_.push_back(std::move(request));
  lock.unlock();
  arrived_.notify_one();
  return future;
}

/// Waits until a batch is full, or its first request has waited long enough. Empty when there is nothing left to do.
std::vector<Batcher::Request> Batcher::next_batch(std::unique_lock<std::mutex>& lock) {
  arrived_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
  const auto waiting = [&] {
    int64_t rows = 0;
    for (const Request& r : queue_) rows += r.rows;
    return rows;
  };
  while (!queue_.empty()) {
    const auto until = queue_.front().arrived + std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                                                    std::chrono::duration<double, std::milli>(options_.max_delay_ms));
    if (stopping_ || waiting() >= options_.max_batch || std::chrono::steady_clock::now() >= until) break;
    arrived_.wait_until(lock, until);
  }
  std::vector<Request> batch;
  int64_t rows = 0;
  for (auto it = queue_.begin(); it != queue_.end() && rows < options_.max_batch;) {
    if (rows + it->rows > options_.max_batch || (!batch.empty() && !fit_together(batch[0].inputs, it->inputs))) {
      ++it;
      continue;
    }
    rows += it->rows;
    batch.push_back(std::move(*it));
    it = queue_.erase(it);
  }
  return batch;
}

void Batcher::work() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    std::vector<Request> batch = next_batch(lock);
    if (batch.empty()) {
      if (stopping_ && queue_.empty()) return;
      continue;
    }
    ++counters_.batches;
    for (const Request& r : batch) counters_.rows += static_cast<uint64_t>(r.rows);
    lock.unlock();
    run_batch(std::move(batch));
    lock.lock();
  }
}

void Batcher::run_batch(std::vector<Request> batch) {
  std::vector<Tensor> joined;
  int64_t rows = 0;
  for (const Request& r : batch) rows += r.rows;
  for (size_t i = 0; i < batch[0].inputs.size(); ++i) {
    std::vector<const Tensor*> parts;
    for (const Request& r : batch) parts.push_back(&r.inputs[i]);
    joined.push_back(join(parts, rows));
  }
  auto outputs = pool_->run(joined);
  int64_t first = 0;
  for (Request& r : batch) {
    if (!outputs) {
      r.promise.set_value(outputs.error());
      continue;
    }
    std::vector<Tensor> mine;
    for (const Tensor& t : outputs.value()) mine.push_back(rows_of_tensor(t, first, r.rows));
    first += r.rows;
    r.promise.set_value(std::move(mine));
  }
}

BatcherCounters Batcher::counters() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return counters_;
}

}  // namespace ingot::runtime
