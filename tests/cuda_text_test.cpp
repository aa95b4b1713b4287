// CUDA text of hand-made kernels: deterministic and named by content; compiled by NVRTC for every architecture without
// spills; executed by the emulator and compared with the interpreter, at odd sizes and under many schedules.
#include <set>

#include <catch2/catch.hpp>

#include <fmt/format.h>

#include "codegen/cuda/cuda_backend.h"
#include "codegen/cuda/mma_cost.h"
#include "codegen/cuda/nvrtc.h"
#include "codegen/cuda/plan_cuda.h"
#include "codegen/cuda/tuning_candidates.h"
#include "codegen/kernel/attention_masks.h"
#include "compiler/expr/combine.h"
#include "compiler/expr/simplify.h"
#include "tests/emulation/check_sample.h"
#include "tests/emulation/graph_samples.h"
#include "tests/emulation/schedules.h"
#include "tests/fused_graphs.h"
#include "tests/join_graphs.h"

using namespace ingot;
using namespace ingot::samples;

namespace {

std::vector<EmittedKernel> emit_forms(const Sample& sample, const TargetTraits& target = cuda_traits(90)) {
  auto forms = emit_cuda(sample.kernel, target);
  if (!forms) FAIL(sample.name << ": " << forms.error().to_string());
  return forms.value();
}
/// The form that is launched at the sample's size.
EmittedKernel emit(const Sample& sample, const TargetTraits& target = cuda_traits(90)) {
  std::vector<EmittedKernel> launched;
  for (const EmittedKernel& form : emit_forms(sample, target))
    if (evaluate_int(form.grid[0], sample.dims).value_or(0) > 0) launched.push_back(form);
  REQUIRE(launched.size() == 1);
  return launched[0];
}

Schedule tiles(int m, int n, int thread_m, int thread_n) {
  Schedule s;
  s.kind = Schedule::Kind::Tiles;
  s.tile_m = m;
  s.tile_n = n;
  s.tile_k = 16;
  s.thread_m = thread_m;
  s.thread_n = thread_n;
  s.threads = m / thread_m * (n / thread_n);
  return s;
}

Schedule rows(int threads, int rows_per_block, int vector) {
  Schedule s;
  s.kind = Schedule::Kind::Rows;
  s.threads = threads;
  s.rows_per_block = rows_per_block;
  s.vector = vector;
  return s;
}

Schedule columns(int threads, int points_per_block, int vector) {
  Schedule s = rows(threads, points_per_block, vector);
  s.kind = Schedule::Kind::Columns;
  return s;
}

void check_compiles(const Sample& sample, const std::vector<std::string>& targets, const TargetTraits& planned_for) {
  for (const EmittedKernel& form : emit_forms(sample, planned_for)) check_compiles(sample, form, targets);
}

}  // namespace

TEST_CASE("the text is a pure function of the kernel, and the name of the text", "[text]") {
  for (const Sample& sample : all_samples()) {
    const EmittedKernel first = emit(sample), second = emit(sample);
    CHECK(first.source == second.source);
    CHECK(first.name.rfind("fused_" + sample.kernel.name + "_", 0) == 0);
    CHECK(first.source.find("asm") == std::string::npos);
    CHECK(first.source.find("__shared__") == std::string::npos);
  }
  Sample a = broadcast_add(3, 5, DType::F32), b = broadcast_add(3, 5, DType::F32);
  b.kernel.header = {"another model's node"};
  CHECK(emit(a).name == emit(b).name);
  CHECK(emit(a).name != emit(broadcast_add(3, 6, DType::F32)).name);
  CHECK(cuda_cache_text(emit(a)) == cuda_cache_text(emit(b)));
  CHECK(cuda_cache_text(emit(a)).find("INGOT_DEV float to_f32(f16 x)") != std::string::npos);
}

TEST_CASE("neighbouring points use vector accesses, and shared values have one name", "[text]") {
  const std::string wide = emit(broadcast_add(512, 64, DType::F16), tiny_machine()).source;
  CHECK(wide.find("load_vec<8>(x + ") != std::string::npos);
  CHECK(wide.find("store_vec(out0 + ") != std::string::npos);
  const std::string guarded = emit(shifted_pad(64, 64), tiny_machine()).source;
  CHECK(guarded.find("3 <= ") != std::string::npos);
  CHECK(guarded.find("load_vec") == std::string::npos);  // j - 3 is not aligned
  const std::string zoo = emit(math_zoo(1024, DType::F32)).source;
  CHECK(zoo.find("ingot_erf") == zoo.rfind("ingot_erf"));
}

TEST_CASE("Gelu costs one exponential in whatever order it is written", "[text]") {
  const std::string forms = emit(gelu_forms(1000)).source;
  CHECK(forms.find("fast_gelu(") != std::string::npos);
  CHECK(forms.find("fast_reciprocal(1.0f + fast_exp2(") != std::string::npos);
  CHECK(forms.find("0.5f") == std::string::npos);
  CHECK(forms.find("fast_div") == std::string::npos);
}

TEST_CASE("indices are 32-bit while buffers are small, and 64-bit when they are known not to be", "[text]") {
  CHECK(emit(broadcast_add(3, 5, DType::F32)).uses_i32);
  const EmittedKernel large = emit(column_sum(3, int64_t{1} << 31));
  CHECK_FALSE(large.uses_i32);
  CHECK(large.source.find("i64 point") != std::string::npos);
}

TEST_CASE("what cannot be a kernel is refused", "[text]") {
  Sample huge = softmax_scratch(2, 100000);
  const auto emitted = emit_cuda(huge.kernel, cuda_traits(90));
  REQUIRE_FALSE(emitted);
  CHECK(emitted.error().kind == ErrorKind::Unsupported);
  const auto groups = emit_cuda(largest_of_rows(11, 14, 40, 72, DType::F32).kernel, cuda_traits(75));
  REQUIRE_FALSE(groups);
  CHECK(groups.error().kind == ErrorKind::Unsupported);
}

