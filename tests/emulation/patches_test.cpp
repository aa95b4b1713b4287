// Convolutions of patches without gaps, whose operands arrive as boxes: the columns of a patch count as channels.
#include <catch2/catch.hpp>

#include "codegen/cuda/plan_cuda.h"
#include "tests/emulation/check_sample.h"
#include "tests/emulation/graph_samples.h"
#include "tests/emulation/schedules.h"

using namespace ingot;
using namespace ingot::samples;

namespace {

const char* const kPatches = R"(graph (%0 "x": f32[N,16,6,10]) where N in [0, inf] {
  %1 = const "w0": f32[64,16,1,1] data 11
  %2 = Conv(%0, %1) {kernel=[1, 1], strides=[1, 1], dilations=[1, 1], begins=[0, 0], ends=[0, 0]}: f32[N,64,6,10]
  %3 = const "w1": f32[40,64,2,2] data 12
  %4 = const "b1": f32[40,1,1] data 13
  %5 = Conv(%2, %3) {kernel=[2, 2], strides=[2, 2], dilations=[1, 1], begins=[0, 0], ends=[0, 0]}: f32[N,40,3,5]
  %6 = Add(%5, %4): f32[N,40,3,5]
  %7 = const "w2": f32[24,40,1,1] data 14
  %8 = Conv(%6, %7) {kernel=[1, 1], strides=[1, 1], dilations=[1, 1], begins=[0, 0], ends=[0, 0]}: f32[N,24,3,5]
  return %8 "y"
})";

/// The kernel whose k has the rows of a patch, and their columns and channels.
Sample patches() {
  for (const Sample& s : samples_of("patches", kPatches, DType::F16)) {
    const Contract* c = s.kernel.contract();
    if (c && c->k.size() == 2 && c->k[0].extent.is_const(2) && c->k[1].extent.is_const(128)) return s;
  }
  FAIL("no kernel has patches");
  return {};
}

}  // namespace

TEST_CASE("patches arrive as boxes, each row of them an image", "[emulated]") {
  const Sample sample = patches();
  const auto window = operand_window(sample.kernel, DType::F16);
  REQUIRE(window);
  CHECK(window->channels == 128);
  CHECK(window->taps() == 2);
  REQUIRE(takes_boxes(sample.kernel, DType::F16));
  check_schedule(sample, boxes(MultiplyUnit::F16, 64, 64, 64, 64, 3, false));
  check_schedule(sample, boxes(MultiplyUnit::F16, 64, 32, 64, 32, 4, true));
  check_schedule(sample, shared_boxes(MultiplyUnit::F16, 64, 32, 64, 32, 2, 3));
}
