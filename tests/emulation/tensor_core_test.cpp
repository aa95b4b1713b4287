// The tensor-core half of the prelude and the emulator: TMA, mbarriers, wgmma, cp.async, ldmatrix and mma.sync in two
// small kernels, with planted faults that must be reported. The same texts compile with NVRTC.
#include <catch2/catch.hpp>

#include <cmath>
#include <cstring>
#include <random>

#include "codegen/cuda/nvrtc.h"
#include "codegen/text/kernel_name.h"
#include "compiler/support/dtype.h"
#include "tests/emulation/emulated_driver.h"

using namespace ingot;
using namespace ingot::runtime::cuda;

namespace {

// y[64][64] = a[64][64] * b[64][64]^T, f16 in, f32 out: one warpgroup, operands by TMA with the 128-byte swizzle.
const char* const kWgmmaText = R"(#include "prelude/memory.cuh"
#include "prelude/sync.cuh"
#include "prelude/tma.cuh"
#include "prelude/wgmma.cuh"

INGOT_WGMMA(64)
extern "C" __global__ void __launch_bounds__(128)
wgmma_tile(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b, float* y) {
  INGOT_DYN_SHARED(shared);
  const u32 a = shared, b = shared + 8192, full = shared + 16384;
  if (threadIdx.x == 0) {
    mbar_init(full, 1);
    fence_mbar_init();
  }
  cta_sync();
  if (threadIdx.x == 0) {
    mbar_arrive_expect_tx(full, 16384);
    tma_load2(a, &map_a, full, 0, 0);
    tma_load2(b, &map_b, full, 0, 0);
  }
  mbar_wait(full, 0);
  float d[32];
  for (int i = 0; i < 32; ++i) d[i] = 0;
  wgmma_fence();
  for (int k = 0; k < 4; ++k) {
    const u64 da = wgmma_desc(a + k * 32, 16, 1024, kSwizzle128), db = wgmma_desc(b + k * 32, 16, 1024, kSwizzle128);
    wgmma<kF16, 0, 0>(d, da, db, 1);
  }
  wgmma_commit();
  wgmma_wait<0>();
  const int row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
#pragma unroll
  for (int i = 0; i < 32; ++i) stg(y + (row + i % 4 / 2 * 8) * 64 + i / 4 * 8 + column + i % 2, d[i]);
}
INGOT_ENTRY(wgmma_tile)
)";

// y[16][8] = a[16][16] * b[16][8], f16 in, f32 out: one warp, operands by cp.async and ldmatrix.
const char* const kMmaText = R"(#include "prelude/cp_async.cuh"
#include "prelude/mma.cuh"
#include "prelude/sync.cuh"

extern "C" __global__ void __launch_bounds__(32)
mma_tile(const f16* a, const f16* b, float* y) {
  INGOT_DYN_SHARED(shared);
  const int lane = threadIdx.x;
  cp_async16(shared + lane * 16, a + lane * 8);
  if (lane < 16) cp_async16(shared + 512 + lane * 16, b + lane * 8);
  if (lane >= 16) cp_async16(shared + 512 + lane * 16, b, 0);
  cp_async_commit();
  cp_async_wait<0>();
  warp_sync();
  u32 fa[4], fb[4];
  ldmatrix4(shared + lane % 16 * 32 + lane / 16 * 16, fa);
  ldmatrix4_trans(shared + 512 + lane * 16, fb);
  const u32 fb2[2] = {fb[0], fb[1]};
  float d[4] = {0, 0, 0, 0};
  mma_16816<kF16>(d, fa, fb2);
#pragma unroll
  for (int i = 0; i < 4; ++i) y[(lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2] = d[i];
}
INGOT_ENTRY(mma_tile)
)";

struct Halves {
  DevicePtr memory = 0;
  std::vector<float> values;
};

Halves random_halves(const DriverApi& api, size_t count, uint64_t seed) {
  Halves h;
  std::mt19937_64 random(seed);
  std::vector<uint16_t> bits(count);
  for (uint16_t& b : bits) {
    b = float_to_f16(std::uniform_real_distribution<float>(-1, 1)(random));
    h.values.push_back(f16_to_float(b));
  }
  api.mem_alloc(&h.memory, count * 2);
  api.memcpy_htod_async(h.memory, bits.data(), count * 2, nullptr);
  return h;
}

