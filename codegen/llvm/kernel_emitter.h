// KernelEmitter: a whole kernel as an LLVM function with the signature of runtime/program.h.
#pragma once

#include "codegen/llvm/contract_plan.h"
#include "codegen/llvm/points_plan.h"

namespace ingot::cpu {

/// What decides the code of a kernel on one kind of machine.
struct CpuPlan {
  std::optional<ContractPlan> contract;
  std::optional<PointsPlan> points;     // one of the two
  ScratchPlan scratch;                  // of points
  Expr tasks;
  int64_t scratch_bytes = 0;
};

/// Adds `void kernel.name(buffers, dims, first, last, scratch)` to the module.
void emit_kernel(llvm::Module& module, const Kernel& kernel, const CpuPlan& plan, const Machine& machine);

}  // namespace ingot::cpu
