// The kernel emulator: the .cu text that NVRTC gets is also compiled for the host and executed here, every CUDA thread
// a fiber, with shared memory, barriers, TMA and tensor cores modelled, and vector clocks that report a race or a
// missing fence whatever the schedule did. emulated_driver.h puts it behind the table of driver functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace ingot::emulation {

// Device memory with guard pages in front and behind; every buffer is known by name, so a bad access names its
// neighbour. late: the previous kernel of the stream still works on it, so a kernel may touch it only after pdl_wait.
void* allocate(size_t bytes, const char* name, bool read_only = false, bool late = false);
bool release(void* memory);
void release_all();
/// Names a buffer for reports, and says how kernels may use it.
void describe(void* memory, const char* name, bool read_only = false, bool late = false);

struct alignas(64) TensorMap {
  uint64_t d[16];
};  // stands for a CUtensorMap; kernels get it by value
enum class Elem { F16, BF16, F32, TF32, U8 };
enum class Swizzle { None = 0, B128 = 1, B64 = 2, B32 = 3 };
// As cuTensorMapEncodeTiled / Im2col. Dimension 0 is the fastest. Returns the broken rule; empty when the map is good.
std::string encode_tiled(TensorMap& map, Elem, const void* base, std::vector<uint64_t> dims,
                         std::vector<uint64_t> strides_bytes, std::vector<uint32_t> box, Swizzle);
std::string encode_im2col(TensorMap& map, Elem, const void* base, std::vector<uint64_t> dims,
                          std::vector<uint64_t> strides_bytes, std::vector<int> lower, std::vector<int> upper,
                          uint32_t channels, uint32_t pixels, std::vector<uint32_t> element_strides, Swizzle);

struct LaunchOptions {
  uint64_t seed = 1;      // order of warps, moments of asynchronous completion
  unsigned preempt = 16;  // a thread gives way at one in this many synchronisation calls; 0: never
  int max_reports = 8;
};
struct LaunchReport {
  std::vector<std::string> faults;  // "kind: text"; empty when the launch was clean
  uint64_t switches = 0, wgmmas = 0, tma_ops = 0;
  uint64_t bank_conflicts = 0;  // of ldmatrix and stmatrix: extra wavefronts
  double seconds = 0;
  bool completed = true;  // false after a deadlock or a wild access
};
struct Dim3 {
  unsigned x = 1, y = 1, z = 1;
};
LaunchReport launch(void (*entry)(void**), void** params, Dim3 grid, Dim3 block, unsigned cluster,
                    size_t dynamic_shared, const LaunchOptions& = {});

}  // namespace ingot::emulation
