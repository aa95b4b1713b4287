// Tensor maps: what copies by box (TMA) are told of the buffer that they read.
#pragma once

#include "runtime/cuda/driver_api.h"
#include "runtime/device.h"

namespace ingot::runtime::cuda {

/// Boxes of 128 bytes along the innermost axis, permuted in shared memory as wgmma reads them; zeros beyond the extents.
/// float32 elements are rounded to tf32 on their way; int32 is for 32 bits that stay as they are. Errors: a driver that knows no tensor maps, or refuses this one.
Result<TensorMap> encode_box(const DriverApi& api, const BoxSizes& sizes, DevicePtr buffer);

}  // namespace ingot::runtime::cuda
