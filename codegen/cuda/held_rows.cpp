// Rows that stay in registers from one pass to the next. Where the lanes of a block share a row, a barrier stands between two passes, and
// the compiler loads again behind it.
#include <fmt/format.h>

#include "codegen/cuda/cuda_printers.h"
#include "compiler/expr/simplify.h"

namespace ingot {

namespace {

constexpr int64_t kMostSteps = 8;
constexpr int64_t kMostBytes = 192;  // of a lane

/// What the passes load from one buffer.
struct Loads {
  Expr index;  // with the passes' column in place of their own
  int passes = 0;
  bool alike = true;
};

bool is_conditional(const Body& work) {
  bool found = false;
  each_expr(work, [&](const Expr& e) { visit(e, [&](const Expr& x) { found |= x.op() == ExprOp::Select; }); });
  return found;
}

}  // namespace

RowsPrinter::RowPass RowsPrinter::row_pass(const std::vector<Axis>& axes, const Body& work) const {
  if (axes.size() != 1) return {};
  const auto columns = axes[0].extent.as_int();
  const int width = widest_vector(kernel_, work, axes[0].var, axes[0].extent, schedule_.vector);
  return columns && width > 1 ? RowPass{*columns, width} : RowPass{};
}

void RowsPrinter::hold_rows() {
  if (schedule_.cluster_k > 1 || lanes_per_row_ <= 32) return;
  const Expr column = Expr::index("column", Expr(kNoLimit));
  std::map<int, Loads> loads;
  RowPass first;
  const auto look_at = [&](const std::vector<Axis>& axes, const Body& work) {
    const RowPass pass = row_pass(axes, work);
    if (pass.width == 0) return;
    if (first.width == 0) first = pass;
    std::unordered_set<int> seen;
    each_access(work, [&](int buffer, const Expr& index, bool is_store) {
      if (is_scratch(buffer)) return;
      Loads& of = loads[buffer];
      const auto along = linear_coefficient(index, axes[0].var.name());
      const Expr here = simplify(substitute(index, {{axes[0].var.name(), column}}));
      of.alike &=
          pass == first && !is_store && along && along->is_const(1) && (!of.index.valid() || of.index.same(here)) &&
          static_cast<int>(size_of(buffer_type(buffer))) * pass.width <= access_bytes(buffer) && !is_conditional(work);
      of.index = here;
      of.passes += seen.insert(buffer).second;
    });
  };
  for (const Stmt& s : kernel_.body) {
    if (const auto* r = s.as<Reduce>()) look_at(r->axes, as_body(r->value));
    else if (const auto* l = s.as<Loop>()) look_at(l->axes, l->body);
    else if (s.as<If>()) return;
  }
  if (first.width == 0 || first.steps(lanes_per_row_) > kMostSteps) return;
  const int64_t steps = first.steps(lanes_per_row_);
  int64_t bytes = 0;
  for (const auto& [buffer, of] : loads)
    if (of.alike && of.passes > 1) bytes += steps * first.width * static_cast<int64_t>(size_of(buffer_type(buffer)));
  if (bytes > kMostBytes) return;
  for (const auto& [buffer, of] : loads) {
    if (!of.alike || of.passes < 2) continue;
    held_rows_[buffer] = expr_.fresh("held");
    out_.line(fmt::format("Vec<{}, {}> {}[{}];", c_storage_type(buffer_type(buffer)), first.width, held_rows_[buffer],
                          steps));
  }
  held_pass_ = first;
}

}  // namespace ingot
