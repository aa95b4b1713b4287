// Fibers and launches: every CUDA thread is a fiber; a seeded scheduler picks warps, the order of lanes, preemption
// points, and the moment at which an asynchronous operation runs.
#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <mutex>

#include "tests/emulation/core.h"

extern "C" {
uint3 threadIdx, blockIdx, blockDim, gridDim;
}
asm(R"(.text
.globl emu_switch
.type emu_switch,@function
emu_switch:
  pushq %rbp; pushq %rbx; pushq %r12; pushq %r13; pushq %r14; pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15; popq %r14; popq %r13; popq %r12; popq %rbx; popq %rbp
  ret
)");

namespace ingot::emulation {

Runtime rt;

namespace {
constexpr size_t kStack = 64 << 10;  // bytes of one thread
}

void die() {
  rt.stop = true;
  rt.res.completed = false;
  emu_switch(&rt.cur->sp, rt.main_sp);
  std::abort();
}

/// Where a thread goes on after a bad access: out of the launch.
static void leave_after_signal() { die(); }

/// Guard pages, and the traps of -fsanitize=bounds,shift,integer-divide-by-zero. The report is made here; the thread
/// then leaves the launch from the top of its stack, so that the process can go on with the next launch.
static void on_signal(int sig, siginfo_t* info, void* context) {
  if (!rt.cur) {
    std::signal(sig, SIG_DFL);
    return;
  }
  auto& registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  rt.cur->pc = reinterpret_cast<void*>(registers[REG_RIP] + 1);
  if (sig == SIGSEGV || sig == SIGBUS) {
    fault("global-out-of-bounds", "access to %p, %s", info->si_addr, near_alloc(info->si_addr).c_str());
  } else {
    fault("undefined-behaviour", "%s",
          sig == SIGILL ? "index of a local array out of bounds, a shift too long, or division by zero"
                        : "division by zero");
  }
  registers[REG_RSP] = static_cast<greg_t>(reinterpret_cast<uintptr_t>(rt.cur->stack_top) & ~uintptr_t{15}) - 8;
  registers[REG_RIP] = reinterpret_cast<greg_t>(&leave_after_signal);
}

// ---- switching ----
static void make_ready(Warp* w) {
  if (w->pos < 0) {
    w->pos = (int)rt.ready.size();
    rt.ready.push_back(w);
  }
}
static void to_main() {
  ++rt.res.switches;
  emu_switch(&rt.cur->sp, rt.main_sp);
}
void block(Wait k, u32 addr, u32 arg) {
  Fiber& f = me();
  f.wait = k;
  f.wait_addr = addr;
  f.wait_arg = arg;
  f.warp->ready &= ~(1u << f.lane);
  to_main();
}
void wake(Fiber* f) {
  f->wait = Wait::None;
  f->warp->ready |= 1u << f->lane;
  make_ready(f->warp);
}
void give_way() {
  if (rt.opt.preempt && rt.rng() % rt.opt.preempt == 0) to_main();
}
static void body() {
  rt.entry(rt.params);
  Fiber& f = me();
  Warp& w = *f.warp;
  if (!f.bulk_open.empty()) fault("bulk-not-committed", "thread exits with a TMA store that was never committed");
  for (auto& g : f.bulk)
    for (auto* o : g.ops)
      if (!o->read_done) {
        fault("exit-with-store-in-flight",
              "thread exits before its TMA store has read shared memory (no cp.async.bulk.wait_group)");
        break;
      }
  w.alive &= ~(1u << f.lane);
  if (!w.alive) wgmma_exit_checks(w);
  Cta& c = *w.cta;
  if (!--c.live) {
    Clocks all = w.vc;
    for (Warp* x : c.warps) all.join(x->vc);
    for (Epoch e : c.remote)
      if (e && !all.sees(e)) {
        fault("exit-before-peer", "the CTA may exit while %s still uses its shared memory", name_of(e).c_str());
        break;
      }
    for (int i = 0; i < 16; ++i)
      if (c.bars[i].arrived)
        fault("barrier-left-half", "the CTA exits with %u of %u arrivals at barrier %d", c.bars[i].arrived,
              c.bars[i].expect, i);
  }
  block(Wait::Done, 0, 0);
  std::abort();
}
static void run_warp(Warp* w) {
  const u32 r = (u32)rt.rng() & 31;
  u32 todo = w->ready;
  for (u32 i = 0; i < 32 && !rt.stop; ++i) {
    const u32 l = (i + r) & 31;
    if (!(todo >> l & 1) || !(w->ready >> l & 1)) continue;
    Fiber& f = rt.fibers[w->cta->rank * w->cta->threads + w->idx * 32 + l];
    rt.cur = &f;
    threadIdx = f.tid;
    blockIdx = w->cta->bid;
    emu_switch(&rt.main_sp, f.sp);
  }
  rt.cur = nullptr;
  if (!w->ready) {
    Warp* last = rt.ready.back();
    rt.ready[w->pos] = last;
    last->pos = w->pos;
    rt.ready.pop_back();
    w->pos = -1;
  }
}

// ---- launch ----
static void start_cta(Cta& c, size_t dyn) {
  Shadow& s = *c.sh;
  c.limit = kSharedBase + (u32)dyn;
  c.statics = (c.limit + 127) / 128 * 128;
  c.live = c.threads;
  c.static_addr.clear();
  std::memset(s.mem.p, 0xff, c.limit);
  std::memset(s.wr.p, 0, kSharedEnd);
  for (u32 a : s.bar_list) { s.bars[a / 8].reset(); }
  s.bar_list.clear();
  std::memset(s.flag.p, 0, s.flag.n);
  std::memset(s.pend.p, 0, s.pend.n);
  ++s.writes;
  c.wg_log.assign((rt.warps_per_block + 3) / 4, {});
  c.remote.assign(rt.agents, 0);
  for (auto& b : c.bars) {
    b.arrived = b.expect = 0;
    b.waiters.clear();
    b.vc.t.assign(2 * rt.agents, 0);
  }
}
/// What comes next is behind all that has been, also when that was given up.
static void advance_clocks() {
  u32 hi = rt.clock_base;
  for (auto& w : rt.warps)
    for (u32 i = 0; i < rt.agents; ++i) hi = std::max(hi, w->vc.t[i]);
  rt.clock_base = hi + 4096;
}
static void finish_cluster() {
  bool loads = false;
  for (auto* o : rt.queue) loads |= !o->store;
  if (loads) fault("exit-with-load-in-flight", "the CTA exits while a TMA load still writes its shared memory");
  while (!rt.queue.empty()) run_async(rt.queue.back());
  advance_clocks();
  rt.ops.clear();
}
static void start_threads(unsigned r, Dim3 first, Dim3 block, size_t dyn, char* stacks) {
  const u32 n = block.x * block.y * block.z;
  Cta& c = *rt.ctas[r];
  c.rank = r;
  c.bid = {first.x + r, first.y, first.z};
  c.threads = n;
  c.agent0 = r * (rt.warps_per_block + kEngines);
  start_cta(c, dyn);
  for (u32 i = 0; i < rt.warps_per_block; ++i) {
    Warp& w = *c.warps[i];
    const u32 lanes = std::min(32u, n - i * 32);
    w.cta = &c;
    w.idx = i;
    w.registers = 0;
    w.agent = c.agent0 + i;
    w.alive = w.ready = lanes == 32 ? ~0u : (1u << lanes) - 1;
    w.pos = -1;
    w.arrived = 0;
    w.vc.t.assign(2 * rt.agents, rt.clock_base);
    ++w.vc.t[w.agent];
    w.ops.clear();
    w.accs.clear();
    w.group_end.clear();
    w.op_base = w.retired_groups = 0;
    make_ready(&w);
  }
  for (u32 i = 0; i < n; ++i) {
    const u32 k = r * n + i;
    Fiber& f = rt.fibers[k];
    f = Fiber{};
    f.warp = c.warps[i / 32];
    f.lane = i % 32;
    f.lin = i;
    f.tid = {i % block.x, i / block.x % block.y, i / (block.x * block.y)};
    void** s = (void**)(stacks + (k + 1) * kStack - 64);
    f.stack_top = s;
    *--s = nullptr;
    *--s = (void*)body;
    for (int q = 0; q < 6; ++q) *--s = nullptr;
    f.sp = s;
  }
}
static void forget_reads() {
  for (auto& s : rt.shadows) {
    std::memset(s->rd.p, 0, s->rd.n * 4);
    std::memset(s->ard.p, 0, s->ard.n * 4);
  }
}
static void run_cluster(Dim3 first, unsigned cluster, Dim3 block, size_t dyn, char* stacks) {
  rt.ready.clear();
  if (rt.clock_base > kTimeMask / 2) {
    rt.clock_base = 1;
    forget_reads();
  }
  for (unsigned r = 0; r < cluster; ++r) start_threads(r, first, block, dyn, stacks);
  rt.cluster_bar.arrived = 0;
  rt.cluster_bar.waiters.clear();
  rt.cluster_bar.vc.t.assign(2 * rt.agents, 0);
  rt.cluster_phase = 0;
  for (;;) {
    if (rt.stop) return advance_clocks();
    if (!rt.queue.empty() && (rt.ready.empty() || rt.rng() % 8 == 0)) {
      run_async(rt.queue[rt.rng() % rt.queue.size()]);
      continue;
    }
    if (rt.ready.empty()) {
      if (++rt.timeouts > 100) break;
      for (auto& f : rt.fibers)
        if (f.timed && f.wait == Wait::Mbar) {
          auto& v = f.warp->cta->sh->bars[f.wait_addr / 8]->waiters;
          std::erase(v, &f);
          wake(&f);
        }
      if (rt.ready.empty()) break;
    }
    run_warp(rt.ready[rt.rng() % rt.ready.size()]);
  }
  u32 live = 0;
  for (auto& c : rt.ctas) live += c->live;
  if (live) {
    report_deadlock();
    rt.stop = true;
    rt.queue.clear();
    return;
  }
  finish_cluster();
}
static void release_signals() {
  for (int signal : {SIGSEGV, SIGBUS, SIGILL, SIGFPE}) std::signal(signal, SIG_DFL);
}

static void catch_signals() {
  static char alternative[64 << 10];
  stack_t stack{};
  stack.ss_sp = alternative;
  stack.ss_size = sizeof alternative;
  sigaltstack(&stack, nullptr);
  struct sigaction action{};
  action.sa_sigaction = on_signal;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  for (int signal : {SIGSEGV, SIGBUS, SIGILL, SIGFPE}) sigaction(signal, &action, nullptr);
}

/// Stacks with a guard page each; they stay for the next launch.
static char* fiber_stacks(size_t count) {
  static char* stacks = nullptr;
  static size_t have = 0;
  if (have >= count) return stacks;
  if (stacks) munmap(stacks, have * kStack);
  have = count;
  stacks = static_cast<char*>(
      mmap(nullptr, have * kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  for (size_t i = 0; i < have; ++i) mprotect(stacks + i * kStack, 4096, PROT_NONE);
  return stacks;
}

LaunchReport launch(void (*entry)(void**), void** params, Dim3 grid, Dim3 block, unsigned cluster, size_t dyn,
                    const LaunchOptions& opt) {
  static std::mutex one_launch_at_a_time;
  const std::lock_guard<std::mutex> lock(one_launch_at_a_time);
  catch_signals();
  const auto t0 = std::chrono::steady_clock::now();
  rt.opt = opt;
  rt.res = {};
  rt.rng.seed(opt.seed);
  rt.stop = false;
  rt.timeouts = 0;
  rt.entry = entry;
  rt.params = params;
  rt.cur = nullptr;
  rt.queue.clear();
  rt.ops.clear();
  const u32 n = block.x * block.y * block.z;
  rt.warps_per_block = (n + 31) / 32;
  const u32 agents_before = rt.agents;
  rt.agents = cluster * (rt.warps_per_block + kEngines) + 1;
  if (rt.agents < agents_before) forget_reads();  // agents that no clock knows any more
  if (dyn > kSharedEnd - kSharedBase) {
    rt.res.faults.push_back("launch: too much shared memory");
    return rt.res;
  }
  if (rt.agents > kMostAgents) {
    rt.res.faults.push_back("launch: a cluster of more warps than the emulator follows");
    return rt.res;
  }
  if (n > 1024 || grid.x % cluster) {
    rt.res.faults.push_back("launch: bad grid, block or cluster");
    return rt.res;
  }
  while (rt.shadows.size() < cluster) rt.shadows.push_back(std::make_unique<Shadow>());
  rt.ctas.clear();
  rt.warps.clear();
  rt.fibers.assign(cluster * n, Fiber{});
  for (unsigned r = 0; r < cluster; ++r) {
    rt.ctas.push_back(std::make_unique<Cta>());
    rt.ctas[r]->sh = rt.shadows[r].get();
    for (u32 i = 0; i < rt.warps_per_block; ++i) {
      rt.warps.push_back(std::make_unique<Warp>());
      rt.ctas[r]->warps.push_back(rt.warps.back().get());
    }
  }
  char* const stacks = fiber_stacks(cluster * n);
  blockDim = {block.x, block.y, block.z};
  gridDim = {grid.x, grid.y, grid.z};
  for (unsigned z = 0; z < grid.z; ++z)
    for (unsigned y = 0; y < grid.y; ++y)
      for (unsigned x = 0; x < grid.x && !rt.stop; x += cluster) run_cluster({x, y, z}, cluster, block, dyn, stacks);
  rt.cur = nullptr;
  check_canaries();
  release_signals();
  rt.res.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - t0).count();
  return rt.res;
}

}  // namespace ingot::emulation
