// NVRTC, opened at run time: CUDA text to CUBIN or PTX, without a GPU and without a toolkit's headers. Any number of
// threads may compile at the same time.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "compiler/support/result.h"

namespace ingot {

struct CompiledKernel {
  std::string target;
  std::vector<uint8_t> code;  // CUBIN, or PTX text with its terminating zero
  std::string log;  // warnings and ptxas' report
  int registers = 0;  // of a thread; 0 for PTX
  int stack_bytes = 0, spill_bytes = 0;
};

/// `target` is "sm_90a" for a CUBIN or "ptx_75" for PTX. The prelude files that the source includes are passed in
/// memory. Errors: NVRTC is not to be found (says where it was looked for), or it refuses the source (with its log).
Result<CompiledKernel> compile_nvrtc(const std::string& source, const std::string& name, const std::string& target,
                                     std::span<const std::string> extra_options = {});

/// "13.0", for cache keys; the same Error as above when there is no NVRTC.
Result<std::string> nvrtc_version();

/// The options that every compilation gets besides the target, for cache keys.
std::string nvrtc_options();

}  // namespace ingot
