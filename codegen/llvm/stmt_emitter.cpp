#include "codegen/llvm/stmt_emitter.h"

#include <bit>

#include "codegen/llvm/math_emitter.h"
#include "compiler/expr/simplify.h"

namespace ingot::cpu {

using llvm::Value;

namespace {

bool is_arg(Combine c) { return c == Combine::ArgMax || c == Combine::ArgMin; }

}  // namespace

int StmtEmitter::width_for(const Expr& extent) const {
  const auto n = extent.as_int();
  if (!n || *n >= full_width()) return full_width();
  return std::max(2, static_cast<int>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(*n, 1)))));
}

void StmtEmitter::emit_body(const Body& body) {
  for (const Stmt& s : body) emit_stmt(s);
}

void StmtEmitter::emit_stmt(const Stmt& stmt) {
  if (auto* s = stmt.as<Let>()) return ex_.bind(s->var, ex_.value(s->value));
  if (auto* s = stmt.as<Store>()) return emit_store(*s);
  if (auto* s = stmt.as<Loop>()) return emit_loop(*s);
  if (auto* s = stmt.as<Reduce>()) return emit_reduce(*s);
  if (auto* s = stmt.as<If>()) return emit_if(*s);
  // Scratch arrays were placed before the first task (kernel_emitter.cpp).
  INGOT_CHECK(stmt.as<Note>() || stmt.as<Alloc>(), "CPU code generation: a Contract inside of another statement");
}

void StmtEmitter::emit_store(const Store& s) {
  ex_.store(s.buffer, s.index, ex_.value(s.value));
  ex_.forget();
}

void StmtEmitter::emit_if(const If& s) {
  Value* condition = ex_.value(s.condition);
  if (is_vector(condition)) {
    ExprEmitter::GuardScope guard(ex_, condition);
    return emit_body(s.body);
  }
  ir_.if_then(condition, [&] {
    ExprEmitter::Scope scope(ex_);
    emit_body(s.body);
  });
}

void StmtEmitter::serial_loops(const std::vector<Axis>& axes, size_t first, const std::function<void()>& body) {
  if (first == axes.size()) return body();
  ir_.loop(ir_.i64(0), ex_.value(axes[first].extent), 1, [&](Value* i) {
    ExprEmitter::Scope scope(ex_);
    ex_.bind(axes[first].var, i);
    serial_loops(axes, first + 1, body);
  });
}

void StmtEmitter::emit_loop(const Loop& s) {
  std::vector<Axis> axes = s.axes;
  Body body = s.body;
  simplify_axes(axes, body);
  if (ex_.in_lanes() || axes.empty()) {
    serial_loops(axes, 0, [&] {
      ExprEmitter::Scope scope(ex_);
      emit_body(body);
    });
    return;
  }
  const Axis inner = axes.back();
  axes.pop_back();
  serial_loops(axes, 0, [&] { lane_loop(inner.var, inner.extent, ir_.i64(0), ex_.value(inner.extent), body); });
}

void StmtEmitter::lane_chunks(const std::string& symbol, int width, Value* low, Value* high, bool masked,
                              const std::function<void()>& body) {
  ir_.loop(low, high, width, [&](Value* i) {
    Value* mask = masked ? ir_.first_lanes(ir_.b.CreateSub(high, i), width) : nullptr;
    ExprEmitter::LaneScope lanes(ex_, {symbol, width, i, mask});
    body();
  });
}

void StmtEmitter::lane_loop(const Expr& var, const Expr& extent, Value* low, Value* high, const Body& body) {
  const int width = width_for(extent);
  const Guards guards = find_guards(body, var.name());
  const auto run = [&] { emit_body(body); };
  const auto n = extent.as_int();
  const bool short_loop = n && *n < 4 * width;
  if (!guards.in_symbol.empty() && !short_loop) return split_loop(var, width, low, high, guards, run);
  const auto plain = [&](const std::vector<Expr>& known) {
    const auto body_with = [&] {
      ExprEmitter::AssumeScope assume(ex_, known);
      run();
    };
    // A short loop is one or two masked steps; a longer one has an unmasked part and a masked rest.
    const bool only_masked = n && *n < width;
    Value* middle =
        only_masked ? low
                    : ir_.b.CreateAdd(low, ir_.b.CreateMul(ir_.b.CreateSDiv(ir_.b.CreateSub(high, low), ir_.i64(width)),
                                                           ir_.i64(width)));
    if (!only_masked) lane_chunks(var.name(), width, low, middle, false, body_with);
    lane_chunks(var.name(), width, middle, high, true, body_with);
  };
  if (guards.uniform.empty()) return plain({});
  Value* all = nullptr;
  for (const Expr& g : guards.uniform) all = all ? ir_.b.CreateAnd(all, ex_.value(g)) : ex_.value(g);
  ir_.if_else(
      all,
      [&] {
        ExprEmitter::Scope scope(ex_);
        plain(guards.uniform);
      },
      [&] {
        ExprEmitter::Scope scope(ex_);
        lane_chunks(var.name(), width, low, high, true, run);
      });
}

