// Attention with few queries: keys divided among warps and blocks, heads that share keys as rows of one tile, loops over keys
// that end where a mask says so. Under emulation against the interpreter, and compiled by NVRTC.
#include <cmath>

#include <catch2/catch.hpp>

#include "codegen/cuda/cuda_backend.h"
#include "codegen/cuda/nvrtc.h"
#include "codegen/cuda/plan_cuda.h"
#include "codegen/cuda/tuning_candidates.h"
#include "codegen/kernel/attention_masks.h"
#include "compiler/expr/simplify.h"
#include "tests/emulation/attention_samples.h"
#include "tests/emulation/check_sample.h"

using namespace ingot;
using namespace ingot::samples;

namespace {

Schedule few(DType type, int m, int key_warps, int keys, int stages, int cluster) {
  Schedule s;
  s.kind = Schedule::Kind::Attention;
  s.unit = type == DType::BF16 ? MultiplyUnit::BF16 : type == DType::F16 ? MultiplyUnit::F16 : MultiplyUnit::Tf32x3;
  s.tile = {
      .m = m, .n = key_warps * keys, .warp_m = 16, .warp_n = key_warps * keys, .k_warps = key_warps, .stages = stages};
  s.threads = s.tile.threads();
  s.cluster_k = cluster;
  return s;
}
Schedule few_by_boxes(DType type, int m, int key_warps, int keys, int stages, int cluster, int blocks) {
  Schedule s = few(type, m, key_warps, keys, stages, cluster);
  s.tile.boxes = true;
  s.threads = s.tile.threads();
  s.most_blocks = blocks;
  return s;
}
Schedule by_boxes(int m, int n, int blocks) {
  Schedule s;
  s.kind = Schedule::Kind::Attention;
  s.unit = MultiplyUnit::F16;
  s.tile = {.m = m, .n = n, .warp_m = 64, .warp_n = n, .stages = 2, .warpgroups = true, .boxes = true};
  s.threads = s.tile.threads();
  s.most_blocks = blocks;
  return s;
}

void check_decoding(const Decoding& x, const Schedule& schedule) { check_schedule(decoding(x), schedule); }
bool any_is(const std::vector<Schedule>& forms, bool shares) {
  for (const Schedule& s : forms)
    if (shares_keys(s) == shares) return true;
  return false;
}

}  // namespace

TEST_CASE("keys divided among warps and blocks", "[emulated]") {
  const auto f16 = DType::F16, f32 = DType::F32;
  check_decoding({}, few(f16, 16, 2, 16, 2, 1));
  check_decoding({.batch = 2, .n = 330}, few(f16, 16, 4, 16, 3, 2));
  check_decoding({.n = 530, .k = 64, .d = 128}, few(f16, 16, 2, 32, 4, 4));
  check_decoding({.heads = 4, .key_heads = 4, .n = 50, .k = 24, .d = 40},
                 few(f16, 16, 8, 16, 2, 8));  // blocks without keys
  check_decoding({.heads = 6, .key_heads = 1, .m = 5, .n = 200, .k = 9, .d = 7, .type = DType::BF16},
                 few(DType::BF16, 32, 4, 16, 3, 2));
  check_decoding({.heads = 6, .key_heads = 2, .m = 20, .n = 100, .biased = true}, few(f16, 64, 2, 32, 2, 2));
  check_decoding({.heads = 4, .key_heads = 2, .n = 150, .type = f32, .biased = true}, few(f32, 16, 4, 16, 2, 2));
  check_decoding({.heads = 4, .key_heads = 2, .n = 150, .k = 18, .d = 33, .type = f32}, few(f32, 16, 2, 32, 3, 1));
}