TEST_CASE("every kernel compiles without spills", "[nvrtc]") {
  if (no_nvrtc()) return;
  for (const Sample& sample : all_samples()) {
    if (sample.kernel.attend()) continue;  // from sm_80 on (passes/match_attention.h); compiled below
    const bool groups = sample.kernel.contract() && !sample.kernel.contract()->group.empty();  // (passes/combine_rows.cpp)
    if (!groups) check_compiles(sample, {"sm_75"}, cuda_traits(75));
    check_compiles(sample, {"sm_90a"}, cuda_traits(90));
  }
  check_compiles(two_small_products(3, 72, 0, 33), {"sm_90a"}, cuda_traits(90));  // scratch of no elements
}

TEST_CASE("wide plans compile without spills", "[nvrtc]") {
  if (no_nvrtc()) return;
  for (const Sample& sample :
       {broadcast_add(300, 128, DType::F16), max_pool(1, 8, 8, 6, true), softmax(300, 1024, DType::F16),
        matmul(1, 512, 512, 256, false, false, DType::F32), matmul(1, 512, 512, 256, true, true, DType::F16),
        conv(2, 64, 28, 28, 128, 3, 1, true), conv(2, 64, 28, 28, 128, 3, 1, false),
        conv(2, 64, 28, 28, 128, 3, 1, false, DType::F16), conv(2, 64, 28, 28, 256, 3, 1, true, DType::F16),
        dynamic_matmul(300, 1024, 512, DType::F16), dynamic_matmul(300, 1024, 512, DType::F32)}) {
    check_compiles(sample, {"sm_75"}, tiny_machine(75));
    check_compiles(sample, {"sm_80"}, tiny_machine(80));
    check_compiles(sample, {"sm_90a"}, tiny_machine());
  }
}

TEST_CASE("sliding windows compile without spills", "[nvrtc]") {
  if (no_nvrtc()) return;
  for (const Sample& sample :
       {depthwise(64, 56, 56, 144, 3, 1, DType::F16), depthwise(64, 28, 28, 240, 5, 1, DType::F16),
        depthwise(64, 56, 56, 96, 7, 1, DType::F16), depthwise(64, 14, 14, 384, 7, 1, DType::F32),
        depthwise(64, 112, 112, 96, 3, 2, DType::F32)}) {
    check_compiles(sample, {"sm_80", "sm_120"}, cuda_traits(80));
    check_compiles(sample, {"sm_90a"}, cuda_traits(90));
  }
}

TEST_CASE("attention compiles without spills", "[nvrtc]") {
  if (no_nvrtc()) return;
  for (const Sample& sample :
       {attention(12, 197, 197, 64, 64, DType::F16, true), attention(16, 512, 512, 128, 128, DType::BF16, false),
        attention(4, 512, 512, 256, 256, DType::F16, false), attention(12, 128, 128, 64, 64, DType::F32, true)}) {
    check_compiles(sample, {"sm_80", "sm_120"}, cuda_traits(80));
    check_compiles(sample, {"sm_90a"}, cuda_traits(90));
  }
}

/// The operand of the only instruction of this name.
static int operand_of(const std::string& ptx, const std::string& instruction) {
  const size_t at = ptx.find(instruction);
  REQUIRE(at != std::string::npos);
  CHECK(ptx.find(instruction, at + 1) == std::string::npos);
  return std::stoi(ptx.substr(at + instruction.size()));
}

// A warpgroup that asks for more waits for ever, and only on a GPU.
TEST_CASE("warps together ask for no more registers than their launch has", "[nvrtc]") {
  if (no_nvrtc()) return;
  TargetTraits tf32 = cuda_traits(90);
  tf32.allow_tf32 = true;
  std::set<std::tuple<bool, MultiplyUnit, int>> seen;
  for (const Sample& sample :
       {attention(12, 512, 512, 64, 64, DType::F16, true), attention(12, 512, 512, 64, 64, DType::F32, false),
        matmul(1, 4096, 4096, 1024, false, true, DType::F16), matmul(1, 4096, 4096, 1024, false, true, DType::F32)}) {
    for (const TargetTraits& traits : {cuda_traits(90), tf32}) {
      const PlannedKernel planned = plan_kernel(sample.kernel, traits);
      for (const Schedule& s : tuning_candidates(planned, traits, {}, 60).schedules) {
        const bool attends = s.kind == Schedule::Kind::Attention;
        if (!s.tile.boxes || s.tile.groups() < 2 || !seen.insert({attends, s.unit, s.tile.groups()}).second) continue;
        auto emitted = emit_cuda(planned.kernel, traits, s);
        REQUIRE(emitted.ok());
        INFO(sample.name << ", " << to_string(s));
        auto ptx = compile_nvrtc(emitted->source, emitted->name, "ptx_90a");
        auto cubin = compile_nvrtc(emitted->source, emitted->name, "sm_90a");
        REQUIRE(ptx.ok());
        REQUIRE(cubin.ok());
        const std::string text(reinterpret_cast<const char*>(ptx->code.data()), ptx->code.size());
        const int multiplying = s.tile.groups() * 128;
        CHECK(operand_of(text, "setmaxnreg.inc.sync.aligned.u32 ") * multiplying +
                  operand_of(text, "setmaxnreg.dec.sync.aligned.u32 ") * (s.threads - multiplying) <=
              cubin->registers * s.threads);
      }
    }
  }
  CHECK(seen.size() >= 10);
}

TEST_CASE("chains and groups of rows compile without spills", "[nvrtc]") {
  if (no_nvrtc()) return;
  std::vector<testing::FusedGraph> graphs = testing::chain_graphs();
  for (const testing::FusedGraph& g : testing::row_group_graphs()) graphs.push_back(g);
  for (const testing::FusedGraph& g : graphs)
    for (DType precision : {DType::F32, DType::F16})
      for (const Sample& sample : samples_of(g.name, g.text, precision)) {
        if (sample.kernel.contract() && sample.kernel.contract()->group.empty()) continue;
        check_compiles(sample, {"sm_80", "sm_120"}, cuda_traits(80));
        check_compiles(sample, {"sm_90a"}, cuda_traits(90));
      }
}
TEST_CASE("64-bit indices compile", "[nvrtc]") {
  if (no_nvrtc()) return;
  const int64_t many = int64_t{1} << 31;
  for (const Sample& sample : {column_sum(3, many), softmax(many, 16, DType::F32), argmax(many, 100, true, false),
                               matmul(1, many, 64, 32, false, false, DType::F32), gather_rows(many, 10, 33),
                               matmul(1, 3, many, 64, false, true, DType::F32), max_pool(8192, 64, 112, 112, false)}) {
    CHECK_FALSE(emit(sample).uses_i32);
    check_compiles(sample, {"sm_90a"}, cuda_traits(90));
  }
}

