#include "codegen/shape_emitter.h"

#include <fmt/format.h>

#include <bit>

namespace ingot {
namespace {

using runtime::ShapeOp;

std::optional<ShapeOp> shape_op(ExprOp op) {
  switch (op) {
    case ExprOp::Add: return ShapeOp::Add;
    case ExprOp::Sub: return ShapeOp::Sub;
    case ExprOp::Mul: return ShapeOp::Mul;
    case ExprOp::Div: return ShapeOp::Div;
    case ExprOp::Rem: return ShapeOp::Rem;
    case ExprOp::FloorDiv: return ShapeOp::FloorDiv;
    case ExprOp::FloorMod: return ShapeOp::FloorMod;
    case ExprOp::Min: return ShapeOp::Min;
    case ExprOp::Max: return ShapeOp::Max;
    case ExprOp::Eq: return ShapeOp::Eq;
    case ExprOp::Ne: return ShapeOp::Ne;
    case ExprOp::Lt: return ShapeOp::Lt;
    case ExprOp::Le: return ShapeOp::Le;
    case ExprOp::And: return ShapeOp::And;
    case ExprOp::Or: return ShapeOp::Or;
    case ExprOp::Not: return ShapeOp::Not;
    case ExprOp::Select: return ShapeOp::Select;
    default: return std::nullopt;
  }
}

std::optional<ShapeOp> float_op(ExprOp op) {
  switch (op) {
    case ExprOp::Add: return ShapeOp::FloatAdd;
    case ExprOp::Sub: return ShapeOp::FloatSub;
    case ExprOp::Mul: return ShapeOp::FloatMul;
    case ExprOp::Div: return ShapeOp::FloatDiv;
    case ExprOp::Min: return ShapeOp::FloatMin;
    case ExprOp::Max: return ShapeOp::FloatMax;
    case ExprOp::Eq: return ShapeOp::FloatEq;
    case ExprOp::Ne: return ShapeOp::FloatNe;
    case ExprOp::Lt: return ShapeOp::FloatLt;
    case ExprOp::Le: return ShapeOp::FloatLe;
    default: return std::nullopt;
  }
}
std::optional<ShapeOp> call_op(Fn fn) {
  switch (fn) {
    case Fn::Floor: return ShapeOp::Floor;
    case Fn::Ceil: return ShapeOp::Ceil;
    case Fn::Round: return ShapeOp::Round;
    case Fn::Sqrt: return ShapeOp::Sqrt;
    case Fn::Abs: return ShapeOp::Abs;
    default: return std::nullopt;
  }
}
std::optional<ShapeOp> op_of(const Expr& e) {
  if (e.op() == ExprOp::Call) return call_op(e.fn());
  return is_float(e.arg(0).type()) && e.op() != ExprOp::Select ? float_op(e.op()) : shape_op(e.op());
}
bool computes_in_f32(const Expr& e) {
  const bool rounds = (e.op() >= ExprOp::Add && e.op() <= ExprOp::Div) || (e.op() == ExprOp::Call && e.fn() == Fn::Sqrt);
  return e.type() == DType::F32 && rounds;
}

}  // namespace

runtime::ShapeRef ShapeEmitter::add(runtime::ShapeLine line) {
  program_.lines.push_back(line);
  return static_cast<runtime::ShapeRef>(program_.lines.size() - 1);
}

Result<runtime::ShapeRef> ShapeEmitter::emit(const Expr& e) {
  auto& bucket = known_[e.hash()];
  for (const auto& [known, line] : bucket)
    if (known.same(e)) return line;
  const runtime::ShapeRef ref = INGOT_TRY(emit_new(e));
  known_[e.hash()].emplace_back(e, ref);
  return ref;
}

Result<runtime::ShapeRef> ShapeEmitter::emit_new(const Expr& e) {
  runtime::ShapeLine line;
  if (e.is_const()) {
    line.immediate = is_float(e.type()) ? std::bit_cast<int64_t>(e.float_value()) : e.int_value();
    return add(line);
  }
  if (e.op() == ExprOp::Symbol) {
    if (auto derived = derived_.find(e.name()); derived != derived_.end()) return emit(derived->second);
    auto it = symbols_.find(e.name());
    if (it == symbols_.end()) return unsupported(fmt::format("no input defines the dimension {}", e.name()));
    line.op = ShapeOp::Symbol;
    line.a = it->second;
    return add(line);
  }
  const DType from = e.arg(0).type();
  line.a = INGOT_TRY(emit(e.arg(0)));
  if (e.op() == ExprOp::Cast) return emit_cast(e.type(), from, line.a);
  if (e.op() == ExprOp::Bits && is_float(e.type())) return e.type() == DType::F64 ? line.a : add({ShapeOp::SingleBits, line.a});
  const auto known = op_of(e);
  if (!known) return unsupported(fmt::format("the size {} needs more than arithmetic", to_string(e)));
  line.op = *known;
  if (e.args().size() > 1) line.b = INGOT_TRY(emit(e.arg(1)));
  if (e.args().size() > 2) line.c = INGOT_TRY(emit(e.arg(2)));
  const runtime::ShapeRef ref = add(line);
  return computes_in_f32(e) ? add({ShapeOp::ToSingle, ref}) : ref;
}

runtime::ShapeRef ShapeEmitter::emit_cast(DType to, DType from, runtime::ShapeRef value) {
  if (to == DType::Bool) return add({is_float(from) ? ShapeOp::FloatNe : ShapeOp::Ne, value, add({})});
  if (is_float(to) && !is_float(from)) value = add({ShapeOp::ToFloat, value});
  if (!is_float(to)) return is_float(from) ? add({ShapeOp::ToInteger, value}) : value;
  return to == DType::F32 && from != DType::F32 ? add({ShapeOp::ToSingle, value}) : value;
}

}  // namespace ingot
