#include "runtime/shape_program.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>

namespace ingot::runtime {
namespace {

const char* name_of(ShapeOp op) {
  static constexpr const char* kNames[] = {"constant",  "symbol",    "add", "sub", "mul",   "div", "rem",
                                           "floor_div", "floor_mod", "min", "max", "eq",    "ne",  "lt",
                                           "le",        "and",       "or",  "not", "select"};  // those that may overflow
  return kNames[static_cast<size_t>(op)];
}

int64_t floor_div(int64_t a, int64_t b) {
  const int64_t q = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}

/// The value of a division-like operation with b != 0. False on overflow (INT64_MIN / -1).
bool divide(ShapeOp op, int64_t a, int64_t b, int64_t& out) {
  if (b == -1) {
    const bool remainder = op == ShapeOp::Rem || op == ShapeOp::FloorMod;
    return remainder ? (out = 0, true) : !__builtin_sub_overflow(int64_t{0}, a, &out);
  }
  switch (op) {
    case ShapeOp::Div: out = a / b; break;
    case ShapeOp::Rem: out = a % b; break;
    case ShapeOp::FloorDiv: out = floor_div(a, b); break;
    default: out = a - floor_div(a, b) * b; break;
  }
  return true;
}

/// False on overflow.
bool binary(ShapeOp op, int64_t a, int64_t b, int64_t& out) {
  switch (op) {
    case ShapeOp::Add: return !__builtin_add_overflow(a, b, &out);
    case ShapeOp::Sub: return !__builtin_sub_overflow(a, b, &out);
    case ShapeOp::Mul: return !__builtin_mul_overflow(a, b, &out);
    case ShapeOp::Div:
    case ShapeOp::Rem:
    case ShapeOp::FloorDiv:
    case ShapeOp::FloorMod: return b == 0 ? (out = 0, true) : divide(op, a, b, out);
    case ShapeOp::Min: out = a < b ? a : b; return true;
    case ShapeOp::Max: out = a > b ? a : b; return true;
    case ShapeOp::Eq: out = a == b; return true;
    case ShapeOp::Ne: out = a != b; return true;
    case ShapeOp::Lt: out = a < b; return true;
    case ShapeOp::Le: out = a <= b; return true;
    case ShapeOp::And: out = a & b; return true;
    case ShapeOp::Or: out = a | b; return true;
    default: return false;
  }
}

double real(int64_t bits) { return std::bit_cast<double>(bits); }
int64_t bits_of(double v) { return std::bit_cast<int64_t>(v); }

int64_t to_integer(double v) {
  if (std::isnan(v)) return 0;
  if (v >= 0x1p63) return INT64_MAX;
  return v <= -0x1p63 ? INT64_MIN : static_cast<int64_t>(v);
}

int64_t float_unary(ShapeOp op, int64_t a) {
  switch (op) {
    case ShapeOp::ToFloat: return bits_of(static_cast<double>(a));
    case ShapeOp::ToInteger: return to_integer(real(a));
    case ShapeOp::ToSingle: return bits_of(static_cast<float>(real(a)));
    case ShapeOp::SingleBits: return bits_of(std::bit_cast<float>(static_cast<int32_t>(a)));
    case ShapeOp::Floor: return bits_of(std::floor(real(a)));
    case ShapeOp::Ceil: return bits_of(std::ceil(real(a)));
    case ShapeOp::Round: return bits_of(std::nearbyint(real(a)));
    case ShapeOp::Sqrt: return bits_of(std::sqrt(real(a)));
    default: return bits_of(std::fabs(real(a)));
  }
}

int64_t float_binary(ShapeOp op, double a, double b) {
  const bool nan = std::isnan(a) || std::isnan(b);
  switch (op) {
    case ShapeOp::FloatAdd: return bits_of(a + b);
    case ShapeOp::FloatSub: return bits_of(a - b);
    case ShapeOp::FloatMul: return bits_of(a * b);
    case ShapeOp::FloatDiv: return bits_of(a / b);
    case ShapeOp::FloatMin: return bits_of(nan ? NAN : a < b ? a : b);
    case ShapeOp::FloatMax: return bits_of(nan ? NAN : a > b ? a : b);
    case ShapeOp::FloatEq: return a == b;
    case ShapeOp::FloatNe: return a != b;
    case ShapeOp::FloatLt: return a < b;
    default: return a <= b;
  }
}

bool is_float_binary(ShapeOp op) { return op >= ShapeOp::FloatAdd && op <= ShapeOp::FloatLe; }
bool is_float_unary(ShapeOp op) { return op >= ShapeOp::ToFloat; }

int operand_count(ShapeOp op) {
  if (op == ShapeOp::Constant || op == ShapeOp::Symbol) return 0;
  if (op == ShapeOp::Not || is_float_unary(op)) return 1;
  return op == ShapeOp::Select ? 3 : 2;
}

}  // namespace

Status ShapeProgram::evaluate(std::span<const int64_t> symbols, std::vector<int64_t>& values) const {
  values.resize(lines.size());
  for (size_t i = 0; i < lines.size(); ++i) {
    const ShapeLine& line = lines[i];
    switch (line.op) {
      case ShapeOp::Constant: values[i] = line.immediate; break;
      case ShapeOp::Symbol: values[i] = symbols[static_cast<size_t>(line.a)]; break;
      case ShapeOp::Not: values[i] = values[line.a] == 0; break;
      case ShapeOp::Select: values[i] = values[line.a] ? values[line.b] : values[line.c]; break;
      default:
        if (is_float_unary(line.op)) values[i] = float_unary(line.op, values[line.a]);
        else if (is_float_binary(line.op)) values[i] = float_binary(line.op, real(values[line.a]), real(values[line.b]));
        else if (!binary(line.op, values[line.a], values[line.b], values[i]))
          return invalid(fmt::format("shape arithmetic overflows 64 bits: line {}: {} {} {}", i, values[line.a],
                                     name_of(line.op), values[line.b]));
    }
  }
  return {};
}

Status ShapeProgram::verify(size_t symbol_count) const {
  for (size_t i = 0; i < lines.size(); ++i) {
    const ShapeLine& line = lines[i];
    if (line.op > ShapeOp::Abs) return invalid(fmt::format("shape line {}: unknown operation", i));
    if (line.op == ShapeOp::Symbol && (line.a < 0 || static_cast<size_t>(line.a) >= symbol_count))
      return invalid(fmt::format("shape line {}: symbol {} of {}", i, line.a, symbol_count));
    const int32_t operands[] = {line.a, line.b, line.c};
    for (int k = 0; k < operand_count(line.op); ++k)
      if (operands[k] < 0 || static_cast<size_t>(operands[k]) >= i)
        return invalid(fmt::format("shape line {}: operand {} is not an earlier line", i, operands[k]));
  }
  return {};
}

}  // namespace ingot::runtime
