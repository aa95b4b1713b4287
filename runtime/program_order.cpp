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

/// One instruction's use of a value.
struct Access {
  size_t instruction;
  int32_t value;
};
/// What happened to one piece of memory so far.
struct Accesses {
  std::vector<Access> writes, reads;
};

/// The values that v is a part of, outermost first, and v.
std::vector<int32_t> path_to(const Program& p, int32_t v) {
  std::vector<int32_t> path;
  for (; v >= 0; v = p.values[static_cast<size_t>(v)].part_of) path.push_back(v);
  return {path.rbegin(), path.rend()};
}
/// Whether two values of one piece of memory may share an element: not where their paths part below a common value.
bool may_overlap(const Program& p, int32_t a, int32_t b) {
  const std::vector<int32_t> to_a = path_to(p, a), to_b = path_to(p, b);
  if (to_a[0] != to_b[0]) return true;
  const auto ends = std::mismatch(to_a.begin(), to_a.end(), to_b.begin(), to_b.end());
  return ends.first == to_a.end() || ends.second == to_b.end();
}
bool lies_within(const Program& p, int32_t part, int32_t whole) {
  for (; part >= 0; part = p.values[static_cast<size_t>(part)].part_of)
    if (part == whole) return true;
  return false;
}

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
    const auto after = [&](const std::vector<Access>& earlier, int32_t value) -> Status {
      for (const Access& e : earlier)
        if (e.instruction != i && !clocks.has(i, e.instruction) && may_overlap(p, e.value, value))
          return invalid(fmt::format("instructions {} and {} may touch value '{}' at the same time", e.instruction, i,
                                     p.values[static_cast<size_t>(value)].name));
      return {};
    };
    for (size_t k = 0; k < in.args.size(); ++k) {
      const int32_t a = in.args[k];
      const ValueInfo& v = p.values[static_cast<size_t>(a)];
      if (v.place != Place::Arena && v.place != Place::Output) continue;
      Accesses& past = memory[{v.place, v.index}];
      INGOT_TRY(after(past.writes, a));
      if (k < static_cast<size_t>(in.first_written)) {
        past.reads.push_back({i, a});
        continue;
      }
      INGOT_TRY(after(past.reads, a));
      // Whatever has to come after one of these comes after this write, too. Of a part that is only so for what lies in it.
      for (auto* list : {&past.writes, &past.reads})
        std::erase_if(*list, [&](const Access& e) { return v.part_of < 0 || lies_within(p, e.value, a); });
      past.writes.push_back({i, a});
    }
  }
  return {};
}

}  // namespace ingot::runtime
