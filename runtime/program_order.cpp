// Whether the lanes of a program order everything that must be ordered: a program from a file could otherwise race with
// itself on a GPU, and a fault of the compiler would show only there.
#include <fmt/format.h>

#include <map>

#include "runtime/program.h"

namespace ingot::runtime {
namespace {

/// For each instruction, the earlier ones that have finished when it starts, one bit each.
class Ancestors {
 public:
  explicit Ancestors(const Program& p)
      : words_((p.instructions.size() + 63) / 64), bits_(words_ * p.instructions.size()) {
    std::vector<int> last_of_lane(kMaxLanes, -1);
    for (size_t i = 0; i < p.instructions.size(); ++i) {
      int& last = last_of_lane[static_cast<size_t>(p.instructions[i].lane)];
      if (last >= 0) inherit(i, static_cast<size_t>(last));
      for (int32_t w : p.instructions[i].waits) inherit(i, static_cast<size_t>(w));
      last = static_cast<int>(i);
    }
  }
  bool has(size_t of, size_t earlier) const { return bits_[of * words_ + earlier / 64] >> (earlier % 64) & 1; }

 private:
  void inherit(size_t to, size_t from) {
    for (size_t w = 0; w < words_; ++w) bits_[to * words_ + w] |= bits_[from * words_ + w];
    bits_[to * words_ + from / 64] |= uint64_t{1} << (from % 64);
  }
  size_t words_;
  std::vector<uint64_t> bits_;
};

/// What happened to one piece of memory so far.
struct Accesses {
  std::vector<size_t> writes, reads;
};

bool single_lane(const Program& p) {
  for (const Instruction& in : p.instructions)
    if (in.lane != 0) return false;
  return true;
}

}  // namespace

Status verify_order(const Program& p) {
  if (single_lane(p)) return {};
  const Ancestors ancestors(p);
  std::map<std::pair<Place, int32_t>, Accesses> memory;
  for (size_t i = 0; i < p.instructions.size(); ++i) {
    const Instruction& in = p.instructions[i];
    const auto after = [&](const std::vector<size_t>& earlier, int32_t value) -> Status {
      for (size_t e : earlier)
        if (e != i && !ancestors.has(i, e))
          return invalid(fmt::format("instructions {} and {} may touch value '{}' at the same time", e, i,
                                     p.values[static_cast<size_t>(value)].name));
      return {};
    };
    for (size_t k = 0; k < in.args.size(); ++k) {
      const int32_t a = in.args[k];
      const ValueInfo& v = p.values[static_cast<size_t>(a)];
      if (v.place != Place::Arena && v.place != Place::Output) continue;
      Accesses& past = memory[{v.place, v.index}];
      INGOT_TRY(after(past.writes, a));
      if (k >= static_cast<size_t>(in.first_written)) {
        INGOT_TRY(after(past.reads, a));
        past = {{i}, {}};
      } else {
        past.reads.push_back(i);
      }
    }
  }
  return {};
}

}  // namespace ingot::runtime
