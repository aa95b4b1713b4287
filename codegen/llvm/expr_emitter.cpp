#include "codegen/llvm/expr_emitter.h"

#include "codegen/llvm/convert_emitter.h"
#include "codegen/llvm/math_emitter.h"
#include "compiler/expr/simplify.h"

namespace ingot::cpu {

using llvm::Value;

namespace {

constexpr int kCostlyFlops = 8;  // a side of a uniform Select worth a branch

bool is_index_arithmetic(const Expr& e) { return e.type() == DType::I64 && !has_load(e); }

bool is_compare(ExprOp op) { return op == ExprOp::Eq || op == ExprOp::Ne || op == ExprOp::Lt || op == ExprOp::Le; }

llvm::CmpInst::Predicate predicate(ExprOp op, bool real, bool sign) {
  using P = llvm::CmpInst;
  switch (op) {
    case ExprOp::Eq: return real ? P::FCMP_OEQ : P::ICMP_EQ;
    case ExprOp::Ne: return real ? P::FCMP_UNE : P::ICMP_NE;
    case ExprOp::Lt: return real ? P::FCMP_OLT : sign ? P::ICMP_SLT : P::ICMP_ULT;
    default: return real ? P::FCMP_OLE : sign ? P::ICMP_SLE : P::ICMP_ULE;
  }
}

}  // namespace

void conjuncts(const Expr& condition, std::vector<Expr>& out) {
  if (condition.op() == ExprOp::And && condition.type() == DType::Bool) {
    conjuncts(condition.arg(0), out);
    conjuncts(condition.arg(1), out);
  } else {
    out.push_back(condition);
  }
}

bool has_load(const Expr& e) {
  bool found = false;
  visit(e, [&](const Expr& x) { found = found || x.op() == ExprOp::Load; });
  return found;
}

ExprEmitter::GuardScope::GuardScope(ExprEmitter& e, Value* condition) : e_(e), saved_(e.guard_), scope_(e) {
  e_.guard_ = e_.guard_ ? e_.ir_.b.CreateAnd(e_.guard_, condition) : condition;
}

Value* ExprEmitter::mask() {
  if (!lanes_.mask) return guard_;
  return guard_ ? ir_.b.CreateAnd(guard_, lanes_.mask) : lanes_.mask;
}

bool ExprEmitter::varies(const Expr& e) {
  if (!in_lanes()) return false;
  for (const Memo& m : scopes_)
    if (auto found = m.varying.find(e.id()); found != m.varying.end()) return found->second.second;
  bool result = false;
  if (e.op() == ExprOp::Symbol) {
    if (e.name() == lanes_.symbol) result = true;
    else if (auto bound = bound_.find(e.name()); bound != bound_.end()) result = is_vector(bound->second);
  }
  for (const Expr& a : e.args()) result = result || varies(a);
  scopes_.back().varying.emplace(e.id(), std::pair(e, result));
  return result;
}

Value* ExprEmitter::value(const Expr& e) {
  for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope)
    if (auto found = scope->values.find(e.id()); found != scope->values.end()) return found->second.second;
  Value* v = emit(e);
  scopes_.back().values.emplace(e.id(), std::pair(e, v));
  return v;
}

Value* ExprEmitter::emit_symbol(const Expr& e) {
  if (in_lanes() && e.name() == lanes_.symbol) return linear_vector({lanes_.base, 1, nullptr});
  const auto found = bound_.find(e.name());
  INGOT_CHECK(found != bound_.end(), "CPU code generation: unbound symbol " + e.name());
  return found->second;
}

std::optional<ExprEmitter::Linear> ExprEmitter::linear_in_lane(const Expr& e) {
  if (!is_index_arithmetic(e)) return std::nullopt;
  const auto coefficient = linear_coefficient(e, lanes_.symbol);
  if (!coefficient || varies(*coefficient)) return std::nullopt;
  const Expr rest = simplify(substitute(e, {{lanes_.symbol, Expr(0)}}));
  if (varies(rest)) return std::nullopt;
  Linear out;
  out.constant_step = coefficient->as_int();
  Value* scaled = out.constant_step == 1 ? lanes_.base : nullptr;
  if (!scaled) {
    out.step = value(*coefficient);
    scaled = ir_.b.CreateMul(out.step, lanes_.base);
  }
  out.base = rest.is_const(0) ? scaled : ir_.b.CreateAdd(value(rest), scaled);
  return out;
}

