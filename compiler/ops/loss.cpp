// NegativeLogLikelihoodLoss and SoftmaxCrossEntropyLoss, forward.
#include <fmt/format.h>

#include "compiler/ops/compose.h"

namespace ingot {
namespace {

/// log_probabilities [N, C, d…], target [N, d…], weight [C] or invalid.
Result<ValueId> loss_of(ImportContext& c, Compose& g, ValueId log_probabilities, ValueId target, ValueId weight) {
  const std::string reduction = INGOT_TRY(c.node.string_or("reduction", "mean"));
  if (reduction != "mean" && reduction != "sum" && reduction != "none") return invalid(fmt::format("reduction {}", reduction));
  const ValueId x = g.widen(log_probabilities), index = g.cast(target, DType::I64);
  if (g.failed() || g.rank(x) < 2 || g.rank(index) + 1 != g.rank(x)) return invalid("input and target do not fit in rank");
  const Shape flat = g.shape(index);
  ValueId safe = index, ignored;
  if (c.node.has("ignore_index")) {
    const auto ignore = static_cast<double>(INGOT_TRY(c.node.int_or("ignore_index", -1)));
    ignored = g.binary("Equal", index, ignore);
    safe = g.where(ignored, g.scalar(DType::I64, 0), index);
  }
  const ValueId picked = g.take(build_gather_elements(c.builder, x, g.unsqueeze(safe, 1), 1));
  ValueId loss = g.unary("Neg", g.reshape(picked, flat)), weights;
  if (weight.valid()) weights = g.gather(g.widen(weight), safe, 0);
  if (ignored.valid() && !g.failed()) {
    if (!weights.valid()) weights = g.full(g.dtype(loss), 1, flat);
    weights = g.where(ignored, g.scalar(g.dtype(loss), 0), weights);
  }
  if (weights.valid()) loss = g.where(g.binary("Equal", weights, 0.0), g.scalar(g.dtype(loss), 0), g.mul(loss, weights));
  if (reduction == "none") return g.cast(loss, c.type(0).dtype);
  std::vector<int64_t> axes;
  for (size_t d = 0; d < flat.size(); ++d) axes.push_back(static_cast<int64_t>(d));
  ValueId total = g.reduce(reduction == "mean" && !weights.valid() ? "ReduceMean" : "ReduceSum", loss, axes, false);
  if (reduction == "mean" && weights.valid()) total = g.div(total, g.reduce("ReduceSum", weights, axes, false));
  return g.cast(total, c.type(0).dtype);
}
Result<Values> import_nll(ImportContext& c) {
  Compose g(c.builder);
  const ValueId loss = INGOT_TRY(loss_of(c, g, c.in(0), c.in(1), c.in(2)));
  return g.result({loss});
}
Result<Values> import_cross_entropy(ImportContext& c) {
  Compose g(c.builder);
  const ValueId p = g.take(build_softmax(c.builder, g.widen(c.in(0)), 1, true));
  const ValueId loss = INGOT_TRY(loss_of(c, g, p, c.in(1), c.in(2)));
  return g.result({loss, g.cast(p, c.type(0).dtype)});
}

const OpDef kLoss[] = {
    import_row("NegativeLogLikelihoodLoss", "", kRules<import_nll, 12, 13, 22>, 2, 3),
    import_row("SoftmaxCrossEntropyLoss", "", kRules<import_cross_entropy, 12, 13>, 2, 3),
};

}  // namespace

std::span<const OpDef> loss_ops() { return kLoss; }

}  // namespace ingot
