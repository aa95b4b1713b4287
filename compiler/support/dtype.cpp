#include "compiler/support/dtype.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace ingot {
namespace {

struct TypeRow {
  const char* name;
  size_t bytes;
  bool is_float, is_integer, is_signed;
  DType compute;
};
// Indexed by DType.
constexpr TypeRow kTypes[] = {
    {"bool", 1, false, false, false, DType::Bool},    {"u8", 1, false, true, false, DType::U8},
    {"i8", 1, false, true, true, DType::I8},          {"u16", 2, false, true, false, DType::U16},
    {"i16", 2, false, true, true, DType::I16},        {"u32", 4, false, true, false, DType::U32},
    {"i32", 4, false, true, true, DType::I32},        {"u64", 8, false, true, false, DType::U64},
    {"i64", 8, false, true, true, DType::I64},        {"f16", 2, true, false, true, DType::F32},
    {"bf16", 2, true, false, true, DType::F32},       {"f32", 4, true, false, true, DType::F32},
    {"f64", 8, true, false, true, DType::F64},        {"f8e4m3", 1, true, false, true, DType::F32},
    {"f8e5m2", 1, true, false, true, DType::F32},     {"i4", 1, false, true, true, DType::I32},
    {"u4", 1, false, true, false, DType::I32},        {"f8e4m3fnuz", 1, true, false, true, DType::F32},
    {"f8e5m2fnuz", 1, true, false, true, DType::F32}, {"f8e8m0", 1, true, false, false, DType::F32},
    {"f4e2m1", 1, true, false, true, DType::F32},     {"i2", 1, false, true, true, DType::I32},
    {"u2", 1, false, true, false, DType::I32},        {"string", 0, false, false, false, DType::String},
};
const TypeRow& row(DType type) { return kTypes[static_cast<size_t>(type)]; }

template <class T>
T read(const void* p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}
template <class T>
void write(void* p, T value) {
  std::memcpy(p, &value, sizeof value);
}

/// Rounds a magnitude to nearest even, in the bit pattern of a small float below its sign.
uint32_t round_small(double magnitude, int mantissa_bits, int bias) {
  if (magnitude == 0) return 0;
  int exponent = std::ilogb(magnitude);
  if (exponent < 1 - bias) exponent = 1 - bias;
  const double scaled = std::nearbyint(std::ldexp(magnitude, mantissa_bits - exponent));
  auto units = static_cast<uint64_t>(scaled);
  uint64_t biased = static_cast<uint64_t>(exponent + bias);
  if (units >= (2ull << mantissa_bits)) { units >>= 1; ++biased; }
  if (units < (1ull << mantissa_bits)) return static_cast<uint32_t>(units);  // subnormal
  return static_cast<uint32_t>((biased << mantissa_bits) | (units & ((1ull << mantissa_bits) - 1)));
}

}  // namespace

size_t size_of(DType type) { return row(type).bytes; }
const char* name_of(DType type) { return row(type).name; }
bool is_float(DType type) { return row(type).is_float; }
bool is_integer(DType type) { return row(type).is_integer; }
bool is_signed(DType type) { return row(type).is_signed; }
DType compute_type(DType type) { return row(type).compute; }
int packed_bits(DType type) {
  if (type == DType::I2 || type == DType::U2) return 2;
  if (type == DType::I4 || type == DType::U4 || type == DType::F4E2M1) return 4;
  return static_cast<int>(size_of(type)) * 8;
}

std::optional<DType> parse_dtype(std::string_view name) {
  for (size_t i = 0; i < std::size(kTypes); ++i)
    if (name == kTypes[i].name) return static_cast<DType>(i);
  return std::nullopt;
}

uint16_t float_to_f16(float value) {
  const auto half = static_cast<_Float16>(value);
  uint16_t bits;
  std::memcpy(&bits, &half, 2);
  return bits;
}
uint16_t float_to_bf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return static_cast<uint16_t>((bits >> 16) | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

#if defined(__x86_64__)
/// Eight at a time; the number of those done.
__attribute__((target("avx,f16c"))) static int64_t eights_to_f16(const float* from, uint16_t* to, int64_t count) {
  int64_t i = 0;
  for (; i + 8 <= count; i += 8)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i), _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
  return i;
}
#endif

void floats_to_f16(const float* from, uint16_t* to, int64_t count) {
  int64_t done = 0;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("f16c")) done = eights_to_f16(from, to, count);
#endif
  for (int64_t i = done; i < count; ++i) to[i] = float_to_f16(from[i]);
}
void floats_to_bf16(const float* from, uint16_t* to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] = float_to_bf16(from[i]);
}

namespace {

using Specials = SmallFloat::Specials;
constexpr SmallFloat kE4m3{4, 3, 7, 448, Specials::Nan}, kE5m2{5, 2, 15, 57344, Specials::NanAndInfinity},
    kE4m3Fnuz{4, 3, 8, 240, Specials::NegativeZero}, kE5m2Fnuz{5, 2, 16, 57344, Specials::NegativeZero},
    kE2m1{2, 1, 1, 6, Specials::None};

float power_to_float(uint8_t bits) { return bits == 0xff ? std::nanf("") : std::ldexp(1.0f, bits - 127); }
uint8_t float_to_power(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value) & 0x7fffffff;
  if (bits >= 0x7f800000) return 0xff;
  return static_cast<uint8_t>(std::min<uint32_t>((bits + 0x400000) >> 23, 0xfe));
}

}  // namespace

