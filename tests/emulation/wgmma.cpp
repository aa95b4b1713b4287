// wgmma is asynchronous: from its issue to the wait_group that covers it the accumulators belong to the tensor core.
// Their values live in Acc::tile, the thread's registers hold a poison, and the wait checks that nobody changed it.
// Each warp computes its own 16 rows; a log per warpgroup checks that the four warps issue the same sequence.
#include "tests/emulation/wgmma.h"

#include <algorithm>

namespace ingot::emulation {

constexpr u32 kPoison = 0x7fa0dead;  // a signalling NaN: any arithmetic on it changes its bits
static void execute(Warp& w, WgOp& o) {
  Cta& c = *w.cta;
  alignas(64) float a[32 * 16];
  const int K = k_of(o.type);
  std::vector<u16> ca;
  if (o.from_regs) {
    for (u32 l = 0; l < 32; ++l)
      for (u32 q = 0; q < 4; ++q) {
        const u32 row = l / 4 + (q & 1) * 8, v = o.a[l][q];
        if (o.type == 2) a[(l % 4 + (q >> 1) * 4) * 16 + row] = tf32_value(v);
        else
          for (u32 h = 0; h < 2; ++h) {
            const u16 e = (u16)(v >> 16 * h);
            a[((q >> 1) * 8 + l % 4 * 2 + h) * 16 + row] = o.type ? bf16_value(e) : kHalf[e];
          }
      }
  } else decode(c, o.da, type_of_a(o.type), o.ta, w.idx % 4 * 16, 16, a, 16, ca);
  Panel& p = panel_of(c, o.db, o.n, type_of_b(o.type), o.tb);
  for (u16 k : ca) {
    check_async_read(c, k, w.vc, "wgmma operand A");
    ++c.sh->pend[k];
    o.chunk[o.chunks++] = k;
  }
  for (u16 k : p.chunks) {
    check_async_read(c, k, w.vc, "wgmma operand B");
    ++c.sh->pend[k];
    o.chunk[o.chunks++] = k;
  }
  if (!o.scale_d) std::memset(o.acc->tile, 0, sizeof(float) * 16 * o.n);
  if (is_bytes(o.type)) {
    std::vector<float> sums(static_cast<size_t>(16 * o.n));  // of 32 products, exact
    multiply(sums.data(), o.n, a, p.v, K);
    for (int i = 0; i < 16 * o.n; ++i) {
      const u32 sum = __builtin_bit_cast(u32, o.acc->tile[i]) + (u32)(int)sums[static_cast<size_t>(i)];  // wraps
      std::memcpy(&o.acc->tile[i], &sum, 4);
    }
  } else {
    const int together = is_f8(o.type) ? kF8Together : K;
    for (int k = 0; k < K; k += together) {
      multiply(o.acc->tile, o.n, a + k * 16, p.v + k * o.n, together);
      for (int i = 0; is_f8(o.type) && i < 16 * o.n; ++i) o.acc->tile[i] = cut_f8_sum(o.acc->tile[i]);
    }
  }
  ++rt.res.wgmmas;
}
static void retire(Warp& w, WgOp& o) {
  Shadow& s = *w.cta->sh;
  for (int i = 0; i < o.chunks; ++i) {
    const u16 k = o.chunk[i];
    --s.pend[k];
    s.ard[k * 16 + w.idx % 16] = w.vc.t[w.agent];
    s.flag[k] |= 4;
  }
  if (o.from_regs)
    for (u32 l = 0; l < 32; ++l)
      if (std::memcmp(o.a[l], o.a_reg[l], 16)) {
        fault("wgmma-operand-changed", "A registers changed before wait_group");
        break;
      }
  Acc* a = o.acc;
  if (--a->inflight) return;
  bool bad = false;
  for (u32 l = 0; l < 32; ++l) {
    float* d = a->reg[l];
    const u32 r = l / 4;
    for (int j = 0; j < a->n / 8; ++j)
      for (int q = 0; q < 4; ++q) {
        bad |= __builtin_bit_cast(u32, d[4 * j + q]) != kPoison;
        d[4 * j + q] = a->tile[(r + (q >> 1) * 8) * a->n + 8 * j + 2 * (l % 4) + (q & 1)];
      }
  }
  if (bad)
    fault("wgmma-accumulator-touched",
          "accumulator registers were written between wgmma and the wait_group that covers it");
  for (auto& x : w.accs)
    if (x.get() == a) {
      w.free_accs.push_back(std::move(x));
      x = std::move(w.accs.back());
      w.accs.pop_back();
      break;
    }
}
extern "C" void emu_wgmma_fence() {
  HERE();
  ++me().wg_fence;
  me().wg_waits = 0;
}
/// A record of one instruction of a warp, made by the first lane that issues it.
static void open_op(Warp& w, const WgSig& sig, float* d, bool from_registers, int ta, int tb) {
  std::unique_ptr<WgOp> p;
  if (w.free_ops.empty()) p = std::make_unique<WgOp>();
  else {
    p = std::move(w.free_ops.back());
    w.free_ops.pop_back();
  }
  const Fiber& f = me();
  p->da = sig.da;
  p->db = sig.db;
  p->n = sig.n;
  p->type = sig.type;
  p->ta = ta;
  p->tb = tb;
  p->scale_d = sig.scale_d;
  p->from_regs = from_registers;
  p->lanes = 0;
  p->chunks = 0;
  p->acc = nullptr;
  p->pc = f.pc;
  for (auto& x : w.accs)
    if (x->reg[f.lane] == d && x->n == sig.n) p->acc = x.get();
  p->starts = !p->acc;
  if (p->starts) {
    if (w.free_accs.empty()) w.accs.push_back(std::make_unique<Acc>());
    else {
      w.accs.push_back(std::move(w.free_accs.back()));
      w.free_accs.pop_back();
    }
    p->acc = w.accs.back().get();
    p->acc->n = sig.n;
    p->acc->inflight = 0;
    for (auto& r : p->acc->reg) r = nullptr;
  }
  ++p->acc->inflight;
  w.ops.push_back(std::move(p));
}

/// The tensor core takes a lane's accumulators: their values go to the tile, a poison into the registers.
static void take_accumulators(WgOp& o, float* d) {
  Fiber& f = me();
  if (!f.wg_fence || f.wg_waits)
    fault("missing-wgmma-fence", "first wgmma on registers that were in use, without wgmma.fence");
  o.acc->reg[f.lane] = d;
  const u32 r = f.lane / 4;
  for (int j = 0; j < o.n / 8; ++j)
    for (int q = 0; q < 4; ++q) {
      if (o.scale_d) {
        const u32 v = __builtin_bit_cast(u32, d[4 * j + q]);
        if (v == 0xfefefefe || v == ~0u)
          fault("uninitialised-accumulator", "wgmma adds to registers that were never written");
        o.acc->tile[(r + (q >> 1) * 8) * o.n + 8 * j + 2 * (f.lane % 4) + (q & 1)] = d[4 * j + q];
      }
      d[4 * j + q] = __builtin_bit_cast(float, kPoison);
    }
}

extern "C" void emu_wgmma(float* d, int n, int type, u64 da, const u32* a, u64 db, int ta, int tb, int scale_d) {
  HERE();
  Fiber& f = me();
  Warp& w = *f.warp;
  const u32 k = f.wg_ops++;
  const WgSig mine{da, db, n, type, scale_d != 0};
  if (n % 8 || n > 256 || (type >= 2 && (ta || tb)) || (type >= 3 && a)) {
    fault("bad-wgmma", "n %d type %d", n, type);
    die();
  }
  if (k < w.op_base) {
    fault("warp-diverged", "a lane issues a wgmma that its warp has already waited for");
    die();
  }
  auto& log = w.cta->wg_log[w.idx / 4];
  if (k - w.op_base == w.ops.size()) {  // first lane here
    open_op(w, mine, d, a != nullptr, ta, tb);
    if (log.size() <= k) log.push_back(mine);
  }
  WgOp& o = *w.ops[k - w.op_base];
  if (!(mine == log[k]) || !(mine == WgSig{o.da, o.db, o.n, o.type, o.scale_d}))
    fault("wgmma-not-uniform",
          "the threads of a warpgroup issue different wgmmas (descriptors %llx/%llx and %llx/%llx)", da, db, log[k].da,
          log[k].db);
  if (o.starts) take_accumulators(o, d);
  else if (o.acc->reg[f.lane] != d) fault("wgmma-not-uniform", "lanes of a warp use different accumulators");
  if (a) {
    std::memcpy(o.a[f.lane], a, 16);
    o.a_reg[f.lane] = a;
  }
  if ((o.lanes |= 1u << f.lane) == ~0u) execute(w, o);
}
extern "C" void emu_wgmma_commit() {
  HERE();
  Fiber& f = me();
  Warp& w = *f.warp;
  const u32 g = f.wg_groups++;
  if (g >= w.group_end.size()) w.group_end.push_back(f.wg_ops);
  else if (w.group_end[g] != f.wg_ops) fault("wgmma-not-uniform", "lanes of a warp commit different groups");
}
extern "C" void emu_wgmma_wait(int n) {
  HERE();
  Fiber& f = me();
  Warp& w = *f.warp;
  if (collective(5)) {
    const u32 groups = (u32)w.group_end.size(), upto = groups > (u32)n ? groups - (u32)n : 0;
    while (w.retired_groups < upto) {
      const u32 end = w.group_end[w.retired_groups++];
      while (w.op_base < end) {
        if (w.ops.front()->lanes != ~0u) {
          fault("warp-diverged", "not all lanes issued a wgmma");
          die();
        }
        retire(w, *w.ops.front());
        w.free_ops.push_back(std::move(w.ops.front()));
        w.ops.erase(w.ops.begin());
        ++w.op_base;
      }
    }
    collective_finish();
  }
  f.wg_waits = 1;
}
void wgmma_exit_checks(Warp& w) {
  if (!w.ops.empty()) fault("exit-with-wgmma-in-flight", "a warp exits without waiting for its wgmmas");
  w.free_ops.clear();
}

}  // namespace ingot::emulation
