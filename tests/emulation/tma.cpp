// TMA loads and stores, tiled and im2col, and bulk groups. An operation runs when the scheduler likes, not when issued.
#include "tests/emulation/core.h"

#include <algorithm>

namespace ingot::emulation {

static u32 swizzled(Swizzle s, u32 a) {
  if (s == Swizzle::B128) return a ^ ((a >> 7 & 7) << 4);
  if (s == Swizzle::B64) return a ^ ((a >> 7 & 3) << 4);
  if (s == Swizzle::B32) return a ^ ((a >> 7 & 1) << 4);
  return a;
}
// calls f(shared address of a row's first byte before swizzling, global address or null, first x, bytes of the row)
template <class F>
static void each_row(const AsyncOp& o, F f) {
  const MapInfo& m = *o.map;
  if (!m.im2col) {
    const u32 row = m.box[0] * m.esz;
    u32 dst = o.smem;
    for (u32 v = 0; v < m.box[4]; ++v)
      for (u32 w = 0; w < m.box[3]; ++w)
        for (u32 z = 0; z < m.box[2]; ++z)
          for (u32 y = 0; y < m.box[1]; ++y, dst += row) {
            const u32 add[5] = {0, y, z, w, v};
            u8* p = m.base;
            for (int i = 1; i < m.rank && p; ++i) {
              const long q = (long)o.coord[i] + add[i];
              p = q < 0 || q >= (long)m.dims[i] ? nullptr : p + q * m.strides[i];
            }
            f(dst, p, o.coord[0], row);
          }
    return;
  }
  const int sp = m.rank - 2;
  const u32 row = m.channels * m.esz;
  u32 dst = o.smem;
  long pos[4];
  for (int i = 0; i < sp; ++i) pos[i] = o.coord[1 + i];
  long n = o.coord[m.rank - 1];
  for (u32 k = 0; k < m.pixels; ++k, dst += row) {
    u8* p = n < 0 || n >= (long)m.dims[m.rank - 1] ? nullptr : m.base + n * m.strides[m.rank - 1];
    for (int i = 0; i < sp && p; ++i) {
      const long q = pos[i] + o.off[i];
      p = q < 0 || q >= (long)m.dims[1 + i] ? nullptr : p + q * m.strides[1 + i];
    }
    f(dst, p, o.coord[0], row);
    int i = 0;
    for (; i < sp; ++i) {
      pos[i] += m.step[1 + i];
      if (pos[i] <= (long)m.dims[1 + i] - 1 + m.upper[i]) break;
      pos[i] = m.lower[i];
    }
    if (i == sp) ++n;
  }
}
static void copy_clipped(u8* dst, const u8* row, const MapInfo& m, long x,
                         u32 col) {  // 16 bytes, element x + col/esz on
  const long first = x * m.esz + col, end = (long)m.dims[0] * m.esz;
  if (row && first >= 0 && first + 16 <= end) {
    std::memcpy(dst, row + first, 16);
  } else {
    std::memset(dst, 0, 16);
    if (row)
      for (int i = 0; i < 16; ++i)
        if (first + i >= 0 && first + i < end) dst[i] = row[first + i];
  }
  if (m.elem == Elem::TF32)
    for (int i = 0; i < 4; ++i) {
      u32 v;
      std::memcpy(&v, dst + 4 * i, 4);
      v += 0xfff + (v >> 13 & 1);
      v &= ~0x1fffu;
      std::memcpy(dst + 4 * i, &v, 4);
    }
}
bool run_async(AsyncOp* o) {
  rt.queue.erase(std::find(rt.queue.begin(), rt.queue.end(), o));
  Fiber* const saved = rt.cur;
  Fiber f{};
  f.warp = o->warp;
  f.lane = o->lin % 32;
  f.pc = o->pc;
  rt.cur = &f;  // reports name the issuer
  const MapInfo& m = *o->map;
  if (o->store) {
    each_row(*o, [&](u32 src, u8* row, long x, u32 bytes) {
      if (row)
        for (u32 c = 0; c < bytes; c += 16) {
          const long first = x * m.esz + c, end = (long)m.dims[0] * m.esz;
          const u8* s = o->cta->sh->mem.p + swizzled(m.swizzle, src + c);
          for (int i = 0; i < 16; ++i)
            if (first + i >= 0 && first + i < end) row[first + i] = s[i];
        }
    });
  } else {
    for (u32 r = 0; r < rt.ctas.size(); ++r)
      if (o->ctas >> r & 1) {
        Cta& c = *rt.ctas[r];
        Shadow& s = *c.sh;
        const u32 agent = c.agent0 + rt.warps_per_block + o->bar / 8 % kEngines;
        static u32 tick[kMostAgents + 1];
        static u32 base = 0;
        if (base != rt.clock_base) {
          base = rt.clock_base;
          for (auto& t : tick) t = base;
        }
        const Epoch e = agent << kTimeBits | ++tick[agent];
        if (!c.live) fault("peer-exited", "TMA writes into a CTA that has exited");
        each_row(*o, [&](u32 dst, u8* row, long x, u32 bytes) {
          for (u32 k = 0; k < bytes; k += 16) {
            const u32 a = swizzled(m.swizzle, dst + k);
            check_async_write(c, a / 16, o->vc, e, "TMA write");
            copy_clipped(s.mem.p + a, row, m, x, k);
          }
        });
        ++s.writes;
        mbar_complete_tx(c, o->bar, m.bytes, o->vc, e);
      }
  }
  o->done = true;
  rt.cur = saved;
  return true;
}
static AsyncOp* queue(const MapInfo* m, u32 smem, bool store) {
  Warp& w = *me().warp;
  auto p = std::make_unique<AsyncOp>();
  AsyncOp* o = p.get();
  o->store = store;
  o->map = m;
  o->smem = smem;
  o->cta = w.cta;
  o->warp = &w;
  o->lin = me().lin;
  o->vc = w.vc;
  o->pc = me().pc;
  for (auto& x : o->coord) x = 0;
  for (auto& x : o->off) x = 0;
  rt.ops.push_back(std::move(p));
  rt.queue.push_back(o);
  ++rt.res.tma_ops;
  return o;
}
static AsyncOp* make(const void* map, u32 smem, int rank, const int* coord, int offsets, bool store) {
  const TensorMap& t = *(const TensorMap*)map;
  Warp& w = *me().warp;
  if ((size_t)map % 64) fault("bad-tensor-map", "not 64-byte aligned");
  if (t.d[0] != kMapMagic) {
    fault("bad-tensor-map", "not an encoded tensor map");
    die();
  }
  const MapInfo* m = (const MapInfo*)t.d[1];
  if (m->rank != rank || m->im2col != (offsets > 0)) {
    fault("bad-tensor-map", "rank %d %s map used by a rank %d %s access", m->rank, m->im2col ? "im2col" : "tiled", rank,
          offsets ? "im2col" : "tiled");
    die();
  }
  if (smem % 128) {
    fault("misaligned", "TMA at shared +%u, needs 128 bytes", smem - kSharedBase);
    die();
  }
  if (!in_shared(*w.cta, smem, m->bytes, store ? "TMA store" : "TMA load")) die();
  check_late(find_alloc(m->base, 1), w, store ? "TMA store into" : "TMA load from");
  AsyncOp* o = queue(m, smem, store);
  for (int i = 0; i < rank; ++i) o->coord[i] = coord[i];
  return o;
}
/// A copy of bytes is a box of one row.
static AsyncOp* make_bytes(const void* global, u32 smem, u32 bytes, bool store) {
  Warp& w = *me().warp;
  const char* what = store ? "bulk store" : "bulk load";
  if (smem % 16 || (size_t)global % 16 || bytes % 16 || bytes == 0) {
    fault("misaligned", "%s of %u bytes at shared +%u: all three must be multiples of 16", what, bytes, smem - kSharedBase);
    die();
  }
  if (!in_shared(*w.cta, smem, bytes, what)) die();
  const Buffer* a = find_alloc(global, bytes);
  if (!a) {
    fault("global-out-of-bounds", "%s of %u bytes, %s", what, bytes, near_alloc(global).c_str());
    die();
  }
  check_late(a, w, store ? "bulk store into" : "bulk load from");
  AsyncOp* o = queue(nullptr, smem, store);
  o->bytes = {};
  o->bytes.esz = 1;
  o->bytes.rank = 1;
  o->bytes.base = (u8*)global;
  o->bytes.dims[0] = o->bytes.bytes = bytes;
  for (u32& b : o->bytes.box) b = 1;
  o->bytes.box[0] = bytes;
  o->bytes.elem = Elem::U8;
  o->bytes.swizzle = Swizzle::None;
  o->map = &o->bytes;
  return o;
}
/// The op signals the mbarrier at `bar` in its blocks.
static void signal(AsyncOp* o, u32 bar) {
  Warp& w = *me().warp;
  o->bar = bar;
  for (u32 r = 0; r < 32; ++r)
    if (o->ctas >> r & 1) {
      if (r >= rt.ctas.size()) {
        fault("bad-cluster-rank", "multicast to CTA %u", r);
        die();
      }
      Cta& c = *rt.ctas[r];
      touch_remote(c, w, "TMA load");
      Mbar* b = in_shared(c, bar, 8, "mbarrier of a TMA load") && bar % 8 == 0 ? c.sh->bars[bar / 8].get() : nullptr;
      if (!b) {
        fault("mbarrier-not-initialised", "TMA load signals +%u, where no mbarrier is", bar - kSharedBase);
        die();
      }
      if (!w.vc.sees(b->init))
        fault("mbarrier-race", "TMA load uses the mbarrier at +%u of CTA %u, not ordered after its init",
              bar - kSharedBase, r);
      if (!b->visible)
        fault("mbarrier-init-not-fenced",
              "TMA uses the mbarrier at +%u, whose init was not followed by fence.mbarrier_init", bar - kSharedBase);
    }
  ++w.vc.t[w.agent];  // later accesses of this thread are not ordered before the load
  give_way();
}
/// What the op will read of shared memory must not change until it has.
static void reads_shared(AsyncOp* o) {
  Warp& w = *me().warp;
  const MapInfo& m = *o->map;
  Shadow& s = *w.cta->sh;
  const Buffer* a = find_alloc(m.base, 1);
  if (a && a->read_only) fault("write-to-input", "TMA store into '%s'", a->name.c_str());
  each_row(*o, [&](u32 adr, u8* row, long x, u32 bytes) {
    for (u32 c = 0; c < bytes; c += 16) {
      const long first = x * m.esz + c;
      if (!row || first < 0 || first >= (long)m.dims[0] * m.esz) continue;  // clipped: not read
      const u32 k = swizzled(m.swizzle, adr + c) / 16;
      check_async_read(*w.cta, k, w.vc, "TMA store");
      ++s.pend[k];
      o->chunk.push_back((u16)k);
    }
  });
  me().bulk_open.push_back(o);
  give_way();
}
extern "C" void emu_bulk_load(u32 dst, const void* src, u32 bytes, u32 bar) {
  HERE();
  AsyncOp* o = make_bytes(src, dst, bytes, false);
  o->ctas = 1u << me().warp->cta->rank;
  signal(o, bar);
}
extern "C" void emu_bulk_store(void* dst, u32 src, u32 bytes) {
  HERE();
  reads_shared(make_bytes(dst, src, bytes, true));
}
extern "C" void emu_tma_load(u32 dst, const void* map, u32 bar, int rank, const int* coord, const u16* offset,
                             int offsets, int ctas) {
  HERE();
  AsyncOp* o = make(map, dst, rank, coord, offsets, false);
  for (int i = 0; i < offsets; ++i) o->off[i] = offset[i];
  o->ctas = ctas < 0 ? 1u << me().warp->cta->rank : (u32)ctas;
  signal(o, bar);
}
extern "C" void emu_tma_store(const void* map, u32 src, int rank, const int* coord) {
  HERE();
  reads_shared(make(map, src, rank, coord, 0, true));
}
extern "C" void emu_bulk_commit() {
  HERE();
  Fiber& f = me();
  f.bulk.push_back({f.bulk_open});
  f.bulk_open.clear();
}
extern "C" void emu_bulk_wait(int n, int) {
  HERE();
  give_way();
  Fiber& f = me();
  Warp& w = *f.warp;
  Shadow& s = *w.cta->sh;
  while ((int)f.bulk.size() > n) {
    for (AsyncOp* o : f.bulk.front().ops) {
      if (!o->done) run_async(o);
      for (u16 k : o->chunk) {
        --s.pend[k];
        s.ard[k * 16 + w.idx % 16] = w.vc.t[w.agent];
        s.flag[k] |= 4;
      }
      o->read_done = true;
    }
    f.bulk.erase(f.bulk.begin());
  }
}

}  // namespace ingot::emulation
