// Products of f8 on tensor cores: every family of plans under emulation, whose tensor cores cut sums off as Hopper's do; graphs of
// dequantised f8 against sums in double precision; the instructions are in the text that NVRTC makes.
#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "codegen/cuda/plan_cuda.h"
#include "codegen/cuda/tuning_candidates.h"
#include "compiler/ops/operands.h"
#include "tests/emulation/eight_bits.h"

using namespace ingot;
using namespace ingot::samples;

namespace {

constexpr ByteTypes kE44{DType::F8E4M3, DType::F8E4M3}, kE54{DType::F8E5M2, DType::F8E4M3};
const PlansOfEight kPlans{MultiplyUnit::F8};

}  // namespace

TEST_CASE("products of f8 as they are planned", "[emulated]") {
  for (const Sample& sample : f8_samples()) {
    for (int capability : {75, 80, 89, 90}) {
      auto forms = emit_cuda(sample.kernel, cuda_traits(capability));
      if (!forms) FAIL(sample.name << ": " << forms.error().to_string());
      REQUIRE(forms->size() == 1);
      // 16 bits hold every f8: where there is no instruction for f8, there is that for f16. Hopper's takes f8 along k.
      const TileDetails d = tile_details(sample.kernel, {});
      const bool f8 = capability == 89 || (capability == 90 && d.a_along_k && d.b_along_k);
      CHECK(forms->at(0).schedule.unit == (f8 ? MultiplyUnit::F8 : MultiplyUnit::F16));
      check_run(sample, forms->at(0));
    }
  }
}

TEST_CASE("products of f8 by warps, under many tiles", "[emulated]") {
  const std::vector<Sample> samples = f8_samples();
  for (size_t i = 0; i < samples.size(); ++i)
    check_schedule(samples[i], i % 3 == 0   ? kPlans.warps(64, 64, 32, 32, 1, 1, 3)
                               : i % 3 == 1 ? kPlans.warps(32, 64, 32, 32, 2, 2, 2)
                                            : kPlans.warps(32, 32, 32, 32, 4, 1, 2));
  check_schedule(byte_matmul(1, 150, 300, 272, false, true, kE54, ByteResult::Halves),
                 kPlans.warps(128, 128, 64, 32, 1, 1, 4));
}

TEST_CASE("products of f8 by warpgroups, fetched by threads or as boxes", "[emulated]") {
  const std::vector<Sample> samples = f8_samples();
  for (size_t i = 0; i < samples.size(); ++i) {
    check_schedule(samples[i], i % 3 == 0   ? kPlans.groups(64, 64, 64, 64, 1, 3, false)
                               : i % 3 == 1 ? kPlans.groups(128, 96, 64, 96, 1, 4, false)
                                            : kPlans.groups(64, 32, 64, 32, 4, 2, false));
    if (!takes_boxes(samples[i].kernel, DType::F8E4M3)) continue;
    check_schedule(samples[i], i % 2 ? kPlans.boxes(64, 64, 64, 64, 3, true) : kPlans.boxes(128, 64, 64, 64, 3, false));
  }
  check_schedule(byte_matmul(1, 300, 272, 400, false, true, kE44, ByteResult::Sums),
                 kPlans.boxes(128, 128, 64, 128, 2, false));
  CHECK(takes_boxes(byte_matmul(1, 70, 72, 96, false, true, kE54, ByteResult::Sums).kernel, DType::F8E4M3));
  CHECK(takes_boxes(byte_conv(2, 32, 7, 9, 40, 3, 1, true, kE54, ByteResult::Sums).kernel, DType::F8E4M3));
}

TEST_CASE("what tensor cores cut off sums of f8 does not add up along k", "[emulated]") {
  // 4,096 of k in one sum would be off by 1e-2.
  const Sample sample = f8_squares(40, 4096);
  check_schedule(sample, kPlans.warps(64, 64, 32, 32, 1, 1, 3));
  check_schedule(sample, kPlans.groups(64, 64, 64, 64, 1, 3, false));
  check_schedule(sample, kPlans.boxes(64, 64, 64, 64, 3, true));
}

TEST_CASE("what is no f8 in memory is multiplied as f16", "[emulated]") {
  Sample sample = byte_matmul(1, 40, 48, 64, false, true, kE44, ByteResult::Sums);
  auto& product = std::get<Contract>(sample.kernel.body[0].node);
  const Expr a = product.a, odd = eq(floor_mod(product.m[0].var, 2), 1);
  product.a = select(odd, a, zero_of(a));  // a padding
  CHECK(multiply_unit(sample.kernel, cuda_traits(90)) == MultiplyUnit::F8);
  check_run(sample, emit_cuda(sample.kernel, cuda_traits(90)).value().at(0));
  product.a = select(odd, a, number_like(a, 0.75));
  CHECK(multiply_unit(sample.kernel, cuda_traits(90)) == MultiplyUnit::F16);
  check_run(sample, emit_cuda(sample.kernel, cuda_traits(90)).value().at(0));
  product.b_type = DType::F32;  // beside f32, they are f32
  CHECK(multiply_unit(sample.kernel, cuda_traits(90)) == MultiplyUnit::Tf32x3);
}

