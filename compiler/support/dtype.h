// Element types: sizes, names, classes, and conversion of single elements. Shared by the compiler and the runtime.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace ingot {

enum class DType : uint8_t {
  Bool,
  U8,
  I8,
  U16,
  I16,
  U32,
  I32,
  U64,
  I64,
  F16,
  BF16,
  F32,
  F64,
  F8E4M3,
  F8E5M2,
  I4,
  U4,
  F8E4M3FNUZ,
  F8E5M2FNUZ,
  F8E8M0,
  F4E2M1,
  I2,
  U2,
  String
};

/// Bytes of one element; 0 for String, 1 for the types of 2 and 4 bits (which are unpacked on import).
size_t size_of(DType type);
/// Bits of one element where ONNX packs several into a byte (2, 4); 8 * size_of(type) for all others.
int packed_bits(DType type);
inline bool is_packed(DType type) { return packed_bits(type) < 8; }
/// "f32", "i64", "bool": the spelling of the text form.
const char* name_of(DType type);
std::optional<DType> parse_dtype(std::string_view name);

bool is_float(DType type);
bool is_integer(DType type);  // Bool excluded
bool is_signed(DType type);   // of integers and floats

/// The type scalar expressions compute in: f16, bf16, fp8 and fp4 compute in f32; integers of 2 and 4 bits in i32; all others
/// as stored.
DType compute_type(DType type);

/// Reads or writes one element. Floats go through double, integers and Bool through int64 (U64 wraps into int64).
double load_float(DType type, const void* element);
int64_t load_int(DType type, const void* element);
void store_float(DType type, void* element, double value);  // rounds to nearest even
void store_int(DType type, void* element, int64_t value);   // wraps
/// Keeps an integer inside the range of its type, as stores and wrapping arithmetic do.
int64_t wrap(DType type, int64_t value);

/// IEEE binary16 and bfloat16, by bits; round to nearest even. Widening is inline and by integers: without F16C the compiler's
/// own conversion is a call for each element, which the interpreter would spend most of its time in.
inline float f16_to_float(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16, rest = bits & 0x7fffu;
  if (rest - 0x400u < 0x7800u) return std::bit_cast<float>(sign | ((rest << 13) + (112u << 23)));  // normal
  if (rest < 0x400u) {  // zero and subnormal: a count of 2^-24
    const float size = static_cast<float>(static_cast<int32_t>(rest)) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(size));
  }
  const uint32_t quiet = rest > 0x7c00u ? 1u << 22 : 0;
  return std::bit_cast<float>(sign | (255u << 23) | ((rest & 0x3ffu) << 13) | quiet);
}
uint16_t float_to_f16(float value);
inline float bf16_to_float(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
/// Both for many: rounded to nearest even, what is too large becomes infinite.
void floats_to_f16(const float* from, uint16_t* to, int64_t count);
void floats_to_bf16(const float* from, uint16_t* to, int64_t count);
uint16_t float_to_bf16(float value);

/// How a float of at most 8 bits with a sign is made. Values beyond `largest` become `largest` when stored.
struct SmallFloat {
  enum class Specials : uint8_t {
    Nan,  // all ones below the sign is NaN; infinity becomes the largest
    NanAndInfinity,  // as IEEE
    NegativeZero,  // the bits of -0 are the only NaN; infinity becomes the largest
    None  // infinity becomes the largest, NaN -0
  };
  int exponent_bits, mantissa_bits, bias;
  float largest;
  Specials specials;
};
/// Null for types that are no such float.
const SmallFloat* small_float(DType type);
/// Of the types that small_float knows and of F8E8M0, an unsigned power of two (rounded to the nearest; 0xff is NaN).
bool is_small_float(DType type);
float small_to_float(DType type, uint8_t bits);
uint8_t float_to_small(DType type, float value);

}  // namespace ingot
