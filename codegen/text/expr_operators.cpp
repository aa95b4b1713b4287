// The text of single expression nodes: how each operation is spelled for each class of type.
#include <cmath>
#include <optional>

#include <fmt/format.h>

#include "codegen/text/expr_printer.h"
#include "compiler/expr/simplify.h"
#include "compiler/support/result.h"

namespace ingot {

const char* c_type(DType type) {
  switch (compute_type(type)) {
    case DType::Bool: return "bool";
    case DType::U8: return "u8";
    case DType::I8: return "i8";
    case DType::U16: return "u16";
    case DType::I16: return "i16";
    case DType::U32: return "u32";
    case DType::I32: return "i32";
    case DType::U64: return "u64";
    case DType::I64: return "i64";
    case DType::F64: return "double";
    default: return "float";
  }
}

const char* c_storage_type(DType type) {
  switch (type) {
    case DType::F16: return "f16";
    case DType::BF16: return "bf16";
    case DType::I4:
    case DType::I2: return "i8";
    case DType::U4:
    case DType::U2: return "u8";
    default: return is_small_float(type) ? name_of(type) : c_type(type);
  }
}

std::string to_storage(DType storage, const std::string& value) {
  if (compute_type(storage) == storage) return value;
  const char* type = c_storage_type(storage);
  return is_float(storage) ? fmt::format("to_{}({})", type, value) : fmt::format("({})({})", type, value);
}

std::string from_storage(DType storage, const std::string& element) {
  if (compute_type(storage) == storage) return element;
  return is_float(storage) ? fmt::format("to_f32({})", element) : fmt::format("(i32){}", element);
}

const char* storage_include(DType storage) {
  const bool in_types = storage == DType::F8E4M3 || storage == DType::F8E5M2;
  return is_small_float(storage) && !in_types ? "small_floats.cuh" : nullptr;
}

ExprPrinter::Text ExprPrinter::leaf_text(const Expr& e) {
  if (e.op() == ExprOp::Const) return constant_text(e);
  const Bound* bound = find_symbol(e.name());
  INGOT_CHECK(bound, "symbol without a value: " + e.name());
  const bool atom = bound->text.find(' ') == std::string::npos;
  return {bound->text, atom ? 15 : 0};
}

ExprPrinter::Text ExprPrinter::constant_text(const Expr& e) {
  const DType type = e.type();
  if (type == DType::Bool) return {e.int_value() ? "true" : "false", 15};
  if (is_float(type)) {
    const double v = e.float_value();
    const bool f64 = type == DType::F64;
    if (std::isnan(v)) return {f64 ? "kNan64" : "kNan", 15};
    if (std::isinf(v)) return {fmt::format("{}{}", v < 0 ? "-" : "", f64 ? "kInf64" : "kInf"), v < 0 ? 14 : 15};
    std::string s = f64 ? fmt::format("{}", v) : fmt::format("{}", static_cast<float>(v));
    if (s.find_first_of(".e") == std::string::npos) s += ".0";
    if (!f64) s += 'f';
    return {s, std::signbit(v) ? 14 : 15};
  }
  const int64_t v = e.int_value();
  if (type == DType::U64 || type == DType::U32) {
    return {fmt::format("{}{}", static_cast<uint64_t>(v), type == DType::U64 ? "ull" : "u"), 15};
  }
  if (v == INT64_MIN) return {"(-9223372036854775807ll - 1)", 15};
  if (type == DType::I32 && v == INT32_MIN) return {"(-2147483647 - 1)", 15};
  const bool plain = type != DType::I64 || is_index(e);
  return {fmt::format("{}{}", v, plain ? "" : "ll"), v < 0 ? 14 : 15};
}

ExprPrinter::Text ExprPrinter::infix(const char* op, int precedence, const Expr& a, const Expr& b) {
  // The right operand is bracketed at equal precedence: a - (b - c), and the order of float additions.
  return {fmt::format("{} {} {}", bracket(text(a), precedence), op, bracket(text(b), precedence + 1)), precedence};
}

std::string ExprPrinter::wide(const Expr& e) {
  const Text t = text(e);
  if (e.type() != DType::I64 || !is_index(e)) {
    const bool narrow_constant = e.is_const() && (size_of(e.type()) < 4);
    return narrow_constant ? fmt::format("({}){}", c_type(e.type()), t.s) : t.s;
  }
  return e.is_const() ? t.s + "ll" : fmt::format("(i64){}", bracket(t, 14));
}

ExprPrinter::Text ExprPrinter::place_text(const Expr& e) {
  if (!i32_ || e.type() != DType::I64 || is_index(e)) return text(e);
  if (!find_value(e)) {
    // Buffers have fewer than 2^31 elements, and sums and products are right modulo 2^32.
    const auto part = [&](const char* op, int precedence) {
      return Text{fmt::format("{} {} {}", bracket(place_text(e.arg(0)), precedence), op,
                              bracket(place_text(e.arg(1)), precedence + 1)),
                  precedence};
    };
    if (e.op() == ExprOp::Add) return part("+", 12);
    if (e.op() == ExprOp::Sub) return part("-", 12);
    if (e.op() == ExprOp::Mul) return part("*", 13);
  }
  return {"(int)" + bracket(text(e), 14), 14};
}

ExprPrinter::Text ExprPrinter::call_text(const std::string& function, const std::vector<Expr>& args, bool widen) {
  std::string list;
  for (const Expr& a : args) list += (list.empty() ? "" : ", ") + (widen ? wide(a) : text(a).s);
  return {fmt::format("{}({})", function, list), 15};
}

/// 1 / e where e is a number, and neither of the two is near the ends of the range of f32.
static std::optional<Expr> exact_enough_reciprocal(const Expr& e) {
  if (!e.is_const()) return std::nullopt;
  const double size = std::abs(e.float_value());
  if (!(size > 1e-30 && size < 1e30)) return std::nullopt;
  return Expr::real(DType::F32, 1.0 / e.float_value());
}

ExprPrinter::Text ExprPrinter::binary_text(const Expr& e) {
  const Expr &a = e.arg(0), &b = e.arg(1);
  const DType type = a.type();
  switch (e.op()) {
    case ExprOp::Eq: return infix("==", 10, a, b);
    case ExprOp::Ne: return infix("!=", 10, a, b);
    case ExprOp::Lt: return infix("<", 11, a, b);
    case ExprOp::Le: return infix("<=", 11, a, b);
    case ExprOp::Min:
    case ExprOp::Max:
      include("math.cuh");
      return call_text(e.op() == ExprOp::Min ? "ingot_min" : "ingot_max", e.args(), !is_index(e));
    default: break;
  }
  if (type == DType::Bool) {
    switch (e.op()) {
      case ExprOp::And: return infix("&&", 5, a, b);
      case ExprOp::Or: return infix("||", 4, a, b);
      default: return infix("!=", 10, a, b);  // Xor
    }
  }
  if (is_integer(type)) return integer_binary_text(e);
  switch (e.op()) {
    case ExprOp::Add:
      if (const Expr* call = one_plus_of(e)) return one_plus_text(*call);
      return infix("+", 12, a, b);
    case ExprOp::Sub: return infix("-", 12, a, b);
    case ExprOp::Mul:
      if (a.is_const(-1)) return {"-" + bracket(text(b), 15), 14};
      if (const auto gelu = gelu_text(e)) return *gelu;
      return infix("*", 13, a, b);
    case ExprOp::Div:
      if (!approximate || type != DType::F32) return infix("/", 13, a, b);
      if (const auto factor = exact_enough_reciprocal(b)) return infix("*", 13, a, *factor);
      include("math.cuh");
      return call_text("fast_div", e.args());
    default: break;
  }
  include("math.cuh");
  return call_text(e.op() == ExprOp::Rem        ? "ingot_rem"
                   : e.op() == ExprOp::FloorDiv ? "floor_div"
                                                : "floor_mod",
                   e.args());
}

ExprPrinter::Text ExprPrinter::integer_binary_text(const Expr& e) {
  const Expr &a = e.arg(0), &b = e.arg(1);
  const DType type = e.type();
  // Indices do not overflow, and 32- and 64-bit unsigned arithmetic wraps by itself.
  const bool index = is_index(e) || (!i32_ && type == DType::I64 && !has_load(e));
  const bool plain = index || type == DType::U32 || type == DType::U64;
  const bool simple_division = index && bounds_of(a).low >= 0 && bounds_of(b).low >= 0;
  const std::string narrow = size_of(type) < 4 ? fmt::format("({})", c_type(type)) : std::string();
  const auto narrowed = [&](Text t) { return narrow.empty() ? t : Text{fmt::format("{}({})", narrow, t.s), 14}; };
  const auto function = [&](const char* name) {
    include("integer.cuh");
    return call_text(fmt::format("{}<{}>", name, is_index(e) ? "int" : c_type(type)), e.args());
  };
  switch (e.op()) {
    case ExprOp::Add: return plain ? infix("+", 12, a, b) : function("wrap_add");
    case ExprOp::Sub: return plain ? infix("-", 12, a, b) : function("wrap_sub");
    case ExprOp::Mul: return plain ? infix("*", 13, a, b) : function("wrap_mul");
    case ExprOp::Div: return simple_division ? infix("/", 13, a, b) : function("ingot_div");
    case ExprOp::Rem: return simple_division ? infix("%", 13, a, b) : function("ingot_rem");
    case ExprOp::FloorDiv: return simple_division ? infix("/", 13, a, b) : function("floor_div");
    case ExprOp::FloorMod: return simple_division ? infix("%", 13, a, b) : function("floor_mod");
    case ExprOp::And: return narrowed(infix("&", 8, a, b));
    case ExprOp::Xor: return narrowed(infix("^", 7, a, b));
    case ExprOp::Or: return narrowed(infix("|", 6, a, b));
    case ExprOp::Shl: return function("shift_left");
    case ExprOp::Shr: return function("shift_right");
    default: INGOT_CHECK(false, "no text for an integer operation"); return {};
  }
}

/// Of a quantised value, the nearest integer to x plus a byte: x, and the byte if it is not 0. Nothing of other expressions.
static std::vector<Expr> rounded_parts(const Expr& a) {
  const Expr& nearest = a.op() == ExprOp::Add ? a.arg(0) : a;
  if (a.type() != DType::F32 || nearest.op() != ExprOp::Call || nearest.fn() != Fn::Round) return {};
  if (a.op() != ExprOp::Add) return {nearest.arg(0)};
  const Expr& zero = a.arg(1);
  if (zero.is_const()) {
    const double z = zero.float_value();
    if (z == 0) return {nearest.arg(0)};
    return z == std::floor(z) && std::abs(z) <= 255 ? std::vector{nearest.arg(0), zero} : std::vector<Expr>{};
  }
  const bool is_byte = zero.op() == ExprOp::Cast && is_integer(zero.arg(0).type()) && size_of(zero.arg(0).type()) == 1;
  return is_byte ? std::vector{nearest.arg(0), zero} : std::vector<Expr>{};
}

ExprPrinter::Text ExprPrinter::cast_text(const Expr& e) {
  const Expr& a = e.arg(0);
  const DType to = e.type(), from = a.type();
  if (is_index(e)) return text(a.arg(0));
  if (to == DType::Bool) return {fmt::format("{} != 0", bracket(text(a), 11)), 10};
  if (is_float(from) && is_integer(to)) {
    include("integer.cuh");
    const std::vector<Expr> rounded = to == DType::I8 || to == DType::U8 ? rounded_parts(a) : std::vector<Expr>{};
    if (!rounded.empty()) return call_text(fmt::format("round_to_byte<{}>", c_type(to)), rounded);
    return call_text(fmt::format("float_to_int<{}>", c_type(to)), e.args());
  }
  return {fmt::format("({}){}", c_type(to), bracket(text(a), 14)), 14};
}

ExprPrinter::Text ExprPrinter::select_text(const Expr& e) {
  const std::string condition = bracket(text(e.arg(0)), 4);
  std::string arms[2];
  for (size_t i = 0; i < 2; ++i) {
    const Expr& arm = e.arg(i + 1);
    const bool guarded = has_load(arm);
    inline_only_ += guarded;
    arms[i] = bracket(text(arm), i == 0 ? 4 : 3);
    inline_only_ -= guarded;
  }
  return {fmt::format("{} ? {} : {}", condition, arms[0], arms[1]), 3};
}

}  // namespace ingot
