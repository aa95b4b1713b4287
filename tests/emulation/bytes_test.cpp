// Products of 8-bit integers on tensor cores: every family of plans under emulation, exactly; the instructions are in
// the text that NVRTC makes; what is no byte stays with plain arithmetic.
#include <fmt/format.h>

#include <catch2/catch.hpp>

#include <set>

#include "codegen/cuda/cuda_backend.h"
#include "codegen/cuda/plan_cuda.h"
#include "codegen/cuda/tuning_candidates.h"
#include "compiler/ops/registry.h"
#include "tests/emulation/eight_bits.h"

using namespace ingot;
using namespace ingot::samples;

namespace {

constexpr ByteTypes kUs{DType::U8, DType::I8};
const PlansOfEight kPlans{MultiplyUnit::Bytes};

}  // namespace

TEST_CASE("products of bytes as they are planned are exact", "[emulated]") {
  int next = 0;
  for (const Sample& sample : byte_samples()) {
    std::set<std::string> seen;  // chips of two generations may have one text
    for (int capability : {next++ % 2 ? 75 : 80, 90}) {
      auto forms = emit_cuda(sample.kernel, cuda_traits(capability));
      if (!forms) FAIL(sample.name << ": " << forms.error().to_string());
      REQUIRE(forms->size() == 1);
      CHECK(forms->at(0).schedule.unit == MultiplyUnit::Bytes);
      if (seen.insert(forms->at(0).name).second) check_run(sample, forms->at(0));
    }
  }
}

TEST_CASE("products of bytes by warps, under many tiles", "[emulated]") {
  const std::vector<Sample> samples = byte_samples();
  for (size_t i = 0; i < samples.size(); ++i)  // each plan on several samples, and each sample with a plan
    check_schedule(samples[i], i % 3 == 0   ? kPlans.warps(64, 64, 32, 32, 1, 1, 3)
                               : i % 3 == 1 ? kPlans.warps(32, 64, 32, 32, 2, 2, 2)
                                            : kPlans.warps(32, 32, 32, 32, 4, 1, 2));
  check_schedule(byte_matmul(1, 150, 300, 272, false, true, kUs, ByteResult::Bytes),
                 kPlans.warps(128, 128, 64, 32, 1, 1, 4));
}

TEST_CASE("products of bytes by warpgroups, fetched by threads or as boxes", "[emulated]") {
  const std::vector<Sample> samples = byte_samples();
  for (size_t i = 0; i < samples.size(); ++i) {
    check_schedule(samples[i], i % 3 == 0   ? kPlans.groups(64, 64, 64, 64, 1, 3, false)
                               : i % 3 == 1 ? kPlans.groups(128, 96, 64, 96, 1, 4, true)
                                            : kPlans.groups(64, 32, 64, 32, 4, 2, false));
    if (!takes_boxes(samples[i].kernel, DType::I8)) continue;
    check_schedule(samples[i], i % 2 ? kPlans.boxes(64, 64, 64, 64, 3, true) : kPlans.boxes(128, 64, 64, 64, 3, false));
  }
  check_schedule(byte_matmul(1, 300, 272, 400, false, true, kUs, ByteResult::Halves),
                 kPlans.boxes(128, 128, 128, 128, 2, true));
  // Results by TMA, with bytes that come the same way, and rows of 64 bytes.
  for (bool in_turn : {false, true}) {
    check_schedule(byte_matmul(2, 150, 144, 160, false, true, kUs, ByteResult::Added),
                   kPlans.boxes(64, 128, 64, 128, 2, in_turn));
    Schedule half = kPlans.boxes(128, 64, 64, 64, 3, in_turn);
    half.tile.k = 64;
    check_schedule(byte_conv(3, 64, 9, 11, 80, 3, 1, true, kUs, ByteResult::Bytes), half);
    check_schedule(byte_matmul(1, 150, 72, 192, false, true, {DType::I8, DType::U8}, ByteResult::Sums), half);
  }
  const auto step = [](const Sample& sample) {
    return emit_cuda(sample.kernel, cuda_traits(90)).value().at(0).schedule.tile.k;
  };
  CHECK(step(byte_conv(8, 64, 28, 28, 64, 3, 1, true, kUs, ByteResult::Bytes)) == 64);
  CHECK(step(byte_conv(8, 128, 28, 28, 64, 3, 1, true, kUs, ByteResult::Bytes)) == 128);
  // Boxes are for what lies along k in whole 16 bytes.
  CHECK(takes_boxes(byte_matmul(1, 70, 72, 96, false, true, kUs, ByteResult::Bytes).kernel, DType::I8));
  CHECK(takes_boxes(byte_conv(2, 32, 7, 9, 40, 3, 1, true, kUs, ByteResult::Bytes).kernel, DType::I8));
  CHECK(!takes_boxes(byte_matmul(1, 64, 96, 144, false, false, kUs, ByteResult::Bytes).kernel, DType::I8));
  CHECK(!takes_boxes(byte_matmul(1, 70, 72, 90, false, true, kUs, ByteResult::Bytes).kernel, DType::I8));
}

