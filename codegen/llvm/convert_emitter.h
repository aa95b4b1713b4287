// Conversions in LLVM IR: storage type <-> compute type of elements, and casts between compute types. Scalars or
// vectors.
#pragma once

#include "codegen/llvm/ir_tools.h"

namespace ingot::cpu {

/// The element as loaded (IrTools::storage) to its compute type.
llvm::Value* from_storage(IrTools& ir, DType stored, llvm::Value* v);
/// A value of the compute type to what is stored, rounding to nearest even.
llvm::Value* to_storage(IrTools& ir, DType stored, llvm::Value* v);
/// Expr's Cast: floats to integers truncate and saturate, NaN gives 0; to Bool is != 0.
llvm::Value* cast_value(IrTools& ir, DType from, DType to, llvm::Value* v);

}  // namespace ingot::cpu
