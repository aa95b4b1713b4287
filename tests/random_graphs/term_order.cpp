#include "tests/random_graphs/term_order.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "codegen/kernel/interpret.h"

namespace ingot::testing {
namespace {

struct Range {
  double least, most;
};
Range range_of(DType t) {
  if (t == DType::F64) return {std::numeric_limits<double>::denorm_min(), std::numeric_limits<double>::max()};
  return {std::numeric_limits<float>::min(), std::numeric_limits<float>::max()};
}

/// The most and the least that a step can reach: every term by its size; of products, those above 1, or those below.
enum class Part : uint8_t { All, Large, Small };
double part_of(double v, Part part) {
  const double size = std::abs(v);
  return part == Part::All ? size : part == Part::Large ? std::max(size, 1.0) : std::min(size, 1.0);
}
double largest(const Tensor& t, Part part) {
  double most = 0;
  for (int64_t i = 0; i < t.count(); ++i)
    if (std::isfinite(t.float_at(i))) most = std::max(most, part_of(t.float_at(i), part));
  return most;
}

/// What the step makes of the parts.
Result<std::vector<Tensor>> run_parts(const NodeKernel& lowered, const std::vector<Tensor*>& inputs,
                                      const std::vector<Tensor*>& outputs, Part part) {
  std::vector<Tensor> args, results;
  for (const Tensor* t : inputs) {
    args.emplace_back(t->type(), t->dims());
    for (int64_t i = 0; i < t->count(); ++i)
      is_float(t->type()) ? args.back().set_float(i, part_of(t->float_at(i), part))
                          : args.back().set_int(i, t->int_at(i));
  }
  for (const Tensor* t : outputs) results.emplace_back(t->type(), t->dims());
  std::vector<void*> buffers;
  std::vector<int64_t> sizes;
  for (auto* list : {&args, &results})
    for (Tensor& t : *list) buffers.push_back(t.mutable_data()), sizes.push_back(t.count());
  INGOT_TRY(interpret(lowered.kernel, buffers, sizes, {}));
  return results;
}

template <class Leaves>
void replace(const std::vector<Tensor*>& outputs, const std::vector<Tensor>& reached, Leaves leaves, double by) {
  for (size_t k = 0; k < outputs.size(); ++k) {
    if (!is_float(outputs[k]->type())) continue;
    for (int64_t i = 0; i < outputs[k]->count(); ++i) {
      const double v = outputs[k]->float_at(i);
      if (std::isnan(v) || !leaves(reached[k].float_at(i))) continue;
      // A part that vanishes times one that overflows.
      if (std::isfinite(v)) outputs[k]->set_float(i, std::copysign(by, v));
      else if (by == 0) outputs[k]->set_float(i, NAN);
    }
  }
}

}  // namespace

Status apply_worst_order(const TermOrder& order, const NodeKernel& lowered, const std::vector<Tensor*>& inputs,
                         const std::vector<Tensor*>& outputs) {
  if (order.terms < 2) return {};
  const Range range = range_of(order.type);
  const bool product = order.combine == Combine::Product;
  const auto terms = static_cast<double>(order.terms);
  const Part part = product ? Part::Large : Part::All;
  double bound = product ? 1 : terms;  // of all elements: far within range for nearly every step
  for (const Tensor* t : inputs)
    if (is_float(t->type())) bound *= product ? std::pow(largest(*t, part), terms) : largest(*t, part);
  if (bound > range.most) {
    const std::vector<Tensor> reached = INGOT_TRY(run_parts(lowered, inputs, outputs, part));
    const double summed = order.mean ? terms : 1;
    replace(outputs, reached, [&](double v) { return v * summed > range.most; }, INFINITY);
  }
  if (product) {
    const std::vector<Tensor> reached = INGOT_TRY(run_parts(lowered, inputs, outputs, Part::Small));
    replace(outputs, reached, [&](double v) { return v < range.least; }, 0);
  }
  return {};
}

}  // namespace ingot::testing
