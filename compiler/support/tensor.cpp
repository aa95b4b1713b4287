#include "compiler/support/tensor.h"

#include <bit>
#include <cstdlib>

namespace ingot {

Result<int64_t> checked_count(const std::vector<int64_t>& dims, size_t element_bytes) {
  bool empty = false;
  for (int64_t d : dims) {
    if (d < 0) return invalid("negative dimension " + std::to_string(d));
    if (d == 0) empty = true;
  }
  if (empty) return int64_t{0};
  int64_t count = 1, bytes = 0;
  for (int64_t d : dims)
    if (__builtin_mul_overflow(count, d, &count)) return invalid("element count does not fit in 63 bits");
  if (__builtin_mul_overflow(count, static_cast<int64_t>(element_bytes), &bytes))
    return invalid("byte count does not fit in 63 bits");
  return count;
}

Tensor::Tensor(DType type, std::vector<int64_t> dims) : type_(type), dims_(std::move(dims)) {
  count_ = 1;
  for (int64_t d : dims_) count_ *= d;
  const size_t rounded = (bytes() + 127) / 64 * 64;
  void* memory = std::aligned_alloc(64, rounded);
  INGOT_CHECK(memory != nullptr, "out of host memory for a tensor of " + std::to_string(rounded) + " bytes");
  std::memset(memory, 0, rounded);
  owner_ = std::shared_ptr<const void>(memory, [](const void* p) { std::free(const_cast<void*>(p)); });
  data_ = memory;
}

Tensor::Tensor(DType type, std::vector<int64_t> dims, std::shared_ptr<const void> owner, const void* data)
    : type_(type), dims_(std::move(dims)), owner_(std::move(owner)), data_(data) {
  count_ = 1;
  for (int64_t d : dims_) count_ *= d;
}

Tensor Tensor::scalar(DType type, double value) {
  Tensor t(type, {});
  is_float(type) ? t.set_float(0, value) : t.set_int(0, static_cast<int64_t>(value));
  return t;
}

int64_t Tensor::bits_at(int64_t i) const {
  if (!is_float(type_)) return int_at(i);
  const double v = float_at(i);
  return type_ == DType::F64 ? std::bit_cast<int64_t>(v) : std::bit_cast<int32_t>(static_cast<float>(v));
}

Tensor Tensor::ints(const std::vector<int64_t>& values) {
  Tensor t(DType::I64, {static_cast<int64_t>(values.size())});
  for (size_t i = 0; i < values.size(); ++i) t.set_int(static_cast<int64_t>(i), values[i]);
  return t;
}

Tensor Tensor::reshaped(std::vector<int64_t> dims) const {
  Tensor t(type_, std::move(dims), owner_, data_);
  INGOT_CHECK(t.count_ == count_, "reshaped: element counts differ");
  return t;
}

std::string describe(DType type, const std::vector<int64_t>& dims) {
  std::string text = std::string(name_of(type)) + "[";
  for (size_t i = 0; i < dims.size(); ++i) text += (i ? "," : "") + std::to_string(dims[i]);
  return text + "]";
}

}  // namespace ingot
