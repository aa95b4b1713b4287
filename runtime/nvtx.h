// Named ranges on NVIDIA's profilers' time line. The library that carries them is opened at run time where it is found
// ($INGOT_NVTX_LIBRARY, or the ones that come with the toolkit); without it, or without INGOT_NVTX=1, a range costs one
// test of a flag.
#pragma once

#include <string>

namespace ingot::runtime {

/// True when ranges are recorded.
bool nvtx_active();

class NvtxRange {
 public:
  explicit NvtxRange(const std::string& name) : open_(nvtx_active()) {
    if (open_) push(name.c_str());
  }
  ~NvtxRange() {
    if (open_) pop();
  }
  NvtxRange(const NvtxRange&) = delete;

 private:
  static void push(const char* name);
  static void pop();
  bool open_;
};

}  // namespace ingot::runtime
