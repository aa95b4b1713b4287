#include "compiler/driver/targets.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <tuple>

#include "codegen/cuda/cuda_backend.h"
#include "codegen/cuda/nvrtc.h"
#include "codegen/llvm/cpu_backend.h"

namespace ingot {
namespace {

bool is_cpu(const std::string& t) { return t == "cpu" || t.rfind("x86-64", 0) == 0; }
/// 90 of "sm_90a" or "ptx_90"; 0 when it is no CUDA target.
int capability_of(const std::string& t) {
  if (t == kSourceTarget) return 90;
  for (const char* prefix : {"sm_", "ptx_"})
    if (t.rfind(prefix, 0) == 0) return std::atoi(t.c_str() + std::string_view(prefix).size());
  return 0;
}

std::vector<uint8_t> bytes_of(const std::string& s) { return {s.begin(), s.end()}; }

/// A kernel without code, and what its code is made from.
struct NamedCpuKernel {
  BuiltKernel built;
  Kernel kernel;
  std::string text;
  runtime::StoreKey key;
};
Result<NamedCpuKernel> name_cpu(const Kernel& kernel, const TargetTraits& traits) {
  NamedCpuKernel n{{}, kernel, to_string(kernel), {}};
  n.key.fields = {{"kind", "cpu object"},
                  {"target", traits.name},
                  {"processor", cpu_fingerprint(traits)},
                  {"generator", std::to_string(kCpuGeneratorVersion)},
                  {"kernel", n.text}};
  std::string& name = n.kernel.name;
  name = fmt::format("fused_{}_{}", kernel.name.substr(0, 48), n.key.hash().hex(6));
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::isalnum(c) ? static_cast<char>(std::tolower(c)) : '_'; });
  const CpuLaunch launch = INGOT_TRY(plan_cpu(n.kernel, traits));
  n.built.info.name = name;
  n.built.info.summary = kernel.name;
  n.built.info.scratch_bytes = launch.scratch_bytes;
  n.built.grid = {launch.tasks, 1, 1};
  return n;
}

Result<std::vector<BuiltKernel>> build_cpu(const Kernel& kernel, const TargetTraits& traits, runtime::Store* store) {
  NamedCpuKernel n = INGOT_TRY(name_cpu(kernel, traits));
  if (store)
    if (auto hit = store->find(n.key); hit && hit->count("kernel.o")) {
      n.built.info.binaries.push_back({traits.name, (*hit)["kernel.o"]});
      return std::vector{n.built};
    }
  if (store) INGOT_TRY(store->may_compile(n.kernel.name));
  EmittedCpuKernel emitted = INGOT_TRY(emit_cpu(n.kernel, traits));
  if (store) store->put(n.key, {{"kernel.o", emitted.object}, {"kernel.kir", bytes_of(n.text)}});
  n.built.info.binaries.push_back({traits.name, std::move(emitted.object)});
  return std::vector{n.built};
}

/// What decides a binary: the text below the header comment with its prelude, the target, the compiler and its options.
runtime::StoreKey cuda_key(const EmittedKernel& k, const std::string& target, const std::string& version) {
  return {{{"kind", "cuda"}, {"target", target}, {"nvrtc", version}, {"options", nvrtc_options()}, {"kernel", cuda_cache_text(k)}}};
}

/// runtime::KernelInfo::tensor_cost.
int32_t tensor_cost(const Schedule& s) {
  if (s.kind != Schedule::Kind::Tiles && s.kind != Schedule::Kind::Attention) return 0;
  switch (s.unit) {
    case MultiplyUnit::Simt: return 0;
    case MultiplyUnit::F16:
    case MultiplyUnit::BF16:
    case MultiplyUnit::Bytes:
    case MultiplyUnit::F8: return 1;  // half of that: the roof is drawn too low
    case MultiplyUnit::Tf32: return 2;
    case MultiplyUnit::Tf32x3: return 6;
  }
  return 0;
}

BuiltKernel name_cuda(const Kernel& kernel, const EmittedKernel& emitted) {
  BuiltKernel built;
  built.info.name = emitted.name;
  built.info.summary = kernel.name;
  built.info.source = emitted.source;
  built.info.threads = emitted.threads;
  built.info.shared_bytes = emitted.shared_bytes;
  built.info.waits_for_inputs = true;
  built.info.tensor_cost = tensor_cost(emitted.schedule);
  built.grid = emitted.grid;
  built.boxes = emitted.boxes;
  built.part_bytes = emitted.part_bytes;
  return built;
}

}  // namespace

Result<BuiltKernel> build_cuda(const Kernel& kernel, const EmittedKernel& emitted, const std::vector<std::string>& targets, runtime::Store* store) {
  BuiltKernel built = name_cuda(kernel, emitted);
  auto version = nvrtc_version();
  for (const std::string& target : targets) {
    const runtime::StoreKey key = cuda_key(emitted, target, version ? *version : "none");
    if (store)
      if (auto hit = store->find(key); hit && hit->count("kernel.bin")) {
        built.info.binaries.push_back({target, (*hit)["kernel.bin"]});
        continue;
      }
    if (store) INGOT_TRY(store->may_compile(emitted.name));
    auto binaries = INGOT_TRY(compile_cuda(emitted, std::vector<std::string>{target}));
    if (store) store->put(key, {{"kernel.bin", binaries[0].code}, {"kernel.cu", bytes_of(emitted.source)}});
    built.info.binaries.push_back(std::move(binaries[0]));
  }
  return built;
}

