// Rows that all lanes of a block share, and that stay in registers from one pass to the next (codegen/cuda/held_rows.cpp).
#include <fmt/format.h>
#include <catch2/catch.hpp>

#include "codegen/cuda/cuda_backend.h"
#include "codegen/cuda/nvrtc.h"
#include "tests/emulation/check_sample.h"
#include "tests/emulation/graph_samples.h"

using namespace ingot;
using namespace ingot::samples;

namespace {

/// A sum that is an output itself, and its norm; `type` of 16 bits.
std::string norm_of_sum(int64_t columns, const char* type) {
  return fmt::format(R"(graph (%0 "x": {1}[N,{0}], %1 "r": {1}[N,{0}]) where N in [1, 65536] {{
  %2 = Add(%0, %1): {1}[N,{0}]
  %3 = const "g": f32[{0}] data 35a728ea0eaa5b7c
  %4 = const "b": f32[{0}] data c762a299c94d5e2c
  %5 = Cast(%2) {{}}: f32[N,{0}]
  %6 = LayerNormalization(%5, %3, %4) {{axis=1}}: f32[N,{0}]
  %7 = Cast(%6) {{to={1}}}: {1}[N,{0}]
  return %7 "y", %2 "s"
}}
)",
                     columns, type);
}

/// The text as it is planned for Hopper.
std::string text_of(const Sample& sample) {
  auto forms = emit_cuda(sample.kernel, cuda_traits(90));
  REQUIRE(forms.ok());
  return forms->front().source;
}
void check_planned(const Sample& sample) {
  auto forms = emit_cuda(sample.kernel, cuda_traits(90));
  REQUIRE(forms.ok());
  for (const EmittedKernel& e : *forms) check_run(sample, e);
}
bool holds(const std::string& text) { return text.find("> held") != std::string::npos; }

}  // namespace

TEST_CASE("long rows are loaded once and normalised from registers", "[emulated]") {
  for (const auto& [columns, type] :
       {std::pair{2048, "f16"}, {2056, "f16"}, {4096, "bf16"}, {6000, "f16"}, {16384, "f16"}}) {
    const std::vector<Sample> samples = samples_of("norm", norm_of_sum(columns, type), DType::F32);
    REQUIRE(samples.size() == 1);  // the sum is another output of the norm's kernel
    Sample sample = samples[0];
    if (std::string(type) == "bf16") sample.tolerance = 1.6e-2;
    else sample.tolerance = 2e-3;
    INFO(columns << " of " << type);
    CHECK(holds(text_of(sample)));
    check_planned(sample);
  }
  for (const int64_t columns : {2048, 4096, 32000}) {
    const Sample sample = softmax(5, columns, DType::F16);
    CHECK(holds(text_of(sample)));
    check_planned(sample);
  }
}

TEST_CASE("rows of a warp, rows that do not fit and rows read at several places are loaded by each pass", "[text]") {
  CHECK_FALSE(holds(text_of(softmax(5000, 768, DType::F16))));
  CHECK_FALSE(holds(text_of(softmax(5, 200000, DType::F16))));
  CHECK_FALSE(holds(text_of(softmax_scratch(5, 4096))));
}

TEST_CASE("held rows compile without spills", "[nvrtc]") {
  if (no_nvrtc()) return;
  for (const int64_t columns : {2048, 4096, 6000, 16384})
    for (const Sample& sample : samples_of("norm", norm_of_sum(columns, "f16"), DType::F32)) {
      auto forms = emit_cuda(sample.kernel, cuda_traits(90));
      REQUIRE(forms.ok());
      for (const EmittedKernel& e : *forms) check_compiles(sample, e, {"sm_90a", "sm_80"});
    }
}

TEST_CASE("groups of channels are gone over in the order in which they lie in memory", "[emulated]") {
  for (const auto& [channels, groups, vector] : {std::tuple{20, 4, 1}, {24, 4, 2}, {64, 2, 8}}) {
    const std::string text = fmt::format(R"(graph (%0 "x": f16[N,9,7,{0}]) where N in [1, 64] {{
  %1 = const "scale": f16[{0}] data 8cc6b2f00aa8ece7
  %2 = const "bias": f16[{0}] data a6fbf3c2e199d3b1
  %3 = Transpose(%0) {{perm=[0, 3, 1, 2]}}: f16[N,{0},9,7]
  %4 = GroupNormalization(%3, %1, %2) {{groups={1}}}: f16[N,{0},9,7]
  %5 = Sigmoid(%4): f16[N,{0},9,7]
  %6 = Mul(%4, %5): f16[N,{0},9,7]
  %7 = Transpose(%6) {{perm=[0, 2, 3, 1]}}: f16[N,9,7,{0}]
  return %7 "y"
}}
)",
                                         channels, groups);
    const std::vector<Sample> samples = samples_of("group norm", text, DType::F32);
    REQUIRE(samples.size() == 1);
    INFO(text_of(samples[0]));
    CHECK(text_of(samples[0]).find(fmt::format("vector={} ", vector)) != std::string::npos);
    Sample sample = samples[0];
    sample.tolerance = 2e-3;
    check_planned(sample);
  }
}
