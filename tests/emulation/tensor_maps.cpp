// Tensor maps, encoded with the driver's rules: alignment, box, stride, swizzle span, and the extent inside its buffer.
#include "tests/emulation/core.h"

namespace ingot::emulation {

static std::vector<std::unique_ptr<MapInfo>> infos;
static int size_of(Elem e) { return e == Elem::U8 ? 1 : e == Elem::F16 || e == Elem::BF16 ? 2 : 4; }
static int span_of(Swizzle s) { return s == Swizzle::B128 ? 128 : s == Swizzle::B64 ? 64 : s == Swizzle::B32 ? 32 : 0; }

static std::string common(MapInfo*& out, Elem el, const void* base, const std::vector<u64>& dims,
                          const std::vector<u64>& strides, Swizzle sw, bool im2col) {
  auto p = std::make_unique<MapInfo>();
  MapInfo& m = *p;
  const size_t r = dims.size();
  m.im2col = im2col;
  m.elem = el;
  m.esz = size_of(el);
  m.rank = (int)r;
  m.base = (u8*)base;
  m.swizzle = sw;
  for (int i = 0; i < 5; ++i) {
    m.box[i] = m.step[i] = 1;
    m.dims[i] = 1;
    m.strides[i] = 0;
  }
  if (r < 1 || r > 5 || strides.size() != r - 1) return "rank or number of strides";
  if ((size_t)base % 16) return "base address not 16-byte aligned";
  u64 last = 0;
  for (size_t i = 0; i < r; ++i) {
    m.dims[i] = dims[i];
    m.strides[i] = i ? strides[i - 1] : m.esz;
    m.step[i] = 1;
    m.box[i] = 1;
    if (!dims[i] || dims[i] > 1ull << 32) return "dimension out of range";
    if (i && (strides[i - 1] % 16 || strides[i - 1] >= 1ull << 40)) return "stride not a multiple of 16 bytes";
    last += (dims[i] - 1) * m.strides[i];
  }
  if (!find_alloc(base, last + m.esz))
    return "tensor map reaches outside its buffer: " + near_alloc((const u8*)base + last + m.esz - 1);
  infos.push_back(std::move(p));
  out = infos.back().get();
  return {};
}
static TensorMap handle(MapInfo* m) {
  TensorMap t{};
  t.d[0] = kMapMagic;
  t.d[1] = (u64)m;
  return t;
}
static std::string check_inner(const MapInfo& m, u32 elems) {
  const u32 b = elems * m.esz;
  if (b % 16) return "inner box not a multiple of 16 bytes";
  if (m.swizzle != Swizzle::None && b != (u32)span_of(m.swizzle)) return "inner box is not the swizzle width";
  return {};
}
std::string encode_tiled(TensorMap& map, Elem el, const void* base, std::vector<uint64_t> dims,
                         std::vector<uint64_t> strides, std::vector<uint32_t> box, Swizzle sw) {
  MapInfo* m = nullptr;
  std::string broken = common(m, el, base, {dims.begin(), dims.end()}, {strides.begin(), strides.end()}, sw, false);
  if (!broken.empty()) return broken;
  if (box.size() != dims.size()) return "rank of the box";
  m->bytes = m->esz;
  for (size_t i = 0; i < box.size(); ++i) {
    if (!box[i] || box[i] > 256) return "box dimension not in 1..256";
    m->box[i] = box[i];
    m->bytes *= box[i];
  }
  broken = check_inner(*m, box[0]);
  if (broken.empty()) map = handle(m);
  return broken;
}
std::string encode_im2col(TensorMap& map, Elem el, const void* base, std::vector<uint64_t> dims,
                          std::vector<uint64_t> strides, std::vector<int> lower, std::vector<int> upper,
                          uint32_t channels, uint32_t pixels, std::vector<uint32_t> steps, Swizzle sw) {
  MapInfo* m = nullptr;
  std::string broken = common(m, el, base, {dims.begin(), dims.end()}, {strides.begin(), strides.end()}, sw, true);
  if (!broken.empty()) return broken;
  const size_t r = dims.size();
  if (r < 3 || lower.size() != r - 2 || upper.size() != r - 2 || steps.size() != r)
    return "im2col: rank, corners or steps";
  if (!channels || channels > 256 || !pixels || pixels > 1024) return "im2col: channels or pixels";
  for (size_t i = 0; i < r; ++i) {
    if (!steps[i] || steps[i] > 8) return "element stride not in 1..8";
    m->step[i] = steps[i];
  }
  for (size_t i = 0; i < r - 2; ++i) {
    const int lim = r == 3 ? 32768 : r == 4 ? 128 : 16;
    if (lower[i] < -lim || lower[i] >= lim || upper[i] < -lim || upper[i] >= lim) return "im2col: corner out of range";
    m->lower[i] = lower[i];
    m->upper[i] = upper[i];
  }
  m->channels = channels;
  m->pixels = pixels;
  m->bytes = channels * pixels * m->esz;
  broken = check_inner(*m, channels);
  if (broken.empty()) map = handle(m);
  return broken;
}

}  // namespace ingot::emulation
