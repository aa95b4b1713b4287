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
  if (form_.line) print_line();
  if (form_.parts.width > 0) print_parts_of_channels();
  out_.splice(signature() + " {");
  out_.open_silently();
  bind_args_of_entry();
  print_extent(form_.outer, "outers");
  out_.line(fmt::format("{}<Plan>(Window{{args}}, Epilogue{{args}}, {}outers);",
                        form_.parts.width > 0 ? "window_with_parts" : "window",
                        form_.line              ? "Line{args}, "
                        : form_.parts.width > 0 ? "ChannelParts{args}, "
                                                : ""));
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
  out_.line(fmt::format("static constexpr int channels = {}, groups = {}, weights_at = {};",
                        *form_.channels.extent.as_int(), schedule_.tile.k, window_shared(form_, schedule_).weights_at));
}

/// A function of the functor whose result is `value` for `vector` neighbouring channels, or a truth value.
void WindowPrinter::print_load(FunctorPrinter& f, const char* head, const Expr& load,
                               const std::vector<std::pair<Expr, const char*>>& indices) {
  FunctorPrinter one(kernel_, schedule_, expr_.i32());
  const Expr base = Expr::index(form_.channels.var.name() + "0", form_.channels.extent);
  const Expr index = simplify(substitute(load.arg(0), {{form_.channels.var.name(), base}}));
  const bool weight = form_.weight.valid() && load.same(form_.weight);  // before the wait
  {
    auto call = one.writer().block(head);
    one.bind_args();
    one.split(form_.outer, "outer", as_body(index));
    one.bind_index_text(base, "c");
    for (const auto& [symbol, text] : indices)
      if (symbol.valid()) one.bind_index_text(symbol, text);
    one.writer().line(fmt::format("return {}<{}>({});", weight ? "load_vec_early" : "load_vec", schedule_.vector,
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

void WindowPrinter::print_call(FunctorPrinter& f, const char* name, bool of_line, const Body& uses,
                               const std::function<void(const Expr&)>& print) {
  const char* index = expr_.index_type();
  const Expr base = Expr::index(form_.channels.var.name() + "0", form_.channels.extent);
  auto call =
      f.writer().block(fmt::format("INGOT_DEV void {0}({1} outer, {1} y, {2}{1} c, float (&acc)[{3}]) const", name,
                                   index, of_line ? std::string() : fmt::format("{} x, ", index), schedule_.vector));
  f.bind_args();
  f.split(form_.outer, "outer", uses);
  if (form_.y.out) f.bind_index_text(form_.y.out->var, "y");
  if (!of_line) f.bind_index_text(form_.x.out->var, "x");
  f.bind_index_text(base, "c");
  print(base);
}

/// What a functor does with `vector` neighbouring results.
void WindowPrinter::print_results(FunctorPrinter& f, bool of_line, const Expr& acc, const Body& results) {
  Contract c;
  c.acc = acc;
  c.epilogue = results;
  print_call(f, "operator()", of_line, results,
             [&](const Expr& base) { f.vectorise_epilogue(form_.channels, base, schedule_.vector, c, {}); });
}

void WindowPrinter::print_epilogue() {
  FunctorPrinter f(kernel_, schedule_, expr_.i32());
  {
    auto type = f.writer().type_block("struct Epilogue");
    f.writer().line("Args args;");
    print_results(f, false, form_.reduce.result, form_.epilogue);
  }
  splice(f);
}

void WindowPrinter::print_line() {
  const WindowLine& line = *form_.line;
  FunctorPrinter f(kernel_, schedule_, expr_.i32());
  {
    auto type = f.writer().type_block("struct Line");
    f.writer().line("Args args;");
    f.print_combination(line.reduce.combine, DType::F32);
    print_call(f, "value", false, as_body(line.value), [&](const Expr& base) {
      f.change_results(form_.channels, base, schedule_.vector, form_.reduce.result, line.value);
    });
    print_results(f, true, line.reduce.result, line.epilogue);
  }
  splice(f);
  out_.blank();
}

void WindowPrinter::print_parts_of_channels() {
  FunctorPrinter f(kernel_, schedule_, expr_.i32());
  {
    auto type = f.writer().type_block("struct ChannelParts");
    f.writer().line("Args args;");
    f.writer().line(fmt::format("static constexpr int kLanes = {};", form_.parts.width / schedule_.vector));
    FunctorPrinter value(kernel_, schedule_, expr_.i32()), sums(kernel_, schedule_, expr_.i32());
    print_call(value, "value", false, as_body(form_.stored), [&](const Expr& base) {
      value.change_results(form_.channels, base, schedule_.vector, form_.reduce.result, form_.stored);
    });
    f.writer().splice(value.text());
    sums.print_part_sums(form_.parts, {"outer", "y", "x"}, "c", [&](const Body& uses) {
      sums.split(form_.outer, "outer", uses);
      if (form_.y.out) sums.bind_index_text(form_.y.out->var, "y");
      sums.bind_index_text(form_.x.out->var, "x");
    });
    f.writer().splice(sums.text());
  }
  splice(f);
  out_.blank();
}

}  // namespace ingot
