// Products whose operands are complete before the launch in front of them starts: they are fetched, and where nothing else is needed
// multiplied, while that launch runs. Everything else is touched behind the wait, which the emulator checks in every sample.
#include <catch2/catch.hpp>

#include "codegen/cuda/cuda_backend.h"
#include "codegen/cuda/nvrtc.h"
#include "compiler/expr/expr.h"
#include "tests/emulation/check_sample.h"
#include "tests/emulation/graph_samples.h"
#include "tests/emulation/planted_fault.h"
#include "tests/emulation/schedules.h"

using namespace ingot;
using namespace ingot::samples;

namespace {

constexpr auto kF16 = MultiplyUnit::F16;

/// The same, behind a launch that wrote neither of its operands, or (`only_rows`) not the rows that a gate multiplies.
Sample early(Sample s, bool only_rows = false) {
  s.name = "early " + s.name;
  const Contract& c = *s.kernel.contract();
  for (const Expr* operand : {&c.a, &c.b})
    visit(*operand, [&](const Expr& x) {
      if (x.op() != ExprOp::Load) return;
      Buffer& b = s.kernel.buffers[static_cast<size_t>(x.buffer())];
      b.is_early = !b.is_constant && !(only_rows && b.name != "x");
    });
  return s;
}

std::string text_of(const Sample& sample, const Schedule& schedule) {
  auto emitted = emit_cuda(sample.kernel, cuda_traits(90), schedule);
  REQUIRE(emitted.ok());
  return emitted->source;
}
void check_late(const Sample& sample, const Schedule& schedule) {
  CHECK(text_of(sample, schedule).find("late = true") != std::string::npos);
  check_schedule(sample, schedule);
}

}  // namespace

TEST_CASE("products start before the launch in front has ended, and their results wait for it", "[emulated]") {
  for (const Sample& sample :
       {early(matmul(1, 136, 144, 328, false, true, DType::F16)),
        early(matmul(3, 40, 40, 200, false, false, DType::F16, true)), early(dynamic_matmul(300, 136, 328, DType::F16)),
        early(residual_matmul(2, 300, 136, 200, DType::F16))}) {
    check_late(sample, boxes(kF16, 64, 64, 64, 64, 3, false));
    check_late(sample, boxes(kF16, 128, 128, 128, 128, 2, true));
    check_late(sample, boxes(kF16, 128, 64, 64, 64, 4, false));
    check_late(sample, shared_boxes(kF16, 64, 64, 64, 64, 4, 3));
    check_late(sample, divided_boxes(kF16, 128, 64, 64, 64, 3, 3));
  }
  for (const Sample& sample :
       {early(conv(2, 64, 7, 9, 40, 3, 1, true, DType::F16)), early(largest_of_rows(11, 14, 136, 200, DType::F16))}) {
    check_late(sample, boxes(kF16, 64, 64, 64, 64, 3, false));
    check_late(sample, shared_boxes(kF16, 64, 64, 64, 64, 2, 3));
    check_late(sample, divided_boxes(kF16, 64, 64, 64, 64, 2, 3));
  }
  check_late(early(matmul(1, 90, 140, 200, false, true, DType::F32)),
             boxes(MultiplyUnit::Tf32x3, 64, 64, 64, 64, 3, false));
}

TEST_CASE("operands are fetched before the wait by every other main loop", "[emulated]") {
  const Sample product = early(matmul(1, 136, 144, 328, false, true, DType::F16));
  check_schedule(product, groups(kF16, 64, 64, 64, 64, 1, 4, true));
  check_schedule(product, groups(kF16, 128, 64, 128, 64, 2, 3, false));
  check_schedule(product, mma(kF16, 64, 64, 32, 32, 1, 1, 3));
  check_schedule(early(dynamic_matmul(9, 136, 328, DType::F16)), mma(kF16, 64, 64, 32, 32, 2, 1, 3));
  check_schedule(early(rows_matmul(200, 72, 144, DType::F16, 0, true)), rows_by(2, kF16, 1, 72, 144, 2));
}

TEST_CASE("rows are fetched before the wait, and the gate that multiplies them behind it", "[emulated]") {
  const Sample gated = early(rows_matmul(196, 72, 144, DType::F16, 49, true), true);
  for (const Schedule& s : {boxes(kF16, 64, 64, 64, 64, 3, false), shared_boxes(kF16, 64, 64, 64, 64, 2, 3),
                            rows_by(2, kF16, 1, 72, 144, 2)}) {
    const std::string text = text_of(gated, s);
    CHECK(text.find("a_early = true") != std::string::npos);
    CHECK(text.find("late = true") == std::string::npos);
    check_schedule(gated, s);
  }
}

