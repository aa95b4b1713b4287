// Plans of contractions on tensor cores: the unit by the operands' types, the tile by an estimate of its time from the
// multiplications, the bytes, the gathers and the waves (mma_cost.h), and how k is shared where there are too few tiles for
// all SMs.
#include <algorithm>
#include <cmath>
#include <unordered_map>
#include <vector>

#include "codegen/cuda/mma_cost.h"
#include "codegen/cuda/plan_cuda.h"
#include "codegen/text/c_printer.h"
#include "compiler/expr/simplify.h"
#include "compiler/ops/operands.h"
#include "runtime/program.h"

namespace ingot {

namespace {

constexpr int64_t kGuess = 512;  // of an extent that is no function of the dims
// Extents known at run time only: the two tiles are for dims of 1, and of 64 or what makes a few waves of large tiles.
constexpr int64_t kSmallDim = 1, kLargeDim = 64, kLargestDim = 4096;
constexpr int kTableBytes = 16;  // of an entry: up to four 32-bit indices
constexpr double kManyResults = 4 << 20;
constexpr int kMostOfGrid = 8, kLeastOfGrid = 4;  // blocks of the grid that share a tile, and steps of k of each
constexpr int kMostShared =
    128 * 64;  // results of a tile whose k a cluster shares: of larger ones an SM has no second block

double bytes_of(const Kernel& kernel, const Body& body) {
  double bytes = 0;
  each_access(body, [&](int buffer, const Expr&, bool) {
    if (buffer < static_cast<int>(kernel.buffers.size()))
      bytes += static_cast<double>(size_of(kernel.buffers[static_cast<size_t>(buffer)].type));
  });
  return std::max(bytes, 1.0);
}
/// What the epilogue of one result moves to and from memory: not what many results share.
double result_bytes(const Kernel& kernel, const Contract& c) {
  double bytes = 0;
  const auto moves_along = [](const Expr& index, const std::vector<Axis>& axes) {
    return std::any_of(axes.begin(), axes.end(), [&](const Axis& a) { return depends_on(index, a.var.name()); });
  };
  each_access(c.epilogue, [&](int buffer, const Expr& index, bool) {
    if (buffer < static_cast<int>(kernel.buffers.size()) && moves_along(index, c.m) && moves_along(index, c.n))
      bytes += static_cast<double>(size_of(kernel.buffers[static_cast<size_t>(buffer)].type));
  });
  return bytes;
}
/// Of 16-bit results: functions are short there.
double instructions_of(const Expr& e) {
  constexpr double kCall = 6;
  double count = 0;
  visit(e, [&](const Expr& x) {
    if (x.op() == ExprOp::Call) count += kCall;
    else if (x.op() >= ExprOp::Add && x.op() <= ExprOp::Max && is_float(x.type())) count += 1;
  });
  return count;
}
OperandCost cost_of(const Kernel& kernel, const Expr& value, int vector, bool raw) {
  OperandCost cost;
  cost.bytes = bytes_of(kernel, as_body(value));
  // About 15 instructions for an access, 128 in a cycle; arithmetic on top where there is any.
  cost.gather = (15.0 / vector + (raw ? 0 : static_cast<double>(count_flops(value)))) / 128.0;
  return cost;
}

int vector_along(const Kernel& kernel, const Expr& value, const Axis* inner, int most) {
  return inner ? widest_vector(kernel, as_body(value), inner->var, inner->extent, most) : 1;
}

/// Elements of a window: their place along k is a channel, a row and a column, and costs divisions and registers.
int k_axes_of(const Contract& c, const Expr& value) {
  const OperandView view = view_of(c, value);
  int axes = 0;
  for (const Axis& a : view.k) axes += depends_on(view.value, a.var.name()) && !a.extent.is_const(1);
  return axes;
}
bool has_window(const Contract& c) { return k_axes_of(c, c.a) > 1 || k_axes_of(c, c.b) > 1; }
bool needs_table(const Kernel& kernel, const Expr& value, bool along_k) {
  const int axes = k_axes_of(*kernel.contract(), value);
  return !along_k && axes > 1 && axes <= kTableBytes / 4 && fits_i32(kernel);
}

}  // namespace

OperandForm operand_form(const Kernel& kernel, const Expr& value, const Axis* inner, DType element) {
  OperandForm form;
  const int most = 16 / static_cast<int>(size_of(element));
  form.vector = vector_along(kernel, value, inner, most);
  const auto access = raw_access(kernel, value, element);
  form.raw = access.has_value();
  if (!access || !access->guard.valid() || !inner) return form;
  const AxisGuard guard = guard_along(access->guard, inner);
  if (guard.rest.valid() && depends_on(guard.rest, inner->var.name())) form.vector = 1;
  // Copies of 16 bytes may end early; shorter ones are whole or nothing.
  while (guard.bound && form.vector < most && *guard.bound % form.vector != 0) form.vector /= 2;
  return form;
}

int rows_together(const Contract& c) { return c.group.empty() ? 1 : static_cast<int>(estimate(total_of(c.group), 1)); }
int whole_rows(int tile_m, int together) { return tile_m / together * together; }

int row_bytes(const Contract& c, const Schedule& s) {
  return s.tile.boxes ? row_value_bytes(s.tile, static_cast<int>(c.rows.size()), s.cluster_k) : 0;
}
bool adds_up_parts(const Kernel& kernel, const Schedule& s) {
  if (s.unit == MultiplyUnit::Simt || s.tile.row_teams > 0 || s.tile.n % kernel.contract()->parts.width != 0) return false;
  return !s.tile.boxes || s.cluster_k > 1 || tile_details(kernel, s).staged;
}
Kernel with_row_values(Kernel kernel, const Schedule& s) {
  const Contract* c = kernel.contract();
  if (!c || c->rows.empty()) return kernel;
  const bool kept = s.tile.boxes && s.tile.row_teams == 0 && (s.cluster_k > 1 || tile_details(kernel, s).staged);
  return kept ? kernel : rows_in_epilogue(std::move(kernel));
}

Kernel with_divided_sums(Kernel kernel, const Schedule& s) {
  if (s.grid_k == 1) return kernel;
  kernel.buffers.push_back({"counters", DType::I32, {Expr(runtime::kCounters)}, true});
  kernel.buffers.push_back({"parts", DType::F32, {Expr(1)}, true});
  return kernel;
}

/// Rows of A in a box: those of a tile, or fewer where the product has fewer; whole groups.
static int box_rows(const Contract& c, int tile_m, bool window) {
  const int together = rows_together(c), most = whole_rows(tile_m, together);
  if (window) return most;
  const int64_t rows = estimate(total_of(c.m), most), least = together > 1 ? together : 8;
  return static_cast<int>(std::min<int64_t>(most, (rows + least - 1) / least * least));
}

DType element_of(MultiplyUnit unit) {
  switch (unit) {
    case MultiplyUnit::F16: return DType::F16;
    case MultiplyUnit::BF16: return DType::BF16;
    case MultiplyUnit::Bytes: return DType::I8;
    case MultiplyUnit::F8: return DType::F8E4M3;
    default: return DType::F32;
  }
}

/// Operands of f8 are multiplied as they are: what lies in memory. Hopper's warps convert them to f16, and its warpgroups take them
/// along k only: others are f16 from the start.
static bool multiplies_f8(const Kernel& kernel, const TargetTraits& target) {
  const Contract& c = *kernel.contract();
  const auto lies_in_memory = [&](const Expr& operand) {
    return raw_access(kernel, view_of(c, operand).value, element_of(MultiplyUnit::F8)).has_value();
  };
  const TileDetails d = tile_details(kernel, {});
  return lies_in_memory(c.a) && lies_in_memory(c.b) &&
         (target.compute_capability != 90 || (d.a_along_k && d.b_along_k));
}

MultiplyUnit multiply_unit(const Kernel& kernel, const TargetTraits& target) {
  const Contract& c = *kernel.contract();
  if (c.acc.type() == DType::I32 && c.group.empty() && byte_type(c.a) && byte_type(c.b)) return MultiplyUnit::Bytes;
  const auto both_are = [&](const auto& kind) { return kind(c.a_type) && kind(c.b_type); };
  if (c.acc.type() != DType::F32 ||
      !both_are([](DType t) { return t == DType::F32 || t == DType::F16 || t == DType::BF16 || is_f8(t); }))
    return MultiplyUnit::Simt;
  if (both_are(is_f8) && target.compute_capability >= 89 && multiplies_f8(kernel, target)) return MultiplyUnit::F8;
  // 16 bits hold every value of 8.
  if (both_are([](DType t) { return t == DType::F16 || is_f8(t); })) return MultiplyUnit::F16;
  if (target.compute_capability < 80) return MultiplyUnit::Simt;
  if (both_are([](DType t) { return t == DType::BF16 || is_f8(t); })) return MultiplyUnit::BF16;
  return target.allow_tf32 ? MultiplyUnit::Tf32 : MultiplyUnit::Tf32x3;
}

void mma_details(const Kernel& kernel, const Schedule& s, TileDetails& d) {
  const Contract& c = *kernel.contract();
  const DType element = element_of(s.unit);
  const OperandView view_a = view_of(c, c.a), view_b = view_of(c, c.b);
  const OperandForm a = operand_form(kernel, view_a.value, inner_axis(d.a_along_k ? view_a.k : c.m), element);
  const OperandForm b = operand_form(kernel, view_b.value, inner_axis(d.b_along_k ? view_b.k : c.n), element);
  d.a_vector = a.vector;
  d.b_vector = b.vector;
  d.a_raw = a.raw;
  d.b_raw = b.raw;
  d.a_table = needs_table(kernel, c.a, d.a_along_k);
  d.b_table = needs_table(kernel, c.b, d.b_along_k);
  const int size = static_cast<int>(size_of(element));
  // What is fetched one by one takes registers, as windows do.
  const bool scattered = size < 4 && (a.vector == 1 || b.vector == 1);
  const bool window = has_window(c) || scattered || (element == DType::F32 && !(d.a_raw && d.b_raw));
  d.blocks_per_sm = blocks_by_registers(s.tile, size, window);
  if (scattered) d.blocks_per_sm = std::min(d.blocks_per_sm, 2);
  const Axis* out = inner_axis(d.out_along_m ? c.m : c.n);
  d.e_vector = out ? widest_vector(kernel, c.epilogue, out->var, out->extent, 8) : 1;
  const MmaTile& t = s.tile;
  if (t.row_teams > 0) {
    d.rows = product_of_rows(kernel, element);
    d.staged = d.rows->results;
    if (d.rows->a.prologue) d.a_load = d.rows->a.load;
    d.shared_bytes = rows_shared_bytes(t, *d.rows);
    return;
  }
  if (t.boxes) {
    auto staged = sharers_of(s) > 1 ? std::nullopt : staged_results(kernel);
    const Staging staging = staging_of(staged);
    const int result = staged ? staged->size : 2;
    if (staged_buffers(t, staging, result) > 0) {
      d.staged = std::move(staged);
      d.e_vector = 2;
    }
    d.row_room = (box_shared_bytes(t, size, staging, result, sharers_of(s)) + 15) / 16 * 16;
    d.shared_bytes = d.row_room + row_bytes(c, s);
    d.window = operand_window(kernel, element);
    d.a_rows = box_rows(c, t.m, d.window.has_value());
    const auto box = d.window ? std::nullopt : operand_box(kernel, c.a, c.m, element);
    d.by_group = box && box->by_group;
    if (!d.window) d.a_load = load_to_change(kernel, element);
    d.batched = !total_of(c.batch).is_const(1);
    return;
  }
  const int tables = (d.a_table + d.b_table) * std::max(t.stages, 2) * t.k * kTableBytes;
  d.shared_bytes = std::max(t.stages * mma_stage_bytes(t, d.a_along_k, d.b_along_k, size) + tables,
                            mma_result_bytes(t, d.out_along_m));
}

namespace {

/// The product of the extents.
double count_at(const std::vector<Axis>& axes, const DimValues& at) {
  const Expr total = total_of(axes);
  return static_cast<double>(std::max<int64_t>(evaluate_int(total, at).value_or(estimate(total, kGuess)), 1));
}

void set_extents(MmaProblem& p, const Kernel& kernel, const DimValues& at) {
  const Contract& c = *kernel.contract();
  p.m = count_at(c.m, at);
  p.n = count_at(c.n, at);
  p.k = count_at(c.k, at);
  p.batch = count_at(c.batch, at);
}
/// Where each dim has the given value, or what is nearest to it in its range.
void set_extents(MmaProblem& p, const Kernel& kernel, int64_t dim) {
  DimValues values;
  for (const Expr& d : kernel.dims) values[d.name()] = std::clamp(dim, d.low(), d.high());
  set_extents(p, kernel, values);
}

struct Choice {
  MmaTile tile;
  Sharing sharing;
  double cycles = 0;  // 0: none
};
/// The numbers of blocks that may share the k of a tile. With boxes, each has one tile, and its results in place of the ring.
std::vector<Sharing> ways_to_share(const MmaProblem& p, const MmaMachine& machine, const MmaTile& x) {
  std::vector<Sharing> ways{{}};
  const bool by_cluster = machine.clusters && !x.in_turn && x.row_teams == 0 && (x.boxes || x.m * x.n <= kMostShared);
  for (int blocks = 2; by_cluster && blocks <= 8; blocks *= 2) ways.push_back({blocks, 1});
  for (int blocks = 2; may_divide(p, machine, x) && blocks <= kMostOfGrid; ++blocks) ways.push_back({1, blocks});
  return ways;
}
/// Where there are tiles enough, sharing k only costs; a block needs some steps of its own.
bool is_worth_sharing(const MmaProblem& p, const MmaMachine& machine, const MmaTile& tile, Sharing sharing,
                      bool boxes) {
  const MmaTile x = completed(p, machine, tile, sharing);
  // An SM group (GPC) has 14 to 18 SMs, which larger clusters do not fill: with more, some would wait for a second turn.
  const double part = sharing.grid > 1 ? 1 : boxes && sharing.cluster > 2 ? 0.91 : 0.97;
  const double least = sharing.grid > 1 ? kLeastOfGrid : 2;
  if (tiles_of(p, x) * sharing.blocks() > part * machine.sms || p.k < sharing.blocks() * least * x.k) return false;
  return !x.boxes || holds_results(x, p);
}
/// The candidates, in their order.
std::vector<Choice> choices_of(const MmaProblem& p, const MmaMachine& machine) {
  std::vector<Choice> choices;
  const std::vector<MmaTile> tiles_that_fit = mma_candidates(p, machine);
  const bool boxes =
      std::any_of(tiles_that_fit.begin(), tiles_that_fit.end(), [](const MmaTile& x) { return x.boxes; });
  for (const MmaTile& x : tiles_that_fit) {
    if (p.part_width > 0 && x.n % p.part_width != 0) continue;
    for (const Sharing sharing : ways_to_share(p, machine, x)) {
      const bool alone = sharing.blocks() == 1;
      // Where there are boxes, tiles of warps are only for products whose k is shared.
      if (alone && boxes && !x.warpgroups) continue;
      // Parts of rows are added up by those that store by TMA, or in the tile of results.
      if (alone && p.part_width > 0 && x.boxes && staged_buffers(x, p.staging, p.staged_size) == 0) continue;
      if (!alone && !is_worth_sharing(p, machine, x, sharing, boxes)) continue;
      choices.push_back({x, sharing, estimated_cycles(p, machine, x, sharing)});
    }
  }
  const Sharing forced = forced_sharing();
  const auto differs = [&](const Choice& x) { return x.sharing != forced; };
  if (forced.blocks() && !std::all_of(choices.begin(), choices.end(), differs)) std::erase_if(choices, differs);
  return choices;
}
Choice with_stages(const MmaProblem& p, const MmaMachine& machine, Choice x) {
  x.tile = trimmed(p, machine, completed(p, machine, x.tile, x.sharing), x.sharing);
  return x;
}
Choice choose(const MmaProblem& p, const MmaMachine& machine) {
  Choice best;
  for (const Choice& x : choices_of(p, machine))
    if (best.cycles == 0 || x.cycles < best.cycles) best = x;
  return with_stages(p, machine, best);
}

Schedule with(Schedule s, const Choice& choice, const MmaMachine& machine) {
  s.tile = choice.tile;
  s.threads = choice.tile.threads();
  s.cluster_k = choice.sharing.cluster;
  s.grid_k = choice.sharing.grid;
  if (s.tile.boxes) s.most_blocks = static_cast<int>(machine.sms) * blocks_by_registers(s.tile, 2, false);
  return s;
}

/// Where the dims are `dim`, how many results there are.
int64_t results_at(const Kernel& kernel, MmaProblem p, int64_t dim) {
  set_extents(p, kernel, dim);
  return static_cast<int64_t>(p.m * p.n * p.batch);
}
double cycles_at(const Kernel& kernel, const MmaMachine& machine, MmaProblem p, const Choice& choice, int64_t dim) {
  set_extents(p, kernel, dim);
  return estimated_cycles(p, machine, choice.tile, choice.sharing);
}

/// Forms for few results, for dims of kLargeDim, and for many, and from where on each is faster than the one before.
std::vector<Schedule> plan_forms(const Kernel& kernel, const MmaMachine& machine, MmaProblem p, const Schedule& s) {
  int64_t many = kLargeDim;
  while (many < kLargestDim && results_at(kernel, p, many) < kManyResults) many *= 2;
  set_extents(p, kernel, many);
  p.most_m = p.m;
  p.most_n = p.n;
  p.most_batch = p.batch;
  std::vector<Schedule> forms;
  Choice last;
  int64_t last_dim = 0;
  for (int64_t dim : {kSmallDim, kLargeDim, many}) {
    if (dim == last_dim) continue;
    set_extents(p, kernel, dim);
    const Choice best = choose(p, machine);
    if (!forms.empty() && best.tile == last.tile && best.sharing == last.sharing) continue;
    Schedule form = with(s, best, machine);
    if (!forms.empty()) {
      int64_t from = last_dim;
      const auto is_faster = [&](int64_t d) {
        return cycles_at(kernel, machine, p, best, d) < cycles_at(kernel, machine, p, last, d);
      };
      do ++from;
      while (from < dim && !is_faster(from));
      forms.back().below = form.from = results_at(kernel, p, from);
      if (form.from <= forms.back().from) forms.pop_back();  // sizes that differ by too little to tell them apart
    }
    forms.push_back(form);
    last = best;
    last_dim = dim;
  }
  return forms;
}

bool is_known(const std::vector<Axis>& axes) { return total_of(axes).as_int().has_value(); }

/// All but the extents.
MmaProblem problem_of(const Kernel& kernel, const Schedule& s) {
  const Contract& c = *kernel.contract();
  const TileDetails d = tile_details(kernel, s);
  MmaProblem p;
  p.element = static_cast<int>(size_of(element_of(s.unit)));
  p.a_along_k = d.a_along_k;
  p.b_along_k = d.b_along_k;
  p.out_along_m = d.out_along_m;
  p.table_bytes = (d.a_table + d.b_table) * kTableBytes;
  p.result_bytes = result_bytes(kernel, c);
  p.result_access = bytes_of(kernel, c.epilogue);
  for (const Stmt& stmt : c.epilogue) {
    if (const Let* l = stmt.as<Let>()) p.result_work += instructions_of(l->value);
    if (const Store* st = stmt.as<Store>()) p.result_work += instructions_of(st->value);
  }
  p.window = has_window(c);
  p.k_known = total_of(c.k).as_int().has_value();
  p.a = cost_of(kernel, c.a, d.a_vector, d.a_raw);
  p.b = cost_of(kernel, c.b, d.b_vector, d.b_raw);
  p.together = rows_together(c);
  p.part_width = c.parts.width;
  p.row_values = static_cast<int>(c.rows.size());
  p.boxes = takes_boxes(kernel, element_of(s.unit));
  p.split = s.unit == MultiplyUnit::Tf32x3;
  p.settles = s.unit == MultiplyUnit::F8;
  if (const auto staged = p.boxes ? staged_results(kernel) : std::nullopt) {
    p.staging = staging_of(staged);
    p.staged_size = staged->size;
  }
  if (p.boxes && load_to_change(kernel, element_of(s.unit)).valid()) p.a_changes = true;
  p.rows = product_of_rows(kernel, element_of(s.unit));
  if (p.rows) p.a_changes = p.rows->a.prologue;
  const auto window = p.boxes ? operand_window(kernel, element_of(s.unit)) : std::nullopt;
  const int64_t depth = window ? window->channels : total_of(c.k).as_int().value_or(0);
  // Rows of 64 bytes take TMA as long as rows of 128, and those of 128 that end inside three times as long.
  const bool may_halve = p.element == 1 || (p.element == 2 && window && p.a_along_k && p.b_along_k);
  p.half_steps = p.boxes && may_halve && depth > 0 && (depth - 1) % (128 / p.element) < 64 / p.element;
  const int64_t step = (p.half_steps ? 64 : 128) / p.element;
  const auto reaches_behind = [&](int64_t length) { return length % step != 0 ? 1.0 : 0.0; };
  if (window) p.partial_steps = reaches_behind(window->channels) * static_cast<double>(window->taps());
  else p.partial_steps = reaches_behind(total_of(c.k).as_int().value_or(step));
  if (window) p.box_k = static_cast<double>(window->taps() * ((window->channels + step - 1) / step * step));
  if (window)
    p.reuse = std::max(1.0, static_cast<double>(window->taps()) / static_cast<double>(window->h.step * window->w.step));
  return p;
}

}  // namespace

std::vector<RankedPlan> rank_mma(const Kernel& kernel, const TargetTraits& target, const Schedule& s,
                                 const DimValues& at) {
  const MmaMachine machine = mma_machine(target, s.unit);
  MmaProblem p = problem_of(kernel, s);
  set_extents(p, kernel, at);
  std::vector<RankedPlan> plans;
  for (const Choice& x : choices_of(p, machine)) plans.push_back({with(s, with_stages(p, machine, x), machine), x.cycles});
  return plans;
}

std::vector<Schedule> plan_mma(const Kernel& kernel, const TargetTraits& target, const Schedule& s) {
  const Contract& c = *kernel.contract();
  const MmaMachine machine = mma_machine(target, s.unit);
  MmaProblem p = problem_of(kernel, s);
  if (!is_known(c.m) || !is_known(c.n) || !is_known(c.batch)) return plan_forms(kernel, machine, p, s);
  set_extents(p, kernel, kLargeDim);
  return {with(s, choose(p, machine), machine)};
}

}  // namespace ingot