Value* ExprEmitter::linear_vector(const Linear& linear) {
  Value* lane = ir_.lane_numbers(ir_.b.getInt64Ty(), lanes_.width);
  if (linear.step) lane = ir_.b.CreateMul(lane, ir_.widen(linear.step, lanes_.width));
  return ir_.b.CreateAdd(ir_.widen(linear.base, lanes_.width), lane);
}

Value* ExprEmitter::emit(const Expr& e) {
  switch (e.op()) {
    case ExprOp::Const:
      if (is_float(e.type())) return llvm::ConstantFP::get(ir_.scalar(e.type()), e.float_value());
      return llvm::ConstantInt::get(ir_.scalar(e.type()), static_cast<uint64_t>(e.int_value()));
    case ExprOp::Symbol: return emit_symbol(e);
    case ExprOp::Load: return load(e.buffer(), e.arg(0));
    case ExprOp::Select: return emit_select(e);
    case ExprOp::Not:
    case ExprOp::Cast:
    case ExprOp::Round:
    case ExprOp::Bits: return emit_unary(e);
    case ExprOp::Read: break;
    case ExprOp::Call: {
      std::vector<Value*> args;
      const bool wide = varies(e);
      for (const Expr& a : e.args()) args.push_back(wide ? vector(a) : value(a));
      return call_function(ir_, e.fn(), e.type(), args);
    }
    default:
      if (is_compare(e.op())) return emit_compare(e);
      if (in_lanes() && e.type() == DType::I64 && varies(e))
        if (auto linear = linear_in_lane(e)) return linear_vector(*linear);
      return emit_binary(e);
  }
  INGOT_CHECK(false, "CPU code generation: a Read is left in a kernel");
}

Value* ExprEmitter::emit_unary(const Expr& e) {
  Value* a = value(e.arg(0));
  const DType from = e.arg(0).type();
  switch (e.op()) {
    case ExprOp::Not: return ir_.b.CreateNot(a);
    case ExprOp::Cast:
      if (is_float(from) && (e.type() == DType::I64 || e.type() == DType::I32) && is_small_number(e.arg(0)))
        return ir_.b.CreateFPToSI(a, ir_.vector_of(ir_.scalar(e.type()), is_vector(a) ? lanes_.width : 1));
      return cast_value(ir_, from, e.type(), a);
    case ExprOp::Round: return from_storage(ir_, e.rounded_to(), to_storage(ir_, e.rounded_to(), a));
    default: {
      llvm::Type* target = ir_.vector_of(ir_.scalar(e.type()), is_vector(a) ? lanes_.width : 1);
      return ir_.b.CreateBitCast(a, target);
    }
  }
}

/// Rounds both sides first: x - max(x) is 0 for the largest x wherever it is computed, in a softmax's sum as in its quotients, even
/// where x is a product that some other place would fuse with the subtraction.
Value* ExprEmitter::difference(Value* x, Value* y) {
  const llvm::IRBuilderBase::FastMathFlagGuard guard(ir_.b);
  ir_.b.setFastMathFlags({});
  return ir_.b.CreateFSub(x, y);
}

Value* ExprEmitter::emit_binary(const Expr& e) {
  auto& b = ir_.b;
  const bool wide = varies(e);
  Value* x = wide ? vector(e.arg(0)) : value(e.arg(0));
  Value* y = wide ? vector(e.arg(1)) : value(e.arg(1));
  const bool real = is_float(e.type()), sign = is_signed(e.type());
  switch (e.op()) {
    case ExprOp::Add: return combine_values(ir_, Combine::Sum, e.type(), x, y);
    case ExprOp::Sub: return real ? difference(x, y) : b.CreateSub(x, y);
    case ExprOp::Mul: return combine_values(ir_, Combine::Product, e.type(), x, y);
    case ExprOp::Div:
    case ExprOp::Rem:
    case ExprOp::FloorDiv:
    case ExprOp::FloorMod:
      return is_index_arithmetic(e) ? divide_index(ir_, e.op(), x, y) : divide(ir_, e.op(), e.type(), x, y);
    case ExprOp::Min: return minimum(ir_, e.type(), x, y);
    case ExprOp::Max: return maximum(ir_, e.type(), x, y);
    case ExprOp::And: return b.CreateAnd(x, y);
    case ExprOp::Or: return b.CreateOr(x, y);
    case ExprOp::Xor: return b.CreateXor(x, y);
    case ExprOp::Shl:
    case ExprOp::Shr: {
      // A shift by the width or more is poison in LLVM: it gives 0 here (all sign bits for signed right shifts).
      const unsigned bits = x->getType()->getScalarSizeInBits();
      llvm::Constant* limit = llvm::ConstantInt::get(y->getType(), bits - 1);
      Value* over = b.CreateICmpUGT(y, limit);
      Value* count = b.CreateSelect(over, limit, y);
      if (e.op() == ExprOp::Shr && sign) return b.CreateAShr(x, count);
      Value* shifted = e.op() == ExprOp::Shl ? b.CreateShl(x, count) : b.CreateLShr(x, count);
      return b.CreateSelect(over, llvm::Constant::getNullValue(x->getType()), shifted);
    }
    default: break;
  }
  INGOT_CHECK(false, "CPU code generation: unexpected operation");
}

