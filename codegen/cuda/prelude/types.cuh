// Device prelude, first file: short names of types, small floats and their conversions, and the two bodies of a
// function.
//
// A function that needs the machine has two bodies side by side:
//   INGOT_PTX(...)   what NVRTC compiles;
//   INGOT_HOST(...)  the same meaning in C++, when g++ compiles the text for the emulator (-DINGOT_EMULATE).
// Generated kernels contain no inline PTX, declare no __shared__ variable and touch shared memory only through prelude
// functions, so the emulator sees every access, barrier and asynchronous operation. No toolkit header is included.
#pragma once
typedef signed char i8;
typedef short i16;
typedef int i32;
typedef long long i64;
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#ifdef INGOT_EMULATE
#include "device.h"
#define INGOT_PTX(...)
#define INGOT_HOST(...) __VA_ARGS__
/// Follows a kernel: the emulator calls it with an array of parameter pointers, as cuLaunchKernel gets them.
#define INGOT_ENTRY(kernel) \
  extern "C" void kernel##_entry(void** params) { emu_call(kernel, params); }
/// Follows a kernel that has __cluster_dims__(blocks, 1, 1), for whoever launches it without a driver.
#define INGOT_CLUSTER(kernel, blocks) extern "C" const unsigned kernel##_cluster = blocks;
constexpr int kArch = 90;
#else
#define INGOT_PTX(...) __VA_ARGS__
#define INGOT_HOST(...)
#define INGOT_ENTRY(kernel)
#define INGOT_CLUSTER(kernel, blocks)
#ifdef __CUDA_ARCH__
constexpr int kArch = __CUDA_ARCH__ / 10;  // 75, 80, 90, ...
#else
constexpr int kArch = 0;
#endif
#endif
#define INGOT_DEV __device__ __forceinline__

/// The same bits as another type of the same size.
template <class To, class From>
INGOT_DEV constexpr To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From), "bits_as changes the size");
  return __builtin_bit_cast(To, from);
}

constexpr float kInf = __builtin_bit_cast(float, 0x7f800000u);
constexpr float kNan = __builtin_bit_cast(float, 0x7fc00000u);
constexpr double kInf64 = __builtin_bit_cast(double, 0x7ff0000000000000ull);
constexpr double kNan64 = __builtin_bit_cast(double, 0x7ff8000000000000ull);

/// N consecutive elements, moved by one access of up to 16 bytes.
template <class T, int N>
struct alignas(sizeof(T) * N) Vec {
  T v[N];
  INGOT_DEV T& operator[](int i) { return v[i]; }
  INGOT_DEV const T& operator[](int i) const { return v[i]; }
};

// Storage types of small floats: bits only. Arithmetic is done in float.
struct f16 { u16 bits; };
struct bf16 { u16 bits; };
struct f8e4m3 { u8 bits; };
struct f8e5m2 { u8 bits; };

INGOT_DEV float to_f32(f16 x) {
  float r;
  INGOT_PTX(asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(x.bits));)
  INGOT_HOST(r = emu_from_f16(x.bits);)
  return r;
}
INGOT_DEV float to_f32(bf16 x) { return bits_as<float>((u32)x.bits << 16); }
INGOT_DEV float to_f32(f8e5m2 x) { return to_f32(f16{(u16)(x.bits << 8)}); }  // e5m2 is the upper half of a binary16
INGOT_DEV float to_f32(f8e4m3 x) {
  INGOT_PTX(if constexpr (kArch >= 89) {
    u32 halves;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"((u16)x.bits));
    return to_f32(f16{(u16)halves});
  })
  const u32 sign = (u32)(x.bits & 0x80) << 24, rest = x.bits & 0x7f;
  if (rest == 0x7f) return kNan;
  if (rest < 8) return bits_as<float>(sign | bits_as<u32>((float)rest * 0.001953125f));  // subnormal: units of 2^-9
  return bits_as<float>(sign | ((rest << 20) + (120u << 23)));
}

