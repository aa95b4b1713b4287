#include "runtime/nvtx.h"

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>

namespace ingot::runtime {
namespace {

struct Functions {
  int (*push)(const char*) = nullptr;
  int (*pop)() = nullptr;
};

Functions open_library() {
  const char* wanted = std::getenv("INGOT_NVTX");
  if (!wanted || std::strcmp(wanted, "1") != 0) return {};
  const char* own = std::getenv("INGOT_NVTX_LIBRARY");
  for (const char* name : {own ? own : "", "libnvToolsExt.so.1", "libnvtx3interop.so.1", "libnvtx3interop.so"}) {
    void* library = *name ? dlopen(name, RTLD_NOW | RTLD_LOCAL) : nullptr;
    if (!library) continue;
    const Functions f{reinterpret_cast<int (*)(const char*)>(dlsym(library, "nvtxRangePushA")),
                      reinterpret_cast<int (*)()>(dlsym(library, "nvtxRangePop"))};
    if (f.push && f.pop) return f;
  }
  return {};
}

const Functions& functions() {
  static const Functions f = open_library();
  return f;
}

}  // namespace

bool nvtx_active() { return functions().push != nullptr; }
void NvtxRange::push(const char* name) { functions().push(name); }
void NvtxRange::pop() { functions().pop(); }

}  // namespace ingot::runtime