Value* ExprEmitter::emit_compare(const Expr& e) {
  if (Value* v = emit_lane_compare(e)) return v;
  const bool wide = varies(e);
  const DType type = e.arg(0).type();
  Value* x = wide ? vector(e.arg(0)) : value(e.arg(0));
  Value* y = wide ? vector(e.arg(1)) : value(e.arg(1));
  const auto p = predicate(e.op(), is_float(type), is_signed(type));
  return is_float(type) ? ir_.b.CreateFCmp(p, x, y) : ir_.b.CreateICmp(p, x, y);
}

/// a < b of indices linear in the lane: (a - b) clamped to 32 bits plus step*lane, compared with 0. One vector
/// operation.
Value* ExprEmitter::emit_lane_compare(const Expr& e) {
  constexpr int64_t kFar = 1 << 30, kMaxStep = 1 << 20;
  if (!in_lanes() || e.arg(0).type() != DType::I64 || !varies(e)) return nullptr;
  const auto linear = linear_in_lane(simplify(e.arg(0) - e.arg(1)));
  if (!linear || !linear->constant_step || std::abs(*linear->constant_step) > kMaxStep) return nullptr;
  Value* near = ir_.max(ir_.i64(-kFar), ir_.min(ir_.i64(kFar), linear->base));
  llvm::Type* i32 = ir_.b.getInt32Ty();
  Value* lane = ir_.lane_numbers(i32, lanes_.width);
  Value* steps = ir_.b.CreateMul(lane, ir_.widen(ir_.i32(static_cast<int32_t>(*linear->constant_step)), lanes_.width));
  // lane-dependent part on one side, uniform part on the other: the first is a constant
  Value* uniform = ir_.b.CreateNeg(ir_.b.CreateTrunc(near, i32));
  return ir_.b.CreateICmp(predicate(e.op(), false, true), steps, ir_.widen(uniform, lanes_.width));
}

bool ExprEmitter::is_assumed(const Expr& condition) const {
  for (const Expr& known : assumed_)
    if (known.same(condition)) return true;
  return false;
}

Value* ExprEmitter::emit_select(const Expr& e) {
  Expr condition = e.arg(0);
  if (!assumed_.empty()) {
    std::vector<Expr> parts;
    conjuncts(condition, parts);
    std::erase_if(parts, [&](const Expr& p) { return is_assumed(p); });
    if (parts.empty()) return value(e.arg(1));
    condition = parts[0];
    for (size_t i = 1; i < parts.size(); ++i) condition = logical_and(condition, parts[i]);
  }
  const Expr &a = e.arg(1), &otherwise = e.arg(2);
  Value* c = value(condition);
  if (is_vector(c)) return emit_masked_select(c, a, otherwise);
  const bool wide = varies(a) || varies(otherwise);
  const auto side = [&](const Expr& x) { return wide ? vector(x) : value(x); };
  const auto costly = [](const Expr& x) { return has_load(x) || count_flops(x) > kCostlyFlops; };
  if (!costly(a) && !costly(otherwise)) {
    Value* x = side(a);
    return ir_.b.CreateSelect(c, x, side(otherwise));
  }
  return ir_.choose(
      c,
      [&] {
        Scope scope(*this);
        return side(a);
      },
      [&] {
        Scope scope(*this);
        return side(otherwise);
      });
}

Value* ExprEmitter::emit_masked_select(Value* condition, const Expr& a, const Expr& otherwise) {
  Value *x = nullptr, *y = nullptr;
  const auto side = [&](const Expr& e, bool chosen) {
    if (!has_load(e)) return vector(e);
    GuardScope guard(*this, chosen ? condition : ir_.b.CreateNot(condition));
    return vector(e);
  };
  x = side(a, true);
  y = side(otherwise, false);
  return ir_.b.CreateSelect(condition, x, y);
}

}  // namespace ingot::cpu
