#include "codegen/cuda/crossed_form.h"

#include <algorithm>

#include "codegen/cuda/plan_cuda.h"
#include "codegen/lower/kernel_walk.h"
#include "codegen/text/c_printer.h"
#include "compiler/expr/simplify.h"

namespace ingot {

namespace {

constexpr int64_t kFarApart = 16;     // bytes: half a sector of memory
constexpr int64_t kLeastAcross = 8;   // extent of the axis of loads
constexpr int64_t kGuess = 256;       // of an extent without a bound
constexpr size_t kMostStaged = 3;
constexpr int kWord = 4;              // bytes of a bank of shared memory
constexpr int64_t kBytesOfThread = 32;

bool is_flat(const Body& body) {
  return std::all_of(body.begin(), body.end(), [](const Stmt& s) { return s.as<Let>() || s.as<Store>(); });
}

bool steps_by_one(const Expr& index, const Axis& axis) {
  const auto c = linear_coefficient(index, axis.var.name());
  return c && c->is_const(1);
}

/// Finds what to stage in the expressions of a flat kernel.
class Finder {
 public:
  Finder(const Kernel& kernel, CrossedForm& form) : kernel_(kernel), form_(form) {
    for (const Axis& a : kernel.domain) known_.insert(a.var.name());
    for (const Expr& d : kernel.dims) known_.insert(d.name());
  }

  /// True for a load of neighbours along an axis where those along the last one are far apart; the first decides which axis that is.
  bool crosses(const Expr& e) {
    if (e.op() != ExprOp::Load || e.buffer() >= static_cast<int>(kernel_.buffers.size())) return false;
    const auto far = linear_coefficient(e.arg(0), form_.last.var.name());
    const auto size = static_cast<int64_t>(size_of(kernel_.buffers[static_cast<size_t>(e.buffer())].type));
    if (!far || std::abs(far->as_int().value_or(kFarApart)) * size < kFarApart) return false;
    for (const Axis& a : kernel_.domain) {
      if (a.var.same(form_.last.var) || !steps_by_one(e.arg(0), a) || estimate(a.extent, kGuess) < kLeastAcross)
        continue;
      if (form_.across.var.valid() && !form_.across.var.same(a.var)) continue;
      if (!knows_all_of(e)) return false;
      form_.across = a;
      return true;
    }
    return false;
  }

  /// What is reached only where a condition holds is loaded there only: with its condition, if it is zero otherwise.
  void find(const Expr& e, bool guarded) {
    if (!guarded && crosses(e)) return stage(e, e);
    if (e.op() != ExprOp::Select) {
      for (const Expr& a : e.args()) find(a, guarded);
      return;
    }
    find(e.arg(0), guarded);
    for (const size_t i : {1, 2})
      if (!guarded && e.arg(3 - i).is_const() && e.arg(3 - i).float_value() == 0 && knows_all_of(e) &&
          crosses(e.arg(i)))
        return stage(e, e.arg(i));
    find(e.arg(1), true);
    find(e.arg(2), true);
  }

 private:
  bool knows_all_of(const Expr& e) const {
    bool known = true;
    int loads = 0;
    visit(e, [&](const Expr& x) {
      known &= x.op() != ExprOp::Symbol || known_.count(x.name()) > 0;
      loads += x.op() == ExprOp::Load;
    });
    return known && loads == 1;
  }
  void stage(const Expr& e, const Expr& load) {
    if (std::any_of(form_.staged.begin(), form_.staged.end(), [&](const Expr& s) { return s.same(e); })) return;
    form_.staged.push_back(e);
    form_.types.push_back(kernel_.buffers[static_cast<size_t>(load.buffer())].type);
  }

