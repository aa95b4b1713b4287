#include "codegen/llvm/math_emitter.h"

#include <llvm/IR/Intrinsics.h>

#include <limits>

#include "codegen/llvm/functions_emitter.h"

namespace ingot::cpu {
namespace {

using llvm::Constant;
using llvm::ConstantInt;
using llvm::Value;

Value* zero(Value* v) { return Constant::getNullValue(v->getType()); }

Value* divide_float(IrTools& ir, ExprOp op, Value* a, Value* d) {
  auto& b = ir.b;
  switch (op) {
    case ExprOp::Div: return b.CreateFDiv(a, d);
    case ExprOp::Rem: return emit_libm(ir, "fmod", {a, d});
    case ExprOp::FloorDiv: return ir.intrinsic(llvm::Intrinsic::floor, {b.CreateFDiv(a, d)});
    default: {
      Value* r = emit_libm(ir, "fmod", {a, d});
      Value* differ = b.CreateXor(b.CreateFCmpOLT(r, zero(r)), b.CreateFCmpOLT(d, zero(d)));
      Value* adjust = b.CreateAnd(b.CreateFCmpONE(r, zero(r)), differ);
      return b.CreateSelect(adjust, b.CreateFAdd(r, d), r);
    }
  }
}

/// Quotient and remainder from a truncating division that did not trap.
Value* finish_division(IrTools& ir, ExprOp op, bool is_signed, Value* a, Value* d, Value* quotient) {
  auto& b = ir.b;
  if (op == ExprOp::Div || (op == ExprOp::FloorDiv && !is_signed)) return quotient;
  Value* rest = b.CreateSub(a, b.CreateMul(quotient, d));
  if (op == ExprOp::Rem || !is_signed) return rest;
  Value* differ = b.CreateICmpSLT(b.CreateXor(rest, d), zero(d));
  Value* adjust = b.CreateAnd(b.CreateICmpNE(rest, zero(rest)), differ);
  if (op == ExprOp::FloorMod) return b.CreateSelect(adjust, b.CreateAdd(rest, d), rest);
  return b.CreateSelect(adjust, b.CreateSub(quotient, ConstantInt::get(a->getType(), 1)), quotient);
}

/// Every lane of a constant divisor, if it is one constant; else null.
ConstantInt* uniform_constant(Value* d) {
  if (auto* c = llvm::dyn_cast<ConstantInt>(d)) return c;
  if (auto* c = llvm::dyn_cast<Constant>(d))
    if (c->getType()->isVectorTy()) return llvm::dyn_cast_or_null<ConstantInt>(c->getSplatValue());
  return nullptr;
}

bool safe_divisor(Value* d) {
  ConstantInt* c = uniform_constant(d);
  return c && !c->isZero() && !c->isMinusOne();
}

}  // namespace

Value* divide(IrTools& ir, ExprOp op, DType type, Value* a, Value* d) {
  if (is_float(type)) return divide_float(ir, op, a, d);
  auto& b = ir.b;
  const bool sign = is_signed(type);
  if (safe_divisor(d)) {
    ConstantInt* c = uniform_constant(d);
    if (sign && c->getValue().isStrictlyPositive() && c->getValue().isPowerOf2() && op == ExprOp::FloorDiv)
      return b.CreateAShr(a, ConstantInt::get(a->getType(), c->getValue().logBase2()));
    if (sign && c->getValue().isStrictlyPositive() && c->getValue().isPowerOf2() && op == ExprOp::FloorMod)
      return b.CreateAnd(a, ConstantInt::get(a->getType(), c->getValue() - 1));
    return finish_division(ir, op, sign, a, d, sign ? b.CreateSDiv(a, d) : b.CreateUDiv(a, d));
  }
  // x86 traps on 0 and on the lowest value by -1: both are divided by 1 instead and put right afterwards.
  Value* is_zero = b.CreateICmpEQ(d, zero(d));
  Value* one = ConstantInt::get(d->getType(), 1);
  Value* safe = b.CreateSelect(is_zero, one, d);
  Value* quotient;
  if (sign) {
    Value* is_minus = b.CreateICmpEQ(d, Constant::getAllOnesValue(d->getType()));
    quotient = b.CreateSDiv(a, b.CreateSelect(is_minus, one, safe));
    quotient = b.CreateSelect(is_minus, b.CreateNeg(a), quotient);
  } else {
    quotient = b.CreateUDiv(a, safe);
  }
  return b.CreateSelect(is_zero, zero(a), finish_division(ir, op, sign, a, d, quotient));
}

Value* divide_index(IrTools& ir, ExprOp op, Value* a, Value* d) {
  if (!is_vector(a)) return divide(ir, op, DType::I64, a, d);
  if (ConstantInt* c = uniform_constant(d); c && c->getValue().isStrictlyPositive() && c->getValue().isPowerOf2())
    return divide(ir, op, DType::I64, a, d);
  // Below 2^51 a rounded quotient never crosses an integer: neighbours differ by at least 1/divisor.
  auto& b = ir.b;
  auto* vector = llvm::cast<llvm::FixedVectorType>(a->getType());
  llvm::Type* doubles = llvm::FixedVectorType::get(b.getDoubleTy(), vector->getNumElements());
  Value* is_zero = b.CreateICmpEQ(d, zero(d));
  Value* safe = b.CreateSelect(is_zero, ConstantInt::get(d->getType(), 1), d);
  Value* real = b.CreateFDiv(b.CreateSIToFP(a, doubles), b.CreateSIToFP(safe, doubles));
  Value* quotient = b.CreateFPToSI(real, a->getType());
  return b.CreateSelect(is_zero, zero(a), finish_division(ir, op, true, a, d, quotient));
}

/// select(a > b, a, b) is one max instruction, which returns b when a NaN is involved; a NaN in `a` is then put back.
Value* maximum(IrTools& ir, DType type, Value* a, Value* b2) {
  auto& b = ir.b;
  if (type == DType::Bool) return b.CreateOr(a, b2);
  if (!is_float(type))
    return b.CreateBinaryIntrinsic(is_signed(type) ? llvm::Intrinsic::smax : llvm::Intrinsic::umax, a, b2);
  if (llvm::isa<Constant>(b2)) std::swap(a, b2);
  Value* larger = b.CreateSelect(b.CreateFCmpOGT(a, b2), a, b2);
  return llvm::isa<Constant>(a) ? larger : b.CreateSelect(b.CreateFCmpUNO(a, a), a, larger);
}

Value* minimum(IrTools& ir, DType type, Value* a, Value* b2) {
  auto& b = ir.b;
  if (type == DType::Bool) return b.CreateAnd(a, b2);
  if (!is_float(type))
    return b.CreateBinaryIntrinsic(is_signed(type) ? llvm::Intrinsic::smin : llvm::Intrinsic::umin, a, b2);
  if (llvm::isa<Constant>(b2)) std::swap(a, b2);
  Value* smaller = b.CreateSelect(b.CreateFCmpOLT(a, b2), a, b2);
  return llvm::isa<Constant>(a) ? smaller : b.CreateSelect(b.CreateFCmpUNO(a, a), a, smaller);
}

Value* combine_values(IrTools& ir, Combine combine, DType type, Value* a, Value* b2) {
  auto& b = ir.b;
  const bool real = is_float(type);
  switch (combine) {
    case Combine::Sum:
      if (type == DType::Bool) return b.CreateOr(a, b2);
      return real ? b.CreateFAdd(a, b2) : b.CreateAdd(a, b2);
    case Combine::Product:
      if (type == DType::Bool) return b.CreateAnd(a, b2);
      return real ? b.CreateFMul(a, b2) : b.CreateMul(a, b2);
    case Combine::Max: return maximum(ir, type, a, b2);
    case Combine::Min: return minimum(ir, type, a, b2);
    case Combine::And: return b.CreateAnd(a, b2);
    case Combine::Or: return b.CreateOr(a, b2);
    default: break;
  }
  INGOT_CHECK(false, "combine_values: ArgMax and ArgMin have no pair form");
}

Constant* identity_value(IrTools& ir, Combine combine, DType type) {
  llvm::Type* t = ir.scalar(type);
  const bool real = is_float(type);
  const unsigned bits = real ? 0 : t->getIntegerBitWidth();
  switch (combine) {
    case Combine::Product: return real ? llvm::ConstantFP::get(t, 1.0) : ConstantInt::get(t, 1);
    case Combine::Max:
    case Combine::ArgMax:
      if (real) return llvm::ConstantFP::getInfinity(t, /*Negative=*/true);
      return is_signed(type) ? ConstantInt::get(t, llvm::APInt::getSignedMinValue(bits)) : ConstantInt::get(t, 0);
    case Combine::Min:
    case Combine::ArgMin:
      if (real) return llvm::ConstantFP::getInfinity(t);
      return is_signed(type) ? ConstantInt::get(t, llvm::APInt::getSignedMaxValue(bits)) : Constant::getAllOnesValue(t);
    case Combine::And: return Constant::getAllOnesValue(t);
    default: return Constant::getNullValue(t);
  }
}

}  // namespace ingot::cpu
