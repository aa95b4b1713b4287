// A mask is a choice between a logit (or what is added to it) and a number so low that the weight is zero.
#include "codegen/kernel/attention_masks.h"

#include <functional>

#include "compiler/expr/simplify.h"

namespace ingot {

namespace {

constexpr double kHopeless = -1e30;  // no finite product of 16-bit queries and keys makes up for it

bool is_hopeless(const Expr& e) { return e.is_const() && e.float_value() <= kHopeless; }
bool is_infinite(const Expr& e) { return e.is_const() && e.float_value() < -3.5e38; }

/// Bounds of the key that a condition means. `exact`: it means nothing else.
struct Bounds {
  std::vector<Expr> bounds;
  bool exact = false;
};

/// The keys of an attention, as far as they are one axis.
class Keys {
 public:
  explicit Keys(const Attend& t) : t_(t) {}

  bool known() const { return t_.n.size() == 1; }
  /// The condition (or its opposite) holds only for keys less than each of these.
  Bounds of(const Expr& condition, bool holds) const {
    const ExprOp op = condition.op();
    if (op == ExprOp::Not) return of(condition.arg(0), !holds);
    if (op == (holds ? ExprOp::And : ExprOp::Or)) {
      Bounds all = of(condition.arg(0), holds), more = of(condition.arg(1), holds);
      all.bounds.insert(all.bounds.end(), more.bounds.begin(), more.bounds.end());
      all.exact &= more.exact;
      return all;
    }
    if ((op != ExprOp::Le && op != ExprOp::Lt) || condition.arg(0).type() != DType::I64) return {};
    const Expr &low = condition.arg(holds ? 0 : 1), &high = condition.arg(holds ? 1 : 0), &key = t_.n[0].var;
    const auto coefficient = linear_coefficient(simplify(high - low), key.name());
    if (!coefficient || !coefficient->is_const(-1)) return {};
    const bool includes = (op == ExprOp::Le) == holds;
    const Expr bound = simplify(high - low + key + (includes ? 1 : 0));
    return grows(bound) ? Bounds{{bound}, true} : Bounds{};
  }
  /// What the choices of the logit between something and what is `lost` say.
  void each_mask(const Expr& logit, const std::function<bool(const Expr&)>& lost,
                 const std::function<void(const Expr& choice, const Expr& kept, const Bounds&)>& use) const {
    if (logit.op() == ExprOp::Add) {
      for (const Expr& e : logit.args()) each_mask(e, lost, use);
    }
    if (logit.op() != ExprOp::Select) return;
    for (size_t kept = 1; kept <= 2; ++kept) {
      if (!lost(logit.arg(3 - kept))) continue;
      use(logit, logit.arg(kept), of(logit.arg(0), kept == 1));
      return each_mask(logit.arg(kept), lost, use);
    }
  }

 private:
  /// Of the row (the first axis of the queries, the slowest) and the batch only, and no less for later rows.
  bool grows(const Expr& bound) const {
    for (const auto* axes : {&t_.n, &t_.k, &t_.d})
      for (const Axis& a : *axes)
        if (depends_on(bound, a.var.name())) return false;
    for (size_t i = 1; i < t_.m.size(); ++i)
      if (depends_on(bound, t_.m[i].var.name())) return false;
    if (depends_on(bound, t_.dot.name())) return false;
    if (t_.m.empty()) return true;
    const auto slope = linear_coefficient(bound, t_.m[0].var.name());
    return slope && slope->as_int().value_or(-1) >= 0;
  }

  const Attend& t_;
};

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

Expr least(const std::vector<Expr>& bounds) {
  Expr all;
  for (const Expr& b : bounds) all = all.valid() ? min(all, b) : b;
  return all;
}

Expr without(const Expr& logit, const std::vector<std::pair<Expr, Expr>>& choices) {
  for (const auto& [choice, kept] : choices)
    if (logit.same(choice)) return without(kept, choices);
  if (logit.op() == ExprOp::Add) return without(logit.arg(0), choices) + without(logit.arg(1), choices);
  if (logit.op() != ExprOp::Select) return logit;
  return select(logit.arg(0), without(logit.arg(1), choices), without(logit.arg(2), choices));
}

}  // namespace

Expr reach_of(const Attend& t) {
  const Keys keys(t);
  if (!keys.known()) return Expr();
  std::vector<Expr> infinite, finite;
  const auto into = [](std::vector<Expr>& all) {
    return
        [&all](const Expr&, const Expr&, const Bounds& b) { all.insert(all.end(), b.bounds.begin(), b.bounds.end()); };
  };
  keys.each_mask(t.score, is_infinite, into(infinite));
  if (!infinite.empty()) return least(infinite);
  if (t.q_type != DType::F16 || !is_masked_once(t.score, t.dot)) return Expr();
  keys.each_mask(t.score, is_hopeless, into(finite));
  const bool first_counts = finite.size() == 1 && bounds_of(finite[0]).low >= 1;
  return first_counts ? finite[0] : Expr();
}

bool grows_with_row(const Attend& t, const Expr& reach) {
  return reach.valid() && !t.m.empty() && depends_on(reach, t.m[0].var.name());
}

SeenKeys seen_keys(const Attend& t, const Expr& logit) {
  const Keys keys(t);
  if (!keys.known()) return {};
  std::vector<Expr> bounds;
  std::vector<std::pair<Expr, Expr>> choices;
  bool infinite = true;
  keys.each_mask(logit, is_hopeless, [&](const Expr& choice, const Expr& kept, const Bounds& b) {
    if (!b.exact) return;
    infinite &= is_infinite(choice.arg(kept.same(choice.arg(1)) ? 2 : 1));
    bounds.insert(bounds.end(), b.bounds.begin(), b.bounds.end());
    choices.emplace_back(choice, kept);
  });
  if (choices.empty()) return {};
  return {least(bounds), simplify(without(logit, choices)), infinite};
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
