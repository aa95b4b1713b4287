#include "codegen/cuda/plan_cuda.h"

#include <algorithm>

#include <fmt/format.h>

#include "codegen/backend.h"
#include "codegen/cuda/crossed_form.h"
#include "codegen/cuda/window_form.h"
#include "codegen/text/c_printer.h"
#include "compiler/expr/simplify.h"

namespace ingot {

namespace {

constexpr int kThreads = 256;
constexpr int64_t kGuess = 256;           // of an extent without a bound
constexpr int kReduceSlot = 16;  // of prelude/reduce.cuh
constexpr int kReduceBytes = 32 * kReduceSlot;
constexpr int64_t kSerialReduction = 64;  // longer reductions are shared by several threads, if neighbours
constexpr int64_t kColumnLength = 24;     // longer columns are shared by several threads
constexpr int64_t kWindowRun = 8;         // the innermost extent of a sliding window
constexpr int64_t kStageOfBlock = 1200;   // additions that another block of a cluster is worth
constexpr int64_t kPrivateElements = 64;  // a private array up to this size stays in registers or local memory

/// The longest reduction or loop at the top of the body, and what it reads.
struct TopLoop {
  std::vector<Axis> axes;
  Body work;
  int64_t length = 0;
};

void find_top_loop(const Body& body, TopLoop& best) {
  for (const Stmt& stmt : body) {
    TopLoop found;
    if (auto* r = stmt.as<Reduce>()) {
      found.axes = r->axes;
      found.work.push_back({Let{r->result, r->value}});
    }
    if (auto* l = stmt.as<Loop>()) {
      found.axes = l->axes;
      found.work = l->body;
    }
    if (auto* i = stmt.as<If>()) find_top_loop(i->body, best);
    if (found.axes.empty()) continue;
    found.length = estimate(total_of(found.axes), kGuess);
    if (found.length > best.length) best = std::move(found);
  }
}

/// How many of a loop's accesses step by one element along `inner`. What does not change with the loop is loaded once.
int neighbour_accesses(const Body& body, const Expr& inner, const std::vector<Axis>& loop) {
  int n = 0;
  each_access(body, [&](int, const Expr& index, bool) {
    const auto changes = [&](const Axis& a) { return depends_on(index, a.var.name()); };
    const auto c = linear_coefficient(index, inner.name());
    n += c && c->is_const(1) && std::any_of(loop.begin(), loop.end(), changes);
  });
  return n;
}

bool needs_shared_scratch(const Body& body) {
  bool needs = false;
  for (const Stmt& s : body)
    if (auto* a = s.as<Alloc>()) needs |= !a->size.as_int() || *a->size.as_int() > kPrivateElements;
  return needs;
}

bool has_conditional_reduce(const Body& body) {
  for (const Stmt& s : body) {
    if (auto* i = s.as<If>()) {
      for (const Stmt& inner : i->body)
        if (inner.as<Reduce>() || has_conditional_reduce(i->body)) return true;
    }
  }
  return false;
}

Schedule plan_points(const Kernel& kernel, const TargetTraits& target) {
  Schedule s;
  s.kind = Schedule::Kind::Points;
  s.threads = kThreads;
  const Axis* inner = inner_axis(kernel.domain);
  const int64_t total = estimate(total_of(kernel.domain), int64_t{1} << 22);
  if (inner) s.vector = widest_vector(kernel, kernel.body, inner->var, inner->extent, 8);
  // Enough threads for every SM come before wide accesses.
  const int64_t wanted = static_cast<int64_t>(target.parallel_units) * 512;
  while (s.vector > 1 && total / s.vector < wanted) s.vector /= 2;
  if (total <= static_cast<int64_t>(target.parallel_units) * 128) s.threads = 128;
  return s;
}

/// No buffer is read after it was written.
bool written_apart_from_read(const Kernel& kernel) {
  std::vector<bool> written(kernel.buffers.size(), false), read(kernel.buffers.size(), false);
  each_access(kernel.body, [&](int buffer, const Expr&, bool is_store) {
    if (buffer < static_cast<int>(written.size())) (is_store ? written : read)[static_cast<size_t>(buffer)] = true;
  });
  for (size_t i = 0; i < written.size(); ++i)
    if (written[i] && read[i]) return false;
  return true;
}

/// Of the largest accumulator of the body's reductions; one of ArgMax is a value and an index.
int accumulator_bytes(const Body& body) {
  int bytes = 0;
  for (const Stmt& s : body) {
    if (auto* r = s.as<Reduce>())
      bytes = std::max(bytes, r->combine >= Combine::ArgMax ? 16 : static_cast<int>(size_of(r->value.type())));
  }
  return bytes;
}

/// Vectors of a row that a warp keeps in registers from one pass to the next; the lanes of a block share longer ones.
constexpr int64_t kMostOfWarp = 192;

int64_t passes_over_rows(const Kernel& kernel) {
  return std::count_if(kernel.body.begin(), kernel.body.end(),
                       [](const Stmt& s) { return s.as<Reduce>() || s.as<Loop>(); });
}

/// Bytes of a row that a lane keeps: more of them leave a block's registers to fewer lanes.
constexpr int64_t kHeldBytes = 64;

/// Blocks of a cluster can share a row: they tell each other the results of reductions alone.
bool can_share_rows(const Kernel& kernel) {
  for (const Stmt& s : kernel.body)
    if (!s.as<Reduce>() && !s.as<Loop>() && !s.as<Let>() && !s.as<Store>() && !s.as<Note>()) return false;
  return accumulator_bytes(kernel.body) % 4 == 0 && written_apart_from_read(kernel);
}

/// Long rows, or few of them: several blocks for each, so that it is loaded once and all SMs have work.
void share_rows(Schedule& s, const Kernel& kernel, const TargetTraits& target, int64_t rows) {
  const HeldRows held = held_rows(kernel, s.vector);
  if (target.compute_capability < 90 || held.buffers.empty() || !can_share_rows(kernel)) return;
  const auto bytes = [&](int lanes) { return held.pass.steps(lanes) * held.bytes; };
  const auto idle = [&](int lanes) {
    return rows * lanes <= int64_t{target.parallel_units} * 1024 && held.pass.steps(lanes) >= 4;
  };
  if (bytes(s.threads) <= kHeldBytes && !idle(s.threads)) return;
  Schedule shared = s;
  shared.threads = 512;
  const auto lanes = [&] { return shared.threads * shared.cluster_k; };
  while (shared.cluster_k < 8 && (bytes(lanes()) > kHeldBytes || idle(lanes()))) shared.cluster_k *= 2;
  if (shared.cluster_k > 1 && fits_registers(held, lanes(), shared.threads)) s = shared;
}

Schedule plan_rows(const Kernel& kernel, const TargetTraits& target, const TopLoop& top) {
  Schedule s;
  s.kind = Schedule::Kind::Rows;
  const Axis* inner = inner_axis(top.axes);
  if (inner) s.vector = widest_vector(kernel, top.work, inner->var, inner->extent, 8);
  const int64_t rows = estimate(total_of(kernel.domain), 4096), length = std::max<int64_t>(top.length / s.vector, 1);
  const bool few_rows = rows < static_cast<int64_t>(target.parallel_units) * 8;
  int lanes = 32;
  if (length < 32 && !has_conditional_reduce(kernel.body)) {
    lanes = std::max(4, power_of_two_below(2 * length - 1));
  } else if (length > 1024 || (few_rows && length > 128) || (length > kMostOfWarp && passes_over_rows(kernel) > 1)) {
    lanes = std::clamp(power_of_two_below(length / (few_rows ? 2 : 4)), 128, 1024);
  }
  s.threads = std::max(lanes, 128);
  s.rows_per_block = s.threads / lanes;
  if (lanes > 32) share_rows(s, kernel, target, rows);
  return s;
}

/// Sums in loops, by way of scratch arrays: the most that a loop at the top adds up; 0 where there are none.
int64_t work_of_stages(const Body& body) {
  bool scratch = false;
  int64_t most = 0;
  for (const Stmt& s : body) {
    scratch |= s.as<Alloc>() != nullptr;
    const auto* l = s.as<Loop>();
    if (!l) continue;
    for (const Stmt& inner : l->body)
      if (auto* r = inner.as<Reduce>())
        most = std::max(most, estimate(total_of(l->axes), kGuess) * estimate(total_of(r->axes), kGuess));
  }
  return scratch ? most : 0;
}

/// Blocks of a cluster can share the stages of a point: all that they tell each other goes through scratch arrays of 2 bytes or more,
/// which only loops fill.
bool can_share_stages(const Kernel& kernel) {
  for (const Stmt& s : kernel.body) {
    const auto* a = s.as<Alloc>();
    if (!s.as<Loop>() && !(a && size_of(a->type) > 1) && !s.as<Let>()) return false;
  }
  return written_apart_from_read(kernel);
}

/// A block for each point: stages in turn, each shared by all of its threads. Few points: the blocks of a cluster for each.
std::vector<Schedule> plan_stages(const Kernel& kernel, int64_t work, const TargetTraits& target) {
  Schedule s;
  s.kind = Schedule::Kind::Rows;
  s.vector = 8;
  std::vector<Schedule> forms;
  const Expr points = total_of(kernel.domain);
  const bool shared = target.compute_capability >= 90 && can_share_stages(kernel);
  int cluster = shared ? std::clamp(power_of_two_below(work / kStageOfBlock), 1, 8) : 1;
  for (; cluster > 1; cluster = cluster > 2 ? 2 : 1) {
    const int64_t below = target.parallel_units / cluster + 1;
    if (points.as_int().value_or(below - 1) >= below) continue;
    s.cluster_k = cluster;
    s.threads = std::clamp(power_of_two_below(work / 8 / cluster), 256, 512);
    if (points.as_int()) return {s};
    s.below = below;
    forms.push_back(s);
    s.from = below;
  }
  s.cluster_k = 1;
  s.below = 0;
  s.threads = std::clamp(power_of_two_below(work / 32), 128, std::min(target.max_threads, 1024));
  forms.push_back(s);
  return forms;
}

/// Lanes can share the points of this kernel: nothing in it is private to a point or read after it was written.
bool can_share_points(const Kernel& kernel) {
  if (has_conditional_reduce(kernel.body)) return false;
  for (const Stmt& s : kernel.body)
    if (s.as<Alloc>()) return false;
  return written_apart_from_read(kernel);
}

Schedule plan_columns(const Kernel& kernel, const TargetTraits& target, const TopLoop& top) {
  Schedule s;
  s.kind = Schedule::Kind::Columns;
  const Axis* inner = inner_axis(kernel.domain);
  int size = 4;
  each_access(top.work, [&](int buffer, const Expr&, bool) {
    if (buffer < static_cast<int>(kernel.buffers.size()))
      size = std::min(size, static_cast<int>(size_of(kernel.buffers[static_cast<size_t>(buffer)].type)));
  });
  s.vector = widest_vector(kernel, kernel.body, inner->var, inner->extent, std::min(8, 16 / size));
  const int64_t points = std::max<int64_t>(estimate(total_of(kernel.domain), 4096) / s.vector, 1);
  // 128 bytes side by side; then as many lanes as have a few steps each, while the machine has threads to spare.
  s.rows_per_block = std::clamp(power_of_two_below(128 / (s.vector * size)), 1, power_of_two_below(points));
  int lanes = std::clamp(power_of_two_below(top.length / 4), 2, 1024 / s.rows_per_block);
  while (lanes > 8 && points * lanes > static_cast<int64_t>(target.parallel_units) * 2048) lanes /= 2;
  while (lanes * s.rows_per_block < 32) lanes *= 2;
  s.threads = lanes * s.rows_per_block;
  // Few points and many steps: blocks of a cluster share the points, too.
  const int64_t blocks = (points + s.rows_per_block - 1) / s.rows_per_block;
  const bool whole_words = accumulator_bytes(kernel.body) % 4 == 0;
  while (target.compute_capability >= 90 && whole_words && s.cluster_k < 8 &&
         blocks * s.cluster_k * 2 <= target.parallel_units && top.length >= int64_t{lanes} * s.cluster_k * 8)
    s.cluster_k *= 2;
  return s;
}

}  // namespace

int power_of_two_below(int64_t n) {
  n = std::min<int64_t>(n, 1 << 20);  // extents without a bound count as very many
  int p = 1;
  while (p * 2 <= n) p *= 2;
  return p;
}

Expr total_of(const std::vector<Axis>& axes) {
  Expr total = 1;
  for (const Axis& a : axes) total = total * a.extent;
  return simplify(total);
}

int64_t estimate(const Expr& e, int64_t otherwise) {
  if (const auto v = e.as_int()) return *v;
  const int64_t high = bounds_of(e).high;
  return high >= kNoLimit ? otherwise : high;
}

const Axis* inner_axis(const std::vector<Axis>& axes) { return axes.empty() ? nullptr : &axes.back(); }

static Schedule plan_loops(const Kernel& kernel, const TargetTraits& target) {
  TopLoop top;
  find_top_loop(kernel.body, top);
  if (needs_shared_scratch(kernel.body)) return plan_rows(kernel, target, top);
  if (top.length <= 1) return plan_points(kernel, target);
  const Axis *loop_axis = inner_axis(top.axes), *point_axis = inner_axis(kernel.domain);
  const int along_loop = neighbour_accesses(top.work, loop_axis->var, top.axes);
  const int along_points = point_axis ? neighbour_accesses(top.work, point_axis->var, top.axes) : 0;
  const int64_t points = estimate(total_of(kernel.domain), 1 << 16);
  const bool many_points = points >= static_cast<int64_t>(target.parallel_units) * 256;
  // A sliding window (short runs along the loop) and a column (runs along the points) are one thread's work.
  const auto run = loop_axis->extent.as_int();
  const bool is_window = run && *run <= kWindowRun && top.length <= kSerialReduction;
  const bool is_column = along_points > along_loop && (many_points || top.length <= kSerialReduction);
  const bool is_wide_window = along_points == along_loop && many_points && top.length <= 8 * kSerialReduction;
  const bool is_long = top.length > kColumnLength && point_axis && along_points > along_loop;
  if (!is_window && is_long && can_share_points(kernel)) return plan_columns(kernel, target, top);
  if (is_window || is_column || is_wide_window) return plan_points(kernel, target);
  return plan_rows(kernel, target, top);
}

std::vector<Schedule> plan_cuda(const Kernel& kernel, const TargetTraits& target) {
  if (kernel.contract()) return plan_tiles(kernel, target);
  if (kernel.attend()) return plan_attention(kernel, target);
  if (combines_windows(kernel))
    return {plan_points(kernel, target)};  // no form of windows: a thread has all that is combined
  if (const int64_t work = work_of_stages(kernel.body)) return plan_stages(kernel, work, target);
  return {plan_loops(kernel, target)};
}

Result<RowShared> row_shared(const Kernel& kernel, const Schedule& schedule) {
  RowShared shared;
  int64_t bytes = 0;
  for (const Stmt& stmt : kernel.body) {
    auto* a = stmt.as<Alloc>();
    if (!a) continue;
    const int64_t size = estimate(a->size, -1);
    if (size < 0) return unsupported(fmt::format("scratch array '{}' has no bound on its size", a->name));
    bytes += (std::max<int64_t>(size, 1) * static_cast<int64_t>(size_of(a->type)) + 15) / 16 * 16;
    if (bytes * schedule.rows_per_block > (int64_t{1} << 20)) break;
  }
  const int64_t scratch = bytes * schedule.rows_per_block;
  shared.reduce_bytes = std::max(kReduceBytes, schedule.threads / 32 * schedule.cluster_k * kReduceSlot);
  if (scratch > 227 * 1024 - 2 * shared.reduce_bytes) {
    return unsupported(fmt::format("{} bytes of scratch for one row exceed shared memory", bytes));
  }
  shared.scratch_bytes = static_cast<int>(bytes);
  shared.reduce_offset = static_cast<int>(scratch);
  const bool block_wide = schedule.rows_per_block == 1 && schedule.threads > 32;
  shared.total_bytes = shared.reduce_offset + (block_wide ? 2 * shared.reduce_bytes : 0);
  return shared;
}

/// The grid, or nothing where another form is for so many results.
static Expr in_form(const Expr& grid, const Schedule& s, const Expr& results) {
  Expr g = grid;
  if (s.from) g = select(le(Expr(s.from), results), g, Expr(0));
  if (s.below) g = select(lt(results, Expr(s.below)), g, Expr(0));
  return simplify(g);
}

Result<CudaLaunch> cuda_launch(const Kernel& kernel, const Schedule& s) {
  CudaLaunch launch;
  launch.threads = s.threads;
  if (s.kind == Schedule::Kind::Points) {
    launch.grid[0] =
        simplify(ceil_div(total_of(kernel.domain), Expr(int64_t{s.threads} * s.vector * s.points_per_thread)));
    return launch;
  }
  if (s.kind == Schedule::Kind::Crossed) {
    const CrossedTile tile = crossed_tile(kernel, *crossed_form(kernel), s);
    launch.shared_bytes = static_cast<int>(tile.shared_bytes);
    launch.grid[0] = in_form(total_of(tile.blocks), s, total_of(kernel.domain));
    return launch;
  }
  if (s.kind == Schedule::Kind::Window) {
    const Expr results = window_results(kernel);
    launch.shared_bytes = window_shared(*window_form(kernel), s).bytes;
    const int64_t of_thread = int64_t{s.vector} * s.tile.m * s.tile.n;
    if (s.tile.k > 0) {
      const auto w = window_form(kernel);
      const int64_t across = w->x.outputs / s.tile.n, lanes = s.threads / s.tile.k,
                    parts = *w->channels.extent.as_int() / s.vector / s.tile.k;
      const Expr strips = total_of(w->outer) * (w->y.outputs / s.tile.m);
      launch.grid[0] = in_form(ceil_div(strips, Expr(lanes / across)) * parts, s, results);
      return launch;
    }
    launch.grid[0] = in_form(ceil_div(results, Expr(of_thread * s.threads)), s, results);
    return launch;
  }
  if (s.kind == Schedule::Kind::Attention) {
    const Attend& t = *kernel.attend();
    launch.shared_bytes = attention_details(kernel, s).shared_bytes;
    const Expr tiles = ceil_div(total_of(t.m), Expr(s.tile.m)), batches = total_of(t.batch);
    launch.grid[0] = !s.tile.boxes ? tiles * s.cluster_k
                                   : min(tiles * batches, Expr(std::max(1, s.most_blocks / s.cluster_k))) * s.cluster_k;
    if (has_few_form(kernel)) {
      const Expr few = is_few(kernel);
      launch.grid[0] = select(shares_keys(s) ? few : logical_not(few), launch.grid[0], Expr(0));
    }
    launch.grid[0] = in_form(launch.grid[0], s, total_of(t.m) * total_of(t.d) * batches);
    if (!s.tile.boxes) launch.grid[2] = simplify(min(batches, Expr(65535)));
    return launch;
  }
  if (s.kind == Schedule::Kind::Columns) {
    launch.shared_bytes = s.threads * s.vector * accumulator_bytes(kernel.body);
    launch.grid[0] =
        simplify(ceil_div(total_of(kernel.domain), Expr(int64_t{s.rows_per_block} * s.vector)) * s.cluster_k);
    return launch;
  }
  if (s.kind == Schedule::Kind::Rows) {
    launch.shared_bytes = INGOT_TRY(row_shared(kernel, s)).total_bytes;
    const Expr points = total_of(kernel.domain);
    launch.grid[0] = in_form(ceil_div(points, Expr(s.rows_per_block)) * s.cluster_k, s, points);
    return launch;
  }
  const Contract& c = *kernel.contract();
  const TileDetails d = tile_details(kernel, s);
  launch.shared_bytes = d.shared_bytes;
  const Expr m = total_of(c.m), n = total_of(c.n), batches = total_of(c.batch);
  launch.grid[2] = simplify(min(batches, Expr(65535)));
  if (!d.skinny && s.unit != MultiplyUnit::Simt) {
    const Expr of_rows =
        d.rows ? d.rows->tiles(m, s.tile.m) : ceil_div(m, Expr(whole_rows(s.tile.m, rows_together(c))));
    const Expr tiles = of_rows * ceil_div(n, Expr(s.tile.n));
    launch.grid[0] = !s.tile.boxes       ? tiles * s.cluster_k
                     : sharers_of(s) > 1 ? tiles * batches * sharers_of(s)
                                         : min(tiles * batches, Expr(s.most_blocks));
    if (s.tile.boxes) launch.grid[2] = 1;
    launch.grid[0] = in_form(launch.grid[0], s, m * n * batches);
    if (s.grid_k > 1) launch.part_bytes = simplify(tiles * batches * (int64_t{s.grid_k} * s.tile.m * s.tile.n * 4));
    return launch;
  }
  if (!d.skinny) {
    launch.grid[0] = in_form(ceil_div(m, Expr(s.tile_m)) * ceil_div(n, Expr(s.tile_n)), s, m * n * batches);
    return launch;
  }
  const bool along_k = d.thin_is_m ? d.b_along_k : d.a_along_k;
  const int columns = along_k ? d.columns * (s.threads / 32 / s.split_k) : 32 * s.vector;
  launch.grid[0] = in_form(ceil_div(d.thin_is_m ? n : m, Expr(columns)), s, m * n * batches);
  return launch;
}

/// True when a range stands behind the bounds of e: every symbol has one, and nothing is cast from data.
static bool has_known_range(const Expr& e) {
  bool known = true;
  visit(e, [&](const Expr& x) {
    const bool open_symbol = x.op() == ExprOp::Symbol && bounds_of(x).high >= INT32_MAX;
    known &= !open_symbol && x.op() != ExprOp::Cast && x.op() != ExprOp::Load;
  });
  return known;
}

bool fits_i32(const Kernel& kernel) {
  const auto fits = [](const Expr& count) {
    const Expr e = simplify(count);
    const Interval b = bounds_of(e);
    return b.low < kMaxI32Elements && (b.high < kMaxI32Elements || !has_known_range(e));
  };
  bool ok = fits(total_of(kernel.domain));
  for (const Buffer& b : kernel.buffers) ok &= fits(product(b.shape));
  if (const Attend* t = kernel.attend()) {
    for (const auto* axes : {&t->batch, &t->m, &t->n, &t->k, &t->d}) ok &= fits(total_of(*axes));
  }
  if (const Contract* c = kernel.contract()) {
    for (const auto* axes : {&c->batch, &c->m, &c->n, &c->k}) ok &= fits(total_of(*axes));
  }
  return ok;
}

}  // namespace ingot
