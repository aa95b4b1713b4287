// Expr -> text. The parser of the same form is compiler/ir/text.cpp's, since expressions appear only inside graphs there.
#include <fmt/format.h>

#include <cmath>

#include "compiler/expr/expr.h"

namespace ingot {
namespace {

struct OpText { const char* infix; int precedence; };
OpText text_of(ExprOp op) {
  switch (op) {
    case ExprOp::Mul: return {"*", 6};
    case ExprOp::Div: return {"/", 6};
    case ExprOp::Rem: return {"%", 6};
    case ExprOp::FloorDiv: return {"//", 6};
    case ExprOp::FloorMod: return {"%%", 6};
    case ExprOp::Add: return {"+", 5};
    case ExprOp::Sub: return {"-", 5};
    case ExprOp::Shl: return {"<<", 4};
    case ExprOp::Shr: return {">>", 4};
    case ExprOp::Lt: return {"<", 3};
    case ExprOp::Le: return {"<=", 3};
    case ExprOp::Eq: return {"==", 3};
    case ExprOp::Ne: return {"!=", 3};
    case ExprOp::And: return {"&", 2};
    case ExprOp::Xor: return {"^", 2};
    case ExprOp::Or: return {"|", 1};
    default: return {nullptr, 9};
  }
}

std::string constant_text(const Expr& e) {
  if (e.type() == DType::Bool) return e.int_value() ? "true" : "false";
  if (e.type() == DType::I64) return fmt::format("{}", e.int_value());
  if (!is_float(e.type())) return fmt::format("{}:{}", e.int_value(), name_of(e.type()));
  const double v = e.float_value();
  std::string digits = std::isfinite(v) ? (e.type() == DType::F32 ? fmt::format("{}", static_cast<float>(v)) : fmt::format("{}", v))
                                        : (std::isnan(v) ? "nan" : v > 0 ? "inf" : "-inf");
  if (std::isfinite(v) && digits.find_first_of(".e") == std::string::npos) digits += ".0";
  return e.type() == DType::F32 ? digits : digits + ":" + name_of(e.type());
}

std::string print(const Expr& e, int outer);

std::string list(const Expr& e) {
  std::string text;
  for (size_t i = 0; i < e.args().size(); ++i) text += (i ? ", " : "") + print(e.arg(i), 0);
  return text;
}

std::string print(const Expr& e, int outer) {
  if (!e.valid()) return "?";
  if (const OpText t = text_of(e.op()); t.infix) {
    const bool spaced = t.precedence < 6;
    std::string text = print(e.arg(0), t.precedence) + (spaced ? " " : "") + t.infix + (spaced ? " " : "") +
                       print(e.arg(1), t.precedence + 1);
    return t.precedence < outer ? "(" + text + ")" : text;
  }
  switch (e.op()) {
    case ExprOp::Const: {
      std::string text = constant_text(e);
      return text[0] == '-' && outer > 5 ? "(" + text + ")" : text;
    }
    case ExprOp::Symbol: return e.name();
    case ExprOp::Load: return fmt::format("load{}[{}]", e.buffer(), print(e.arg(0), 0));
    case ExprOp::Read: return fmt::format("read{}[{}]", e.buffer(), list(e));
    case ExprOp::Min: return "min(" + list(e) + ")";
    case ExprOp::Max: return "max(" + list(e) + ")";
    case ExprOp::Not: return "not(" + list(e) + ")";
    case ExprOp::Select: return "select(" + list(e) + ")";
    case ExprOp::Cast: return fmt::format("{}({})", name_of(e.type()), list(e));
    case ExprOp::Round: return fmt::format("round_{}({})", name_of(e.rounded_to()), list(e));
    case ExprOp::Bits: return fmt::format("bits_{}({})", name_of(e.type()), list(e));
    case ExprOp::Call: return fmt::format("{}({})", info_of(e.fn()).text, list(e));
    default: return "?";
  }
}

}  // namespace

std::string to_string(const Expr& e) { return print(e, 0); }

}  // namespace ingot
