// What a launch reports: faults with the thread and the line of the kernel, and the threads of a deadlock.
#include "tests/emulation/core.h"

#include <dlfcn.h>

#include <cstdarg>
#include <cstdlib>

namespace ingot::emulation {

/// Frames of the prelude's basic functions say nothing: the caller is what matters.
static bool is_primitive(const std::string& file) {
  for (const char* name : {"device.h", "types.cuh", "memory.cuh", "sync.cuh", "warp.cuh", "math.cuh", "integer.cuh",
                           "cp_async.cuh", "tma.cuh", "mma.cuh", "wgmma.cuh"}) {
    if (file.rfind(name, 0) == 0) return true;
  }
  return false;
}

std::string where(void* pc) {
  Dl_info module;
  char text[512];
  if (!pc || !dladdr(pc, &module) || !module.dli_fname) return "?";
  std::snprintf(text, sizeof text, "addr2line -ie '%s' %#zx 2>/dev/null", module.dli_fname,
                (size_t)pc - 1 - (size_t)module.dli_fbase);
  std::string out;
  if (FILE* frames = popen(text, "r")) {  // innermost first
    while (std::fgets(text, sizeof text, frames)) {
      std::string line = text;
      line = line.substr(0, line.find_first_of(" \n"));
      line = line.substr(line.rfind('/') + 1);
      if (out.empty() && !is_primitive(line)) out = line;
    }
    pclose(frames);
  }
  return out.empty() ? "?" : out;
}
static std::string who(const Fiber& f) {
  char s[128];
  const uint3 b = f.warp->cta->bid;
  std::snprintf(s, sizeof s, "block (%u,%u,%u) warp %u lane %u", b.x, b.y, b.z, f.warp->idx, f.lane);
  return s;
}
std::string name_of(Epoch e) {
  char s[64];
  const u32 stride = rt.warps_per_block + kEngines, a = (e >> kTimeBits) % stride, c = (e >> kTimeBits) / stride;
  if (a < rt.warps_per_block) std::snprintf(s, sizeof s, "warp %u", a);
  else std::snprintf(s, sizeof s, "a TMA load");
  std::string r = s;
  if (rt.ctas.size() > 1) r += " of CTA " + std::to_string(c);
  return r;
}
void fault(const char* kind, const char* fmt, ...) {
  char s[512];
  va_list ap;
  va_start(ap, fmt);
  std::vsnprintf(s, sizeof s, fmt, ap);
  va_end(ap);
  if ((int)rt.res.faults.size() >= rt.opt.max_reports) { return; }
  static std::vector<std::pair<std::string, void*>> seen;
  if (rt.res.faults.empty()) seen.clear();
  void* pc = rt.cur ? rt.cur->pc : nullptr;
  for (auto& x : seen)
    if (x.first == kind && x.second == pc) return;
  seen.push_back({kind, pc});
  std::string t = std::string(kind) + ": " + s;
  if (rt.cur) t += "\n    by " + who(*rt.cur) + " at " + where(pc);
  rt.res.faults.push_back(t);
}

void report_deadlock() {
  std::string s = "no thread can run:";
  char t[256];
  for (auto& w : rt.warps) {
    Fiber* f0 = &rt.fibers[w->cta->rank * w->cta->threads + w->idx * 32];
    for (u32 l = 0; l < 32;) {
      Fiber& f = f0[l];
      u32 e = l;
      while (e < 32 && f0[e].wait == f.wait && f0[e].wait_addr == f.wait_addr && f0[e].wait_arg == f.wait_arg) ++e;
      if (f.wait != Wait::Done) {
        std::snprintf(t, sizeof t, "\n    CTA %u warp %2u lanes %u-%u wait for ", w->cta->rank, w->idx, l, e - 1);
        s += t;
        if (f.wait == Wait::Mbar) {
          Mbar* b = w->cta->sh->bars[f.wait_addr / 8].get();
          std::snprintf(t, sizeof t,
                        "mbarrier +%u parity %u (now in phase %u, %u of %u arrivals and %ld bytes missing)",
                        f.wait_addr - kSharedBase, f.wait_arg, b->phase, b->pending, b->count, b->tx);
        } else if (f.wait == Wait::Bar)
          std::snprintf(t, sizeof t, "barrier %u (%u of %u threads there)", f.wait_addr,
                        w->cta->bars[f.wait_addr].arrived, f.wait_arg);
        else if (f.wait == Wait::Cluster)
          std::snprintf(t, sizeof t, "the cluster barrier (%u threads there)", rt.cluster_bar.arrived);
        else std::snprintf(t, sizeof t, "the other lanes of the warp (%08x there)", w->arrived);
        s += t;
        s += " at " + where(f.pc);
      }
      l = e;
    }
  }
  rt.res.faults.push_back("deadlock: " + s);
  rt.res.completed = false;
}

}  // namespace ingot::emulation
