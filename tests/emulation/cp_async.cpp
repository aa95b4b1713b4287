// cp.async: a copy owns its bytes of shared memory from the issue on, and lands when it is waited for.
#include "tests/emulation/core.h"

namespace ingot::emulation {

static void copy_later(u32 dst, const void* src, u32 bytes, u32 size) {
  if (dst % size || (bytes && (size_t)src % size)) fault("misaligned", "cp.async of %u bytes", size);
  if (bytes > size) fault("bad-cp-async", "%u bytes", bytes);
  if (bytes && !find_alloc(src, bytes)) {
    fault("global-out-of-bounds", "cp.async, %s", near_alloc(src).c_str());
    die();
  }
  if (!in_shared(*me().warp->cta, dst, size, "cp.async")) die();
  Cta& c = *me().warp->cta;
  check_write(c, dst, size, *me().warp, "cp.async");
  for (u32 g = 0; g < size / 4; ++g)
    c.sh->wr[dst / 4 + g] = me().warp->agent << kTimeBits | kNeverSeen;  // a time nobody has seen: unreadable until the wait
  me().cp_open.push_back({dst, src, bytes, size});
}
extern "C" void emu_cp_async(u32 dst, const void* src, u32 bytes) {
  HERE();
  copy_later(dst, src, bytes, 16);
}
extern "C" void emu_cp_async_some(u32 dst, const void* src, int bytes, int inside) {
  HERE();
  copy_later(dst, src, inside ? (u32)bytes : 0, (u32)bytes);
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
      std::memset(d, 0, x.size);
      std::memcpy(d, x.src, x.bytes);
      ++c.sh->writes;
      for (u32 g = 0; g < x.size / 4; ++g) c.sh->wr[x.dst / 4 + g] = f.warp->now();
    }
    f.cp.erase(f.cp.begin());
  }
}

}  // namespace ingot::emulation