TEST_CASE("sums of bytes wrap like integers of 32 bits", "[emulated]") {
  // 40,000 products of up to 255 * 255 are more than 2^31.
  const Sample sample = byte_matmul(1, 3, 5, 40000, false, true, {DType::U8, DType::U8}, ByteResult::Sums);
  check_schedule(sample, kPlans.warps(32, 32, 32, 32, 4, 1, 2));
  check_schedule(sample, kPlans.groups(64, 32, 64, 32, 1, 3, false));
}

TEST_CASE("what is no byte is not multiplied as one", "[emulated]") {
  Sample sample = byte_matmul(1, 40, 48, 64, false, true, kUs, ByteResult::Sums);
  auto& product = std::get<Contract>(sample.kernel.body[0].node);
  const Expr a = product.a;
  const TargetTraits target = cuda_traits(90);
  CHECK(multiply_unit(sample.kernel, target) == MultiplyUnit::Bytes);
  CHECK(multiply_unit(sample.kernel, cuda_traits(75)) == MultiplyUnit::Bytes);
  product.a = a - Expr::integer(DType::I32, 7);
  CHECK(multiply_unit(sample.kernel, target) == MultiplyUnit::Simt);
  check_run(sample, emit_cuda(sample.kernel, target).value().at(0));
  const Expr odd = eq(floor_mod(product.m[0].var, 2), 1);
  product.a = select(odd, a, Expr::integer(DType::I32, -1));  // beside bytes without a sign
  CHECK(multiply_unit(sample.kernel, target) == MultiplyUnit::Simt);
  product.a = select(odd, a, Expr::integer(DType::I32, 200));  // a padding other than zero: computed, and a byte
  CHECK(multiply_unit(sample.kernel, target) == MultiplyUnit::Bytes);
  CHECK(!takes_boxes(sample.kernel, DType::I8));
  check_run(sample, emit_cuda(sample.kernel, target).value().at(0));
}

