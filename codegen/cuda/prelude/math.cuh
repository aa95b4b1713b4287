// Scalar functions under the names of compiler/expr/scalar_fn.def, for float and double: accurate to a few ulp, NaN and
// infinities as IEEE says. Minimum and maximum propagate NaN.
#pragma once
#include "prelude/types.cuh"

#define INGOT_MATH(name, f32, f64)                       \
  INGOT_DEV float ingot_##name(float x) { return f32; }  \
  INGOT_DEV double ingot_##name(double x) { return f64; }
INGOT_MATH(exp, expf(x), exp(x))
INGOT_MATH(log, logf(x), log(x))
INGOT_MATH(sqrt, sqrtf(x), sqrt(x))
INGOT_MATH(rsqrt, rsqrtf(x), rsqrt(x))
INGOT_MATH(tanh, tanhf(x), tanh(x))
INGOT_MATH(erf, erff(x), erf(x))
INGOT_MATH(sigmoid, 1.0f / (1.0f + expf(-x)), 1.0 / (1.0 + exp(-x)))
INGOT_MATH(sin, sinf(x), sin(x))
INGOT_MATH(cos, cosf(x), cos(x))
INGOT_MATH(tan, tanf(x), tan(x))
INGOT_MATH(asin, asinf(x), asin(x))
INGOT_MATH(acos, acosf(x), acos(x))
INGOT_MATH(atan, atanf(x), atan(x))
INGOT_MATH(sinh, sinhf(x), sinh(x))
INGOT_MATH(cosh, coshf(x), cosh(x))
INGOT_MATH(asinh, asinhf(x), asinh(x))
INGOT_MATH(acosh, acoshf(x), acosh(x))
INGOT_MATH(atanh, atanhf(x), atanh(x))
INGOT_MATH(log1p, log1pf(x), log1p(x))
INGOT_MATH(floor, floorf(x), floor(x))
INGOT_MATH(ceil, ceilf(x), ceil(x))
INGOT_MATH(round, rintf(x), rint(x))
INGOT_MATH(abs, fabsf(x), fabs(x))
#undef INGOT_MATH
INGOT_DEV float ingot_pow(float x, float y) { return powf(x, y); }
INGOT_DEV double ingot_pow(double x, double y) { return pow(x, y); }

