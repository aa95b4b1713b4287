// TargetTraits: the plain numbers of a device that passes and planners decide by. No behaviour.
#pragma once

#include <cstdint>
#include <string>

namespace ingot {

enum class TargetKind : uint8_t { Cpu, Cuda };

struct TargetTraits {
  TargetKind kind = TargetKind::Cpu;
  std::string name = "cpu";          // "cpu", "sm_90a"
  int compute_capability = 0;        // 75, 80, 90, 100, 120; 0 for a CPU
  int parallel_units = 2;            // SMs, or hardware threads
  int vector_bytes = 32;             // CPU: bytes of a vector register; CUDA: 16, the widest access
  int vector_registers = 16;         // CPU
  int64_t l1_bytes = 32 << 10, l2_bytes = 1 << 20;
  int shared_bytes = 0;              // CUDA: usable shared memory of a block
  int max_threads = 1;               // CUDA: threads of a block
  double memory_gbps = 20, f32_gflops = 100;
  double tensor_gflops = 0;          // CUDA: dense products of 16-bit values on tensor cores, summed in fp32
  bool allow_tf32 = false;           // CUDA: products of f32 values may multiply them as tf32
};

/// The traits of "cpu" (the host), or of "sm_75" … "sm_120" (nominal numbers of the chip of that name).
TargetTraits cuda_traits(int compute_capability);

}  // namespace ingot