TEST_CASE("keys that arrive as boxes, divided among warps and blocks", "[emulated]") {
  const auto f16 = DType::F16, bf16 = DType::BF16;
  check_decoding({}, few_by_boxes(f16, 16, 2, 16, 2, 1, 132));
  check_decoding({.batch = 2, .n = 330}, few_by_boxes(f16, 16, 4, 16, 3, 2, 132));
  check_decoding({.batch = 3, .n = 530, .k = 64, .d = 128}, few_by_boxes(f16, 16, 2, 32, 4, 4, 8));  // several tiles for each
  check_decoding({.heads = 4, .key_heads = 4, .n = 50, .k = 24, .d = 40}, few_by_boxes(f16, 16, 8, 16, 2, 8, 16));
  check_decoding({.batch = 2, .heads = 6, .key_heads = 1, .m = 5, .n = 200, .k = 40, .d = 72, .type = bf16},
                 few_by_boxes(bf16, 32, 4, 16, 3, 2, 2));
  check_decoding({.batch = 5, .heads = 24, .key_heads = 2, .n = 100, .biased = true}, few_by_boxes(f16, 16, 2, 32, 2, 1, 3));
  check_decoding({.batch = 2, .heads = 6, .key_heads = 2, .m = 20, .n = 100, .biased = true}, few_by_boxes(f16, 64, 2, 32, 2, 2, 4));
  for (NoLogit none : {NoLogit::Nan, NoLogit::Zero, NoLogit::NanIsZero})
    check_decoding({.batch = 4, .heads = 4, .key_heads = 2, .m = 3, .n = 70, .sees = Sees::CausalLength, .no_logit = none},
                   few_by_boxes(f16, 16, 2, 16, 2, 2, 6));
  check_decoding({.batch = 3, .heads = 4, .key_heads = 2, .m = 2, .n = 90, .sees = Sees::Length, .open = true},
                 few_by_boxes(f16, 16, 4, 16, 2, 1, 2));
}

TEST_CASE("loops over keys end where no query of a tile sees more", "[emulated]") {
  const Schedule divided = few(DType::F16, 16, 2, 16, 2, 2);
  Schedule warps = few(DType::F16, 64, 1, 32, 2, 1);
  warps.threads = 128;
  const auto check = [](Decoding x, Sees sees, NoLogit no_logit, const Schedule& s) {
    x.sees = sees;
    x.no_logit = no_logit;
    CHECK(reach_of(*decoding(x).kernel.attend()).valid());
    check_decoding(x, s);
  };
  const Decoding short_one{.batch = 4, .heads = 4, .key_heads = 2, .m = 3, .n = 70},
      square{.batch = 4, .heads = 4, .key_heads = 2, .m = 70, .n = 70},
      biased{.batch = 4, .heads = 2, .key_heads = 2, .m = 70, .n = 90, .biased = true},
      wide{.batch = 2, .heads = 2, .key_heads = 1, .m = 150, .n = 170};
  check(short_one, Sees::Causal, NoLogit::Nan, divided);
  check(wide, Sees::Causal, NoLogit::Nan, by_boxes(128, 32, 3));
  check(square, Sees::Length, NoLogit::Nan, by_boxes(64, 16, 5));
  check(short_one, Sees::Length, NoLogit::Zero, divided);
  check(biased, Sees::Length, NoLogit::Zero, warps);
  check(short_one, Sees::CausalLength, NoLogit::NanIsZero, divided);
  check(square, Sees::CausalLength, NoLogit::NanIsZero, by_boxes(128, 64, 3));
  check(biased, Sees::CausalLength, NoLogit::Zero, by_boxes(128, 64, 3));
}

TEST_CASE("tiles of queries that see more keys the later they come", "[emulated]") {
  const Sample sample =
      decoding({.batch = 5, .heads = 1, .key_heads = 1, .m = 130, .n = 130, .k = 16, .d = 16, .sees = Sees::Causal});
  auto emitted = emit_cuda(sample.kernel, cuda_traits(90), by_boxes(64, 64, 4));
  REQUIRE(emitted.ok());
  const std::string all = "section_bytes = 16777216";
  REQUIRE(emitted->source.find(all) != std::string::npos);
  for (const char* few : {"section_bytes = 1", "section_bytes = 26000"}) {  // one batch index of 8,320 bytes, and three
    EmittedKernel e = *emitted;
    e.source.replace(e.source.find(all), all.size(), few);
    check_run(sample, e);
  }
}

