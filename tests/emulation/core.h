// Inside the emulator: threads, clocks, the shadow of shared memory. Shared by the emulator's own files only.
#pragma once

#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/emulation/emulator.h"

// The short names of codegen/cuda/prelude/types.cuh, which device.h relies on.
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
#include "tests/emulation/device.h"

namespace ingot::emulation {

// ---- who is ordered after whom ----
// An agent is a warp, or one
// of 16 asynchronous engines of a CTA (TMA loads, told apart by their mbarrier). Each agent counts its own time. A
// Clocks value says, for every agent, up to which time its effects are visible here; the second half says up to which
// time its generic-proxy writes are also visible to the asynchronous proxy (a fence was on the way).
constexpr unsigned kEngines = 16;
using Epoch = u32;  // agent << kTimeBits | time; 0: never
constexpr u32 kTimeBits = 22, kTimeMask = (1u << kTimeBits) - 1, kNeverSeen = kTimeMask;  // a time that no clock reaches
constexpr u32 kMostAgents = (1u << (32 - kTimeBits)) - 1;
struct Clocks {
  std::vector<u32> t;
  void join(const Clocks& o) {
    for (size_t i = 0; i < t.size(); ++i) t[i] = t[i] > o.t[i] ? t[i] : o.t[i];
  }
  bool sees(Epoch e) const { return (e & kTimeMask) <= t[e >> kTimeBits]; }
  bool sees_fenced(Epoch e) const { return (e & kTimeMask) <= t[t.size() / 2 + (e >> kTimeBits)]; }
};

// ---- shadow of one CTA's shared memory ----
void* map_zeroed(size_t bytes);
constexpr u32 kSharedBase = 1024;  // as on the device, the first KB is not ours: address 0 is an error
constexpr u32 kSharedEnd = kSharedBase + 232448;
struct Mbar {
  u32 count = 0, pending = 0, phase = 0, addr = 0;
  long tx = 0;
  bool visible = false;  // init was fenced
  Epoch init = 0;
  u32 init_thread = 0;
  Clocks cur, done;
  std::vector<struct Fiber*> waiters;
};
template <class T>
struct Zeroed {  // pages come as they are touched: a small kernel does not pay for 228 KB
  T* p;
  size_t n;
  explicit Zeroed(size_t count) : p((T*)map_zeroed(count * sizeof(T))), n(count) {}
  Zeroed(const Zeroed&) = delete;
  T& operator[](size_t i) { return p[i]; }
};
struct Shadow {
  Zeroed<u8> mem{kSharedEnd + 64};
  Zeroed<Epoch> wr{kSharedEnd / 4};       // last write of each 4-byte word; 0: nobody wrote
  Zeroed<Epoch> rd{kSharedEnd / 4 * 8};   // last generic reads, 8 slots a word (agent % 8)
  Zeroed<u32> ard{kSharedEnd / 16 * 16};  // last asynchronous reads of each 16 bytes, time by warp % 16
  Zeroed<u8> pend{kSharedEnd / 16};       // asynchronous reads in flight
  Zeroed<u8> flag{kSharedEnd / 16};       // 1: rd in use, 2: holds an mbarrier, 4: ard in use
  std::vector<std::unique_ptr<Mbar>> bars = std::vector<std::unique_ptr<Mbar>>(kSharedEnd / 8);
  std::vector<u32> bar_list;
  u64 writes = 0;  // version, for caches of decoded operands
};

// ---- threads ----
enum class Wait : u8 { None, Bar, Cluster, Mbar, Warp, Done };
struct BulkGroup {
  std::vector<struct AsyncOp*> ops;
};
struct CpAsync {
  u32 dst;
  const void* src;
  u32 bytes, size;  // read and written; the difference is zeros
};
struct Fiber {
  void *sp, *stack_top;
  struct Warp* warp;
  u32 lane, lin;
  uint3 tid;
  void* pc;
  Wait wait;
  u32 wait_addr, wait_arg;
  u32 wg_ops, wg_groups, wg_fence, wg_waits;  // wgmma: issued, committed, fences seen, waits seen
  u32 cluster_phase;
  u64 fenced;  // stores of its block to global memory that its last fence_gpu covers
  bool cluster_armed, timed;  // armed: arrived, not yet waited; timed: inside try_wait
  std::vector<AsyncOp*> bulk_open;
  std::vector<BulkGroup> bulk;
  std::vector<CpAsync> cp_open;
  std::vector<std::vector<CpAsync>> cp;
};
struct Acc {  // accumulators of one warp while the tensor core owns them
  float* reg[32];
  int n = 0, inflight = 0;
  u32 first = 0;
  alignas(64) float tile[16 * 256];
};
struct WgOp {
  u64 da, db;
  int n, type, ta, tb, scale_d;
  bool from_regs, starts;
  u32 lanes = 0;
  Acc* acc;
  void* pc;
  u32 a[32][4];
  const u32* a_reg[32];
  u16 chunk[32 + 1024];
  int chunks = 0;
};
struct WgSig {
  u64 da, db;
  int n, type, scale_d;
  bool operator==(const WgSig&) const = default;
};
struct Warp {
  struct Cta* cta;
  u32 idx, agent, alive, ready;
  u32 registers = 0;  // that a thread of it has asked for; 0: has not asked
  int pos;
  Clocks vc;
  u32 arrived = 0;
  int kind = 0;
  u64 slot[32], out[32];
  u32 addr[32];
  const void* ptr[32];
  void* dst[32];
  std::vector<std::unique_ptr<WgOp>> ops;
  u32 op_base = 0;  // not yet retired, in order
  std::vector<u32> group_end;
  u32 retired_groups = 0;
  std::vector<std::unique_ptr<Acc>> accs;
  std::vector<std::unique_ptr<Acc>> free_accs;
  std::vector<std::unique_ptr<WgOp>> free_ops;
  Epoch now() const { return agent << kTimeBits | vc.t[agent]; }
};
struct NamedBar {
  u32 arrived = 0, expect = 0;
  Clocks vc;
  std::vector<Fiber*> waiters;
};
struct Cta {
  uint3 bid;
  u32 rank, agent0, threads, live;
  u32 limit, statics;
  u64 stores = 0;  // to global memory
  Shadow* sh;
  std::vector<Warp*> warps;
  NamedBar bars[16];
  std::vector<std::pair<int, u32>> static_addr;
  std::vector<Epoch> remote;               // last access by each agent of another CTA
  std::vector<std::vector<WgSig>> wg_log;  // per warpgroup: what each wgmma was, to compare the four warps
};
constexpr u64 kMapMagic = 0x70616d5f756d65ull;  // marks an encoded tensor map
struct MapInfo {
  bool im2col;
  Elem elem;
  int rank, esz;
  u8* base;
  u64 dims[5], strides[5];
  u32 box[5], step[5];
  int lower[3], upper[3];
  u32 channels, pixels, bytes;
  Swizzle swizzle;
};
struct AsyncOp {
  bool store, done = false, read_done = false;
  const MapInfo* map;
  MapInfo bytes;  // of a copy without a tensor map: one row
  int coord[5];
  u16 off[3];
  u32 smem, bar;
  u32 ctas;
  Cta* cta;
  Warp* warp;
  u32 lin;
  Clocks vc;
  void* pc;
  std::vector<u16> chunk;
};

struct Runtime {
  LaunchOptions opt;
  LaunchReport res;
  std::mt19937_64 rng;
  u32 warps_per_block = 0, agents = 0;  // warps per CTA, agents per cluster; the last agent is the previous kernel
  std::vector<std::unique_ptr<Shadow>> shadows;
  std::vector<std::unique_ptr<Cta>> ctas;
  std::vector<std::unique_ptr<Warp>> warps;
  std::vector<Fiber> fibers;
  std::vector<Warp*> ready;
  std::vector<AsyncOp*> queue;
  std::vector<std::unique_ptr<AsyncOp>> ops;
  NamedBar cluster_bar;
  Clocks cluster_done;  // what its last phase ordered, for those that wait
  u32 cluster_phase = 0;
  u32 timeouts = 0;  // of try_wait, without any success between
  Fiber* cur = nullptr;
  void* main_sp = nullptr;
  bool stop = false;
  u32 clock_base = 1;
  void (*entry)(void**) = nullptr;
  void** params = nullptr;
};
extern Runtime rt;

inline Fiber& me() { return *rt.cur; }
inline bool is_engine(Epoch e) { return (e >> kTimeBits) % (rt.warps_per_block + kEngines) >= rt.warps_per_block; }
extern "C" void emu_switch(void** save, void* load);
void report_deadlock();
void fault(const char* kind, const char* fmt, ...) __attribute__((format(printf, 2, 3)));
[[noreturn]] void die();  // ends the launch from inside a thread
std::string where(void* pc);
std::string name_of(Epoch e);
void block(Wait w, u32 addr, u32 arg);
void wake(Fiber* f);
void give_way();            // seeded preemption
bool collective(int kind);  // true in the last lane, which does the work and calls finish()
void collective_finish();
void release_to(Clocks& c, Warp& w);
bool run_async(AsyncOp* op);
void check_read(Cta& c, u32 a, u32 n, Warp& w, const char* what);
void check_write(Cta& c, u32 a, u32 n, Warp& w, const char* what);
void check_async_read(Cta& c, u32 chunk, const Clocks& vc, const char* what);
void check_async_write(Cta& c, u32 chunk, const Clocks& vc, Epoch e, const char* what);
bool in_shared(Cta& c, u32 a, u32 n, const char* what);
struct Buffer {
  u8* p;
  size_t n;
  std::string name;
  bool read_only, late;
};
void check_late(const Buffer* a, Warp& w, const char* what);
const Buffer* find_alloc(const void* p, size_t n);
std::string near_alloc(const void* p);
void check_canaries();  // what raw stores wrote behind a buffer, before its guard page
void mbar_complete_tx(Cta& c, u32 bar, u32 bytes, const Clocks& vc, Epoch e);
void wgmma_exit_checks(Warp& w);
void touch_remote(Cta& c, Warp& w, const char* what);  // an access to another CTA of the cluster
#define HERE() (me().pc = __builtin_return_address(0))

}  // namespace ingot::emulation
