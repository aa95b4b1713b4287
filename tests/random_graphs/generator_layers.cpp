// Steps that combine elements: reductions, norms, products, convolutions, attention.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "compiler/expr/simplify.h"
#include "tests/random_graphs/generator.h"

namespace ingot::testing {

bool Generator::reduce() {
  const ValueId x = value_of_rank(1, 5, chance(0.85));
  if (type(x).dtype == DType::Bool) return false;
  std::vector<int64_t> axes;
  for (size_t i = 0; i < rank(x); ++i)
    if (chance(0.45)) axes.push_back(static_cast<int64_t>(i));
  if (axes.empty()) axes.push_back(static_cast<int64_t>(rank(x)) - 1);
  const bool keep_dims = chance(0.6);
  FieldTexts attrs{{"axes", field_text(axes)}, {"keep", keep_dims ? "true" : "false"}};
  std::string name = is_float(type(x).dtype)
                         ? pick_name({"ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2",
                                      "ReduceSumSquare", "ReduceMean", "ReduceProd"})
                         : pick_name({"ReduceSum", "ReduceMax", "ReduceMin", "ReduceL1"});
  if (axes.size() == 1 && chance(0.12)) {
    name = pick_name({"ArgMax", "ArgMin"});
    if (chance(0.3)) attrs["last"] = "true";
    for (int64_t a : axes)
      if (!shape(x)[static_cast<size_t>(a)].as_int() || shape(x)[static_cast<size_t>(a)].is_const(0)) return false;
  }
  const ValueId y = add(name, {x}, attrs);
  if (!keep(y) || !keep_dims || type(y).dtype != type(x).dtype || chance(0.4)) return y.valid();
  return keep(add(pick_name({"Sub", "Mul", "Add", "Max"}), {x, y}));
}

bool Generator::softmax() {
  ValueId x = value_of_rank(1, 4);
  const int64_t axis = chance(0.6) ? static_cast<int64_t>(rank(x)) - 1 : below(static_cast<int64_t>(rank(x)));
  if (chance(0.3)) x = scalar_op("Mul", x, 0.5);
  if (chance(0.5))
    return keep(add(pick_name({"Softmax", "Softmax", "LogSoftmax"}), {x}, {{"axis", std::to_string(axis)}}));
  const FieldTexts attrs{{"axes", field_text(std::vector<int64_t>{axis})}};  // as exporters write it
  const ValueId e = add("Exp", {add("Sub", {x, add("ReduceMax", {x}, attrs)})});
  return keep(add("Div", {e, add("ReduceSum", {e}, attrs)}));
}

ValueId Generator::batch_norm(ValueId x) {
  const auto channels = shape(x)[1].as_int();
  if (!channels || *channels < 1 || *channels > 16) return x;
  const DType t = type(x).dtype;
  const Shape s{shape(x)[1]};
  return add("BatchNormalization", {x, numbers(t, s, {1, 0.5, -0.75, 2}), numbers(t, s, {0.25, -1, 0}),
                                    numbers(t, s, {0.5, -0.25}), numbers(t, s, {1, 0.25, 4})});
}

/// From the axis on; some of those of the last dimension as exporters write it.
ValueId Generator::row_norm(ValueId x, int64_t axis) {
  const DType t = type(x).dtype;
  if (axis == static_cast<int64_t>(rank(x)) - 1 && chance(0.3)) {
    const FieldTexts last{{"axes", field_text(std::vector<int64_t>{axis})}};
    const ValueId d = add("Sub", {x, add("ReduceMean", {x}, last)});
    const ValueId var = add("ReduceMean", {scalar_op("Pow", d, 2)}, last);
    return add("Div", {d, add("Sqrt", {scalar_op("Add", var, 1e-3)})});
  }
  std::vector<ValueId> in{x};
  const Shape tail(shape(x).begin() + axis, shape(x).end());
  const bool rms = chance(0.3);
  if (chance(0.8)) in.push_back(fresh(t, tail, 0.8));
  if (in.size() == 2 && !rms && chance(0.8)) in.push_back(fresh(t, tail, 0.8));
  FieldTexts attrs{{"axis", std::to_string(axis)}};
  if (rms) attrs["centred"] = "false";
  return add(rms ? "RMSNormalization" : "LayerNormalization", in, attrs);
}

bool Generator::norm() {
  const ValueId x = value_of_rank(2, 4);
  const DType t = type(x).dtype;
  const int64_t kind = below(6);
  if (kind == 0) return keep(activation(batch_norm(x)));
  if (kind == 1 && rank(x) >= 3) {
    const auto channels = shape(x)[1].as_int();
    if (!channels || *channels == 0) return false;
    const bool groups = *channels % 2 == 0 && chance(0.5);
    const Shape s{shape(x)[1]};
    return keep(add(groups ? "GroupNormalization" : "InstanceNormalization", {x, fresh(t, s, 0.8), fresh(t, s, 0.8)},
                    {{"groups", groups ? "2" : "0"}}));
  }
  const auto axis = static_cast<int64_t>(rank(x)) - (chance(0.8) ? 1 : 2);
  const ValueId y = row_norm(x, axis);
  return keep(chance(0.3) ? add("Add", {y, x}) : y);
}

bool Generator::matmul() {
  ValueId x = value_of_rank(2, 4);
  if (chance(0.15)) {
    std::vector<int64_t> perm(rank(x));
    std::iota(perm.begin(), perm.end(), 0);
    std::swap(perm[rank(x) - 1], perm[rank(x) - 2]);
    x = transpose(x, perm);
  }
  const Expr k = shape(x).back(), n = chance(0.5) ? Expr(1 + below(40)) : pick_dim();
  Shape s{k, n};
  if (rank(x) > 2 && chance(0.35)) {
    s = shape(x);
    s[rank(x) - 2] = k, s[rank(x) - 1] = n;
    for (size_t i = 0; i + 2 < s.size(); ++i)
      if (chance(0.2)) s[i] = 1;
  }
  const ValueId y = add("MatMul", {x, fresh(type(x).dtype, s, 0.7)});
  if (!y.valid()) return false;
  if (chance(0.1)) keep(y);
  ValueId z = y;
  if (chance(0.25)) z = scalar_op("Mul", z, 0.5);
  if (chance(0.5)) z = add("Add", {z, fresh(type(z).dtype, {n}, 0.8)});
  if (chance(0.5)) z = activation(z);
  if (chance(0.25)) z = add(pick_name({"Add", "Mul"}), {z, partner(z)});
  return keep(z);
}

/// Products of one value by several weights, alone or each with bias and activation.
bool Generator::parallel_products() {
  const ValueId x = value_of_rank(2, 3);
  if (!shape(x).back().as_int()) return false;
  const bool bias = chance(0.5), active = chance(0.4);
  const int64_t count = 2 + below(2);
  bool any = false;
  for (int64_t i = 0; i < count; ++i) {
    const Expr n = chance(0.5) ? Expr(8) : Expr(1 + below(12));
    ValueId y = add("MatMul", {x, constant(type(x).dtype, {shape(x).back(), n})});
    if (bias) y = add("Add", {y, constant(type(x).dtype, {n})});
    if (active) y = add("Relu", {y});
    any |= keep(y);
  }
  return any;
}

bool Generator::perceptron() {
  const ValueId x = value_of_rank(2, 3);
  const DType t = type(x).dtype;
  const Expr width = shape(x).back(), inner(8 + below(17));
  if (!width.as_int()) return false;
  ValueId h = activation(add("Add", {add("MatMul", {x, constant(t, {width, inner})}), constant(t, {inner})}));
  h = add("Add", {add("MatMul", {h, constant(t, {inner, width})}), constant(t, {width})});
  h = add("Add", {h, x});
  return keep(add("LayerNormalization", {h, constant(t, {width}), constant(t, {width})},
                  {{"axis", std::to_string(rank(x) - 1)}}));
}

/// Rows of pixels that a depthwise convolution computes from an image with channels last.
ValueId Generator::window_rows() {
  const Expr channels(32 * (1 + below(3)));
  const ValueId x =
      input(main_, {chance(0.5) ? pick_dim() : Expr(1 + below(2)), Expr(2 + below(3)), Expr(2 + below(4)), channels});
  std::vector<int64_t> kernel;
  FieldTexts attrs = window(transpose(x, {0, 3, 1, 2}), kernel, false);
  attrs["groups"] = std::to_string(*channels.as_int());
  ValueId y =
      add("DepthwiseConv",
          {transpose(x, {0, 3, 1, 2}), constant(main_, {channels, 1, Expr(kernel[0]), Expr(kernel[1])})}, attrs);
  if (chance(0.6)) y = add("Add", {y, constant(main_, {channels, 1, 1})});
  if (chance(0.4)) y = activation(y);
  return y.valid() ? transpose(y, {0, 2, 3, 1}) : y;
}

/// A norm of rows between products whose k is whole steps: what passes/fold_norms.cpp makes no kernel of.
bool Generator::normed_products() {
  const bool of_window = chance(0.3);
  const ValueId start = of_window ? window_rows() : value_of_rank(2, 3);
  if (!start.valid() || !shape(start).back().as_int()) return false;
  const DType t = type(start).dtype;
  const Expr inner(64 * (1 + below(2))), width = of_window ? shape(start).back() : Expr(64 * (1 + below(3)));
  const auto product = [&](ValueId v, const Expr& n) {
    ValueId y = add("MatMul", {v, constant(t, {shape(v).back(), n})});
    return chance(0.6) ? add("Add", {y, constant(t, {n})}) : y;
  };
  const ValueId before = of_window ? start : activation(product(start, inner));
  if (!before.valid()) return false;
  ValueId x = of_window ? start : product(before, width);
  if (!of_window && inner.same(width) && chance(0.6)) x = add("Add", {x, before});
  if (chance(0.3)) x = activation(x);
  if (chance(0.1)) keep(x);
  if (!x.valid()) return false;
  ValueId y = row_norm(x, static_cast<int64_t>(rank(x)) - 1);
  if (rank(x) == 3 && chance(0.25)) y = transpose(y, {1, 0, 2});
  if (chance(0.05)) keep(y);
  bool any = false;
  for (int64_t i = 0, readers = 1 + below(2); i < readers; ++i) {
    const bool residual = chance(0.4);
    ValueId z = product(y, residual ? width : Expr(pick(std::vector<int64_t>{8, 10, 64, 72, 264})));
    if (chance(0.4)) z = activation(z);
    if (residual) z = add("Add", {z, y});
    any |= keep(z);
  }
  return any;
}

/// A value of rank spatial + 2 whose channels and most dims are numbers.
ValueId Generator::image(size_t spatial) {
  const ValueId v = chance(0.7) ? find([&](const TensorType& t) {
    return t.rank() == spatial + 2 && is_float(t.dtype) && t.shape[1].as_int() && *t.shape[1].as_int() > 0;
  })
                                : ValueId();
  if (v.valid()) return v;
  Shape s{chance(0.5) ? pick_dim() : Expr(1 + below(3)), Expr(1 + below(9))};
  for (size_t i = 0; i < spatial; ++i)
    s.push_back(chance(0.25) && !symbols_.empty() ? pick(symbols_) : Expr(3 + below(9)));
  const ValueId made = input(main_, s);
  keep(made);
  return made;
}

/// Attributes of a window that fits: a dynamic dimension gets an odd kernel and padding that keeps windows inside.
FieldTexts Generator::window(ValueId x, std::vector<int64_t>& kernel, bool pools) {
  std::vector<int64_t> strides, dilations;
  std::vector<Expr> begins, ends;
  for (size_t d = 2; d < rank(x); ++d) {
    const auto n = shape(x)[d].as_int();
    int64_t k = 1 + below(4), dilation = chance(0.2) ? 2 : 1;
    if (!n && k % 2 == 0) ++k;
    const int64_t reach = (k - 1) * dilation;
    int64_t begin = n ? below(reach / 2 + 1) : reach / 2, end = n ? below(reach / 2 + 1) : reach / 2;
    if (n && *n + begin + end < reach + 1) k = 1, dilation = 1, begin = end = 0;
    if (pools) begin = std::min(begin, k - 1), end = std::min(end, k - 1);
    kernel.push_back(k), dilations.push_back(dilation), strides.push_back(1 + (chance(0.35) ? below(3) : 0));
    begins.emplace_back(begin), ends.emplace_back(end);
  }
  return {{"kernel", field_text(kernel)},
          {"strides", field_text(strides)},
          {"dilations", field_text(dilations)},
          {"begins", field_text(begins)},
          {"ends", field_text(ends)}};
}

bool Generator::convolution() {
  const ValueId x = image(chance(0.7) ? 2 : 1);
  std::vector<int64_t> kernel;
  FieldTexts attrs = window(x, kernel, false);
  const int64_t channels = *shape(x)[1].as_int(), kind = below(4);
  int64_t groups = 1, out = 1 + below(12);
  if (kind == 0) groups = channels, out = channels * (1 + below(2));
  if (kind == 1 && channels % 2 == 0) groups = 2, out = 2 * (1 + below(5));
  attrs["groups"] = std::to_string(groups);
  Shape w{Expr(out), Expr(channels / groups)};
  for (int64_t k : kernel) w.emplace_back(k);
  const bool depthwise = groups > 1 && channels == groups;
  ValueId y = add(depthwise ? "DepthwiseConv" : "Conv", {x, fresh(type(x).dtype, w, 0.85)}, attrs);
  if (!y.valid()) return false;
  if (chance(0.1)) keep(y);
  Shape bias{Expr(out)};
  bias.resize(rank(x) - 1, Expr(1));
  if (chance(0.5)) y = add("Add", {y, fresh(type(x).dtype, bias, 0.8)});
  if (chance(0.35)) y = batch_norm(y);
  if (chance(0.6)) y = activation(y);
  if (chance(0.2)) y = add("Add", {y, partner(y)});
  return keep(y);
}

bool Generator::pool() {
  const ValueId x = image(chance(0.8) ? 2 : 1);
  std::vector<int64_t> kernel;
  FieldTexts attrs = window(x, kernel, true);
  const std::string name = pick_name({"MaxPool", "AveragePool", "AveragePool", "LpPool"});
  if (chance(0.25) && name != "LpPool") attrs["ceil"] = "true";
  if (chance(0.4) && name == "AveragePool") attrs["count_pads"] = "true";
  return keep(add(name, {x}, attrs));
}

/// [B, S, heads*width] -> [B, heads, S, width]
ValueId Generator::heads(ValueId x, const Expr& heads, const Expr& width) {
  return transpose(reshape(x, {shape(x)[0], shape(x)[1], heads, width}), {0, 2, 1, 3});
}

/// Scaled and masked scores, softmax included.
ValueId Generator::scores(ValueId q, ValueId k, double width) {
  const DType t = type(q).dtype;
  ValueId s = add("MatMul", {q, transpose(k, {0, 1, 3, 2})});
  if (!s.valid()) return s;
  if (chance(0.7)) s = chance(0.5) ? scalar_op("Mul", s, 1 / std::sqrt(width)) : scalar_op("Div", s, std::sqrt(width));
  const Shape full = shape(s);
  const Shape mask = chance(0.5) ? Shape{full[2], full[3]} : Shape{full[0], 1, 1, full[3]};
  const int64_t kind = below(5);
  if (kind == 0) s = add("Add", {s, fresh(t, mask, 0.2)});
  if (kind == 1)
    s = add("Where", {fresh(DType::Bool, mask, 0.2), s, numbers(t, {}, {chance(0.5) ? -INFINITY : -10000.0})});
  if (kind == 2)
    s = add("Add", {s, add("Where", {fresh(DType::Bool, mask, 0.2), numbers(t, {}, {0}), numbers(t, {}, {-1e4})})});
  if (chance(0.1)) keep(s);
  return add("Softmax", {s}, {{"axis", "3"}});
}

bool Generator::attention() {
  const Expr batch = chance(0.5) ? pick_dim() : Expr(1 + below(2)),
             length = chance(0.6) ? pick_dim() : Expr(1 + below(20));
  const Expr keys = chance(0.6) ? length : Expr(1 + below(20)), count(1 + below(3)),
             width(chance(0.5) ? 8 : 1 + below(16));
  const Expr all = simplify(count * width);
  ValueId q, k, v;
  if (chance(0.5)) {  // from one sequence
    const ValueId x = input(main_, {batch, length, all});
    if (!keep(x)) return false;
    const auto project = [&] { return heads(add("MatMul", {x, constant(main_, {all, all})}), count, width); };
    q = project(), k = project(), v = project();
  } else {
    q = input(main_, {batch, count, length, width});
    k = input(main_, {batch, chance(0.15) ? Expr(1) : count, keys, width}),
    v = input(main_, {batch, count, keys, width});
  }
  const ValueId p = scores(q, k, static_cast<double>(*width.as_int()));
  if (chance(0.08)) keep(p);
  ValueId y = add("MatMul", {p, v});
  if (chance(0.7)) y = transpose(y, {0, 2, 1, 3});
  if (y.valid() && shape(y)[2].same(count)) y = reshape(y, {shape(y)[0], shape(y)[1], all});
  return keep(y);
}

bool Generator::running_sum() {
  const ValueId x = value_of_rank(1, 3);
  FieldTexts attrs{{"axis", std::to_string(below(static_cast<int64_t>(rank(x))))}};
  if (chance(0.3)) attrs["exclusive"] = "true";
  if (chance(0.3)) attrs["reverse"] = "true";
  return keep(add("CumSum", {x}, attrs));
}

}  // namespace ingot::testing
