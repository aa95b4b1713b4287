// Shared memory and its shadow: who wrote a word, who read it, and is that ordered before this access.
#include "tests/emulation/core.h"

#include <algorithm>

namespace ingot::emulation {

bool in_shared(Cta& c, u32 a, u32 n, const char* what) {
  if (a >= kSharedBase && a + n <= c.limit) return true;
  fault("shared-out-of-bounds", "%s of %u bytes at +%d; the CTA has %u", what, n, (int)(a - kSharedBase),
        c.limit - kSharedBase);
  return false;
}
void check_read(Cta& c, u32 a, u32 n, Warp& w, const char* what) {
  Shadow& s = *c.sh;
  const Epoch now = w.now();
  for (u32 g = a / 4; g <= (a + n - 1) / 4; ++g) {
    const Epoch e = s.wr[g];
    if (!e) fault("uninitialised-shared", "%s of +%u, which nobody wrote", what, g * 4 - kSharedBase);
    else if (!w.vc.sees(e))
      fault("shared-race", "%s of +%u is not ordered after the write by %s", what, g * 4 - kSharedBase,
            name_of(e).c_str());
    s.rd[g * 8 + (w.agent & 7)] = now;
    s.flag[g / 4] |= 1;
  }
}
static void write_word(Cta& c, u32 g, const Clocks& vc, bool async, Epoch e, const char* what) {
  Shadow& s = *c.sh;
  const Epoch o = s.wr[g];
  if (o && !vc.sees(o))
    fault("shared-race", "%s of +%u is not ordered after the write by %s", what, g * 4 - kSharedBase,
          name_of(o).c_str());
  else if (async && o && !is_engine(o) && !vc.sees_fenced(o))
    fault("missing-proxy-fence", "%s of +%u over a generic store by %s without fence.proxy.async", what,
          g * 4 - kSharedBase, name_of(o).c_str());
  if (s.flag[g / 4] & 1)
    for (u32 i = 0; i < 8; ++i) {
      const Epoch r = s.rd[g * 8 + i];
      if (r && !vc.sees(r))
        fault("shared-race", "%s of +%u while %s may still read it", what, g * 4 - kSharedBase, name_of(r).c_str());
      s.rd[g * 8 + i] = 0;
    }
  s.wr[g] = e;
}
static void write_chunk(Cta& c, u32 k, const Clocks& vc,
                        const char* what) {  // 16 bytes, against asynchronous reads and mbarriers
  Shadow& s = *c.sh;
  if (s.pend[k])
    fault("overwrite-in-flight", "%s of +%u while wgmma or a TMA store still reads it", what, k * 16 - kSharedBase);
  if (s.flag[k] & 4) {
    const u32 n = rt.warps_per_block < 16 ? rt.warps_per_block : 16;
    for (u32 i = 0; i < n; ++i)
      if (s.ard[k * 16 + i] > vc.t[c.agent0 + i]) {
        fault("shared-race", "%s of +%u is not ordered after its use by wgmma or a TMA store of warp %u", what,
              k * 16 - kSharedBase, i);
        break;
      }
  }
  if (s.flag[k] & 2) fault("mbarrier-overwritten", "%s of +%u, where an mbarrier lives", what, k * 16 - kSharedBase);
}
void check_write(Cta& c, u32 a, u32 n, Warp& w, const char* what) {
  for (u32 k = a / 16; k <= (a + n - 1) / 16; ++k) write_chunk(c, k, w.vc, what);
  for (u32 g = a / 4; g <= (a + n - 1) / 4; ++g) write_word(c, g, w.vc, false, w.now(), what);
  ++c.sh->writes;
}
void check_async_write(Cta& c, u32 k, const Clocks& vc, Epoch e, const char* what) {
  write_chunk(c, k, vc, what);
  for (u32 g = 0; g < 4; ++g) write_word(c, k * 4 + g, vc, true, e, what);
}
void check_async_read(Cta& c, u32 k, const Clocks& vc, const char* what) {
  Shadow& s = *c.sh;
  Epoch last = 0;
  for (u32 g = 0; g < 4; ++g) {
    const Epoch e = s.wr[k * 4 + g];
    if (e == last && e) continue;
    last = e;
    if (!e) fault("uninitialised-shared", "%s of +%u, which nobody wrote", what, k * 16 + g * 4 - kSharedBase);
    else if (!vc.sees(e))
      fault("shared-race", "%s of +%u is not ordered after the write by %s", what, k * 16 + g * 4 - kSharedBase,
            name_of(e).c_str());
    else if (!is_engine(e) && !vc.sees_fenced(e))
      fault("missing-proxy-fence", "%s of +%u, stored by %s without fence.proxy.async", what,
            k * 16 + g * 4 - kSharedBase, name_of(e).c_str());
  }
}
void touch_remote(Cta& c, Warp& w, const char* what) {
  if (&c == w.cta) return;
  if (!c.live) fault("peer-exited", "%s on CTA %u, which has exited", what, c.rank);
  c.remote[w.agent] = w.now();
}
extern "C" u32 emu_shared_dyn() { return kSharedBase; }
extern "C" u32 emu_shared_static(int id, u32 bytes) {
  Cta& c = *me().warp->cta;
  for (auto& x : c.static_addr)
    if (x.first == id) return x.second;
  const u32 a = c.statics;
  c.statics = (a + bytes + 127) / 128 * 128;
  c.limit = a + bytes;
  if (c.limit > kSharedEnd) {
    fault("launch", "too much shared memory");
    die();
  }
  std::memset(c.sh->mem.p + a, 0xff, bytes);
  c.static_addr.push_back({id, a});
  return a;
}
/// The block of the cluster with this rank, or this warp's own where it is negative.
static Cta& block_of(Warp& w, int rank, const char* what) {
  if (rank < 0) return *w.cta;
  if (static_cast<u32>(rank) >= rt.ctas.size()) {
    fault("bad-cluster-rank", "CTA %d", rank);
    die();
  }
  Cta& c = *rt.ctas[static_cast<size_t>(rank)];
  touch_remote(c, w, what);
  return c;
}
extern "C" void emu_ld_shared(u32 a, void* out, int bytes, int cta) {
  HERE();
  Warp& w = *me().warp;
  Cta& c = block_of(w, cta, "load");
  if (a % bytes) fault("misaligned", "%d-byte shared load at +%u", bytes, a - kSharedBase);
  if (!in_shared(c, a, bytes, "load")) die();
  check_read(c, a, bytes, w, "load");
  std::memcpy(out, c.sh->mem.p + a, bytes);
}
extern "C" void emu_st_shared(u32 a, const void* v, int bytes, int cta) {
  HERE();
  Warp& w = *me().warp;
  Cta& c = block_of(w, cta, "store");
  if (a % bytes) fault("misaligned", "%d-byte shared store at +%u", bytes, a - kSharedBase);
  if (!in_shared(c, a, bytes, "store")) die();
  check_write(c, a, bytes, w, "store");
  std::memcpy(c.sh->mem.p + a, v, bytes);
}
extern "C" void emu_fence_proxy_async() {
  HERE();
  Clocks& v = me().warp->vc;
  const size_t n = v.t.size() / 2;
  for (size_t i = 0; i < n; ++i) v.t[n + i] = std::max(v.t[n + i], v.t[i]);
  ++v.t[me().warp->agent];  // what this warp stores from here on is not covered
}

}  // namespace ingot::emulation
