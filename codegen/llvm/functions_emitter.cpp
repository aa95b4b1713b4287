#include "codegen/llvm/functions_emitter.h"

#include <llvm/IR/Intrinsics.h>

#include <string>

#include "codegen/llvm/math_emitter.h"

namespace ingot::cpu {
namespace {

using llvm::Value;

/// Shorthand for f32 polynomials on scalars or vectors.
struct F32 {
  IrTools& ir;
  llvm::Type* type;
  llvm::Type* integers;

  F32(IrTools& tools, Value* x) : ir(tools), type(x->getType()), integers(ir.b.getInt32Ty()) {
    if (auto* v = llvm::dyn_cast<llvm::FixedVectorType>(type))
      integers = llvm::FixedVectorType::get(integers, v->getNumElements());
  }
  Value* real(double v) { return llvm::ConstantFP::get(type, v); }
  Value* integer(uint32_t v) { return llvm::ConstantInt::get(integers, v); }
  Value* bits(Value* x) { return ir.b.CreateBitCast(x, integers); }
  Value* from_bits(Value* x) { return ir.b.CreateBitCast(x, type); }
  Value* abs(Value* x) { return ir.intrinsic(llvm::Intrinsic::fabs, {x}); }
  Value* sign_of(Value* magnitude, Value* x) {
    return ir.b.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, magnitude, x);
  }
  /// Horner's rule; the highest coefficient first.
  Value* poly(Value* x, std::initializer_list<double> c) {
    Value* sum = nullptr;
    for (double k : c) sum = sum ? ir.fma(sum, x, real(k)) : real(k);
    return sum;
  }
  /// min and max that keep a NaN in x.
  Value* at_least(Value* x, double low) { return ir.b.CreateSelect(ir.b.CreateFCmpOLT(x, real(low)), real(low), x); }
  Value* at_most(Value* x, double high) { return ir.b.CreateSelect(ir.b.CreateFCmpOGT(x, real(high)), real(high), x); }
  /// 2^n for an integer n in [-126, 127].
  Value* power_of_two(Value* n) { return from_bits(ir.b.CreateShl(ir.b.CreateAdd(n, integer(127)), 23)); }
};

Value* exp_f32(IrTools& ir, Value* x) {
  F32 f(ir, x);
  auto& b = ir.b;
  Value* in = f.at_most(f.at_least(x, -104.0), 89.0);
  Value* n = ir.intrinsic(llvm::Intrinsic::nearbyint, {b.CreateFMul(in, f.real(1.44269504088896341))});
  Value* r = ir.fma(n, f.real(-0.693359375), in);
  r = ir.fma(n, f.real(2.12194440e-4), r);
  Value* p = f.poly(r, {1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 0.5});
  Value* y = b.CreateFAdd(ir.fma(b.CreateFMul(r, r), p, r), f.real(1.0));
  // 2^n in two factors reaches subnormals and infinity without a special case.
  Value* k = b.CreateIntrinsic(llvm::Intrinsic::fptosi_sat, {f.integers, f.type}, {n});
  Value* half = b.CreateAShr(k, 1);
  return b.CreateFMul(b.CreateFMul(y, f.power_of_two(half)), f.power_of_two(b.CreateSub(k, half)));
}

Value* log_f32(IrTools& ir, Value* x) {
  F32 f(ir, x);
  auto& b = ir.b;
  Value* subnormal = b.CreateFCmpOLT(x, f.real(1.17549435e-38));
  Value* scaled = b.CreateSelect(subnormal, b.CreateFMul(x, f.real(8388608.0)), x);
  // x = m * 2^e with m in [sqrt(1/2), sqrt(2)): the offset moves the break from 1 to sqrt(1/2).
  Value* shifted = b.CreateSub(f.bits(scaled), f.integer(0x3f3504f3));
  Value* e = b.CreateSIToFP(b.CreateAShr(shifted, 23), f.type);
  e = b.CreateFAdd(e, b.CreateSelect(subnormal, f.real(-23.0), f.real(0.0)));
  Value* m = f.from_bits(b.CreateAdd(b.CreateAnd(shifted, f.integer(0x007fffff)), f.integer(0x3f3504f3)));
  Value* t = b.CreateFSub(m, f.real(1.0));
  Value* z = b.CreateFMul(t, t);
  Value* p = f.poly(t, {7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1,
                        -1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1});
  Value* y = b.CreateFMul(b.CreateFMul(t, z), p);
  y = ir.fma(e, f.real(-2.12194440e-4), y);
  y = ir.fma(z, f.real(-0.5), y);
  y = ir.fma(e, f.real(0.693359375), b.CreateFAdd(t, y));
  Value* infinity = llvm::ConstantFP::getInfinity(f.type);
  y = b.CreateSelect(b.CreateFCmpOEQ(x, infinity), infinity, y);
  y = b.CreateSelect(b.CreateFCmpOEQ(x, f.real(0.0)), llvm::ConstantFP::getInfinity(f.type, true), y);
  return b.CreateSelect(b.CreateFCmpULT(x, f.real(0.0)), llvm::ConstantFP::getNaN(f.type), y);  // negative or NaN
}

Value* tanh_f32(IrTools& ir, Value* x) {
  F32 f(ir, x);
  auto& b = ir.b;
  Value* magnitude = f.abs(x);
  Value* z = b.CreateFMul(x, x);
  Value* p = f.poly(z, {-5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1, -3.33332819422e-1});
  Value* small = ir.fma(b.CreateFMul(p, z), x, x);
  Value* e = exp_f32(ir, b.CreateFMul(magnitude, f.real(2.0)));
  Value* large = b.CreateFSub(f.real(1.0), b.CreateFDiv(f.real(2.0), b.CreateFAdd(e, f.real(1.0))));
  return b.CreateSelect(b.CreateFCmpOLT(magnitude, f.real(0.625)), small, f.sign_of(large, x));
}

Value* sigmoid_f32(IrTools& ir, Value* x) {
  F32 f(ir, x);
  auto& b = ir.b;
  return b.CreateFDiv(f.real(1.0), b.CreateFAdd(exp_f32(ir, b.CreateFNeg(x)), f.real(1.0)));
}

/// Below 1 an odd polynomial; above, 1 - exp(-g(x)) with g = -log(erfc) interpolated around 2 on [1, 4].
Value* erf_f32(IrTools& ir, Value* x) {
  F32 f(ir, x);
  auto& b = ir.b;
  Value* magnitude = f.abs(x);
  Value* z = b.CreateFMul(x, x);
  Value* p = f.poly(z, {7.853861353153693e-5, -8.010193625184903e-4, 5.188327685732524e-3, -2.685381193529856e-2,
                        1.128358514861418e-1, -3.761262582423300e-1, 1.128379165726710});
  Value* small = b.CreateFMul(x, p);
  Value* t = b.CreateFSub(f.at_most(magnitude, 4.0), f.real(2.0));
  Value* g = f.poly(
      t, {-1.6371513993362896e-06, 1.9863620764226653e-05, -0.000135353984660469, 0.0007333605317398906,
          -0.003570868168026209, 0.016464674845337868, 0.9237508773803711, 4.418160915374756, 5.364941120147705});
  Value* large = b.CreateFSub(f.real(1.0), exp_f32(ir, b.CreateFNeg(g)));
  return b.CreateSelect(b.CreateFCmpOLT(magnitude, f.real(1.0)), small, f.sign_of(large, x));
}

/// sin (quarter 0) or cos (quarter 1) of |x| < 1e8: the argument is reduced in f64, which holds x - n*pi/2 to f32
/// accuracy.
Value* reduced_sin_cos(IrTools& ir, Value* x, uint32_t quarter) {
  F32 f(ir, x);
  auto& b = ir.b;
  llvm::Type* doubles = b.getDoubleTy();
  if (auto* v = llvm::dyn_cast<llvm::FixedVectorType>(f.type))
    doubles = llvm::FixedVectorType::get(doubles, v->getNumElements());
  const auto real = [&](double v) { return llvm::ConstantFP::get(doubles, v); };
  Value* wide = b.CreateFPExt(x, doubles);
  Value* n = ir.intrinsic(llvm::Intrinsic::nearbyint, {b.CreateFMul(wide, real(0.63661977236758134308))});
  Value* reduced = ir.fma(n, real(-1.5707963267948966192), wide);
  reduced = ir.fma(n, real(-6.123233995736766e-17), reduced);
  Value* r = b.CreateFPTrunc(reduced, f.type);
  Value* q = b.CreateIntrinsic(llvm::Intrinsic::fptosi_sat, {f.integers, doubles}, {n});
  q = b.CreateAdd(q, f.integer(quarter));
  Value* z = b.CreateFMul(r, r);
  Value* sine = ir.fma(b.CreateFMul(f.poly(z, {-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1}), z), r, r);
  Value* cosine = f.poly(z, {2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2});
  cosine = ir.fma(b.CreateFMul(cosine, z), z, ir.fma(z, f.real(-0.5), f.real(1.0)));
  Value* odd = b.CreateICmpNE(b.CreateAnd(q, f.integer(1)), f.integer(0));
  Value* y = b.CreateSelect(odd, cosine, sine);
  Value* negative = b.CreateShl(b.CreateAnd(q, f.integer(2)), 30);
  return f.from_bits(b.CreateXor(f.bits(y), negative));
}

Value* sin_cos_f32(IrTools& ir, Value* x, uint32_t quarter) {
  F32 f(ir, x);
  Value* far = ir.b.CreateFCmpOGT(f.abs(x), f.real(1e8));
  return ir.choose(
      is_vector(far) ? ir.b.CreateOrReduce(far) : far, [&] { return emit_libm(ir, quarter ? "cos" : "sin", {x}); },
      [&] { return reduced_sin_cos(ir, x, quarter); });
}

Value* power(IrTools& ir, Value* x, Value* y) {
  const auto is_constant = [&](double v) {
    auto* c = llvm::dyn_cast<llvm::Constant>(y);
    if (c && c->getType()->isVectorTy()) c = c->getSplatValue();
    auto* real = llvm::dyn_cast_or_null<llvm::ConstantFP>(c);
    return real && real->isExactlyValue(v);
  };
  if (is_constant(1)) return x;
  if (is_constant(2)) return ir.b.CreateFMul(x, x);
  if (is_constant(3)) return ir.b.CreateFMul(ir.b.CreateFMul(x, x), x);
  return emit_libm(ir, "pow", {x, y});
}

const char* libm_name(Fn fn) {
  switch (fn) {
    case Fn::Exp: return "exp";
    case Fn::Log: return "log";
    case Fn::Tanh: return "tanh";
    case Fn::Erf: return "erf";
    case Fn::Sin: return "sin";
    case Fn::Cos: return "cos";
    case Fn::Tan: return "tan";
    case Fn::Asin: return "asin";
    case Fn::Acos: return "acos";
    case Fn::Atan: return "atan";
    case Fn::Sinh: return "sinh";
    case Fn::Cosh: return "cosh";
    case Fn::Asinh: return "asinh";
    case Fn::Acosh: return "acosh";
    case Fn::Atanh: return "atanh";
    case Fn::Log1p: return "log1p";
    default: return nullptr;
  }
}

/// The f32 polynomial of a function, or null.
Value* f32_function(IrTools& ir, Fn fn, Value* x) {
  switch (fn) {
    case Fn::Exp: return exp_f32(ir, x);
    case Fn::Log: return log_f32(ir, x);
    case Fn::Tanh: return tanh_f32(ir, x);
    case Fn::Erf: return erf_f32(ir, x);
    case Fn::Sigmoid: return sigmoid_f32(ir, x);
    case Fn::Sin: return sin_cos_f32(ir, x, 0);
    case Fn::Cos: return sin_cos_f32(ir, x, 1);
    default: return nullptr;
  }
}

}  // namespace

