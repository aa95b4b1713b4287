// What an operand of a contraction is to the loads of its tile: its own axes along k, and whether its elements can be copied
// as they are stored.
#include <algorithm>

#include "codegen/cuda/plan_cuda.h"
#include "codegen/text/c_printer.h"
#include "compiler/expr/simplify.h"
#include "compiler/ops/operands.h"

namespace ingot {

namespace {

bool has_load(const Expr& e) {
  bool found = false;
  visit(e, [&](const Expr& x) { found |= x.op() == ExprOp::Load; });
  return found;
}

/// True when the symbol occurs in e other than in the index of a load: in a guard, say.
bool depends_outside_loads(const Expr& e, const std::string& symbol) {
  if (e.op() == ExprOp::Load) return false;
  if (e.op() == ExprOp::Symbol) return e.name() == symbol;
  for (const Expr& a : e.args())
    if (depends_outside_loads(a, symbol)) return true;
  return false;
}

}  // namespace

OperandView view_of(const Contract& c, const Expr& value) {
  const OperandView as_is{value, c.k};
  if (c.k.size() < 2) return as_is;
  bool flat = true;
  visit(value, [&](const Expr& e) {
    if (e.op() != ExprOp::Load) return;
    for (size_t i = 0; i + 1 < c.k.size(); ++i) {
      const auto a = linear_coefficient(e.arg(0), c.k[i].var.name()),
                 b = linear_coefficient(e.arg(0), c.k[i + 1].var.name());
      flat &= a && b && simplify(*a - *b * c.k[i + 1].extent).is_const(0);
    }
  });
  for (const Axis& a : c.k) flat &= !depends_outside_loads(value, a.var.name());
  if (!flat) return as_is;
  const Expr extent = total_of(c.k), var = Expr::index("k_flat", extent);
  Bindings bindings;
  for (const Axis& a : c.k) bindings[a.var.name()] = Expr(0);
  bindings[c.k.back().var.name()] = var;
  return {simplify(substitute(value, bindings)), {{var, extent}}};
}

namespace {

bool is_byte(DType t) { return t == DType::I8 || t == DType::U8; }

/// False when there is something in e that is no byte. `found`: the type of the bytes; `low`, `high`: of the numbers.
bool collect_bytes(const Expr& e, std::optional<DType>& found, int64_t& low, int64_t& high) {
  if (e.op() == ExprOp::Select) return collect_bytes(e.arg(1), found, low, high) && collect_bytes(e.arg(2), found, low, high);
  if (const auto number = e.as_int()) {
    low = std::min(low, *number);
    high = std::max(high, *number);
    return true;
  }
  if (e.op() != ExprOp::Cast || !is_byte(e.arg(0).type()) || (found && *found != e.arg(0).type())) return false;
  found = e.arg(0).type();
  return true;
}

}  // namespace

std::optional<DType> byte_type(const Expr& value) {
  std::optional<DType> found;
  int64_t low = 0, high = 0;
  if (value.type() != DType::I32 || !collect_bytes(value, found, low, high) || !found) return std::nullopt;
  const bool fits = *found == DType::U8 ? low >= 0 && high <= 255 : low >= -128 && high <= 127;
  return fits ? found : std::nullopt;
}

std::optional<RawAccess> raw_access(const Kernel& kernel, const Expr& value, DType element) {
  RawAccess access;
  const Expr* load = &value;
  const bool bytes = element == DType::I8;
  for (; load->op() == ExprOp::Select; load = &load->arg(1)) {
    if (!load->arg(2).is_const(0) || has_load(load->arg(0))) return std::nullopt;
    access.guard = access.guard.valid() ? logical_and(access.guard, load->arg(0)) : load->arg(0);
  }
  if (bytes && load->op() == ExprOp::Cast && byte_type(*load)) load = &load->arg(0);
  if (load->op() != ExprOp::Load || has_load(load->arg(0))) return std::nullopt;
  access.buffer = load->buffer();
  access.index = load->arg(0);
  if (access.buffer >= static_cast<int>(kernel.buffers.size())) return std::nullopt;
  const DType stored = kernel.buffers[static_cast<size_t>(access.buffer)].type;
  if (bytes ? !is_byte(stored) : is_f8(element) ? !is_f8(stored) : stored != element) return std::nullopt;
  bool changes = false;
  each_access(kernel.body, [&](int buffer, const Expr&, bool store) { changes |= store && buffer == access.buffer; });
  return changes ? std::nullopt : std::optional(access);
}

AxisGuard guard_along(const Expr& guard, const Axis* axis) {
  AxisGuard found;
  if (guard.op() == ExprOp::And) {
    found = guard_along(guard.arg(0), axis);
    const AxisGuard other = guard_along(guard.arg(1), axis);
    if (!found.rest.valid()) found.rest = other.rest;
    else if (other.rest.valid()) found.rest = logical_and(found.rest, other.rest);
    if (other.bound) found.bound = std::min(found.bound.value_or(INT64_MAX), *other.bound);
    return found;
  }
  if (axis && guard.op() == ExprOp::Lt && guard.arg(0).same(axis->var)) found.bound = guard.arg(1).as_int();
  if (!found.bound) found.rest = guard;
  return found;
}

}  // namespace ingot