INGOT_DEV f16 to_f16(float x) {
  f16 r;
  INGOT_PTX(asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r.bits) : "f"(x));)
  INGOT_HOST(r.bits = emu_to_f16(x);)
  return r;
}
INGOT_DEV bf16 to_bf16(float x) {
  bf16 r;
  if constexpr (kArch >= 80) {
    INGOT_PTX(asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r.bits) : "f"(x));)
    INGOT_HOST(r.bits = emu_to_bf16(x);)
  } else {
    const u32 u = bits_as<u32>(x);
    r.bits = (u & 0x7fffffff) > 0x7f800000 ? 0x7fff : (u16)((u + 0x7fff + (u >> 16 & 1)) >> 16);
  }
  return r;
}
/// Rounds |x| below the overflow bound of a small float to nearest even; `bias` and `mantissa` describe the format.
INGOT_DEV u32 small_float_bits(float magnitude, int bias, int mantissa) {
  const u32 u = bits_as<u32>(magnitude), shift = 23 - mantissa;
  if (u >= (u32)(128 - bias) << 23) {
    return ((u + (1u << (shift - 1)) - 1 + (u >> shift & 1)) >> shift) - ((u32)(127 - bias) << mantissa);
  }
  const u32 magic = (u32)(127 + 24 - bias - mantissa) << 23;  // its sum ends in a subnormal's units
  return bits_as<u32>(magnitude + bits_as<float>(magic)) - magic;
}
INGOT_DEV f8e4m3 to_f8e4m3(float x) {
  INGOT_PTX(if constexpr (kArch >= 89) {
    u16 pair;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(x));
    return {(u8)pair};
  })
  const u32 sign = bits_as<u32>(x) >> 24 & 0x80;
  const float magnitude = fabsf(x);
  if (x != x) return {(u8)(sign | 0x7f)};
  return {(u8)(sign | (magnitude >= 448.0f ? 0x7e : small_float_bits(magnitude, 7, 3)))};
}
INGOT_DEV f8e5m2 to_f8e5m2(float x) {
  INGOT_PTX(if constexpr (kArch >= 89) {
    u16 pair;
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(x));
    return {(u8)(fabsf(x) == kInf ? bits_as<u32>(x) >> 24 & 0x80 | 0x7c : pair)};
  })
  const u32 sign = bits_as<u32>(x) >> 24 & 0x80;
  const float magnitude = fabsf(x);
  if (x != x) return {(u8)(sign | 0x7f)};
  if (magnitude == kInf) return {(u8)(sign | 0x7c)};
  return {(u8)(sign | (magnitude > 57344.0f ? 0x7b : small_float_bits(magnitude, 15, 2)))};
}

INGOT_DEV float round_f16(float x) { return to_f32(to_f16(x)); }
INGOT_DEV float round_bf16(float x) { return to_f32(to_bf16(x)); }
INGOT_DEV float round_f8e4m3(float x) { return to_f32(to_f8e4m3(x)); }
INGOT_DEV float round_f8e5m2(float x) { return to_f32(to_f8e5m2(x)); }

INGOT_DEV u32 pack_halves(u16 low, u16 high) { return (u32)low | (u32)high << 16; }
/// Two floats as two 16-bit values in one word, the first in the low half; round to nearest even.
INGOT_DEV u32 pack_f16x2(float low, float high) {
  u32 r = 0;
  INGOT_PTX(if constexpr (kArch >= 80) asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low)); else)
  r = pack_halves(to_f16(low).bits, to_f16(high).bits);
  return r;
}
INGOT_DEV u32 pack_bf16x2(float low, float high) {
  u32 r = 0;
  INGOT_PTX(if constexpr (kArch >= 80) asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low)); else)
  r = pack_halves(to_bf16(low).bits, to_bf16(high).bits);
  return r;
}
