// What the functor of a product's results computes of a row alone, and the sums over parts of rows.
#include <fmt/format.h>

#include "codegen/cuda/cuda_printers.h"
#include "compiler/expr/simplify.h"

namespace ingot {

namespace {

constexpr int64_t kRunStep = 4;  // floats of 16 bytes

/// The loads of a sum, in order; false when there is something else in it.
bool loads_of_sum(const Expr& e, std::vector<Expr>& loads) {
  if (e.op() == ExprOp::Load) return loads.push_back(e), true;
  return e.op() == ExprOp::Add && loads_of_sum(e.arg(0), loads) && loads_of_sum(e.arg(1), loads);
}

/// A sum of neighbours in memory that 16-byte accesses read, from `base` on.
struct Run {
  int buffer = 0;
  int64_t count = 0;
  Expr base;
};
std::optional<Run> run_of(const Expr& e) {
  std::vector<Expr> loads;
  if (e.op() != ExprOp::Add || e.type() != DType::F32 || !loads_of_sum(e, loads)) return std::nullopt;
  Run run{loads[0].buffer(), static_cast<int64_t>(loads.size()), loads[0].arg(0)};
  for (int64_t i = 0; i < run.count; ++i) {
    const Expr& load = loads[static_cast<size_t>(i)];
    if (load.buffer() != run.buffer || load.type() != DType::F32 || !simplify(load.arg(0) - run.base).is_const(i))
      return std::nullopt;
  }
  return run.count % kRunStep == 0 && is_multiple(run.base, kRunStep) ? std::optional<Run>(run) : std::nullopt;
}

}  // namespace

void FunctorPrinter::print_row_values(const Contract& contract) {
  int next = 0;
  for (const Stmt& s : contract.rows) {
    const Let& let = *s.as<Let>();
    // Outermost sums first: what is bound is not looked into.
    std::function<void(const Expr&)> bind_runs = [&](const Expr& e) {
      const auto run = run_of(e);
      if (run && buffer_type(run->buffer) == DType::F32) {
        expr_.include("memory.cuh");
        if (!expr_.has_value(e))
          expr_.bind_value(
              e, fmt::format("sum_of_run<{}>({} + {})", run->count, pointer(run->buffer), expr_.operand(run->base)));
        return;
      }
      for (const Expr& a : e.args()) bind_runs(a);
    };
    bind_runs(let.value);
    const std::string value = expr_.value(let.value);
    out_.line(fmt::format("row.of[{}] = {};", next++, value));
  }
}

void FunctorPrinter::bind_row_values(const Contract& contract, const std::function<std::string(size_t)>& text) {
  for (size_t i = 0; i < contract.rows.size(); ++i) expr_.bind(contract.rows[i].as<Let>()->var, text(i), false);
}

void FunctorPrinter::print_part_sums(const RowParts& parts, const std::vector<const char*>& row, const char* column,
                                     const std::function<void(const Body&)>& split) {
  const size_t count = parts.sums.size();
  const char* index = expr_.index_type();
  out_.line(fmt::format("static constexpr int kSums = {};", count));
  {
    auto call = out_.block(
        fmt::format("static INGOT_DEV void add(float {}, float (&sums)[{}])", parts.stored.name(), count));
    expr_.bind(parts.stored, parts.stored.name(), false);
    for (size_t i = 0; i < count; ++i)
      out_.line(fmt::format("sums[{}] += {};", i, expr_.value(parts.sums[i].value)));
  }
  std::string place;
  for (const char* name : row) place += fmt::format("{} {}, ", index, name);
  auto call = out_.block(fmt::format("INGOT_DEV void store_sums({}{} {}, const float (&sums)[{}]) const", place, index, column, count));
  bind_args();
  Body uses;
  for (const Store& sum : parts.sums) uses.push_back({Let{Expr::local("at", DType::I64), sum.index}});
  split(uses);
  out_.line(fmt::format("const {} part = {} / {};", index, column, parts.width));
  expr_.bind(parts.part.var, "part", expr_.i32());
  for (size_t i = 0; i < count; ++i)
    out_.line(fmt::format("{} = sums[{}];",
                          element(parts.sums[i].buffer, expr_.value(parts.sums[i].index)), i));
}

/// A function of (batch, m), its body between `first` and `last`.
static void print_of_row(FunctorPrinter& f, const Contract& contract, const std::string& head, const char* index,
                         const std::function<void()>& last) {
  auto call = f.writer().block(fmt::format(fmt::runtime(head), index));
  f.bind_args();
  f.split(contract.batch, "batch", contract.rows);
  f.split(contract.m, "m", contract.rows);
  f.writer().line("Rows row;");
  f.print_row_values(contract);
  last();
}

void ProductPrinter::print_rows(const Contract& contract) {
  const bool none = contract.rows.empty();
  out_.line(none ? "struct Rows {};" : fmt::format("struct Rows {{ float of[{}]; }};", contract.rows.size()));
  FunctorPrinter f(kernel_, schedule_, expr_.i32());
  if (none) out_.line(fmt::format("INGOT_DEV Rows rows({0}, {0}) const {{ return {{}}; }}", expr_.index_type()));
  else
    print_of_row(f, contract, "INGOT_DEV Rows rows({0} batch, {0} m) const", expr_.index_type(),
                 [&] { f.writer().line("return row;"); });
  splice(f);
}

void ProductPrinter::print_rows_in_shared(const Contract& contract) {
  out_.line("u32 room = 0;");
  out_.line(fmt::format("{} first_row = 0;", expr_.index_type()));
  print_rows(contract);
  auto call = out_.block(fmt::format("INGOT_DEV void put_rows({0} batch, {0} m) const", expr_.index_type()));
  out_.line("const Rows row = rows(batch, m);");
  for (size_t i = 0; i < contract.rows.size(); ++i)
    out_.line(fmt::format("sts(room + ((u32)(m - first_row) * {} + {}) * 4, row.of[{}]);", contract.rows.size(), i, i));
}

void ProductPrinter::print_parts(const Contract& contract) {
  if (contract.parts.width == 0) return;
  FunctorPrinter f(kernel_, schedule_, expr_.i32());
  f.print_part_sums(contract.parts, {"batch", "m"}, "n", [&](const Body& uses) {
    f.split(contract.batch, "batch", uses);
    f.split(contract.m, "m", uses);
  });
  splice(f);
}

}  // namespace ingot