namespace {

std::string bytes_text(int64_t count, int seed, const char* type) {
  std::string text;
  for (int64_t i = 0; i < count; ++i)
    text += fmt::format("{}{}", i ? ", " : "", (i * 37 + seed * 11) % 256 - (type[0] == 'i' ? 128 : 0));
  return text;
}

/// (x - p) s times (w - q) t, or the same without scales, with a bias, a Relu and a quantisation behind it.
/// `least`: rows that there are at least, as the passes see it.
std::string matmul_text(const char* w_type, int q, bool scales, int64_t least = 1) {
  std::string text = fmt::format(
      "graph (%0 \"x\": u8[N,5]) where N in [{3}, inf] {{\n  %1 = const \"p\": u8[] {{9}}\n  %2 = const \"w\": "
      "{0}[5,3] {{{1}}}\n  %3 = "
      "const \"q\": {0}[] {{{2}}}\n"
      "  %4 = Cast(%0) {{to=i32}}: i32[N,5]\n  %5 = Cast(%1) {{to=i32}}: i32[]\n  %6 = Sub(%4, %5): i32[N,5]\n"
      "  %7 = Cast(%2) {{to=i32}}: i32[5,3]\n  %8 = Cast(%3) {{to=i32}}: i32[]\n  %9 = Sub(%7, %8): i32[5,3]\n",
      w_type, bytes_text(15, 3, w_type), q, least);
  if (!scales) return text + "  %10 = MatMul(%6, %9): i32[N,3]\n  return %10 \"y\"\n}\n";
  return text +
         "  %10 = const \"s\": f32[] {0.0625}\n  %11 = const \"t\": f32[1,3] {0.5, 0.25, 2}\n  %12 = Cast(%6): "
         "f32[N,5]\n  %13 = Mul(%12, %10): f32[N,5]\n"
         "  %14 = Cast(%9): f32[5,3]\n  %15 = Mul(%14, %11): f32[5,3]\n  %16 = MatMul(%13, %15): f32[N,3]\n"
         "  %17 = const \"bias\": f32[3] {1, -2, 3}\n  %18 = Add(%16, %17): f32[N,3]\n  %19 = Relu(%18): f32[N,3]\n"
         "  %20 = const \"u\": f32[] {3}\n  %21 = QuantizeTo(%19, %20, %1) {to=u8}: u8[N,3]\n  return %19 \"y\", %21 "
         "\"z\"\n}\n";
}
/// A padded window over an image with a zero point, by weights of two groups.
std::string conv_text(int pad) {
  return fmt::format(
      "graph (%0 \"x\": u8[N,4,5,6]) {{\n  %1 = const \"p\": u8[] {{131}}\n  %2 = const \"w\": i8[2,2,2,2] {{{0}}}\n"
      "  %3 = Cast(%0) {{to=i32}}: i32[N,4,5,6]\n  %4 = Cast(%1) {{to=i32}}: i32[]\n  %5 = Sub(%3, %4): i32[N,4,5,6]\n"
      "  %6 = Cast(%2) {{to=i32}}: i32[2,2,2,2]\n  %7 = Conv(%5, %6) {{groups=2, kernel=[2, 2], strides=[2, 1], "
      "dilations=[1, 2], begins=[{1}, {1}], ends=[0, {1}]}}: i32[N,2,{2},{3}]\n"
      "  return %7 \"y\"\n}}\n",
      bytes_text(16, 5, "i8"), pad, (5 + pad - 2) / 2 + 1, 6 + 2 * pad - 3 + 1);
}

}  // namespace

TEST_CASE("quantised graphs compute the same with products of bytes as without", "[emulated]") {
  const TargetTraits without = TargetTraits{}, with = cuda_traits(90);
  const std::string small = matmul_text("u8", 100, false);  // would sum rows of x at run time
  for (const std::string& text :
       {matmul_text("i8", 0, false), matmul_text("u8", 128, false), small, matmul_text("u8", 100, false, 10000000),
        matmul_text("u8", 77, true, 10000000), matmul_text("i8", -5, true, 10000000), matmul_text("u8", 128, true),
        conv_text(0), conv_text(1)}) {
    INFO(text);
    const Lowered plain = lower(text, without), fast = lower(text, with);
    std::vector<Tensor> inputs;
    std::vector<int64_t> dims{7};
    for (size_t d = 1; d < plain.graph.value(plain.graph.inputs[0]).type.rank(); ++d)
      dims.push_back(*plain.graph.value(plain.graph.inputs[0]).type.shape[d].as_int());
    Tensor x(DType::U8, dims);
    for (int64_t i = 0; i < x.count(); ++i) x.set_int(i, (i * 89 + 5) % 256);
    inputs.push_back(x);
    const std::vector<Tensor> want = outputs_of(plain, inputs), got = outputs_of(fast, inputs);
    REQUIRE(want.size() == got.size());
    for (size_t o = 0; o < want.size(); ++o)
      for (int64_t i = 0; i < want[o].count(); ++i) {
        if (is_float(want[o].type()))
          CHECK(got[o].float_at(i) == Approx(want[o].float_at(i)).epsilon(1e-6).margin(1e-4));
        else CHECK(got[o].int_at(i) == want[o].int_at(i));
      }
    // Bytes are what a product multiplies.
    size_t products = 0;
    for (const Kernel& k : fast.program.kernels) {
      if (!k.contract()) continue;
      ++products;
      CHECK(byte_type(k.contract()->a).has_value() == (text != small));
      CHECK(byte_type(k.contract()->b).has_value() == (text != small));
    }
    CHECK(products == 1);
  }
}

