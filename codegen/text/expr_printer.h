// ExprPrinter: scalar expressions as C-like text. Values that are used more than once get a name and a line of their
// own, long ones too; the rest is inlined. A Load under a guard is never moved out of it. Used by c_printer.h.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "codegen/kernel/kernel.h"
#include "codegen/text/code_writer.h"
#include "compiler/expr/expr.h"

namespace ingot {

struct ExprHash {
  size_t operator()(const Expr& e) const { return e.hash(); }
};
struct ExprSame {
  bool operator()(const Expr& a, const Expr& b) const { return a.same(b); }
};
template <class T>
using ExprMap = std::unordered_map<Expr, T, ExprHash, ExprSame>;
using ExprSet = std::unordered_set<Expr, ExprHash, ExprSame>;

/// The C type that holds a value of `type`: "float", "i64", "bool".
const char* c_type(DType type);
/// The C type of an element in memory: "f16", "f8e4m3", "u8".
const char* c_storage_type(DType type);
/// A value of the compute type as one of the storage type: "to_f16(x)".
std::string to_storage(DType storage, const std::string& value);
/// An element in memory as a value of the compute type: "to_f32(x[i])".
std::string from_storage(DType storage, const std::string& element);
/// True for a dim that is a value, not a size: it may be negative, or beyond 32 bits whatever the kernel's indices are.
inline bool is_value_dim(const Expr& dim) { return dim.low() < 0; }
/// The prelude file beyond types.cuh that has the type and its conversions, or null.
const char* storage_include(DType storage);
/// Letters, digits and '_' of `text`; never empty and never starting with a digit.
std::string identifier_of(const std::string& text);

class ExprPrinter {
 public:
  /// `i32`: values made of dims, loop indices and small constants are int, not i64.
  ExprPrinter(CodeWriter& out, bool i32) : out_(out), i32_(i32) { scopes_.emplace_back(); }

  /// Division and functions may have a relative error of 1e-6: results are stored in 16 bits.
  bool approximate = false;
  /// What an element of a buffer reads as, given the text of its index; the value is of the compute type.
  std::function<std::string(int buffer, const std::string& index)> load_text;
  /// The stem of names for loads of a buffer.
  std::function<std::string(int buffer)> buffer_name;

  class Scope {
   public:
    explicit Scope(ExprPrinter& printer) : printer_(printer) { printer_.scopes_.emplace_back(); }
    ~Scope() { printer_.scopes_.pop_back(); }
    Scope(const Scope&) = delete;

   private:
    ExprPrinter& printer_;
  };

  /// A name not used before in this kernel: the stem itself, or with a number.
  std::string fresh(const std::string& stem);
  void reserve(const std::string& name) { names_.insert(name); }
  /// Gives a symbol its text in the current scope. `is_int`: the text is of type int although the symbol is i64.
  void bind(const Expr& symbol, std::string text, bool is_int);
  /// Gives any expression a text in the current scope.
  void bind_value(const Expr& e, std::string text) { scopes_.back().values[e] = std::move(text); }
  bool is_bound(const Expr& symbol) const;
  bool has_value(const Expr& e) const { return find_value(e) != nullptr; }
  void forget(const Expr& e) {
    for (ScopeData& scope : scopes_) scope.values.erase(e);
  }
  /// Forgets named values that read `buffer`, after a store into it.
  void forget_loads(int buffer);

  /// Writes the lines of named parts, and returns the text of e: a whole expression, to be bracketed by the caller.
  std::string value(const Expr& e);
  /// The same for an element number of a buffer.
  std::string place(const Expr& e);
  /// The same, bracketed so that it can be an operand of anything.
  std::string operand(const Expr& e);
  /// A name for e: `const T name = ...;` unless e already is a name or a constant.
  std::string named(const Expr& e, const std::string& stem);
  /// The C type of e here ("int" for indices).
  std::string type_of(const Expr& e);
  bool is_index(const Expr& e);
  bool i32() const { return i32_; }
  const char* index_type() const { return i32_ ? "int" : "i64"; }
  const std::set<std::string>& includes() const { return includes_; }
  void include(const std::string& file) { includes_.insert(file); }

 private:
  struct Text {
    std::string s;
    int precedence = 0;  // as in C: 15 for names and calls, 13 for *, 12 for +, ..., 3 for ?:
  };
  struct Bound {
    std::string text;
    bool is_int = false;
  };
  struct ScopeData {
    ExprMap<std::string> values;
    std::unordered_map<std::string, Bound> symbols;
  };
  struct Sharing {
    ExprSet unconditional;
    ExprMap<int> uses;
  };

  /// A call whose name in the prelude is "fast_" and its text, where results may be approximate.
  bool has_fast_form(const Expr& e) const {
    const bool known = e.fn() == Fn::Exp || e.fn() == Fn::Erf || e.fn() == Fn::Tanh || e.fn() == Fn::Sigmoid;
    return approximate && known && e.type() == DType::F32;
  }
  // gelu_forms.cpp
  /// A call to which 1 is added at no cost, as in Gelu.
  bool has_form_of_one_plus(const Expr& e) const;
  /// The call if e is 1 and such a call.
  const Expr* one_plus_of(const Expr& e) const;
  Text one_plus_text(const Expr& call);
  Text half_one_plus_tanh_text(const Expr& y);
  /// The factors of a product of products, and the numbers among them multiplied.
  void factors_of(const Expr& product, std::vector<Expr>& factors, double& number) const;
  /// A product with a factor 1 + erf(x / sqrt(2)), where x is another one, or 1 + tanh(y).
  std::optional<Text> gelu_text(const Expr& product);
  const std::string* find_value(const Expr& e) const;
  const Bound* find_symbol(const std::string& name) const;
  bool has_load(const Expr& e);
  void mark_unconditional(const Expr& e, Sharing& sharing);
  void count_uses(const Expr& e, ExprMap<int>& uses);
  bool needs_statements(const Expr& arm);
  void prepare(const Expr& e, const Sharing& sharing, bool guarded, ExprSet& done);
  void name_value(const Expr& e);
  void name_select(const Expr& e);
  std::string stem_of(const Expr& e);

  // expr_operators.cpp: the text of one node
  Text text(const Expr& e);
  Text leaf_text(const Expr& e);
  Text constant_text(const Expr& e);
  Text binary_text(const Expr& e);
  Text integer_binary_text(const Expr& e);
  Text cast_text(const Expr& e);
  Text select_text(const Expr& e);
  Text place_text(const Expr& e);  // an element number: 32-bit arithmetic is exact for it, whatever its parts are
  Text call_text(const std::string& function, const std::vector<Expr>& args, bool widen = false);
  Text infix(const char* op, int precedence, const Expr& a, const Expr& b);
  std::string wide(const Expr& e);  // an i64 operand where a template would deduce int
  std::string bracket(const Text& t, int least) const { return t.precedence < least ? "(" + t.s + ")" : t.s; }

  CodeWriter& out_;
  bool i32_;
  std::vector<ScopeData> scopes_;
  std::unordered_set<std::string> names_;
  ExprMap<bool> has_load_;
  std::set<std::string> includes_{"types.cuh"};
  int inline_only_ = 0;  // > 0 inside the arm of a conditional expression: no line may be written for what loads
};

}  // namespace ingot
