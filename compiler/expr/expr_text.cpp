// Expr -> text. The parser of the same form is compiler/ir/text.cpp's, since expressions appear only inside graphs there.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "compiler/expr/poly.h"

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

/// Appends text until there is `limit` of it: what lies behind is not looked at.
class Printer {
 public:
  explicit Printer(size_t limit) : limit_(limit) {}

  void print(const Expr& e, int outer) {
    if (text.size() >= limit_) return;
    if (!e.valid()) text += "?";
    else if (text_of(e.op()).infix) print_infix(e, outer);
    else print_call(e, outer);
  }
  std::string text;

 private:
  void print_infix(const Expr& e, int outer) {
    const OpText t = text_of(e.op());
    const bool brackets = t.precedence < outer;
    if (brackets) text += "(";
    print(e.arg(0), t.precedence);
    text += t.precedence < 6 ? fmt::format(" {} ", t.infix) : t.infix;
    print(e.arg(1), t.precedence + 1);
    if (brackets) text += ")";
  }
  void print_list(std::string_view head, const Expr& e, char close) {
    text += head;
    for (size_t i = 0; i < e.args().size() && text.size() < limit_; ++i) {
      if (i) text += ", ";
      print(e.arg(i), 0);
    }
    text += close;
  }
  void print_call(const Expr& e, int outer) {
    switch (e.op()) {
      case ExprOp::Const: {
        const std::string number = constant_text(e);
        text += number[0] == '-' && outer > 5 ? "(" + number + ")" : number;
        return;
      }
      case ExprOp::Symbol: text += e.name(); return;
      case ExprOp::Load: return print_list(fmt::format("load{}[", e.buffer()), e, ']');
      case ExprOp::Read: return print_list(fmt::format("read{}[", e.buffer()), e, ']');
      case ExprOp::Min: return print_list("min(", e, ')');
      case ExprOp::Max: return print_list("max(", e, ')');
      case ExprOp::Not: return print_list("not(", e, ')');
      case ExprOp::Select: return print_list("select(", e, ')');
      case ExprOp::Cast: return print_list(fmt::format("{}(", name_of(e.type())), e, ')');
      case ExprOp::Round: return print_list(fmt::format("round_{}(", name_of(e.rounded_to())), e, ')');
      case ExprOp::Bits: return print_list(fmt::format("bits_{}(", name_of(e.type())), e, ')');
      case ExprOp::Call: return print_list(fmt::format("{}(", info_of(e.fn()).text), e, ')');
      default: text += "?";
    }
  }
  size_t limit_;
};

}  // namespace

std::string to_string(const Expr& e) {
  Printer p(std::string::npos);
  p.print(e, 0);
  return std::move(p.text);
}
std::string text_prefix(const Expr& e, size_t length) {
  Printer p(length);
  p.print(e, 0);
  p.text.resize(std::min(p.text.size(), length));
  return std::move(p.text);
}

}  // namespace ingot