// For results that are stored in 16 bits: a relative error of some 1e-6, no branches. What is below 2^-126 is zero.
INGOT_DEV float fast_exp2(float x) {
  float y;
  INGOT_PTX(asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));)
  INGOT_HOST(y = exp2f(x);)
  return y;
}
INGOT_DEV float fast_reciprocal(float x) {
  float y;
  INGOT_PTX(asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));)
  INGOT_HOST(y = 1.0f / x;)
  return y;
}
INGOT_DEV float with_sign_of(float magnitude, float sign) {
  return bits_as<float>((bits_as<u32>(magnitude) & 0x7fffffffu) | (bits_as<u32>(sign) & 0x80000000u));
}
/// Of any divisor, the smallest ones too.
INGOT_DEV float fast_div(float x, float y) {
  float r;
  INGOT_PTX(asm("rcp.approx.f32 %0, %1;" : "=f"(r) : "f"(y));)
  INGOT_HOST(r = 1.0f / y;)
  return x * r;
}
INGOT_DEV float fast_exp(float x) { return fast_exp2(x * 1.4426950408889634f); }
INGOT_DEV float fast_sigmoid(float x) { return fast_reciprocal(1.0f + fast_exp2(x * -1.4426950408889634f)); }
/// Series near 0, where 1 - 2 / (1 + e^2x) would cancel.
INGOT_DEV float fast_tanh(float x) {
  const float far = 1.0f - 2.0f * fast_reciprocal(1.0f + fast_exp2(x * 2.8853900817779268f)), y = x * x;
  const float near = x * fmaf(y, fmaf(y, 0.13333333f, -0.33333333f), 1.0f);
  return fabsf(x) < 0.1f ? near : far;
}
/// 1 + tanh(x), as in Gelu: small where tanh is near -1, and as exact there.
INGOT_DEV float fast_one_plus_tanh(float x) {
  return 2.0f * fast_reciprocal(1.0f + fast_exp2(x * -2.8853900817779268f));
}
/// From the highest coefficient down.
template <class... Rest> INGOT_DEV float polynomial(float x, float sum, Rest... rest) {
  ((sum = fmaf(x, sum, rest)), ...);
  return sum;
}
/// Abramowitz and Stegun 7.1.26: an absolute error of 1.5e-7.
INGOT_DEV float erf_far(float x) {
  const float a = fabsf(x), t = fast_reciprocal(fmaf(0.3275911f, a, 1.0f));
  const float p = polynomial(t, 1.061405429f, -1.453152027f, 1.421413741f, -0.284496736f, 0.254829592f);
  return with_sign_of(fmaf(-p * t, fast_exp2(x * x * -1.4426950408889634f), 1.0f), x);
}
/// The series near 0, for the relative error there.
INGOT_DEV float fast_erf(float x) {
  const float y = x * x, near = x * fmaf(y, fmaf(y, 0.11283792f, -0.37612639f), 1.1283792f);
  return fabsf(x) < 0.1f ? near : erf_far(x);
}
/// 1 + erf(x), as in Gelu, whose factor it is: 2^P(|x|) is erfc(|x|), to a relative error of 6e-6 where x * erfc(|x|) is not less
/// than 1e-7. P is a minimax fit on [0, 4]; its leading coefficient is negative, so that it goes on falling behind that.
INGOT_DEV float fast_one_plus_erf(float x) {
  const float rest = fast_exp2(polynomial(fabsf(x), -2.05561028e-5f, 4.90364502e-4f, -5.25266957e-3f, 3.40065584e-2f, -1.52594164e-1f,
                                          -9.16943192e-1f, -1.62811220f, 4.62862909e-6f));
  return x < 0 ? rest : 2.0f - rest;
}
template <class T> constexpr bool kIsFloat = false;
template <> constexpr bool kIsFloat<float> = true;
template <> constexpr bool kIsFloat<double> = true;

template <class T> INGOT_DEV bool is_nan(T x) {
  if constexpr (kIsFloat<T>) return x != x;
  return false;
}

template <class T> INGOT_DEV T ingot_max(T a, T b) {
  if constexpr (kIsFloat<T>) return a > b || a != a ? a : b;
  else return a > b ? a : b;
}
template <class T> INGOT_DEV T ingot_min(T a, T b) {
  if constexpr (kIsFloat<T>) return a < b || a != a ? a : b;
  else return a < b ? a : b;
}
template <> INGOT_DEV float ingot_max(float a, float b) {
  float r = a > b || a != a ? a : b;
  INGOT_PTX(if constexpr (kArch >= 80) asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));)
  return r;
}
template <> INGOT_DEV float ingot_min(float a, float b) {
  float r = a < b || a != a ? a : b;
  INGOT_PTX(if constexpr (kArch >= 80) asm("min.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));)
  return r;
}

/// x * (1 + erf(x / sqrt(2))) / 2 is max(x, 0) - |x| * 2^P(|x|): fast_one_plus_erf with its numbers for this x. Infinity is made finite
/// first, for which the second term is zero.
INGOT_DEV float fast_gelu(float x) {
  const float y = ingot_min(x, 1e30f), a = fabsf(y);
  const float p = polynomial(a, -1.81691996e-6f, 6.12955628e-5f, -9.28549562e-4f, 8.50163959e-3f, -5.39501831e-2f, -4.58471596e-1f,
                             -1.15124917f, -0.999995351f);
  return fmaf(-a, fast_exp2(p), fmaxf(x, 0.0f));
}

// Float division, remainder and modulus; the integer forms are in integer.cuh.
INGOT_DEV float ingot_rem(float a, float b) { return fmodf(a, b); }
INGOT_DEV double ingot_rem(double a, double b) { return fmod(a, b); }
INGOT_DEV float floor_div(float a, float b) { return floorf(a / b); }
INGOT_DEV double floor_div(double a, double b) { return floor(a / b); }
INGOT_DEV float floor_mod(float a, float b) {
  const float r = fmodf(a, b);
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
INGOT_DEV double floor_mod(double a, double b) {
  const double r = fmod(a, b);
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