TEST_CASE("every architecture is accepted", "[nvrtc]") {
  if (no_nvrtc()) return;
  for (const Sample& sample :
       {softmax(7, 1000, DType::F32), broadcast_add(300, 128, DType::BF16), conv(2, 8, 7, 9, 34, 3, 2, true)}) {
    check_compiles(sample, {"sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100a", "sm_120", "ptx_75"},
                   cuda_traits(75));
    check_compiles(sample, {"sm_80", "sm_86", "sm_89", "sm_90", "sm_100a", "sm_120"}, cuda_traits(80));
  }
}

TEST_CASE("NVRTC errors carry the log and the target", "[nvrtc]") {
  if (no_nvrtc()) return;
  const auto bad = compile_nvrtc("extern \"C\" __global__ void k() { nonsense(); }", "k", "sm_90a");
  REQUIRE_FALSE(bad);
  CHECK(bad.error().to_string().find("nonsense") != std::string::npos);
  CHECK_FALSE(compile_nvrtc("", "k", "sm_12345"));
  CHECK_FALSE(compile_nvrtc("", "k", "cpu"));
}

TEST_CASE("planned kernels agree with the interpreter", "[emulated]") {
  for (const Sample& sample : all_samples()) check_run(sample, emit(sample));
}

TEST_CASE("plans for a small machine agree too", "[emulated]") {
  for (const Sample& sample : all_samples()) {
    const EmittedKernel wide = emit(sample, tiny_machine());
    if (wide.name != emit(sample).name) check_run(sample, wide, 2);
  }
}

void check_graph(const char* name, const std::string& text) {
  for (DType precision : {DType::F32, DType::F16})
    for (const Sample& sample : samples_of(name, text, precision)) check_run(sample, emit(sample));
}

TEST_CASE("parts of a concatenation are written where they belong", "[emulated]") {
  for (const testing::JoinGraph& g : testing::join_graphs()) check_graph(g.name, g.text);
}

TEST_CASE("small reductions and products are one kernel, stage by stage", "[emulated]") {
  for (const testing::FusedGraph& g : testing::chain_graphs()) check_graph(g.name, g.text);
}

TEST_CASE("rows of a product are reduced in its epilogue", "[emulated]") {
  for (const testing::FusedGraph& g : testing::row_group_graphs()) check_graph(g.name, g.text);
}

TEST_CASE("attention in windows with masks of their own", "[emulated]") {
  check_graph("masked windows", testing::masked_windows().text);
}

TEST_CASE("groups of rows in tiles of every kind", "[emulated]") {
  const auto f16 = MultiplyUnit::F16, f32 = MultiplyUnit::Tf32x3;
  for (const testing::FusedGraph& g : testing::row_group_graphs()) {
    for (const Sample& sample : samples_of(g.name, g.text, DType::F16)) {
      if (!sample.kernel.contract()) continue;
      for (int cluster : {1, 2, 8}) {
        check_schedule(sample, mma(f16, 64, 64, 32, 32, 1, cluster, 3));
        check_schedule(sample, mma(f16, 64, 32, 32, 32, 2, cluster, 2));
        check_schedule(sample, groups(f16, 64, 64, 64, 64, cluster, 3, false));
      }
      check_schedule(sample, groups(f16, 128, 64, 64, 64, 1, 4, true));
    }
    for (const Sample& sample : samples_of(g.name, g.text, DType::F32))
      if (sample.kernel.contract()) check_schedule(sample, mma(f32, 64, 32, 32, 32, 2, 2, 2));
  }
}

TEST_CASE("tiles of every shape", "[emulated]") {
  const Sample products[] = {matmul(1, 150, 140, 50, false, false, DType::F32),
                             matmul(2, 130, 36, 33, true, true, DType::F32), conv(2, 5, 9, 8, 40, 3, 1, false)};
  for (const Sample& sample : products) {
    check_schedule(sample, tiles(128, 128, 8, 8));
    check_schedule(sample, tiles(128, 64, 8, 4));
    check_schedule(sample, tiles(64, 128, 4, 8));
    check_schedule(sample, tiles(64, 64, 4, 4));
    check_schedule(sample, tiles(32, 64, 4, 4));
  }
}

TEST_CASE("tensor cores in tiles of every shape", "[emulated]") {
  const auto check_all = [](MultiplyUnit unit, const std::vector<Sample>& samples) {
    for (const Sample& sample : samples) {
      check_schedule(sample, mma(unit, 128, 128, 64, 32, 1, 1, 3));
      check_schedule(sample, mma(unit, 64, 64, 32, 32, 2, 1, 2));
      check_schedule(sample, mma(unit, 32, 64, 32, 32, 2, 2, 4));
      check_schedule(sample, mma(unit, 64, 32, 32, 32, 1, 4, 3));
      check_schedule(sample, mma(unit, 32, 32, 32, 32, 4, 1, 2));
    }
  };
  check_all(MultiplyUnit::Tf32x3, {matmul(1, 150, 140, 50, false, false, DType::F32),
                                   matmul(2, 36, 68, 132, true, true, DType::F32), conv(2, 5, 9, 8, 40, 3, 1, false),
                                   conv(1, 12, 9, 8, 40, 3, 2, true), activated_matmul(37, 70, 45, DType::F32, true)});
  check_all(MultiplyUnit::F16,
            {matmul(1, 136, 144, 72, false, false, DType::F16), matmul(3, 40, 33, 51, true, true, DType::F16, true),
             conv(2, 8, 7, 7, 33, 3, 2, false, DType::F16), conv(2, 8, 7, 9, 34, 3, 1, true, DType::F16),
             activated_matmul(70, 64, 40, DType::F16, false)});
  check_all(MultiplyUnit::BF16,
            {matmul(1, 70, 66, 100, false, true, DType::BF16), matmul(1, 72, 64, 96, true, false, DType::BF16)});
  check_schedule(matmul(1, 150, 300, 72, false, false, DType::F16), mma(MultiplyUnit::F16, 128, 256, 64, 64, 1, 1, 3));
}

