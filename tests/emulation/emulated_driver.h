// The emulator behind the table of CUDA driver functions: launch code, grids and tensor maps are tested with the
// kernels. The device is "emulated H200", compute capability 9.0. A module's image is CUDA text (zero-terminated):
// what a real driver does with PTX, this one does with source. Streams run at once, events take the host's clock.
#pragma once

#include <string>
#include <vector>

#include "compiler/support/result.h"
#include "runtime/cuda/driver_api.h"
#include "tests/emulation/emulator.h"

namespace ingot::emulation {

/// The table. Launches that report a fault return kErrorLaunchFailed, and get_error_string then gives the reports.
const runtime::cuda::DriverApi& emulated_driver();

/// The reports of the last launch, and its counts.
const LaunchReport& last_report();
/// Seed, preemption; also set by INGOT_EMULATOR_SEED.
LaunchOptions& launch_options();

/// The image of a module for `source`: what KernelBinary::code holds for the emulated device. Compiles it, so that
/// errors of the text are reported here and not at the launch. KernelBinary::target is kEmulatedTarget.
Result<std::vector<uint8_t>> emulate_module(const std::string& source);

/// The emulated driver takes its images where the real one takes PTX.
constexpr const char* kEmulatedTarget = "ptx_75";

}  // namespace ingot::emulation