namespace {

/// A weight of f8[5, 3], or f8[2, 2, 2, 2], of all kinds of values.
std::string f8_text(int64_t count) {
  std::string text;
  for (int64_t i = 0; i < count; ++i)
    text += fmt::format("{}{}", i ? ", " : "", (i * 37 % 29 - 14) * (i % 3 ? 0.125 : 4));
  return text;
}

struct DequantisedCase {
  const char *x_type = "f8e4m3", *w_type = "f8e4m3", *wide = "f32";
  bool scales = true, by_row = false, turned = false;
};
/// x s times w t, with a bias, a Relu and a quantisation behind it; `wide` is the type of the product.
std::string dequantised_text(const DequantisedCase& c) {
  const std::string w = c.turned ? "[3,5]" : "[5,3]", wide = c.wide, rows = c.by_row ? "[N,1]" : "[]";
  std::string text = fmt::format("graph (%0 \"x\": {}[N,5], %30 \"s\": f32{}) {{\n  %2 = const \"w\": {}{} {{{}}}\n",
                                 c.x_type, rows, c.w_type, w, f8_text(15));
  const auto line = [&](int id, const std::string& what, const std::string& shape, const std::string& type) {
    text += fmt::format("  %{} = {}: {}{}\n", id, what, type, shape);
  };
  int a = 16, b = 17;
  if (c.scales) {
    text += fmt::format("  %11 = const \"t\": f32{} {{0.5, 0.25, 2}}\n", c.turned ? "[3,1]" : "[1,3]");
    line(12, "Cast(%0) {to=f32}", "[N,5]", "f32"), line(13, "Mul(%12, %30)", "[N,5]", "f32"),
        line(14, "Cast(%2) {to=f32}", w, "f32");
    line(15, "Mul(%14, %11)", w, "f32");
    const bool rounds = wide != "f32";
    if (rounds)
      line(16, fmt::format("Cast(%13) {{to={}}}", wide), "[N,5]", wide),
          line(17, fmt::format("Cast(%15) {{to={}}}", wide), w, wide);
    else a = 13, b = 15;
  } else {
    line(16, fmt::format("Cast(%0) {{to={}}}", wide), "[N,5]", wide),
        line(17, fmt::format("Cast(%2) {{to={}}}", wide), w, wide);
  }
  if (c.turned) line(18, fmt::format("Transpose(%{}) {{perm=[1, 0]}}", b), "[5,3]", wide);
  line(19, fmt::format("MatMul(%{}, %{})", a, c.turned ? 18 : b), "[N,3]", wide);
  line(20, "Cast(%19) {to=f32}", "[N,3]", "f32");
  text += "  %21 = const \"bias\": f32[3] {1, -2, 3}\n  %22 = const \"u\": f32[] {3}\n";
  line(23, "Add(%20, %21)", "[N,3]", "f32"), line(24, "Relu(%23)", "[N,3]", "f32"),
      line(25, "QuantizeTo(%24, %22) {to=f8e4m3}", "[N,3]", "f8e4m3");
  return text + "  return %24 \"y\", %25 \"z\"\n}\n";
}

/// x s w t in double precision.
double product_at(const Tensor& x, const Tensor& s, const Tensor& w, const DequantisedCase& c, int64_t i, int64_t j) {
  const double t[] = {0.5, 0.25, 2};
  double sum = 0;
  for (int64_t k = 0; k < 5; ++k) sum += x.float_at(i * 5 + k) * w.float_at(c.turned ? j * 5 + k : k * 3 + j);
  return c.scales ? sum * s.float_at(c.by_row ? i : 0) * t[j] : sum;
}

}  // namespace

TEST_CASE("products of dequantised f8 multiply what is in memory", "[emulated]") {
  for (const DequantisedCase& c : std::vector<DequantisedCase>{{},
                                                               {"f8e5m2", "f8e4m3", "f32"},
                                                               {"f8e4m3", "f8e5m2", "f16"},
                                                               {"f8e4m3", "f8e4m3", "bf16"},
                                                               {"f8e4m3", "f8e4m3", "f32", true, true},
                                                               {"f8e4m3", "f8e4m3", "f32", true, false, true},
                                                               {"f8e5m2", "f8e4m3", "f16", false},
                                                               {"f8e4m3", "f8e4m3", "f32", false}}) {
    const std::string text = dequantised_text(c);
    INFO(text);
    const Lowered l = lower(text, cuda_traits(90));
    Tensor x(*parse_dtype(c.x_type), {7, 5}),
        s(DType::F32, c.by_row ? std::vector<int64_t>{7, 1} : std::vector<int64_t>{});
    for (int64_t i = 0; i < x.count(); ++i) x.set_float(i, static_cast<double>(i * 53 % 31 - 15) * 0.25);
    for (int64_t i = 0; i < s.count(); ++i) s.set_float(i, 0.0625 * static_cast<double>(i + 1));
    Tensor w(*parse_dtype(c.w_type), {5, 3});
    for (int64_t i = 0; i < w.count(); ++i) w.set_float(i, static_cast<double>(i * 37 % 29 - 14) * (i % 3 ? 0.125 : 4));
    const std::vector<Tensor> got = outputs_of(l, {x, s});
    const double bias[] = {1, -2, 3}, slack = std::string(c.wide) == "f32"   ? 1e-5
                                              : std::string(c.wide) == "f16" ? 1e-3
                                                                             : 8e-3;
    for (int64_t i = 0; i < 7; ++i)
      for (int64_t j = 0; j < 3; ++j)
        CHECK(got[0].float_at(i * 3 + j) ==
              Approx(std::max(product_at(x, s, w, c, i, j) + bias[j], 0.0)).epsilon(slack).margin(slack * 8));
    // The operands of the one product are f8, and only it reads them.
    size_t products = 0;
    for (const Kernel& k : l.program.kernels) {
      if (!k.contract()) continue;
      ++products;
      CHECK(multiply_unit(k, cuda_traits(89)) == MultiplyUnit::F8);
      CHECK(is_f8(k.buffers.back().type));  // the quantisation is part of it
    }
    CHECK(products == 1);
    CHECK(l.program.kernels.size() == 1);
  }
}

