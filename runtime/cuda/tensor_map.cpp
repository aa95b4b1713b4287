#include "runtime/cuda/tensor_map.h"

#include <algorithm>

#include <fmt/format.h>

namespace ingot::runtime::cuda {

namespace {

Result<TensorMapType> type_of(DType type) {
  switch (type) {
    case DType::I8:
    case DType::U8: return TensorMapType::U8;
    case DType::F16: return TensorMapType::F16;
    case DType::BF16: return TensorMapType::BF16;
    case DType::F32: return TensorMapType::TF32;
    case DType::I32: return TensorMapType::I32;
    default: return unsupported(fmt::format("copies by box of {}", name_of(type)));
  }
}

/// Rows of 64 or 128 bytes in shared memory, permuted as the tensor cores read them.
TensorMapSwizzle swizzle_of(const BoxSizes& sizes) {
  return static_cast<size_t>(sizes.box[0]) * size_of(sizes.type) == 64 ? TensorMapSwizzle::B64 : TensorMapSwizzle::B128;
}

Result<TensorMap> encode_window(const DriverApi& api, const BoxSizes& sizes, TensorMapType type, DevicePtr buffer,
                                const uint64_t* extents, const uint64_t* strides) {
  uint32_t steps[kMaxBoxRank];
  for (int i = 0; i < sizes.rank; ++i) {
    const bool middle = i > 0 && i + 1 < sizes.rank;
    steps[i] = middle ? static_cast<uint32_t>(sizes.steps[static_cast<size_t>(i) - 1]) : 1;
  }
  TensorMap map;
  INGOT_DRIVER_TRY(api, tensor_map_encode_im2col, &map, type, static_cast<unsigned>(sizes.rank),
                   reinterpret_cast<void*>(buffer + static_cast<DevicePtr>(sizes.offset)), extents, strides,
                   sizes.low.data(), sizes.high.data(), static_cast<uint32_t>(sizes.box[0]),
                   static_cast<uint32_t>(sizes.box[1]), steps, TensorMapInterleave::None, swizzle_of(sizes),
                   TensorMapL2::B256, TensorMapFill::Zero);
  return map;
}

}  // namespace

Result<TensorMap> encode_box(const DriverApi& api, const BoxSizes& sizes, DevicePtr buffer) {
  if (!api.tensor_map_encode_tiled || !api.tensor_map_encode_im2col)
    return unsupported("this driver knows no tensor maps; a newer one is needed (CUDA 12)");
  const TensorMapType type = INGOT_TRY(type_of(sizes.type));
  uint64_t extents[kMaxBoxRank], strides[kMaxBoxRank];
  uint32_t box[kMaxBoxRank], steps[kMaxBoxRank];
  for (size_t i = 0; i < kMaxBoxRank; ++i) {
    extents[i] = static_cast<uint64_t>(std::max<int64_t>(sizes.extents[i], 1));  // of nothing, nothing is read
    strides[i] = static_cast<uint64_t>(sizes.strides[i]);
    box[i] = static_cast<uint32_t>(sizes.box[i]);
    steps[i] = 1;
  }
  // Rows that may start anywhere are those of an attention. All that is in them is sent for at the same time, and to bring the
  // neighbours of 128 bytes, too, costs 3 to 5% where memory bounds.
  const bool anywhere = sizes.rank > 2 && sizes.strides[static_cast<size_t>(sizes.rank) - 2] < 128;
  TensorMap map;
  if (sizes.window) return encode_window(api, sizes, type, buffer, extents, strides);
  INGOT_DRIVER_TRY(api, tensor_map_encode_tiled, &map, type, static_cast<unsigned>(sizes.rank),
                   reinterpret_cast<void*>(buffer + static_cast<DevicePtr>(sizes.offset)), extents, strides, box, steps,
                   TensorMapInterleave::None, swizzle_of(sizes), anywhere ? TensorMapL2::B128 : TensorMapL2::B256,
                   TensorMapFill::Zero);
  return map;
}

}  // namespace ingot::runtime::cuda
