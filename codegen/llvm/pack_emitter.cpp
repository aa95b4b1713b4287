#include "codegen/llvm/pack_emitter.h"

#include <algorithm>
#include <set>

#include "compiler/expr/simplify.h"

namespace ingot::cpu {

using llvm::Value;

namespace {

/// True when some load of e is contiguous along the last k axis and none is along the last side axis.
bool is_along_k(const PackJob& job) {
  bool k_contiguous = false, side_contiguous = false;
  visit(job.element, [&](const Expr& e) {
    if (e.op() != ExprOp::Load || has_load(e.arg(0))) return;
    const auto step = [&](const Axis& a) {
      const auto s = linear_coefficient(e.arg(0), a.var.name());
      return s && s->is_const(1);
    };
    k_contiguous |= step(job.k.back());
    side_contiguous |= step(job.side.back());
  });
  return k_contiguous && !side_contiguous;
}

/// The k axes, those that a guard reads first: masks then stay the same in the inner loops.
std::vector<size_t> loop_order(const PackJob& job) {
  std::set<std::string> guarded;
  visit(job.element, [&](const Expr& e) {
    if (e.op() == ExprOp::Select)
      for (const Axis& a : job.k)
        if (depends_on(e.arg(0), a.var.name())) guarded.insert(a.var.name());
  });
  std::vector<size_t> order;
  for (int pass = 0; pass < 2; ++pass)
    for (size_t i = 0; i < job.k.size(); ++i)
      if (guarded.count(job.k[i].var.name()) == (pass == 0)) order.push_back(i);
  return order;
}

}  // namespace

void bind_position(IrTools& ir, ExprEmitter& ex, const std::vector<Axis>& axes, Value* flat) {
  for (size_t i = axes.size(); i-- > 0;) {
    if (i == 0) {
      ex.bind(axes[0].var, flat);
      return;
    }
    Value* extent = ex.value(axes[i].extent);
    Value* quotient = ir.b.CreateUDiv(flat, extent);
    ex.bind(axes[i].var, ir.b.CreateSub(flat, ir.b.CreateMul(quotient, extent)));
    flat = quotient;
  }
}

void for_runs(IrTools& ir, ExprEmitter& ex, const std::vector<Axis>& axes, Value* first, Value* count,
              const std::function<void(Value*, Value*, Value*)>& visit) {
  if (axes.size() == 1) return visit(ir.i64(0), first, count);
  const std::vector<Axis> outer(axes.begin(), axes.end() - 1);
  Value* extent = ex.value(axes.back().extent);
  ir.stepping_loop(ir.i64(0), count, [&](Value* offset) {
    ExprEmitter::Scope scope(ex);
    Value* flat = ir.b.CreateAdd(first, offset);
    Value* quotient = ir.b.CreateUDiv(flat, extent);
    Value* start = ir.b.CreateSub(flat, ir.b.CreateMul(quotient, extent));
    bind_position(ir, ex, outer, quotient);
    Value* length = ir.min(ir.b.CreateSub(extent, start), ir.b.CreateSub(count, offset));
    visit(offset, start, length);
    return length;
  });
}

void PackEmitter::emit(const PackJob& job) {
  const bool whole = !job.k_first;
  if (!is_along_k(job) || !(whole || job.k.size() == 1)) return along_side(job);
  PackJob narrow = job;
  const auto extent = job.k.back().extent.as_int();
  while (extent && *extent <= narrow.width / 2 && narrow.width > 4) narrow.width /= 2;
  along_k(narrow);
}

/// Calls body for every k position, k axes bound.
void PackEmitter::for_k(const PackJob& job, const KBody& body) {
  if (job.k_first) {
    ir_.loop(ir_.i64(0), job.k_count, 1, [&](Value* row) {
      ExprEmitter::Scope scope(ex_);
      bind_position(ir_, ex_, job.k, ir_.b.CreateAdd(job.k_first, row));
      body(row);
    });
    return;
  }
  const std::vector<size_t> order = loop_order(job);
  std::vector<Value*> strides(job.k.size());
  Value* stride = ir_.i64(1);
  for (size_t i = job.k.size(); i-- > 0;) {
    strides[i] = stride;
    stride = ir_.b.CreateMul(stride, ex_.value(job.k[i].extent));
  }
  const std::function<void(size_t, Value*)> nest = [&](size_t depth, Value* row) {
    if (depth == order.size()) return body(row);
    const size_t axis = order[depth];
    ir_.loop(ir_.i64(0), ex_.value(job.k[axis].extent), 1, [&](Value* i) {
      ExprEmitter::Scope scope(ex_);
      ex_.bind(job.k[axis].var, i);
      nest(depth + 1, ir_.b.CreateAdd(row, ir_.b.CreateMul(i, strides[axis])));
    });
  };
  nest(0, ir_.i64(0));
}

void PackEmitter::store_row(const PackJob& job, Value* v, Value* row, Value* column, Value* mask) {
  llvm::Type* element = ir_.scalar(job.element.type());
  Value* at = ir_.b.CreateAdd(ir_.b.CreateMul(row, ir_.i64(job.stride)), column);
  Value* p = ir_.b.CreateGEP(element, job.to, at);
  const llvm::Align align(size_of(job.element.type()));
  if (mask) ir_.b.CreateMaskedStore(v, p, align, mask);
  else ir_.b.CreateAlignedStore(v, p, align);
}

void PackEmitter::along_side(const PackJob& job) {
  const std::string& symbol = job.side.back().var.name();
  // Short runs go by short vectors: a store that crosses a cache line costs twice.
  const auto extent = job.side.back().extent.as_int();
  int width = job.width;
  while (job.side.size() > 1 && extent && *extent <= width / 2 && width > 4) width /= 2;
  for_runs(ir_, ex_, job.side, job.first, job.count, [&](Value* offset, Value* start, Value* length) {
    ir_.loop(ir_.i64(0), length, width, [&](Value* s) {
      Value* base = ir_.b.CreateAdd(start, s);
      Value* column = ir_.b.CreateAdd(offset, s);
      Value* left = ir_.b.CreateSub(length, s);
      const auto copy = [&](Value* mask, const std::vector<Expr>& known) {
        ExprEmitter::LaneScope lanes(ex_, {symbol, width, base, mask});
        ExprEmitter::AssumeScope assume(ex_, known);
        for_k(job, [&](Value* row) { store_row(job, ex_.vector(job.element), row, column, mask); });
      };
      std::vector<Expr> known;
      Value* inside = interior(job, base, width, known);
      ir_.if_else(
          ir_.b.CreateAnd(inside, ir_.b.CreateICmpSGE(left, ir_.i64(width))), [&] { copy(nullptr, known); },
          [&] { copy(ir_.first_lanes(left, width), {}); });
    });
  });
}

/// Whether `width` positions from `base` on pass all guards of the element for every k; `known` lists those guards.
Value* PackEmitter::interior(const PackJob& job, Value* base, int width, std::vector<Expr>& known) {
  const Expr& lane = job.side.back().var;
  const Guards guards = find_guards({Stmt{Let{Expr::local("element", job.element.type()), job.element}}}, "");
  Value* all = ir_.b.getTrue();
  ExprEmitter::Scope scope(ex_);
  ex_.bind(lane, base);
  for (const Expr& g : guards.uniform) {
    // The guard as slack >= 0, at the lane and the k positions where the slack is least.
    Expr least = simplify(g.op() == ExprOp::Lt ? g.arg(1) - g.arg(0) - 1 : g.arg(1) - g.arg(0));
    bool linear = true;
    const auto lower = [&](const Expr& symbol, const Expr& last) {
      const auto step = linear_coefficient(least, symbol.name());
      linear = linear && step && step->as_int();
      return linear && *step->as_int() < 0 ? *step * last : Expr(0);
    };
    Expr change = lower(lane, Expr(width - 1));
    Bindings zeros;
    for (const Axis& a : job.k) {
      change = change + lower(a.var, a.extent - 1);
      zeros[a.var.name()] = Expr(0);
    }
    if (!linear) continue;
    known.push_back(g);
    all = ir_.b.CreateAnd(all, ex_.value(le(Expr(0), simplify(substitute(least, zeros) + change))));
  }
  return all;
}

/// Vectors along k for `width` side positions at a time, transposed in registers. Rows behind the last k position may
/// be written: later chunks overwrite them, and the panel has slack for the last.
void PackEmitter::along_k(const PackJob& job) {
  const Axis last = job.k.back();
  ir_.loop(ir_.i64(0), job.count, job.width, [&](Value* group) {
    PackJob outer = job;
    outer.k.pop_back();
    const auto chunks = [&](Value* row_base, Value* k_first, Value* k_end) {
      const auto row_of = [&](Value* k) { return ir_.b.CreateAdd(row_base, ir_.b.CreateSub(k, k_first)); };
      Value* steps = ir_.b.CreateSDiv(ir_.b.CreateSub(k_end, k_first), ir_.i64(job.width));
      Value* middle = ir_.b.CreateAdd(k_first, ir_.b.CreateMul(steps, ir_.i64(job.width)));
      ir_.loop(k_first, middle, job.width, [&](Value* k) { k_chunk(job, group, row_of(k), k, nullptr); });
      ir_.loop(middle, k_end, job.width, [&](Value* k) {
        k_chunk(job, group, row_of(k), k, ir_.first_lanes(ir_.b.CreateSub(k_end, k), job.width));
      });
    };
    if (job.k_first) return chunks(ir_.i64(0), job.k_first, ir_.b.CreateAdd(job.k_first, job.k_count));
    Value* extent = ex_.value(last.extent);
    if (outer.k.empty()) return chunks(ir_.i64(0), ir_.i64(0), extent);
    Value* outer_count = ex_.value(simplify(product(std::vector<Expr>([&] {
      std::vector<Expr> e;
      for (const Axis& a : outer.k) e.push_back(a.extent);
      return e;
    }()))));
    ir_.loop(ir_.i64(0), outer_count, 1, [&](Value* i) {
      ExprEmitter::Scope scope(ex_);
      bind_position(ir_, ex_, outer.k, i);
      chunks(ir_.b.CreateMul(i, extent), ir_.i64(0), extent);
    });
  });
}

void PackEmitter::k_chunk(const PackJob& job, Value* group, Value* row, Value* k, Value* mask) {
  ExprEmitter::LaneScope lanes(ex_, {job.k.back().var.name(), job.width, k, mask});
  std::vector<Value*> columns;
  Value* most = ir_.b.CreateSub(job.count, ir_.i64(1));
  for (int j = 0; j < job.width; ++j) {
    ExprEmitter::Scope scope(ex_);
    Value* position = ir_.min(ir_.b.CreateAdd(group, ir_.i64(j)), most);
    bind_position(ir_, ex_, job.side, ir_.b.CreateAdd(job.first, position));
    columns.push_back(ex_.vector(job.element));
  }
  const bool aligned = job.stride % job.width == 0;
  Value* columns_left = aligned ? nullptr : ir_.first_lanes(ir_.b.CreateSub(ir_.i64(job.stride), group), job.width);
  const std::vector<Value*> rows = transpose(std::move(columns));
  for (int i = 0; i < job.width; ++i)
    store_row(job, rows[static_cast<size_t>(i)], ir_.b.CreateAdd(row, ir_.i64(i)), group, columns_left);
}

/// Swaps blocks of 1, 2, 4, … lanes between pairs of vectors that are as far apart.
std::vector<Value*> PackEmitter::transpose(std::vector<Value*> rows) {
  const auto width = static_cast<int>(rows.size());
  for (int distance = 1; distance < width; distance *= 2) {
    std::vector<int> low, high;
    for (int lane = 0; lane < width; ++lane) {
      low.push_back(lane & distance ? width + (lane ^ distance) : lane);
      high.push_back(lane & distance ? width + lane : lane ^ distance);
    }
    for (int i = 0; i < width; ++i) {
      if (i & distance) continue;
      auto &a = rows[static_cast<size_t>(i)], &b2 = rows[static_cast<size_t>(i + distance)];
      Value* first = ir_.b.CreateShuffleVector(a, b2, low);
      b2 = ir_.b.CreateShuffleVector(a, b2, high);
      a = first;
    }
  }
  return rows;
}

}  // namespace ingot::cpu
