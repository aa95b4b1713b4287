// Columns: neighbouring threads take neighbouring points, and several lanes share each of them: reductions along an axis
// that is not contiguous (the pixels of channels-last images) read memory in order and still fill the machine.
#include <fmt/format.h>

#include "codegen/cuda/cuda_printers.h"
#include "compiler/expr/combine.h"

namespace ingot {

void ColumnsPrinter::print() {
  const char* type = expr_.index_type();
  out_.splice(signature() + " {");
  out_.open_silently();
  bind_dims();
  wait_for_inputs();
  expr_.include("memory.cuh");
  expr_.include("sync.cuh");
  out_.line("INGOT_DYN_SHARED(shared);");
  const std::string lane = fmt::format("(int)threadIdx.x / {}", groups_);
  out_.line(schedule_.cluster_k > 1
                ? fmt::format("const int lane = (int)cluster_rank() * {} + {};", lanes_per_point_, lane)
                : fmt::format("const int lane = {};", lane));
  const std::string total = expr_.named(total_of(kernel_.domain), "total");
  out_.comment("Threads behind the last point repeat the first ones, for the barriers' sake, and store nothing.");
  const std::string block = schedule_.cluster_k > 1 ? fmt::format("(blockIdx.x / {})", schedule_.cluster_k) : "blockIdx.x";
  out_.line(fmt::format("const {0} own = (({0}){3} * {1} + (int)threadIdx.x % {1}) * {2};", type, groups_,
                        schedule_.vector, block));
  out_.line(fmt::format("const bool active = own < {};", total));
  out_.line(fmt::format("const {} point = active ? own : 0;", type));
  print_points("point");
  if (schedule_.cluster_k > 1) out_.line("cluster_sync();  // until the other blocks have read this one's shared memory");
  out_.close();
}

void ColumnsPrinter::share(const std::vector<Axis>& axes, const std::function<void()>& print_body) {
  ++depth_;
  nested([&] {
    const std::string total = expr_.value(total_of(axes));
    const bool single = axes.size() == 1;
    const std::string step = single ? bind_index(axes[0].var) : expr_.fresh("step");
    out_.directive("#pragma unroll 4");
    auto block = out_.block(
        fmt::format("for ({0} {1} = lane; {1} < {2}; {1} += {3})", expr_.index_type(), step, total,
                    lanes_per_point_ * schedule_.cluster_k),
        step);
    if (!single) bind_axes(axes, step);
    print_body();
  });
  --depth_;
}

void ColumnsPrinter::store(const Store& s) {
  if (depth_ > 0) return CudaPrinter::store(s);
  auto block = out_.block("if (lane == 0 && active)");
  nested([&] { CudaPrinter::store(s); });
}

void ColumnsPrinter::loop(const Loop& s) {
  if (depth_ > 0) return CudaPrinter::loop(s);
  auto block = out_.block("if (active)");
  share(s.axes, [&] { body(s.body); });
}

void ColumnsPrinter::reduce(const Reduce& r) {
  if (depth_ > 0) return CudaPrinter::reduce(r);
  expr_.include("reduce.cuh");
  const bool vector = lanes_ && varies(r.value);
  const int width = vector ? lanes_->width : 1;
  const std::string acc = expr_.fresh(identifier_of(r.result.name()));
  out_.line(fmt::format("{} {}[{}];", accumulator_type(r), acc, width));
  out_.line(fmt::format("for (int v = 0; v < {}; ++v) {}[v] = {}{};", width, acc, is_arg(r) ? accumulator_type(r) : "",
                        identity_text(r)));
  share(r.axes, [&] {
    if (!vector) return accumulate(r, acc + "[0]");
    load_vectors(r.value);
    auto lane = lane_loop();
    accumulate(r, acc + "[v]");
  });
  out_.line(fmt::format("column_reduce<{}, {}, {}>({}, {}{{}}, shared);", groups_, lanes_per_point_,
                        schedule_.cluster_k, acc, op_type(r)));
  const std::string one = acc + (vector ? "[v]" : "[0]");
  if (!is_arg(r) && !r.init.same(identity_of(r.combine, r.value.type()))) {
    const auto combine = [&] {
      const std::string init = expr_.operand(r.init);
      out_.line(fmt::format("{} = {};", one, combine_text(r.combine, r.value.type(), one, init)));
    };
    if (vector) {
      auto lane = lane_loop();
      combine();
    } else {
      combine();
    }
  }
  if (!vector) return expr_.bind(r.result, result_text(r, one), false);
  arrays_[r.result.name()] = {result_text(r, one), false};
  lanes_->variant.insert(r.result.name());
}

}  // namespace ingot
