// What a code generator hands to the program builder: the text of a kernel, how it is launched, and its compiled forms.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "codegen/kernel/kernel.h"
#include "compiler/expr/expr.h"

namespace ingot {

/// A tensor map, over the kernel's dims: how TMA sees a buffer. Kernels take them after their dims.
struct BoxMap {
  int buffer = 0;
  DType type = DType::F16;
  Expr offset;                                 // bytes into the buffer
  std::vector<Expr> extents, strides;          // elements, innermost first; bytes, of all but the innermost
  std::vector<int64_t> box;                    // elements that one copy moves; the innermost are 64 or 128 bytes
  int clipped = 0;                             // the axis along which a copy moves no more than there is; 0: none
  // A window over the middle axes (TMA's im2col mode), if not empty: where its corner starts, and how far from the end of the
  // axis it stops; its steps. box is then {channels, places}.
  std::vector<int64_t> low, high, steps;
};

struct EmittedKernel {
  std::string name;  // the entry point: fused_<ops>_<hash6>
  std::string source;  // CUDA text
  int threads = 1;  // runtime::KernelInfo::threads
  int shared_bytes = 0;  // runtime::KernelInfo::shared_bytes
  std::array<Expr, 3> grid{1, 1, 1};  // over the kernel's dims; a 0 in it means that there is nothing to launch
  bool uses_i32 = true;  // indices are 32-bit: a buffer of kMaxI32Elements elements or more is refused
  std::vector<BoxMap> boxes;
  Expr part_bytes;  // runtime::Instruction::part_bytes; invalid: none
  Schedule schedule;
};

/// The largest element count (and domain) of a kernel with 32-bit indices. It leaves room for the last block to
/// overshoot.
constexpr int64_t kMaxI32Elements = (int64_t{1} << 31) - (int64_t{1} << 22);

}  // namespace ingot
