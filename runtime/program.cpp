#include "runtime/program.h"

#include <fmt/format.h>

#include <set>

namespace ingot::runtime {
namespace {

/// Checks the numbers of one program; every method returns the first fault.
class Verifier {
 public:
  explicit Verifier(const Program& program) : p_(program) {}

  Status run() {
    INGOT_TRY(p_.shapes.verify(p_.symbols.size()));
    for (const SymbolInfo& s : p_.symbols)
      INGOT_TRY(symbol(s));
    INGOT_TRY(bindings(p_.inputs, "input"));
    INGOT_TRY(bindings(p_.outputs, "output"));
    INGOT_TRY(constants());
    for (size_t i = 0; i < p_.slots.size(); ++i) INGOT_TRY(line(p_.slots[i].bytes, "arena slot", i));
    INGOT_TRY(values());
    INGOT_TRY(kernels());
    INGOT_TRY(verify_scripts(p_));
    for (size_t i = 0; i < p_.instructions.size(); ++i) INGOT_TRY(instruction(p_.instructions[i], i));
    for (size_t i = 0; i < p_.requirements.size(); ++i) INGOT_TRY(line(p_.requirements[i].condition, "requirement", i));
    return verify_order(p_);
  }

 private:
  Status line(ShapeRef ref, const char* what, size_t i) const {
    if (ref < 0 || static_cast<size_t>(ref) >= p_.shapes.lines.size())
      return invalid(fmt::format("{} {}: shape line {} of {}", what, i, ref, p_.shapes.lines.size()));
    return {};
  }

  Status symbol(const SymbolInfo& s) const {
    if (s.low > s.high) return invalid(fmt::format("symbol '{}': empty range [{}, {}]", s.name, s.low, s.high));
    if (s.input < 0) return {};
    if (static_cast<size_t>(s.input) >= p_.inputs.size() || s.element < 0)
      return invalid(fmt::format("symbol '{}': element {} of input {} of {}", s.name, s.element, s.input, p_.inputs.size()));
    const DType type = p_.inputs[static_cast<size_t>(s.input)].type;
    if (size_of(type) == 0)
      return invalid(fmt::format("symbol '{}' is an element of type {}", s.name, name_of(type)));
    return {};
  }

  Status bindings(const std::vector<Binding>& list, const char* what) const {
    std::set<std::string> names;
    for (size_t i = 0; i < list.size(); ++i) {
      const Binding& b = list[i];
      if (!names.insert(b.name).second) return invalid(fmt::format("two {}s are called '{}'", what, b.name));
      if (size_of(b.type) == 0) return invalid(fmt::format("{} '{}': no such element type", what, b.name));
      for (ShapeRef dim : b.dims) INGOT_TRY(line(dim, what, i));
      if (!b.symbols.empty() && b.symbols.size() != b.dims.size())
        return invalid(fmt::format("{} '{}': {} symbols for {} dims", what, b.name, b.symbols.size(), b.dims.size()));
      for (int32_t s : b.symbols)
        if (s < -1 || s >= static_cast<int32_t>(p_.symbols.size()))
          return invalid(fmt::format("{} '{}': symbol {} of {}", what, b.name, s, p_.symbols.size()));
    }
    return {};
  }

  Status constants() const {
    for (const ConstantInfo& c : p_.constants) {
      if (size_of(c.type) == 0) return invalid(fmt::format("constant '{}': no such element type", c.name));
      const int64_t count = INGOT_TRY(checked_count(c.dims, size_of(c.type)));
      if (c.data && c.data->bytes() < static_cast<size_t>(count) * size_of(c.type))
        return invalid(
            fmt::format("constant '{}': {} bytes of data for {}", c.name, c.data->bytes(), describe(c.type, c.dims)));
    }
    return {};
  }

  size_t places(Place place) const {
    switch (place) {
      case Place::Input: return p_.inputs.size();
      case Place::Output: return p_.outputs.size();
      case Place::Constant: return p_.constants.size();
      case Place::Arena: return p_.slots.size();
    }
    return 0;
  }

  Status values() const {
    for (size_t i = 0; i < p_.values.size(); ++i) {
      const ValueInfo& v = p_.values[i];
      if (v.place > Place::Arena || size_of(v.type) == 0) return invalid(fmt::format("value {}: bad place or type", i));
      if (v.index < 0 || static_cast<size_t>(v.index) >= places(v.place))
        return invalid(fmt::format("value {} '{}': place number {} of {}", i, v.name, v.index, places(v.place)));
      INGOT_TRY(line(v.bytes, "value", i));
      if (v.part_of < 0) continue;
      if (static_cast<size_t>(v.part_of) >= i) return invalid(fmt::format("value {} '{}' is part of value {}", i, v.name, v.part_of));
      const ValueInfo& whole = p_.values[static_cast<size_t>(v.part_of)];
      if (whole.place != v.place || whole.index != v.index || whole.type != v.type)
        return invalid(fmt::format("value {} '{}' lies elsewhere than value {}, whose part it is", i, v.name, v.part_of));
    }
    return {};
  }