TEST_CASE("what a kernel with few queries has of others", "[text]") {
  const Kernel given = decoding({.batch = 3, .heads = 8, .key_heads = 2, .sees = Sees::Length}).kernel;
  const Kernel kernel = heads_as_rows(given);
  const Attend& t = *kernel.attend();
  CHECK(total_of(t.m).is_const(4));
  CHECK(total_of(t.batch).is_const(6));
  CHECK(reach_of(t).valid());
  CHECK(total_of(heads_as_rows(decoding({.key_heads = 8}).kernel).attend()->m).is_const(1));
  // A length that memory has ends the loop, and a finite mask does not: without a key all count the same.
  Attend finite = *given.attend();
  finite.score = select(lt(finite.n[0].var, Expr::load(3, DType::I64, finite.batch[0].var)), finite.dot,
                        Expr::number(DType::F32, -3e38));
  CHECK(!reach_of(finite).valid());
  CHECK(seen_keys(finite, finite.score).plain.same(finite.dot));
}

TEST_CASE("plans for few queries", "[text]") {
  const TargetTraits h200 = cuda_traits(90), old = cuda_traits(80);
  const Decoding llama{.batch = 1, .heads = 32, .key_heads = 8, .n = 4096, .k = 128, .d = 128};
  const Schedule one = plan_kernel(decoding(llama).kernel, h200).forms.at(0);
  CHECK(shares_keys(one));
  CHECK(one.cluster_k == 8);
  CHECK(plan_kernel(decoding(llama).kernel, old).forms.at(0).cluster_k == 1);
  Decoding many = llama;
  many.batch = 64;
  CHECK(plan_kernel(decoding(many).kernel, h200).forms.at(0).cluster_k <= 2);
  // With open sizes each number of queries has its form, and exactly one is launched.
  Decoding open = llama;
  open.open = true;
  const Kernel kernel = decoding(open).kernel;
  for (const TargetTraits& target : {h200, old}) {
    const PlannedKernel planned = plan_kernel(kernel, target);
    CHECK(any_is(planned.forms, true));
    CHECK(any_is(planned.forms, false));
    auto emitted = emit_forms(planned, target);
    REQUIRE(emitted.ok());
    for (int64_t b : {1, 7, 64})
      for (int64_t m : {1, 16, 17, 300}) {
        int launched = 0;
        for (const EmittedKernel& e : *emitted) {
          const bool is_launched = evaluate_int(e.grid[0], {{"B", b}, {"M", m}, {"N", 1000}}).value() > 0;
          launched += is_launched;
          if (is_launched) CHECK(shares_keys(e.schedule) == (m <= 16));
        }
        CHECK(launched == 1);
      }
  }
  const TuningCandidates at_one = tuning_candidates(plan_kernel(kernel, h200), h200, {{"B", 1}, {"M", 1}, {"N", 1000}}),
                         at_many =
                             tuning_candidates(plan_kernel(kernel, h200), h200, {{"B", 1}, {"M", 512}, {"N", 1000}});
  CHECK(at_one.schedules.size() >= 3);
  CHECK(any_is(at_one.schedules, true));
  CHECK(!any_is(at_one.schedules, false));
  CHECK(!any_is(at_many.schedules, true));
  CHECK(at_one.form != at_many.form);
}

