// Products with few columns and a short k whose rows arrive and leave as they lie in memory (prelude/contraction_rows.cuh): which
// they are, the tiles they can have, and what those cost.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "codegen/cuda/mma_cost.h"
#include "codegen/cuda/plan_cuda.h"
#include "codegen/text/c_printer.h"

namespace ingot {

namespace {

constexpr int64_t kMostColumns = 256,
                  kMostDepth = 256;  // of a product of a warpgroup; k for which its loop is unrolled
// What threads copy, and boxes that reach behind the end of k, take longer than their estimates say.
constexpr double kPreferred = 0.6;
constexpr int kFewestStages = 2, kMostStages = 6, kMostTeams = 6;

/// Rows of n results without gaps.
bool lie_in_rows(const OperandBox& box, int64_t n) { return box.outer_stride.is_const(n); }

}  // namespace

int64_t WindowLines::of_tile(int64_t rows) const {
  const int64_t across = window.w.outputs, last_start = across - std::gcd(rows, across);
  const int64_t lines = std::min((last_start + rows - 1) / across + 1, window.h.outputs);
  return (lines - 1) * window.h.step + (window.h.taps - 1) * window.h.dilation + 1;
}

Expr ProductOfRows::tiles(const Expr& m, int64_t rows) const {
  if (!lines) return ceil_div(m, Expr(rows));
  return lines->window.images * Expr((lines->pixels() + rows - 1) / rows);
}

std::optional<WindowLines> window_lines(const Kernel& kernel, DType element) {
  const auto window = operand_window(kernel, element);
  if (!window || size_of(element) != 2) return std::nullopt;
  const OperandWindow& x = *window;
  const int64_t pixel = x.w.step * x.w.stride;
  if (x.w.taps != 1 || pixel >= x.channels || x.channels % 16 != 0 || x.present % 2 != 0) return std::nullopt;
  WindowLines lines{x, (x.w.outputs - 1) * pixel + x.channels};
  // A line is whole accesses, and ends where the next one begins, or before.
  if (lines.length % 8 != 0 || x.w.low != 0 || x.offset + lines.length > x.h.stride) return std::nullopt;
  return lines;
}

/// What is read as rows: those of a matrix, or pixels of an image.
static std::optional<ProductOfRows> arriving_product(const Kernel& kernel, DType element) {
  ProductOfRows p;
  if (auto lines = window_lines(kernel, element)) {
    p.a.box.buffer = lines->window.buffer;
    p.a.box.offset = lines->window.offset;
    p.lines = std::move(lines);
    return p;
  }
  const auto a = arriving_rows(kernel, element);
  if (!a || !a->box.outer_stride.same(a->box.inner)) return std::nullopt;
  p.a = *a;
  return p;
}

std::optional<ProductOfRows> product_of_rows(const Kernel& kernel, DType element) {
  const Contract& c = *kernel.contract();
  const auto n = total_of(c.n).as_int(), k = total_of(c.k).as_int();
  if (size_of(element) != 2 || !n || !k || *n > kMostColumns || *k > kMostDepth || *n % 8 != 0 || *k % 8 != 0)
    return std::nullopt;
  if (!c.group.empty() || !total_of(c.batch).is_const(1)) return std::nullopt;
  auto product = arriving_product(kernel, element);
  if (!product || (!product->lines && *k % 64 == 0)) return std::nullopt;  // whole boxes of k are better off
  const auto b = operand_box(kernel, c.b, c.n, element);
  auto results = staged_results(kernel);
  if (!b || !b->along_k || b->by_group || !results || results->size != 2 || !lie_in_rows(results->out, *n))
    return std::nullopt;
  if (results->load.valid() && !lie_in_rows(results->in, *n)) return std::nullopt;
  product->b = *b;
  product->results = std::move(*results);
  product->n = *n;
  product->k = *k;
  return product;
}

int rows_shared_bytes(const MmaTile& x, const ProductOfRows& rows) {
  const int weights = (x.k + 63) / 64 * x.n * 128, results = x.row_teams * 4 * x.m / 64 * 16 * x.n * 2;
  const int tiles = weights + x.row_teams * x.stages * static_cast<int>(rows.bytes_of_tile(x.m));
  return (tiles + 1023) / 1024 * 1024 + results + 8 + x.row_teams * (x.stages * 16 + rows.buffers(x.m) * 4 * 8);
}

std::vector<MmaTile> rows_tiles(const MmaProblem& p, const MmaMachine& machine) {
  std::vector<MmaTile> tiles;
  if (!p.rows) return tiles;
  for (int rows : {1, 2}) {
    if (rows * p.n > kMostColumns) continue;
    const int m = rows * 64, n = static_cast<int>(p.n), k = static_cast<int>(p.k), steps = (k + 15) / 16;
    const int fragments = (steps <= 4 ? steps : 8) * 4 * rows, registers = rows * n / 2 + fragments + 64;
    MmaTile x{
        .m = m, .n = n, .k = k, .warp_m = m, .warp_n = n, .stages = kFewestStages, .warpgroups = true, .boxes = true};
    x.row_teams = std::min(512 / registers, kMostTeams);
    const auto fits = [&] { return rows_shared_bytes(x, *p.rows) <= machine.shared_limit; };
    while (x.row_teams > 1 && !fits()) --x.row_teams;
    if (x.row_teams < 1 || !fits()) continue;
    while (x.stages < kMostStages) {
      ++x.stages;
      if (fits()) continue;
      --x.stages;
      break;
    }
    tiles.push_back(x);
  }
  return tiles;
}

double rows_cycles(const MmaProblem& p, const MmaMachine& machine, const MmaTile& x) {
  // Fitted to 14 products of two models on an H200, 5 to 70 us.
  constexpr double kMemory = 16.5, kLatency = 1200, kLaunch = 1800, kWeights = 44, kAlone = 0.5;
  const double tiles = std::ceil(p.m / x.m), blocks = std::min(tiles, machine.sms),
               rounds = std::ceil(tiles / machine.sms);
  const auto& lines = p.rows->lines;
  const double of_a = static_cast<double>(p.rows->bytes_of_tile(x.m)),
               row = lines ? static_cast<double>(lines->window.w.step * lines->window.w.stride) : p.k;
  const double bytes = (lines ? of_a / p.reuse : of_a) + x.m * p.n * p.result_bytes;
  const double work = x.m * (p.n * (p.result_work + 4) + p.k * (p.a_changes ? 6 + p.a.gather * 32 : 1.0)) / 128;
  // Rows whose length has many factors of two meet in the banks of shared memory.
  const auto conflicts = [](double length) { return std::gcd(static_cast<int>(length) * 2, 128) / 16.0; };
  const double shared =
      (of_a + x.m * (p.k * 2 * conflicts(row) + p.n * 2 * (1 + (p.rows->boxed() ? 1 : conflicts(p.n))))) /
      machine.shared_bytes;
  const double multiplies = x.m * p.n * std::ceil(p.k / 16) * 16 / machine.group_multiplies;
  const double teams = std::min<double>(x.row_teams, rounds);
  const double busy =
      std::max({bytes / kMemory * blocks / machine.sms, work, shared, multiplies, (kLatency + work / 4) / teams});
  const double weights = p.n * std::ceil(p.k / 64) * 128 / kWeights;
  // One warpgroup of a block has a tile: nothing runs beside its results.
  const double results = x.m * (p.n * (p.result_work + 4) + p.k) / 128;
  if (rounds == 1) return kLatency + shared + multiplies + results / kAlone + weights + kLaunch;
  return kPreferred * rounds * busy + kLatency + weights + kLaunch;
}

}  // namespace ingot
