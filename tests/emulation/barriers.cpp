// Barriers of threads and of clusters, and the functions that the lanes of a warp execute together.
#include "tests/emulation/core.h"

#include <algorithm>

namespace ingot::emulation {

void release_to(Clocks& c, Warp& w) {
  c.join(w.vc);
  ++w.vc.t[w.agent];
}

// ---- barriers of threads ----
static void bar_complete(NamedBar& b) {
  for (Fiber* f : b.waiters) {
    f->warp->vc.join(b.vc);
    wake(f);
  }
  b.waiters.clear();
  b.arrived = b.expect = 0;
  std::fill(b.vc.t.begin(), b.vc.t.end(), 0);
}
extern "C" void emu_bar(int id, int threads, int wait) {
  HERE();
  Fiber& f = me();
  Cta& c = *f.warp->cta;
  if (id < 0 || id > 15) {
    fault("bad-barrier", "named barrier %d", id);
    die();
  }
  give_way();
  NamedBar& b = c.bars[id];
  const u32 n = threads ? (u32)threads : c.threads;
  if (b.arrived && b.expect != n)
    fault("barrier-count-mismatch", "barrier %d used with %u threads while others said %u", id, n, b.expect);
  b.expect = n;
  release_to(b.vc, *f.warp);
  if (++b.arrived >= n) {
    if (b.arrived > n) fault("barrier-overrun", "barrier %d: %u arrivals for %u", id, b.arrived, n);
    f.warp->vc.join(b.vc);
    bar_complete(b);
    return;
  }
  if (wait) {
    b.waiters.push_back(&f);
    block(Wait::Bar, (u32)id, n);
  }
}
/// `releases`: what this warp has done so far comes before what the others do behind the barrier.
static void cluster_arrive(bool releases) {
  NamedBar& b = rt.cluster_bar;
  Fiber& f = me();
  if (f.cluster_armed) fault("cluster-arrive-twice", "barrier.cluster.arrive again without a wait between");
  f.cluster_armed = true;
  f.cluster_phase = rt.cluster_phase;
  if (releases) release_to(b.vc, *f.warp);
  u32 n = 0;
  for (auto& c : rt.ctas) n += c->threads;
  if (++b.arrived == n) {
    rt.cluster_done = b.vc;
    for (Fiber* x : b.waiters) wake(x);
    b.waiters.clear();
    b.arrived = 0;
    ++rt.cluster_phase;
  }
}
extern "C" void emu_cluster_arrive() {
  HERE();
  cluster_arrive(true);
}
extern "C" void emu_cluster_arrive_relaxed() {
  HERE();
  cluster_arrive(false);
}
extern "C" void emu_cluster_wait() {
  HERE();
  Fiber& f = me();
  if (!f.cluster_armed) {
    fault("cluster-wait-without-arrive", "barrier.cluster.wait");
    return;
  }
  f.cluster_armed = false;
  if (f.cluster_phase == rt.cluster_phase) {
    rt.cluster_bar.waiters.push_back(&f);
    block(Wait::Cluster, 0, 0);
  }
  f.warp->vc.join(rt.cluster_done);  // an arrival alone orders nothing for who arrives
}
extern "C" u32 emu_cluster_rank() { return me().warp->cta->rank; }
extern "C" void emu_setmaxnreg(int n) {
  HERE();
  if (n < 24 || n > 256 || n % 8) fault("bad-setmaxnreg", "%d registers", n);
  // A warp that asks for more waits until others have given as many back. Once all have asked, what they have together must be
  // no more than the launch had: with one block an SM, as many as four register files hold for their warps.
  Warp& w = *me().warp;
  w.registers = (u32)n;
  const u32 warps = rt.warps_per_block, launch = 65536 / ((warps + 3) / 4 * 128) / 8 * 8;
  u32 asked = 0, together = 0;
  for (const Warp* x : w.cta->warps) asked += x->registers > 0, together += x->registers;
  if (me().lane == 0 && asked == warps && together > launch * warps)
    fault("too-many-registers", "%u warps ask for %u registers a lane, the launch has %u", warps, together, launch * warps);
}

// ---- warp collectives ----
bool collective(int kind) {
  Fiber& f = me();
  Warp& w = *f.warp;
  if (w.arrived && w.kind != kind) fault("warp-diverged", "lanes of one warp are in different collective functions");
  w.kind = kind;
  w.arrived |= 1u << f.lane;
  if ((w.arrived & w.alive) == w.alive) return true;
  block(Wait::Warp, (u32)kind, 0);
  return false;
}
void collective_finish() {
  Warp& w = *me().warp;
  const u32 m = w.arrived & ~(1u << me().lane);
  w.arrived = 0;
  Fiber* f0 = &rt.fibers[w.cta->rank * w.cta->threads + w.idx * 32];
  for (u32 l = 0; l < 32; ++l)
    if (m >> l & 1) wake(f0 + l);
}
extern "C" void emu_warp_sync() {
  HERE();
  if (collective(1)) collective_finish();
}
extern "C" u64 emu_shfl_bits(u64 v, int kind, int arg) {
  HERE();
  Warp& w = *me().warp;
  const u32 l = me().lane;
  w.slot[l] = v;
  const u32 src = kind == 0 ? (u32)arg & 31 : kind == 1 ? l ^ (u32)arg : (l + (u32)arg < 32 ? l + (u32)arg : l);
  w.addr[l] = src;
  if (collective(20 + kind)) {
    for (u32 i = 0; i < 32; ++i)
      if (w.alive >> i & 1) {
        if (!(w.alive >> w.addr[i] & 1)) fault("shuffle-from-exited-lane", "lane %u reads lane %u", i, w.addr[i]);
        w.out[i] = w.slot[w.addr[i]];
      }
    collective_finish();
  }
  return w.out[l];
}
extern "C" u32 emu_ballot(int p) {
  HERE();
  Warp& w = *me().warp;
  const u32 l = me().lane;
  w.slot[l] = p != 0;
  if (collective(3)) {
    u32 m = 0;
    for (u32 i = 0; i < 32; ++i)
      if (w.alive >> i & 1) m |= (u32)w.slot[i] << i;
    for (auto& o : w.out) o = m;
    collective_finish();
  }
  return (u32)w.out[l];
}
extern "C" u32 emu_elect() {
  HERE();
  Warp& w = *me().warp;
  const u32 l = me().lane;
  if (collective(4)) {
    const u32 first = (u32)__builtin_ctz(w.alive);
    for (u32 i = 0; i < 32; ++i) w.out[i] = i == first;
    collective_finish();
  }
  return (u32)w.out[l];
}

}  // namespace ingot::emulation
