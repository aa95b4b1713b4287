// Element types: sizes, names, classes, and conversion of single elements. Shared by the compiler and the runtime.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace ingot {

enum class DType : uint8_t {
  Bool, U8, I8, U16, I16, U32, I32, U64, I64, F16, BF16, F32, F64, F8E4M3, F8E5M2, I4, U4, String
};

/// Bytes of one element; 0 for String, 1 for the 4-bit types (which are unpacked on import).
size_t size_of(DType type);
/// "f32", "i64", "bool": the spelling of the text form.
const char* name_of(DType type);
std::optional<DType> parse_dtype(std::string_view name);

bool is_float(DType type);
bool is_integer(DType type);  // Bool excluded
bool is_signed(DType type);   // of integers and floats

/// The type scalar expressions compute in: f16, bf16 and fp8 compute in f32; i4 and u4 in i32; all others as stored.
DType compute_type(DType type);

/// Reads or writes one element. Floats go through double, integers and Bool through int64 (U64 wraps into int64).
double load_float(DType type, const void* element);
int64_t load_int(DType type, const void* element);
void store_float(DType type, void* element, double value);  // rounds to nearest even
void store_int(DType type, void* element, int64_t value);   // wraps

/// IEEE binary16 and bfloat16, by bits; round to nearest even.
float f16_to_float(uint16_t bits);
uint16_t float_to_f16(float value);
float bf16_to_float(uint16_t bits);
uint16_t float_to_bf16(float value);
/// OCP fp8; e4m3fn has no infinity and saturates, e5m2 follows IEEE.
float f8_to_float(DType type, uint8_t bits);
uint8_t float_to_f8(DType type, float value);

}  // namespace ingot
