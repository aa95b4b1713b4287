#include "compiler/support/target_traits.h"

namespace ingot {

TargetTraits cuda_traits(int cc) {
  struct Row { int cc; const char* name; int sms, shared_kb; double gbps, gflops, tensor; int64_t l2_mb; };
  static constexpr Row kRows[] = {
      {75, "sm_75", 40, 64, 320, 8100, 65000, 4},         {80, "sm_80", 108, 163, 1555, 19500, 312000, 40},
      {86, "sm_86", 82, 99, 936, 35600, 71000, 6},        {89, "sm_89", 128, 99, 1008, 82600, 165000, 72},
      {90, "sm_90a", 132, 227, 4300, 67000, 989000, 60},  {100, "sm_100a", 148, 227, 8000, 80000, 2250000, 120},
      {120, "sm_120", 170, 99, 1792, 104800, 209000, 96},
  };
  const Row* best = &kRows[0];
  for (const Row& r : kRows)
    if (r.cc <= cc) best = &r;
  TargetTraits t;
  t.kind = TargetKind::Cuda;
  t.name = best->name;
  t.compute_capability = best->cc;
  t.parallel_units = best->sms;
  t.vector_bytes = 16;
  t.vector_registers = 255;
  t.l2_bytes = best->l2_mb << 20;
  t.shared_bytes = best->shared_kb << 10;
  t.max_threads = 1024;
  t.memory_gbps = best->gbps;
  t.f32_gflops = best->gflops;
  t.tensor_gflops = best->tensor;
  return t;
}

}  // namespace ingot
