// The batch size that a model is served best with, by measurement.
#include <algorithm>
#include <chrono>

#include "runtime/batcher.h"

namespace ingot::runtime {
namespace {

std::vector<Tensor> zeros(const Program& p, int32_t batch, int64_t rows) {
  std::vector<int64_t> symbols, lines;
  for (const SymbolInfo& s : p.symbols) symbols.push_back(std::clamp<int64_t>(64, std::max<int64_t>(s.low, 1), s.high));
  symbols[static_cast<size_t>(batch)] = rows;
  std::vector<Tensor> inputs;
  if (!p.shapes.evaluate(symbols, lines)) return inputs;
  for (const Binding& b : p.inputs) {
    Dims dims;
    for (ShapeRef d : b.dims) dims.push_back(lines[d]);
    inputs.emplace_back(b.type, dims);
  }
  return inputs;
}

}  // namespace

Result<std::vector<BatchSpeed>> measure_batches(const std::shared_ptr<const Engine>& engine, double seconds,
                                                int64_t limit) {
  using Clock = std::chrono::steady_clock;
  const Program& p = engine->program();
  const int32_t batch = INGOT_TRY(batch_symbol(p));
  const SymbolInfo& range = p.symbols[static_cast<size_t>(batch)];
  const auto session = INGOT_TRY(Session::create(engine));
  std::vector<BatchSpeed> speeds;
  for (int64_t rows = std::max<int64_t>(range.low, 1); rows <= std::min(range.high, limit); rows *= 2) {
    const std::vector<Tensor> inputs = zeros(p, batch, rows);
    for (int i = 0; i < 3; ++i) {  // the first make the plan and its recording
      auto warm = session->run(inputs);
      if (!warm && warm.error().kind == ErrorKind::OutOfMemory && !speeds.empty()) return speeds;
      INGOT_TRY(std::move(warm));
    }
    int runs = 0;
    const auto start = Clock::now();
    double elapsed = 0;
    do {
      INGOT_TRY(session->run(inputs));
      ++runs;
      elapsed = std::chrono::duration<double>(Clock::now() - start).count();
    } while (elapsed < seconds || runs < 3);
    speeds.push_back({rows, elapsed * 1000 / runs, static_cast<double>(rows) * runs / elapsed, session->counters().last_plan_us});
    const size_t n = speeds.size();
    if (n >= 3 && speeds[n - 1].rows_per_second < speeds[n - 3].rows_per_second * 1.02) break;
  }
  return speeds;
}

BatchSpeed best_batch(const std::vector<BatchSpeed>& speeds) {
  double best = 0;
  for (const BatchSpeed& s : speeds) best = std::max(best, s.rows_per_second);
  for (const BatchSpeed& s : speeds)
    if (s.rows_per_second >= 0.95 * best) return s;
  return {};
}

}  // namespace ingot::runtime
