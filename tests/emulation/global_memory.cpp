// Global memory of the emulated device: buffers between guard pages, known by name, so that a bad access names its
// neighbour.
#include <sys/mman.h>

#include <algorithm>
#include <map>

#include "tests/emulation/core.h"

namespace ingot::emulation {

void* map_zeroed(size_t bytes) {
  return mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
}

namespace {
constexpr size_t kPage = 4096;
constexpr size_t kAlign = 16;  // what vector accesses and TMA need; nearer to the guard page than the driver's 256
constexpr u8 kCanary = 0xff;   // a NaN in every float type, so that what is read there shows
struct Mapping {
  void* start;
  size_t bytes;
};
std::map<const u8*, Buffer> buffers;
std::map<const u8*, Mapping> mappings;
}  // namespace

void* allocate(size_t bytes, const char* name, bool read_only, bool late) {
  const size_t used = (bytes + kAlign - 1) / kAlign * kAlign,
               body = std::max((used + kPage - 1) / kPage * kPage, kPage);
  u8* start = static_cast<u8*>(mmap(nullptr, body + 2 * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  if (start == MAP_FAILED) return nullptr;
  mprotect(start + kPage, body, PROT_READ | PROT_WRITE);
  u8* p = start + kPage + (body - used);  // its end is the guard page, but for the alignment
  std::memset(start + kPage, kCanary, body);
  buffers[p] = {p, bytes, name, read_only, late};
  mappings[p] = {start, body + 2 * kPage};
  return p;
}

bool release(void* memory) {
  const auto it = mappings.find(static_cast<const u8*>(memory));
  if (it == mappings.end()) return false;
  munmap(it->second.start, it->second.bytes);
  buffers.erase(it->first);
  mappings.erase(it);
  return true;
}
void release_all() {
  while (!mappings.empty()) release(const_cast<u8*>(mappings.begin()->first));
}
void describe(void* memory, const char* name, bool read_only, bool late) {
  Buffer& b = buffers.at(static_cast<const u8*>(memory));
  b.name = name;
  b.read_only = read_only;
  b.late = late;
}

void check_canaries() {
  for (auto& [p, b] : buffers) {
    const size_t used = (b.n + kAlign - 1) / kAlign * kAlign;
    for (size_t i = b.n; i < used; ++i) {
      if (p[i] == kCanary) continue;
      fault("global-out-of-bounds", "a store went behind '%s', which has %zu bytes", b.name.c_str(), b.n);
      std::memset(b.p + b.n, kCanary, used - b.n);
      break;
    }
  }
}

const Buffer* find_alloc(const void* p, size_t n) {
  auto it = buffers.upper_bound((const u8*)p);
  if (it == buffers.begin()) return nullptr;
  const Buffer& a = (--it)->second;
  return (const u8*)p + n <= a.p + a.n ? &a : nullptr;
}
std::string near_alloc(const void* p) {
  auto it = buffers.upper_bound((const u8*)p);
  char s[160];
  if (it == buffers.begin()) {
    if (it == buffers.end()) return "no buffer exists";
    std::snprintf(s, sizeof s, "%zd bytes before '%s'", (size_t)(it->first - (const u8*)p), it->second.name.c_str());
    return s;
  }
  const Buffer& a = (--it)->second;
  std::snprintf(s, sizeof s, "byte %zd of '%s', which has %zu", (size_t)((const u8*)p - a.p), a.name.c_str(), a.n);
  return s;
}
void check_late(const Buffer* a, Warp& w, const char* what) {
  if (a && a->late && w.vc.t[rt.agents - 1] < rt.clock_base + 1)
    fault("missing-pdl-wait", "%s '%s', which the previous kernel may still use, without griddepcontrol.wait", what,
          a->name.c_str());
}
extern "C" void emu_pdl_wait() {
  HERE();
  u32& t = me().warp->vc.t[rt.agents - 1];
  t = std::max(t, rt.clock_base + 1);
}
extern "C" void emu_ld_global(const void* p, void* out, int bytes) {
  HERE();
  if ((size_t)p % bytes) fault("misaligned", "%d-byte load at %p", bytes, p);
  const Buffer* a = find_alloc(p, bytes);
  if (!a) {
    fault("global-out-of-bounds", "%d-byte load, %s", bytes, near_alloc(p).c_str());
    std::memset(out, 0xff, bytes);
    return;
  }
  check_late(a, *me().warp, "load from");
  std::memcpy(out, p, bytes);
}
extern "C" void emu_st_global(void* p, const void* v, int bytes) {
  HERE();
  if ((size_t)p % bytes) fault("misaligned", "%d-byte store at %p", bytes, p);
  const Buffer* a = find_alloc(p, bytes);
  if (!a) {
    fault("global-out-of-bounds", "%d-byte store, %s", bytes, near_alloc(p).c_str());
    return;
  }
  check_late(a, *me().warp, "store into");
  if (a->read_only) {
    fault("write-to-input", "%d-byte store into '%s'", bytes, a->name.c_str());
    return;
  }
  std::memcpy(p, v, bytes);
  ++me().warp->cta->stores;
}
extern "C" void emu_fence_gpu() {
  HERE();
  me().fenced = me().warp->cta->stores;
}
/// Says that all stores of the block so far are done: a barrier and a fence must come between them and this.
extern "C" int emu_count_up(int* counter) {
  HERE();
  const Buffer* a = find_alloc(counter, sizeof *counter);
  if (!a) {
    fault("global-out-of-bounds", "a counter, %s", near_alloc(counter).c_str());
    return 0;
  }
  check_late(a, *me().warp, "counting in");
  if (me().fenced != me().warp->cta->stores)
    fault("missing-fence", "counted in '%s' while other blocks may not see %llu stores of this block", a->name.c_str(),
          me().warp->cta->stores - me().fenced);
  return (*counter)++;
}

}  // namespace ingot::emulation
