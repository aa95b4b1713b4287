// The emulated GPU as a runtime::Device: the CUDA device over the emulator's driver table, loading kernels by their
// text. Register it for `--device emulator` in test builds:
//   register_device("emulator", [] { return OpenDevice{open_emulator_device(), kSourceTarget}; });
#pragma once

#include <memory>

#include "compiler/support/result.h"
#include "runtime/device.h"

namespace ingot::emulation {

/// Kernels need KernelInfo::source; their binaries are not looked at.
Result<std::shared_ptr<runtime::Device>> open_emulator_device();

}  // namespace ingot::emulation
