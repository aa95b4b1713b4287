// Whether the lanes of a program order everything that must be ordered: a program from a file could otherwise race with
// itself on a GPU, and a fault of the compiler would show only there.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "runtime/program.h"

namespace ingot::runtime {
namespace {

/// For each instruction, what has finished when it starts: per lane, the last instruction.
class Clocks {
 public:
  explicit Clocks(const Program& p) : p_(p), clocks_(p.instructions.size()) {
    std::array<int32_t, kMaxLanes> last;
    last.fill(-1);
    for (size_t i = 0; i < p.instructions.size(); ++i) {
      clocks_[i].fill(-1);
      int32_t& previous = last[static_cast<size_t>(p.instructions[i].lane)];
      if (previous >= 0) reach(i, previous);
      for (int32_t w : p.instructions[i].waits) reach(i, w);
      previous = static_cast<int32_t>(i);
    }
  }
  bool has(size_t of, size_t earlier) const {
    return clocks_[of][static_cast<size_t>(p_.instructions[earlier].lane)] >= static_cast<int32_t>(earlier);
  }

 private:
  void reach(size_t at, int32_t finished) {
    for (size_t l = 0; l < kMaxLanes; ++l)
      clocks_[at][l] = std::max(clocks_[at][l], clocks_[static_cast<size_t>(finished)][l]);
    int32_t& own = clocks_[at][static_cast<size_t>(p_.instructions[static_cast<size_t>(finished)].lane)];
    own = std::max(own, finished);
  }
  const Program& p_;
  std::vector<std::array<int32_t, kMaxLanes>> clocks_;
};

/// What happened to one piece of memory so far.
struct Accesses {
  std::vector<size_t> writes, reads;
};

}  // namespace

size_t steps_of(const Program& program) {
  const std::vector<Instruction>& all = program.instructions;
  size_t steps = 0;
  for (size_t i = 0; i < all.size(); ++i) steps += i == 0 || all[i].args != all[i - 1].args;
  return steps;
}

int32_t lanes_of(const Program& program) {
  int32_t lanes = 1;
  for (const Instruction& in : program.instructions) lanes = std::max(lanes, in.lane + 1);
  return lanes;
}

Status verify_order(const Program& p) {
  if (lanes_of(p) == 1) return {};
  const Clocks clocks(p);
  std::map<std::pair<Place, int32_t>, Accesses> memory;
  for (size_t i = 0; i < p.instructions.size(); ++i) {
    const Instruction& in = p.instructions[i];
    const auto after = [&](const std::vector<size_t>& earlier, int32_t value) -> Status {
      for (size_t e : earlier)
        if (e != i && !clocks.has(i, e))
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
