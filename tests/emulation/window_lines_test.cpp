// Windows whose pixels overlap along the lines of an image (a stem's): lines in shared memory that rows of the product are read from
// (prelude/row_source.cuh).
#include <catch2/catch.hpp>

#include "codegen/cuda/mma_cost.h"
#include "codegen/cuda/plan_cuda.h"
#include "tests/emulation/check_sample.h"
#include "tests/emulation/planted_fault.h"
#include "tests/emulation/schedules.h"

using namespace ingot;
using namespace ingot::samples;

namespace {

constexpr auto kF16 = MultiplyUnit::F16, kBF16 = MultiplyUnit::BF16;

Schedule lines_by(const Sample& sample, int teams, int rows, int stages) {
  const DType type = sample.kernel.contract()->a_type;
  INFO(sample.name);
  const auto product = product_of_rows(sample.kernel, type);
  REQUIRE(product);
  REQUIRE(product->lines);
  return rows_by(teams, type == DType::BF16 ? kBF16 : kF16, rows, static_cast<int>(product->n), static_cast<int>(product->k), stages);
}

}  // namespace

TEST_CASE("overlapping windows are read from lines in shared memory", "[emulated]") {
  const Sample samples[] = {
      overlapping_windows(3, 9, 19, 64, 7, 2, 8, 28, DType::F16),    // tiles of several lines, and a rest
      overlapping_windows(2, 16, 16, 32, 3, 2, 8, 12, DType::BF16),  // whole tiles
      overlapping_windows(3, 12, 16, 64, 7, 2, 8, 28, DType::F16),   // results as boxes
      overlapping_windows(2, 8, 24, 128, 3, 2, 8, 12, DType::BF16),
      overlapping_windows(5, 5, 7, 24, 3, 1, 8, 16, DType::F16),     // images smaller than a tile
      overlapping_windows(1, 3, 150, 40, 5, 2, 8, 20, DType::F16),   // lines longer than one
      overlapping_windows(2, 2, 70, 8, 2, 1, 16, 48, DType::BF16),   // more elements than two 16s
      overlapping_windows(2, 20, 33, 16, 4, 3, 8, 30, DType::F16),
  };
  for (const Sample& sample : samples) {
    check_schedule(sample, lines_by(sample, 2, 1, 2));
    check_schedule(sample, lines_by(sample, 1, 2, 2));
    check_schedule(sample, lines_by(sample, 3, 1, 3));
  }
}

TEST_CASE("what overlapping windows are", "[emulated]") {
  const auto lines = [](const Sample& s) { return window_lines(s.kernel, s.kernel.contract()->a_type); };
  const auto x = lines(overlapping_windows(3, 112, 112, 64, 7, 2, 8, 28, DType::F16));
  REQUIRE(x);
  CHECK(x->length == 111 * 8 + 32);
  CHECK(x->window.present == 28);
  CHECK(x->of_tile(128) == 9);    // two lines of outputs: tiles begin at multiples of 16 pixels of them
  CHECK(x->of_tile(64) == 9);
  CHECK(x->of_tile(448) == 13);   // four whole lines
  CHECK(x->of_tile(1 << 20) == 111 * 2 + 7);
  CHECK(!lines(conv(2, 32, 7, 9, 40, 3, 1, true, DType::F16)));                 // pixels side by side
  CHECK(!lines(overlapping_windows(3, 9, 20, 64, 7, 2, 4, 28, DType::F16)));    // pixels begin within 16 bytes
}

TEST_CASE("the planner takes lines for stems", "[emulated]") {
  for (const Sample& sample : {overlapping_windows(64, 112, 112, 64, 7, 2, 8, 28, DType::F16), overlapping_windows(64, 112, 112, 32, 3, 2, 8, 12, DType::F16),
                               overlapping_windows(1, 112, 112, 64, 7, 2, 8, 28, DType::BF16)}) {
    auto forms = emit_cuda(sample.kernel, cuda_traits(90));
    REQUIRE(forms.ok());
    for (const EmittedKernel& form : *forms) CHECK(form.schedule.tile.row_teams > 0);
    auto elsewhere = emit_cuda(sample.kernel, cuda_traits(80));
    REQUIRE(elsewhere.ok());
    for (const EmittedKernel& form : *elsewhere) CHECK(form.schedule.tile.row_teams == 0);
  }
}

TEST_CASE("faults in lines of windows", "[emulated]") {
  const Sample sample = overlapping_windows(3, 9, 19, 64, 7, 2, 8, 28, DType::F16);
  Schedule schedule = lines_by(sample, 2, 1, 2);
  schedule.most_blocks = 1;
  const Fault faults[] = {
      {"lines outside of the image are left as they were", kRowSource, "sts(stage + i * 16, Vec<u32, 4>{});", ";", "uninitialised"},
      {"elements behind the window count", kRowSource, "Source::clear_absent", "Source::piece(at), (void)", "wrong"},
      {"the line after the last", kRowSource, "count < Plan::in_h - first ? count", "count < 0 ? count", "wrong"},
      {"a tile reaches into the next image", kRowSource, "(image + 1) * kPixels", "(image + 2) * kPixels", "wrong"},
      {"lines of the output instead of the input", kRowSource, "(Plan::step_h * kLine)", "kLine", "wrong"},
      {"a tile is not waited for", kRowsOfProduct, "mbar_wait(memory.full(team, slot), phase);", "", "race"},
      {"a stage is sent for before it is free", kRowsOfProduct, "mbar_wait(memory.empty(team, slot), phase);", "", "race"},
  };
  for (const Fault& fault : faults) plant(sample, fault, &schedule);
}

TEST_CASE("tiles of lines compile without spills", "[nvrtc]") {
  if (no_nvrtc()) return;
  const MmaMachine machine = mma_machine(cuda_traits(90), kF16);
  int seen = 0;
  for (const Sample& sample : {overlapping_windows(64, 112, 112, 64, 7, 2, 8, 28, DType::F16), overlapping_windows(64, 112, 112, 32, 3, 2, 8, 12, DType::F16),
                               overlapping_windows(64, 149, 149, 32, 3, 2, 8, 12, DType::F16), overlapping_windows(64, 112, 112, 96, 7, 2, 8, 28, DType::BF16)}) {
    MmaProblem problem;
    problem.rows = product_of_rows(sample.kernel, sample.kernel.contract()->a_type);
    REQUIRE(problem.rows);
    problem.m = 100000;
    problem.n = static_cast<double>(problem.rows->n);
    problem.k = static_cast<double>(problem.rows->k);
    problem.element = 2;
    for (const MmaTile& x : rows_tiles(problem, machine)) {
      const auto emitted = emit_cuda(sample.kernel, cuda_traits(90), lines_by(sample, x.row_teams, x.m / 64, x.stages));
      REQUIRE(emitted);
      check_compiles(sample, emitted.value(), {"sm_90a"});
      ++seen;
    }
  }
  CHECK(seen > 5);
}
