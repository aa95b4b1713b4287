#include "compiler/ops/operands.h"

namespace ingot {

DType operand_type(const Graph& body, ValueId v, bool through_factors) {
  const DType own = body.value(v).type.dtype;
  const auto is_factor = [&](ValueId x) { return body.value(x).constant && body.value(x).constant->count() == 1; };
  const Node* n = body.producer(v);
  while (n) {
    if (n->op->lowers_as<Movement>()) n = body.producer(n->inputs[0]);
    else if (through_factors && n->op->name == "Mul" && is_factor(n->inputs[1])) n = body.producer(n->inputs[0]);
    else if (through_factors && n->op->name == "Mul" && is_factor(n->inputs[0])) n = body.producer(n->inputs[1]);
    else break;
  }
  if (!n || n->op->name != "Cast") return own;
  const DType from = body.value(n->inputs[0]).type.dtype;
  return own == DType::F32 && (from == DType::F16 || from == DType::BF16 || is_f8(from)) ? from : own;
}

}  // namespace ingot