Value* emit_libm(IrTools& ir, const char* name, llvm::ArrayRef<Value*> args) {
  auto& b = ir.b;
  llvm::Type* element = args[0]->getType()->getScalarType();
  const std::string symbol = element->isFloatTy() ? std::string(name) + "f" : name;
  const std::vector<llvm::Type*> types(args.size(), element);
  llvm::FunctionCallee callee = ir.module.getOrInsertFunction(symbol, llvm::FunctionType::get(element, types, false));
  auto* declared = llvm::cast<llvm::Function>(callee.getCallee());
  declared->setDoesNotThrow();
  declared->setMemoryEffects(llvm::MemoryEffects::none());
  auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(args[0]->getType());
  if (!vector) return b.CreateCall(callee, args);
  Value* out = llvm::PoisonValue::get(vector);
  for (unsigned i = 0; i < vector->getNumElements(); ++i) {
    std::vector<Value*> lane;
    for (Value* a : args) lane.push_back(b.CreateExtractElement(a, i));
    out = b.CreateInsertElement(out, b.CreateCall(callee, lane), i);
  }
  return out;
}

Value* call_function(IrTools& ir, Fn fn, DType type, llvm::ArrayRef<Value*> args) {
  auto& b = ir.b;
  Value* x = args[0];
  switch (fn) {
    case Fn::Sqrt: return ir.intrinsic(llvm::Intrinsic::sqrt, {x});
    case Fn::Rsqrt:
      return b.CreateFDiv(llvm::ConstantFP::get(x->getType(), 1.0), ir.intrinsic(llvm::Intrinsic::sqrt, {x}));
    case Fn::Floor: return ir.intrinsic(llvm::Intrinsic::floor, {x});
    case Fn::Ceil: return ir.intrinsic(llvm::Intrinsic::ceil, {x});
    case Fn::Round: return ir.intrinsic(llvm::Intrinsic::nearbyint, {x});
    case Fn::Abs: return ir.intrinsic(llvm::Intrinsic::fabs, {x});
    case Fn::Pow: return power(ir, x, args[1]);
    default: break;
  }
  if (type == DType::F32)
    if (Value* y = f32_function(ir, fn, x)) return y;
  if (fn == Fn::Sigmoid) {
    Value* one = llvm::ConstantFP::get(x->getType(), 1.0);
    return b.CreateFDiv(one, b.CreateFAdd(one, emit_libm(ir, "exp", {b.CreateFNeg(x)})));
  }
  const char* name = libm_name(fn);
  INGOT_CHECK(name != nullptr, "a scalar function without LLVM code");
  return emit_libm(ir, name, args);
}

}  // namespace ingot::cpu