/// The part of [low, high) where every guard holds; empty (low, low) when there is none.
StmtEmitter::Interior StmtEmitter::interior_of(const std::vector<Expr>& guards, const std::string& symbol, Value* low,
                                               Value* high) {
  Interior in{low, high};
  for (const Expr& g : guards) {
    // The guard as step*symbol + rest >= 0.
    const Expr slack = simplify(g.op() == ExprOp::Lt ? g.arg(1) - g.arg(0) - 1 : g.arg(1) - g.arg(0));
    const int64_t step = *linear_coefficient(slack, symbol)->as_int();
    const Expr rest = simplify(substitute(slack, {{symbol, Expr(0)}}));
    if (step > 0) in.low = ir_.max(in.low, ex_.value(simplify(ceil_div(Expr(0) - rest, Expr(step)))));
    else in.high = ir_.min(in.high, ex_.value(simplify(floor_div(rest, Expr(-step)) + 1)));
  }
  in.low = ir_.min(in.low, high);
  in.high = ir_.max(in.low, ir_.min(in.high, high));
  return in;
}

/// [low, high) as: interior without guards and masks; what is before and behind it with both.
void StmtEmitter::split_loop(const Expr& var, int width, Value* low, Value* high, const Guards& guards,
                             const std::function<void()>& body) {
  auto& b = ir_.b;
  Interior in = interior_of(guards.in_symbol, var.name(), low, high);
  Value* inside = b.CreateICmpSGT(in.high, in.low);
  for (const Expr& g : guards.uniform) inside = b.CreateAnd(inside, ex_.value(g));
  Value* steps = b.CreateSDiv(b.CreateSub(in.high, in.low), ir_.i64(width));
  inside = b.CreateAnd(inside, b.CreateICmpSGT(steps, ir_.i64(0)));
  Value* first = b.CreateSelect(inside, in.low, low);
  Value* last = b.CreateSelect(inside, b.CreateAdd(in.low, b.CreateMul(steps, ir_.i64(width))), low);
  std::vector<Expr> known = guards.in_symbol;
  known.insert(known.end(), guards.uniform.begin(), guards.uniform.end());
  lane_chunks(var.name(), width, first, last, false, [&] {
    ExprEmitter::AssumeScope assume(ex_, known);
    body();
  });
  ir_.loop(ir_.i64(0), ir_.i64(2), 1, [&](Value* side) {
    Value* left = b.CreateICmpEQ(side, ir_.i64(0));
    ExprEmitter::Scope scope(ex_);
    lane_chunks(var.name(), width, b.CreateSelect(left, low, last), b.CreateSelect(left, first, high), true, body);
  });
}

void StmtEmitter::emit_reduce(const Reduce& s) {
  Reduce r = s;
  Bindings zeros;
  drop_unit_axes(r.axes, zeros);
  r.value = zeros.empty() ? r.value : simplify(substitute(r.value, zeros));
  if (!is_arg(r.combine)) {
    const Bindings merged = merge_axes(r.axes, {r.value});
    if (!merged.empty()) r.value = simplify(substitute(r.value, merged));
  }
  const bool serial = ex_.in_lanes() || is_arg(r.combine) || r.axes.empty();
  ex_.bind(s.result, serial ? reduce_serial(r) : reduce_lanes(r));
}

Value* StmtEmitter::reduce_serial(const Reduce& s) {
  const DType type = s.value.type();
  const int width = ex_.in_lanes() ? ex_.lanes().width : 1;
  Accumulator acc;
  Value* start = is_arg(s.combine) ? identity_value(ir_, s.combine, type) : ex_.vector(s.init);
  acc.best = ir_.variable(ir_.vector_of(ir_.scalar(type), width), ir_.widen(start, width));
  if (is_arg(s.combine)) {
    llvm::Type* positions = ir_.vector_of(ir_.b.getInt64Ty(), width);
    acc.where = ir_.variable(positions, llvm::Constant::getNullValue(positions));
  }
  serial_loops(s.axes, 0, [&] {
    ExprEmitter::Scope scope(ex_);
    Value* x = ex_.vector(s.value);
    if (!is_arg(s.combine)) {
      Value* old = ir_.b.CreateLoad(x->getType(), acc.best);
      ir_.b.CreateStore(combine_values(ir_, s.combine, type, old, x), acc.best);
      return;
    }
    Expr position = Expr(0);
    for (const Axis& a : s.axes) position = position * a.extent + a.var;
    update_extreme(s, acc, x, ex_.vector(position));
  });
  Value* result = is_arg(s.combine) ? acc.where : acc.best;
  llvm::Type* element = is_arg(s.combine) ? ir_.b.getInt64Ty() : ir_.scalar(type);
  return ir_.b.CreateLoad(ir_.vector_of(element, width), result);
}

