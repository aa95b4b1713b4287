#include "codegen/llvm/cpu_backend.h"

#include <fmt/format.h>
#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/Module.h>
#include <llvm/Support/raw_ostream.h>

#include "codegen/llvm/attention_points.h"
#include "codegen/llvm/kernel_emitter.h"

namespace ingot {
namespace {

Result<cpu::CpuPlan> make_plan(const Kernel& kernel, const cpu::Machine& machine) {
  for (const Buffer& b : kernel.buffers)
    if (b.type == DType::String)
      return unsupported(fmt::format("buffer {} of kernel {} holds strings", b.name, kernel.name));
  cpu::CpuPlan plan;
  if (kernel.contract() && kernel.contract()->parts.width > 0)
    return unsupported(fmt::format("kernel {} adds up parts of a product's rows, which only GPUs do", kernel.name));
  if (kernel.contract()) {
    plan.contract = cpu::plan_contract(kernel, machine);
    if (!cpu::suits_windows(*plan.contract)) {
      plan.tasks = plan.contract->tasks;
      plan.scratch_bytes = plan.contract->scratch_bytes;
      return plan;
    }
    plan.points = cpu::plan_points(cpu::as_windows(kernel, *plan.contract), machine);
    plan.contract.reset();
  } else {
    plan.points = cpu::plan_points(kernel.attend() ? cpu::attention_as_points(kernel) : kernel, machine);
  }
  plan.tasks = plan.points->tasks;
  plan.scratch = INGOT_TRY(cpu::plan_scratch(kernel, plan.points->body));
  plan.scratch_bytes = plan.scratch.bytes;
  return plan;
}

std::string describe(const cpu::CpuPlan& plan) {
  if (!plan.contract) {
    const cpu::PointsPlan& p = *plan.points;
    return p.lanes ? fmt::format("points, vector along {} (extent {})", p.lanes->var.name(), to_string(p.lanes->extent))
                   : std::string("rows, vector along inner loops");
  }
  const cpu::ContractPlan& p = *plan.contract;
  if (p.dot) return fmt::format("contract by dot products, {} rows, {} vectors a panel", p.rows, p.vectors);
  return fmt::format("contract, register tile {} x {}, a {}, b {}, {} tiles x {} panels a task{}", p.tiles.variants[0],
                     p.panel(), p.a_direct ? "in place" : "packed", p.b_direct ? "in place" : "packed",
                     p.tiles_per_task, p.panels_per_task,
                     p.k_blocked ? fmt::format(", k in blocks of {}", p.k_block) : "");
}

}  // namespace

Result<CpuLaunch> plan_cpu(const Kernel& given, const TargetTraits& traits) {
  const Kernel kernel = rows_in_epilogue(given);
  const cpu::Machine machine(traits);
  const cpu::CpuPlan plan = INGOT_TRY(make_plan(kernel, machine));
  return CpuLaunch{plan.tasks, plan.scratch_bytes, describe(plan)};
}

Result<EmittedCpuKernel> emit_cpu(const Kernel& given, const TargetTraits& traits, bool want_ir) {
  const Kernel kernel = rows_in_epilogue(given);
  const cpu::Machine machine(traits);
  const cpu::CpuPlan plan = INGOT_TRY(make_plan(kernel, machine));
  llvm::LLVMContext context;
  llvm::Module module(kernel.name, context);
  cpu::emit_kernel(module, kernel, plan, machine);
  EmittedCpuKernel out;
  out.name = kernel.name;
  out.launch = {plan.tasks, plan.scratch_bytes, describe(plan)};
  if (want_ir) {
    llvm::raw_string_ostream stream(out.llvm_ir);
    module.print(stream, nullptr);
  }
  out.object = INGOT_TRY(cpu::compile_object(module, traits));
  return out;
}

}  // namespace ingot
