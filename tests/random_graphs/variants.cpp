#include "tests/random_graphs/variants.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "codegen/cuda/cuda_backend.h"
#include "codegen/kernel/interpret.h"
#include "compiler/driver/devices.h"
#include "compiler/driver/reference.h"
#include "compiler/driver/targets.h"
#include "compiler/ops/joins.h"
#include "passes/pass_manager.h"
#include "passes/plan_memory.h"
#include "runtime/executor.h"
#include "tests/random_graphs/poisoned.h"

namespace ingot::testing {
namespace {

/// The graph through the passes to kernels.
struct Lowered {
  Graph graph;
  std::vector<ShapeRequirement> requirements;
  MemoryPlan plan;
  LoweredProgram program;
  TargetTraits traits;
};
Result<Lowered> lower_variant(const GraphCase& c, const Variant& v) {
  Lowered l;
  l.graph = INGOT_TRY(graph_of(c));
  l.requirements = shape_requirements(l.graph);
  l.traits = INGOT_TRY(traits_of({v.target}));
  l.traits.allow_tf32 = v.precision == "tf32";
  PassContext ctx;
  ctx.target = l.traits;
  ctx.evaluate = evaluate_node;
  ctx.fuse = v.fuse;
  ctx.precision = storage_of(v);
  PipelineOptions options;
  if (!v.skip.empty()) options.skip = {v.skip};
  INGOT_TRY(run_pipeline(l.graph, ctx, options));
  INGOT_TRY(verify(l.graph, Stage::Fused));
  l.plan = plan_memory(l.graph, l.traits.kind == TargetKind::Cuda ? 4 : 1);
  l.program = INGOT_TRY(lower_program(l.graph, l.plan));
  if (l.traits.kind == TargetKind::Cuda) overlap_launches(l.graph, l.plan, l.program);
  return l;
}

class Interpreted : public Runnable {
 public:
  explicit Interpreted(Lowered lowered) : l_(std::move(lowered)) {}

  Result<std::vector<Tensor>> run(const Sizes& sizes, const std::vector<Tensor>& inputs) override {
    INGOT_TRY(check_requirements(sizes));
    std::map<ValueId, Tensor> values;
    for (size_t i = 0; i < inputs.size(); ++i) values.emplace(l_.graph.inputs[i], inputs[i]);
    for (size_t i = 0; i < l_.plan.order.size(); ++i) INGOT_TRY(run_kernel(i, sizes, values));
    std::vector<Tensor> outputs;
    for (ValueId v : l_.graph.outputs) outputs.push_back(*get(v, values));
    return outputs;
  }

 private:
  Status check_requirements(const Sizes& sizes) const {
    for (const ShapeRequirement& r : l_.requirements)
      if (evaluate_int(r.condition, sizes) != 1) return invalid(r.message);
    return {};
  }
  /// Where the value is: a part of a concatenation lies in the whole.
  Tensor* get(ValueId part, std::map<ValueId, Tensor>& values) const {
    const ValueId v = holder_of(l_.graph, part);
    if (auto it = values.find(v); it != values.end()) return &it->second;
    return &values.emplace(v, *l_.graph.value(v).constant).first->second;
  }
  Status run_kernel(size_t i, const Sizes& sizes, std::map<ValueId, Tensor>& values) const {
    const Node& n = l_.graph.node(l_.plan.order[i]);
    std::vector<Tensor*> args;
    for (ValueId v : n.inputs) args.push_back(get(v, values));
    for (ValueId part : n.outputs) {
      const ValueId v = holder_of(l_.graph, part);
      const TensorType& t = l_.graph.value(v).type;
      std::vector<int64_t> dims;
      for (const Expr& d : t.shape) dims.push_back(evaluate_int(d, sizes).value_or(-1));
      INGOT_TRY(checked_count(dims, size_of(t.dtype)));
      args.push_back(&values.emplace(v, poisoned_tensor(t.dtype, dims)).first->second);
    }
    std::vector<void*> buffers;
    std::vector<int64_t> counts;
    for (Tensor* t : args) buffers.push_back(t->mutable_data()), counts.push_back(t->count());
    return interpret(l_.program.kernels[i], buffers, counts, sizes);
  }
  Lowered l_;
};

/// Every kernel as text. It must print, and where NVRTC is asked for, compile.
Status print_kernels(const Lowered& l, const Variant& v) {
  for (const Kernel& k : l.program.kernels) {
    auto emitted = emit_cuda(k, l.traits);
    if (!emitted) return std::move(emitted.error().add("while printing kernel " + k.name));
    if (v.device != "nvrtc") continue;
    const std::vector<std::string> targets{v.target};
    for (const EmittedKernel& form : *emitted)
      if (auto built = compile_cuda(form, targets); !built)
        return std::move(built.error().add("while compiling\n" + form.source));
  }
  return {};
}

class Compiled : public Runnable {
 public:
  Compiled(std::shared_ptr<runtime::Device> device, std::unique_ptr<runtime::Session> session)
      : device_(std::move(device)), session_(std::move(session)) {}
  Result<std::vector<Tensor>> run(const Sizes&, const std::vector<Tensor>& inputs) override {
    return run_poisoned(*device_, *session_, inputs);
  }

