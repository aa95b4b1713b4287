// Products whose operands arrive as boxes and whose k the blocks of a cluster share: every form of operands and results under
// emulation; all tiles compile without spills; and what the planner makes of products with few tiles.
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

constexpr auto shared = shared_boxes;

}  // namespace

TEST_CASE("blocks of a cluster share k, and boxes bring the operands", "[emulated]") {
  // One block has nothing to add where steps are few: 328 are six steps, 72 are two.
  for (const Sample& sample : {matmul(1, 136, 144, 328, false, true, DType::F16), matmul(3, 40, 40, 200, false, false, DType::F16, true),
                               matmul(1, 72, 136, 72, true, false, DType::F16), dynamic_matmul(9, 136, 328, DType::F16)}) {
    check_schedule(sample, shared(kF16, 64, 64, 64, 64, 2, 3));
    check_schedule(sample, shared(kF16, 128, 64, 64, 64, 4, 3));
    check_schedule(sample, shared(kF16, 64, 128, 64, 128, 8, 4));
  }
  check_schedule(dynamic_matmul(1, 264, 328, DType::BF16), shared(MultiplyUnit::BF16, 64, 64, 64, 64, 8, 5));
  check_schedule(matmul(1, 3, 264, 328, false, true, DType::F16), shared(kF16, 64, 32, 64, 32, 8, 5));
  check_schedule(dynamic_matmul(5, 264, 328, DType::F16), shared(kF16, 64, 256, 64, 128, 2, 3));
  check_schedule(residual_matmul(1, 200, 136, 520, DType::F16), shared(kF16, 128, 128, 64, 128, 4, 3));
  check_schedule(residual_matmul(2, 70, 72, 136, DType::BF16), shared(MultiplyUnit::BF16, 64, 64, 64, 64, 2, 3));
  for (const Sample& sample : {conv(2, 64, 7, 9, 40, 3, 1, true, DType::F16), conv(1, 136, 12, 5, 64, 5, 1, true, DType::F16),
                               conv(3, 24, 9, 7, 72, 3, 2, true, DType::F16)}) {
    check_schedule(sample, shared(kF16, 64, 64, 64, 64, 4, 3));
    check_schedule(sample, shared(kF16, 128, 32, 128, 32, 8, 2));
  }
}

TEST_CASE("rows that a gate multiplies, with k shared", "[emulated]") {
  for (const Sample& sample : {rows_matmul(49, 72, 712, DType::F16, 49, true), rows_matmul(130, 136, 328, DType::BF16, 1, false)}) {
    const auto unit = sample.kernel.contract()->a_type == DType::BF16 ? MultiplyUnit::BF16 : kF16;
    check_schedule(sample, shared(unit, 64, 64, 64, 64, 4, 3));
    check_schedule(sample, shared(unit, 128, 64, 64, 64, 2, 3));
  }
}

TEST_CASE("groups of rows, with k shared", "[emulated]") {
  for (const Sample& sample : {largest_of_rows(11, 14, 136, 200, DType::F16), largest_of_rows(21, 14, 72, 136, DType::F16, 2),
                               largest_of_rows(1, 8, 72, 520, DType::F16), largest_of_rows(3, 49, 40, 200, DType::F16, 1)}) {
    check_schedule(sample, shared(kF16, 64, 64, 64, 64, 2, 3));
    check_schedule(sample, shared(kF16, 128, 128, 64, 128, 4, 3));
  }
}

TEST_CASE("f32 and bytes, with k shared", "[emulated]") {
  const auto f32 = MultiplyUnit::Tf32x3;
  for (const Sample& sample : {matmul(1, 90, 140, 200, false, true, DType::F32), extreme_matmul(70, 72, 104),
                               conv(2, 36, 7, 9, 40, 3, 1, true), residual_matmul(1, 70, 72, 136, DType::F32)}) {
    check_schedule(sample, shared(f32, 64, 64, 64, 64, 4, 3));
    check_schedule(sample, shared(f32, 64, 128, 64, 64, 2, 2));
  }
  Sample tf32 = matmul(1, 150, 72, 300, false, true, DType::F32);
  tf32.tolerance = 2e-3;
  check_schedule(tf32, shared(MultiplyUnit::Tf32, 64, 64, 64, 64, 4, 3));
  for (const ByteTypes types : {ByteTypes{DType::U8, DType::I8}, ByteTypes{DType::I8, DType::I8}})
    check_schedule(byte_matmul(1, 130, 264, 720, false, true, types, ByteResult::Bytes), shared(MultiplyUnit::Bytes, 64, 64, 64, 64, 4, 3));
}

TEST_CASE("every tile of which blocks share k compiles without spills", "[nvrtc]") {
  if (no_nvrtc()) return;
  int seen = 0;
  for (const Sample& sample : {dynamic_matmul(64, 1024, 4096, DType::F16), residual_matmul(1, 49, 512, 4608, DType::F16),
                               rows_matmul(49, 320, 1152, DType::F16, 49, true), conv(1, 512, 7, 7, 512, 3, 1, true, DType::F16),
                               largest_of_rows(4, 8, 512, 4096, DType::F16), matmul(1, 128, 768, 3072, false, true, DType::F32)}) {
    for (const RankedPlan& plan : rank_tiles(plan_kernel(sample.kernel, cuda_traits(90)).kernel, cuda_traits(90), sample.dims)) {
      if (!plan.schedule.tile.boxes || plan.schedule.cluster_k != 4) continue;
      const auto emitted = emit_cuda(sample.kernel, cuda_traits(90), plan.schedule);
      REQUIRE(emitted);
      check_compiles(sample, emitted.value(), {"sm_90a"});
      ++seen;
    }
  }
  CHECK(seen > 12);
}

TEST_CASE("products with few tiles share k among blocks, by boxes", "[text]") {
  for (const Sample& sample : {matmul(1, 128, 768, 3072, false, true, DType::F16), conv(1, 512, 7, 7, 512, 3, 1, true, DType::F16)}) {
    const Schedule s = plan_tiles(plan_kernel(sample.kernel, cuda_traits(90)).kernel, cuda_traits(90)).front();
    CHECK(s.tile.boxes);
    CHECK(s.cluster_k > 1);
  }
}