struct Run {
  DriverStatus status = kSuccess;
  std::vector<float> y;
  std::string reports;
};

Run launch(const DriverApi& api, const std::string& text, const char* name, unsigned threads, unsigned shared,
           std::vector<void*> parameters, size_t results, uint64_t seed) {
  emulation::launch_options().seed = seed;
  Run run;
  const auto image = emulation::emulate_module(text);
  if (!image) FAIL(image.error().to_string());
  Module module = nullptr;
  Function function = nullptr;
  REQUIRE(api.module_load_data(&module, image.value().data()) == kSuccess);
  REQUIRE(api.module_get_function(&function, module, name) == kSuccess);
  DevicePtr y = 0;
  REQUIRE(api.mem_alloc(&y, results * 4) == kSuccess);
  parameters.push_back(&y);
  run.status = api.launch_kernel(function, 1, 1, 1, threads, 1, 1, shared, nullptr, parameters.data(), nullptr);
  run.y.resize(results);
  api.memcpy_dtoh_async(run.y.data(), y, results * 4, nullptr);
  for (const std::string& f : emulation::last_report().faults) run.reports += f + "\n";
  api.mem_free(y);
  api.module_unload(module);
  return run;
}

Run run_wgmma(const std::string& text, Halves& a, Halves& b, uint64_t seed) {
  const DriverApi& api = emulation::emulated_driver();
  runtime::cuda::TensorMap maps[2];
  const uint64_t dims[] = {64, 64}, strides[] = {128};
  const uint32_t box[] = {64, 64}, steps[] = {1, 1};
  for (int i = 0; i < 2; ++i) {
    REQUIRE(api.tensor_map_encode_tiled(&maps[i], TensorMapType::F16, 2,
                                        reinterpret_cast<void*>(i ? b.memory : a.memory), dims, strides, box, steps,
                                        TensorMapInterleave::None, TensorMapSwizzle::B128, TensorMapL2::None,
                                        TensorMapFill::Zero) == kSuccess);
  }
  return launch(api, text, "wgmma_tile", 128, 16384 + 64, {&maps[0], &maps[1]}, 64 * 64, seed);
}

double product_error(const Run& run, const std::vector<float>& a, const std::vector<float>& b, int m, int n, int k,
                     bool b_is_nk) {
  double worst = 0;
  for (int i = 0; i < m; ++i) {
    for (int j = 0; j < n; ++j) {
      double sum = 0;
      for (int l = 0; l < k; ++l)
        sum += a[static_cast<size_t>(i * k + l)] *
               static_cast<double>(b[static_cast<size_t>(b_is_nk ? j * k + l : l * n + j)]);
      const double error = std::fabs(sum - run.y[static_cast<size_t>(i * n + j)]);
      worst = std::isnan(error) ? 1e9 : std::max(worst, error);
    }
  }
  return worst;
}

void plant(const std::string& text, const char* what, const char* before, const char* after, const char* report,
           const std::function<Run(const std::string&, uint64_t)>& run) {
  INFO(what);
  REQUIRE(text.find(before) != std::string::npos);
  const std::string changed = replace_all(text, before, after);
  std::string seen;
  for (uint64_t seed = 1; seed <= 3; ++seed) seen += run(changed, seed).reports;
  INFO(seen);
  CHECK(seen.find(report) != std::string::npos);
}

}  // namespace

TEST_CASE("wgmma with operands by TMA", "[emulated]") {
  const DriverApi& api = emulation::emulated_driver();
  Halves a = random_halves(api, 64 * 64, 1), b = random_halves(api, 64 * 64, 2);
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    const Run run = run_wgmma(kWgmmaText, a, b, seed);
    INFO(run.reports);
    CHECK(run.status == kSuccess);
    CHECK(product_error(run, a.values, b.values, 64, 64, 64, true) < 1e-4);
  }
  const auto faulty = [&](const std::string& text, uint64_t seed) { return run_wgmma(text, a, b, seed); };
  plant(kWgmmaText, "no fence after mbarrier init", "    fence_mbar_init();\n", "", "mbarrier-init-not-fenced", faulty);
  plant(kWgmmaText, "no barrier after mbarrier init", "  cta_sync();\n", "", "mbarrier", faulty);
  plant(kWgmmaText, "nobody waits for the operands", "  mbar_wait(full, 0);\n", "", "shared", faulty);
  plant(kWgmmaText, "too many bytes are expected", "expect_tx(full, 16384)", "expect_tx(full, 16512)", "deadlock",
        faulty);
  plant(kWgmmaText, "no wgmma fence", "  wgmma_fence();\n", "", "missing-wgmma-fence", faulty);
  plant(kWgmmaText, "results are read too early", "  wgmma_wait<0>();\n", "", "exit-with-wgmma-in-flight", faulty);
  plant(kWgmmaText, "a TMA destination is not aligned", "b = shared + 8192,", "b = shared + 8208,", "misaligned",
        faulty);
  plant(kWgmmaText, "one warp issues another product", "db, 1);", "db, threadIdx.x < 32 ? 0 : 1);", "wgmma", faulty);
  api.mem_free(a.memory);
  api.mem_free(b.memory);
}

