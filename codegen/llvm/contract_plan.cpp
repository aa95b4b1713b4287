#include "codegen/llvm/contract_plan.h"

#include <algorithm>

#include "codegen/llvm/expr_emitter.h"
#include "codegen/llvm/kernel_rewrite.h"
#include "compiler/expr/simplify.h"

namespace ingot::cpu {
namespace {

constexpr int64_t kMostPackedK = 12288;        // a panel of that many k positions still fits in a level-2 cache
constexpr int64_t kBlockedK = 512;
constexpr int64_t kFewRows = 4;                // at most so many rows: a matrix-vector product
constexpr int64_t kDirectRows = 24;            // so many rows do not repay a packed panel
constexpr int64_t kTaskFlops = 400'000;        // some microseconds
constexpr int64_t kPackedRowBytes = 2 << 20;  // rows of a that stay in a level-2 cache while panels pass
constexpr int64_t kPackedPanelBytes = 3 << 18;   // panels of a task
constexpr int64_t kVectorK = 8;                  // a k axis worth a vector
constexpr int64_t kWindowTerms = 64;

void visit_roots(const Contract& c, std::vector<Expr>& roots) {
  roots.push_back(c.a);
  roots.push_back(c.b);
  for_each_expr(c.epilogue, [&](const Expr& e) { roots.push_back(e); });
}

void substitute_all(Contract& c, const Bindings& bindings) {
  if (bindings.empty()) return;
  c.a = simplify(substitute(c.a, bindings));
  c.b = simplify(substitute(c.b, bindings));
  c.epilogue = substitute_body(c.epilogue, bindings);
}

Contract normalised(const Contract& original) {
  Contract c = original;
  c.epilogue = inline_index_lets(c.epilogue);
  Bindings zeros;
  for (auto* axes : {&c.batch, &c.m, &c.n, &c.k}) drop_unit_axes(*axes, zeros);
  substitute_all(c, zeros);
  for (auto* axes : {&c.batch, &c.m, &c.n, &c.k}) {
    std::vector<Expr> roots;
    visit_roots(c, roots);
    substitute_all(c, merge_axes(*axes, std::move(roots)));
  }
  // An empty side has one position; a symbol for it keeps the emitter free of special cases.
  const auto ensure = [](std::vector<Axis>& axes, const char* name) {
    if (axes.empty()) axes.push_back({Expr::index(name, Expr(1)), Expr(1)});
  };
  ensure(c.m, "one_m");
  ensure(c.n, "one_n");
  ensure(c.k, "one_k");
  return c;
}

bool steps_by_one(const Expr& index, const std::vector<Axis>& axes) {
  if (has_load(index)) return false;
  const auto step = linear_coefficient(index, axes.back().var.name());
  return step && step->is_const(1);
}

/// The number of loads (or stores) of e that are contiguous along the last of `axes`, and of those that depend on it.
struct Contiguity {
  int contiguous = 0, dependent = 0;
};
Contiguity contiguity(const Expr& root, const std::vector<Axis>& axes) {
  Contiguity out;
  visit(root, [&](const Expr& e) {
    if (e.op() != ExprOp::Load || !depends_on(e.arg(0), axes.back().var.name())) return;
    ++out.dependent;
    out.contiguous += steps_by_one(e.arg(0), axes);
  });
  return out;
}

/// How well the stores of the epilogue run along the last of `axes`.
int store_score(const Contract& c, const std::vector<Axis>& axes) {
  int score = 0;
  for_each_expr(c.epilogue, [&](const Expr& e) {
    if (e.op() == ExprOp::Load) score += steps_by_one(e.arg(0), axes);
  });
  return score;
}

/// Makes a k axis the last one when b is contiguous along it and along nothing better (channels-last convolutions).
void order_k(Contract& c) {
  if (contiguity(c.b, c.n).contiguous > 0 || contiguity(c.b, c.k).contiguous > 0) return;
  for (size_t i = 0; i + 1 < c.k.size(); ++i) {
    if (c.k[i].extent.as_int().value_or(kVectorK) < kVectorK || contiguity(c.b, {c.k[i]}).contiguous == 0) continue;
    std::rotate(c.k.begin() + static_cast<ptrdiff_t>(i), c.k.begin() + static_cast<ptrdiff_t>(i) + 1, c.k.end());
    return;
  }
}

void swap_sides(Contract& c) {
  std::swap(c.m, c.n);
  std::swap(c.a, c.b);
  std::swap(c.a_type, c.b_type);
}

bool should_swap(const Contract& c) {
  const int64_t many = int64_t{1} << 40;
  const int64_t m = total_extent(c.m).as_int().value_or(many), n = total_extent(c.n).as_int().value_or(many);
  if (n <= kFewRows && m > n) return true;
  if (m <= kFewRows) return false;
  const int along_n = store_score(c, c.n), along_m = store_score(c, c.m);
  if (along_n != along_m) return along_m > along_n && m >= 8;
  return contiguity(c.b, c.n).contiguous == 0 && contiguity(c.a, c.m).contiguous > 0;
}

/// The step per position of the flattened axes; nullopt when the index is not linear in it.
std::optional<Expr> flat_step(const Expr& index, const std::vector<Axis>& axes) {
  auto step = linear_coefficient(index, axes.back().var.name());
  if (!step) return std::nullopt;
  Expr expected = *step;
  for (size_t i = axes.size(); i-- > 1;) {
    expected = simplify(expected * axes[i].extent);
    const auto outer = linear_coefficient(index, axes[i - 1].var.name());
    if (!outer || !proves_equal(*outer, expected)) return std::nullopt;
  }
  return step;
}

std::optional<DirectOperand> direct(const Kernel& kernel, const Expr& e, const std::vector<Axis>& side,
                                    const std::vector<Axis>& k) {
  if (e.op() != ExprOp::Load || kernel.buffers[static_cast<size_t>(e.buffer())].type != e.type()) return std::nullopt;
  const Expr& index = e.arg(0);
  if (has_load(index) || side.size() != 1) return std::nullopt;
  const auto k_step = flat_step(index, k), side_step = flat_step(index, side);
  if (!k_step || !side_step) return std::nullopt;
  Bindings zeros;
  for (const Axis& a : k) zeros[a.var.name()] = Expr(0);
  zeros[side[0].var.name()] = Expr(0);
  return DirectOperand{e.buffer(), simplify(substitute(index, zeros)), *k_step, *side_step};
}

/// Rows of a register tile for a panel of so many vectors: accumulators, one row of b and a broadcast must fit.
int tile_rows(const Machine& machine, int vectors) {
  const int registers = machine.vector_registers;
  if (registers >= 32)
    return vectors == 1 ? 24 : vectors == 2 ? 12 : vectors == 3 ? 8 : vectors <= 4 ? 6 : 24 / vectors;
  return vectors == 1 ? 12 : vectors == 2 ? 6 : vectors == 3 ? 4 : std::max(1, 12 / vectors);
}

void choose_panel(ContractPlan& p, const Machine& machine) {
  const auto n = p.n.as_int(), m = p.m.as_int();
  const int64_t vectors = n ? (*n + p.width - 1) / p.width : 1 << 20;
  p.vectors = 2;
  if (p.b_direct && m && *m <= kFewRows) {
    // Few rows: more vectors instead, for as many independent sums.
    const int most = machine.vector_registers >= 32 ? 8 : 4;
    p.vectors = static_cast<int>(std::min<int64_t>(*m <= 2 ? most : most / 2, std::max<int64_t>(vectors, 1)));
  } else if (vectors <= 1) {
    p.vectors = 1;
  } else if (n && vectors % 2 == 1 && vectors % 3 == 0) {
    p.vectors = 3;
  }
  p.tail_vectors = p.vectors;
  if (n && p.vectors == 2 && vectors % 2 == 1 && !p.dot) p.tail_vectors = 1;
  p.rows = p.dot ? static_cast<int>(kFewRows) : tile_rows(machine, p.vectors);
}

void choose_tiles(ContractPlan& p) {
  RowTiles& t = p.tiles;
  if (const auto m = p.m.as_int()) {
    const int64_t rows = std::max<int64_t>(*m, 1);
    const int64_t count = (rows + p.rows - 1) / p.rows;
    t.even = true;
    t.count = Expr(count);
    t.base = rows / count;
    t.longer = rows % count;
    if (t.longer > 0) t.variants.push_back(static_cast<int>(t.base + 1));
    t.variants.push_back(static_cast<int>(t.base));
    return;
  }
  t.full = p.rows;
  const Expr rest = floor_mod(p.m, Expr(t.full));
  t.variants = {t.full};
  t.count = floor_div(p.m, Expr(t.full));
  if (t.full > 4) {
    t.count = t.count + floor_div(rest, Expr(4)) + floor_mod(rest, Expr(4));
    t.variants.push_back(4);
  } else {
    t.count = t.count + rest;
  }
  if (t.full > 1) t.variants.push_back(1);
}

void choose_tasks(ContractPlan& p, const Machine& machine) {
  const int64_t element = static_cast<int64_t>(size_of(p.type));
  const int64_t k = p.k.as_int().value_or(kBlockedK), tiles = p.tiles.count.as_int().value_or(16);
  const int64_t rows = p.tiles.even ? p.tiles.base + 1 : p.tiles.full;
  const int64_t panels = p.panels.as_int().value_or(64), batch = p.batch.as_int().value_or(1);
  const bool window = p.c.n.size() > 1;  // its panels are gathered run by run: it wants more rows to repay them
  const int64_t wanted = (window ? 2 : 4) * std::max(machine.threads, 1);
  const auto ceil = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
  // Rows of a task: what stays in the level-2 cache while panels pass, but enough to repay packing a panel.
  const int64_t fit = kPackedRowBytes / std::max<int64_t>(1, rows * k * element);
  p.tiles_per_task =
      std::clamp<int64_t>(std::max(fit, ceil(96, rows)), 1, p.m.as_int() ? std::max<int64_t>(tiles, 1) : 16);
  if (p.m.as_int()) p.tiles_per_task = ceil(std::max<int64_t>(tiles, 1), ceil(tiles, p.tiles_per_task));
  const auto tasks = [&] { return batch * ceil(tiles, p.tiles_per_task) * ceil(panels, p.panels_per_task); };
  const auto flops = [&] { return 2 * p.tiles_per_task * rows * k * p.panel() * p.panels_per_task; };
  while (flops() < kTaskFlops && p.panels_per_task < panels) p.panels_per_task *= 2;
  if (!p.a_direct && !p.dot)
    while (p.panels_per_task * p.panel() < 256 && tasks() >= 2 * wanted) p.panels_per_task *= 2;
  const int64_t panel_bytes = k * p.panel() * element;
  if (rows * tiles * k * element > kPackedRowBytes / 2)  // a does not stay in cache by itself
    while (2 * p.panels_per_task * panel_bytes <= kPackedPanelBytes && p.panels_per_task < panels &&
           tasks() >= 2 * wanted)
      p.panels_per_task *= 2;
  const int64_t least = p.b_direct || p.dot ? 1 : ceil(window ? 96 : 24, rows);
  while (tasks() < wanted && p.tiles_per_task > least && flops() > kTaskFlops)
    p.tiles_per_task = ceil(p.tiles_per_task, 2);
  p.tiles_per_task = std::min(p.tiles_per_task, std::max<int64_t>(tiles, 1));
}

void place_scratch(ContractPlan& p) {
  const int64_t element = static_cast<int64_t>(size_of(p.type));
  const auto k = p.k.as_int();
  const bool packs = !p.dot && (!p.a_direct || !p.b_direct);
  p.k_blocked = packs && (!k || *k > kMostPackedK);
  p.k_block = p.k_blocked ? kBlockedK : k.value_or(0);
  const int64_t rows = p.tiles.even ? p.tiles.base + (p.tiles.longer > 0) : p.tiles.full;
  const int64_t block_rows = rows * p.tiles_per_task;
  int64_t offset = 0;
  const auto take = [&](int64_t elements) {
    const int64_t at = offset;
    offset += (elements * element + 63) / 64 * 64;
    return at;
  };
  const int64_t slack = 4 * p.width;  // whole vectors are read and written at the ends
  p.c_offset = take((p.k_blocked ? block_rows : rows) * p.panel() + slack);
  if (!p.dot && !p.b_direct) p.b_offset = take((p.k_blocked ? 1 : p.panels_per_task) * p.packed_panel() + slack);
  if (!p.dot && !p.a_direct) p.a_offset = take(block_rows * p.k_block + p.width * rows + slack);
  p.scratch_bytes = offset;
}

}  // namespace

Expr total_extent(const std::vector<Axis>& axes) {
  Expr total = Expr(1);
  for (const Axis& a : axes) total = total * a.extent;
  return simplify(total);
}

ContractPlan plan_contract(const Kernel& kernel, const Machine& machine) {
  const Contract* original = kernel.contract();
  INGOT_CHECK(original != nullptr, "plan_contract: the kernel is not a contraction");
  ContractPlan p;
  p.c = normalised(*original);
  if (should_swap(p.c)) swap_sides(p.c);
  order_k(p.c);
  p.type = p.c.acc.type();
  p.width = std::max(2, machine.vector_bytes / static_cast<int>(std::max<size_t>(size_of(p.type), 4)));
  p.batch = total_extent(p.c.batch);
  p.m = total_extent(p.c.m);
  p.n = total_extent(p.c.n);
  p.k = total_extent(p.c.k);
  const auto m = p.m.as_int();
  const bool b_along_k = contiguity(p.c.b, p.c.k).contiguous > 0 && contiguity(p.c.b, p.c.n).contiguous == 0 &&
                         p.c.k.back().extent.as_int().value_or(p.width) >= p.width;
  p.dot = m && *m <= kFewRows && b_along_k;
  if (!p.dot) {
    p.a_direct = direct(kernel, p.c.a, p.c.m, p.c.k);
    if (m && *m <= kDirectRows) p.b_direct = direct(kernel, p.c.b, p.c.n, p.c.k);
    if (p.b_direct && !p.b_direct->side_step.is_const(1)) p.b_direct.reset();
  }
  choose_panel(p, machine);
  choose_tiles(p);
  p.panels = simplify(ceil_div(p.n, Expr(p.panel())));
  choose_tasks(p, machine);
  p.tile_blocks = simplify(ceil_div(p.tiles.count, Expr(p.tiles_per_task)));
  p.panel_groups = simplify(ceil_div(p.panels, Expr(p.panels_per_task)));
  // Tiles have a row each, so a product without rows is one without tasks.
  p.tasks = p.m.is_const(0) ? Expr(0) : simplify(p.batch * p.tile_blocks * p.panel_groups);
  place_scratch(p);
  return p;
}

bool suits_windows(const ContractPlan& p) {
  const auto m = p.m.as_int(), k = p.k.as_int();
  if (!m || !k || *m > kFewRows || p.b_direct) return false;
  return *k <= kWindowTerms || (*m <= kFewRows / 2 && !p.dot);
}

Kernel as_windows(const Kernel& kernel, const ContractPlan& plan) {
  const Contract& c = plan.c;
  Kernel out = kernel;
  out.domain = c.batch;
  out.domain.insert(out.domain.end(), c.m.begin(), c.m.end());
  out.domain.insert(out.domain.end(), c.n.begin(), c.n.end());
  Reduce sum;
  sum.result = c.acc;
  sum.init = zero_of(c.acc);
  sum.axes = c.k;
  sum.value = c.a * c.b;
  out.body = {Stmt{std::move(sum)}};
  out.body.insert(out.body.end(), c.epilogue.begin(), c.epilogue.end());
  return out;
}

}  // namespace ingot::cpu
