// cp.async: a copy owns its 16 bytes of shared memory from the issue on, and lands when it is waited for.
#include "tests/emulation/core.h"

namespace ingot::emulation {

extern "C" void emu_cp_async(u32 dst, const void* src, u32 bytes) {
  HERE();
  if (dst % 16 || (bytes && (size_t)src % 16)) fault("misaligned", "cp.async of 16 bytes");
  if (bytes > 16) fault("bad-cp-async", "%u bytes", bytes);
  if (bytes && !find_alloc(src, bytes)) {
    fault("global-out-of-bounds", "cp.async, %s", near_alloc(src).c_str());
    die();
  }
  if (!in_shared(*me().warp->cta, dst, 16, "cp.async")) die();
  Cta& c = *me().warp->cta;
  check_write(c, dst, 16, *me().warp, "cp.async");
  for (u32 g = 0; g < 4; ++g)
    c.sh->wr[dst / 4 + g] = me().warp->agent << 24 | 0xffffff;  // a time nobody has seen: unreadable until the wait
  me().cp_open.push_back({dst, src, bytes});
}
extern "C" void emu_cp_async_commit() {
  HERE();
  Fiber& f = me();
  f.cp.push_back(f.cp_open);
  f.cp_open.clear();
}
extern "C" void emu_cp_async_wait(int n) {
  HERE();
  Fiber& f = me();
  Cta& c = *f.warp->cta;
  while ((int)f.cp.size() > n) {
    for (auto& x : f.cp.front()) {
      u8* d = c.sh->mem.p + x.dst;
      std::memset(d, 0, 16);
      std::memcpy(d, x.src, x.bytes);
      ++c.sh->writes;
      for (u32 g = 0; g < 4; ++g) c.sh->wr[x.dst / 4 + g] = f.warp->now();
    }
    f.cp.erase(f.cp.begin());
  }
}

}  // namespace ingot::emulation
