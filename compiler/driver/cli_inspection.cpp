#include "compiler/driver/cli_inspection.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "codegen/cuda/cuda_backend.h"
#include "codegen/cuda/mma_cost.h"
#include "codegen/llvm/cpu_backend.h"
#include "compiler/driver/targets.h"
#include "compiler/ops/joins.h"
#include "runtime/memory.h"

namespace ingot::cli {
namespace {

constexpr const char* kPlainRoof = "f32";
constexpr int64_t kSomeSize = 64;

int64_t number(const Expr& e, const Sizes& at) { return evaluate_int(e, at).value_or(0); }
int64_t bytes_of(const TensorType& t, const Sizes& at) {
  return number(element_count(t.shape), at) * static_cast<int64_t>(size_of(t.dtype));
}

/// Every symbol at `batch` (inside its range), for showing sizes of dynamic models; those of elements, and sizes that nothing
/// else gives, at kSomeSize.
void sample_symbols(const Graph& g, int64_t batch, Sizes& at) {
  const auto add = [&](const Expr& e, int64_t size) {
    at.emplace(e.name(), std::clamp<int64_t>(size, e.low(), std::max<int64_t>(e.high(), 1)));
  };
  for (const ValueSymbol& s : g.value_symbols) add(s.symbol, kSomeSize);
  for (const DerivedSymbol& d : g.derived_symbols)
    if (const auto size = evaluate_int(d.definition, at)) add(d.symbol, *size);
  for (ValueId v : g.inputs) {
    const Shape& s = g.value(v).type.shape;
    for (size_t d = 0; d < s.size(); ++d)
      if (s[d].op() == ExprOp::Symbol) add(s[d], d == 0 ? batch : kSomeSize);
  }
  for (const DerivedSymbol& d : g.derived_symbols) add(d.symbol, evaluate_int(d.definition, at).value_or(kSomeSize));
}

int64_t total_bytes(const Compilation& c, const Sizes& at) {
  int64_t total = 0;
  for (const Kernel& k : c.lowered.kernels) total += number(kernel_bytes(k), at);
  return total;
}
/// Every input, weight and output once.
int64_t floor_bytes(const Graph& g, const Sizes& at) {
  std::set<ValueId> once(g.inputs.begin(), g.inputs.end());
  once.insert(g.outputs.begin(), g.outputs.end());
  for (NodeId n : g.order())
    for (ValueId v : g.node(n).inputs)
      if (g.value(v).constant) once.insert(v);
  int64_t total = 0;
  for (ValueId v : once) total += bytes_of(g.value(v).type, at);
  return total;
}

std::string roof_name(MultiplyUnit unit) {
  return unit == MultiplyUnit::Simt ? kPlainRoof : fmt::format("{} tensor cores", name_of(unit));
}
/// Nominal: what mma_cost.h expects the units to reach, at the clock that the rate of f32 arithmetic implies.
double rate_of(const TargetTraits& t, MultiplyUnit unit) {
  if (unit == MultiplyUnit::Simt) return t.f32_gflops;
  const bool half_width = t.compute_capability == 75 || t.compute_capability == 80;
  const double lanes = half_width ? 64 : 128;  // f32 units of an SM
  const MmaMachine m = mma_machine(t, unit);
  return t.f32_gflops / lanes * std::max(m.multiplies, m.group_multiplies);
}

MultiplyUnit unit_of(const Schedule& s) {
  const bool multiplies = s.kind == Schedule::Kind::Tiles || s.kind == Schedule::Kind::Attention;
  return multiplies ? s.unit : MultiplyUnit::Simt;
}

/// Plans and prints the kernel for the target; says what multiplies.
Result<MultiplyUnit> plan_forms(const Kernel& k, const TargetTraits& target, KernelView& view) {
  MultiplyUnit unit = MultiplyUnit::Simt;
  if (target.kind == TargetKind::Cpu) {
    const CpuLaunch launch = INGOT_TRY(plan_cpu(k, target));
    view.forms.push_back({k.name, launch.summary, to_string(k)});
    return unit;
  }
  for (EmittedKernel& e : INGOT_TRY(emit_cuda(k, target))) {
    unit = std::max(unit, unit_of(e.schedule));
    view.forms.push_back({std::move(e.name), to_string(e.schedule), std::move(e.source), e.threads, e.shared_bytes});
  }
  return unit;
}

Result<KernelView> view_of(const Kernel& k, Inspection& i) {
  KernelView view;
  const MultiplyUnit unit = INGOT_TRY(plan_forms(k, i.target, view));
  view.bytes = number(kernel_bytes(k), i.at);
  view.flops = number(kernel_flops(k), i.at);
  view.roof = roof_name(unit);
  const double rate = rate_of(i.target, unit);
  const double memory = static_cast<double>(view.bytes) / i.target.memory_gbps / 1000;
  const double arithmetic = static_cast<double>(view.flops) / rate / 1000;
  view.us = std::max(memory, arithmetic);
  view.memory_bound = memory >= arithmetic;
  if (std::none_of(i.roofs.begin(), i.roofs.end(), [&](const Roof& r) { return r.name == view.roof; }))
    i.roofs.push_back({view.roof, rate});
  return view;
}

/// The arena as a session lays it out: one slot behind the other.
void place_slots(PartView& p, const Sizes& at) {
  for (const Expr& e : p.fused.plan.slot_bytes) {
    p.slot_offsets.push_back(p.arena_bytes);
    p.arena_bytes +=
        static_cast<int64_t>(runtime::align_up(static_cast<uint64_t>(std::max<int64_t>(number(e, at), 1))));
  }
}
void place_values(PartView& p, const Sizes& at) {
  const Graph& g = p.fused.graph;
  const MemoryPlan& plan = p.fused.plan;
  IdMap<ValueId, int> known(g.value_count(), -1);
  for (size_t step = 0; step < plan.order.size(); ++step) {
    const Node& n = g.node(plan.order[step]);
    for (const auto* list : {&n.inputs, &n.outputs})
      for (ValueId v : *list) {
        const ValueId holder = v.valid() ? holder_of(g, v) : v;
        const int slot = v.valid() ? plan.slot.at(holder) : -1;
        if (slot < 0) continue;
        if (known[holder] < 0) {
          known[holder] = static_cast<int>(p.arena.size());
          p.arena.push_back({holder, slot, p.slot_offsets[static_cast<size_t>(slot)],
                             bytes_of(g.value(holder).type, at), step, step});
        }
        p.arena[static_cast<size_t>(known[holder])].last = step;
      }
  }
}

Status fill_part(Inspection& i, PartView& p) {
  p.first = i.kernels;
  i.kernels += p.fused.lowered.kernels.size();
  i.kernels_unfused += p.unfused.lowered.kernels.size();
  i.bytes_after += total_bytes(p.fused, i.at);
  i.bytes_before += total_bytes(p.unfused, i.at);
  i.bytes_floor += floor_bytes(p.fused.graph, i.at);
  for (const Kernel& k : p.fused.lowered.kernels) {
    p.kernels.push_back(INGOT_TRY(view_of(k, i)));
    i.flops += p.kernels.back().flops;
  }
  p.neighbours = explain_neighbours(p.fused.graph, p.fused.refusals);
  place_slots(p, i.at);
  place_values(p, i.at);
  i.arena_bytes += p.arena_bytes;
  return {};
}

}  // namespace

Result<Inspection> inspect(const std::string& path, const CompileOptions& options, int64_t batch) {
  Inspection i;
  i.model = path;
  i.options = options;
  i.target = INGOT_TRY(traits_for(options));
  Compilation fused = INGOT_TRY(lower_model(path, options));
  CompileOptions apart = options;
  apart.fuse = false;
  apart.dump_dir.clear();
  Compilation unfused = INGOT_TRY(lower_model(path, apart));
  i.opset = fused.import.opset;
  i.model_nodes = fused.model_nodes;
  const Graph& g = fused.graph;
  for (ValueId v : g.inputs) i.inputs.emplace_back(g.value(v).name, to_string(g.value(v).type));
  for (size_t k = 0; k < g.outputs.size(); ++k)
    i.outputs.emplace_back(g.output_names[k], to_string(g.value(g.outputs[k]).type));
  i.scripts = std::move(fused.scripts);
  i.script_names = std::move(fused.script_names);
  sample_symbols(g, batch, i.at);
  INGOT_CHECK(fused.parts.size() == unfused.parts.size(), "the parts of a model depend on fusion");
  i.parts.resize(i.scripts.empty() ? 1 : fused.parts.size());
  for (size_t k = 0; k < fused.parts.size(); ++k)
    i.parts[k].fused = std::move(fused.parts[k]), i.parts[k].unfused = std::move(unfused.parts[k]);
  if (i.scripts.empty()) i.parts[0].fused = std::move(fused), i.parts[0].unfused = std::move(unfused);
  for (PartView& p : i.parts) {
    sample_symbols(p.fused.graph, batch, i.at);
    INGOT_TRY(fill_part(i, p));
  }
  return i;
}

}  // namespace ingot::cli
