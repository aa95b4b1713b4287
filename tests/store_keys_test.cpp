// The keys under which kernels are stored hold everything that decides a binary: one thing is changed at a time, and where
// the object or the text changes, the key must. What decides nothing (names of nodes, dates) leaves the key alone.
#include <functional>
#include <set>

#include "catch2/catch.hpp"
#include "codegen/cuda/cuda_backend.h"
#include "codegen/llvm/cpu_backend.h"
#include "codegen/llvm/object_compiler.h"
#include "compiler/driver/session.h"
#include "compiler/driver/targets.h"

using namespace ingot;

namespace {

constexpr const char* kDigits = "examples/digits/digits.onnx";

std::vector<Kernel> kernels_for(const std::string& target, const std::string& precision = "fp32") {
  CompileOptions o;
  o.targets = {target};
  o.precision = precision;
  auto c = lower_model(kDigits, o);
  if (!c) FAIL(c.error().to_string());
  return c->lowered.kernels;
}

/// A field of TargetTraits with another value.
struct Change {
  const char* field;
  std::function<void(TargetTraits&)> apply;
};
const std::vector<Change> kChanges = {
    {"compute_capability", [](TargetTraits& t) { t.compute_capability = 80; }},
    {"parallel_units", [](TargetTraits& t) { t.parallel_units = 3; }},
    {"vector_bytes", [](TargetTraits& t) { t.vector_bytes = t.vector_bytes == 16 ? 32 : 16; }},
    {"vector_registers", [](TargetTraits& t) { t.vector_registers = t.vector_registers == 16 ? 32 : 16; }},
    {"l1_bytes", [](TargetTraits& t) { t.l1_bytes /= 4; }},
    {"l2_bytes", [](TargetTraits& t) { t.l2_bytes /= 8; }},
    {"shared_bytes", [](TargetTraits& t) { t.shared_bytes = 32 << 10; }},
    {"max_threads", [](TargetTraits& t) { t.max_threads = 256; }},
    {"memory_gbps", [](TargetTraits& t) { t.memory_gbps *= 8; }},
    {"f32_gflops", [](TargetTraits& t) { t.f32_gflops /= 16; }},
    {"tensor_gflops", [](TargetTraits& t) { t.tensor_gflops /= 16; }},
    {"allow_tf32", [](TargetTraits& t) { t.allow_tf32 = true; }},
};

/// All that a store gives back for a kernel, and the keys it is found by.
struct Built {
  std::string bytes;
  std::vector<std::string> keys;
};
std::vector<std::string> keys_of(const Kernel& kernel, const std::vector<std::string>& targets, const TargetTraits& traits) {
  std::vector<std::string> keys;
  for (const NamedKey& k : store_keys(kernel, targets, traits).value()) keys.push_back(k.key.hash().hex());
  return keys;
}

Built on_cpu(const Kernel& kernel, const TargetTraits& traits) {
  Kernel fixed = kernel;
  fixed.name = "kernel";  // the name that a store's object has comes from its key
  const EmittedCpuKernel emitted = emit_cpu(fixed, traits).value();
  return {{emitted.object.begin(), emitted.object.end()}, keys_of(kernel, {traits.name}, traits)};
}
Built on_cuda(const Kernel& kernel, const TargetTraits& traits) {
  Built b{"", keys_of(kernel, {kSourceTarget}, traits)};
  for (const EmittedKernel& e : emit_cuda(kernel, traits).value()) b.bytes += cuda_cache_text(e) + "\n";
  return b;
}

/// Changes one field after another. Returns the fields that changed some binary.
std::set<std::string> check_changes(const std::vector<Kernel>& kernels, const TargetTraits& traits, Built (*build)(const Kernel&, const TargetTraits&)) {
  std::set<std::string> deciding;
  for (const Kernel& kernel : kernels) {
    const Built before = build(kernel, traits);
    CHECK(build(kernel, traits).bytes == before.bytes);
    for (const Change& change : kChanges) {
      TargetTraits other = traits;
      change.apply(other);
      const Built after = build(kernel, other);
      if (after.bytes == before.bytes) continue;
      deciding.insert(change.field);
      INFO(kernel.name << " with another " << change.field);
      CHECK(after.keys != before.keys);
    }
  }
  return deciding;
}

}  // namespace

TEST_CASE("whatever changes a CPU object changes its key", "[store]") {
  const auto kernels = kernels_for("x86-64-v3");
  const auto deciding = check_changes({kernels.front(), kernels.back()}, cpu_traits("x86-64-v3").value(), on_cpu);
  CHECK(deciding.count("vector_bytes"));
  const Kernel& kernel = kernels.front();
  std::set<std::vector<std::string>> keys;
  for (const char* target : {"x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4"}) keys.insert(keys_of(kernel, {target}, cpu_traits(target).value()));
  CHECK(keys.size() == 4);
}

TEST_CASE("whatever changes a CUDA kernel's text changes its key", "[store]") {
  const auto deciding = check_changes(kernels_for("sm_90a"), cuda_traits(90), on_cuda);
  CHECK(deciding.count("compute_capability"));
  const auto kernels = kernels_for("sm_90a");
  const auto different = [&](const std::vector<std::string>& targets) {
    const auto keys = keys_of(kernels.front(), targets, cuda_traits(80));
    return std::set<std::string>(keys.begin(), keys.end()).size();
  };
  CHECK(different({"sm_80", "sm_86", "ptx_80", "sm_90a"}) == 4 * different({"sm_80"}));
}

TEST_CASE("every field of a kernel's key counts", "[store]") {
  for (const auto& [target, traits] : {std::pair{std::string("cpu"), cpu_traits("cpu").value()}, std::pair{std::string("sm_90a"), cuda_traits(90)}}) {
    const auto kernels = kernels_for(target);
    const runtime::StoreKey key = store_keys(kernels.front(), {target}, traits).value()[0].key;
    CHECK(key.fields.size() == 5);
    for (size_t i = 0; i < key.fields.size(); ++i) {
      CHECK(!key.fields[i].second.empty());
      runtime::StoreKey other = key;
      other.fields[i].second += "x";
      CHECK(other.hash().hex() != key.hash().hex());
    }
    std::set<std::string> all;
    for (const Kernel& k : kernels) all.insert(keys_of(k, {target}, traits)[0]);
    CHECK(all.size() == kernels.size());  // no two kernels of the model share an entry
  }
}

TEST_CASE("the header comment decides nothing, the prelude behind it does", "[store]") {
  const EmittedKernel kernel = emit_cuda(kernels_for("sm_90a").front(), cuda_traits(90)).value()[0];
  EmittedKernel other = kernel;
  other.source = "// made on another day, for a node of another name\n" + kernel.source;
  CHECK(cuda_cache_text(other) == cuda_cache_text(kernel));
  const std::string text = cuda_cache_text(kernel);
  CHECK(text.find("\n// prelude/") != std::string::npos);  // the files that it includes, whole
  CHECK(text.size() > kernel.source.size());
  other = kernel;
  other.source += "\n// another body\n";
  CHECK(cuda_cache_text(other) != text);
}
