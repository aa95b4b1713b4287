// Tensor: dtype, dims and bytes in host memory. Immutable once shared; a mapped weight file is one owner of bytes.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "compiler/support/dtype.h"
#include "compiler/support/result.h"

namespace ingot {

class Tensor {
 public:
  Tensor() = default;
  /// Zero-filled, 64-byte aligned, at least 64 bytes so that address 0 of an empty tensor can be read.
  Tensor(DType type, std::vector<int64_t> dims);
  /// Bytes that someone else owns (a mapped file); `owner` keeps them alive.
  Tensor(DType type, std::vector<int64_t> dims, std::shared_ptr<const void> owner, const void* data);

  DType type() const { return type_; }
  const std::vector<int64_t>& dims() const { return dims_; }
  int64_t count() const { return count_; }
  size_t bytes() const { return static_cast<size_t>(count_) * size_of(type_); }
  const void* data() const { return data_; }
  void* mutable_data() { return const_cast<void*>(data_); }
  template <class T>
  const T* as() const { return static_cast<const T*>(data_); }
  template <class T>
  T* mutable_as() { return static_cast<T*>(mutable_data()); }

  double float_at(int64_t i) const { return load_float(type_, static_cast<const char*>(data_) + i * stride()); }
  int64_t int_at(int64_t i) const { return load_int(type_, static_cast<const char*>(data_) + i * stride()); }
  /// The element as an i64: an integer itself, the bits of a float, of narrow ones as f32. Symbols carry elements so.
  int64_t bits_at(int64_t i) const;
  void set_float(int64_t i, double v) { store_float(type_, static_cast<char*>(mutable_data()) + i * stride(), v); }
  void set_int(int64_t i, int64_t v) { store_int(type_, static_cast<char*>(mutable_data()) + i * stride(), v); }

  static Tensor scalar(DType type, double value);
  static Tensor ints(const std::vector<int64_t>& values);  // i64, rank 1
  /// A tensor of the same bytes under other dims (the element count must agree).
  Tensor reshaped(std::vector<int64_t> dims) const;

 private:
  int64_t stride() const { return static_cast<int64_t>(size_of(type_)); }
  DType type_ = DType::F32;
  std::vector<int64_t> dims_;
  int64_t count_ = 0;
  std::shared_ptr<const void> owner_;
  const void* data_ = nullptr;
};
using TensorPtr = std::shared_ptr<const Tensor>;

/// Product of dims; an Error when one is negative or the product times `element_bytes` does not fit in 63 bits.
Result<int64_t> checked_count(const std::vector<int64_t>& dims, size_t element_bytes);
/// "f32[1,3,224,224]"
std::string describe(DType type, const std::vector<int64_t>& dims);

}  // namespace ingot
