// Expr nodes, their builders with constant folding, and generic traversal. Text is in expr_text.cpp, algebra in simplify.cpp.
#include "compiler/expr/expr.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <set>
#include <unordered_set>

#include "compiler/support/hash.h"
#include "compiler/support/result.h"

namespace ingot {

struct ExprNode {
  ExprOp op = ExprOp::Const;
  DType type = DType::I64;
  int64_t payload = 0;  // Const: integer value or the bits of the double; Load, Read: buffer; Call: fn; Round: storage type
  int64_t low = 0, high = kNoLimit;  // Symbol
  std::vector<Expr> args;            // Symbol: its extent, if it is an index
  std::string name;                  // Symbol
  uint64_t hash = 0;
};

double host_rsqrt(double x) { return 1.0 / std::sqrt(x); }
double host_sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

const FnInfo& info_of(Fn fn) {
  static constexpr FnInfo kFns[] = {
#define INGOT_FN(name, text, cuda, host, flops) {text, cuda, flops, Fn::name == Fn::Pow ? 2 : 1},
#include "compiler/expr/scalar_fn.def"
#undef INGOT_FN
  };
  return kFns[static_cast<size_t>(fn)];
}

namespace {

uint64_t hash_of(const ExprNode& n) {
  uint64_t h = mix_hash(static_cast<uint64_t>(n.op) * 64 + static_cast<uint64_t>(n.type), static_cast<uint64_t>(n.payload));
  if (n.op == ExprOp::Symbol) {  // the range belongs to the identity: what is proven of a symbol depends on it
    h = mix_hash(mix_hash(h, static_cast<uint64_t>(n.low)), mix_hash(static_cast<uint64_t>(n.high), hash_text(n.name).low));
    return n.args.empty() ? h : mix_hash(h, n.args[0].hash());
  }
  for (const Expr& a : n.args) h = mix_hash(h, a.hash());
  return h;
}

std::shared_ptr<const ExprNode> finish(ExprNode node) {
  node.hash = hash_of(node);
  return std::make_shared<const ExprNode>(std::move(node));
}

int64_t floor_div_int(int64_t a, int64_t b) {
  if (b == 0) return 0;
  if (b == -1) return static_cast<int64_t>(0 - static_cast<uint64_t>(a));
  const int64_t q = a / b;
  return (a % b != 0 && ((a < 0) != (b < 0))) ? q - 1 : q;
}

}  // namespace

Expr::Expr(int64_t value) : Expr(integer(DType::I64, value)) {}

Expr Expr::integer(DType type, int64_t value) {
  ExprNode n;
  n.type = type;
  n.payload = wrap(type, value);
  return Expr(finish(std::move(n)));
}
Expr Expr::real(DType type, double value) {
  ExprNode n;
  n.type = type;
  n.payload = std::bit_cast<int64_t>(type == DType::F32 ? static_cast<double>(static_cast<float>(value)) : value);
  return Expr(finish(std::move(n)));
}
Expr Expr::number(DType type, double value) {
  const DType compute = compute_type(type);
  return is_float(compute) ? real(compute, value) : integer(compute, static_cast<int64_t>(value));
}
Expr Expr::boolean(bool value) { return integer(DType::Bool, value); }

Expr Expr::symbol(std::string name, int64_t low, int64_t high) {
  ExprNode n;
  n.op = ExprOp::Symbol;
  n.name = std::move(name);
  n.low = low;
  n.high = high;
  return Expr(finish(std::move(n)));
}
Expr Expr::index(std::string name, Expr extent) {
  ExprNode n;
  n.op = ExprOp::Symbol;
  n.name = std::move(name);
  if (auto e = extent.as_int()) n.high = std::max<int64_t>(*e - 1, 0);
  n.args.push_back(std::move(extent));
  return Expr(finish(std::move(n)));
}
Expr Expr::local(std::string name, DType type) {
  ExprNode n;
  n.op = ExprOp::Symbol;
  n.type = type;
  n.name = std::move(name);
  n.low = -kNoLimit;
  return Expr(finish(std::move(n)));
}
Expr Expr::load(int buffer, DType type, Expr index) { return make(ExprOp::Load, compute_type(type), {std::move(index)}, buffer); }
Expr Expr::read(int input, DType type, std::vector<Expr> index) {
  return make(ExprOp::Read, compute_type(type), std::move(index), input);
}
Expr Expr::make(ExprOp op, DType type, std::vector<Expr> args, int64_t payload) {
  ExprNode n;
  n.op = op;
  n.type = type;
  n.args = std::move(args);
  n.payload = payload;
  return Expr(finish(std::move(n)));
}

ExprOp Expr::op() const { return node_->op; }
DType Expr::type() const { return node_->type; }
const std::vector<Expr>& Expr::args() const {
  static const std::vector<Expr> kNone;
  return node_->op == ExprOp::Symbol ? kNone : node_->args;
}
const Expr& Expr::arg(size_t i) const { return node_->args[i]; }
const std::string& Expr::name() const { return node_->name; }
int64_t Expr::low() const { return node_->low; }
int64_t Expr::high() const { return node_->high; }
Expr Expr::extent() const { return node_->op == ExprOp::Symbol && !node_->args.empty() ? node_->args[0] : Expr(); }
int Expr::buffer() const { return static_cast<int>(node_->payload); }
Fn Expr::fn() const { return static_cast<Fn>(node_->payload); }
DType Expr::rounded_to() const { return static_cast<DType>(node_->payload); }
int64_t Expr::int_value() const { return node_->payload; }
double Expr::float_value() const {
  return is_float(node_->type) ? std::bit_cast<double>(node_->payload) : static_cast<double>(node_->payload);
}
bool Expr::is_const() const { return node_->op == ExprOp::Const; }
bool Expr::is_const(int64_t v) const {
  if (!is_const()) return false;
  return is_float(type()) ? float_value() == static_cast<double>(v) : node_->payload == v;
}
std::optional<int64_t> Expr::as_int() const {
  if (node_ && is_const() && !is_float(type())) return node_->payload;
  return std::nullopt;
}
uint64_t Expr::hash() const { return node_ ? node_->hash : 0; }

namespace {
/// Structural comparison. Two expressions that were built apart may share each of their parts many times over: pairs of
/// nodes found equal are kept once the comparison has gone through more than a few.
class Comparison {
 public:
  bool same(const ExprNode* x, const ExprNode* y) {
    if (x == y) return true;
    if (!x || !y || x->hash != y->hash) return false;
    const ExprNode &a = *x, &b = *y;
    if (a.op != b.op || a.type != b.type || a.payload != b.payload || a.name != b.name) return false;
    if (a.op == ExprOp::Symbol) return a.low == b.low && a.high == b.high;
    if (a.args.size() != b.args.size()) return false;
    if (++compared_ > kFew && equal_.count({x, y})) return true;
    for (size_t i = 0; i < a.args.size(); ++i)
      if (!same(node_of(a.args[i]), node_of(b.args[i]))) return false;
    if (compared_ > kFew) equal_.insert({x, y});
    return true;
  }