TEST_CASE("no NaN is lost between the halves of f32 operands", "[emulated]") {
  for (const int k_warps : {1, 2})
    check_schedule(nan_matmul(40, 36, 40), mma(MultiplyUnit::Tf32x3, 64, 64, 32, 32, k_warps, 1, 3));
  Sample single = nan_matmul(40, 36, 40);
  single.tolerance = 2e-3;
  check_schedule(single, mma(MultiplyUnit::Tf32, 64, 64, 32, 32, 1, 1, 3));
}

TEST_CASE("products over a single element that is read behind a guard", "[emulated]") {
  const char* text = R"(graph (%0 "x": f32[2,8], %1 "w": f32[1,8]) {
  %2 = Transpose(%0) {perm=[1, 0]}: f32[8,2]
  %3 = Reshape(%2) {shape=[8, 2, 1]}: f32[8,2,1]
  %4 = Pad(%3) {begins=[0, 2, 0], ends=[1, 2, 0]}: f32[9,6,1]
  %5 = MatMul(%4, %1): f32[9,6,8]
  return %5 "y"
})";
  for (const DType precision : {DType::F32, DType::F16})
    for (const Sample& sample : samples_of("one element", text, precision)) check_run(sample, emit(sample));
}

TEST_CASE("single tf32 products", "[emulated]") {
  Sample sample = matmul(1, 70, 66, 100, false, true, DType::F32);
  sample.tolerance = 2e-3;
  Schedule schedule = mma(MultiplyUnit::Tf32, 64, 64, 32, 32, 1, 1, 3);
  schedule.tile.k = 16;
  check_schedule(sample, schedule);
  TargetTraits target = cuda_traits(90);
  target.allow_tf32 = true;
  CHECK(emit(matmul(1, 512, 512, 512, false, false, DType::F32), target).schedule.unit == MultiplyUnit::Tf32);
}

TEST_CASE("warpgroup products in tiles of every shape", "[emulated]") {
  const auto check_all = [](MultiplyUnit unit, const std::vector<Sample>& samples) {
    for (const Sample& sample : samples) {
      check_schedule(sample, groups(unit, 128, 128, 64, 128, 1, 3, false));
      check_schedule(sample, groups(unit, 64, 64, 64, 64, 2, 4, true));
      check_schedule(sample, groups(unit, 128, 64, 128, 64, 1, 2, false));
    }
  };
  check_all(MultiplyUnit::F16,
            {matmul(1, 136, 144, 200, false, false, DType::F16), matmul(3, 40, 33, 51, true, true, DType::F16, true),
             conv(2, 8, 7, 7, 33, 3, 2, false, DType::F16), conv(2, 64, 7, 9, 34, 3, 1, true, DType::F16),
             activated_matmul(70, 64, 40, DType::F16, false)});
  check_all(MultiplyUnit::BF16,
            {matmul(1, 70, 66, 100, false, true, DType::BF16), matmul(1, 72, 64, 96, true, false, DType::BF16)});
  const Sample rows_of_k = matmul(1, 150, 300, 328, false, true, DType::F16);
  check_schedule(rows_of_k, groups(MultiplyUnit::F16, 128, 256, 64, 256, 1, 3, true));
  check_schedule(rows_of_k, groups(MultiplyUnit::F16, 256, 128, 128, 128, 1, 3, true));
  check_schedule(rows_of_k, groups(MultiplyUnit::F16, 128, 192, 64, 192, 1, 3, true));
  check_schedule(rows_of_k, groups(MultiplyUnit::F16, 128, 96, 64, 96, 1, 3, false));
  check_schedule(rows_of_k, groups(MultiplyUnit::F16, 64, 256, 64, 128, 4, 2, false));
  check_schedule(rows_of_k, groups(MultiplyUnit::F16, 64, 32, 64, 32, 8, 3, false));
}

