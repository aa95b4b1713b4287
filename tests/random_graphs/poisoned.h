// Outputs that hold a pattern before a kernel runs, with guards around them: an element that is not written, or a write
// beside the tensor, shows.
#pragma once

#include "runtime/executor.h"

namespace ingot::testing {

/// A tensor whose bytes are the pattern: NaN as a float, an unlikely number as an integer.
Tensor poisoned_tensor(DType type, const std::vector<int64_t>& dims);

/// Session::enqueue into guarded memory of the device. Error: also when a guard or an input has changed.
Result<std::vector<Tensor>> run_poisoned(runtime::Device& device, runtime::Session& session,
                                         const std::vector<Tensor>& inputs);

}  // namespace ingot::testing
