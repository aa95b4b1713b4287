// Attention whose operands arrive as boxes (prelude/attention_boxes.cuh): which operands can, their tensor maps, and the keys
// that a query can reach.
#include "codegen/cuda/plan_cuda.h"
#include "codegen/text/c_printer.h"
#include "compiler/expr/simplify.h"

namespace ingot {

namespace {

/// A map of rows, and behind them of every place where a batch index may start: 16 bytes apart.
BoxMap map_of(const Kernel& kernel, const OperandRows& x, DType element, int64_t rows) {
  const auto size = static_cast<int64_t>(size_of(element));
  const Expr count = product(kernel.buffers[static_cast<size_t>(x.buffer)].shape);
  const Expr reach = (x.rows - 1) * x.row_stride + x.columns;
  BoxMap map;
  map.buffer = x.buffer;
  map.type = element;
  map.offset = Expr(0);
  map.extents = {x.columns, x.rows, simplify(max(floor_div(count - reach, Expr(16 / size)), Expr(0)) + 1)};
  map.strides = {simplify(x.row_stride * size), Expr(16)};
  map.box = {128 / size, rows, 1};
  return map;
}

}  // namespace

std::optional<OperandRows> operand_rows(const Kernel& kernel, const Expr& value, const std::vector<Axis>& rows,
                                        const std::vector<Axis>& columns, DType element) {
  const auto access = raw_access(kernel, value, element);
  if (!access || access->guard.valid()) return std::nullopt;
  const auto along = common_stride(access->index, columns), across = common_stride(access->index, rows);
  const bool single = total_of(columns).is_const(1);
  if (!across || (!single && (!along || !along->is_const(1)))) return std::nullopt;
  OperandRows x;
  x.buffer = access->buffer;
  x.start = index_without(index_without(access->index, rows), columns);
  x.rows = total_of(rows);
  x.columns = total_of(columns);
  x.row_stride = *across;
  const int64_t whole = 16 / static_cast<int64_t>(size_of(element));
  if (!is_multiple(x.start, whole) || !is_multiple(x.row_stride, whole)) return std::nullopt;
  if (x.row_stride.is_const(0)) x.row_stride = whole;
  return x;
}

std::optional<AttentionRows> attention_rows(const Kernel& kernel, DType element) {
  const Attend& t = *kernel.attend();
  const auto q = operand_rows(kernel, t.q, t.m, t.k, element), key = operand_rows(kernel, t.key, t.n, t.k, element),
             value = operand_rows(kernel, t.value, t.n, t.d, element);
  if (!q || !key || !value) return std::nullopt;
  return AttentionRows{*q, *key, *value};
}

std::vector<BoxMap> attention_maps(const Kernel& kernel, const Schedule& s) {
  const DType element = element_of(s.unit);
  const AttentionRows rows = *attention_rows(kernel, element);
  return {map_of(kernel, rows.q, element, s.tile.m), map_of(kernel, rows.key, element, s.tile.n),
          map_of(kernel, rows.value, element, s.tile.n)};
}

namespace {

constexpr double kHopeless = -1e30;  // no finite product of 16-bit queries and keys makes up for it

bool is_hopeless(const Expr& e) { return e.is_const() && e.float_value() <= kHopeless; }
bool is_infinite(const Expr& e) { return e.is_const() && e.float_value() < -3.5e38; }

/// Where `condition` (or its opposite) holds, key < result; invalid when nothing follows.
Expr bound_of(const Expr& condition, bool holds, const Expr& key) {
  const ExprOp op = condition.op();
  if (op == ExprOp::Not) return bound_of(condition.arg(0), !holds, key);
  if (op == (holds ? ExprOp::And : ExprOp::Or)) {
    const Expr first = bound_of(condition.arg(0), holds, key);
    return first.valid() ? first : bound_of(condition.arg(1), holds, key);
  }
  if ((op != ExprOp::Le && op != ExprOp::Lt) || condition.arg(0).type() != DType::I64) return Expr();
  const Expr &low = condition.arg(holds ? 0 : 1), &high = condition.arg(holds ? 1 : 0);
  const auto coefficient = linear_coefficient(simplify(high - low), key.name());
  if (!coefficient || !coefficient->is_const(-1)) return Expr();
  const bool includes = (op == ExprOp::Le) == holds;
  return simplify(high - low + key + (includes ? 1 : 0));
}

/// Keys from the result on have logits of -inf, or of so little that their weights are zero where the first key counts.
Expr bound_of_logit(const Expr& score, const Expr& key, bool infinite) {
  const auto lost = infinite ? is_infinite : is_hopeless;
  if (score.op() == ExprOp::Add) {
    const Expr first = bound_of_logit(score.arg(0), key, infinite);
    return first.valid() ? first : bound_of_logit(score.arg(1), key, infinite);
  }
  if (score.op() != ExprOp::Select) return Expr();
  if (lost(score.arg(2))) return bound_of(score.arg(0), true, key);
  if (lost(score.arg(1))) return bound_of(score.arg(0), false, key);
  return Expr();
}

/// select(comparison, kept, low), either way round, with one comparison; invalid when it is something else.
Expr kept_by_mask(const Expr& e) {
  if (e.op() != ExprOp::Select) return Expr();
  const Expr& condition = e.arg(0).op() == ExprOp::Not ? e.arg(0).arg(0) : e.arg(0);
  if (condition.op() != ExprOp::Le && condition.op() != ExprOp::Lt) return Expr();
  return is_hopeless(e.arg(2)) ? e.arg(1) : is_hopeless(e.arg(1)) ? e.arg(2) : Expr();
}

/// c * dot behind one mask: no other mask or bias can take the first key away.
bool is_masked_once(const Expr& score, const Expr& dot) {
  const Expr kept = kept_by_mask(score);
  if (kept.valid()) return scale_alone(kept, dot).has_value();
  if (score.op() != ExprOp::Add) return false;
  for (size_t i = 0; i < 2; ++i) {
    const Expr added = kept_by_mask(score.arg(i));
    if (added.valid() && added.is_const(0) && scale_alone(score.arg(1 - i), dot)) return true;
  }
  return false;
}

}  // namespace

Expr reach_of(const Attend& t) {
  if (t.m.size() != 1 || t.n.size() != 1) return Expr();
  const Expr &row = t.m[0].var, &key = t.n[0].var;
  const auto grows = [&](const Expr& bound) {
    if (!bound.valid() || depends_on(bound, key.name())) return false;
    bool known = true;
    visit(bound, [&](const Expr& e) { known &= e.op() != ExprOp::Load; });
    const auto slope = linear_coefficient(bound, row.name());
    return known && slope && slope->as_int().value_or(-1) >= 0;
  };
  const Expr bound = bound_of_logit(t.score, key, true);
  if (grows(bound)) return bound;
  const Expr finite = bound_of_logit(t.score, key, false);
  const bool narrow = t.q_type == DType::F16;
  const bool first_counts = narrow && grows(finite) && bounds_of(finite).low >= 1 && is_masked_once(t.score, t.dot);
  return first_counts ? finite : Expr();
}

std::optional<double> scale_alone(const Expr& score, const Expr& dot) {
  if (score.same(dot)) return 1.0;
  for (size_t i = 0; i < 2; ++i) {
    if (score.op() == ExprOp::Add && score.arg(1 - i).is_const(0)) return scale_alone(score.arg(i), dot);
    if (score.op() != ExprOp::Mul || !score.arg(1 - i).is_const()) continue;
    const auto rest = scale_alone(score.arg(i), dot);
    const double scale = rest.value_or(0) * score.arg(1 - i).float_value();
    if (scale > 1e-30 && scale < 1e30) return scale;
  }
  return std::nullopt;
}

/// 0 or -inf: the same in any scale.
static bool is_added_mask(const Expr& e, const Expr& dot) {
  if (e.op() != ExprOp::Select || depends_on(e.arg(0), dot.name())) return false;
  return (e.arg(1).is_const(0) && is_infinite(e.arg(2))) || (e.arg(2).is_const(0) && is_infinite(e.arg(1)));
}

ScaledLogit split_scale(const Expr& score, const Expr& dot) {
  if (const auto scale = scale_alone(score, dot)) return {*scale, dot};
  for (size_t i = 0; i < 2 && score.op() == ExprOp::Add; ++i) {
    if (!is_added_mask(score.arg(i), dot)) continue;
    const ScaledLogit rest = split_scale(score.arg(1 - i), dot);
    return {rest.scale, rest.logit + score.arg(i)};
  }
  if (score.op() != ExprOp::Select || depends_on(score.arg(0), dot.name())) return {1.0, score};
  for (size_t i = 1; i <= 2; ++i) {
    if (!is_infinite(score.arg(3 - i))) continue;
    const ScaledLogit rest = split_scale(score.arg(i), dot);
    return {rest.scale,
            i == 1 ? select(score.arg(0), rest.logit, score.arg(2)) : select(score.arg(0), score.arg(1), rest.logit)};
  }
  return {1.0, score};
}

}  // namespace ingot