TEST_CASE("planned kernels of few queries agree", "[emulated]") {
  for (const Decoding& x :
       {Decoding{.batch = 2, .heads = 8, .key_heads = 2, .n = 1100, .k = 64, .d = 64, .sees = Sees::Causal},
        Decoding{.batch = 3, .heads = 4, .key_heads = 2, .m = 2, .n = 90, .sees = Sees::Length, .open = true},
        Decoding{.batch = 1, .heads = 4, .key_heads = 2, .m = 40, .n = 90, .sees = Sees::Causal, .open = true}}) {
    const Sample sample = decoding(x);
    auto forms = emit_cuda(sample.kernel, cuda_traits(90));
    REQUIRE(forms.ok());
    for (const EmittedKernel& e : *forms)
      if (evaluate_int(e.grid[0], sample.dims).value() > 0) check_run(sample, e);
  }
}

TEST_CASE("attention with few queries compiles without spills", "[nvrtc]") {
  if (!nvrtc_version()) return;
  for (const Decoding& x :
       {Decoding{.batch = 1, .heads = 32, .key_heads = 8, .n = 4096, .k = 128, .d = 128, .sees = Sees::Length},
        Decoding{.batch = 32, .heads = 32, .key_heads = 8, .n = 4096, .k = 128, .d = 128, .sees = Sees::Causal},
        Decoding{.batch = 2, .heads = 8, .key_heads = 2, .m = 4, .n = 2048, .k = 256, .d = 256},
        Decoding{.batch = 8, .heads = 12, .key_heads = 12, .n = 1024, .k = 64, .d = 64, .type = DType::F32},
        Decoding{.batch = 1, .heads = 8, .key_heads = 8, .n = 1024, .k = 128, .d = 128, .type = DType::F32},
        Decoding{.batch = 8, .heads = 12, .key_heads = 12, .m = 512, .n = 512, .k = 64, .d = 64, .sees = Sees::Causal},
        Decoding{.batch = 8, .m = 512, .n = 900, .k = 128, .d = 128, .sees = Sees::CausalLength},
        Decoding{.batch = 8, .m = 512, .n = 900, .k = 64, .d = 64, .sees = Sees::Causal, .biased = true},
        Decoding{.batch = 8, .m = 512, .n = 512, .k = 64, .d = 64, .type = DType::F32},
        Decoding{.batch = 8, .m = 512, .n = 900, .k = 64, .d = 64, .type = DType::F32, .sees = Sees::CausalLength},
        Decoding{.batch = 8, .m = 512, .n = 900, .k = 64, .d = 64, .type = DType::F32, .biased = true},
        Decoding{.batch = 8, .m = 512, .n = 512, .k = 128, .d = 128, .type = DType::F32, .sees = Sees::Causal}}) {
    const Sample sample = decoding(x);
    for (const auto& [target, capability, tf32] : {std::tuple{"sm_80", 80, false},
                                                   {"sm_86", 86, false},
                                                   {"sm_90a", 90, false},
                                                   {"sm_90a", 90, true},
                                                   {"sm_120", 120, false}}) {
      if (tf32 && x.type != DType::F32) continue;
      TargetTraits traits = cuda_traits(capability);
      traits.allow_tf32 = tf32;
      const PlannedKernel planned = plan_kernel(sample.kernel, traits);
      std::vector<Schedule> schedules = planned.forms;
      if (capability == 90) schedules = tuning_candidates(planned, traits, {}, 4).schedules;
      for (const Schedule& s : schedules) {
        auto emitted = emit_cuda(planned.kernel, traits, s);
        REQUIRE(emitted.ok());
        INFO(sample.name << " for " << target << ", " << to_string(s) << "\n" << emitted->source);
        const auto compiled = compile_nvrtc(emitted->source, emitted->name, target);
        if (!compiled) FAIL(compiled.error().to_string());
        CHECK(compiled.value().spill_bytes == 0);
        // Products by warpgroups stay in a row, with the registers that were asked for.
        for (const char* warning : {"C7508", "C7510", "C7514"})
          CHECK(compiled.value().log.find(warning) == std::string::npos);
      }
    }
  }
}
