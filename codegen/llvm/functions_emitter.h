// The bodies of scalar_fn.def in LLVM IR; reached through math_emitter.h.
#pragma once

#include "codegen/llvm/ir_tools.h"

namespace ingot::cpu {

/// The libm function of that name for doubles ("fmod"), or its f32 form, lane by lane.
llvm::Value* emit_libm(IrTools& ir, const char* name, llvm::ArrayRef<llvm::Value*> args);

}  // namespace ingot::cpu