 private:
  static const ExprNode* node_of(const Expr& e) { return static_cast<const ExprNode*>(e.id()); }
  static constexpr int kFew = 64;
  int compared_ = 0;
  std::set<std::pair<const ExprNode*, const ExprNode*>> equal_;
};
}  // namespace

bool Expr::same(const Expr& o) const {
  if (node_ == o.node_) return true;
  if (!node_ || !o.node_ || node_->hash != o.node_->hash) return false;
  return Comparison().same(node_.get(), o.node_.get());
}

namespace {

bool zero_bits(const Expr& e) { return e.is_const() && e.int_value() == 0; }  // +0.0 too

/// Integer constants take the other operand's type, so that `x * 2` works for every x.
void unify(Expr& a, Expr& b) {
  if (a.type() == b.type()) return;
  if (b.is_const() && (is_integer(b.type()) || !is_integer(a.type()))) b = Expr::number(a.type(), b.float_value());
  else if (a.is_const()) a = Expr::number(b.type(), a.float_value());
  INGOT_CHECK(a.type() == b.type(), std::string("operands of different types: ") + name_of(a.type()) + " and " + name_of(b.type()));
}

int64_t fold_int(ExprOp op, DType t, int64_t a, int64_t b) {
  const auto ua = static_cast<uint64_t>(a), ub = static_cast<uint64_t>(b);
  switch (op) {
    case ExprOp::Add: return wrap(t, static_cast<int64_t>(ua + ub));
    case ExprOp::Sub: return wrap(t, static_cast<int64_t>(ua - ub));
    case ExprOp::Mul: return wrap(t, static_cast<int64_t>(ua * ub));
    case ExprOp::Div:
      if (t == DType::U64) return b == 0 ? 0 : static_cast<int64_t>(ua / ub);
      return b == 0 ? 0 : b == -1 ? wrap(t, static_cast<int64_t>(0 - ua)) : a / b;
    case ExprOp::Rem:
      if (t == DType::U64) return b == 0 ? 0 : static_cast<int64_t>(ua % ub);
      return b == 0 || b == -1 ? 0 : a % b;
    case ExprOp::FloorDiv:
      if (t == DType::U64) return b == 0 ? 0 : static_cast<int64_t>(ua / ub);
      return floor_div_int(a, b);
    case ExprOp::FloorMod:
      if (t == DType::U64) return b == 0 ? 0 : static_cast<int64_t>(ua % ub);
      return b == 0 || b == -1 ? 0 : a - floor_div_int(a, b) * b;
    case ExprOp::Min: return t == DType::U64 ? static_cast<int64_t>(std::min(ua, ub)) : std::min(a, b);
    case ExprOp::Max: return t == DType::U64 ? static_cast<int64_t>(std::max(ua, ub)) : std::max(a, b);
    case ExprOp::And: return a & b;
    case ExprOp::Or: return a | b;
    case ExprOp::Xor: return a ^ b;
    case ExprOp::Shl: return ub >= size_of(t) * 8 ? 0 : wrap(t, static_cast<int64_t>(ua << ub));
    case ExprOp::Shr:
      if (ub >= size_of(t) * 8) return is_signed(t) && a < 0 ? -1 : 0;
      return is_signed(t) ? a >> b : static_cast<int64_t>(ua >> ub);
    case ExprOp::Eq: return a == b;
    case ExprOp::Ne: return a != b;
    case ExprOp::Lt: return t == DType::U64 ? ua < ub : a < b;
    case ExprOp::Le: return t == DType::U64 ? ua <= ub : a <= b;
    default: INGOT_CHECK(false, "fold_int: not a binary operation"); return 0;
  }
}

double fold_float(ExprOp op, double a, double b) {
  switch (op) {
    case ExprOp::Add: return a + b;
    case ExprOp::Sub: return a - b;
    case ExprOp::Mul: return a * b;
    case ExprOp::Div: return a / b;
    case ExprOp::Rem: return std::fmod(a, b);
    case ExprOp::FloorDiv: return std::floor(a / b);
    case ExprOp::FloorMod: { const double r = std::fmod(a, b); return r != 0 && ((r < 0) != (b < 0)) ? r + b : r; }
    case ExprOp::Min: return std::isnan(a) || std::isnan(b) ? NAN : std::min(a, b);
    case ExprOp::Max: return std::isnan(a) || std::isnan(b) ? NAN : std::max(a, b);
    case ExprOp::Eq: return a == b;
    case ExprOp::Ne: return a != b;
    case ExprOp::Lt: return a < b;
    case ExprOp::Le: return a <= b;
    default: INGOT_CHECK(false, "fold_float: not a binary operation"); return 0;
  }
}

bool is_comparison(ExprOp op) { return op >= ExprOp::Eq && op <= ExprOp::Le; }

Expr binary(ExprOp op, Expr a, Expr b) {
  unify(a, b);
  const DType type = is_comparison(op) ? DType::Bool : a.type();
  if (a.is_const() && b.is_const()) {
    if (is_float(a.type())) {
      const double v = fold_float(op, a.float_value(), b.float_value());
      return is_comparison(op) ? Expr::boolean(v != 0) : Expr::real(type, v);
    }
    return Expr::integer(type, fold_int(op, a.type(), a.int_value(), b.int_value()));
  }
  return Expr::make(op, type, {std::move(a), std::move(b)});
}

}  // namespace

Expr operator+(const Expr& a, const Expr& b) {
  if (is_integer(a.type()) && b.is_const(0)) return a;
  if (is_integer(b.type()) && a.is_const(0)) return b;
  return binary(ExprOp::Add, a, b);
}
Expr operator-(const Expr& a, const Expr& b) {
  if (zero_bits(b)) return a;  // x - 0.0 is x for every x
  return binary(ExprOp::Sub, a, b);
}
Expr operator*(const Expr& a, const Expr& b) {
  if (b.is_const(1)) return a;
  if (a.is_const(1) && a.type() == b.type()) return b;
  if (is_integer(a.type()) && b.is_const(0)) return zero_of(a);
  if (is_integer(b.type()) && a.is_const(0)) return zero_of(b);
  return binary(ExprOp::Mul, a, b);
}
Expr operator/(const Expr& a, const Expr& b) { return b.is_const(1) ? a : binary(ExprOp::Div, a, b); }
Expr operator-(const Expr& a) { return is_float(a.type()) ? Expr::real(a.type(), -1) * a : zero_of(a) - a; }
Expr rem(const Expr& a, const Expr& b) { return binary(ExprOp::Rem, a, b); }
Expr floor_div(const Expr& a, const Expr& b) {
  if (b.is_const(1) && is_integer(a.type())) return a;
  if (a.is_const(0) && is_integer(a.type())) return a;
  return binary(ExprOp::FloorDiv, a, b);
}
Expr floor_mod(const Expr& a, const Expr& b) {
  if (b.is_const(1) && is_integer(a.type())) return zero_of(a);
  if (a.is_const(0) && is_integer(a.type())) return a;
  return binary(ExprOp::FloorMod, a, b);
}
Expr ceil_div(const Expr& a, const Expr& b) { return floor_div(a + (b - 1), b); }
Expr min(const Expr& a, const Expr& b) { return a.same(b) ? a : binary(ExprOp::Min, a, b); }
Expr max(const Expr& a, const Expr& b) { return a.same(b) ? a : binary(ExprOp::Max, a, b); }
Expr eq(const Expr& a, const Expr& b) {
  return !is_float(a.type()) && a.same(b) ? Expr::boolean(true) : binary(ExprOp::Eq, a, b);
}
Expr ne(const Expr& a, const Expr& b) {
  return !is_float(a.type()) && a.same(b) ? Expr::boolean(false) : binary(ExprOp::Ne, a, b);
}
Expr lt(const Expr& a, const Expr& b) { return binary(ExprOp::Lt, a, b); }
Expr le(const Expr& a, const Expr& b) { return binary(ExprOp::Le, a, b); }
Expr logical_and(const Expr& a, const Expr& b) {
  if (a.is_const()) return a.int_value() ? b : a;
  if (b.is_const()) return b.int_value() ? a : b;
  return a.same(b) ? a : binary(ExprOp::And, a, b);
}
Expr logical_or(const Expr& a, const Expr& b) {
  if (a.is_const()) return a.int_value() ? a : b;
  if (b.is_const()) return b.int_value() ? b : a;
  return a.same(b) ? a : binary(ExprOp::Or, a, b);
}
Expr logical_not(const Expr& a) {
  if (a.is_const()) return Expr::boolean(a.int_value() == 0);
  return Expr::make(ExprOp::Not, a.type(), {a});
}
Expr bitwise(ExprOp op, const Expr& a, const Expr& b) { return binary(op, a, b); }
Expr select(const Expr& c, const Expr& a, const Expr& b) {
  Expr x = a, y = b;
  unify(x, y);
  if (c.is_const()) return c.int_value() ? x : y;
  if (x.same(y)) return x;
  return Expr::make(ExprOp::Select, x.type(), {c, x, y});
}
namespace {
/// Float arithmetic over converted dimensions as integer arithmetic: shape subgraphs go through floats and back.
std::optional<Expr> integer_form(const Expr& e) {
  if (e.is_const()) {
    const double v = e.float_value();
    if (!is_float(e.type()) || v != std::floor(v) || std::fabs(v) > 1e9) return std::nullopt;
    return Expr(static_cast<int64_t>(v));
  }
  if (e.op() == ExprOp::Cast && e.arg(0).op() == ExprOp::Symbol && is_integer(e.arg(0).type())) return cast(DType::I64, e.arg(0));
  if (e.op() < ExprOp::Add || e.op() > ExprOp::Max || e.op() == ExprOp::Div || e.op() == ExprOp::Rem) return std::nullopt;
  const auto a = integer_form(e.arg(0)), b = integer_form(e.arg(1));
  if (!a || !b) return std::nullopt;
  return rebuild(e, {*a, *b});
}
}  // namespace

Expr cast(DType type, const Expr& a) {
  if (a.type() == type) return a;
  if (type == DType::I64 && is_float(a.type()) && !a.is_const())
    if (auto e = integer_form(a)) return *e;
  if (a.is_const()) {
    if (type == DType::Bool) return Expr::boolean(a.float_value() != 0);
    if (is_float(type)) return Expr::real(type, a.type() == DType::U64 ? static_cast<double>(static_cast<uint64_t>(a.int_value())) : a.float_value());
    if (!is_float(a.type())) return Expr::integer(type, a.int_value());
    const double exact = size_of(type) == 8 ? 0x1p62 : 1e9;
    if (std::fabs(a.float_value()) < exact) return Expr::integer(type, static_cast<int64_t>(a.float_value()));
  }
  return Expr::make(ExprOp::Cast, type, {a});
}
Expr round_to(DType storage, const Expr& a) {
  if (compute_type(storage) == storage || !is_float(storage)) return a;
  return Expr::make(ExprOp::Round, a.type(), {a}, static_cast<int64_t>(storage));
}
Expr call(Fn fn, const Expr& a) {
  if (a.is_const()) {
    switch (fn) {
      case Fn::Exp: return Expr::real(a.type(), std::exp(a.float_value()));
      case Fn::Log: return Expr::real(a.type(), std::log(a.float_value()));
      case Fn::Sqrt: return Expr::real(a.type(), std::sqrt(a.float_value()));
      case Fn::Abs: return Expr::real(a.type(), std::fabs(a.float_value()));
      case Fn::Floor: return Expr::real(a.type(), std::floor(a.float_value()));
      case Fn::Ceil: return Expr::real(a.type(), std::ceil(a.float_value()));
      case Fn::Round: return Expr::real(a.type(), std::nearbyint(a.float_value()));
      default: break;
    }
  }
  return Expr::make(ExprOp::Call, a.type(), {a}, static_cast<int64_t>(fn));
}
Expr call(Fn fn, const Expr& a, const Expr& b) {
  return Expr::make(ExprOp::Call, a.type(), {a, b}, static_cast<int64_t>(fn));
}
Expr product(std::span<const Expr> factors) {
  Expr p = 1;
  for (const Expr& f : factors) p = p * f;
  return p;
}

namespace {
Expr rewrite_memo(const Expr& e, const std::function<Expr(const Expr&)>& f, std::unordered_map<const void*, Expr>& memo) {
  if (auto it = memo.find(e.id()); it != memo.end()) return it->second;
  Expr result = f(e);
  if (!result.valid()) {
    std::vector<Expr> args;
    bool changed = false;
    for (const Expr& a : e.args()) {
      args.push_back(rewrite_memo(a, f, memo));
      changed |= args.back().id() != a.id();
    }
    result = changed ? rebuild(e, args) : e;
  }
  memo.emplace(e.id(), result);
  return result;
}
}  // namespace

namespace {
Expr same_bits(DType type, const Expr& a) {
  if (a.is_const() && type == DType::F32 && is_integer(a.type()))
    return Expr::real(type, std::bit_cast<float>(static_cast<int32_t>(a.int_value())));
  if (a.is_const() && type == DType::F64 && is_integer(a.type())) return Expr::real(type, std::bit_cast<double>(a.int_value()));
  return Expr::make(ExprOp::Bits, type, {a});
}
}  // namespace

Expr rebuild(const Expr& e, const std::vector<Expr>& a) {
  switch (e.op()) {
    case ExprOp::Add: return a[0] + a[1];
    case ExprOp::Sub: return a[0] - a[1];
    case ExprOp::Mul: return a[0] * a[1];
    case ExprOp::Div: return a[0] / a[1];
    case ExprOp::FloorDiv: return floor_div(a[0], a[1]);
    case ExprOp::FloorMod: return floor_mod(a[0], a[1]);
    case ExprOp::Min: return min(a[0], a[1]);
    case ExprOp::Max: return max(a[0], a[1]);
    case ExprOp::Eq: return eq(a[0], a[1]);
    case ExprOp::Ne: return ne(a[0], a[1]);
    case ExprOp::Rem: case ExprOp::Xor: case ExprOp::Shl: case ExprOp::Shr: case ExprOp::Lt: case ExprOp::Le:
      return binary(e.op(), a[0], a[1]);
    case ExprOp::And: return e.type() == DType::Bool ? logical_and(a[0], a[1]) : binary(e.op(), a[0], a[1]);
    case ExprOp::Or: return e.type() == DType::Bool ? logical_or(a[0], a[1]) : binary(e.op(), a[0], a[1]);
    case ExprOp::Not: return e.type() == DType::Bool ? logical_not(a[0]) : Expr::make(ExprOp::Not, e.type(), {a[0]});
    case ExprOp::Select: return select(a[0], a[1], a[2]);
    case ExprOp::Cast: return cast(e.type(), a[0]);
    case ExprOp::Round: return round_to(e.rounded_to(), a[0]);
    case ExprOp::Call: return a.size() == 1 ? call(e.fn(), a[0]) : call(e.fn(), a[0], a[1]);
    case ExprOp::Load: case ExprOp::Read: return Expr::make(e.op(), e.type(), a, e.buffer());
    case ExprOp::Bits: return same_bits(e.type(), a[0]);
    case ExprOp::Const: case ExprOp::Symbol: return e;
  }
  return e;
}

Expr rewrite(const Expr& e, const std::function<Expr(const Expr&)>& replace) {
  std::unordered_map<const void*, Expr> memo;
  return rewrite_memo(e, replace, memo);
}

Expr substitute(const Expr& e, const Bindings& bindings) {
  if (bindings.empty()) return e;
  return rewrite(e, [&](const Expr& x) {
    if (x.op() != ExprOp::Symbol) return Expr();
    auto it = bindings.find(x.name());
    return it == bindings.end() ? x : it->second;
  });
}

namespace {
void visit_memo(const Expr& e, const std::function<void(const Expr&)>& f, std::unordered_set<const void*>& seen) {
  if (!seen.insert(e.id()).second) return;
  for (const Expr& a : e.args()) visit_memo(a, f, seen);
  f(e);
}
}  // namespace

void visit(const Expr& e, const std::function<void(const Expr&)>& f) {
  std::unordered_set<const void*> seen;
  visit_memo(e, f, seen);
}

int64_t count_flops(const Expr& e) {
  int64_t flops = 0;
  visit(e, [&](const Expr& x) {
    if (x.op() == ExprOp::Call) flops += info_of(x.fn()).flops;
    else if (x.op() >= ExprOp::Add && x.op() <= ExprOp::Max && is_float(x.type())) flops += 1;
  });
  return flops;
}

bool evaluates_on_host(const Expr& e) {
  bool known = true;
  visit(e, [&](const Expr& x) {
    switch (x.op()) {
      case ExprOp::Load: case ExprOp::Read: case ExprOp::Round: case ExprOp::Xor: case ExprOp::Shl: case ExprOp::Shr:
        known = false;
        break;
      case ExprOp::Rem: case ExprOp::FloorDiv: case ExprOp::FloorMod: known &= !is_float(x.type()); break;
      case ExprOp::Not: known &= x.type() == DType::Bool; break;
      case ExprOp::Bits: known &= is_float(x.type()); break;
      case ExprOp::Call:
        known &= x.fn() == Fn::Floor || x.fn() == Fn::Ceil || x.fn() == Fn::Round || x.fn() == Fn::Abs || x.fn() == Fn::Sqrt;
        break;
      default: break;
    }
  });
  return known;
}

std::optional<int64_t> evaluate_int(const Expr& e, const std::unordered_map<std::string, int64_t>& symbols) {
  const Expr value = rewrite(e, [&](const Expr& x) {
    if (x.op() != ExprOp::Symbol) return Expr();
    auto it = symbols.find(x.name());
    return it == symbols.end() ? x : Expr::integer(x.type(), it->second);
  });
  return value.as_int();
}

}  // namespace ingot