Result<TargetTraits> traits_of(const std::vector<std::string>& targets) {
  if (targets.empty()) return invalid("no target given");
  if (is_cpu(targets[0])) {
    if (targets.size() > 1) return unsupported("one program for the CPU and other targets at once");
    return cpu_traits(targets[0]);
  }
  int oldest = INT32_MAX;
  for (const std::string& t : targets) {
    const int cc = capability_of(t);
    if (cc < 75) return invalid(fmt::format("unknown target {}; give cpu, x86-64, x86-64-v2 to x86-64-v4, or sm_75 to sm_120 (sm_90a, sm_100a), ptx_75", t));
    oldest = std::min(oldest, cc);
  }
  return cuda_traits(oldest);
}

Result<TargetTraits> traits_for(const CompileOptions& options) {
  TargetTraits traits = INGOT_TRY(traits_of(options.targets));
  traits.allow_tf32 = options.precision == "tf32";
  return traits;
}

Result<std::vector<std::vector<std::string>>> target_groups(std::vector<std::string> targets) {
  if (targets.empty()) return invalid("no target given");
  std::sort(targets.begin(), targets.end(), [](const std::string& a, const std::string& b) {
    return std::tuple(capability_of(a), a) < std::tuple(capability_of(b), b);
  });
  targets.erase(std::unique(targets.begin(), targets.end()), targets.end());
  std::vector<std::vector<std::string>> groups;
  std::string last;
  for (const std::string& t : targets) {
    const TargetTraits traits = INGOT_TRY(traits_of({t}));
    if (groups.empty() || traits.kind == TargetKind::Cpu || traits.name != last) groups.emplace_back();
    groups.back().push_back(t);
    last = traits.name;
  }
  return groups;
}

std::vector<std::string> with_ptx(std::vector<std::string> targets) {
  std::map<int, std::pair<bool, bool>> chips;  // by capability: there is a general target, one for this chip only
  for (const std::string& t : targets)
    if (t.rfind("sm_", 0) == 0) (t.back() == 'a' ? chips[capability_of(t)].second : chips[capability_of(t)].first) = true;
  int general = 0;
  const auto add = [&] {
    if (general) targets.push_back(fmt::format("ptx_{}", general));
    general = 0;
  };
  for (const auto& [cc, kinds] : chips) {
    if (kinds.first) general = cc;
    else if (kinds.second) add();
  }
  add();
  return targets;
}

Result<KernelCompiler> kernel_compiler(const std::vector<std::string>& targets, const TargetTraits& traits,
                                       std::shared_ptr<runtime::Store> store, std::shared_ptr<const TunedPlans> tuned) {
  if (traits.kind == TargetKind::Cpu) return KernelCompiler([=](const Kernel& k) { return build_cpu(k, traits, store.get()); });
  if (targets != std::vector<std::string>{kSourceTarget}) INGOT_TRY(nvrtc_version());
  return KernelCompiler([=](const Kernel& k) -> Result<std::vector<BuiltKernel>> {
    const auto plans = tuned ? tuned->find(to_string(k)) : TunedPlans::const_iterator();
    const auto emitted =
        INGOT_TRY(tuned && plans != tuned->end() ? emit_forms(plans->second, traits) : emit_cuda(k, traits));
    std::vector<BuiltKernel> forms;
    for (const EmittedKernel& e : emitted) forms.push_back(INGOT_TRY(build_cuda(k, e, targets, store.get())));
    return forms;
  });
}

KernelCompiler kernel_namer(const TargetTraits& traits) {
  if (traits.kind == TargetKind::Cpu)
    return [=](const Kernel& k) -> Result<std::vector<BuiltKernel>> { return std::vector{INGOT_TRY(name_cpu(k, traits)).built}; };
  return [=](const Kernel& k) -> Result<std::vector<BuiltKernel>> {
    std::vector<BuiltKernel> forms;
    for (const EmittedKernel& e : INGOT_TRY(emit_cuda(k, traits))) forms.push_back(name_cuda(k, e));
    return forms;
  };
}

Result<std::vector<NamedKey>> store_keys(const Kernel& kernel, const std::vector<std::string>& targets, const TargetTraits& traits) {
  std::vector<NamedKey> keys;
  if (traits.kind == TargetKind::Cpu) {
    NamedCpuKernel n = INGOT_TRY(name_cpu(kernel, traits));
    keys.push_back({n.kernel.name, n.key});
    return keys;
  }
  const auto forms = INGOT_TRY(emit_cuda(kernel, traits));
  auto version = nvrtc_version();
  for (const EmittedKernel& emitted : forms)
    for (const std::string& target : targets)
      keys.push_back({emitted.name + " for " + target, cuda_key(emitted, target, version ? *version : "none")});
  return keys;
}

}  // namespace ingot
