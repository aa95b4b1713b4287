// Expr: an immutable scalar expression. Dimensions, indices and kernel bodies are all Exprs, so one simplifier and one
// interval analysis serve static and symbolic shapes alike.
//
// Meaning of the operations (T is the common type of the operands; the builders convert integer constants):
//   Const      a literal of its type                       Symbol   a named value: a dimension, a loop index, a Let
//   Load       element `args[0]` (linear, i64) of buffer number `buffer()`, in the buffer's *compute type*: a load of
//              f16, bf16 or fp8 yields f32 (compiler/support/dtype.h: compute_type)
//   Read       element (args...) of input number `buffer()` of a graph operator; exists only until lowering
//   Add Sub Mul    wrap for integers
//   Div        floats: IEEE; integers: truncates towards zero     Rem    C's % and fmod
//   FloorDiv FloorMod   integers and floats; round towards minus infinity (the modulus has the divisor's sign)
//   Min Max    a NaN operand gives NaN
//   And Or Xor Not   bitwise for integers, logical for Bool;  Shl Shr  integers (Shr is arithmetic when signed)
//   Eq Ne Lt Le    give Bool; comparisons with NaN are false, Ne true
//   Select     args[0] ? args[1] : args[2], evaluating only the chosen side (a Load under a false guard never happens)
//   Cast       to type(): float to integer truncates (saturating, NaN gives 0), to Bool is != 0
//   Round      f32 -> f32, rounded to the storage type `rounded_to()` (f16, bf16, fp8): what storing and loading does
//   Bits       the same bits as type() (same size)
//   Call       the function fn() of scalar_fn.def
// Integer division by zero gives 0 on every backend: data-dependent garbage must not trap.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "compiler/support/dtype.h"

namespace ingot {

enum class ExprOp : uint8_t {
  Const, Symbol, Load, Read, Add, Sub, Mul, Div, Rem, FloorDiv, FloorMod, Min, Max, And, Or, Xor, Not, Shl, Shr,
  Eq, Ne, Lt, Le, Select, Cast, Round, Bits, Call
};
enum class Fn : uint8_t {
#define INGOT_FN(name, text, cuda, host, flops) name,
#include "compiler/expr/scalar_fn.def"
#undef INGOT_FN
};
struct FnInfo { const char* text; const char* cuda; int flops; int arity; };
const FnInfo& info_of(Fn fn);
double host_rsqrt(double x);
double host_sigmoid(double x);

constexpr int64_t kNoLimit = INT64_MAX / 4;  // an upper bound that says nothing

class Expr;
struct ExprNode;

class Expr {
 public:
  Expr() = default;
  Expr(int64_t value);  // i64 constant
  Expr(int value) : Expr(static_cast<int64_t>(value)) {}

  static Expr integer(DType type, int64_t value);
  static Expr real(DType type, double value);
  /// A constant of any type from a double (exact for integers up to 2^53).
  static Expr number(DType type, double value);
  static Expr boolean(bool value);
  /// A named i64 value in [low, high]. Two symbols are equal when their names and types are.
  static Expr symbol(std::string name, int64_t low = 0, int64_t high = kNoLimit);
  /// A loop index in [0, extent).
  static Expr index(std::string name, Expr extent);
  /// A value of another type that a Let or a loop binds.
  static Expr local(std::string name, DType type);
  static Expr load(int buffer, DType compute_type, Expr linear_index);
  static Expr read(int input, DType compute_type, std::vector<Expr> index);
  static Expr make(ExprOp op, DType type, std::vector<Expr> args, int64_t payload = 0);

