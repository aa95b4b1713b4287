// Rarer storage types of at most 8 bits: fp8 without infinities and without -0 (fnuz), fp4, and powers of two. Bits only, as
// in types.cuh; compiler/support/dtype.h: SmallFloat says what they mean.
#pragma once
#include "prelude/types.cuh"

struct f8e4m3fnuz {
  u8 bits;
};
struct f8e5m2fnuz {
  u8 bits;
};
struct f4e2m1 {
  u8 bits;
};
struct f8e8m0 {
  u8 bits;
};

/// The value of the bits below the sign.
INGOT_DEV float small_float_value(u32 magnitude, int bias, int mantissa) {
  if (magnitude < 1u << mantissa) return (float)magnitude * bits_as<float>((u32)(128 - bias - mantissa) << 23);
  return bits_as<float>((magnitude << (23 - mantissa)) + ((u32)(127 - bias) << 23));
}
INGOT_DEV float with_sign(float magnitude, bool negative) { return negative ? -magnitude : magnitude; }

INGOT_DEV float to_f32(f8e4m3fnuz x) {
  return x.bits == 0x80 ? kNan : with_sign(small_float_value(x.bits & 0x7f, 8, 3), x.bits >> 7);
}
INGOT_DEV float to_f32(f8e5m2fnuz x) {
  return x.bits == 0x80 ? kNan : with_sign(small_float_value(x.bits & 0x7f, 16, 2), x.bits >> 7);
}
INGOT_DEV float to_f32(f4e2m1 x) { return with_sign(small_float_value(x.bits & 7, 1, 1), x.bits >> 3); }
INGOT_DEV float to_f32(f8e8m0 x) {
  return x.bits == 0xff ? kNan : bits_as<float>(x.bits == 0 ? 0x00400000u : (u32)x.bits << 23);
}

/// The bits of a fnuz type: the largest where |x| is beyond it, no -0.
INGOT_DEV u8 fnuz_bits(float x, float largest, int bias, int mantissa) {
  if (x != x) return 0x80;
  const u32 code = small_float_bits(fminf(fabsf(x), largest), bias, mantissa);
  return (u8)(code == 0 ? 0 : code | (x < 0 ? 0x80 : 0));
}
INGOT_DEV f8e4m3fnuz to_f8e4m3fnuz(float x) { return {fnuz_bits(x, 240.0f, 8, 3)}; }
INGOT_DEV f8e5m2fnuz to_f8e5m2fnuz(float x) { return {fnuz_bits(x, 57344.0f, 16, 2)}; }
INGOT_DEV f4e2m1 to_f4e2m1(float x) {
  if (x != x) return {8};
  return {(u8)(small_float_bits(fminf(fabsf(x), 6.0f), 1, 1) | (bits_as<u32>(x) >> 31 << 3))};
}
INGOT_DEV f8e8m0 to_f8e8m0(float x) {
  const u32 bits = bits_as<u32>(x) & 0x7fffffff, power = (bits + 0x400000) >> 23;
  return {(u8)(bits >= 0x7f800000 ? 0xff : power > 0xfe ? 0xfe : power)};
}

INGOT_DEV float round_f8e4m3fnuz(float x) { return to_f32(to_f8e4m3fnuz(x)); }
INGOT_DEV float round_f8e5m2fnuz(float x) { return to_f32(to_f8e5m2fnuz(x)); }
INGOT_DEV float round_f4e2m1(float x) { return to_f32(to_f4e2m1(x)); }
INGOT_DEV float round_f8e8m0(float x) { return to_f32(to_f8e8m0(x)); }