TEST_CASE("operands that arrive as boxes", "[emulated]") {
  const Sample samples[] = {
      matmul(1, 136, 144, 200, false, false, DType::F16),      matmul(1, 200, 136, 72, true, true, DType::F16),
      matmul(3, 40, 40, 136, false, true, DType::BF16, true),  matmul(2, 264, 72, 8, true, false, DType::F16, true),
      dynamic_matmul(300, 136, 328, DType::F16),
  };
  for (const Sample& sample : samples) {
    const MultiplyUnit unit = sample.kernel.contract()->a_type == DType::BF16 ? MultiplyUnit::BF16 : MultiplyUnit::F16;
    check_schedule(sample, boxes(unit, 128, 64, 64, 64, 3, false));
    check_schedule(sample, boxes(unit, 64, 64, 64, 64, 4, true));
    check_schedule(sample, boxes(unit, 64, 128, 64, 128, 2, false));
  }
  const Sample rows_of_k = matmul(1, 390, 300, 328, false, true, DType::F16);
  check_schedule(rows_of_k, boxes(MultiplyUnit::F16, 128, 256, 64, 256, 3, false));
  check_schedule(rows_of_k, boxes(MultiplyUnit::F16, 256, 128, 128, 128, 3, false));
  check_schedule(rows_of_k, boxes(MultiplyUnit::F16, 192, 128, 64, 128, 3, false));
  check_schedule(rows_of_k, boxes(MultiplyUnit::F16, 128, 128, 128, 128, 4, true));
  check_schedule(rows_of_k, boxes(MultiplyUnit::F16, 64, 96, 64, 96, 4, true));
  check_schedule(rows_of_k, boxes(MultiplyUnit::F16, 128, 96, 64, 96, 3, true));
  check_schedule(rows_of_k, boxes(MultiplyUnit::F16, 64, 128, 64, 64, 4, true));
  for (const Sample& sample : {conv(2, 64, 7, 9, 40, 3, 1, true, DType::F16), conv(3, 24, 9, 7, 72, 3, 2, true, DType::F16),
                               conv(1, 136, 12, 5, 64, 5, 1, true, DType::F16), conv(2, 32, 7, 9, 40, 3, 1, true, DType::F16, 28)}) {
    check_schedule(sample, boxes(MultiplyUnit::F16, 64, 64, 64, 64, 4, true));
    check_schedule(sample, boxes(MultiplyUnit::F16, 128, 64, 64, 64, 3, false));
  }
  for (const Sample& sample : {residual_matmul(1, 200, 136, 72, DType::F16), residual_matmul(3, 70, 72, 136, DType::BF16)}) {
    const MultiplyUnit unit = sample.kernel.contract()->a_type == DType::BF16 ? MultiplyUnit::BF16 : MultiplyUnit::F16;
    check_schedule(sample, boxes(unit, 64, 64, 64, 64, 4, true));
    check_schedule(sample, boxes(unit, 64, 192, 64, 192, 3, true));
    check_schedule(sample, boxes(unit, 128, 128, 128, 128, 3, true));
    check_schedule(sample, boxes(unit, 128, 128, 64, 128, 2, false));
  }
  for (const Sample& sample : {rows_matmul(390, 72, 200, DType::F16, 49, true), rows_matmul(130, 136, 328, DType::BF16, 1, false)}) {
    const MultiplyUnit unit = sample.kernel.contract()->a_type == DType::BF16 ? MultiplyUnit::BF16 : MultiplyUnit::F16;
    check_schedule(sample, boxes(unit, 64, 64, 64, 64, 4, true));
    check_schedule(sample, boxes(unit, 128, 64, 64, 64, 3, false));
    check_schedule(sample, boxes(unit, 64, 96, 64, 96, 3, true));
    check_schedule(sample, boxes(unit, 64, 192, 64, 192, 2, false));
  }
  for (const Sample& sample : {largest_of_rows(11, 14, 136, 72, DType::F16), largest_of_rows(21, 14, 72, 136, DType::F16, 2),
                               largest_of_rows(3, 49, 40, 72, DType::F16, 1)}) {
    check_schedule(sample, boxes(MultiplyUnit::F16, 128, 64, 64, 64, 3, false));
    check_schedule(sample, boxes(MultiplyUnit::F16, 64, 128, 64, 128, 3, true));
    check_schedule(sample, boxes(MultiplyUnit::F16, 192, 128, 64, 128, 2, false));
  }
  Sample tf32 = matmul(1, 150, 72, 100, false, true, DType::F32);
  tf32.tolerance = 2e-3;
  check_schedule(tf32, boxes(MultiplyUnit::Tf32, 64, 64, 64, 64, 3, true));
}

TEST_CASE("windows of few channels arrive in rows of 64 bytes", "[emulated]") {
  for (const Sample& sample : {conv(2, 32, 7, 9, 40, 3, 1, true, DType::F16), conv(3, 24, 9, 7, 72, 3, 2, true, DType::F16),
                               conv(1, 96, 12, 5, 64, 3, 1, true, DType::F16), conv(2, 16, 9, 9, 64, 5, 1, true, DType::BF16)}) {
    const auto unit = sample.kernel.contract()->a_type == DType::BF16 ? MultiplyUnit::BF16 : MultiplyUnit::F16;
    for (Schedule s : {boxes(unit, 64, 64, 64, 64, 4, true), boxes(unit, 128, 64, 128, 64, 3, true), boxes(unit, 128, 32, 128, 32, 3, true)}) {
      s.tile.k = 32;
      check_schedule(sample, s);
    }
    Schedule together = shared_boxes(unit, 64, 64, 64, 64, 2, 4);
    together.tile.k = 32;
    check_schedule(sample, together);
    auto forms = emit_cuda(sample.kernel, cuda_traits(90));
    REQUIRE(forms.ok());
    for (const EmittedKernel& form : *forms) CHECK(form.schedule.tile.k == (form.schedule.tile.boxes ? 32 : form.schedule.tile.k));
  }
}

TEST_CASE("operands of f32 that arrive as boxes and are split", "[emulated]") {
  const auto f32 = MultiplyUnit::Tf32x3;
  for (const Sample& sample :
       {matmul(1, 390, 140, 100, false, true, DType::F32), matmul(3, 40, 36, 136, false, true, DType::F32, true),
        extreme_matmul(150, 72, 104), largest_matmul(70, 40, 72), conv(2, 36, 7, 9, 40, 3, 1, true),
        conv(3, 24, 9, 7, 72, 3, 2, true), conv(2, 32, 7, 9, 40, 3, 1, true, DType::F32, 28)}) {
    check_schedule(sample, boxes(f32, 64, 64, 64, 64, 4, true));
    check_schedule(sample, boxes(f32, 128, 64, 64, 64, 3, false));
    check_schedule(sample, boxes(f32, 64, 32, 64, 32, 2, false));
  }
  const Sample rows = matmul(1, 390, 300, 328, false, true, DType::F32);
  check_schedule(rows, boxes(f32, 128, 128, 64, 128, 3, false));
  check_schedule(rows, boxes(f32, 128, 96, 64, 96, 3, false));
  check_schedule(rows, boxes(f32, 64, 256, 64, 128, 2, false));
  check_schedule(rows, boxes(f32, 64, 128, 64, 64, 3, false));
  check_schedule(rows, boxes(f32, 192, 64, 64, 64, 3, false));
  check_schedule(rows, boxes(f32, 64, 128, 64, 128, 3, true));
  check_schedule(rows, boxes(f32, 64, 96, 64, 96, 3, true));
}

TEST_CASE("groups of rows of f32 by boxes", "[emulated]") {
  int seen = 0;
  for (const testing::FusedGraph& g : testing::row_group_graphs())
    for (const Sample& sample : samples_of(g.name, g.text, DType::F32)) {
      if (!sample.kernel.contract() || sample.kernel.contract()->group.empty()) continue;
      for (const Schedule& s : {boxes(MultiplyUnit::Tf32x3, 128, 64, 64, 64, 3, false),
                                boxes(MultiplyUnit::Tf32x3, 64, 32, 64, 32, 3, true)}) {
        const auto emitted = emit_cuda(sample.kernel, cuda_traits(90), s);
        if (!emitted) continue;  // operands that do not arrive as boxes
        check_run(sample, emitted.value());
        ++seen;
      }
    }
  CHECK(seen > 3);
}