const SmallFloat* small_float(DType type) {
  switch (type) {
    case DType::F8E4M3: return &kE4m3;
    case DType::F8E5M2: return &kE5m2;
    case DType::F8E4M3FNUZ: return &kE4m3Fnuz;
    case DType::F8E5M2FNUZ: return &kE5m2Fnuz;
    case DType::F4E2M1: return &kE2m1;
    default: return nullptr;
  }
}
bool is_small_float(DType type) { return type == DType::F8E8M0 || small_float(type); }

float small_to_float(DType type, uint8_t bits) {
  if (type == DType::F8E8M0) return power_to_float(bits);
  const SmallFloat& f = *small_float(type);
  const uint32_t sign_bit = 1u << (f.exponent_bits + f.mantissa_bits), magnitude = bits & (sign_bit - 1);
  const bool negative = bits & sign_bit;
  const int exponent = static_cast<int>(magnitude >> f.mantissa_bits), all = (1 << f.exponent_bits) - 1;
  const int mantissa = static_cast<int>(magnitude & ((1u << f.mantissa_bits) - 1));
  if (f.specials == Specials::Nan && magnitude == sign_bit - 1) return std::nanf("");
  if (f.specials == Specials::NegativeZero && bits == sign_bit) return std::nanf("");
  if (f.specials == Specials::NanAndInfinity && exponent == all)
    return mantissa ? std::nanf("") : negative ? -INFINITY : INFINITY;
  const int units = exponent == 0 ? mantissa : mantissa + (1 << f.mantissa_bits);
  const float value = std::ldexp(static_cast<float>(units), std::max(exponent, 1) - f.bias - f.mantissa_bits);
  return negative ? -value : value;
}

uint8_t float_to_small(DType type, float value) {
  if (type == DType::F8E8M0) return float_to_power(value);
  const SmallFloat& f = *small_float(type);
  const uint32_t sign_bit = 1u << (f.exponent_bits + f.mantissa_bits), sign = std::signbit(value) ? sign_bit : 0;
  if (std::isnan(value)) {
    const bool lone = f.specials == Specials::NegativeZero || f.specials == Specials::None;
    return static_cast<uint8_t>(lone ? sign_bit : sign | (sign_bit - 1));
  }
  if (std::isinf(value) && f.specials == Specials::NanAndInfinity)
    return static_cast<uint8_t>(sign | (((1u << f.exponent_bits) - 1) << f.mantissa_bits));
  const double magnitude = std::min<double>(std::fabs(value), f.largest);
  const uint32_t code = round_small(magnitude, f.mantissa_bits, f.bias);
  if (code == 0 && f.specials == Specials::NegativeZero) return 0;
  return static_cast<uint8_t>(sign | code);
}

double load_float(DType type, const void* p) {
  switch (type) {
    case DType::F16: return f16_to_float(read<uint16_t>(p));
    case DType::BF16: return bf16_to_float(read<uint16_t>(p));
    case DType::F32: return read<float>(p);
    case DType::F64: return read<double>(p);
    case DType::U64: return static_cast<double>(read<uint64_t>(p));
    default:
      return is_small_float(type) ? small_to_float(type, read<uint8_t>(p)) : static_cast<double>(load_int(type, p));
  }
}
int64_t load_int(DType type, const void* p) {
  switch (type) {
    case DType::Bool: return read<uint8_t>(p) != 0;
    case DType::U8:
    case DType::U4:
    case DType::U2: return read<uint8_t>(p);
    case DType::I8:
    case DType::I4:
    case DType::I2: return read<int8_t>(p);
    case DType::U16: return read<uint16_t>(p);
    case DType::I16: return read<int16_t>(p);
    case DType::U32: return read<uint32_t>(p);
    case DType::I32: return read<int32_t>(p);
    case DType::U64:
    case DType::I64: return read<int64_t>(p);
    default: return static_cast<int64_t>(load_float(type, p));
  }
}
void store_float(DType type, void* p, double value) {
  switch (type) {
    case DType::F16: return write(p, float_to_f16(static_cast<float>(value)));
    case DType::BF16: return write(p, float_to_bf16(static_cast<float>(value)));
    case DType::F32: return write(p, static_cast<float>(value));
    case DType::F64: return write(p, value);
    default:
      if (is_small_float(type)) return write(p, float_to_small(type, static_cast<float>(value)));
      return store_int(type, p, static_cast<int64_t>(value));
  }
}
void store_int(DType type, void* p, int64_t value) {
  switch (type) {
    case DType::Bool: return write(p, static_cast<uint8_t>(value != 0));
    case DType::U8:
    case DType::I8:
    case DType::I4:
    case DType::U4:
    case DType::I2:
    case DType::U2: return write(p, static_cast<uint8_t>(value));
    case DType::U16:
    case DType::I16: return write(p, static_cast<uint16_t>(value));
    case DType::U32:
    case DType::I32: return write(p, static_cast<uint32_t>(value));
    case DType::U64:
    case DType::I64: return write(p, value);
    default: return store_float(type, p, static_cast<double>(value));
  }
}

int64_t wrap(DType type, int64_t value) {
  unsigned char bytes[8] = {};
  store_int(type, bytes, value);
  return load_int(type, bytes);
}

}  // namespace ingot
