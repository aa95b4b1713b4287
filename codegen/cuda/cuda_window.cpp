// Sliding windows as text: the plan and the functors that prelude/window.cuh takes, and the entry point.
#include <fmt/format.h>

#include "codegen/cuda/cuda_printers.h"
#include "compiler/expr/simplify.h"

namespace ingot {

WindowPrinter::WindowPrinter(const Kernel& kernel, const Schedule& schedule, bool i32)
    : ProductPrinter(kernel, schedule, i32), form_(*window_form(kernel)) {
  blocks_per_sm_ = schedule.tile.stages;
  for (const char* word : {"outer", "outers", "y", "x", "c", "w", "ty", "tx"}) expr_.reserve(word);
  expr_.include("window.cuh");
}

void WindowPrinter::print() {
  print_args();
  out_.blank();
  print_plan();
  out_.blank();
  print_window();
  out_.blank();
  print_epilogue();
  out_.blank();
  out_.splice(signature() + " {");
  out_.open_silently();
  bind_args_of_entry();
  print_extent(form_.outer, "outers");
  out_.line("window<Plan>(Window{args}, Epilogue{args}, outers);");
  out_.close();
}

void WindowPrinter::print_plan() {
  const WindowSide &y = form_.y, &x = form_.x;
  auto block = out_.type_block("struct Plan");
  out_.line(fmt::format("typedef {} index;", expr_.index_type()));
  out_.line(fmt::format("static constexpr int vector = {}, rows = {}, columns = {}, threads = {};", schedule_.vector,
                        schedule_.tile.m, schedule_.tile.n, schedule_.threads));
  out_.line(fmt::format("static constexpr int taps_y = {}, step_y = {}, out_y = {};", y.taps, y.step, y.outputs));
  out_.line(fmt::format("static constexpr int taps_x = {}, step_x = {}, out_x = {};", x.taps, x.step, x.outputs));
  out_.line(fmt::format("static constexpr int channels = {};", *form_.channels.extent.as_int()));
}

/// A function of the functor whose result is `value` for `vector` neighbouring channels, or a truth value.
void WindowPrinter::print_load(FunctorPrinter& f, const char* head, const Expr& load,
                               const std::vector<std::pair<Expr, const char*>>& indices) {
  FunctorPrinter one(kernel_, schedule_, expr_.i32());
  const Expr base = Expr::index(form_.channels.var.name() + "0", form_.channels.extent);
  const Expr index = simplify(substitute(load.arg(0), {{form_.channels.var.name(), base}}));
  const bool constant = kernel_.buffers[static_cast<size_t>(load.buffer())].is_constant;
  {
    auto call = one.writer().block(head);
    one.bind_args();
    one.split(form_.outer, "outer", as_body(index));
    one.bind_index_text(base, "c");
    for (const auto& [symbol, text] : indices)
      if (symbol.valid()) one.bind_index_text(symbol, text);
    one.writer().line(fmt::format("return {}<{}>({});", constant ? "load_vec_constant" : "load_vec", schedule_.vector,
                                  one.pointer_to(load.buffer(), index)));
  }
  f.writer().splice(one.text());
}

void WindowPrinter::print_inside(FunctorPrinter& f, const char* name, const WindowSide& side, const char* at) {
  FunctorPrinter one(kernel_, schedule_, expr_.i32());
  {
    auto call = one.writer().block(fmt::format("static INGOT_DEV bool {}({} {})", name, expr_.index_type(), at));
    if (side.place.valid()) one.bind_index_text(side.place, at);
    std::string all;
    for (const Expr& condition : side.inside) all += (all.empty() ? "" : " && ") + one.value(condition);
    one.writer().line(fmt::format("return {};", all.empty() ? "true" : all));
  }
  f.writer().splice(one.text());
}

void WindowPrinter::print_window() {
  const char* index = expr_.index_type();
  const bool sum = form_.reduce.combine == Combine::Sum, weights = form_.weight.valid();
  const auto stored = [&](const Expr& load) { return c_storage_type(buffer_type(load.buffer())); };
  const auto number = [&](double v) {
    return v == 0 ? std::string("0.0f") : v < -3.4e38 ? std::string("-kInf") : fmt::format("(float){:.9e}", v);
  };
  FunctorPrinter f(kernel_, schedule_, expr_.i32());
  {
    auto type = f.writer().type_block("struct Window");
    CodeWriter& out = f.writer();
    out.line("Args args;");
    out.line(fmt::format("typedef {} Input;", stored(form_.input)));
    out.line(fmt::format("typedef {} Weight;", weights ? stored(form_.weight) : "float"));
    out.line(fmt::format("static constexpr bool kWeights = {};", weights));
    out.line(
        fmt::format("static constexpr float kStart = {}, kFill = {};", sum ? "0.0f" : "-kInf", number(form_.fill)));
    print_load(
        f,
        fmt::format("INGOT_DEV Vec<Input, {0}> load({1} outer, {1} y, {1} x, {1} c) const", schedule_.vector, index)
            .c_str(),
        form_.input, {{form_.y.place, "y"}, {form_.x.place, "x"}});
    if (weights) {
      print_load(f,
                 fmt::format("INGOT_DEV Vec<Weight, {0}> weight(int ty, int tx, {1} c) const", schedule_.vector, index)
                     .c_str(),
                 form_.weight, {{form_.y.tap, "ty"}, {form_.x.tap, "tx"}});
    }
    print_inside(f, "inside_y", form_.y, "y");
    print_inside(f, "inside_x", form_.x, "x");
    const char* step = weights ? "fmaf(x, w, acc)" : sum ? "acc + x" : "ingot_max(acc, x)";
    out.line(fmt::format("static INGOT_DEV float combine(float acc, float x, float w) {{ return {}; }}", step));
  }
  splice(f);
  expr_.include("math.cuh");
}

void WindowPrinter::print_epilogue() {
  FunctorPrinter f(kernel_, schedule_, expr_.i32());
  const Expr base = Expr::index(form_.channels.var.name() + "0", form_.channels.extent);
  Contract results;
  results.acc = form_.reduce.result;
  results.epilogue = form_.epilogue;
  {
    auto type = f.writer().type_block("struct Epilogue");
    f.writer().line("Args args;");
    auto call = f.writer().block(
        fmt::format("INGOT_DEV void operator()({0} outer, {0} y, {0} x, {0} c, float (&acc)[{1}]) const",
                    expr_.index_type(), schedule_.vector));
    f.bind_args();
    f.split(form_.outer, "outer", form_.epilogue);
    if (form_.y.out) f.bind_index_text(form_.y.out->var, "y");
    f.bind_index_text(form_.x.out->var, "x");
    f.bind_index_text(base, "c");
    f.vectorise_epilogue(form_.channels, base, schedule_.vector, results, {});
  }
  splice(f);
}

}  // namespace ingot
