// Arithmetic that is more than one LLVM instruction: division as Expr defines it, NaN-propagating min and max, and the
// functions of scalar_fn.def. The f32 functions are polynomials that work on vectors; the rest call libm lane by lane.
#pragma once

#include "codegen/llvm/ir_tools.h"
#include "compiler/expr/combine.h"
#include "compiler/expr/expr.h"

namespace ingot::cpu {

/// Div, Rem, FloorDiv, FloorMod. Integer division by zero gives 0.
llvm::Value* divide(IrTools& ir, ExprOp op, DType type, llvm::Value* a, llvm::Value* d);
/// The same for indices: i64 values below 2^51, so that vectors divide as doubles. The divisor is not 0 or the result
/// is 0.
llvm::Value* divide_index(IrTools& ir, ExprOp op, llvm::Value* a, llvm::Value* d);
llvm::Value* minimum(IrTools& ir, DType type, llvm::Value* a, llvm::Value* b);
llvm::Value* maximum(IrTools& ir, DType type, llvm::Value* a, llvm::Value* b);
/// a combined with b; not for ArgMax and ArgMin.
llvm::Value* combine_values(IrTools& ir, Combine combine, DType type, llvm::Value* a, llvm::Value* b);
/// The neutral element of `combine`.
llvm::Constant* identity_value(IrTools& ir, Combine combine, DType type);
llvm::Value* call_function(IrTools& ir, Fn fn, DType type, llvm::ArrayRef<llvm::Value*> args);

}  // namespace ingot::cpu
