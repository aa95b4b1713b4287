#include "codegen/kernel/lanes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "compiler/support/result.h"

namespace ingot {
namespace {

/// The scalar meaning of integer operations is the constant folder's.
int64_t fold(ExprOp op, DType type, int64_t a, int64_t b) {
  const Expr e = rebuild(Expr::make(op, type, {Expr::integer(type, a), Expr::integer(type, b)}),
                         {Expr::integer(type, a), Expr::integer(type, b)});
  return e.int_value();
}

int64_t floor_div64(int64_t a, int64_t b) {
  if (b == 0) return 0;
  if (b == -1) return static_cast<int64_t>(0 - static_cast<uint64_t>(a));
  const int64_t q = a / b;
  return q - (a % b != 0 && ((a < 0) != (b < 0)));
}

void integer_op(ExprOp op, DType type, const int64_t* a, const int64_t* b, int64_t* out, int n) {
  auto each = [&](auto f) {
    for (int i = 0; i < n; ++i) out[i] = f(a[i], b[i]);
  };
  if (type != DType::I64) {
    switch (op) {
      case ExprOp::Eq: return each([](int64_t x, int64_t y) { return int64_t{x == y}; });
      case ExprOp::Ne: return each([](int64_t x, int64_t y) { return int64_t{x != y}; });
      case ExprOp::And: return each([](int64_t x, int64_t y) { return x & y; });
      case ExprOp::Or: return each([](int64_t x, int64_t y) { return x | y; });
      default: return each([&](int64_t x, int64_t y) { return fold(op, type, x, y); });
    }
  }
  switch (op) {
    case ExprOp::Add: return each([](int64_t x, int64_t y) { return static_cast<int64_t>(static_cast<uint64_t>(x) + static_cast<uint64_t>(y)); });
    case ExprOp::Sub: return each([](int64_t x, int64_t y) { return static_cast<int64_t>(static_cast<uint64_t>(x) - static_cast<uint64_t>(y)); });
    case ExprOp::Mul: return each([](int64_t x, int64_t y) { return static_cast<int64_t>(static_cast<uint64_t>(x) * static_cast<uint64_t>(y)); });
    case ExprOp::FloorDiv: return each([](int64_t x, int64_t y) { return floor_div64(x, y); });
    case ExprOp::FloorMod: return each([](int64_t x, int64_t y) { return y == 0 || y == -1 ? 0 : x - floor_div64(x, y) * y; });
    case ExprOp::Min: return each([](int64_t x, int64_t y) { return std::min(x, y); });
    case ExprOp::Max: return each([](int64_t x, int64_t y) { return std::max(x, y); });
    case ExprOp::Eq: return each([](int64_t x, int64_t y) { return int64_t{x == y}; });
    case ExprOp::Ne: return each([](int64_t x, int64_t y) { return int64_t{x != y}; });
    case ExprOp::Lt: return each([](int64_t x, int64_t y) { return int64_t{x < y}; });
    case ExprOp::Le: return each([](int64_t x, int64_t y) { return int64_t{x <= y}; });
    default: return each([&](int64_t x, int64_t y) { return fold(op, type, x, y); });
  }
}

template <class T>
bool float_op(ExprOp op, const T* a, const T* b, T* out, int64_t* test, int n) {
  auto each = [&](auto f) { for (int i = 0; i < n; ++i) out[i] = f(a[i], b[i]); };
  auto compare = [&](auto f) { for (int i = 0; i < n; ++i) test[i] = f(a[i], b[i]); };
  switch (op) {
    case ExprOp::Add: each([](T x, T y) { return x + y; }); return true;
    case ExprOp::Sub: each([](T x, T y) { return x - y; }); return true;
    case ExprOp::Mul: each([](T x, T y) { return x * y; }); return true;
    case ExprOp::Div: each([](T x, T y) { return x / y; }); return true;
    case ExprOp::Rem: each([](T x, T y) { return std::fmod(x, y); }); return true;
    case ExprOp::FloorDiv: each([](T x, T y) { return std::floor(x / y); }); return true;
    case ExprOp::FloorMod:
      each([](T x, T y) { const T r = std::fmod(x, y); return r != 0 && ((r < 0) != (y < 0)) ? r + y : r; });
      return true;
    case ExprOp::Min: each([](T x, T y) { return std::isnan(x) || std::isnan(y) ? static_cast<T>(NAN) : std::min(x, y); }); return true;
    case ExprOp::Max: each([](T x, T y) { return std::isnan(x) || std::isnan(y) ? static_cast<T>(NAN) : std::max(x, y); }); return true;
    case ExprOp::Eq: compare([](T x, T y) { return x == y; }); return true;
    case ExprOp::Ne: compare([](T x, T y) { return x != y; }); return true;
    case ExprOp::Lt: compare([](T x, T y) { return x < y; }); return true;
    case ExprOp::Le: compare([](T x, T y) { return x <= y; }); return true;
    default: return false;
  }
}

template <class T>
void call_op(Fn fn, const T* a, const T* b, T* out, int n) {
  if (fn == Fn::Pow) {
    for (int i = 0; i < n; ++i) out[i] = static_cast<T>(std::pow(static_cast<double>(a[i]), static_cast<double>(b[i])));
    return;
  }
  auto each = [&](auto f) { for (int i = 0; i < n; ++i) out[i] = static_cast<T>(f(static_cast<double>(a[i]))); };
  switch (fn) {
#define INGOT_FN(name, text, cuda, host, flops) \
  case Fn::name: each([](double x) { return static_cast<double>(host(x)); }); break;
#define INGOT_FN2(name, text, cuda, host, flops) \
  case Fn::name: break;  // handled above
#include "compiler/expr/scalar_fn.def"
#undef INGOT_FN
  }
}

int64_t saturate(DType type, double v) {
  if (std::isnan(v)) return 0;
  if (type == DType::Bool) return v != 0;
  if (type == DType::U64) return v <= 0 ? 0 : v >= 18446744073709551615.0 ? -1 : static_cast<int64_t>(static_cast<uint64_t>(v));
  const int bits = static_cast<int>(size_of(type)) * 8;
  const double high = is_signed(type) ? std::ldexp(1.0, bits - 1) : std::ldexp(1.0, bits);
  const double low = is_signed(type) ? -high : 0;
  if (v >= high) return is_signed(type) ? INT64_MAX >> (64 - bits) : static_cast<int64_t>((uint64_t{1} << bits) - 1);
  if (v <= low) return is_signed(type) ? INT64_MIN >> (64 - bits) : 0;
  return static_cast<int64_t>(v);
}

void cast_op(DType to, Register& a, Register& out, int n) {
  const DType from = a.type();
  for (int i = 0; i < n; ++i) {
    if (is_float(from)) {
      const double v = from == DType::F32 ? a.f32()[i] : a.f64()[i];
      if (to == DType::F32) out.f32()[i] = static_cast<float>(v);
      else if (to == DType::F64) out.f64()[i] = v;
      else out.i64()[i] = to == DType::Bool ? v != 0 : saturate(to, v);
      continue;
    }
    const int64_t v = a.i64()[i];
    const bool big = from == DType::U64;
    if (to == DType::F32) out.f32()[i] = big ? static_cast<float>(static_cast<uint64_t>(v)) : static_cast<float>(v);
    else if (to == DType::F64) out.f64()[i] = big ? static_cast<double>(static_cast<uint64_t>(v)) : static_cast<double>(v);
    else out.i64()[i] = to == DType::Bool ? v != 0 : wrap(to, v);
  }
}

}  // namespace

void Register::fill(int64_t v) {
  for (int i = 0; i < kLanes; ++i) i64()[i] = v;
}
void Register::copy_from(const Register& other, int lanes) {
  std::memcpy(bytes_, other.bytes_, static_cast<size_t>(lanes) * (type_ == DType::F32 ? 4 : 8));
}

LaneProgram::LaneProgram(const std::vector<Expr>& roots, const std::vector<std::string>& varying) : varying_(varying) {
  for (const Expr& e : roots) {
    keep_.push_back(e);
    roots_.push_back(compile(e, -1));
  }
}

int LaneProgram::emit(Line line) {
  auto varies = [&](int r) { return r >= 0 && varies_[static_cast<size_t>(r)]; };
  line.varying |= varies(line.a) || varies(line.b) || varies(line.c) || varies(line.mask);
  line.out = static_cast<int>(registers_.size());
  registers_.emplace_back(line.type);
  varies_.push_back(line.varying);
  lines_.push_back(std::move(line));
  return lines_.back().out;
}

int LaneProgram::compile(const Expr& e, int mask) {
  const auto key = std::make_pair(e.id(), mask);
  if (auto it = memo_.find(key); it != memo_.end()) return it->second;
  Line line{e.op(), e.type(), 0};
  switch (e.op()) {
    case ExprOp::Const: line.payload = e.int_value(); break;
    case ExprOp::Symbol:
      line.symbol = e.name();
      line.varying = std::find(varying_.begin(), varying_.end(), e.name()) != varying_.end();
      break;
    case ExprOp::Load:
      line.payload = e.buffer();
      line.a = compile(e.arg(0), mask);
      line.mask = mask;
      line.varying = !varying_.empty();  // what it reads may change between iterations
      break;
    case ExprOp::Select: {
      line.a = compile(e.arg(0), mask);
      const int no = emit({ExprOp::Not, DType::Bool, 0, line.a});
      const int yes_mask = mask < 0 ? line.a : emit({ExprOp::And, DType::Bool, 0, mask, line.a});
      const int no_mask = mask < 0 ? no : emit({ExprOp::And, DType::Bool, 0, mask, no});
      line.b = compile(e.arg(1), yes_mask);
      line.c = compile(e.arg(2), no_mask);
      break;
    }
    case ExprOp::And:
      if (e.type() == DType::Bool) {  // the right side may load under the guard of the left
        line.a = compile(e.arg(0), mask);
        line.b = compile(e.arg(1), mask < 0 ? line.a : emit({ExprOp::And, DType::Bool, 0, mask, line.a}));
        break;
      }
      [[fallthrough]];
    default: {
      INGOT_CHECK(e.op() != ExprOp::Read, "a Read survived lowering: " + to_string(e));
      const auto& args = e.args();
      line.a = compile(args[0], mask);
      if (args.size() > 1) line.b = compile(args[1], mask);
      line.payload = e.op() == ExprOp::Call ? static_cast<int64_t>(e.fn()) : e.op() == ExprOp::Round ? static_cast<int64_t>(e.rounded_to()) : 0;
    }
  }
  const int out = emit(std::move(line));
  memo_[key] = out;
  return out;
}

void LaneProgram::load(const Line& line, const std::vector<LaneMemory>& memory, int lanes) {
  const LaneMemory& m = memory[static_cast<size_t>(line.payload)];
  Register& out = registers_[static_cast<size_t>(line.out)];
  const int64_t* index = registers_[static_cast<size_t>(line.a)].i64();
  const int64_t* mask = line.mask >= 0 ? registers_[static_cast<size_t>(line.mask)].i64() : nullptr;
  const auto size = static_cast<int64_t>(size_of(m.type));
  const bool real = is_float(line.type);
  for (int i = 0; i < lanes; ++i) {
    if (mask && !mask[i]) {
      if (line.type == DType::F32) out.f32()[i] = 0;
      else out.i64()[i] = 0;
      continue;
    }
    if (index[i] < 0 || index[i] >= m.count) {
      if (fault_.empty()) fault_ = fmt::format("load from buffer {}, element {} of {}", line.payload, index[i], m.count);
      if (line.type == DType::F32) out.f32()[i] = 0;
      else out.i64()[i] = 0;
      continue;
    }
    const char* p = m.data + (m.per_lane ? index[i] * kLanes + i : index[i]) * size;
    if (line.type == DType::F32 && m.type == DType::F32) std::memcpy(&out.f32()[i], p, 4);
    else if (line.type == DType::F32 && m.type == DType::F16) {  // most loads of a 16-bit model
      uint16_t bits;
      std::memcpy(&bits, p, 2);
      out.f32()[i] = f16_to_float(bits);
    } else if (line.type == DType::F32) out.f32()[i] = static_cast<float>(load_float(m.type, p));
    else if (real) out.f64()[i] = load_float(m.type, p);
    else out.i64()[i] = load_int(m.type, p);
  }
}

void LaneProgram::execute(const Line& l, const LaneScope& scope, const std::vector<LaneMemory>& memory, int n) {
  Register& out = registers_[static_cast<size_t>(l.out)];
  Register* a = l.a >= 0 ? &registers_[static_cast<size_t>(l.a)] : nullptr;
  Register* b = l.b >= 0 ? &registers_[static_cast<size_t>(l.b)] : nullptr;
  switch (l.op) {
    case ExprOp::Const:
      for (int i = 0; i < n; ++i) {
        double real;
        std::memcpy(&real, &l.payload, 8);
        if (l.type == DType::F32) out.f32()[i] = static_cast<float>(real);
        else if (l.type == DType::F64) out.f64()[i] = real;
        else out.i64()[i] = l.payload;
      }
      return;
    case ExprOp::Symbol: {
      auto it = scope.find(l.symbol);
      INGOT_CHECK(it != scope.end(), "unbound symbol " + l.symbol);
      return out.copy_from(*it->second, n);
    }
    case ExprOp::Load: return load(l, memory, n);
    case ExprOp::Select: {
      const int64_t* test = a->i64();
      Register& c = registers_[static_cast<size_t>(l.c)];
      if (l.type == DType::F32) for (int i = 0; i < n; ++i) out.f32()[i] = test[i] ? b->f32()[i] : c.f32()[i];
      else for (int i = 0; i < n; ++i) out.i64()[i] = test[i] ? b->i64()[i] : c.i64()[i];
      return;
    }
    case ExprOp::Not:
      for (int i = 0; i < n; ++i) out.i64()[i] = l.type == DType::Bool ? !a->i64()[i] : wrap(l.type, ~a->i64()[i]);
      return;
    case ExprOp::Cast: return cast_op(l.type, *a, out, n);
    case ExprOp::Round:
      for (int i = 0; i < n; ++i) {
        unsigned char bits[8];
        store_float(static_cast<DType>(l.payload), bits, a->f32()[i]);
        out.f32()[i] = static_cast<float>(load_float(static_cast<DType>(l.payload), bits));
      }
      return;
    case ExprOp::Call:
      if (l.type == DType::F32) call_op(static_cast<Fn>(l.payload), a->f32(), b ? b->f32() : nullptr, out.f32(), n);
      else call_op(static_cast<Fn>(l.payload), a->f64(), b ? b->f64() : nullptr, out.f64(), n);
      return;
    case ExprOp::Bits:
      for (int i = 0; i < n; ++i) {
        unsigned char bits[8] = {};
        if (a->type() == DType::F32) std::memcpy(bits, &a->f32()[i], 4);
        else if (a->type() == DType::F64) std::memcpy(bits, &a->f64()[i], 8);
        else store_int(a->type(), bits, a->i64()[i]);
        if (l.type == DType::F32) std::memcpy(&out.f32()[i], bits, 4);
        else if (l.type == DType::F64) std::memcpy(&out.f64()[i], bits, 8);
        else out.i64()[i] = load_int(l.type, bits);
      }
      return;
    default: break;
  }
  if (a->type() == DType::F32) float_op(l.op, a->f32(), b->f32(), out.f32(), out.i64(), n);
  else if (a->type() == DType::F64) float_op(l.op, a->f64(), b->f64(), out.f64(), out.i64(), n);
  else integer_op(l.op, a->type(), a->i64(), b->i64(), out.i64(), n);
}

void LaneProgram::prepare(const LaneScope& scope, const std::vector<LaneMemory>& memory, int lanes) {
  for (const Line& l : lines_)
    if (!l.varying) execute(l, scope, memory, lanes);
}
void LaneProgram::run(const LaneScope& scope, const std::vector<LaneMemory>& memory, int lanes) {
  for (const Line& l : lines_)
    if (l.varying) execute(l, scope, memory, lanes);
}

bool store_lanes(const LaneMemory& m, Register& index, Register& value, Register* mask, int lanes, std::string& fault) {
  const auto size = static_cast<int64_t>(size_of(m.type));
  for (int i = 0; i < lanes; ++i) {
    if (mask && !mask->i64()[i]) continue;
    const int64_t at = index.i64()[i];
    if (at < 0 || at >= m.count) {
      if (fault.empty()) fault = fmt::format("store to element {} of {}", at, m.count);
      return false;
    }
    char* p = m.data + (m.per_lane ? at * kLanes + i : at) * size;
    if (value.type() == DType::F32) store_float(m.type, p, value.f32()[i]);
    else if (value.type() == DType::F64) store_float(m.type, p, value.f64()[i]);
    else store_int(m.type, p, value.i64()[i]);
  }
  return true;
}

}  // namespace ingot
