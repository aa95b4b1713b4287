// The object loader: objects as LLVM makes them, for the host and for every x86-64 level this machine has, run from a loader
// that checks them; the table of processor features agrees with LLVM's; damaged objects are refused.
#include <llvm/ADT/StringMap.h>
#include <llvm/TargetParser/Host.h>

#include <algorithm>
#include <random>

#include "catch2/catch.hpp"
#include "codegen/llvm/cpu_backend.h"
#include "runtime/cpu/cpu_features.h"
#include "runtime/cpu/object_loader.h"
#include "tests/cpu_test_tools.h"

using namespace ingot;
using namespace ingot::testing;

namespace {

/// y[i] = pow(x[i], 1.7) + erf(x[i]): a call to libm, and constants.
KernelCase sample() {
  KernelCase c;
  const int x = c.input(DType::F32, {100}), y = c.output(DType::F32, {100});
  const Axis i = axis("i", 100);
  c.kernel.domain = {i};
  c.kernel.body = {Stmt{Store{y, i.var, call(Fn::Pow, load32(x, i.var), f32(1.7)) + call(Fn::Erf, load32(x, i.var))}}};
  fill(c.tensors[0], 1, 1, 9);
  return c;
}

std::vector<uint8_t> object_for(const std::string& target) {
  Kernel k = sample().kernel;
  k.name = "kernel_under_test";
  auto emitted = emit_cpu(k, cpu_traits(target).value());
  if (!emitted) FAIL(emitted.error().to_string());
  return emitted->object;
}

}  // namespace

TEST_CASE("the feature table agrees with LLVM", "[object]") {
  const auto host = llvm::sys::getHostCPUFeatures();
  int known = 0;
  for (const runtime::CpuFeature& f : runtime::cpu_features()) {
    const auto it = host.find(f.name);
    if (it == host.end()) continue;
    ++known;
    INFO(std::string(f.name));
    CHECK(f.present == it->second);
  }
  CHECK(known > 25);
  CHECK(runtime::cpu_level() >= 1);
}

TEST_CASE("objects of every level run", "[object]") {
  static constexpr const char* kLevels[] = {"x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4"};
  const KernelCase c = sample();
  const auto want = run_interpreted(c);
  for (int level = 1; level <= 4; ++level) {
    const auto traits = cpu_traits(kLevels[level - 1]).value();
    const auto object = object_for(kLevels[level - 1]);
    CHECK(runtime::missing_cpu_features(object).empty() == (level <= runtime::cpu_level()));
    if (level <= runtime::cpu_level()) expect_same(c, run_compiled(c, traits), want, 1e-5, kLevels[level - 1]);
  }
}

TEST_CASE("damaged objects are refused or linked, and nothing else happens", "[object]") {
  const auto good = object_for("cpu");
  REQUIRE(runtime::load_object(good, "kernel_under_test").ok());
  CHECK(!runtime::load_object(good, "another").ok());
  CHECK(!runtime::load_object({}, "kernel_under_test").ok());
  std::mt19937 rng(1);
  int refused = 0;
  for (int i = 0; i < 3000; ++i) {
    auto bad = good;
    if (i % 10 == 0) bad.resize(rng() % bad.size());
    for (int n = 0; n < 1 + i % 4 && !bad.empty(); ++n) bad[rng() % bad.size()] = static_cast<uint8_t>(rng());
    refused += !runtime::load_object(bad, "kernel_under_test").ok();
  }
  CHECK(refused > 300);
}

TEST_CASE("an object that calls what it may not is refused", "[object]") {
  auto object = object_for("x86-64");
  const std::string name = "powf", other = "exit";
  auto at = std::search(object.begin(), object.end(), name.begin(), name.end());
  REQUIRE(at != object.end());
  std::copy(other.begin(), other.end(), at);
  const auto linked = runtime::load_object(object, "kernel_under_test");
  REQUIRE(!linked.ok());
  CHECK(linked.error().to_string().find("'exit'") != std::string::npos);
}
