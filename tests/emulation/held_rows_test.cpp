// Rows that all lanes of a block share, and that stay in registers from one pass to the next (codegen/cuda/held_rows.cpp).
#include <fmt/format.h>
#include <catch2/catch.hpp>

#include "codegen/cuda/cuda_backend.h"
#include "codegen/cuda/nvrtc.h"
#include "tests/emulation/check_sample.h"
#include "tests/emulation/graph_samples.h"
#include "tests/emulation/planted_fault.h"

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

/// Images with channels last, normed by groups of channels.
std::string norm_of_groups(int height, int width, int channels, int groups) {
  return fmt::format(R"(graph (%0 "x": f16[N,{2},{3},{0}]) where N in [1, 64] {{
  %1 = const "scale": f16[{0}] data 8cc6b2f00aa8ece7
  %2 = const "bias": f16[{0}] data a6fbf3c2e199d3b1
  %3 = Transpose(%0) {{perm=[0, 3, 1, 2]}}: f16[N,{0},{2},{3}]
  %4 = GroupNormalization(%3, %1, %2) {{groups={1}}}: f16[N,{0},{2},{3}]
  %5 = Sigmoid(%4): f16[N,{0},{2},{3}]
  %6 = Mul(%4, %5): f16[N,{0},{2},{3}]
  %7 = Transpose(%6) {{perm=[0, 2, 3, 1]}}: f16[N,{2},{3},{0}]
  return %7 "y"
}}
)",
                     channels, groups, height, width);
}

bool in_clusters(const std::string& text) { return text.find("cluster_reduce<") != std::string::npos; }

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
  CHECK_FALSE(holds(text_of(softmax(5, 2000000, DType::F16))));
  CHECK_FALSE(holds(text_of(softmax_scratch(5, 4096))));
}

TEST_CASE("held rows compile without spills", "[nvrtc]") {
  if (no_nvrtc()) return;
  std::vector<std::string> texts;
  for (const int64_t columns : {2048, 4096, 6000, 16384, 32000}) texts.push_back(norm_of_sum(columns, "f16"));
  for (const auto& [side, channels] : {std::pair{64, 320}, {64, 512}, {128, 256}, {32, 640}, {16, 1280}})
    texts.push_back(norm_of_groups(side, side, channels, 32));
  for (const std::string& text : texts)
    for (const Sample& sample : samples_of("norm", text, DType::F32)) {
      for (const auto& [capability, name] : {std::pair{90, "sm_90a"}, {80, "sm_80"}}) {
        auto forms = emit_cuda(sample.kernel, cuda_traits(capability));
        REQUIRE(forms.ok());
        for (const EmittedKernel& e : *forms) check_compiles(sample, e, {name});
      }
    }
}

TEST_CASE("blocks of a cluster share long rows, each of which is loaded once", "[emulated]") {
  for (const int height : {48, 47}) {
    Sample sample = samples_of("group norm", norm_of_groups(height, 48, 20, 2), DType::F32)[0];
    sample.tolerance = 2e-3;
    CHECK(holds(text_of(sample)));
    CHECK(in_clusters(text_of(sample)));
    check_planned(sample);
  }
  for (const int64_t columns : {100000, 120000}) {
    const Sample sample = softmax(3, columns, DType::F32);
    CHECK(holds(text_of(sample)));
    CHECK(in_clusters(text_of(sample)));
    check_planned(sample);
  }
  auto elsewhere = emit_cuda(softmax(3, 200000, DType::F16).kernel, cuda_traits(80));
  REQUIRE(elsewhere.ok());
  CHECK_FALSE(in_clusters(elsewhere->front().source));
}

TEST_CASE("faults in rows that blocks share", "[emulated]") {
  Sample sample = samples_of("group norm", norm_of_groups(48, 48, 20, 2), DType::F32)[0];
  const char* reduce = "prelude/reduce.cuh";
  const Fault faults[] = {
      {"the other blocks' sums are not waited for", reduce, "  cluster_sync();\n  v = lds<T>(scratch + lane % kLanes",
       "  v = lds<T>(scratch + lane % kLanes", "race"},
      {"one block is not told", reduce, "if (lane < Blocks) sts_cluster(scratch + own",
       "if (lane < Blocks - 1) sts_cluster(scratch + own", "uninitialised"},
      {"all warps have one slot", reduce,
       "const int lane = threadIdx.x % 32, own = (int)cluster_rank() * kWarps + threadIdx.x / 32;",
       "const int lane = threadIdx.x % 32, own = (int)cluster_rank() * kWarps;", "uninitialised"},
      {"both passes take the same area", "", ", shared + 1024)", ", shared)", "race"},
      {"blocks start with the same columns", "", "(int)cluster_rank() * 512 + (int)threadIdx.x", "(int)threadIdx.x",
       "wrong"},
  };
  for (const Fault& fault : faults) plant(sample, fault);
}

TEST_CASE("groups of channels are gone over in the order in which they lie in memory", "[emulated]") {
  for (const auto& [channels, groups, vector] : {std::tuple{20, 4, 1}, {24, 4, 2}, {64, 2, 8}}) {
    const std::string text = norm_of_groups(9, 7, channels, groups);
    const std::vector<Sample> samples = samples_of("group norm", text, DType::F32);
    REQUIRE(samples.size() == 1);
    INFO(text_of(samples[0]));
    CHECK(text_of(samples[0]).find(fmt::format("vector={} ", vector)) != std::string::npos);
    Sample sample = samples[0];
    sample.tolerance = 2e-3;
    check_planned(sample);
  }
}
