#include "codegen/llvm/convert_emitter.h"

#include <llvm/IR/Intrinsics.h>

namespace ingot::cpu {
namespace {

using llvm::Value;

llvm::Type* like(Value* v, llvm::Type* element) {
  if (auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(v->getType()))
    return llvm::FixedVectorType::get(element, vector->getNumElements());
  return element;
}
Value* number(Value* v_like, llvm::Type* element, uint64_t bits) {
  return llvm::ConstantInt::get(like(v_like, element), bits);
}
Value* real(Value* v_like, double x) { return llvm::ConstantFP::get(v_like->getType(), x); }

Value* bf16_to_f32(IrTools& ir, Value* v) {
  Value* wide = ir.b.CreateZExt(v, like(v, ir.b.getInt32Ty()));
  return ir.b.CreateBitCast(ir.b.CreateShl(wide, 16), like(v, ir.b.getFloatTy()));
}

Value* f32_to_bf16(IrTools& ir, Value* v) {
  auto& b = ir.b;
  llvm::Type* i32 = b.getInt32Ty();
  Value* bits = b.CreateBitCast(v, like(v, i32));
  Value* odd = b.CreateAnd(b.CreateLShr(bits, 16), number(v, i32, 1));
  Value* rounded = b.CreateLShr(b.CreateAdd(b.CreateAdd(bits, number(v, i32, 0x7fff)), odd), 16);
  Value* nan = b.CreateOr(b.CreateLShr(bits, 16), number(v, i32, 0x40));
  return b.CreateTrunc(b.CreateSelect(b.CreateFCmpUNO(v, v), nan, rounded), like(v, b.getInt16Ty()));
}

Value* f8_to_f32(IrTools& ir, DType type, Value* v) {
  auto& b = ir.b;
  llvm::Type* i16 = b.getInt16Ty();
  Value* wide = b.CreateZExt(v, like(v, i16));
  const auto as_f32 = [&](Value* half_bits) {
    return b.CreateFPExt(b.CreateBitCast(half_bits, like(v, b.getHalfTy())), like(v, b.getFloatTy()));
  };
  if (type == DType::F8E5M2) return as_f32(b.CreateShl(wide, 8));  // the upper byte of an f16
  // e4m3 in the place of an f16's exponent reads 2^8 too small, because the biases differ by 8.
  Value* magnitude = b.CreateAnd(wide, number(v, i16, 0x7f));
  Value* half_bits = b.CreateOr(b.CreateShl(magnitude, 7), b.CreateShl(b.CreateAnd(wide, number(v, i16, 0x80)), 8));
  Value* scaled = as_f32(half_bits);
  scaled = b.CreateFMul(scaled, real(scaled, 256.0));
  Value* is_nan = b.CreateICmpEQ(magnitude, number(v, i16, 0x7f));
  return b.CreateSelect(is_nan, llvm::ConstantFP::getNaN(scaled->getType()), scaled);
}

/// Rounds |v| to `mantissa` bits at exponents >= min_exponent and packs exponent and mantissa (bias applied) into an
/// i32.
Value* pack_small(IrTools& ir, Value* magnitude, int mantissa, int bias) {
  auto& b = ir.b;
  llvm::Type* i32 = b.getInt32Ty();
  llvm::Type* i32v = like(magnitude, i32);
  const int min_exponent = 1 - bias;
  const auto exponent_of = [&](Value* f) {
    Value* biased = b.CreateLShr(b.CreateBitCast(f, i32v), 23);
    return b.CreateSub(biased, number(f, i32, 127));
  };
  Value* exponent = b.CreateBinaryIntrinsic(llvm::Intrinsic::smax, exponent_of(magnitude),
                                            llvm::ConstantInt::getSigned(i32v, min_exponent));
  // units = |v| / 2^(exponent - mantissa), rounded to an integer in [0, 2^(mantissa+1)]
  Value* scale_bits =
      b.CreateShl(b.CreateSub(llvm::ConstantInt::get(i32v, static_cast<uint64_t>(127 + mantissa)), exponent), 23);
  Value* units = b.CreateFMul(magnitude, b.CreateBitCast(scale_bits, magnitude->getType()));
  units = b.CreateFPToSI(ir.intrinsic(llvm::Intrinsic::nearbyint, {units}), i32v);
  // Adding the units to (biased exponent - 1) << mantissa carries into the exponent by itself; subnormals start at 0.
  Value* base = b.CreateShl(b.CreateSub(exponent, llvm::ConstantInt::getSigned(i32v, min_exponent)), mantissa);
  return b.CreateAdd(base, units);
}

Value* f32_to_f8(IrTools& ir, DType type, Value* v) {
  auto& b = ir.b;
  llvm::Type* i32 = b.getInt32Ty();
  const bool e4m3 = type == DType::F8E4M3;
  const double largest = e4m3 ? 448.0 : 57344.0;
  Value* magnitude = ir.intrinsic(llvm::Intrinsic::fabs, {v});
  Value* too_large = b.CreateFCmpOGT(magnitude, real(v, largest));
  Value* clamped = b.CreateSelect(b.CreateFCmpOLT(magnitude, real(v, largest)), magnitude, real(v, largest));
  Value* code = pack_small(ir, clamped, e4m3 ? 3 : 2, e4m3 ? 7 : 15);
  code = b.CreateSelect(too_large, number(v, i32, e4m3 ? 0x7e : 0x7b), code);
  if (!e4m3)
    code = b.CreateSelect(b.CreateFCmpOEQ(magnitude, llvm::ConstantFP::getInfinity(v->getType())), number(v, i32, 0x7c),
                          code);
  code = b.CreateSelect(b.CreateFCmpUNO(v, v), number(v, i32, 0x7f), code);
  Value* sign = b.CreateAnd(b.CreateLShr(b.CreateBitCast(v, like(v, i32)), 24), number(v, i32, 0x80));
  return b.CreateTrunc(b.CreateOr(code, sign), like(v, b.getInt8Ty()));
}

}  // namespace

Value* from_storage(IrTools& ir, DType stored, Value* v) {
  auto& b = ir.b;
  switch (stored) {
    case DType::Bool: return b.CreateICmpNE(v, llvm::Constant::getNullValue(v->getType()));
    case DType::F16: return b.CreateFPExt(v, like(v, b.getFloatTy()));
    case DType::BF16: return bf16_to_f32(ir, v);
    case DType::F8E4M3:
    case DType::F8E5M2: return f8_to_f32(ir, stored, v);
    case DType::I4: return b.CreateSExt(v, like(v, b.getInt32Ty()));
    case DType::U4: return b.CreateZExt(v, like(v, b.getInt32Ty()));
    default: return v;
  }
}

Value* to_storage(IrTools& ir, DType stored, Value* v) {
  auto& b = ir.b;
  switch (stored) {
    case DType::Bool: return b.CreateZExt(v, like(v, b.getInt8Ty()));
    case DType::F16: return b.CreateFPTrunc(v, like(v, b.getHalfTy()));
    case DType::BF16: return f32_to_bf16(ir, v);
    case DType::F8E4M3:
    case DType::F8E5M2: return f32_to_f8(ir, stored, v);
    case DType::I4:
    case DType::U4: return b.CreateTrunc(v, like(v, b.getInt8Ty()));
    default: return v;
  }
}

Value* cast_value(IrTools& ir, DType from, DType to, Value* v) {
  auto& b = ir.b;
  llvm::Type* target = like(v, ir.scalar(to));
  const bool from_float = is_float(from), to_float = is_float(to);
  if (to == DType::Bool) {
    if (from == DType::Bool) return v;
    llvm::Constant* zero = llvm::Constant::getNullValue(v->getType());
    return from_float ? b.CreateFCmpUNE(v, zero) : b.CreateICmpNE(v, zero);
  }
  if (from == DType::Bool) return to_float ? b.CreateUIToFP(v, target) : b.CreateZExt(v, target);
  if (from_float && to_float) {
    Value* out = b.CreateFPCast(v, target);
    return size_of(to) < 4 ? from_storage(ir, to, to_storage(ir, to, out)) : out;  // f16 and smaller: rounded f32
  }
  if (from_float)
    return b.CreateIntrinsic(is_signed(to) ? llvm::Intrinsic::fptosi_sat : llvm::Intrinsic::fptoui_sat,
                             {target, v->getType()}, {v});
  const bool from_signed = is_signed(compute_type(from));
  if (to_float) {
    Value* out = from_signed ? b.CreateSIToFP(v, target) : b.CreateUIToFP(v, target);
    return size_of(to) < 4 ? from_storage(ir, to, to_storage(ir, to, out)) : out;
  }
  return b.CreateIntCast(v, target, from_signed);
}

}  // namespace ingot::cpu