TEST_CASE("mma.sync with operands by cp.async and ldmatrix", "[emulated]") {
  const DriverApi& api = emulation::emulated_driver();
  Halves a = random_halves(api, 16 * 16, 3), b = random_halves(api, 16 * 8, 4);
  const auto run_mma = [&](const std::string& text, uint64_t seed) {
    return launch(api, text, "mma_tile", 32, 1024, {&a.memory, &b.memory}, 16 * 8, seed);
  };
  const Run run = run_mma(kMmaText, 1);
  INFO(run.reports);
  CHECK(run.status == kSuccess);
  CHECK(product_error(run, a.values, b.values, 16, 8, 16, false) < 1e-5);
  plant(kMmaText, "nobody waits for the copies", "  cp_async_wait<0>();\n", "", "shared-race", run_mma);
  plant(kMmaText, "a copy is never committed", "  cp_async_commit();\n", "", "shared-race", run_mma);
  plant(kMmaText, "a matrix row is not aligned", "shared + 512 + lane * 16, fb", "shared + 520 + lane * 16, fb",
        "misaligned", run_mma);
  plant(kMmaText, "part of the operand is missing", "  if (lane >= 16) cp_async16(shared + 512 + lane * 16, b, 0);\n",
        "", "uninitialised-shared", run_mma);
  plant(kMmaText, "a copy reads behind the tensor", "a + lane * 8", "a + lane * 16", "global-out-of-bounds", run_mma);
  api.mem_free(a.memory);
  api.mem_free(b.memory);
}

TEST_CASE("tensor maps keep the driver's rules", "[emulated]") {
  const DriverApi& api = emulation::emulated_driver();
  Halves a = random_halves(api, 64 * 64, 1);
  runtime::cuda::TensorMap map;
  const auto encode = [&](uint64_t height, uint64_t stride, uint32_t box_width, TensorMapSwizzle swizzle) {
    const uint64_t dims[] = {64, height}, strides[] = {stride};
    const uint32_t box[] = {box_width, 8}, steps[] = {1, 1};
    return api.tensor_map_encode_tiled(&map, TensorMapType::F16, 2, reinterpret_cast<void*>(a.memory), dims, strides,
                                       box, steps, TensorMapInterleave::None, swizzle, TensorMapL2::None,
                                       TensorMapFill::Zero);
  };
  CHECK(encode(64, 128, 64, TensorMapSwizzle::B128) == kSuccess);
  CHECK(encode(65, 128, 64, TensorMapSwizzle::B128) == kErrorInvalidValue);  // outside its buffer
  CHECK(encode(64, 120, 64, TensorMapSwizzle::B128) == kErrorInvalidValue);  // stride
  CHECK(encode(64, 128, 32, TensorMapSwizzle::B128) == kErrorInvalidValue);  // not the swizzle's width
  api.mem_free(a.memory);
}

TEST_CASE("the same texts compile", "[nvrtc]") {
  if (!nvrtc_version()) {
    WARN("skipped: " << nvrtc_version().error().to_string());
    return;
  }
  for (const auto& [text, target] : {std::pair{kWgmmaText, "sm_90a"}, {kMmaText, "sm_80"}, {kMmaText, "sm_120"}}) {
    const auto compiled = compile_nvrtc(text, "probe", target);
    if (!compiled) FAIL_CHECK(compiled.error().to_string());
    else CHECK(compiled.value().spill_bytes == 0);
  }
}