  Status kernels() const {
    std::set<std::string> names;
    for (const KernelInfo& k : p_.kernels) {
      if (k.name.empty() || !names.insert(k.name).second)
        return invalid(fmt::format("kernel name '{}' is empty or used twice", k.name));
      if (k.scratch_bytes < 0 || k.threads < 0 || k.shared_bytes < 0)
        return invalid(fmt::format("kernel '{}': negative resources", k.name));
      for (const KernelBinary& b : k.binaries)
        if (b.target.empty()) return invalid(fmt::format("kernel '{}': a binary without a target", k.name));
    }
    return {};
  }

  Status instruction(const Instruction& in, size_t i) const {
    const bool launch = in.kind == Instruction::Kind::Launch;
    if (in.kind > Instruction::Kind::Copy) return invalid(fmt::format("instruction {}: unknown kind", i));
    if (launch && (in.kernel < 0 || static_cast<size_t>(in.kernel) >= p_.kernels.size()))
      return invalid(fmt::format("instruction {}: kernel {} of {}", i, in.kernel, p_.kernels.size()));
    if (!launch && in.args.size() != 2)
      return invalid(fmt::format("instruction {}: a copy of {} values", i, in.args.size()));
    for (int32_t a : in.args)
      if (a < 0 || static_cast<size_t>(a) >= p_.values.size())
        return invalid(fmt::format("instruction {}: value {} of {}", i, a, p_.values.size()));
    if (in.first_written < 0 || static_cast<size_t>(in.first_written) > in.args.size())
      return invalid(fmt::format("instruction {}: writes from argument {} of {}", i, in.first_written, in.args.size()));
    if (in.lane < 0 || in.lane >= kMaxLanes) return invalid(fmt::format("instruction {}: lane {}", i, in.lane));
    for (int32_t w : in.waits)
      if (w < 0 || static_cast<size_t>(w) >= i) return invalid(fmt::format("instruction {}: waits for {}", i, w));
    if (!launch) return {};
    for (ShapeRef d : in.dims) INGOT_TRY(line(d, "instruction", i));
    for (ShapeRef g : in.grid) INGOT_TRY(line(g, "instruction", i));
    for (const BoxMap& m : in.boxes) INGOT_TRY(box(m, in, i));
    if (in.early_behind < -1 || in.early_behind >= static_cast<int64_t>(i))
      return invalid(fmt::format("instruction {}: starts early behind {}", i, in.early_behind));
    if (in.part_bytes != -1) INGOT_TRY(line(in.part_bytes, "instruction", i));
    INGOT_TRY(line(in.bytes, "instruction", i));
    return line(in.flops, "instruction", i);
  }

  Status box(const BoxMap& m, const Instruction& in, size_t i) const {
    const size_t rank = m.extents.size();
    const size_t middle = m.low.size();
    const bool window = middle > 0 && rank == middle + 2 && m.high.size() == middle && m.steps.size() == middle;
    const bool fits = rank >= 1 && rank <= kMaxBoxRank && m.strides.size() == rank - 1 &&
                      (window ? m.box.size() == 2 : middle == 0 && m.box.size() == rank);
    if (!fits || m.argument < 0 || static_cast<size_t>(m.argument) >= in.args.size())
      return invalid(fmt::format("instruction {}: a box of {} axes in argument {}", i, rank, m.argument));
    if (m.clipped < 0 || static_cast<size_t>(m.clipped) >= m.box.size())
      return invalid(fmt::format("instruction {}: a box clipped along axis {}", i, m.clipped));
    for (int32_t b : m.box)
      if (b < 1 || b > 256) return invalid(fmt::format("instruction {}: {} elements of a box", i, b));
    INGOT_TRY(line(m.offset, "instruction", i));
    for (ShapeRef e : m.extents) INGOT_TRY(line(e, "instruction", i));
    for (ShapeRef s : m.strides) INGOT_TRY(line(s, "instruction", i));
    return {};
  }

  const Program& p_;
};

}  // namespace

Status Program::verify() const { return Verifier(*this).run(); }

}  // namespace ingot::runtime
