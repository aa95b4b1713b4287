// Rows that stay in registers from one pass to the next. Where the lanes of a block or a cluster share a row, a barrier stands between
// two passes, and the compiler loads again behind it.
#include <fmt/format.h>

#include "codegen/cuda/cuda_printers.h"
#include "compiler/expr/simplify.h"

namespace ingot {

namespace {

constexpr int64_t kMostSteps = 16;
constexpr int64_t kMostBytes = 192;  // of a lane; half of it where a block leaves 64 registers to each
constexpr int kAccessBytes = 16;

/// What the passes load from one buffer.
struct Loads {
  Expr index;  // with the passes' columns in place of their own
  int passes = 0;
  bool alike = true;
};

bool is_conditional(const Body& work) {
  bool found = false;
  each_expr(work, [&](const Expr& e) { visit(e, [&](const Expr& x) { found |= x.op() == ExprOp::Select; }); });
  return found;
}

/// The same names for the columns of all passes.
Bindings columns_of(const std::vector<Axis>& axes) {
  Bindings columns;
  for (size_t i = 0; i < axes.size(); ++i)
    columns[axes[i].var.name()] = Expr::index(fmt::format("column{}", i), axes[i].extent);
  return columns;
}

}  // namespace

RowPass row_pass(const Kernel& kernel, const std::vector<Axis>& axes, const Body& work, int vector) {
  RowPass pass;
  for (const Axis& a : axes) {
    const auto extent = a.extent.as_int();
    if (!extent) return {};
    pass.extents.push_back(*extent);
  }
  if (axes.empty()) return {};
  pass.width = widest_vector(kernel, work, axes.back().var, axes.back().extent, vector);
  return pass.width > 1 ? pass : RowPass{};
}

int64_t RowPass::steps(int lanes) const {
  int64_t vectors = 1;
  for (const int64_t e : extents) vectors *= e;
  vectors /= width;  // which divides the last extent
  return (vectors + lanes - 1) / lanes;
}

HeldRows held_rows(const Kernel& kernel, int vector) {
  std::map<int, Loads> loads;
  HeldRows held;
  const auto look_at = [&](const std::vector<Axis>& axes, const Body& work) {
    const RowPass pass = row_pass(kernel, axes, work, vector);
    if (pass.width == 0) return;
    if (held.pass.width == 0) held.pass = pass;
    std::unordered_set<int> seen;
    each_access(work, [&](int buffer, const Expr& index, bool is_store) {
      if (buffer >= static_cast<int>(kernel.buffers.size())) return;  // scratch
      Loads& of = loads[buffer];
      const auto along = linear_coefficient(index, axes.back().var.name());
      const Expr here = simplify(substitute(index, columns_of(axes)));
      const auto size = static_cast<int>(size_of(kernel.buffers[static_cast<size_t>(buffer)].type));
      of.alike &= pass == held.pass && !is_store && along && along->is_const(1) &&
                  (!of.index.valid() || of.index.same(here)) && size * pass.width <= kAccessBytes &&
                  !is_conditional(work);
      of.index = here;
      of.passes += seen.insert(buffer).second;
    });
  };
  for (const Stmt& s : kernel.body) {
    if (const auto* r = s.as<Reduce>()) look_at(r->axes, as_body(r->value));
    else if (const auto* l = s.as<Loop>()) look_at(l->axes, l->body);
    else if (s.as<If>()) return {};
  }
  for (const auto& [buffer, of] : loads) {
    if (!of.alike || of.passes < 2) continue;
    held.buffers.push_back(buffer);
    held.bytes += held.pass.width * static_cast<int64_t>(size_of(kernel.buffers[static_cast<size_t>(buffer)].type));
  }
  return held.buffers.empty() ? HeldRows{} : held;
}

bool fits_registers(const HeldRows& held, int lanes, int threads) {
  if (held.buffers.empty()) return false;
  const int64_t steps = held.pass.steps(lanes);
  return steps <= kMostSteps && steps * held.bytes <= (threads > 512 ? kMostBytes / 2 : kMostBytes);
}

void RowsPrinter::hold_rows() {
  if (lanes_per_row_ <= 32) return;
  const HeldRows held = held_rows(kernel_, schedule_.vector);
  if (!fits_registers(held, lanes_per_row_, schedule_.threads)) return;
  for (const int buffer : held.buffers) {
    held_rows_[buffer] = expr_.fresh("held");
    out_.line(fmt::format("Vec<{}, {}> {}[{}];", c_storage_type(buffer_type(buffer)), held.pass.width,
                          held_rows_[buffer], held.pass.steps(lanes_per_row_)));
  }
  held_pass_ = held.pass;
}

}  // namespace ingot
