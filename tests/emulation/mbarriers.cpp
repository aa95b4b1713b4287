// Memory barriers: arrivals, expected bytes, phases, and what a completed phase makes visible.
#include "tests/emulation/core.h"

#include <algorithm>

namespace ingot::emulation {

static Mbar* bar_at(Cta& c, u32 a, const char* what) {
  if (a % 8) {
    fault("misaligned", "%s of an mbarrier at +%u", what, a - kSharedBase);
    die();
  }
  if (!in_shared(c, a, 8, what)) die();
  Mbar* b = c.sh->bars[a / 8].get();
  if (!b) {
    fault("mbarrier-not-initialised", "%s at +%u, where no mbarrier was initialised", what, a - kSharedBase);
    die();
  }
  return b;
}
static void check_visible(Mbar* b, const char* what) {
  if (!me().warp->vc.sees(b->init))
    fault("mbarrier-race", "%s of the mbarrier at +%u is not ordered after its init", what, b->addr - kSharedBase);
}
static void mbar_check(Mbar* b) {
  if (b->pending || b->tx) return;
  ++b->phase;
  b->pending = b->count;
  b->done = b->cur;
  for (Fiber* f : b->waiters) wake(f);
  b->waiters.clear();
}
extern "C" void emu_mbar_init(u32 a, u32 count) {
  HERE();
  Warp& w = *me().warp;
  Cta& c = *w.cta;
  if (a % 8) fault("misaligned", "mbarrier at +%u", a - kSharedBase);
  if (!in_shared(c, a, 8, "mbarrier.init")) die();
  if (!count || count >= 1u << 20) fault("bad-mbarrier-count", "count %u", count);
  auto& p = c.sh->bars[a / 8];
  if (!p) {
    p = std::make_unique<Mbar>();
    c.sh->bar_list.push_back(a);
  } else fault("mbarrier-init-twice", "mbarrier at +%u", a - kSharedBase);
  p->addr = a;
  p->count = p->pending = count;
  p->init = w.now();
  p->init_thread = me().lin;
  p->cur.t.assign(2 * rt.agents, 0);
  p->done = p->cur;
  c.sh->flag[a / 16] |= 2;
}
extern "C" void emu_fence_mbar_init() {
  HERE();
  Cta& c = *me().warp->cta;
  for (u32 a : c.sh->bar_list)
    if (c.sh->bars[a / 8]->init_thread == me().lin) c.sh->bars[a / 8]->visible = true;
}
extern "C" void emu_mbar_arrive(u32 a, u32 tx, int cta) {
  HERE();
  give_way();
  Warp& w = *me().warp;
  Cta* c = w.cta;
  if (cta >= 0) {
    if ((u32)cta >= rt.ctas.size()) {
      fault("bad-cluster-rank", "CTA %d", cta);
      die();
    }
    c = rt.ctas[cta].get();
    touch_remote(*c, w, "arrive");
  }
  Mbar* b = bar_at(*c, a, "arrive");
  check_visible(b, "arrive");
  if (!b->pending) {
    fault("mbarrier-overrun", "more arrivals than the count %u in one phase at +%u", b->count, a - kSharedBase);
    return;
  }
  b->tx += tx;
  if (b->tx >= 1 << 20) fault("mbarrier-tx-overflow", "%ld bytes expected", b->tx);
  release_to(b->cur, w);
  --b->pending;
  mbar_check(b);
  give_way();
}
extern "C" u32 emu_mbar_try_wait(u32 a, u32 parity) {
  HERE();
  Warp& w = *me().warp;
  Mbar* b = bar_at(*w.cta, a, "wait");
  check_visible(b, "wait");
  if (parity > 1) fault("bad-parity", "parity %u", parity);
  if ((b->phase & 1) == (parity & 1)) {  // suspends, like the instruction, until the phase completes or "time" is over
    b->waiters.push_back(&me());
    me().timed = true;
    block(Wait::Mbar, a, parity);
    me().timed = false;
    if ((b->phase & 1) == (parity & 1)) return 0;
  }
  w.vc.join(b->done);
  rt.timeouts = 0;
  return 1;
}
extern "C" void emu_mbar_wait(u32 a, u32 parity) {
  HERE();
  Warp& w = *me().warp;
  Mbar* b = bar_at(*w.cta, a, "wait");
  check_visible(b, "wait");
  if (parity > 1) fault("bad-parity", "parity %u", parity);
  while ((b->phase & 1) == (parity & 1)) {
    b->waiters.push_back(&me());
    block(Wait::Mbar, a, parity);
  }
  w.vc.join(b->done);
  give_way();
}
void mbar_complete_tx(Cta& c, u32 a, u32 bytes, const Clocks& vc, Epoch e) {
  Mbar* b = c.sh->bars[a / 8].get();
  if (!b) {
    fault("mbarrier-not-initialised", "TMA completes on +%u, where no mbarrier is", a - kSharedBase);
    return;
  }
  b->cur.join(vc);
  u32& t = b->cur.t[e >> kTimeBits];
  t = std::max(t, e & kTimeMask);
  b->tx -= bytes;
  if (b->tx <= -(1 << 20)) fault("mbarrier-tx-overflow", "%ld bytes", b->tx);
  mbar_check(b);
}

}  // namespace ingot::emulation