  const Kernel& kernel_;
  CrossedForm& form_;
  std::unordered_set<std::string> known_;
};

void set_tile(Schedule& s, int64_t side, int64_t across, int64_t last) {
  const auto within = [](int64_t extent, int64_t most) { return static_cast<int>(std::min((extent + 7) / 8 * 8, most)); };
  s.tile.m = s.tile.n = static_cast<int>(side);
  if (last < side) {
    s.tile.n = static_cast<int>(last);
    s.tile.m = within(across, power_of_two_below(side * side / last));
  } else if (across < side) {
    s.tile.m = static_cast<int>(across);
    s.tile.n = within(last, power_of_two_below(side * side / across));
  }
}

/// Neighbours across follow each other where the last of one is stored: positions along both are one axis.
bool is_joined(const Kernel& kernel, const CrossedForm& form, int64_t tile_n) {
  if (!form.last.extent.is_const(tile_n)) return false;
  bool joined = true;
  each_access(kernel.body, [&](int, const Expr& index, bool is_store) {
    if (!is_store) return;
    const auto c = linear_coefficient(index, form.across.var.name());
    joined &= c && c->is_const(tile_n);
  });
  return joined;
}

/// The widest vector of results of a tile.
int vector_of_results(const Kernel& kernel, const CrossedForm& form, const Schedule& s) {
  const CrossedTile tile = crossed_tile(kernel, form, s);
  const Axis& inner = tile.points.back();
  const Expr whole = tile.points.size() > 1 ? form.last.extent : simplify(form.last.extent * form.across.extent);
  int width = widest_vector(kernel, tile.body, inner.var, inner.extent, 8);
  while (!is_multiple(whole, width)) width /= 2;
  return width;
}

}  // namespace

std::optional<CrossedForm> crossed_form(const Kernel& kernel) {
  if (kernel.domain.size() < 2 || !is_flat(kernel.body)) return std::nullopt;
  CrossedForm form;
  form.last = kernel.domain.back();
  std::vector<bool> stored(kernel.buffers.size(), false);
  bool in_order = true;
  each_access(kernel.body, [&](int buffer, const Expr& index, bool is_store) {
    if (!is_store) return;
    in_order &= steps_by_one(index, form.last);
    stored[static_cast<size_t>(buffer)] = true;
  });
  if (!in_order) return std::nullopt;
  Finder finder(kernel, form);
  each_expr(kernel.body, [&](const Expr& e) { finder.find(e, false); });
  if (form.staged.empty() || form.staged.size() > kMostStaged) return std::nullopt;
  for (const Expr& e : form.staged)
    visit(e, [&](const Expr& x) { in_order &= x.op() != ExprOp::Load || !stored[static_cast<size_t>(x.buffer())]; });
  if (!in_order) return std::nullopt;  // what another point has stored
  for (const Axis& a : kernel.domain)
    if (!a.var.same(form.across.var) && !a.var.same(form.last.var)) form.outer.push_back(a);
  return form;
}

CrossedTile crossed_tile(const Kernel& kernel, const CrossedForm& form, const Schedule& s) {
  CrossedTile tile;
  const Expr m = s.tile.m, n = s.tile.n;
  const auto position = [](const Axis& axis, const char* what, const Expr& extent) {
    return Expr::index(axis.var.name() + what, extent);
  };
  tile.blocks = form.outer;
  const auto start = [&](const Axis& axis, const Expr& step) {
    const Expr number = position(axis, "_tile", simplify(ceil_div(axis.extent, step)));
    tile.blocks.push_back({number, number.extent()});
    return number.extent().is_const(1) ? Expr(0) : number * step;
  };
  tile.across_start = start(form.across, m);
  tile.last_start = start(form.last, n);
  Expr across_in = position(form.across, "_in", m), last_in = position(form.last, "_in", n);
  if (is_joined(kernel, form, s.tile.n)) {
    const Expr both = position(form.across, "_both", m * n);
    tile.points = {{both, both.extent()}};
    across_in = floor_div(both, n);
    last_in = floor_mod(both, n);
  } else {
    tile.points = {{across_in, m}, {last_in, n}};
  }
  tile.across = tile.across_start + across_in;
  tile.last = tile.last_start + last_in;
  ExprMap<Expr> staged;
  for (size_t i = 0; i < form.staged.size(); ++i) {
    const Expr& e = form.staged[i];
    const auto size = static_cast<int64_t>(size_of(form.types[i]));
    CrossedTile::Staged of;
    of.vector = widest_vector(kernel, as_body(e), form.across.var, form.across.extent, 8);
    while (s.tile.m % of.vector != 0) of.vector /= 2;
    // Neighbours along the stores are in banks next to each other.
    of.pitch = (s.tile.m * size + kWord - 1) / kWord * kWord / size + std::max<int64_t>(kWord / size, 1);
    of.offset = tile.shared_bytes;
    tile.shared_bytes += (of.pitch * s.tile.n * size + 15) / 16 * 16;
    staged[e] = Expr::load(static_cast<int>(kernel.buffers.size() + i), e.type(), last_in * of.pitch + across_in);
    tile.staged.push_back(of);
  }
  const Bindings places{{form.across.var.name(), tile.across}, {form.last.var.name(), tile.last}};
  const auto in_tile = [&](const Expr& e) {
    const Expr apart = rewrite(e, [&](const Expr& x) {
      const auto found = staged.find(x);
      return found == staged.end() ? Expr() : found->second;
    });
    return at(apart, places);
  };
  for (const Stmt& stmt : kernel.body) {
    if (const auto* l = stmt.as<Let>()) tile.body.push_back({Let{l->var, in_tile(l->value)}});
    if (const auto* st = stmt.as<Store>())
      tile.body.push_back({Store{st->buffer, simplify(in_tile(st->index)), in_tile(st->value)}});
  }
  return tile;
}

std::vector<Schedule> plan_crossed(const Kernel& kernel, const TargetTraits& target) {
  const auto form = crossed_form(kernel);
  if (!form) return {};
  size_t size = 1;
  for (const DType t : form->types) size = std::max(size, size_of(t));
  const int64_t across = estimate(form->across.extent, kGuess), last = estimate(form->last.extent, kGuess);
  if (across < 1 || last < 1) return {};  // nothing to do
  const auto schedule = [&](int64_t side) {
    Schedule s;
    s.kind = Schedule::Kind::Crossed;
    set_tile(s, side, across, last);
    s.vector = vector_of_results(kernel, *form, s);
    s.threads = static_cast<int>(std::clamp<int64_t>(
        power_of_two_below(int64_t{s.tile.m} * s.tile.n * static_cast<int64_t>(size) / kBytesOfThread), 128, 256));
    return s;
  };
  // Small tiles where large ones leave SMs without work.
  const int64_t side = size > 2 ? 32 : 64, below = 2 * target.parallel_units * side * side;
  const Expr total = total_of(kernel.domain);
  if (const auto all = total.as_int()) return {schedule(*all < below ? side / 2 : side)};
  Schedule small = schedule(side / 2), large = schedule(side);
  small.below = large.from = below;
  return {small, large};
}

}  // namespace ingot