TEST_CASE("results of f32 that leave by TMA", "[emulated]") {
  for (const auto unit : {MultiplyUnit::Tf32x3, MultiplyUnit::Tf32}) {
    for (Sample sample : {residual_matmul(1, 200, 136, 72, DType::F32), residual_matmul(3, 70, 72, 136, DType::F32)}) {
      if (unit == MultiplyUnit::Tf32) sample.tolerance = 2e-3;
      check_schedule(sample, boxes(unit, 64, 64, 64, 64, 4, true));
      check_schedule(sample, boxes(unit, 64, 32, 64, 32, 2, false));
      check_schedule(sample, boxes(unit, 128, 96, 64, 96, 2, false));
      check_schedule(sample, boxes(unit, 128, 128, 64, 128, 2, false));
      const auto emitted = emit_cuda(sample.kernel, cuda_traits(90), boxes(unit, 128, 64, 64, 64, 3, false));
      REQUIRE(emitted);
      CHECK(emitted.value().source.find("staged = true, staged_input = true") != std::string::npos);
    }
  }
}

TEST_CASE("products of rows as they lie in memory", "[emulated]") {
  check_schedule(rows_matmul(650, 24, 144, DType::F16, 49, true), rows_by(2, MultiplyUnit::F16, 1, 24, 144, 2));
  check_schedule(rows_matmul(403, 144, 24, DType::F16, 0, false), rows_by(1, MultiplyUnit::F16, 1, 144, 24, 3));
  check_schedule(rows_matmul(403, 144, 24, DType::BF16, 0, true), rows_by(2, MultiplyUnit::BF16, 2, 144, 24, 2));
  check_schedule(rows_matmul(1000, 16, 32, DType::F16, 200, false), rows_by(3, MultiplyUnit::F16, 2, 16, 32, 2));
  check_schedule(rows_matmul(260, 240, 40, DType::F16, 0, false), rows_by(1, MultiplyUnit::F16, 1, 240, 40, 2));
  check_schedule(rows_matmul(130, 8, 232, DType::BF16, 1, true), rows_by(2, MultiplyUnit::BF16, 1, 8, 232, 2));
  check_schedule(rows_matmul(650, 64, 24, DType::F16, 0, true), rows_by(2, MultiplyUnit::F16, 1, 64, 24, 2));  // results as boxes
  check_schedule(rows_matmul(203, 128, 72, DType::BF16, 0, false), rows_by(1, MultiplyUnit::BF16, 2, 128, 72, 2));
  check_schedule(rows_matmul(5, 136, 72, DType::F16, 2, true), rows_by(2, MultiplyUnit::F16, 2, 136, 72, 2));
}

TEST_CASE("attention whose operands arrive as boxes", "[emulated]") {
  const auto check_attention = [](const Sample& sample, int m, int n, int stages) {
    Schedule s;
    s.kind = Schedule::Kind::Attention;
    const DType type = sample.kernel.attend()->q_type;
    s.unit = type == DType::BF16 ? MultiplyUnit::BF16 : type == DType::F16 ? MultiplyUnit::F16 : MultiplyUnit::Tf32x3;
    s.tile = {.m = m, .n = n, .warp_m = 64, .warp_n = n, .stages = stages, .warpgroups = true, .boxes = true};
    s.threads = s.tile.threads();
    s.most_blocks = 3;
    check_schedule(sample, s);
    if (type != DType::F32 || !sample.planted.empty()) return;
    Sample rounded = sample;
    rounded.tolerance = 2e-3;
    s.unit = MultiplyUnit::Tf32;
    check_schedule(rounded, s);
  };
  for (const bool scaled : {true, false}) {
    check_attention(attention(4, 20, 70, 64, 64, DType::F16, false, scaled), 64, 64, 2);
    check_attention(attention(2, 150, 119, 32, 64, DType::F16, true, scaled), 128, 112, 3);
  }
  check_attention(attention(1, 130, 20, 80, 96, DType::BF16, false), 192, 64, 2);
  check_attention(attention(1, 270, 70, 32, 32, DType::F16, true), 256, 64, 3);
  check_attention(attention(1, 17, 140, 128, 128, DType::F16, false), 128, 128, 2);
  check_attention(attention(1, 70, 70, 256, 256, DType::F16, false), 128, 64, 2);
  check_attention(attention(4, 30, 40, 16, 16, DType::F16, false), 64, 64, 4);
  check_attention(attention(4, 150, 170, 64, 64, DType::F32, false), 128, 64, 2);
  check_attention(attention(2, 150, 119, 32, 48, DType::F32, true, true), 128, 96, 2);
  check_attention(attention(3, 20, 40, 20, 12, DType::F32, false), 128, 32, 4);  // the second warpgroup has no queries
  check_attention(extreme_attention(140, 150, 32, 16), 128, 64, 2);
}

TEST_CASE("attention stops at the last key that a row can see", "[emulated]") {
  const Expr infinite = Expr::number(DType::F32, -INFINITY), lowest = Expr::number(DType::F32, -3.4028234663852886e38);
  for (const bool finite : {false, true}) {
    Sample sample = attention(1, 150, 170, 32, 32, DType::F16, false, true);
    Attend t = *sample.kernel.attend();
    const Expr scaled = t.score, row = t.m[0].var, key = t.n[0].var;
    t.score = finite ? scaled + select(le(key, row), Expr::number(DType::F32, 0), lowest) : select(lt(row, key), infinite, scaled);
    sample.kernel.body[0] = {t};
    CHECK(simplify(reach_of(t) - row).is_const(1));
    Schedule s;
    s.kind = Schedule::Kind::Attention;
    s.unit = MultiplyUnit::F16;
    s.tile = {.m = finite ? 64 : 128, .n = 64, .warp_m = 64, .warp_n = 64, .stages = 2, .warpgroups = true, .boxes = true};
    s.threads = s.tile.threads();
    s.most_blocks = 1;
    check_schedule(sample, s);
  }
  // A bias may take the first key away, and then what a finite mask leaves counts; floats may reach further than 16 bits.
  Attend biased = *attention(1, 20, 20, 16, 16, DType::F16, false).kernel.attend();
  biased.score = biased.score + select(le(biased.n[0].var, biased.m[0].var), Expr::number(DType::F32, 0), lowest);
  CHECK(!reach_of(biased).valid());
  Attend wide = *attention(1, 20, 20, 16, 16, DType::F32, false, true).kernel.attend();
  wide.score = wide.score + select(le(wide.n[0].var, wide.m[0].var), Expr::number(DType::F32, 0), lowest);
  CHECK(!reach_of(wide).valid());
  // Nor does it where another mask may take all keys that a row can see: then those behind count as much.
  Attend twice = *attention(1, 20, 20, 16, 16, DType::F16, false, true).kernel.attend();
  const Expr &row = twice.m[0].var, &key = twice.n[0].var, zero = Expr::number(DType::F32, 0);
  const Expr causal = le(key, row), kept = lt(Expr(0), Expr::load(3, DType::I64, key));
  const Expr scaled = twice.score;
  for (const Expr& score : {scaled + select(logical_and(causal, kept), zero, lowest),
                            select(kept, select(causal, scaled, lowest), lowest), select(causal, select(kept, scaled, lowest), lowest),
                            scaled + select(causal, zero, lowest) + select(kept, zero, lowest)}) {
    twice.score = score;
    CHECK(!reach_of(twice).valid());
  }
}

