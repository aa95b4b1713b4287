// CUDA text as a shared object for this machine: compiled with g++ and the prelude's host bodies, and kept by content
// hash, so that a kernel is compiled once however often it is launched.
#pragma once

#include <string>
#include <vector>

#include "codegen/cuda/embedded.h"
#include "compiler/support/result.h"

namespace ingot::emulation {

/// device.h as text; written by cmake/embed.cmake.
const std::vector<EmbeddedFile>& device_table();

/// The path of the shared object. It exports <kernel>_entry for every INGOT_ENTRY(kernel) in the source.
/// Error: no compiler ($CXX, else g++), or its messages.
Result<std::string> compile_emulated(const std::string& source);

}  // namespace ingot::emulation