TEST_CASE("a result or a gate that does not wait is found", "[emulated]") {
  const Schedule loop = boxes(kF16, 64, 64, 64, 64, 3, false), cluster = shared_boxes(kF16, 64, 64, 64, 64, 4, 3),
                 divided = divided_boxes(kF16, 128, 64, 64, 64, 3, 3);
  const Fault results{"results do not wait", kBoxes, "if constexpr (Plan::late) pdl_begin();", "", "missing-pdl-wait"};
  plant(early(matmul(1, 136, 144, 328, false, true, DType::F16)), results, &cluster);
  plant(early(matmul(1, 136, 144, 328, false, true, DType::F16)), results, &divided);
  plant(early(residual_matmul(2, 300, 136, 200, DType::F16)),
        {"tiles do not wait", kBoxes, "bool waits = Plan::late;", "bool waits = false;", "missing-pdl-wait"}, &loop);
  plant(early(rows_matmul(196, 72, 144, DType::F16, 49, true), true),
        {"a gate does not wait", kBoxes, "if constexpr (!Plan::late) pdl_begin();", "", "missing-pdl-wait"}, &loop);
}

TEST_CASE("what a launch reads early is what launches before the one in front wrote", "[text]") {
  // A long branch and a short one, whose product adds the long one's.
  const std::string text = R"(graph (%0 "x": f16[N,64,14,14]) where N in [1, 64] {
  %1 = const "w1": f16[64,64,1,1] data 1
  %2 = const "w2": f16[64,64,3,3] data 2
  %3 = const "w3": f16[128,64,1,1] data 3
  %4 = const "w4": f16[128,64,1,1] data 4
  %13 = Conv(%0, %1) {kernel=[1, 1], strides=[1, 1], dilations=[1, 1], begins=[0, 0], ends=[0, 0]}: f16[N,64,14,14]
  %5 = Relu(%13): f16[N,64,14,14]
  %6 = Conv(%5, %1) {kernel=[1, 1], strides=[1, 1], dilations=[1, 1], begins=[0, 0], ends=[0, 0]}: f16[N,64,14,14]
  %7 = Relu(%6): f16[N,64,14,14]
  %8 = Conv(%7, %2) {kernel=[3, 3], strides=[1, 1], dilations=[1, 1], begins=[1, 1], ends=[1, 1]}: f16[N,64,14,14]
  %9 = Relu(%8): f16[N,64,14,14]
  %10 = Conv(%5, %3) {kernel=[1, 1], strides=[1, 1], dilations=[1, 1], begins=[0, 0], ends=[0, 0]}: f16[N,128,14,14]
  %11 = Conv(%9, %4) {kernel=[1, 1], strides=[1, 1], dilations=[1, 1], begins=[0, 0], ends=[0, 0]}: f16[N,128,14,14]
  %12 = Add(%11, %10): f16[N,128,14,14]
  return %12 "y"
})";
  std::string marks;
  for (const Sample& s : samples_of("branches", text, DType::F16)) {
    if (!s.kernel.contract()) continue;
    for (const Buffer& b : s.kernel.buffers)
      if (b.is_early) marks += b.name + " ";
    marks += s.kernel.name + ";";
  }
  INFO(marks);
  CHECK(
      marks == "Cast_Conv_Relu_Cast;Cast_Conv_Relu_Cast;Cast_Conv_Relu_Cast;Cast_Conv_Cast;x0 "
               "Cast_Conv_Cast_Add_Cast;");  // what the short branch reads is older than the long one's end
}

TEST_CASE("products that start early compile without spills", "[nvrtc]") {
  if (no_nvrtc()) return;
  for (const Sample& sample :
       {early(matmul(1, 256, 768, 768, false, true, DType::F16)), early(residual_matmul(1, 300, 256, 512, DType::F16))})
    for (const Schedule& s : {boxes(kF16, 128, 256, 64, 256, 3, false), boxes(kF16, 128, 128, 128, 128, 4, true),
                              boxes(kF16, 64, 32, 64, 32, 8, false), shared_boxes(kF16, 64, 64, 64, 64, 4, 8),
                              divided_boxes(kF16, 128, 256, 64, 256, 4, 4)}) {
      const auto emitted = emit_cuda(sample.kernel, cuda_traits(90), s);
      INFO((emitted ? "" : emitted.error().to_string()));
      REQUIRE(emitted);
      check_compiles(sample, emitted.value(), {"sm_90a"});
    }
}
