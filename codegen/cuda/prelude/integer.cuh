// Integer arithmetic with no undefined case: overflow wraps, division by zero gives 0, long shifts shift everything
// out, and casts from floats saturate (NaN gives 0).
#pragma once
#include "prelude/types.cuh"

template <class T> struct IntegerTraits;
#define INGOT_INTEGER(T, U, low, high)               \
  template <> struct IntegerTraits<T> {              \
    typedef U Unsigned;                              \
    static constexpr T kLow = low, kHigh = high;     \
    static constexpr bool kSigned = (T)-1 < (T)0;    \
  };
INGOT_INTEGER(i8, u8, -128, 127)
INGOT_INTEGER(i16, u16, -32768, 32767)
INGOT_INTEGER(i32, u32, -2147483647 - 1, 2147483647)
INGOT_INTEGER(i64, u64, -9223372036854775807ll - 1, 9223372036854775807ll)
INGOT_INTEGER(u8, u8, 0, 255)
INGOT_INTEGER(u16, u16, 0, 65535)
INGOT_INTEGER(u32, u32, 0, 4294967295u)
INGOT_INTEGER(u64, u64, 0, 18446744073709551615ull)
#undef INGOT_INTEGER

template <class T> INGOT_DEV T wrap_add(T a, T b) { return (T)((u64)a + (u64)b); }
template <class T> INGOT_DEV T wrap_sub(T a, T b) { return (T)((u64)a - (u64)b); }
template <class T> INGOT_DEV T wrap_mul(T a, T b) { return (T)((u64)a * (u64)b); }
template <> INGOT_DEV i32 wrap_add(i32 a, i32 b) { return (i32)((u32)a + (u32)b); }
template <> INGOT_DEV i32 wrap_sub(i32 a, i32 b) { return (i32)((u32)a - (u32)b); }
template <> INGOT_DEV i32 wrap_mul(i32 a, i32 b) { return (i32)((u32)a * (u32)b); }

template <class T> INGOT_DEV T ingot_div(T a, T b) {
  if (b == 0) return 0;
  if constexpr (IntegerTraits<T>::kSigned) {
    if (b == (T)-1) return wrap_sub((T)0, a);  // the lowest value has no positive counterpart
  }
  return (T)(a / b);
}
template <class T> INGOT_DEV T ingot_rem(T a, T b) {
  if (b == 0) return 0;
  if constexpr (IntegerTraits<T>::kSigned) {
    if (b == (T)-1) return 0;
  }
  return (T)(a % b);
}
template <class T> INGOT_DEV T floor_div(T a, T b) {
  const T q = ingot_div(a, b);
  if constexpr (IntegerTraits<T>::kSigned) {
    if (b != 0 && (a < 0) != (b < 0) && wrap_mul(q, b) != a) return (T)(q - 1);
  }
  return q;
}
template <class T> INGOT_DEV T floor_mod(T a, T b) {
  const T r = ingot_rem(a, b);
  if constexpr (IntegerTraits<T>::kSigned) {
    if (r != 0 && (r < 0) != (b < 0)) return (T)(r + b);
  }
  return r;
}

template <class T> INGOT_DEV T shift_left(T a, T n) {
  typedef typename IntegerTraits<T>::Unsigned U;
  return (U)n >= sizeof(T) * 8 ? (T)0 : (T)((u64)(U)a << (u64)n);
}
template <class T> INGOT_DEV T shift_right(T a, T n) {
  typedef typename IntegerTraits<T>::Unsigned U;
  if ((U)n >= sizeof(T) * 8) return a < (T)0 ? (T)-1 : (T)0;
  return (T)(a >> n);
}

template <class T, class F> INGOT_DEV T float_to_int(F x) {
  if (x != x) return 0;
  // The upper limit as a float may lie one above the largest value; from there on the result is the largest value.
  if (x <= (F)IntegerTraits<T>::kLow) return IntegerTraits<T>::kLow;
  if (x >= (F)IntegerTraits<T>::kHigh) return IntegerTraits<T>::kHigh;
  return (T)x;
}
#ifndef INGOT_EMULATE
template <> INGOT_DEV i32 float_to_int(float x) { return __float2int_rz(x); }  // saturates, and NaN gives 0
#endif

/// float_to_int<T> of the nearest integer to x (ties to even) plus `zero`, a byte; `zero` as a float. Conversions, and the instruction
/// that rounds, have a fraction of the rate of additions: a float of 1.5 * 2^23 and more has a step of 1, and its last bits are the integer.
template <class T> INGOT_DEV T round_to_byte(float x, float zero = 0.0f) {
  constexpr float kSteps = 12582912.0f;
  const float inside = fminf(fmaxf(x, (float)IntegerTraits<T>::kLow - zero), (float)IntegerTraits<T>::kHigh - zero);
  return x != x ? (T)0 : (T)(bits_as<i32>(inside + kSteps) + bits_as<i32>(zero + kSteps));
}