void StmtEmitter::update_extreme(const Reduce& s, const Accumulator& acc, Value* x, Value* position) {
  auto& b = ir_.b;
  const DType type = s.value.type();
  const bool real = is_float(type), most = s.combine == Combine::ArgMax;
  Value* best = b.CreateLoad(x->getType(), acc.best);
  Value* where = b.CreateLoad(position->getType(), acc.where);
  Value *low = most ? best : x, *high = most ? x : best;
  Value* better;
  if (real) {
    better = s.last ? b.CreateFCmpOGE(high, low) : b.CreateFCmpOGT(high, low);
    Value* nan = b.CreateFCmpUNO(x, x);
    better = b.CreateOr(better, s.last ? nan : b.CreateAnd(nan, b.CreateFCmpORD(best, best)));
  } else if (is_signed(type)) {
    better = s.last ? b.CreateICmpSGE(high, low) : b.CreateICmpSGT(high, low);
  } else {
    better = s.last ? b.CreateICmpUGE(high, low) : b.CreateICmpUGT(high, low);
  }
  b.CreateStore(b.CreateSelect(better, x, best), acc.best);
  b.CreateStore(b.CreateSelect(better, position, where), acc.where);
}

Value* StmtEmitter::fold_lanes(Combine combine, DType type, Value* v) {
  const auto width = llvm::cast<llvm::FixedVectorType>(v->getType())->getNumElements();
  for (unsigned half = width / 2; half > 0; half /= 2) {
    std::vector<int> upper(width, -1);
    for (unsigned i = 0; i < half; ++i) upper[i] = static_cast<int>(half + i);
    v = combine_values(ir_, combine, type, v, ir_.b.CreateShuffleVector(v, upper));
  }
  return ir_.b.CreateExtractElement(v, uint64_t{0});
}

Value* StmtEmitter::reduce_lanes(const Reduce& s) {
  const DType type = s.value.type();
  const Axis inner = s.axes.back();
  const std::vector<Axis> outer(s.axes.begin(), s.axes.end() - 1);
  const int width = width_for(inner.extent);
  const auto n = inner.extent.as_int();
  // Several accumulators hide the latency of an addition.
  const int copies = n && *n < 4 * width ? 1 : count_flops(s.value) <= 8 ? 4 : 2;
  llvm::Type* vector = ir_.vector_of(ir_.scalar(type), width);
  Value* identity = ir_.widen(identity_value(ir_, s.combine, type), width);
  std::vector<Value*> acc;
  for (int u = 0; u < copies; ++u) acc.push_back(ir_.variable(vector, identity));
  const auto add = [&](Value* variable, Value* x) {
    Value* old = ir_.b.CreateLoad(vector, variable);
    ir_.b.CreateStore(combine_values(ir_, s.combine, type, old, x), variable);
  };
  serial_loops(outer, 0, [&] {
    Value* end = ex_.value(inner.extent);
    const int step = width * copies;
    Value* middle = ir_.b.CreateMul(ir_.b.CreateSDiv(end, ir_.i64(step)), ir_.i64(step));
    ir_.loop(ir_.i64(0), middle, step, [&](Value* i) {
      for (int u = 0; u < copies; ++u) {
        Value* base = u ? ir_.b.CreateAdd(i, ir_.i64(u * width)) : i;
        ExprEmitter::LaneScope lanes(ex_, {inner.var.name(), width, base, nullptr});
        add(acc[static_cast<size_t>(u)], ex_.vector(s.value));
      }
    });
    lane_chunks(inner.var.name(), width, middle, end, true,
                [&] { add(acc[0], ir_.b.CreateSelect(ex_.lanes().mask, ex_.vector(s.value), identity)); });
  });
  Value* total = ir_.b.CreateLoad(vector, acc[0]);
  for (int u = 1; u < copies; ++u)
    total = combine_values(ir_, s.combine, type, total, ir_.b.CreateLoad(vector, acc[static_cast<size_t>(u)]));
  return combine_values(ir_, s.combine, type, ex_.value(s.init), fold_lanes(s.combine, type, total));
}

}  // namespace ingot::cpu