TEST_CASE("every tile with boxes compiles without spills", "[nvrtc]") {
  if (no_nvrtc()) return;
  MmaProblem problem;
  problem.element = 2;
  problem.boxes = true;
  problem.staging = Staging::Inputs;
  const MmaMachine machine = mma_machine(cuda_traits(90), MultiplyUnit::F16);
  int seen = 0;
  for (const MmaTile& x : mma_candidates(problem, machine)) {
    if (!x.boxes || x.row_teams > 0) continue;
    for (const Sample& sample : {dynamic_matmul(4096, 4096, 4096, DType::F16), residual_matmul(1, 4096, 4096, 4096, DType::F16)}) {
      Schedule s =
          boxes(MultiplyUnit::F16, x.m, x.n, x.warp_m, x.warp_n, completed(problem, machine, x, {}).stages, x.in_turn);
      const auto emitted = emit_cuda(sample.kernel, cuda_traits(90), s);
      REQUIRE(emitted);
      check_compiles(sample, emitted.value(), {"sm_90a"});
    }
    ++seen;
    MmaProblem changes = problem;
    changes.a_changes = true;
    if (const auto tiles = mma_candidates(changes, machine); std::find(tiles.begin(), tiles.end(), x) == tiles.end()) continue;
    const Sample gated = rows_matmul(4096, 4096, 4096, DType::F16, 64, true);
    const auto emitted = emit_cuda(
        gated.kernel, cuda_traits(90),
        boxes(MultiplyUnit::F16, x.m, x.n, x.warp_m, x.warp_n, completed(problem, machine, x, {}).stages, x.in_turn));
    REQUIRE(emitted);
    check_compiles(gated, emitted.value(), {"sm_90a"});
  }
  CHECK(seen > 10);
}

TEST_CASE("every tile of f32 with boxes compiles without spills", "[nvrtc]") {
  if (no_nvrtc()) return;
  int seen = 0;
  for (const auto unit : {MultiplyUnit::Tf32x3, MultiplyUnit::Tf32}) {
    MmaProblem problem;
    problem.boxes = true;
    problem.split = unit == MultiplyUnit::Tf32x3;
    problem.staged_size = 4;
    const MmaMachine machine = mma_machine(cuda_traits(90), unit);
    for (const auto& [sample, staging] : {std::pair{conv(64, 256, 14, 14, 256, 3, 1, true), Staging::Results},
                                          {residual_matmul(1, 4096, 4096, 4096, DType::F32), Staging::Inputs}}) {
      problem.staging = staging;
      for (const MmaTile& x : mma_candidates(problem, machine)) {
        if (!x.boxes) continue;
        Schedule s = boxes(unit, x.m, x.n, x.warp_m, x.warp_n, completed(problem, machine, x, {}).stages, x.in_turn);
        const auto emitted = emit_cuda(sample.kernel, cuda_traits(90), s);
        REQUIRE(emitted);
        check_compiles(sample, emitted.value(), {"sm_90a"});
        ++seen;
      }
    }
  }
  CHECK(seen > 48);
}

TEST_CASE("tiles of rows compile without spills", "[nvrtc]") {
  if (no_nvrtc()) return;
  const MmaMachine machine = mma_machine(cuda_traits(90), MultiplyUnit::F16);
  int seen = 0;
  for (const auto& [n, k] : {std::pair{24, 96}, {24, 144}, {144, 24}, {240, 40}, {256, 24}, {80, 240}, {16, 32}, {96, 16}, {40, 240}, {64, 24}, {192, 40}}) {
    MmaProblem problem;
    problem.m = 100000;
    problem.n = n;
    problem.k = k;
    problem.element = 2;
    problem.rows = product_of_rows(rows_matmul(100000, n, k, DType::F16, 0, false).kernel, DType::F16);
    REQUIRE(problem.rows);
    for (const MmaTile& x : rows_tiles(problem, machine)) {
      for (const Sample& sample : {rows_matmul(100000, n, k, DType::F16, 3136, true), rows_matmul(100000, n, k, DType::F16, 0, false)}) {
        const auto emitted = emit_cuda(sample.kernel, cuda_traits(90), rows_by(x.row_teams, MultiplyUnit::F16, x.m / 64, n, k, x.stages));
        REQUIRE(emitted);
        check_compiles(sample, emitted.value(), {"sm_90a"});
      }
      ++seen;
    }
  }
  CHECK(seen > 12);
}

TEST_CASE("with rows known at run time only, a kernel has forms for few and for many", "[emulated]") {
  for (DType type : {DType::F32, DType::F16}) {
    const Sample sample = dynamic_matmul(300, 1040, 512, type);
    const auto forms = emit_forms(sample);
    REQUIRE(forms.size() >= 2);
    CHECK(forms.front().schedule.from == 0);
    CHECK(forms.back().schedule.below == 0);
    for (size_t i = 1; i < forms.size(); ++i) CHECK(forms[i - 1].schedule.below == forms[i].schedule.from);
    for (const EmittedKernel& form : forms) {
      Schedule schedule = form.schedule;
      schedule.from = schedule.below = 0;
      check_schedule(sample, schedule);
    }
  }
}

