// Target machines and the optimisation pipeline. Vectors and register tiles are chosen by the emitters, so the pipeline only cleans up; LLVM's own vectorisers and unrollers stay out.
#include "codegen/llvm/object_compiler.h"

#include <fmt/format.h>
#include <llvm/ADT/StringMap.h>
#include <llvm/Analysis/CGSCCPassManager.h>
#include <llvm/Analysis/LoopAnalysisManager.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Module.h>
#include <llvm/IR/Verifier.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Target/TargetMachine.h>
#include <llvm/TargetParser/Host.h>
#include <llvm/Transforms/Utils/ModuleUtils.h>

#include <algorithm>
#include <mutex>
#include <string_view>
#include <thread>

#include "runtime/cpu/cpu_features.h"

namespace ingot {
namespace {

struct CpuName {
  std::string cpu, features;
};

/// Features that the runtime cannot test for (runtime/cpu/cpu_features.h) are switched off, so that code never needs them.
CpuName name_of_cpu(const TargetTraits& traits) {
  if (traits.name != "cpu") return {traits.name, ""};
  std::vector<std::string> list;
  for (const auto& f : llvm::sys::getHostCPUFeatures())
    list.push_back((runtime::cpu_has(f.first().str()) ? "+" : "-") + f.first().str());
  std::sort(list.begin(), list.end());
  std::string features;
  for (const std::string& f : list) features += (features.empty() ? "" : ",") + f;
  return {llvm::sys::getHostCPUName().str(), features};
}

/// The features that code for this CPU may use, as "avx2,fma,".
std::string needed_features(const TargetTraits& traits) {
  if (traits.name != "cpu") return runtime::features_of_level(traits.name);
  std::string text;
  for (const runtime::CpuFeature& f : runtime::cpu_features())
    if (f.present) text += std::string(f.name) + ",";
  return text;
}

/// Leaves a constant in the object that runtime::missing_cpu_features finds again.
void add_note(llvm::Module& module, const TargetTraits& traits) {
  auto* text = llvm::ConstantDataArray::getString(module.getContext(),
                                                  std::string(runtime::kFeatureMark) + needed_features(traits));
  auto* note =
      new llvm::GlobalVariable(module, text->getType(), true, llvm::GlobalValue::InternalLinkage, text, "ingot_note");
  llvm::appendToUsed(module, {note});
}

bool host_has(std::initializer_list<const char*> names) {
  return std::all_of(names.begin(), names.end(), runtime::cpu_has);
}

void set_level(TargetTraits& t, int vector_bytes) {
  t.vector_bytes = vector_bytes;
  t.vector_registers = vector_bytes == 64 ? 32 : 16;
  t.f32_gflops = 4.0 * vector_bytes / 4 * 3 * t.parallel_units;  // two fused multiply-adds a cycle at 3 GHz
}

/// Passes that make the emitters' output compact: promotion of variables, common subexpressions, hoisting.
constexpr const char* kPipeline =
    "function(sroa,early-cse<memssa>,simplifycfg,instcombine<no-verify-fixpoint>,reassociate,loop-mssa(licm),gvn,"
    "instcombine<no-verify-fixpoint>,loop-mssa(licm),dse,simplifycfg,adce)";

Status optimise(llvm::Module& module, llvm::TargetMachine& machine) {
  llvm::PassBuilder builder(&machine);
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager graphs;
  llvm::ModuleAnalysisManager modules;
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(graphs);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, graphs, modules);
  llvm::ModulePassManager passes;
  if (auto error = builder.parsePassPipeline(passes, kPipeline))
    return make_error(ErrorKind::Internal, "LLVM pipeline: " + llvm::toString(std::move(error)));
  passes.run(module, modules);
  return {};
}

}  // namespace

Result<TargetTraits> cpu_traits(const std::string& name) {
  TargetTraits t;
  t.kind = TargetKind::Cpu;
  t.name = name;
  t.parallel_units = 8;  // of a level: the same file wherever it is compiled
  if (name == "cpu") {
    t.parallel_units = std::max(1u, std::thread::hardware_concurrency());
    const bool avx512 = host_has({"avx512f", "avx512bw", "avx512dq", "avx512vl", "fma"});
    set_level(t, avx512 ? 64 : host_has({"avx2", "fma"}) ? 32 : 16);
  } else if (name == "x86-64-v4") {
    set_level(t, 64);
  } else if (name == "x86-64-v3") {
    set_level(t, 32);
  } else if (name == "x86-64" || name == "x86-64-v2") {
    set_level(t, 16);
  } else {
    return invalid(fmt::format("'{}' is not a CPU target: cpu, x86-64, x86-64-v2, x86-64-v3, x86-64-v4", name));
  }
  return t;
}

std::string cpu_fingerprint(const TargetTraits& traits) {
  const CpuName n = name_of_cpu(traits);
  return fmt::format("llvm {} {} {} vector {}x{} threads {}", LLVM_VERSION_STRING, n.cpu, n.features,
                     traits.vector_bytes, traits.vector_registers, traits.parallel_units);
}

namespace cpu {

namespace {

void initialize_target() {
  static std::once_flag once;
  std::call_once(once, [] {
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
  });
}

}  // namespace

Result<std::vector<uint8_t>> compile_object(llvm::Module& module, const TargetTraits& traits) {
  initialize_target();
  const std::string triple = llvm::sys::getProcessTriple();
  std::string why;
  const llvm::Target* target = llvm::TargetRegistry::lookupTarget(triple, why);
  if (!target) return make_error(ErrorKind::Internal, "LLVM: " + why);
  const CpuName name = name_of_cpu(traits);
  llvm::TargetOptions options;
  options.AllowFPOpFusion = llvm::FPOpFusion::Standard;  // where the instructions allow it (IrTools)
  const std::unique_ptr<llvm::TargetMachine> machine(target->createTargetMachine(
      triple, name.cpu, name.features, options, llvm::Reloc::PIC_, std::nullopt, llvm::CodeGenOptLevel::Default));
  if (!machine) return make_error(ErrorKind::Internal, "LLVM: no target machine for " + name.cpu);
  module.setTargetTriple(triple);
  module.setDataLayout(machine->createDataLayout());
  const std::string width = std::to_string(traits.vector_bytes * 8);
  for (llvm::Function& f : module) {
    if (f.isDeclaration()) continue;
    f.addFnAttr("target-cpu", name.cpu);
    if (!name.features.empty()) f.addFnAttr("target-features", name.features);
    f.addFnAttr("prefer-vector-width", width);
    f.addFnAttr("min-legal-vector-width", width);
  }
  add_note(module, traits);
  std::string problem;
  llvm::raw_string_ostream stream(problem);
  INGOT_CHECK(!llvm::verifyModule(module, &stream), "generated LLVM IR is not valid: " + problem);
  INGOT_TRY(optimise(module, *machine));
  llvm::SmallVector<char, 0> object;
  llvm::raw_svector_ostream out(object);
  llvm::legacy::PassManager codegen;
  if (machine->addPassesToEmitFile(codegen, out, nullptr, llvm::CodeGenFileType::ObjectFile))
    return make_error(ErrorKind::Internal, "LLVM cannot write objects for this target");
  codegen.run(module);
  return std::vector<uint8_t>(object.begin(), object.end());
}

}  // namespace cpu
}  // namespace ingot
