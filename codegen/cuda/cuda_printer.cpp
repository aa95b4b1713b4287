#include "codegen/cuda/cuda_printer.h"

#include <fmt/format.h>

#include "codegen/cuda/cuda_printers.h"
#include "compiler/expr/simplify.h"

namespace ingot {

CudaPrinter::CudaPrinter(const Kernel& kernel, const Schedule& schedule, bool i32)
    : CPrinter(kernel, i32), schedule_(schedule) {
  for (const char* word :
       {"int",   "float", "double", "bool", "char",   "short",  "long",     "for",   "if",     "else",
        "while", "do",    "const",  "auto", "new",    "delete", "this",     "true",  "false",  "min",
        "max",   "abs",   "exp",    "log",  "sin",    "cos",    "pow",      "sqrt",  "floor",  "ceil",
        "round", "point", "row",    "lane",   "mine", "shared", "args",   "i8",       "i16",   "i32",    "i64",
        "u8",    "u16",   "u32",    "u64",  "f16",    "bf16",   "active",   "batch", "m",      "n",
        "k",     "acc",   "out",    "div",  "rem",    "struct", "template", "class", "signed", "unsigned",
        "side",  "depth",  "from",   "map_0", "map_1",  "map_2",  "in"}) {
    expr_.reserve(word);
  }
  expr_.approximate = true;
  // Behind the operands and results: what the blocks of this plan tell each other.
  const size_t behind = kernel.buffers.size() - (schedule.grid_k > 1 ? 2 : 0);
  for (size_t i = 0; i < kernel.buffers.size(); ++i) {
    const Buffer& b = kernel.buffers[i];
    expr_.reserve(identifier_of(b.name));
    if (i >= behind) written_.insert(static_cast<int>(i));
    else expr_.approximate &= !b.is_output || b.type == DType::F16 || b.type == DType::BF16;
  }
  each_access(kernel.body,
              [&](int buffer, const Expr&, bool is_store) { (is_store ? written_ : read_).insert(buffer); });
}

std::string CudaPrinter::dim_parameter(const Expr& dim) const { return "dim_" + identifier_of(dim.name()); }

std::string CudaPrinter::pointer_type(int buffer) const {
  const Buffer& b = kernel_.buffers[static_cast<size_t>(buffer)];
  const bool written = is_written(buffer);
  return fmt::format("{}{}*{}", written ? "" : "const ", c_storage_type(b.type),
                     written || b.is_constant ? " __restrict__" : "");
}

std::string CudaPrinter::signature() const {
  std::string list;
  for (size_t i = 0; i < kernel_.buffers.size(); ++i) {
    const Buffer& b = kernel_.buffers[i];
    list += fmt::format("{}{} {}", list.empty() ? "" : ", ", pointer_type(static_cast<int>(i)), identifier_of(b.name));
  }
  for (const Expr& d : kernel_.dims) list += fmt::format("{}i64 {}", list.empty() ? "" : ", ", dim_parameter(d));
  for (size_t i = 0; i < box_maps(kernel_, schedule_).size(); ++i)
    list += fmt::format(", const __grid_constant__ TensorMap map_{}", i);
  // Without a block count ptxas spills registers of large tiles for the sake of occupancy.
  const bool counted = schedule_.kind == Schedule::Kind::Tiles || schedule_.kind == Schedule::Kind::Window || schedule_.tile.boxes ||
                       shares_keys(schedule_);
  const std::string residents =
      counted ? fmt::format(", {}", blocks_per_sm_) : std::string();
  const std::string cluster =
      schedule_.cluster_k > 1 ? fmt::format(" __cluster_dims__({}, 1, 1)", schedule_.cluster_k) : "";
  return fmt::format("extern \"C\" __global__ void __launch_bounds__({}{}){}\n{}({})", schedule_.threads, residents,
                     cluster, kPlaceholderName, list);
}

std::string CudaPrinter::shared_element(int buffer, const std::string& index) const {
  const DType type = buffer_type(buffer);
  return fmt::format("lds<{}>({} + ({}) * {})", c_storage_type(type), buffer_name(buffer), index, size_of(type));
}

void CudaPrinter::wait_for_inputs() {
  expr_.include("sync.cuh");
  out_.line("pdl_begin();");
}

void CudaPrinter::bind_dims() {
  std::unordered_set<std::string> used;
  const auto use = [&](const Expr& e) {
    visit(e, [&](const Expr& x) {
      if (x.op() == ExprOp::Symbol) used.insert(x.name());
    });
  };
  each_expr(kernel_.body, use);
  for (const Axis& a : kernel_.domain) use(a.extent);
  for (const Expr& d : kernel_.dims) {
    if (!used.count(d.name())) continue;
    const std::string name = expr_.fresh(identifier_of(d.name()));
    const char* type = is_value_dim(d) ? "i64" : expr_.index_type();
    out_.line(fmt::format("const {} {} = ({}){};", type, name, type, dim_parameter(d)));
    expr_.bind(d, name, expr_.i32() && !is_value_dim(d));
  }
}

std::string CudaPrinter::finish() const {
  std::string text;
  for (const std::string& file : includes()) text += fmt::format("#include \"prelude/{}\"\n", file);
  text += "\n" + out_.text();
  if (schedule_.cluster_k > 1) text += fmt::format("INGOT_CLUSTER({}, {})\n", kPlaceholderName, schedule_.cluster_k);
  return text + fmt::format("INGOT_ENTRY({})\n", kPlaceholderName);
}

// ---- points ----

void PointsPrinter::print() {
  const int chunk = schedule_.threads * schedule_.vector;
  const char* type = expr_.index_type();
  out_.splice(signature() + " {");
  out_.open_silently();
  bind_dims();
  wait_for_inputs();
  const std::string total = expr_.named(total_of(kernel_.domain), "total");
  const std::string block = expr_.i32() ? "(int)blockIdx.x" : "(i64)blockIdx.x";
  const std::string thread =
      schedule_.vector > 1 ? fmt::format("(int)threadIdx.x * {}", schedule_.vector) : "(int)threadIdx.x";
  if (schedule_.points_per_thread == 1) {
    out_.line(fmt::format("const {} point = {} * {} + {};", type, block, chunk, thread));
    out_.line(fmt::format("if (point >= {}) return;", total));
    print_points("point");
  } else {
    out_.directive("#pragma unroll");
    auto loop = out_.block(fmt::format("for (int part = 0; part < {}; ++part)", schedule_.points_per_thread), "part");
    out_.line(fmt::format("const {} point = ({} * {} + part) * {} + {};", type, block, schedule_.points_per_thread,
                          chunk, thread));
    out_.line(fmt::format("if (point >= {}) break;", total));
    nested([&] { print_points("point"); });
  }
  out_.close();
}

void CudaPrinter::print_points(const std::string& position) {
  std::vector<Axis> axes = kernel_.domain;
  if (schedule_.vector == 1 || axes.empty()) {
    bind_axes(axes, position);
    return body(kernel_.body);
  }
  const Expr inner = axes.back().var, base = Expr::index(inner.name() + "0", axes.back().extent);
  axes.back().var = base;
  bind_axes(axes, position);
  with_lanes(inner, base, schedule_.vector, [&] { body(kernel_.body); });
}

Result<std::string> print_cuda(const Kernel& kernel, const Schedule& schedule) {
  const bool i32 = fits_i32(kernel);
  for (const Buffer& b : kernel.buffers)
    if (b.type == DType::String) return unsupported("a string tensor in a kernel: " + b.name);
  if (schedule.kind == Schedule::Kind::Points) {
    PointsPrinter printer(kernel, schedule, i32);
    printer.print();
    return printer.finish();
  }
  if (schedule.kind == Schedule::Kind::Crossed) {
    CrossedPrinter printer(kernel, schedule, i32);
    printer.print();
    return printer.finish();
  }
  if (schedule.kind == Schedule::Kind::Columns) {
    ColumnsPrinter printer(kernel, schedule, i32);
    printer.print();
    return printer.finish();
  }
  if (schedule.kind == Schedule::Kind::Rows) {
    const RowShared shared = INGOT_TRY(row_shared(kernel, schedule));
    RowsPrinter printer(kernel, schedule, i32, shared);
    printer.print();
    return printer.finish();
  }
  if (schedule.kind == Schedule::Kind::Window) {
    WindowPrinter printer(kernel, schedule, i32);
    printer.print();
    return printer.finish();
  }
  if (schedule.kind == Schedule::Kind::Attention) {
    AttentionPrinter printer(kernel, schedule, i32);
    printer.print();
    return printer.finish();
  }
  TilesPrinter printer(kernel, schedule, i32);
  printer.print();
  return printer.finish();
}

}  // namespace ingot
