// Plans of attention: how many queries and keys a block works on at a time.
#include <algorithm>

#include "codegen/cuda/mma_cost.h"
#include "codegen/cuda/plan_cuda.h"
#include "codegen/text/c_printer.h"

namespace ingot {
namespace {

int rounded(const std::vector<Axis>& axes) {
  return static_cast<int>((estimate(total_of(axes), 256) + 15) / 16 * 16);
}

int shared_bytes(const AttentionDetails& d, const MmaTile& t, int size) {
  const int row = d.head * size + 16, value_row = d.columns * size + (size == 2 ? 16 : 32);
  const int stages = t.m * row + 2 * t.n * row + 2 * t.n * value_row;
  return std::max(stages, mma_result_bytes({.m = t.m, .n = d.columns}, false));
}

}  // namespace

Contract score_product(const Attend& t) {
  return {.batch = t.batch, .m = t.m, .n = t.n, .k = t.k, .a = t.q, .b = t.key, .acc = t.dot, .epilogue = {}};
}
Contract value_product(const Attend& t) {
  return {.batch = t.batch, .m = t.m, .n = t.d, .k = t.n, .a = t.value, .b = t.value, .acc = t.acc, .epilogue = t.epilogue};
}

Schedule plan_attention(const Kernel& kernel, const TargetTraits& target) {
  const Attend& t = *kernel.attend();
  Schedule s;
  s.kind = Schedule::Kind::Attention;
  s.unit = t.q_type == DType::F16    ? MultiplyUnit::F16
           : t.q_type == DType::BF16 ? MultiplyUnit::BF16
           : target.allow_tf32       ? MultiplyUnit::Tf32
                                     : MultiplyUnit::Tf32x3;
  const int size = static_cast<int>(size_of(element_of(s.unit)));
  AttentionDetails d;
  d.head = rounded(t.k);
  d.columns = rounded(t.d);
  constexpr std::pair<int, int> kTiles[] = {{64, 64}, {64, 32}, {32, 32}, {16, 32}, {16, 16}};
  for (const auto& [m, n] : kTiles) {
    s.tile = {.m = m, .n = n, .k = d.head, .warp_m = 16, .warp_n = n, .stages = 2};
    s.threads = m / 16 * 32;
    const bool crowded = (d.columns > 128 || size == 4) && n > 32;  // registers
    if (!crowded && shared_bytes(d, s.tile, size) <= target.shared_bytes) break;
  }
  return s;
}

AttentionDetails attention_details(const Kernel& kernel, const Schedule& s) {
  const Attend& t = *kernel.attend();
  const DType element = element_of(s.unit);
  AttentionDetails d;
  d.q = operand_form(kernel, t.q, inner_axis(t.k), element);
  d.key = operand_form(kernel, t.key, inner_axis(t.k), element);
  d.value = operand_form(kernel, t.value, inner_axis(t.d), element);
  const Axis* out = inner_axis(t.d);
  d.e_vector = out ? widest_vector(kernel, t.epilogue, out->var, out->extent, 8) : 1;
  d.head = rounded(t.k);
  d.columns = rounded(t.d);
  d.shared_bytes = shared_bytes(d, s.tile, static_cast<int>(size_of(element)));
  return d;
}

}  // namespace ingot
