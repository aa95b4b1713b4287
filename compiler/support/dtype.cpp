#include "compiler/support/dtype.h"

#include <bit>
#include <cmath>
#include <cstring>

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
    {"bool", 1, false, false, false, DType::Bool}, {"u8", 1, false, true, false, DType::U8},
    {"i8", 1, false, true, true, DType::I8},       {"u16", 2, false, true, false, DType::U16},
    {"i16", 2, false, true, true, DType::I16},     {"u32", 4, false, true, false, DType::U32},
    {"i32", 4, false, true, true, DType::I32},     {"u64", 8, false, true, false, DType::U64},
    {"i64", 8, false, true, true, DType::I64},     {"f16", 2, true, false, true, DType::F32},
    {"bf16", 2, true, false, true, DType::F32},    {"f32", 4, true, false, true, DType::F32},
    {"f64", 8, true, false, true, DType::F64},     {"f8e4m3", 1, true, false, true, DType::F32},
    {"f8e5m2", 1, true, false, true, DType::F32},  {"i4", 1, false, true, true, DType::I32},
    {"u4", 1, false, true, false, DType::I32},     {"string", 0, false, false, false, DType::String},
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

/// Rounds to a small float of `exponent` and `mantissa` bits with the given bias, in the target's bit pattern.
uint32_t round_small(float value, int exponent_bits, int mantissa_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const uint32_t sign = std::signbit(value) ? 1u << (exponent_bits + mantissa_bits) : 0;
  const double magnitude = std::fabs(static_cast<double>(value));
  if (magnitude == 0) return sign;
  int exponent = std::ilogb(magnitude);
  if (exponent < 1 - bias) exponent = 1 - bias;
  const double scaled = std::nearbyint(std::ldexp(magnitude, mantissa_bits - exponent));
  auto units = static_cast<uint64_t>(scaled);
  uint64_t biased = static_cast<uint64_t>(exponent + bias);
  if (units >= (2ull << mantissa_bits)) { units >>= 1; ++biased; }
  if (units < (1ull << mantissa_bits)) return sign | static_cast<uint32_t>(units);  // subnormal
  return sign | static_cast<uint32_t>((biased << mantissa_bits) | (units & ((1ull << mantissa_bits) - 1)));
}

}  // namespace

size_t size_of(DType type) { return row(type).bytes; }
const char* name_of(DType type) { return row(type).name; }
bool is_float(DType type) { return row(type).is_float; }
bool is_integer(DType type) { return row(type).is_integer; }
bool is_signed(DType type) { return row(type).is_signed; }
DType compute_type(DType type) { return row(type).compute; }

std::optional<DType> parse_dtype(std::string_view name) {
  for (size_t i = 0; i < std::size(kTypes); ++i)
    if (name == kTypes[i].name) return static_cast<DType>(i);
  return std::nullopt;
}

float f16_to_float(uint16_t bits) {
  _Float16 half;
  std::memcpy(&half, &bits, 2);
  return static_cast<float>(half);
}
uint16_t float_to_f16(float value) {
  const auto half = static_cast<_Float16>(value);
  uint16_t bits;
  std::memcpy(&bits, &half, 2);
  return bits;
}
float bf16_to_float(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
uint16_t float_to_bf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return static_cast<uint16_t>((bits >> 16) | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}
float f8_to_float(DType type, uint8_t bits) {
  const bool e4m3 = type == DType::F8E4M3;
  const int mantissa_bits = e4m3 ? 3 : 2, bias = e4m3 ? 7 : 15;
  const int exponent = (bits & 0x7f) >> mantissa_bits, mantissa = bits & ((1 << mantissa_bits) - 1);
  const float sign = bits & 0x80 ? -1.0f : 1.0f;
  if (e4m3 && (bits & 0x7f) == 0x7f) return std::nanf("");
  if (!e4m3 && exponent == 31) return mantissa ? std::nanf("") : sign * INFINITY;
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(mantissa), 1 - bias - mantissa_bits);
  return sign * std::ldexp(1.0f + std::ldexp(static_cast<float>(mantissa), -mantissa_bits), exponent - bias);
}
uint8_t float_to_f8(DType type, float value) {
  const bool e4m3 = type == DType::F8E4M3;
  const uint8_t sign = std::signbit(value) ? 0x80 : 0;
  if (std::isnan(value)) return sign | 0x7f;
  if (e4m3) {
    if (std::fabs(value) >= 448.0f) return sign | 0x7e;
    return static_cast<uint8_t>(round_small(value, 4, 3));
  }
  if (std::isinf(value)) return sign | 0x7c;
  if (std::fabs(value) > 57344.0f) return sign | 0x7b;
  return static_cast<uint8_t>(round_small(value, 5, 2));
}

double load_float(DType type, const void* p) {
  switch (type) {
    case DType::F16: return f16_to_float(read<uint16_t>(p));
    case DType::BF16: return bf16_to_float(read<uint16_t>(p));
    case DType::F32: return read<float>(p);
    case DType::F64: return read<double>(p);
    case DType::F8E4M3:
    case DType::F8E5M2: return f8_to_float(type, read<uint8_t>(p));
    case DType::U64: return static_cast<double>(read<uint64_t>(p));
    default: return static_cast<double>(load_int(type, p));
  }
}
int64_t load_int(DType type, const void* p) {
  switch (type) {
    case DType::Bool: return read<uint8_t>(p) != 0;
    case DType::U8:
    case DType::U4: return read<uint8_t>(p);
    case DType::I8:
    case DType::I4: return read<int8_t>(p);
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
    case DType::F8E4M3:
    case DType::F8E5M2: return write(p, float_to_f8(type, static_cast<float>(value)));
    default: return store_int(type, p, static_cast<int64_t>(value));
  }
}
void store_int(DType type, void* p, int64_t value) {
  switch (type) {
    case DType::Bool: return write(p, static_cast<uint8_t>(value != 0));
    case DType::U8:
    case DType::I8:
    case DType::I4:
    case DType::U4: return write(p, static_cast<uint8_t>(value));
    case DType::U16:
    case DType::I16: return write(p, static_cast<uint16_t>(value));
    case DType::U32:
    case DType::I32: return write(p, static_cast<uint32_t>(value));
    case DType::U64:
    case DType::I64: return write(p, value);
    default: return store_float(type, p, static_cast<double>(value));
  }
}

}  // namespace ingot
