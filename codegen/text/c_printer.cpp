#include "codegen/text/c_printer.h"

#include <fmt/format.h>

#include "compiler/expr/combine.h"
#include "compiler/expr/simplify.h"
#include "compiler/support/result.h"

namespace ingot {

namespace {
constexpr int64_t kUnrollLimit = 64;  // iterations of a nest that is unrolled
}

CPrinter::CPrinter(const Kernel& kernel, bool i32) : kernel_(kernel), expr_(out_, i32) {
  expr_.load_text = [this](int buffer, const std::string& index) {
    return from_storage(buffer_type(buffer), element(buffer, index));
  };
  expr_.buffer_name = [this](int buffer) { return identifier_of(buffer_name(buffer)); };
  expr_.reserve("v");
  for (const Buffer& b : kernel.buffers)
    if (const char* file = storage_include(b.type)) expr_.include(file);
}

DType CPrinter::buffer_type(int buffer) const {
  const auto n = static_cast<size_t>(buffer);
  if (n < kernel_.buffers.size()) return kernel_.buffers[n].type;
  for (const Alloc& a : scratch_)
    if (a.buffer == buffer) return a.type;
  INGOT_CHECK(false, fmt::format("buffer {} is neither a parameter nor allocated", buffer));
  return DType::F32;
}

std::string CPrinter::buffer_name(int buffer) const {
  const auto n = static_cast<size_t>(buffer);
  if (n < kernel_.buffers.size()) return identifier_of(kernel_.buffers[n].name);
  for (const Alloc& a : scratch_)
    if (a.buffer == buffer) return identifier_of(a.name);
  return fmt::format("scratch{}", buffer);
}

std::string CPrinter::element(int buffer, const std::string& index) {
  return fmt::format("{}[{}]", buffer_name(buffer), index);
}

std::string CPrinter::stored_text(DType type, const Expr& value) {
  std::string text = expr_.value(value);
  const std::string call = "to_f32(";
  const bool is_copy = value.op() == ExprOp::Load && buffer_type(value.buffer()) == type && is_float(type) &&
                       from_storage(type, "").starts_with(call);
  if (!is_copy || !text.starts_with(call)) return to_storage(type, text);
  int depth = 1;  // of brackets: the call's own is the last to end
  size_t at = call.size();
  while (at < text.size() && depth > 0) {
    depth += (text[at] == '(') - (text[at] == ')');
    ++at;
  }
  return at == text.size() ? text.substr(call.size(), at - call.size() - 1) : to_storage(type, text);
}

void CPrinter::store_element(int buffer, const std::string& index, const std::string& stored) {
  out_.line(fmt::format("{} = {};", element(buffer, index), stored));
}

// ---- statements ----

void CPrinter::body(const Body& body) {
  for (const Stmt& s : body) statement(s);
}

void CPrinter::statement(const Stmt& stmt) {
  forget_guarded();
  if (auto* s = stmt.as<Let>()) return let(*s);
  if (auto* s = stmt.as<Store>()) return store(*s);
  if (auto* s = stmt.as<Loop>()) return loop(*s);
  if (auto* s = stmt.as<Reduce>()) return reduce(*s);
  if (auto* s = stmt.as<Alloc>()) return alloc(*s);
  if (auto* s = stmt.as<If>()) return conditional(*s);
  if (auto* s = stmt.as<Note>()) return out_.comment("--- " + s->text + " ---");
  INGOT_CHECK(false, "a product inside a body");
}

void CPrinter::let(const Let& s) {
  const std::string stem = identifier_of(s.var.name());
  if (lanes_ && varies(s.value)) {
    load_vectors(s.value);
    const bool is_int = expr_.is_index(s.value);
    const std::string name = expr_.fresh(stem);
    out_.line(fmt::format("{} {}[{}];", is_int ? "int" : c_type(s.var.type()), name, lanes_->width));
    {
      auto lane = lane_loop();
      out_.line(fmt::format("{}[v] = {};", name, expr_.value(s.value)));
    }
    arrays_[s.var.name()] = {name + "[v]", is_int};
    lanes_->variant.insert(s.var.name());
    return;
  }
  const bool is_int = expr_.is_index(s.value);
  const std::string value = expr_.value(s.value);
  const std::string name = expr_.fresh(stem);
  out_.line(fmt::format("const {} {} = {};", is_int ? "int" : c_type(s.var.type()), name, value));
  expr_.bind(s.var, name, is_int);
}

void CPrinter::store(const Store& s) {
  const DType type = buffer_type(s.buffer);
  if (!lanes_) {
    const std::string index = expr_.place(s.index);
    store_element(s.buffer, index, stored_text(type, s.value));
    expr_.forget_loads(s.buffer);
    return;
  }
  load_vectors(s.value);
  load_vectors(s.index);
  if (const auto base = neighbour_base(s.buffer, s.index)) {
    const std::string name = expr_.fresh(buffer_name(s.buffer) + "_out");
    out_.line(fmt::format("Vec<{}, {}> {};", c_storage_type(type), lanes_->width, name));
    {
      auto lane = lane_loop();
      out_.line(fmt::format("{}[v] = {};", name, stored_text(type, s.value)));
    }
    expr_.include("memory.cuh");
    store_vector(s.buffer, expr_.operand(*base), name);
  } else {
    auto lane = lane_loop();
    const std::string index = expr_.place(s.index);
    store_element(s.buffer, index, stored_text(type, s.value));
  }
  expr_.forget_loads(s.buffer);
}

std::string CPrinter::bind_index(const Expr& var) {
  const std::string name = expr_.fresh(identifier_of(var.name()));
  expr_.bind(var, name, expr_.i32());
  return name;
}

void CPrinter::nested(const std::function<void()>& print) {
  const auto arrays = arrays_;
  const auto lanes = lanes_;
  ExprPrinter::Scope scope(expr_);
  print();
  arrays_ = arrays;
  lanes_ = lanes;
}

void CPrinter::loops(const std::vector<Axis>& axes, size_t first, const std::function<void()>& print_body) {
  if (first == axes.size()) return nested(print_body);
  int64_t iterations = 1;
  for (size_t i = first; i < axes.size(); ++i) {
    const auto n = axes[i].extent.as_int();
    iterations = n && iterations <= kUnrollLimit ? iterations * *n : kUnrollLimit + 1;
  }
  nested([&] {
    const Axis& axis = axes[first];
    if (axis.extent.is_const(1)) {
      expr_.bind(axis.var, "0", expr_.i32());
      return loops(axes, first + 1, print_body);
    }
    const std::string extent = expr_.value(axis.extent);
    const std::string name = bind_index(axis.var);
    if (iterations <= kUnrollLimit) out_.directive("#pragma unroll");
    auto block = out_.block(fmt::format("for ({0} {1} = 0; {1} < {2}; ++{1})", expr_.index_type(), name, extent), name);
    loops(axes, first + 1, print_body);
  });
}

void CPrinter::bind_axes(const std::vector<Axis>& axes, const std::string& flat) {
  size_t first = 0;  // the first axis with more than one value needs no modulus
  while (first < axes.size() && axes[first].extent.is_const(1)) ++first;
  std::string rest = flat;
  for (size_t i = axes.size(); i-- > 0;) {
    const Axis& axis = axes[i];
    if (i < first || axis.extent.is_const(1)) {
      expr_.bind(axis.var, "0", expr_.i32());
      continue;
    }
    if (i == first && rest == flat) {
      expr_.bind(axis.var, flat, expr_.i32());
      continue;
    }
    if (i == first) {
      out_.line(fmt::format("const {} {} = {};", expr_.index_type(), bind_index(axis.var), rest));
      continue;
    }
    const std::string extent = expr_.named(axis.extent, "extent");
    out_.line(fmt::format("const {} {} = {} % {};", expr_.index_type(), bind_index(axis.var), rest, extent));
    rest = fmt::format("{} / {}", rest, extent);
  }
}

void CPrinter::loop(const Loop& s) {
  if (lanes_ && varies(s.axes)) return each_lane([&] { loop(s); });
  loops(s.axes, 0, [&] { body(s.body); });
}

void CPrinter::conditional(const If& s) {
  if (lanes_ && varies(s.condition)) return each_lane([&] { conditional(s); });
  auto block = out_.block(fmt::format("if ({})", expr_.value(s.condition)));
  nested([&] { body(s.body); });
}

void CPrinter::alloc(const Alloc& s) {
  scratch_.push_back(s);
  const auto size = s.size.as_int();
  INGOT_CHECK(size && !lanes_, "a private array needs a constant size");
  const std::string name = identifier_of(s.name);
  expr_.reserve(name);
  const int64_t elements = std::max<int64_t>(*size, 1);  // C++ has no array of nothing
  out_.line(fmt::format("{} {}[{}];", c_storage_type(s.type), name, elements));
}

// ---- reductions ----

std::string CPrinter::combine_text(Combine combine, DType type, const std::string& acc, const std::string& value) {
  const bool wraps = is_integer(type) && type != DType::U32 && type != DType::U64;
  switch (combine) {
    case Combine::Sum:
    case Combine::Product:
      if (wraps) {
        expr_.include("integer.cuh");
        return fmt::format("{}<{}>({}, {})", combine == Combine::Sum ? "wrap_add" : "wrap_mul", c_type(type), acc,
                           value);
      }
      return fmt::format("{} {} {}", acc, combine == Combine::Sum ? '+' : '*',
                         value.find(' ') == std::string::npos ? value : "(" + value + ")");
    case Combine::Max:
    case Combine::Min:
      expr_.include("math.cuh");
      return fmt::format("{}<{}>({}, {})", combine == Combine::Max ? "ingot_max" : "ingot_min", c_type(type), acc,
                         value);
    case Combine::And: return fmt::format("({})({} & ({}))", c_type(type), acc, value);
    case Combine::Or: return fmt::format("({})({} | ({}))", c_type(type), acc, value);
    default: INGOT_CHECK(false, "ArgMax and ArgMin combine by ArgOp"); return {};
  }
}

std::string CPrinter::op_type(const Reduce& r) {
  switch (r.combine) {
    case Combine::Sum: return "SumOp";
    case Combine::Product: return "ProductOp";
    case Combine::Max: return "MaxOp";
    case Combine::Min: return "MinOp";
    case Combine::And: return "AndOp";
    case Combine::Or: return "OrOp";
    default: return fmt::format("ArgOp<{}, {}>", r.combine == Combine::ArgMax, r.last);
  }
}

std::string CPrinter::accumulator_type(const Reduce& r) const {
  return is_arg(r) ? fmt::format("Arg<{}>", c_type(r.value.type())) : std::string(c_type(r.value.type()));
}

std::string CPrinter::identity_text(const Reduce& r) {
  if (is_arg(r)) return "{0, -1}";
  return expr_.value(identity_of(r.combine, r.value.type()));
}

Expr CPrinter::position_of(const Reduce& r) {
  Expr position = 0;
  for (const Axis& axis : r.axes) position = position * axis.extent + axis.var;
  return position;
}

void CPrinter::accumulate(const Reduce& r, const std::string& acc) {
  const std::string value = expr_.value(r.value);
  if (!is_arg(r)) {
    const DType type = r.value.type();
    const bool plus = r.combine == Combine::Sum && (is_float(type) || type == DType::U32 || type == DType::U64);
    out_.line(plus ? fmt::format("{} += {};", acc, value)
                   : fmt::format("{} = {};", acc, combine_text(r.combine, type, acc, value)));
    return;
  }
  expr_.include("reduce.cuh");
  const std::string position = expr_.value(position_of(r));
  out_.line(fmt::format("{0} = {1}{{}}({0}, {2}{{{3}, {4}}});", acc, op_type(r), accumulator_type(r), value, position));
}

void CPrinter::reduce_serial(const Reduce& r, const std::string& acc) {
  loops(r.axes, 0, [&] {
    if (lanes_ && varies(r.value)) {
      load_vectors(r.value);
      auto lane = lane_loop();
      return accumulate(r, acc + "[v]");
    }
    accumulate(r, acc);
  });
}

void CPrinter::reduce(const Reduce& r) {
  if (is_arg(r)) expr_.include("reduce.cuh");
  const std::string stem = identifier_of(r.result.name());
  const bool init_varies = !is_arg(r) && varies(r.init);
  if (!lanes_ || !(varies(r.value) || varies(r.axes) || init_varies)) {
    const std::string init = is_arg(r) ? "{0, -1}" : expr_.value(r.init);
    const std::string acc = expr_.fresh(stem);
    out_.line(fmt::format("{} {} = {};", accumulator_type(r), acc, init));
    reduce_serial(r, acc);
    expr_.bind(r.result, result_text(r, acc), false);
    return;
  }
  const std::string acc = expr_.fresh(stem);
  out_.line(fmt::format("{} {}[{}];", accumulator_type(r), acc, lanes_->width));
  {
    auto lane = lane_loop();
    out_.line(is_arg(r) ? fmt::format("{}[v] = {}{{0, -1}};", acc, accumulator_type(r))
                        : fmt::format("{}[v] = {};", acc, expr_.value(r.init)));
  }
  if (varies(r.axes) || !varies(r.value)) each_lane([&] { reduce_serial(r, acc + "[v]"); });
  else reduce_serial(r, acc);
  arrays_[r.result.name()] = {result_text(r, acc + "[v]"), false};
  lanes_->variant.insert(r.result.name());
}

}  // namespace ingot
