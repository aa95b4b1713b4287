#include "codegen/llvm/convert_emitter.h"

#include <llvm/IR/Intrinsics.h>

#include <cmath>

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

/// A power of two, 2^(v - 127); 2^-127 is the smallest and 0xff is NaN.
Value* power_to_f32(IrTools& ir, Value* v) {
  auto& b = ir.b;
  llvm::Type* i32 = b.getInt32Ty();
  Value* wide = b.CreateZExt(v, like(v, i32));
  Value* bits =
      b.CreateSelect(b.CreateICmpEQ(wide, number(v, i32, 0)), number(v, i32, 0x400000), b.CreateShl(wide, 23));
  Value* nan = b.CreateICmpEQ(wide, number(v, i32, 0xff));
  return b.CreateBitCast(b.CreateSelect(nan, number(v, i32, 0x7fc00000), bits), like(v, b.getFloatTy()));
}
Value* f32_to_power(IrTools& ir, Value* v) {
  auto& b = ir.b;
  llvm::Type* i32 = b.getInt32Ty();
  Value* bits = b.CreateAnd(b.CreateBitCast(v, like(v, i32)), number(v, i32, 0x7fffffff));
  Value* power = b.CreateLShr(b.CreateAdd(bits, number(v, i32, 0x400000)), 23);
  power = b.CreateBinaryIntrinsic(llvm::Intrinsic::umin, power, number(v, i32, 0xfe));
  power = b.CreateSelect(b.CreateICmpUGE(bits, number(v, i32, 0x7f800000)), number(v, i32, 0xff), power);
  return b.CreateTrunc(power, like(v, b.getInt8Ty()));
}

/// Types whose conversion has no shorter form: units of the smallest value, or the bits moved into an f32's place.
Value* small_to_f32(IrTools& ir, DType type, Value* v) {
  auto& b = ir.b;
  const SmallFloat& f = *small_float(type);
  llvm::Type* i32 = b.getInt32Ty();
  const uint32_t sign_bit = 1u << (f.exponent_bits + f.mantissa_bits);
  Value* wide = b.CreateZExt(v, like(v, i32));
  Value* magnitude = b.CreateAnd(wide, number(v, i32, sign_bit - 1));
  Value* units = b.CreateUIToFP(magnitude, like(v, b.getFloatTy()));
  units = b.CreateFMul(units, real(units, std::ldexp(1.0, 1 - f.bias - f.mantissa_bits)));
  Value* moved = b.CreateAdd(b.CreateShl(magnitude, static_cast<uint64_t>(23 - f.mantissa_bits)),
                             number(v, i32, static_cast<uint64_t>(127 - f.bias) << 23));
  moved = b.CreateBitCast(moved, units->getType());
  Value* value = b.CreateSelect(b.CreateICmpULT(magnitude, number(v, i32, 1u << f.mantissa_bits)), units, moved);
  Value* negative = b.CreateICmpNE(b.CreateAnd(wide, number(v, i32, sign_bit)), number(v, i32, 0));
  value = b.CreateSelect(negative, b.CreateFNeg(value), value);
  if (f.specials != SmallFloat::Specials::NegativeZero) return value;
  return b.CreateSelect(b.CreateICmpEQ(wide, number(v, i32, sign_bit)), llvm::ConstantFP::getNaN(value->getType()),
                        value);
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

Value* f32_to_small(IrTools& ir, DType type, Value* v) {
  using Specials = SmallFloat::Specials;
  auto& b = ir.b;
  const SmallFloat& f = *small_float(type);
  llvm::Type* i32 = b.getInt32Ty();
  const int bits = f.exponent_bits + f.mantissa_bits;
  const uint32_t sign_bit = 1u << bits;
  Value* largest = real(v, f.largest);
  Value* magnitude = ir.intrinsic(llvm::Intrinsic::fabs, {v});
  Value* code =
      pack_small(ir, b.CreateSelect(b.CreateFCmpOLT(magnitude, largest), magnitude, largest), f.mantissa_bits, f.bias);
  if (f.specials == Specials::NanAndInfinity)
    code = b.CreateSelect(b.CreateFCmpOEQ(magnitude, llvm::ConstantFP::getInfinity(v->getType())),
                          number(v, i32, ((1u << f.exponent_bits) - 1) << f.mantissa_bits), code);
  Value* nan = b.CreateFCmpUNO(v, v);
  const bool signed_nan = f.specials == Specials::Nan || f.specials == Specials::NanAndInfinity;
  if (signed_nan) code = b.CreateSelect(nan, number(v, i32, sign_bit - 1), code);
  Value* sign = b.CreateAnd(b.CreateLShr(b.CreateBitCast(v, like(v, i32)), static_cast<uint64_t>(31 - bits)),
                            number(v, i32, sign_bit));
  if (f.specials == Specials::NegativeZero)
    sign = b.CreateSelect(b.CreateICmpEQ(code, number(v, i32, 0)), number(v, i32, 0), sign);
  code = b.CreateOr(code, sign);
  if (!signed_nan) code = b.CreateSelect(nan, number(v, i32, sign_bit), code);
  return b.CreateTrunc(code, like(v, b.getInt8Ty()));
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
    case DType::F8E8M0: return power_to_f32(ir, v);
    case DType::I4:
    case DType::I2: return b.CreateSExt(v, like(v, b.getInt32Ty()));
    case DType::U4:
    case DType::U2: return b.CreateZExt(v, like(v, b.getInt32Ty()));
    default: return small_float(stored) ? small_to_f32(ir, stored, v) : v;
  }
}

Value* to_storage(IrTools& ir, DType stored, Value* v) {
  auto& b = ir.b;
  switch (stored) {
    case DType::Bool: return b.CreateZExt(v, like(v, b.getInt8Ty()));
    case DType::F16: return b.CreateFPTrunc(v, like(v, b.getHalfTy()));
    case DType::BF16: return f32_to_bf16(ir, v);
    case DType::F8E8M0: return f32_to_power(ir, v);
    case DType::I4:
    case DType::U4:
    case DType::I2:
    case DType::U2: return b.CreateTrunc(v, like(v, b.getInt8Ty()));
    default: return small_float(stored) ? f32_to_small(ir, stored, v) : v;
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
