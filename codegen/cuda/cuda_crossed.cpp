// Crossed: tiles of two axes by way of shared memory (crossed_form.h).
#include <fmt/format.h>

#include "codegen/cuda/crossed_form.h"
#include "codegen/cuda/cuda_printers.h"
#include "compiler/expr/simplify.h"

namespace ingot {

CrossedPrinter::CrossedPrinter(const Kernel& kernel, const Schedule& schedule, bool i32)
    : CudaPrinter(kernel, schedule, i32), form_(*crossed_form(kernel)), tile_(crossed_tile(kernel, form_, schedule)) {
  for (size_t i = 0; i < form_.staged.size(); ++i) {
    scratch_.push_back(
        {static_cast<int>(kernel.buffers.size() + i), expr_.fresh(fmt::format("tile{}", i)), form_.types[i], 0});
  }
}

CrossedPrinter::Shared CrossedPrinter::share(int64_t count, const char* stem) {
  const std::string part = expr_.fresh("part"), item = expr_.fresh(stem);
  out_.directive("#pragma unroll");
  Shared s{out_.block(fmt::format("for (int {0} = 0; {0} < {1}; ++{0})", part, parts_of(count)), part), part, item};
  out_.line(fmt::format("const int {} = {} * {} + (int)threadIdx.x;", item, part, schedule_.threads));
  return s;
}

std::string CrossedPrinter::inside(const std::string& across, const std::string& last) {
  std::string all;
  const auto add = [&](const Axis& axis, int64_t step, const std::string& text) {
    if (is_multiple(axis.extent, step)) return;
    all += fmt::format("{}{} < {}", all.empty() ? "" : " && ", text, expr_.operand(axis.extent));
  };
  add(form_.across, schedule_.tile.m, across);
  add(form_.last, schedule_.tile.n, last);
  return all;
}

std::string CrossedPrinter::print_read(size_t i) {
  const CrossedTile::Staged& of = tile_.staged[i];
  const int64_t vectors = vectors_across(i), count = vectors * schedule_.tile.n;
  const std::string type = c_storage_type(form_.types[i]), arrived = expr_.fresh("arrived");
  out_.line(fmt::format("Vec<{}, {}> {}[{}] = {{}};", type, of.vector, arrived, parts_of(count)));
  nested([&] {
    const Shared shared = share(count, "vector");
    const std::string last = expr_.fresh("last"), across = expr_.fresh("across");
    const char* t = expr_.index_type();
    out_.line(
        fmt::format("const {} {} = {} + {} / {};", t, last, expr_.operand(tile_.last_start), shared.item, vectors));
    out_.line(fmt::format("const {} {} = {} + {} % {} * {};", t, across, expr_.operand(tile_.across_start), shared.item,
                          vectors, of.vector));
    std::string within = inside(across, last);
    if (count % schedule_.threads != 0)
      within = fmt::format("{} < {}{}{}", shared.item, count, within.empty() ? "" : " && ", within);
    const auto read = [&] {
      const std::string place = fmt::format("{}[{}]", arrived, shared.part);
      expr_.bind(form_.last.var, last, expr_.i32());
      const auto stored = [&] { return stored_text(form_.types[i], form_.staged[i]); };
      if (of.vector == 1) {
        expr_.bind(form_.across.var, across, expr_.i32());
        const std::string value = stored();
        return out_.line(fmt::format("{}[0] = {};", place, value));
      }
      const Expr base = Expr::index(form_.across.var.name() + "_first", form_.across.extent);
      expr_.bind(base, across, expr_.i32());
      with_lanes(form_.across.var, base, of.vector, [&] {
        load_vectors(form_.staged[i]);
        auto lane = lane_loop();
        out_.line(fmt::format("{}[v] = {};", place, stored()));
      });
    };
    if (within.empty()) return read();
    auto block = out_.block(fmt::format("if ({})", within));
    nested(read);
  });
  return arrived;
}

void CrossedPrinter::print_staged(size_t i, const std::string& arrived) {
  const CrossedTile::Staged& of = tile_.staged[i];
  const int64_t vectors = vectors_across(i), count = vectors * schedule_.tile.n;
  nested([&] {
    const Shared shared = share(count, "vector");
    const std::string store =
        fmt::format("sts_words({} + ({} / {} * {} + {} % {} * {}) * {}, {}[{}]);", scratch_[i].name, shared.item,
                    vectors, of.pitch, shared.item, vectors, of.vector, size_of(form_.types[i]), arrived, shared.part);
    out_.line(count % schedule_.threads == 0 ? store : fmt::format("if ({} < {}) {}", shared.item, count, store));
  });
}

void CrossedPrinter::print_points_of_tile() {
  const int64_t count = int64_t{schedule_.tile.m} * schedule_.tile.n / schedule_.vector;
  const Shared shared = share(count, "item");
  if (count % schedule_.threads != 0) out_.line(fmt::format("if ({} >= {}) break;", shared.item, count));
  std::vector<Axis> axes = tile_.points;
  const Expr inner = axes.back().var;
  axes.back().extent = simplify(floor_div(axes.back().extent, schedule_.vector));
  const Expr vector = Expr::index(inner.name() + "_vector", axes.back().extent);
  axes.back().var = schedule_.vector > 1 ? vector : inner;
  bind_axes(axes, shared.item);
  Expr base = inner;
  if (schedule_.vector > 1) {
    base = Expr::index(inner.name() + "_first", inner.extent());
    const std::string first = expr_.fresh(identifier_of(base.name()));
    out_.line(fmt::format("const int {} = {} * {};", first, expr_.operand(vector), schedule_.vector));
    expr_.bind(base, first, true);
  }
  const auto at_first = [&](const Expr& e) { return expr_.operand(simplify(substitute(e, {{inner.name(), base}}))); };
  std::string within = inside(at_first(tile_.across), at_first(tile_.last));
  const auto print = [&] {
    if (schedule_.vector == 1) return body(tile_.body);
    with_lanes(inner, base, schedule_.vector, [&] { body(tile_.body); });
  };
  if (within.empty()) return print();
  auto block = out_.block(fmt::format("if ({})", within));
  nested(print);
}

void CrossedPrinter::print() {
  out_.splice(signature() + " {");
  out_.open_silently();
  bind_dims();
  wait_for_inputs();
  expr_.include("memory.cuh");
  out_.line("INGOT_DYN_SHARED(shared);");
  for (size_t i = 0; i < tile_.staged.size(); ++i)
    out_.line(fmt::format("const u32 {} = shared + {};", scratch_[i].name, tile_.staged[i].offset));
  bind_axes(tile_.blocks, expr_.i32() ? "(int)blockIdx.x" : "(i64)blockIdx.x");
  std::vector<std::string> arrived;
  for (size_t i = 0; i < tile_.staged.size(); ++i) arrived.push_back(print_read(i));
  for (size_t i = 0; i < tile_.staged.size(); ++i) print_staged(i, arrived[i]);
  out_.line("cta_sync();");
  nested([&] { print_points_of_tile(); });
  out_.close();
}

}  // namespace ingot
