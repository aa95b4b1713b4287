// Runs one sample kernel under the emulator, or on a GPU, and compares with the interpreter.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "codegen/backend.h"
#include "compiler/support/result.h"
#include "compiler/support/tensor.h"
#include "runtime/cuda/driver_api.h"
#include "tests/emulation/sample_kernels.h"

namespace ingot::samples {

struct Outcome {
  std::vector<std::string> faults;  // of the emulator
  double worst_error = 0;  // relative to the largest value of the output; 1e9 for a wrong NaN, integer or bool
  bool completed = true;
  bool agrees(const Sample& sample) const { return completed && worst_error <= sample.tolerance; }
};

/// Random contents for every buffer of the kernel, outputs included.
std::vector<Tensor> random_buffers(const Sample& sample, uint64_t seed);
/// What the interpreter makes of them.
Result<std::vector<Tensor>> expected_outputs(const Sample& sample, std::vector<Tensor> buffers);

/// Contents of the buffers, and what the interpreter makes of them: the same for every form and plan of a sample.
struct Reference {
  std::vector<Tensor> buffers, want;
};
Result<Reference> reference_of(const Sample& sample, uint64_t seed = 1);

/// Launches `emitted` on a device: `image` is what its driver loads. The outcome has no faults of the emulator.
Result<Outcome> run_sample_on(const runtime::cuda::DriverApi& api, const std::vector<uint8_t>& image,
                              const Sample& sample, const EmittedKernel& emitted, const Reference& reference);

/// Launches `emitted` through the emulated driver. The Error is for what is no fault of the kernel: no compiler, a bad
/// grid.
Result<Outcome> run_sample(const Sample& sample, const EmittedKernel& emitted, uint64_t seed = 1);

}  // namespace ingot::samples
