// Models on the emulator, which runs the CUDA text of their kernels: for programs that link ingot_emulator.
#pragma once

#include "codegen/cuda/cuda_backend.h"
#include "compiler/driver/devices.h"
#include "tests/emulation/emulator_device.h"

namespace ingot::test {

/// Makes "emulator" a device's name.
inline const bool kEmulatorRegistered = [] {
  register_device("emulator", []() -> Result<OpenDevice> {
    return OpenDevice{INGOT_TRY(emulation::open_emulator_device()), kSourceTarget};
  });
  return true;
}();

}  // namespace ingot::test
