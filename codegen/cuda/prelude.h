// The device prelude (codegen/cuda/prelude/*.cuh) as text inside the binary: what NVRTC gets as in-memory headers.
#pragma once

#include <string_view>
#include <vector>

#include "codegen/cuda/embedded.h"

namespace ingot {

/// All files, by name. Written by cmake/embed.cmake.
const std::vector<EmbeddedFile>& prelude_table();

/// The text of "prelude/math.cuh"; empty when there is no such file.
std::string_view prelude_file(std::string_view name);

/// The prelude files that `source` includes, directly or through one another.
std::vector<EmbeddedFile> prelude_includes(std::string_view source);

}  // namespace ingot