TEST_CASE("the planner gives products to tensor cores, and shares k where tiles are few", "[text]") {
  const auto plan = [](const Sample& sample, int capability) { return emit(sample, cuda_traits(capability)).schedule; };
  const Sample f32 = matmul(1, 512, 49, 4608, false, false, DType::F32);
  CHECK(plan(column_sum(64, int64_t{1} << 40), 90).kind == Schedule::Kind::Columns);  // as good as unbounded
  CHECK(plan(f32, 75).unit == MultiplyUnit::Simt);
  CHECK(plan(f32, 80).unit == MultiplyUnit::Tf32x3);
  CHECK(plan(f32, 80).cluster_k == 1);
  CHECK(plan(f32, 90).cluster_k > 1);
  CHECK(plan(matmul(1, 64, 64, 64, false, false, DType::F16), 75).unit == MultiplyUnit::F16);
  CHECK(plan(matmul(1, 64, 64, 64, false, false, DType::BF16), 75).unit == MultiplyUnit::Simt);
  CHECK(plan(matmul(1, 64, 64, 64, false, false, DType::F64), 90).unit == MultiplyUnit::Simt);
  const Schedule exact = plan(matmul(1, 4096, 4096, 4096, false, true, DType::F32), 90);
  CHECK(exact.unit == MultiplyUnit::Tf32x3);
  CHECK(exact.tile.split);
  CHECK(exact.tile.boxes);
  CHECK_FALSE(plan(matmul(1, 4096, 4096, 4096, false, true, DType::F32), 80).tile.boxes);
  const Schedule large = plan(matmul(1, 4096, 4096, 4096, false, false, DType::F16), 90);
  CHECK(large.tile.m * large.tile.n >= 128 * 128);
  CHECK(large.tile.warpgroups);
  CHECK(large.cluster_k == 1);
}

TEST_CASE("every plan of an f32 product can be printed", "[text]") {
  for (const bool tf32 : {false, true}) {
    TargetTraits target = cuda_traits(90);
    target.allow_tf32 = tf32;
    for (const Sample& sample : {residual_matmul(2, 390, 136, 328, DType::F32), extreme_matmul(390, 264, 712),
                                 conv(3, 36, 17, 15, 72, 3, 1, true), conv(3, 24, 19, 17, 72, 3, 2, true)}) {
      int boxes = 0, warps = 0;
      for (const RankedPlan& plan : rank_tiles(plan_kernel(sample.kernel, target).kernel, target, {})) {
        CHECK(emit_cuda(sample.kernel, target, plan.schedule).ok());
        ++(plan.schedule.tile.boxes ? boxes : warps);
      }
      CHECK(boxes > 10);
      CHECK(warps > 0);  // clusters
    }
  }
}

TEST_CASE("columns shared by any number of lanes", "[emulated]") {
  for (const Sample& sample : {column_sum(500, 96), column_sum(7, 40)}) {
    check_schedule(sample, columns(256, 8, 4));
    check_schedule(sample, columns(64, 32, 1));
    check_schedule(sample, columns(128, 4, 8));
    check_schedule(sample, columns(1024, 2, 2));
  }
  check_schedule(column_sum(100, 65), columns(256, 16, 1));
  CHECK(emit(column_sum(500, 4096), cuda_traits(90)).schedule.kind == Schedule::Kind::Columns);
}

TEST_CASE("rows shared by any number of lanes", "[emulated]") {
  for (const Sample& sample :
       {softmax(19, 52, DType::F32), softmax_scratch(9, 100), argmax(7, 44, true, false), logical_rows(6, 36)}) {
    for (int vector : {1, 4}) {
      check_schedule(sample, rows(1024, 1, vector));
      check_schedule(sample, rows(64, 1, vector));
      check_schedule(sample, rows(128, 4, vector));
      check_schedule(sample, rows(128, 32, vector));
      check_schedule(sample, rows(64, 64, vector));
    }
  }
}

TEST_CASE("several groups of points for one thread", "[emulated]") {
  Schedule s;
  s.points_per_thread = 3;
  s.threads = 64;
  for (int vector : {1, 2, 4}) {
    s.vector = vector;
    check_schedule(broadcast_add(37, 64, DType::F32), s);
    check_schedule(max_pool(1, 8, 8, 6, true), s);
    check_schedule(row_guard(11, 36), s);
  }
}

TEST_CASE("NaN is the extreme value, and casts of it give 0", "[emulated]") {
  const Expr i = Expr::index("row", 5), j = Expr::index("j", 40);
  Kernel k;
  k.name = "nan";
  k.buffers = {{"x", DType::I32, {5, 40}, false, false},
               {"out0", DType::F32, {5}, true, false},
               {"out1", DType::I64, {5}, true, false},
               {"out2", DType::I32, {5}, true, false}};
  k.domain = {{i, Expr(5)}};
  // Rows 1 and 3 have a NaN (0/0) at column 11 + row.
  const Expr x = cast(DType::F32, Expr::load(0, DType::I32, i * 40 + j));
  const Expr odd = eq(floor_mod(i, Expr(2)), Expr(1));
  const Expr value = select(logical_and(odd, eq(j, i + 11)), (x - x) / (x - x), x);
  const Expr peak = Expr::local("peak", DType::F32), at = Expr::local("at", DType::I64);
  const std::vector<Axis> axes{{j, Expr(40)}};
  k.body.push_back({Reduce{peak, Combine::Max, identity_of(Combine::Max, DType::F32), axes, value, false}});
  k.body.push_back({Reduce{at, Combine::ArgMin, Expr::real(DType::F32, 0), axes, value, false}});
  k.body.push_back({Store{1, i, peak}});
  k.body.push_back({Store{2, i, at}});
  k.body.push_back({Store{3, i, cast(DType::I32, peak * Expr::real(DType::F32, 1e12))}});
  const Sample sample{"nan", k, {}, 1e-6};
  check_run(sample, emit(sample));
  check_schedule(sample, Schedule{});
}
