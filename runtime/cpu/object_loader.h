// A relocatable x86-64 ELF object, as LLVM writes it for a kernel, becomes code in this process. Every offset and size is
// checked, so that a damaged object is refused; but the code itself runs with the caller's rights, and only files that the
// caller trusts get here (LoadOptions::trust_host_code). The only linker of CPU kernels, for compiled models and engine
// files alike (docs/decisions/0005).
#pragma once

#include <span>
#include <string>

#include "runtime/cpu/cpu_device.h"

namespace ingot::runtime {

/// Links the object and finds `function` in it. The code stays mapped while CpuCode::owner lives. Errors: not such an
/// object, an offset outside of it, an unknown relocation, a symbol that neither it nor host_symbol has.
Result<CpuCode> load_object(std::span<const uint8_t> object, const std::string& function);

/// What generated code may call: some of libm, memcpy and the like. Null for any other name.
void* host_symbol(const std::string& name);

/// A loader for CpuDevice: the first binary of the kernel that this machine can run.
CpuLoader object_loader();

}  // namespace ingot::runtime
