// Kernels that read along another axis than they store along: tiles by way of shared memory (codegen/cuda/crossed_form.h).
#include <fmt/format.h>
#include <catch2/catch.hpp>

#include "codegen/cuda/crossed_form.h"
#include "codegen/cuda/plan_cuda.h"
#include "tests/emulation/check_sample.h"
#include "tests/emulation/graph_samples.h"
#include "tests/emulation/planted_fault.h"
#include "tests/emulation/schedules.h"

using namespace ingot;
using namespace ingot::samples;

namespace {

/// A copy of `dims` in another order.
std::string transposed(const std::string& dims, const std::string& perm, const std::string& to, const char* type) {
  return fmt::format(R"(graph (%0 "x": {3}[{0}]) where N in [0, inf] {{
  %1 = Transpose(%0) {{perm=[{1}]}}: {3}[{2}]
  return %1 "y"
}})",
                     dims, perm, to, type);
}

/// Images of `channels` to channels last, and zeros behind them.
std::string padded(int channels, int to, const char* pixels, const char* type) {
  return fmt::format(R"(graph (%0 "x": {3}[N,{0},{2}]) where N in [0, inf] {{
  %1 = Transpose(%0) {{perm=[0, 2, 1]}}: {3}[N,{2},{0}]
  %2 = Pad(%1) {{begins=[0, 0, 0], ends=[0, 0, {4}]}}: {3}[N,{2},{1}]
  return %2 "y"
}})",
                     channels, to, pixels, type, to - channels);
}

/// The kernel's plans for Hopper and for a machine that small tiles fill, each under the emulator.
void check_tiles(const std::string& text, bool crossed = true) {
  for (const Sample& sample : samples_of("crossed", text, DType::F32)) {
    CHECK(crossed_form(sample.kernel).has_value() == crossed);
    for (const TargetTraits& target : {cuda_traits(90), tiny_machine()}) {
      auto forms = emit_cuda(sample.kernel, target);
      if (!forms) FAIL(forms.error().to_string());
      for (const EmittedKernel& form : *forms) {
        CHECK((form.schedule.kind == Schedule::Kind::Crossed) == crossed);
        if (evaluate_int(form.grid[0], sample.dims).value_or(0) > 0) check_run(sample, form);
      }
    }
  }
}

const std::string kMixed =
    R"(graph (%0 "x": f16[N,48,33], %1 "y": f16[48], %2 "z": f16[N,33,48], %3 "w": f32[33,1]) where N in [0, inf] {
  %4 = Transpose(%0) {perm=[0, 2, 1]}: f16[N,33,48]
  %5 = Mul(%4, %1): f16[N,33,48]
  %6 = Add(%5, %2): f16[N,33,48]
  %7 = Relu(%6): f16[N,33,48]
  %8 = Cast(%4) {to=f32}: f32[N,33,48]
  %9 = Sub(%8, %3): f32[N,33,48]
  return %7 "a", %9 "b"
})";

}  // namespace

TEST_CASE("a transposed copy goes through shared memory", "[emulated]") {
  for (const char* type : {"f16", "f32", "i8", "f64", "bool"}) {
    INFO(type);
    check_tiles(transposed("N,48,33", "0, 2, 1", "N,33,48", type));
    check_tiles(transposed("N,130,72", "0, 2, 1", "N,72,130", type));
  }
  check_tiles(transposed("70,N", "1, 0", "N,70", "f16"));
  check_tiles(transposed("N,70", "1, 0", "70,N", "f16"));
  check_tiles(transposed("3,40,4,65", "1, 3, 2, 0", "40,65,4,3", "f16"));
}

TEST_CASE("a few channels and the pixels of an image are one axis of stores", "[emulated]") {
  for (const char* type : {"f16", "f32"}) {
    check_tiles(transposed("N,3,1100", "0, 2, 1", "N,1100,3", type));
    check_tiles(padded(3, 4, "1096", type));
    check_tiles(padded(5, 8, "77", type));
  }
  check_tiles(transposed("2,2064,12", "0, 2, 1", "2,12,2064", "f16"));
}

TEST_CASE("what is fused with a transposed copy", "[emulated]") { check_tiles(kMixed); }

TEST_CASE("rows that stay whole are copied as they are", "[emulated]") {
  check_tiles(transposed("N,5,6,32", "0, 2, 1, 3", "N,6,5,32", "f16"), false);
  check_tiles(transposed("N,40,4", "0, 2, 1", "N,4,40", "i8"), false);  // neighbours along the stores are in one sector
}

TEST_CASE("faults in tiles of two axes", "[emulated]") {
  const Fault faults[] = {
      {"points do not wait for the tile", "", "cta_sync();", "", "race"},
      {"a column of the tile is missing", "", "last < 33", "last < 32", "wrong"},
      {"stores behind the last row", "", "< 33) {", "< 34) {", "out-of-bounds"},
      {"neighbours across change places", "", "arrived[part][v] = ", "arrived[part][v ^ 1] = ", "wrong"},
  };
  const Sample sample = samples_of("crossed", transposed("2,33,48", "0, 2, 1", "2,48,33", "f16"), DType::F32)[0];
  for (const Fault& fault : faults) plant(sample, fault);
}

TEST_CASE("tiles of two axes compile without spills", "[nvrtc]") {
  if (no_nvrtc()) return;
  for (const std::string& text :
       {kMixed, transposed("N,256,3136", "0, 2, 1", "N,3136,256", "f16"),
        transposed("N,3,50176", "0, 2, 1", "N,50176,3", "f16"), padded(3, 4, "50176", "f16"),
        padded(3, 4, "50176", "f32"), transposed("768,197,64", "0, 2, 1", "768,64,197", "f16")})
    for (const Sample& sample : samples_of("crossed", text, DType::F32)) {
      auto forms = emit_cuda(sample.kernel, cuda_traits(90));
      REQUIRE(forms.ok());
      for (const EmittedKernel& e : *forms) check_compiles(sample, e, {"sm_90a", "sm_75"});
    }
}
