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
