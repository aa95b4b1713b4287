#include "codegen/shape_emitter.h"

#include <fmt/format.h>

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

}  // namespace

runtime::ShapeRef ShapeEmitter::add(runtime::ShapeLine line) {
  program_.lines.push_back(line);
  return static_cast<runtime::ShapeRef>(program_.lines.size() - 1);
}

Result<runtime::ShapeRef> ShapeEmitter::emit(const Expr& e) {
  auto& bucket = known_[e.hash()];
  for (const auto& [known, line] : bucket)
    if (known.same(e)) return line;
  runtime::ShapeLine line;
  if (e.is_const()) {
    line.immediate = e.int_value();
  } else if (e.op() == ExprOp::Symbol) {
    if (auto derived = derived_.find(e.name()); derived != derived_.end()) return emit(derived->second);
    auto it = symbols_.find(e.name());
    if (it == symbols_.end()) return unsupported(fmt::format("no input defines the dimension {}", e.name()));
    line.op = ShapeOp::Symbol;
    line.a = it->second;
  } else if (e.op() == ExprOp::Cast && !is_float(e.type()) && !is_float(e.arg(0).type())) {
    return emit(e.arg(0));
  } else {
    const auto op = shape_op(e.op());
    if (!op || is_float(e.type()) || is_float(e.arg(0).type())) return unsupported(fmt::format("the size {} needs more than integer arithmetic", to_string(e)));
    line.op = *op;
    line.a = INGOT_TRY(emit(e.arg(0)));
    if (e.args().size() > 1) line.b = INGOT_TRY(emit(e.arg(1)));
    if (e.args().size() > 2) line.c = INGOT_TRY(emit(e.arg(2)));
  }
  const runtime::ShapeRef ref = add(line);
  known_[e.hash()].emplace_back(e, ref);
  return ref;
}

}  // namespace ingot
