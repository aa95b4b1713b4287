#include "frontend/onnx_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "frontend/onnx_ir.pb.h"
#include "frontend/text.h"

namespace ingot {
namespace {

constexpr int32_t kExternal = 1;
// Smaller payloads are copied: the copy is aligned and padded as the kernels like it, and costs nothing.
constexpr size_t kCopyBelow = 4096;
constexpr uintptr_t kReferenceAlignment = 16;
// A dense form may be this much larger than its sparse values; a few bytes must not ask for gigabytes.
constexpr int64_t kSparseFloor = 64 << 20, kSparseFactor = 256;

/// Bytes that `count` elements take where several share one.
int64_t packed_bytes(DType type, int64_t count) { return (count * packed_bits(type) + 7) / 8; }

/// Element `i` of packed data, sign-extended if it is a signed integer; the first of a byte is in its lowest bits.
template <class ByteAt>
uint8_t unpack(DType type, int64_t i, ByteAt byte_at) {
  const int bits = packed_bits(type), per_byte = 8 / bits;
  const auto value = static_cast<uint8_t>((byte_at(i / per_byte) >> (i % per_byte * bits)) & ((1 << bits) - 1));
  const bool negative = is_integer(type) && is_signed(type) && value >> (bits - 1);
  return negative ? static_cast<uint8_t>(value | (0xff << bits)) : value;
}

/// Copies the typed field of the tensor's dtype, whose length is checked already.
void fill_typed(const onnx::Tensor& tensor, Tensor& out) {
  const DType type = out.type();
  const int64_t n = out.count();
  switch (type) {
    case DType::F32: std::copy_n(tensor.float_data().begin(), n, out.mutable_as<float>()); return;
    case DType::F64: std::copy_n(tensor.double_data().begin(), n, out.mutable_as<double>()); return;
    case DType::I64: std::copy_n(tensor.int64_data().begin(), n, out.mutable_as<int64_t>()); return;
    case DType::U64: std::copy_n(tensor.uint64_data().begin(), n, out.mutable_as<uint64_t>()); return;
    case DType::U32:
      for (int64_t i = 0; i < n; ++i) out.set_int(i, static_cast<int64_t>(tensor.uint64_data(static_cast<int>(i))));
      return;
    case DType::F16:
    case DType::BF16:
      for (int64_t i = 0; i < n; ++i)
        out.mutable_as<uint16_t>()[i] = static_cast<uint16_t>(tensor.int32_data(static_cast<int>(i)));
      return;
    default:
      if (is_packed(type) || is_small_float(type)) {
        for (int64_t i = 0; i < n; ++i)
          out.mutable_as<uint8_t>()[i] = unpack(
              type, i, [&](int64_t byte) { return static_cast<uint8_t>(tensor.int32_data(static_cast<int>(byte))); });
        return;
      }
      for (int64_t i = 0; i < n; ++i) out.set_int(i, tensor.int32_data(static_cast<int>(i)));
      return;
  }
}

/// The items in the typed field that a tensor of this type uses; below, those in all of them.
int64_t typed_items(const onnx::Tensor& tensor, DType type) {
  switch (type) {
    case DType::F32: return tensor.float_data_size();
    case DType::F64: return tensor.double_data_size();
    case DType::I64: return tensor.int64_data_size();
    case DType::U32:
    case DType::U64: return tensor.uint64_data_size();
    default: return tensor.int32_data_size();
  }
}
int64_t all_typed_items(const onnx::Tensor& t) {
  return int64_t{t.float_data_size()} + t.double_data_size() + t.int64_data_size() + t.uint64_data_size() +
         t.int32_data_size() + t.string_data_size();
}

Result<TensorPtr> load_typed(const onnx::Tensor& tensor, DType type, std::vector<int64_t> dims, int64_t count) {
  const int64_t wanted = is_packed(type) ? packed_bytes(type, count) : count;
  const int64_t found = typed_items(tensor, type);
  if (found != wanted || all_typed_items(tensor) != found)
    return invalid(fmt::format("{} needs {} items of data, but {} are there", describe(type, dims), wanted,
                               found == all_typed_items(tensor) ? found : all_typed_items(tensor)));
  Tensor out(type, std::move(dims));
  fill_typed(tensor, out);
  return std::make_shared<const Tensor>(std::move(out));
}

/// A tensor over the payload, or a copy where the payload is small, packed or ill aligned.
Tensor wrap_payload(DType type, std::vector<int64_t> dims, std::string_view bytes, std::shared_ptr<const void> owner) {
  if (!is_packed(type) && type != DType::Bool && bytes.size() >= kCopyBelow &&
      reinterpret_cast<uintptr_t>(bytes.data()) % kReferenceAlignment == 0)
    return Tensor(type, std::move(dims), std::move(owner), bytes.data());
  Tensor out(type, std::move(dims));
  if (is_packed(type)) {
    for (int64_t i = 0; i < out.count(); ++i)
      out.mutable_as<uint8_t>()[i] =
          unpack(type, i, [&](int64_t byte) { return static_cast<uint8_t>(bytes[static_cast<size_t>(byte)]); });
  } else if (type == DType::Bool) {
    for (int64_t i = 0; i < out.count(); ++i) out.mutable_as<uint8_t>()[i] = bytes[static_cast<size_t>(i)] != 0;
  } else if (!bytes.empty()) {
    std::memcpy(out.mutable_data(), bytes.data(), bytes.size());
  }
  return out;
}

/// checked_count, which also refuses dims whose product overflows beside a 0: others multiply them without looking.
Result<int64_t> safe_count(const std::vector<int64_t>& dims, size_t element_bytes) {
  std::vector<int64_t> nonzero = dims;
  std::replace(nonzero.begin(), nonzero.end(), int64_t{0}, int64_t{1});
  INGOT_TRY(checked_count(nonzero, element_bytes));
  return checked_count(dims, element_bytes);
}

}  // namespace

Result<TensorPtr> WeightLoader::load_raw(const onnx::Tensor& tensor, DType type, std::vector<int64_t> dims,
                                         int64_t count) {
  const uint64_t needed =
      is_packed(type) ? static_cast<uint64_t>(packed_bytes(type, count)) : static_cast<uint64_t>(count) * size_of(type);
  ExternalBytes payload{tensor.raw_data(), owner_};
  if (tensor.data_location() == kExternal) {
    payload = INGOT_TRY(external_.find(tensor, needed));
  } else if (payload.bytes.size() != needed) {
    return invalid(
        fmt::format("{} needs {} bytes of data, but {} are there", describe(type, dims), needed, payload.bytes.size()));
  }
  return std::make_shared<const Tensor>(wrap_payload(type, std::move(dims), payload.bytes, std::move(payload.owner)));
}

Result<TensorPtr> WeightLoader::load(const onnx::Tensor& tensor) {
  auto load = [&]() -> Result<TensorPtr> {
    const DType type = INGOT_TRY(dtype_from_onnx(tensor.data_type()));
    if (tensor.has_segment()) return unsupported("a tensor in segments is not supported");
    std::vector<int64_t> dims(tensor.dims().begin(), tensor.dims().end());
    const int64_t count = INGOT_TRY(safe_count(dims, size_of(type)));
    const int32_t location = tensor.data_location();
    if (location != 0 && location != kExternal)
      return unsupported(fmt::format("data location number {} is unknown", location));
    if (location == kExternal || tensor.has_raw_data()) {
      if (all_typed_items(tensor) != 0) return invalid("a tensor has both raw or external data and typed data");
      return load_raw(tensor, type, std::move(dims), count);
    }
    return load_typed(tensor, type, std::move(dims), count);
  };
  auto result = load();
  if (!result && !tensor.name().empty()) result.error().add(fmt::format("in tensor {}", quote_name(tensor.name())));
  return result;
}

namespace {

/// The linear position of every value, checked to be inside the dense form.
Result<std::vector<int64_t>> sparse_positions(const Tensor& indices, const std::vector<int64_t>& dims, int64_t values,
                                              int64_t dense) {
  const auto rank = static_cast<int64_t>(dims.size());
  const bool linear = indices.dims().size() == 1;
  if (indices.type() != DType::I64 ||
      (linear ? indices.count() != values : indices.dims() != std::vector<int64_t>{values, rank}))
    return invalid(fmt::format("sparse indices are {}, but must be i64[{}] or i64[{},{}]",
                               describe(indices.type(), indices.dims()), values, values, rank));
  std::vector<int64_t> positions;
  for (int64_t v = 0; v < values; ++v) {
    int64_t position = linear ? indices.int_at(v) : 0;
    for (int64_t d = 0; d < rank && !linear; ++d) {
      const int64_t i = indices.int_at(v * rank + d);
      if (i < 0 || i >= dims[static_cast<size_t>(d)])
        return invalid(fmt::format("sparse index {} is outside dimension {}", i, d));
      position = position * dims[static_cast<size_t>(d)] + i;
    }
    if (position < 0 || position >= dense)
      return invalid(fmt::format("sparse index {} is outside the tensor", position));
    if (!positions.empty() && position <= positions.back())
      return invalid("sparse indices must ascend without repeats");
    positions.push_back(position);
  }
  return positions;
}

}  // namespace

Result<TensorPtr> WeightLoader::load(const onnx::SparseTensor& sparse) {
  const TensorPtr values = INGOT_TRY(load(sparse.values()));
  const TensorPtr indices = INGOT_TRY(load(sparse.indices()));
  if (values->dims().size() != 1) return invalid("the values of a sparse tensor must have rank 1");
  std::vector<int64_t> dims(sparse.dims().begin(), sparse.dims().end());
  const size_t item = size_of(values->type());
  const int64_t dense = INGOT_TRY(safe_count(dims, item));
  const int64_t limit = std::max(kSparseFloor, static_cast<int64_t>(values->bytes()) * kSparseFactor);
  if (dense * static_cast<int64_t>(item) > limit)
    return unsupported(fmt::format("the sparse tensor {} has only {} values; its dense form would be too large",
                                   describe(values->type(), dims), values->count()));
  const auto positions = INGOT_TRY(sparse_positions(*indices, dims, values->count(), dense));
  Tensor out(values->type(), std::move(dims));
  for (size_t i = 0; i < positions.size(); ++i)
    std::memcpy(out.mutable_as<char>() + static_cast<size_t>(positions[i]) * item, values->as<char>() + i * item, item);
  return std::make_shared<const Tensor>(std::move(out));
}

}  // namespace ingot