TEST_CASE("candidates for bytes run", "[emulated]") {
  const Sample sample = byte_matmul(1, 64, 96, 144, false, true, kUs, ByteResult::Bytes);
  const PlannedKernel planned = plan_kernel(sample.kernel, cuda_traits(90));
  const TuningCandidates candidates = tuning_candidates(planned, cuda_traits(90), {});
  REQUIRE(candidates.schedules.size() >= 4);
  for (size_t i = 0; i < candidates.schedules.size(); i += 3) check_schedule(sample, candidates.schedules[i]);
}

TEST_CASE("products of bytes compile to their instructions, without spills", "[nvrtc]") {
  if (!nvrtc_version()) {
    WARN("skipped: " << nvrtc_version().error().to_string());
    return;
  }
  const std::pair<ByteTypes, const char*> kSigns[] = {{{DType::U8, DType::I8}, "u8.s8"},
                                                      {{DType::I8, DType::I8}, "s8.s8"},
                                                      {{DType::I8, DType::U8}, "s8.u8"},
                                                      {{DType::U8, DType::U8}, "u8.u8"}};
  for (const auto& [types, signs] : kSigns) {
    const Sample sample = byte_matmul(1, 1024, 512, 1024, false, true, types, ByteResult::Bytes);
    const std::string by_warps = fmt::format("m16n8k32.row.col.s32.{}.s32", signs),
                      by_groups = fmt::format("k32.s32.{}", signs);
    check_compiles(sample, emit_cuda(sample.kernel, cuda_traits(80)).value().at(0), "sm_80", "ptx_80", by_warps);
    check_compiles(sample, emit_cuda(sample.kernel, cuda_traits(90), kPlans.boxes(128, 128, 64, 128, 4, false)).value(),
                   "sm_90a", "ptx_90a", by_groups);
  }
  const Sample sample = byte_matmul(1, 1024, 1024, 1024, false, true, kUs, ByteResult::Bytes);
  for (const Schedule& s : {kPlans.boxes(128, 64, 64, 64, 3, true), kPlans.boxes(128, 256, 64, 256, 3, false),
                            kPlans.boxes(256, 128, 128, 128, 3, false), kPlans.boxes(128, 128, 128, 128, 3, true),
                            kPlans.boxes(64, 256, 64, 256, 2, true), kPlans.groups(128, 128, 64, 128, 1, 3, true)})
    check_compiles(sample, emit_cuda(sample.kernel, cuda_traits(90), s).value(), "sm_90a", "ptx_90a", "k32.s32.u8.s8");
  for (const Sample& other : byte_samples())
    for (const std::string version : {"75", "80", "90a"}) {
      const EmittedKernel e = emit_cuda(other.kernel, cuda_traits(std::stoi(version))).value().at(0);
      check_compiles(other, e, ("sm_" + version).c_str(), ("ptx_" + version).c_str(),
                     e.schedule.tile.warpgroups ? "k32.s32"
                     : version == "75"          ? "m8n8k16"
                                                : "m16n8k32");
    }
}
