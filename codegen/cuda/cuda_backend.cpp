#include "codegen/cuda/cuda_backend.h"

#include <fmt/format.h>

#include "codegen/cuda/crossed_form.h"
#include "codegen/cuda/cuda_printer.h"
#include "codegen/cuda/nvrtc.h"
#include "codegen/cuda/plan_cuda.h"
#include "codegen/cuda/prelude.h"
#include "codegen/lower/lower_group.h"
#include "codegen/text/kernel_name.h"
#include "compiler/expr/simplify.h"

namespace ingot {

namespace {

bool mentions(const Expr& e, const std::vector<Axis>& axes) {
  for (const Axis& a : axes)
    if (depends_on(e, a.var.name())) return true;
  return false;
}

/// A batch that only one operand has is more rows of that operand: its tiles fill better, and the other operand is read
/// once for all of it.
Kernel fold_batch(Kernel kernel) {
  for (Stmt& stmt : kernel.body) {
    auto* c = std::get_if<Contract>(&stmt.node);
    if (!c || c->batch.empty()) continue;
    const bool in_a = mentions(c->a, c->batch), in_b = mentions(c->b, c->batch);
    if (in_a && in_b) continue;
    std::vector<Axis>& side = in_a ? c->m : c->n;
    side.insert(side.begin(), c->batch.begin(), c->batch.end());
    c->batch.clear();
  }
  collapse_axes(kernel);
  return kernel;
}

/// Groups of rows lie side by side among the rows of m. What `group` holds from here on only says how many there are.
Kernel with_group_rows(Kernel kernel) {
  for (Stmt& stmt : kernel.body)
    if (auto* c = std::get_if<Contract>(&stmt.node)) c->m.insert(c->m.end(), c->group.begin(), c->group.end());
  return kernel;
}

Result<EmittedKernel> emit_planned(const Kernel& given, const TargetTraits& target, const Schedule& schedule) {
  const Kernel kernel =
      shares_keys(schedule) ? heads_as_rows(given) : with_divided_sums(with_row_values(given, schedule), schedule);
  const bool by_rows = schedule.tile.row_teams > 0;
  if (by_rows && !product_of_rows(kernel, element_of(schedule.unit)))
    return unsupported(
        fmt::format("kernel {} has rows that do not arrive and leave as they lie in memory", kernel.name));
  const auto arrives = [&](DType element) {
    return shares_keys(schedule) ? key_rows(kernel, element).has_value() : takes_boxes(kernel, element);
  };
  if (schedule.tile.boxes && !by_rows && !arrives(element_of(schedule.unit)))
    return unsupported(fmt::format("kernel {} has operands that do not arrive as boxes", kernel.name));
  if (kernel.contract() && !kernel.contract()->group.empty() && schedule.unit == MultiplyUnit::Simt)
    return unsupported(fmt::format("kernel {} combines rows of a product without tensor cores", kernel.name));
  if (kernel.contract() && kernel.contract()->parts.width > 0 && !adds_up_parts(kernel, schedule))
    return unsupported(
        fmt::format("kernel {} has parts of rows that {} does not add up", kernel.name, to_string(schedule)));
  const std::string text = INGOT_TRY(print_cuda(kernel, schedule));
  const CudaLaunch launch = INGOT_TRY(cuda_launch(kernel, schedule));
  if (launch.shared_bytes > target.shared_bytes) {
    return unsupported(fmt::format("kernel {} needs {} bytes of shared memory as {}; {} has {}", kernel.name,
                                   launch.shared_bytes, to_string(schedule), target.name, target.shared_bytes));
  }
  EmittedKernel out;
  out.name = kernel_name(kernel.name, text);
  const std::string header = header_comment(kernel, out.name, schedule, target.name);
  out.source = header + replace_all(text, kPlaceholderName, out.name);
  out.threads = launch.threads;
  out.shared_bytes = launch.shared_bytes;
  out.grid = launch.grid;
  out.uses_i32 = fits_i32(kernel);
  out.schedule = schedule;
  out.boxes = box_maps(kernel, schedule);
  out.part_bytes = launch.part_bytes;
  return out;
}

}  // namespace

PlannedKernel plan_kernel(const Kernel& kernel, const TargetTraits& target) {
  PlannedKernel planned{fold_batch(kernel), {}};
  planned.forms = plan_window(planned.kernel, target);
  if (planned.forms.empty()) planned.forms = plan_crossed(planned.kernel, target);
  if (!planned.forms.empty()) return planned;
  planned.kernel = with_group_rows(unroll_windows(planned.kernel));
  planned.forms = plan_cuda(planned.kernel, target);
  return planned;
}

Result<std::vector<EmittedKernel>> emit_forms(const PlannedKernel& planned, const TargetTraits& target) {
  std::vector<EmittedKernel> forms;
  for (const Schedule& s : planned.forms) forms.push_back(INGOT_TRY(emit_planned(planned.kernel, target, s)));
  return forms;
}

Result<std::vector<EmittedKernel>> emit_cuda(const Kernel& kernel, const TargetTraits& target) {
  return emit_forms(plan_kernel(kernel, target), target);
}

Result<EmittedKernel> emit_cuda(const Kernel& kernel, const TargetTraits& target, const Schedule& schedule) {
  return emit_planned(with_group_rows(fold_batch(kernel)), target, schedule);
}

Result<std::vector<runtime::KernelBinary>> compile_cuda(const EmittedKernel& kernel,
                                                        std::span<const std::string> targets) {
  std::vector<runtime::KernelBinary> binaries;
  for (const std::string& target : targets) {
    if (target == kSourceTarget) {
      binaries.push_back({target, {kernel.source.begin(), kernel.source.end()}});
      continue;
    }
    auto compiled = compile_nvrtc(kernel.source, kernel.name, target);
    if (!compiled) {
      compiled.error().add(fmt::format("compiling {} for {}", kernel.name, target));
      return compiled.error();
    }
    binaries.push_back({target, std::move(compiled.value().code)});
  }
  return binaries;
}

std::string cuda_cache_text(const EmittedKernel& kernel) {
  const size_t body = kernel.source.find("#include");
  std::string text = body == std::string::npos ? kernel.source : kernel.source.substr(body);
  for (const EmbeddedFile& f : prelude_includes(kernel.source)) text += fmt::format("\n// {}\n{}", f.name, f.text);
  return text;
}

}  // namespace ingot