TEST_CASE("an f8 weight beside f32 is dequantised when it is compiled", "[emulated]") {
  const std::string text = fmt::format(
      "graph (%0 \"x\": f32[N,5]) {{\n  %1 = const \"w\": f8e4m3[5,3] {{{}}}\n  %2 = Cast(%1) {{to=f32}}: f32[5,3]\n  "
      "%3 = const \"t\": f32[1,3] "
      "{{0.5, 0.25, 2}}\n  %4 = Mul(%2, %3): f32[5,3]\n  %5 = MatMul(%0, %4): f32[N,3]\n  return %5 \"y\"\n}}\n",
      f8_text(15));
  const Lowered l = lower(text, cuda_traits(90));
  REQUIRE(l.program.kernels.size() == 1);
  CHECK(multiply_unit(l.program.kernels[0], cuda_traits(90)) == MultiplyUnit::Tf32x3);
  for (const Buffer& b : l.program.kernels[0].buffers) CHECK(b.type == DType::F32);
}

TEST_CASE("candidates for f8 run", "[emulated]") {
  const Sample sample = byte_matmul(1, 64, 96, 144, false, true, kE54, ByteResult::Halves);
  const TuningCandidates candidates =
      tuning_candidates(plan_kernel(sample.kernel, cuda_traits(90)), cuda_traits(90), {});
  REQUIRE(candidates.schedules.size() >= 4);
  for (const Schedule& s : candidates.schedules) check_schedule(sample, s);
}

TEST_CASE("products of f8 compile to their instructions, without spills", "[nvrtc]") {
  if (!nvrtc_version()) {
    WARN("skipped: " << nvrtc_version().error().to_string());
    return;
  }
  const DType e4 = DType::F8E4M3, e5 = DType::F8E5M2;
  const std::pair<ByteTypes, const char*> kKinds[] = {
      {{e4, e4}, "e4m3.e4m3"}, {{e5, e4}, "e5m2.e4m3"}, {{e4, e5}, "e4m3.e5m2"}, {{e5, e5}, "e5m2.e5m2"}};
  for (const auto& [types, kinds] : kKinds) {
    const Sample sample = byte_matmul(1, 1024, 512, 1024, false, true, types, ByteResult::Bytes);
    const std::string by_warps = fmt::format("m16n8k32.row.col.f32.{}.f32", kinds),
                      by_groups = fmt::format("k32.f32.{}", kinds);
    check_compiles(sample, emit_cuda(sample.kernel, cuda_traits(89)).value().at(0), "sm_89", "ptx_89", by_warps);
    check_compiles(sample, emit_cuda(sample.kernel, cuda_traits(90), kPlans.boxes(128, 128, 64, 128, 4, false)).value(),
                   "sm_90a", "ptx_90a", by_groups);
  }
  const Sample sample = byte_matmul(1, 1024, 1024, 1024, false, true, kE54, ByteResult::Halves);
  for (const Schedule& s : {kPlans.boxes(64, 256, 64, 128, 3, false), kPlans.boxes(192, 64, 64, 64, 3, false),
                            kPlans.boxes(64, 128, 64, 128, 3, true), kPlans.groups(128, 128, 64, 128, 1, 3, false)})
    check_compiles(sample, emit_cuda(sample.kernel, cuda_traits(90), s).value(), "sm_90a", "ptx_90a",
                   "k32.f32.e5m2.e4m3");
  for (const Sample& other : f8_samples())
    for (const std::string version : {"80", "89", "90a", "100a", "120"}) {
      const EmittedKernel e = emit_cuda(other.kernel, cuda_traits(std::stoi(version))).value().at(0);
      const bool f8 = e.schedule.unit == MultiplyUnit::F8;
      check_compiles(other, e, ("sm_" + version).c_str(), ("ptx_" + version).c_str(),
                     e.schedule.tile.warpgroups ? (f8 ? "k32.f32" : "k16.f32")
                     : f8                       ? "m16n8k32"
                                                : "m16n8k16");
    }
}
