// Products whose k blocks of the grid divide, with parts of sums in memory: every form of operands and results under emulation; all
// tiles compile without spills; what the planner makes of products with few tiles; and a session that runs such a kernel.
#include <catch2/catch.hpp>

#include "codegen/cuda/cuda_backend.h"
#include "codegen/cuda/mma_cost.h"
#include "codegen/cuda/nvrtc.h"
#include "codegen/cuda/plan_cuda.h"
#include "tests/emulation/byte_samples.h"
#include "tests/emulation/check_sample.h"
#include "tests/emulation/schedules.h"

using namespace ingot;
using namespace ingot::samples;

namespace {

constexpr auto kF16 = MultiplyUnit::F16;

constexpr auto divided = divided_boxes;

}  // namespace

TEST_CASE("blocks of the grid divide k, and boxes bring the operands", "[emulated]") {
  // 328 are six steps, 72 are two: some blocks have nothing to add.
  for (const Sample& sample :
       {matmul(1, 136, 144, 328, false, true, DType::F16), matmul(3, 40, 40, 200, false, false, DType::F16, true),
        matmul(1, 72, 136, 72, true, false, DType::F16), dynamic_matmul(9, 136, 328, DType::F16)}) {
    check_schedule(sample, divided(kF16, 64, 64, 64, 64, 2, 3));
    check_schedule(sample, divided(kF16, 128, 64, 64, 64, 3, 3));
    check_schedule(sample, divided(kF16, 64, 128, 64, 128, 5, 4));
  }
  check_schedule(dynamic_matmul(1, 264, 328, DType::BF16), divided(MultiplyUnit::BF16, 64, 64, 64, 64, 7, 5));
  check_schedule(matmul(1, 3, 264, 328, false, true, DType::F16), divided(kF16, 64, 32, 64, 32, 8, 5));
  check_schedule(dynamic_matmul(5, 264, 328, DType::F16), divided(kF16, 64, 256, 64, 128, 2, 3));
  check_schedule(dynamic_matmul(130, 264, 584, DType::F16), divided(kF16, 128, 256, 64, 256, 4, 4));
  check_schedule(dynamic_matmul(200, 136, 584, DType::F16), divided(kF16, 192, 128, 64, 128, 3, 4));
  check_schedule(residual_matmul(1, 300, 136, 520, DType::F16), divided(kF16, 256, 128, 128, 128, 4, 3));
  check_schedule(residual_matmul(2, 70, 72, 136, DType::BF16), divided(MultiplyUnit::BF16, 64, 64, 64, 64, 2, 3));
  for (const Sample& sample :
       {conv(2, 64, 7, 9, 40, 3, 1, true, DType::F16), conv(1, 136, 12, 5, 64, 5, 1, true, DType::F16)}) {
    check_schedule(sample, divided(kF16, 64, 64, 64, 64, 4, 3));
    check_schedule(sample, divided(kF16, 128, 32, 128, 32, 6, 2));
  }
}

TEST_CASE("groups of rows and gated rows, with k divided", "[emulated]") {
  for (const Sample& sample :
       {largest_of_rows(11, 14, 136, 200, DType::F16), largest_of_rows(21, 14, 72, 136, DType::F16, 2),
        largest_of_rows(1, 8, 72, 520, DType::F16), largest_of_rows(3, 49, 40, 200, DType::F16, 1)}) {
    check_schedule(sample, divided(kF16, 64, 64, 64, 64, 2, 3));
    check_schedule(sample, divided(kF16, 128, 128, 64, 128, 3, 3));
  }
  check_schedule(rows_matmul(49, 72, 712, DType::F16, 49, true), divided(kF16, 64, 64, 64, 64, 4, 3));
}

TEST_CASE("f32 and bytes, with k divided", "[emulated]") {
  for (const Sample& sample : {matmul(1, 90, 140, 200, false, true, DType::F32), conv(2, 36, 7, 9, 40, 3, 1, true)})
    check_schedule(sample, divided(MultiplyUnit::Tf32x3, 64, 64, 64, 64, 3, 3));
  check_schedule(byte_matmul(1, 130, 264, 720, false, true, {DType::U8, DType::I8}, ByteResult::Bytes),
                 divided(MultiplyUnit::Bytes, 64, 64, 64, 64, 4, 3));
}

TEST_CASE("every tile whose k blocks of the grid divide compiles without spills", "[nvrtc]") {
  if (no_nvrtc()) return;
  int seen = 0;
  for (const Sample& sample :
       {largest_of_rows(64, 10, 1024, 28672, DType::F16), residual_matmul(1, 49, 512, 4608, DType::F16),
        matmul(1, 128, 768, 3072, false, true, DType::F32)}) {
    for (const RankedPlan& plan :
         rank_tiles(plan_kernel(sample.kernel, cuda_traits(90)).kernel, cuda_traits(90), sample.dims)) {
      if (plan.schedule.grid_k != 3 && plan.schedule.grid_k != 8) continue;
      const auto emitted = emit_cuda(sample.kernel, cuda_traits(90), plan.schedule);
      REQUIRE(emitted);
      check_compiles(sample, emitted.value(), {"sm_90a"});
      ++seen;
    }
  }
  CHECK(seen > 12);
}

TEST_CASE("products with few tiles and a long k are divided among blocks of the grid", "[text]") {
  const Sample sample = largest_of_rows(64, 10, 1024, 28672, DType::F16);
  CHECK(plan_tiles(plan_kernel(sample.kernel, cuda_traits(90)).kernel, cuda_traits(90)).front().grid_k > 1);
}
