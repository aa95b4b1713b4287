// libFuzzer target: any bytes, read as a kernel's object, are linked or give an Error. What was linked is not run: trust in
// the code is the caller's word, and no check can replace it.
#include <cstddef>
#include <cstdint>

#include "runtime/cpu/object_loader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static_cast<void>(ingot::runtime::load_object({data, size}, "sample"));
  static_cast<void>(ingot::runtime::load_object({data, size}, ""));
  return 0;
}