  bool valid() const { return node_ != nullptr; }
  ExprOp op() const;
  DType type() const;
  const std::vector<Expr>& args() const;
  const Expr& arg(size_t i) const;
  const std::string& name() const;       // Symbol
  int64_t low() const;                   // Symbol
  int64_t high() const;                  // Symbol; kNoLimit when unknown
  Expr extent() const;                   // Symbol made by index(); else invalid
  int buffer() const;                    // Load, Read
  Fn fn() const;                         // Call
  DType rounded_to() const;              // Round
  int64_t int_value() const;             // Const of integer or Bool type
  double float_value() const;            // Const of any type, as double
  bool is_const() const;
  bool is_const(int64_t value) const;    // an integer or float constant of that value
  std::optional<int64_t> as_int() const; // the value of an integer constant
  uint64_t hash() const;
  bool same(const Expr& other) const;    // structural equality
  const void* id() const { return node_.get(); }

 private:
  explicit Expr(std::shared_ptr<const ExprNode> node) : node_(std::move(node)) {}
  std::shared_ptr<const ExprNode> node_;
};

// Builders. They fold constants and drop x+0, x*1, x*0 (integers), select(true, …) and the like, nothing more.
Expr operator+(const Expr& a, const Expr& b);
Expr operator-(const Expr& a, const Expr& b);
Expr operator*(const Expr& a, const Expr& b);
Expr operator/(const Expr& a, const Expr& b);  // Div
Expr operator-(const Expr& a);
Expr rem(const Expr& a, const Expr& b);
Expr floor_div(const Expr& a, const Expr& b);
Expr floor_mod(const Expr& a, const Expr& b);
Expr ceil_div(const Expr& a, const Expr& b);   // (a + b - 1) floor_div b
Expr min(const Expr& a, const Expr& b);
Expr max(const Expr& a, const Expr& b);
Expr eq(const Expr& a, const Expr& b);
Expr ne(const Expr& a, const Expr& b);
Expr lt(const Expr& a, const Expr& b);
Expr le(const Expr& a, const Expr& b);
inline Expr gt(const Expr& a, const Expr& b) { return lt(b, a); }
inline Expr ge(const Expr& a, const Expr& b) { return le(b, a); }
Expr logical_and(const Expr& a, const Expr& b);
Expr logical_or(const Expr& a, const Expr& b);
Expr logical_not(const Expr& a);
Expr bitwise(ExprOp op, const Expr& a, const Expr& b);
Expr select(const Expr& condition, const Expr& a, const Expr& b);
Expr cast(DType type, const Expr& a);
/// Rounds an f32 value to what `storage` can hold; the value itself for other storage types.
Expr round_to(DType storage, const Expr& a);
Expr call(Fn fn, const Expr& a);
Expr call(Fn fn, const Expr& a, const Expr& b);
inline Expr zero_of(const Expr& x) { return Expr::number(x.type(), 0); }
inline Expr one_of(const Expr& x) { return Expr::number(x.type(), 1); }
inline Expr number_like(const Expr& x, double v) { return Expr::number(x.type(), v); }
Expr product(std::span<const Expr> factors);

/// "N*3 + 1"; fully bracketed only where precedence needs it. parse(print(e)) is e.
std::string to_string(const Expr& e);

/// Rewrites bottom-up: `leaf` may replace any node (returning an invalid Expr keeps it). Shared nodes are visited once.
Expr rewrite(const Expr& e, const std::function<Expr(const Expr&)>& replace);
/// The same operation over other operands, through the folding builders.
Expr rebuild(const Expr& e, const std::vector<Expr>& args);
using Bindings = std::unordered_map<std::string, Expr>;
/// Replaces symbols by name.
Expr substitute(const Expr& e, const Bindings& bindings);
/// Calls `visit` once for every distinct node, operands first.
void visit(const Expr& e, const std::function<void(const Expr&)>& visit);
/// Floating-point and integer operations of one evaluation (Call by its row; each distinct node once).
int64_t count_flops(const Expr& e);

/// True when a shape program (runtime/shape_program.h) can compute it: arithmetic over symbols, and of floats no function but
/// rounding, roots and absolute values.
bool evaluates_on_host(const Expr& e);
/// The value of an integer expression under the given symbol values; nullopt when a symbol is unknown or it loads.
std::optional<int64_t> evaluate_int(const Expr& e, const std::unordered_map<std::string, int64_t>& symbols);

}  // namespace ingot