 private:
  std::shared_ptr<runtime::Device> device_;
  std::unique_ptr<runtime::Session> session_;
};

/// Devices are opened once a process.
Result<OpenDevice> device_named(const std::string& name) {
  static std::map<std::string, OpenDevice> open;
  if (auto it = open.find(name); it != open.end()) return it->second;
  return open[name] = INGOT_TRY(open_device(name));
}
Result<std::unique_ptr<Runnable>> compile_for_device(const GraphCase& c, Variant v) {
  const OpenDevice device = INGOT_TRY(device_named(v.device));
  v.target = device.target;
  const Lowered l = INGOT_TRY(lower_variant(c, v));
  const KernelCompiler compiler = INGOT_TRY(kernel_compiler({device.target}, l.traits, nullptr));
  BuildOptions build;
  build.threads = 1;
  auto program = std::make_shared<runtime::Program>(
      INGOT_TRY(build_program(l.graph, l.plan, l.requirements, l.program, compiler, build)));
  program->target = device.target;
  const auto engine = INGOT_TRY(runtime::Engine::create(program, device.device));
  return std::unique_ptr<Runnable>(
      std::make_unique<Compiled>(device.device, INGOT_TRY(runtime::Session::create(engine))));
}

/// Passes without which a program is still complete.
std::vector<std::string> skippable_passes() {
  std::vector<std::string> names;
  for (const Pass& p : pipeline())
    if (std::string_view(p.name) != "form_groups" && std::string_view(p.name) != "decompose")
      names.emplace_back(p.name);
  return names;
}
const char* const kGpus[] = {"sm_90a", "sm_80", "sm_75", "sm_100a", "sm_120"};

/// The interpreter runs the kernels, whatever is made of them besides.
bool runs_nothing(const std::string& device) {
  return device == "interpreter" || device == "text" || device == "nvrtc";
}
bool has(const std::vector<std::string>& list, const std::string& name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}
void add_devices(std::vector<Variant>& list, uint64_t turn, const std::vector<std::string>& devices,
                 const std::string& skip) {
  for (const std::string& d : devices) {
    if (runs_nothing(d)) continue;
    if (d == "emulator" && turn % 8 != 0) continue;  // each kernel goes through a C++ compiler
    if (d == "emulator" && turn % 32 == 8) list.push_back({.device = d, .precision = turn % 64 == 8 ? "fp16" : "bf16"});
    list.push_back({d});
    if (turn % 6 == 1) list.push_back({d, "cpu", skip});
    if (turn % 12 == 2) list.push_back({.device = d, .fuse = false});
  }
}

}  // namespace

std::string Variant::name() const {
  std::string text = device;
  if (runs_nothing(device)) text += " for " + target;
  if (!fuse) text += ", unfused";
  if (!skip.empty()) text += ", without " + skip;
  if (precision != "fp32") text += ", " + precision;
  return text;
}

std::vector<Variant> variants_for(uint64_t turn, const std::vector<std::string>& devices) {
  const auto passes = skippable_passes();
  const std::string skip = passes[turn % passes.size()];
  const std::string gpu = kGpus[turn / 3 % std::size(kGpus)];
  std::vector<Variant> list;
  if (has(devices, "interpreter")) {
    list.push_back({.device = "interpreter", .fuse = false});
    list.push_back({"interpreter"});
    list.push_back({"interpreter", "cpu", skip});
    list.push_back({"interpreter", gpu, passes[turn / 2 % passes.size()]});
  }
  if (has(devices, "text")) {
    list.push_back({"text", gpu});
    if (turn % 4 == 0) list.push_back({"text", gpu, "", turn % 8 ? "fp16" : "bf16"});
    if (turn % 4 == 2) list.push_back({"text", kGpus[0], "", turn % 8 == 2 ? "fp16" : "bf16"});
  }
  if (has(devices, "nvrtc") && turn % 8 == 4) list.push_back({"nvrtc", gpu, "", turn % 32 == 4 ? "fp16" : "fp32"});
  add_devices(list, turn, devices, skip);
  return list;
}

std::vector<Variant> all_variants(const std::vector<std::string>& devices) {
  std::vector<Variant> list;
  const auto passes = skippable_passes();
  for (uint64_t turn = 0; turn < 8 * 3 * 5 * passes.size(); ++turn)
    for (Variant& v : variants_for(turn, devices))
      if (std::none_of(list.begin(), list.end(), [&](const Variant& other) { return other.name() == v.name(); }))
        list.push_back(std::move(v));
  return list;
}

DType storage_of(const Variant& v) {
  return v.precision == "fp16" ? DType::F16 : v.precision == "bf16" ? DType::BF16 : DType::F32;
}

Result<std::unique_ptr<Runnable>> compile_variant(const GraphCase& c, const Variant& v) {
  if (!runs_nothing(v.device)) return compile_for_device(c, v);
  Lowered l = INGOT_TRY(lower_variant(c, v));
  if (v.device != "interpreter") INGOT_TRY(print_kernels(l, v));
  return std::unique_ptr<Runnable>(std::make_unique<Interpreted>(std::move(l)));
}

}  // namespace ingot::testing
