// Tiles: a contraction as a plan, three functors and an entry point; the main loop is source
// (prelude/contraction_*.cuh).
#include <fmt/format.h>

#include "codegen/cuda/cuda_printers.h"
#include "compiler/expr/simplify.h"

namespace ingot {

void FunctorPrinter::bind_args() {
  for (const Expr& d : kernel_.dims) expr_.bind(d, "args." + identifier_of(d.name()), expr_.i32() && !is_value_dim(d));
}

bool FunctorPrinter::split(const std::vector<Axis>& axes, const std::string& flat, const Body& uses) {
  bool used = false;
  for (const Axis& a : axes) each_expr(uses, [&](const Expr& e) { used |= depends_on(e, a.var.name()); });
  if (used) bind_axes(axes, flat);
  return used;
}

void FunctorPrinter::print_value(const Expr& value) {
  if (lanes_) {
    load_vectors(value);
    auto lane = lane_loop();
    out_.line(fmt::format("out[v] = {};", expr_.value(value)));
  } else {
    const std::string v = expr_.value(value);
    out_.line(fmt::format("out[0] = {};", v));
  }
}

void FunctorPrinter::vectorise(const Expr& inner, const Expr& base, int width, const Expr& value, const Expr& arriving) {
  with_lanes(inner, base, width, [&] {
    if (arriving.valid()) expr_.bind_value(arriving, "x[v]");
    print_value(value);
  });
}

std::string FunctorPrinter::neighbours_text(const Expr& inner, const Expr& base, int width, const Expr& load) {
  std::string text;
  with_lanes(inner, base, width, [&] {
    if (const auto first = neighbour_base(load.buffer(), load.arg(0))) text = vector_load(load.buffer(), width, expr_.operand(*first));
  });
  return text;
}

void FunctorPrinter::print_touch(const Expr& inner, const Expr& base, const Expr& value, const Expr& arriving) {
  std::string words = "0";
  ExprSet seen;
  visit(value, [&](const Expr& x) {
    if (x.op() != ExprOp::Load || x.same(arriving) || !seen.insert(x).second) return;
    bool given = true;
    visit(x.arg(0), [&](const Expr& i) { given &= i.op() != ExprOp::Load; });
    if (!given) return;
    const bool constant = kernel_.buffers[static_cast<size_t>(x.buffer())].is_constant;
    words += fmt::format(" ^ {}({})", constant ? "touch_constant" : "touch", pointer_to(x.buffer(), simplify(substitute(x.arg(0), {{inner.name(), base}}))));
  });
  expr_.include("memory.cuh");
  out_.line(fmt::format("return {};", words));
}

TilesPrinter::TilesPrinter(const Kernel& kernel, const Schedule& schedule, bool i32)
    : ProductPrinter(kernel, schedule, i32), contract_(*kernel.contract()), details_(tile_details(kernel, schedule)) {
  blocks_per_sm_ = details_.blocks_per_sm;
  expr_.include(schedule_.tile.row_teams > 0 ? "contraction_rows.cuh" : schedule_.tile.boxes ? "contraction_boxes.cuh" : schedule_.tile.warpgroups ? "contraction_wgmma.cuh" : is_mma() ? "contraction_mma.cuh" : details_.skinny ? "contraction_skinny.cuh" : "contraction_simt.cuh");
}

void TilesPrinter::print() {
  print_args();
  out_.blank();
  if (is_mma()) return print_mma();
  print_plan();
  out_.blank();
  print_prologue("PrologueA", contract_.a, contract_.m, "m", details_.a_along_k, details_.a_vector);
  out_.blank();
  print_prologue("PrologueB", contract_.b, contract_.n, "n", details_.b_along_k, details_.b_vector);
  out_.blank();
  print_epilogue();
  out_.blank();
  print_entry();
}

void ProductPrinter::print_args() {
  auto block = out_.type_block("struct Args");
  for (size_t i = 0; i < kernel_.buffers.size(); ++i) {
    const Buffer& b = kernel_.buffers[i];
    out_.line(fmt::format("{} {};", pointer_type(static_cast<int>(i)), identifier_of(b.name)));
  }
  for (const Expr& d : kernel_.dims) out_.line(fmt::format("{} {};", is_value_dim(d) ? "i64" : expr_.index_type(), identifier_of(d.name())));
}

void TilesPrinter::print_plan() {
  const Schedule& s = schedule_;
  const TileDetails& d = details_;
  auto block = out_.type_block("struct Plan");
  out_.line(fmt::format("typedef {} acc;", acc_type()));
  out_.line(fmt::format("typedef {} index;", expr_.index_type()));
  if (d.skinny) {
    out_.line(fmt::format("static constexpr int thin = {}, columns = {}, vector = {}, k_warps = {}, threads = {};",
                          d.thin, d.columns, s.vector, s.split_k, s.threads));
    out_.line(fmt::format("static constexpr bool thin_is_m = {};", d.thin_is_m));
    return;
  }
  out_.line(fmt::format("static constexpr int tile_m = {}, tile_n = {}, tile_k = {};", s.tile_m, s.tile_n, s.tile_k));
  out_.line(fmt::format("static constexpr int thread_m = {}, thread_n = {}, threads = {};", s.thread_m, s.thread_n,
                        s.threads));
  out_.line(fmt::format("static constexpr int a_vector = {}, b_vector = {};", d.a_vector, d.b_vector));
  out_.line(fmt::format("static constexpr bool a_along_k = {}, b_along_k = {}, out_along_m = {};", d.a_along_k,
                        d.b_along_k, d.out_along_m));
}

void TilesPrinter::print_prologue(const char* name, const Expr& value, const std::vector<Axis>& side,
                                  const char* side_name, bool along_k, int vector) {
  FunctorPrinter f(kernel_, schedule_, expr_.i32());
  CodeWriter& out = f.writer();
  const char* index = expr_.index_type();
  out.comment(vector == 1 ? fmt::format("out[0] = element ({}, k)", side_name)
                          : fmt::format("out[v] = element ({})", along_k ? fmt::format("{}, k + v", side_name)
                                                                         : fmt::format("{} + v, k", side_name)));
  {
    auto type = out.type_block("struct " + std::string(name));
    out.line("Args args;");
    auto call = out.block(fmt::format("INGOT_DEV void operator()({} (&out)[{}], {} batch, {} {}, {} k) const",
                                      acc_type(), vector, index, index, side_name, index));
    f.bind_args();
    std::vector<Axis> side_axes = side, k_axes = contract_.k;
    std::vector<Axis>& lanes_in = along_k ? k_axes : side_axes;
    Expr inner, base;
    Body uses = as_body(value);
    if (vector > 1) {
      inner = lanes_in.back().var;
      base = Expr::index(inner.name() + "0", lanes_in.back().extent);
      lanes_in.back().var = base;
      uses.push_back({Let{Expr::local("base", DType::I64), base}});
    }
    f.split(contract_.batch, "batch", uses);
    f.split(side_axes, side_name, uses);
    f.split(k_axes, "k", uses);
    if (vector > 1) f.vectorise(inner, base, vector, value);
    else f.print_value(value);
  }
  splice(f);
}

void TilesPrinter::print_epilogue() {
  FunctorPrinter f(kernel_, schedule_, expr_.i32());
  CodeWriter& out = f.writer();
  const char* index = expr_.index_type();
  {
    auto type = out.type_block("struct Epilogue");
    out.line("Args args;");
    auto call = out.block(
        fmt::format("INGOT_DEV void operator()({} batch, {} m, {} n, {} acc) const", index, index, index, acc_type()));
    f.bind_args();
    f.split(contract_.batch, "batch", contract_.epilogue);
    f.split(contract_.m, "m", contract_.epilogue);
    f.split(contract_.n, "n", contract_.epilogue);
    f.bind_acc(contract_.acc, "acc");
    f.print_body(contract_.epilogue);
  }
  splice(f);
}

void ProductPrinter::open_entry() {
  out_.splice(signature() + " {");
  out_.open_silently();
  out_.line("INGOT_DYN_SHARED(shared);");
  bind_args_of_entry();
}

void ProductPrinter::bind_args_of_entry() {
  std::string members;
  for (const Buffer& b : kernel_.buffers) members += (members.empty() ? "" : ", ") + identifier_of(b.name);
  for (const Expr& d : kernel_.dims) {
    const char* type = is_value_dim(d) ? "i64" : expr_.index_type();
    members += fmt::format("{}({}){}", members.empty() ? "" : ", ", type, dim_parameter(d));
    expr_.bind(d, "args." + identifier_of(d.name()), expr_.i32() && !is_value_dim(d));
  }
  out_.line(fmt::format("const Args args{{{}}};", members));
}

void ProductPrinter::print_extent(const std::vector<Axis>& axes, const char* name) {
  const std::string value = expr_.value(total_of(axes));
  out_.line(fmt::format("const {} {} = {};", expr_.index_type(), name, value));
}

void TilesPrinter::print_entry() {
  open_entry();
  if (!is_mma()) wait_for_inputs();
  if (details_.rows) return print_rows_call();
  print_extent(contract_.batch, "batches");
  print_extent(contract_.m, "m_end");
  print_extent(contract_.n, "n_end");
  print_extent(contract_.k, "k_end");
  const std::string a = "PrologueA{args}", b = "PrologueB{args}", e = "Epilogue{args}";
  if (is_mma()) {
    const MmaTile& t = schedule_.tile;
    const auto& staged = details_.staged;
    const std::string operands = t.boxes ? fmt::format("&map_0, &map_1, {}, {}, PrologueA{}", staged ? "&map_2" : "nullptr",
                                                       staged && staged->load.valid() ? "&map_3" : "nullptr",
                                                       details_.a_load.valid() ? "{args}" : "{}")
                                         : a + ", " + b;
    out_.line(fmt::format("contraction_{}<Plan>({}, {}, batches, m_end, n_end, k_end, shared{});",
                          t.boxes        ? "boxes"
                          : t.warpgroups ? "wgmma"
                                         : "mma",
                          operands, e, schedule_.grid_k > 1 ? ", args.counters, args.parts" : ""));
  } else if (!details_.skinny) {
    out_.line(fmt::format("contraction_simt<Plan>({}, {}, {}, batches, m_end, n_end, k_end, shared);", a, b, e));
  } else {
    const bool thin_is_m = details_.thin_is_m, along_k = thin_is_m ? details_.b_along_k : details_.a_along_k;
    out_.line(fmt::format("contraction_skinny_along_{}<Plan>({}, {}, {}, batches, {}, k_end, shared);",
                          along_k ? 'k' : 'n', thin_is_m ? a : b, thin_is_m ? b : a, e,
                          thin_is_m ? "m_end, n_end" : "n_end, m_end"));
  }
  out_.close();
}

}  // namespace ingot
