// Text -> Expr, and the field texts of attributes (attrs.h).
#include <fmt/format.h>

#include <cmath>

#include "compiler/ir/text.h"
#include "compiler/ir/text_lexer.h"

namespace ingot {
namespace {

class ExprParser {
 public:
  ExprParser(std::string_view text, const SymbolScope& symbols) : in_(text), symbols_(symbols) {}

  Result<Expr> run() {
    Expr e = INGOT_TRY(binary(0));
    if (!in_.at_end()) return in_.error("unexpected text after the expression");
    return e;
  }

 private:
  struct Infix { const char* text; int precedence; ExprOp op; };
  static constexpr Infix kInfix[] = {  // longer spellings first
      {"//", 6, ExprOp::FloorDiv}, {"%%", 6, ExprOp::FloorMod}, {"<<", 4, ExprOp::Shl}, {">>", 4, ExprOp::Shr},
      {"<=", 3, ExprOp::Le}, {"==", 3, ExprOp::Eq}, {"!=", 3, ExprOp::Ne}, {"<", 3, ExprOp::Lt}, {"*", 6, ExprOp::Mul},
      {"/", 6, ExprOp::Div}, {"%", 6, ExprOp::Rem}, {"+", 5, ExprOp::Add}, {"-", 5, ExprOp::Sub}, {"&", 2, ExprOp::And},
      {"^", 2, ExprOp::Xor}, {"|", 1, ExprOp::Or}};

  Result<Expr> binary(int lowest) {
    Expr left = INGOT_TRY(primary());
    for (;;) {
      const Infix* found = nullptr;
      in_.skip_space();
      for (const Infix& i : kInfix)
        if (!found && in_.rest().substr(0, std::string_view(i.text).size()) == i.text) found = &i;
      if (!found || found->precedence < lowest + (lowest > 0)) return left;
      if (found->precedence <= lowest && lowest > 0) return left;
      in_.accept(found->text);
      const Expr right = INGOT_TRY(binary(found->precedence));
      const bool test = found->op >= ExprOp::Eq && found->op <= ExprOp::Le;
      left = rebuild(Expr::make(found->op, test ? DType::Bool : left.type(), {left, right}), {left, right});
    }
  }
  Result<Expr> primary() {
    if (in_.accept("(")) {
      Expr e = INGOT_TRY(binary(0));
      INGOT_TRY(in_.expect(")"));
      return e;
    }
    const char c = in_.peek();
    if (std::isdigit(static_cast<unsigned char>(c)) || c == '-') return literal();
    const std::string name = INGOT_TRY(in_.word());
    if (name == "true" || name == "false") return Expr::boolean(name == "true");
    if (name == "inf" || name == "nan") return suffix(name == "inf" ? INFINITY : NAN);
    if (in_.accept("(")) return call_named(name);
    auto it = symbols_.find(name);
    if (it == symbols_.end()) return in_.error("unknown symbol " + name);
    return it->second;
  }
  Result<Expr> suffix(double v) {
    DType type = DType::F32;
    if (in_.accept(":")) {
      auto t = parse_dtype(INGOT_TRY(in_.word()));
      if (!t) return in_.error("unknown type");
      type = *t;
    }
    return Expr::real(type, v);
  }
  Result<Expr> literal() {
    if (in_.accept("-inf")) return suffix(-INFINITY);
    in_.skip_space();
    size_t n = in_.rest()[0] == '-' ? 1 : 0;
    bool real = false;
    while (n < in_.rest().size()) {
      const char c = in_.rest()[n];
      const bool exponent_sign = (c == '-' || c == '+') && in_.rest()[n - 1] == 'e';
      if (!std::isdigit(static_cast<unsigned char>(c)) && c != '.' && c != 'e' && !exponent_sign) break;
      real |= c == '.' || c == 'e';
      ++n;
    }
    const std::string digits(in_.rest().substr(0, n));
    in_.advance(n);
    if (real) return suffix(std::strtod(digits.c_str(), nullptr));
    DType type = DType::I64;
    if (in_.accept(":")) {
      auto t = parse_dtype(INGOT_TRY(in_.word()));
      if (!t) return in_.error("unknown type");
      type = *t;
    }
    if (is_float(type)) return Expr::real(type, std::strtod(digits.c_str(), nullptr));
    return Expr::integer(type, static_cast<int64_t>(std::strtoll(digits.c_str(), nullptr, 10)));
  }
  Result<Expr> call_named(const std::string& name) {
    std::vector<Expr> args;
    while (!in_.accept(")")) {
      if (!args.empty()) INGOT_TRY(in_.expect(","));
      args.push_back(INGOT_TRY(binary(0)));
    }
    if (name == "min" && args.size() == 2) return min(args[0], args[1]);
    if (name == "max" && args.size() == 2) return max(args[0], args[1]);
    if (name == "select" && args.size() == 3) return select(args[0], args[1], args[2]);
    if (args.empty()) return in_.error(name + " needs arguments");
    if (name == "not") return logical_not(args[0]);
    if (auto t = parse_dtype(name)) return cast(*t, args[0]);
    for (int f = 0; f <= static_cast<int>(Fn::Pow); ++f) {
      const Fn fn = static_cast<Fn>(f);
      if (name != info_of(fn).text || static_cast<int>(args.size()) != info_of(fn).arity) continue;
      return args.size() == 1 ? call(fn, args[0]) : call(fn, args[0], args[1]);
    }
    return in_.error("unknown function " + name);
  }

  TextCursor in_;
  const SymbolScope& symbols_;
};

}  // namespace

Result<Expr> parse_expr(std::string_view text, const SymbolScope& symbols) { return ExprParser(text, symbols).run(); }

std::string field_text(int64_t v) { return std::to_string(v); }
std::string field_text(double v) { return fmt::format("{}", v); }
std::string field_text(bool v) { return v ? "true" : "false"; }
std::string field_text(const std::string& v) { return "\"" + v + "\""; }
std::string field_text(DType v) { return name_of(v); }
std::string field_text(const Expr& v) { return v.valid() ? to_string(v) : "_"; }

Status parse_field(std::string_view text, const SymbolScope&, int64_t& v) {
  v = std::strtoll(std::string(text).c_str(), nullptr, 10);
  return {};
}
Status parse_field(std::string_view text, const SymbolScope&, double& v) {
  v = std::strtod(std::string(text).c_str(), nullptr);
  return {};
}
Status parse_field(std::string_view text, const SymbolScope&, bool& v) {
  v = text == "true";
  return {};
}
Status parse_field(std::string_view text, const SymbolScope&, std::string& v) {
  if (text.size() < 2) return invalid("expected a quoted string");
  v = text.substr(1, text.size() - 2);
  return {};
}
Status parse_field(std::string_view text, const SymbolScope&, DType& v) {
  auto t = parse_dtype(text);
  if (!t) return invalid("unknown type " + std::string(text));
  v = *t;
  return {};
}
Status parse_field(std::string_view text, const SymbolScope& symbols, Expr& v) {
  v = text == "_" ? Expr() : INGOT_TRY(parse_expr(text, symbols));
  return {};
}
std::vector<std::string> split_list(std::string_view text) {
  std::vector<std::string> items;
  if (text.size() < 2) return items;
  TextCursor in(text.substr(1, text.size() - 2));
  while (!in.at_end()) {
    items.push_back(in.raw_until(","));
    in.accept(",");
  }
  return items;
}

}  // namespace ingot
