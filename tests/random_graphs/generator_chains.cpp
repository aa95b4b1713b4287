// Steps of several small products and reductions, as networks have them: what becomes chains, groups of rows, and sums that
// are one product.
#include "compiler/expr/simplify.h"
#include "tests/random_graphs/generator.h"

namespace ingot::testing {

namespace {
std::vector<int64_t> axes_from(size_t first, size_t end) {
  std::vector<int64_t> axes;
  for (size_t d = first; d < end; ++d) axes.push_back(static_cast<int64_t>(d));
  return axes;
}
}  // namespace

/// A 1x1 convolution, perhaps with bias and activation.
ValueId Generator::mix_channels(ValueId x, int64_t channels) {
  if (!x.valid()) return x;
  Shape w{Expr(channels), shape(x)[1]}, bias{Expr(channels)};
  std::vector<int64_t> ones, zeros;
  for (size_t d = 2; d < rank(x); ++d) {
    w.emplace_back(1), bias.emplace_back(1);
    ones.push_back(1), zeros.push_back(0);
  }
  ValueId y = add("Conv", {x, constant(type(x).dtype, w)},
                  {{"kernel", field_text(ones)}, {"strides", field_text(ones)}, {"dilations", field_text(ones)},
                   {"begins", field_text(zeros)}, {"ends", field_text(zeros)}});
  if (chance(0.6)) y = add("Add", {y, constant(type(x).dtype, bias)});
  return y;
}

/// Squeeze-and-excite: an average over the pixels, two small products, and perhaps what they scale.
bool Generator::squeeze() {
  const ValueId x = image(chance(0.7) ? 2 : 1);
  const int64_t channels = *shape(x)[1].as_int();
  ValueId s = add(pick_name({"ReduceMean", "ReduceMean", "ReduceMax"}), {x},
                  {{"axes", field_text(axes_from(2, rank(x)))}, {"keep", "true"}});
  s = mix_channels(s, 1 + below(20));
  if (chance(0.8)) s = activation(s);
  if (chance(0.08)) keep(s);
  s = mix_channels(s, channels);
  s = chance(0.6) ? add("Sigmoid", {s}) : activation(s);
  return keep(chance(0.7) ? add("Mul", {x, s}) : s);
}

/// A product, or a convolution, some rows of which are reduced.
bool Generator::reduced_rows() {
  ValueId y;
  size_t first = 0, end = 0;
  const int64_t columns = 8 * (1 + below(4));
  if (chance(0.5)) {
    const ValueId x = value_of_rank(2, 4);
    if (!shape(x).back().as_int()) return false;
    y = add("MatMul", {x, constant(type(x).dtype, {shape(x).back(), Expr(columns)})});
    end = rank(x) - 1, first = end - (end > 1 && chance(0.3) ? 2 : 1);
  } else {
    const ValueId x = image(chance(0.5) ? 2 : 1);
    std::vector<int64_t> kernel;
    const FieldTexts attrs = window(x, kernel, false);
    Shape w{Expr(columns), shape(x)[1]};
    for (int64_t k : kernel) w.emplace_back(k);
    y = add("Conv", {x, constant(type(x).dtype, w)}, attrs);
    end = rank(x), first = chance(0.6) ? 2 : end - 1;
  }
  if (!y.valid()) return false;
  if (chance(0.5)) y = activation(y);
  if (chance(0.2)) y = add("Add", {y, partner(y)});
  y = add(pick_name({"ReduceMax", "ReduceMean", "ReduceSum", "ReduceMin", "ReduceL2"}), {y},
          {{"axes", field_text(axes_from(first, end))}, {"keep", chance(0.5) ? "true" : "false"}});
  if (chance(0.4)) y = activation(y);
  return keep(y);
}

/// Experts of one shape, weighted by the softmax of a gate, and added up.
bool Generator::experts() {
  const ValueId x = value_of_rank(2, 3);
  const DType t = type(x).dtype;
  const Expr width = shape(x).back();
  if (!width.as_int() || width.is_const(0)) return false;
  const int64_t count = 2 + below(2), axis = static_cast<int64_t>(rank(x)) - 1;
  const Expr inner(8 + below(9)), outer(1 + below(12));
  const bool active = chance(0.8), gated = chance(0.7), biased = chance(0.6);
  const ValueId gate = gated ? add("Softmax", {add("MatMul", {x, constant(t, {width, Expr(count)})})}, {{"axis", std::to_string(axis)}}) : ValueId();
  ValueId sum;
  for (int64_t e = 0; e < count; ++e) {
    ValueId h = add("MatMul", {x, constant(t, {width, inner})});
    if (active) h = add("Relu", {h});
    ValueId y = add("MatMul", {h, constant(t, {inner, outer})});
    if (biased) y = add("Add", {y, constant(t, {outer})});
    if (gated) {
      std::vector<Expr> starts(rank(x), Expr(0)), steps(rank(x), Expr(1)), sizes(shape(gate).begin(), shape(gate).end());
      starts.back() = e, sizes.back() = 1;
      const ValueId g = add("Slice", {gate}, {{"starts", field_text(starts)}, {"steps", field_text(steps)}, {"sizes", field_text(sizes)}});
      y = chance(0.5) ? add("Mul", {g, y}) : add("Mul", {y, g});
    }
    sum = sum.valid() ? add("Add", {sum, y}) : y;
  }
  return keep(sum);
}

/// Branches of 1x1 convolutions on one image, one of them behind a pool; their results side by side.
bool Generator::branches() {
  const ValueId x = image(2);
  std::vector<ValueId> parts;
  for (int64_t i = 0, count = 1 + below(3); i < count; ++i) {
    ValueId y = mix_channels(x, 1 + below(8));
    if (chance(0.8)) y = add("Relu", {y});
    parts.push_back(y);
  }
  const std::vector<int64_t> ones{1, 1}, threes{3, 3};
  ValueId pool = add("AveragePool", {x}, {{"kernel", field_text(threes)}, {"strides", field_text(ones)}, {"dilations", field_text(ones)},
                                          {"begins", field_text(ones)}, {"ends", field_text(ones)}, {"count_pads", chance(0.5) ? "true" : "false"}});
  pool = mix_channels(pool, 1 + below(6));
  if (chance(0.7)) pool = add("Relu", {pool});
  parts.push_back(pool);
  for (ValueId v : parts)
    if (!v.valid()) return false;
  return keep(add("Concat", parts, {{"axis", "1"}}));
}

}  // namespace ingot::testing
