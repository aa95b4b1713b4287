// Tiles on tensor cores: the plan and the functors that prelude/contraction_mma.cuh takes. An operand's functor has two
// parts, so that what depends on the row alone (a pixel's image, row and column) is computed once for a thread.
#include <fmt/format.h>

#include "codegen/cuda/cuda_printers.h"
#include "codegen/cuda/mma_cost.h"
#include "compiler/expr/simplify.h"

namespace ingot {

void ProductPrinter::splice(const FunctorPrinter& f) {
  out_.splice(f.text());
  for (const std::string& file : f.includes()) expr_.include(file);
}

void TilesPrinter::print_mma() {
  const TileDetails& d = details_;
  if (d.rows) return print_product_of_rows();
  print_mma_plan();
  out_.blank();
  if (!schedule_.tile.boxes) {
    print_operand("PrologueA", contract_, contract_.a, contract_.m, "m", d.a_along_k, d.a_vector, d.a_raw);
    out_.blank();
    print_operand("PrologueB", contract_, contract_.b, contract_.n, "n", d.b_along_k, d.b_vector, d.b_raw);
    out_.blank();
  } else {
    print_change_of_a();
  }
  if (d.staged) print_staged_results(contract_, *d.staged);
  else print_results(contract_, d.out_along_m, d.e_vector, "n");
  out_.blank();
  print_entry();
}

void TilesPrinter::print_mma_plan() {
  const TileDetails& d = details_;
  const MmaTile& t = schedule_.tile;
  auto block = out_.type_block("struct Plan");
  out_.line(fmt::format("typedef {} element;", c_storage_type(element_of(schedule_.unit))));
  out_.line(fmt::format("typedef {} index;", expr_.index_type()));
  out_.line(fmt::format("static constexpr int tile_m = {}, tile_n = {}, tile_k = {};", t.m, t.n, t.k));
  const int together = rows_together(contract_);
  out_.line(fmt::format("static constexpr int together = {}, step_m = {};", together, whole_rows(t.m, together)));
  out_.line(fmt::format("static constexpr int warp_m = {}, warp_n = {}, k_warps = {}, cluster_k = {}, grid_k = {};",
                        t.warp_m, t.warp_n, t.k_warps, schedule_.cluster_k, schedule_.grid_k));
  out_.line(fmt::format("static constexpr int stages = {}, threads = {}, workers = {};", t.stages, schedule_.threads,
                        t.boxes ? t.groups() * 128 : schedule_.threads));
  out_.line(fmt::format("static constexpr int part_width = {}, row_values = {}, row_room = {};", contract_.parts.width,
                        contract_.rows.size(), d.row_room));
  if (t.boxes) {
    out_.line(fmt::format("static constexpr int groups = {}, chunk = {}, a_rows = {};", t.groups(), box_chunk(t),
                          d.a_rows));
    out_.line(fmt::format("static constexpr bool in_turn = {}, batched = {}, by_group = {};", t.in_turn, d.batched, d.by_group));
    const Staging staging = staging_of(d.staged);
    out_.line(fmt::format("static constexpr bool staged = {}, staged_input = {};", d.staged.has_value(), staging == Staging::Inputs));
    out_.line(
        fmt::format("static constexpr int buffers = {};", staged_buffers(t, staging, d.staged ? d.staged->size : 2)));
    out_.line(fmt::format("static constexpr int result_size = {};", d.staged ? d.staged->size : 2));
    out_.line(fmt::format("static constexpr bool prologue = {}, column_inputs = {};", d.a_load.valid(), loads_by_column(kernel_)));
    print_window();
  } else if (t.warpgroups) out_.line(fmt::format("static constexpr int overlap = {};", int{t.overlap}));
  out_.line(fmt::format("static constexpr int a_vector = {}, b_vector = {}, e_vector = {};", d.a_vector, d.b_vector,
                        d.e_vector));
  out_.line(fmt::format("static constexpr bool a_along_k = {}, b_along_k = {}, out_along_m = {};", d.a_along_k,
                        d.b_along_k, d.out_along_m));
  out_.line(fmt::format("static constexpr bool a_raw = {}, b_raw = {}, a_table = {}, b_table = {};", d.a_raw, d.b_raw,
                        d.a_table, d.b_table));
  if (size_of(element_of(schedule_.unit)) == 1) {
    const auto is_other = [](const Expr& operand, DType type) {
      return byte_type(operand) == DType::U8 || type == DType::F8E5M2;
    };
    out_.line(fmt::format("static constexpr bool a_other = {}, b_other = {};", is_other(contract_.a, contract_.a_type),
                          is_other(contract_.b, contract_.b_type)));
  }
  out_.line(fmt::format("static constexpr bool single = {};", schedule_.unit == MultiplyUnit::Tf32));
  const auto [a_early, b_early] = print_early();
  if (t.boxes)
    out_.line(fmt::format("static constexpr bool late = {};", a_early && b_early && !d.a_load.valid() && contract_.rows.empty()));
}

std::pair<bool, bool> TilesPrinter::print_early() {
  const bool a = comes_early(details_.a_load.valid() ? details_.a_load : contract_.a), b = comes_early(contract_.b);
  out_.line(fmt::format("static constexpr bool a_early = {}, b_early = {};", a, b));
  return {a, b};
}

bool TilesPrinter::comes_early(const Expr& operand) const {
  bool all = true;
  visit(operand, [&](const Expr& x) {
    if (x.op() != ExprOp::Load) return;
    const Buffer& b = kernel_.buffers[static_cast<size_t>(x.buffer())];
    all &= b.is_constant || b.is_early;
  });
  return all;
}

void TilesPrinter::print_change_of_a() {
  const Expr& load = details_.a_load;
  if (load.valid()) print_operand("PrologueA", contract_, contract_.a, contract_.m, "m", true, 2, false, load);
  else out_.line("struct PrologueA {};");
  out_.blank();
}

void TilesPrinter::print_product_of_rows() {
  const ProductOfRows& rows = *details_.rows;
  const MmaTile& t = schedule_.tile;
  {
    auto block = out_.type_block("struct Plan");
    out_.line(fmt::format("typedef {} element;", c_storage_type(element_of(schedule_.unit))));
    out_.line(fmt::format("typedef {} index;", expr_.index_type()));
    out_.line(fmt::format("static constexpr int tile_m = {0}, tile_n = {1}, warp_m = {0}, warp_n = {1}, k = {2};", t.m, t.n, t.k));
    out_.line(fmt::format("static constexpr int teams = {}, stages = {}, buffers = {};", t.row_teams, t.stages, rows.buffers(t.m)));
    out_.line("static constexpr int part_width = 0, row_values = 0, groups = teams;");
    out_.line(fmt::format("static constexpr bool column_inputs = {}, boxed = {}, batched = false;", rows.boxed() && loads_by_column(kernel_), rows.boxed()));
    out_.line("static constexpr int result_size = 2;");
    out_.line(fmt::format("static constexpr bool staged_input = {}, prologue = {}, lines = {};", rows.results.load.valid(),
                          rows.a.prologue, rows.lines.has_value()));
    print_early();
    if (rows.lines) print_lines(*rows.lines);
  }
  out_.blank();
  print_change_of_a();
  print_staged_results(contract_, rows.results);
  out_.blank();
  print_entry();
}

void TilesPrinter::print_lines(const WindowLines& x) {
  const WindowAxis &h = x.window.h, &w = x.window.w;
  out_.line(fmt::format("static constexpr int channels = {}, present = {}, taps = {}, dilation = {};", x.window.channels, x.window.present,
                        h.taps, h.dilation));
  out_.line(fmt::format("static constexpr int out_w = {}, out_h = {}, in_h = {}, step_h = {}, low_h = {};", w.outputs, h.outputs, h.extent,
                        h.step, h.low));
  out_.line(fmt::format("static constexpr int pixel = {}, line = {}, tile_lines = {};", w.step * w.stride, x.length,
                        x.of_tile(schedule_.tile.m)));
  out_.line(fmt::format("static constexpr i64 line_stride = {}, image_stride = {};", h.stride, x.window.image_stride));
}

void TilesPrinter::print_rows_call() {
  const ProductOfRows& rows = *details_.rows;
  print_extent(contract_.m, "m_end");
  print_extent(contract_.n, "n_end");
  const auto pointer = [&](const OperandBox& box) {
    return fmt::format("args.{} + {}", identifier_of(kernel_.buffers[static_cast<size_t>(box.buffer)].name), expr_.operand(box.offset));
  };
  const bool in = rows.results.load.valid();
  const std::string way =
      rows.boxed() ? fmt::format("BoxedResults<Plan>{{&map_1, {}}}", in ? "&map_2" : "nullptr")
                   : fmt::format("RowsOfResults<Plan, Epilogue::StagedOutput, Epilogue::StagedInput>{{{}, {}}}", pointer(rows.results.out),
                                 in ? pointer(rows.results.in) : "nullptr");
  out_.line(fmt::format("contraction_rows<Plan>({}, &map_0, PrologueA{}, {}, Epilogue{{args}}, m_end, n_end, shared);",
                        pointer(rows.a.box), rows.a.prologue ? "{args}" : "{}", way));
  out_.close();
}

/// The window that A is read by: Plan::window says whether there is one.
void TilesPrinter::print_window() {
  out_.line(fmt::format("static constexpr bool window = {};", details_.window.has_value()));
  const OperandWindow x = details_.window.value_or(OperandWindow{});
  const WindowAxis &h = x.h, &w = x.w;
  out_.line(fmt::format("static constexpr int channels = {}, taps = {}, taps_w = {};", x.channels, x.taps(), w.taps));
  out_.line(fmt::format("static constexpr int out_h = {}, step_h = {}, low_h = {}, dilation_h = {};", h.outputs, h.step,
                        h.low, h.dilation));
  out_.line(fmt::format("static constexpr int out_w = {}, step_w = {}, low_w = {}, dilation_w = {};", w.outputs, w.step,
                        w.low, w.dilation));
}

namespace {

bool mentions(const Body& uses, const Axis& axis) {
  bool found = false;
  each_expr(uses, [&](const Expr& e) { found |= depends_on(e, axis.var.name()); });
  return found && !axis.extent.is_const(1);
}

/// Some axes of an operand, the positions that they are split from, and what they are called in the functor's struct.
struct AxisGroup {
  std::vector<std::pair<std::vector<Axis>, const char*>> axes;
  std::vector<std::pair<Expr, std::string>> members;
};

/// A struct for the axes' values, and the function that makes one: "struct Side { int at_n; };", "Side side(...) const".
void print_group(FunctorPrinter& f, const char* type, const char* function, const char* index, const Body& uses,
                 AxisGroup& group) {
  CodeWriter& out = f.writer();
  std::string members, parameters;
  for (const auto& [axes, position] : group.axes) {
    parameters += fmt::format("{}{} {}", parameters.empty() ? "" : ", ", index, position);
    for (const Axis& a : axes) {
      if (!mentions(uses, a)) continue;
      group.members.emplace_back(a.var, "at_" + identifier_of(a.var.name()));
      members += fmt::format(" {} {};", index, group.members.back().second);
    }
  }
  // Of one access, so that a table of them is read as fast as it can be.
  const size_t n = group.members.size();
  const char* align = n == 2 ? "alignas(8) " : n == 3 || n == 4 ? "alignas(16) " : "";
  out.line(fmt::format("struct {}{} {{{} }};", align, type, members));
  auto call = out.block(fmt::format("INGOT_DEV {} {}({}) const", type, function, parameters));
  f.bind_args();
  for (const auto& [axes, position] : group.axes) f.split(axes, position, uses);
  std::string values;
  for (const auto& [var, member] : group.members) values += (values.empty() ? "" : ", ") + f.value(var);
  out.line(fmt::format("return {{{}}};", values));
}

void bind_group(FunctorPrinter& f, const AxisGroup& group, const std::string& object) {
  for (const auto& [axes, position] : group.axes) {
    for (const Axis& a : axes)
      if (a.extent.is_const(1)) f.bind_index_text(a.var, "0");
  }
  for (const auto& [var, member] : group.members) f.bind_index_text(var, object + "." + member);
}

}  // namespace

Expr ProductPrinter::factor_of_pairs(const Expr& value, const Expr& arriving) const {
  const DType element = element_of(schedule_.unit);
  if (element != DType::F16 && element != DType::BF16) return {};
  if (value.op() != ExprOp::Round || value.rounded_to() != element || value.arg(0).op() != ExprOp::Mul) return {};
  const auto is_stored = [&](const Expr& x) {
    return x.op() == ExprOp::Load && kernel_.buffers[static_cast<size_t>(x.buffer())].type == element;
  };
  const Expr &a = value.arg(0).arg(0), &b = value.arg(0).arg(1);
  if (!is_stored(a) || !is_stored(b)) return {};
  return a.same(arriving) ? b : b.same(arriving) ? a : Expr();
}

void ProductPrinter::print_operand(const char* name, const Contract& contract, const Expr& operand,
                                   const std::vector<Axis>& side, const char* side_name, bool along_k, int vector,
                                   bool raw, const Expr& arriving) {
  const char* index = expr_.index_type();
  const OperandView view = view_of(contract, operand);
  const Expr arrives = arriving.valid() && !view.value.same(operand) ? view_of(contract, arriving).value : arriving;
  const Expr& value = view.value;
  std::vector<Axis> side_axes = side, k_axes = view.k;
  Expr inner, base;
  Body uses = as_body(value);
  if (vector > 1 && !raw) {
    std::vector<Axis>& lanes_in = along_k ? k_axes : side_axes;
    inner = lanes_in.back().var;
    base = Expr::index(inner.name() + "0", lanes_in.back().extent);
    lanes_in.back().var = base;
    uses.push_back({Let{Expr::local("base", DType::I64), base}});
  }
  out_.comment(fmt::format("elements ({}), {} at a time",
                           along_k ? fmt::format("{}, k + i", side_name) : fmt::format("{} + i, k", side_name),
                           vector));
  auto type = out_.type_block("struct " + std::string(name));
  out_.line("Args args;");
  AxisGroup row{{{contract.batch, "batch"}, {side_axes, side_name}}, {}}, depth{{{k_axes, "k"}}, {}};
  FunctorPrinter sides(kernel_, schedule_, expr_.i32()), depths(kernel_, schedule_, expr_.i32());
  print_group(sides, "Side", "side", index, uses, row);
  print_group(depths, "Depth", "depth", index, uses, depth);
  splice(sides);
  splice(depths);
  if (arriving.valid()) {
    FunctorPrinter t(kernel_, schedule_, expr_.i32());
    {
      auto call = t.writer().block("INGOT_DEV u32 touch_inputs(const Side& side, const Depth& depth) const");
      t.bind_args();
      bind_group(t, row, "side");
      bind_group(t, depth, "depth");
      t.print_touch(inner, base, value, arrives);
    }
    splice(t);
    FunctorPrinter pairs(kernel_, schedule_, expr_.i32());
    std::string factor;
    {
      auto call = pairs.writer().block("INGOT_DEV u32 pair(u32 x, const Side& side, const Depth& depth) const");
      pairs.bind_args();
      bind_group(pairs, row, "side");
      bind_group(pairs, depth, "depth");
      const Expr load = factor_of_pairs(value, arrives);
      factor = load.valid() ? pairs.neighbours_text(inner, base, 2, load) : std::string();
      pairs.writer().line(fmt::format("return multiply_pairs({}{{}}, x, bits_as<u32>({}));", c_storage_type(element_of(schedule_.unit)), factor));
    }
    out_.line(fmt::format("static constexpr bool kPairs = {};", !factor.empty()));
    if (!factor.empty()) {
      splice(pairs);
      return;
    }
  }
  FunctorPrinter f(kernel_, schedule_, expr_.i32());
  {
    const DType element = element_of(schedule_.unit);
    const auto access = raw ? raw_access(kernel_, value, element) : std::nullopt;
    const Axis* axis = innermost(along_k ? k_axes : side_axes);
    const AxisGuard guard = access && access->guard.valid() ? guard_along(access->guard, axis) : AxisGuard{};
    const bool partial = guard.bound && *guard.bound % vector != 0;
    const std::string result = raw ? fmt::format("{} at(const {}*& from", partial ? "int" : "bool", c_storage_type(element))
                                   : fmt::format("void operator()({} (&{})[{}]", c_type(contract.acc.type()), arriving.valid() ? "x" : "out", vector);
    const std::string out_of = arriving.valid() ? fmt::format(", {} (&out)[{}]", c_type(contract.acc.type()), vector) : "";
    auto call = f.writer().block(fmt::format("INGOT_DEV {}, const Side& side, const Depth& depth{}) const", result, out_of));
    f.bind_args();
    bind_group(f, row, "side");
    bind_group(f, depth, "depth");
    if (raw) {
      const std::string place = f.pointer_to(access->buffer, access->index);
      const bool stands_for = kernel_.buffers[static_cast<size_t>(access->buffer)].type != element;
      f.writer().line(stands_for ? fmt::format("from = (const {}*)({});", c_storage_type(element), place)
                                 : fmt::format("from = {};", place));
      const Expr& inside = partial ? guard.rest : access->guard;
      const std::string test = inside.valid() ? f.value(inside) : "true";
      if (partial) {
        const Expr left = max(0, min(Expr(*guard.bound) - axis->var, vector));
        f.writer().line(fmt::format("return {} ? (int){} : 0;", test, f.value(left)));
      } else {
        f.writer().line(fmt::format("return {};", test));
      }
    } else if (vector > 1) {
      f.vectorise(inner, base, vector, value, arrives);
    } else {
      f.print_value(value);
    }
  }
  splice(f);
}

}  // namespace ingot
