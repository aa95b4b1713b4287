// Pools: reductions over a window.
#include <algorithm>
#include <cmath>

#include "compiler/expr/simplify.h"
#include "compiler/ops/spatial.h"

namespace ingot {
namespace {

using Types = std::vector<TensorType>;

struct PoolAttrs {
  std::vector<int64_t> kernel, strides, dilations;
  std::vector<Expr> begins, ends;
  bool ceil = false, count_pads = false;
  int64_t p = 2;
  bool same = false;
  bool column_major = false;  // of the indices
  INGOT_FIELDS(kernel, strides, dilations, begins, ends, ceil, count_pads, p, same, column_major)
  SpatialAttrs spatial() const { return {kernel, strides, dilations, begins, ends, same}; }
};

Result<Types> infer_pool(const OpView& v) {
  const auto& a = v.attrs.as<PoolAttrs>();
  const Shape& x = v.inputs[0].shape;
  Shape out{x[0], x[1]};
  for (size_t d = 0; d + 2 < x.size(); ++d) out.push_back(pooled_extent(a.spatial(), d, x[d + 2], a.ceil));
  return Types{{v.inputs[0].dtype, out}};
}
template <Combine combine>
ReductionForm pool_form(const OpView& v) {
  ReductionForm f;
  f.combine = combine;
  for (int64_t k : v.attrs.as<PoolAttrs>().kernel) f.extents.emplace_back(k);
  return f;
}
Expr pool_element(const OpView& v, const Index& out, const Index& taps, const Expr& outside) {
  const auto& a = v.attrs.as<PoolAttrs>();
  Index read{out[0], out[1]};
  Expr inside = Expr::boolean(true);
  for (size_t d = 0; d < taps.size(); ++d) {
    const Expr x = simplify(out[d + 2] * a.strides[d] + taps[d] * a.dilations[d] - a.begins[d]);
    if (a.ceil || !stays_inside(a.spatial(), d))
      inside = logical_and(inside, simplify(logical_and(le(0, x), lt(x, v.inputs[0].shape[d + 2]))));
    read.push_back(x);
  }
  return select(inside, v.read(0, read), outside);
}
Expr max_value(const OpView& v, const Index& out, const Index& taps) {
  return pool_element(v, out, taps, identity_of(Combine::Max, compute_type(v.inputs[0].dtype)));
}
Expr sum_value(const OpView& v, const Index& out, const Index& taps) {
  return pool_element(v, out, taps, Expr::number(v.inputs[0].dtype, 0));
}
Expr power_value(const OpView& v, const Index& out, const Index& taps) {
  const Expr x = call(Fn::Abs, sum_value(v, out, taps));
  const int64_t p = v.attrs.as<PoolAttrs>().p;
  return p == 1 ? x : p == 2 ? x * x : call(Fn::Pow, x, number_like(x, static_cast<double>(p)));
}
Expr power_finish(const OpView& v, const Index&, const Expr& acc) {
  const int64_t p = v.attrs.as<PoolAttrs>().p;
  return p == 1 ? acc : p == 2 ? call(Fn::Sqrt, acc) : call(Fn::Pow, acc, number_like(acc, 1.0 / static_cast<double>(p)));
}
/// How many taps of the window count: those inside the input, or inside input and explicit padding.
Expr average_finish(const OpView& v, const Index& out, const Expr& acc) {
  const auto& a = v.attrs.as<PoolAttrs>();
  Expr count = 1;
  for (size_t d = 0; d < a.kernel.size(); ++d) {
    const Expr dim = v.inputs[0].shape[d + 2], k = a.kernel[d], step = a.dilations[d];
    const Expr start = out[d + 2] * a.strides[d] - a.begins[d];
    const Expr low = a.count_pads ? Expr(0) - a.begins[d] : Expr(0), high = a.count_pads ? dim + a.ends[d] : dim;
    if (!a.ceil && (a.count_pads || stays_inside(a.spatial(), d))) {
      count = count * k;
      continue;
    }
    const Expr below = max(0, min(k, ceil_div(low - start, step)));
    count = count * (max(0, min(k, ceil_div(high - start, step))) - below);
  }
  return acc / cast(acc.type(), simplify(count));
}

Result<PoolAttrs> read_pool(ImportContext& c) {
  const Shape& x = c.type(0).shape;
  if (x.size() < 3) return invalid("pools need rank 3 or more");
  const Shape spatial(x.begin() + 2, x.end());
  const auto kernel = INGOT_TRY(c.node.ints_or("kernel_shape", {}));
  const SpatialAttrs s = INGOT_TRY(read_spatial(c, spatial, kernel));
  PoolAttrs a{s.kernel, s.strides, s.dilations, s.begins, s.ends};
  a.same = s.same;
  a.ceil = INGOT_TRY(c.node.int_or("ceil_mode", 0)) != 0;
  a.count_pads = INGOT_TRY(c.node.int_or("count_include_pad", 0)) != 0;
  a.p = INGOT_TRY(c.node.int_or("p", 2));
  return a;
}
Result<Values> import_pool(ImportContext& c) {
  PoolAttrs a = INGOT_TRY(read_pool(c));
  Values out{INGOT_TRY(c.builder.add(op(c.node.op), a, {c.in(0)}))};
  if (!wants_output(c, 1)) return out;
  a.column_major = INGOT_TRY(c.node.int_or("storage_order", 0)) != 0;
  out.push_back(INGOT_TRY(c.builder.add(op("MaxPoolIndex"), a, {c.in(0)})));
  return out;
}

// ---- where the maximum was -----------------------------------------------------------------------------------------------
Result<Types> infer_pool_index(const OpView& v) {
  Types t = INGOT_TRY(infer_pool(v));
  t[0].dtype = DType::I64;
  return t;
}
/// Taps outside repeat the edge, which keeps the first maximum first. With gaps between taps the edge may be no tap of the
/// window: those count as the lowest value.
Expr index_value(const OpView& v, const Index& out, const Index& taps) {
  const auto& a = v.attrs.as<PoolAttrs>();
  Index read{out[0], out[1]};
  Expr inside = Expr::boolean(true);
  for (size_t d = 0; d < taps.size(); ++d) {
    const Expr x = simplify(out[d + 2] * a.strides[d] + taps[d] * a.dilations[d] - a.begins[d]), dim = v.inputs[0].shape[d + 2];
    if (a.dilations[d] != 1) inside = logical_and(inside, logical_and(le(0, x), lt(x, dim)));
    read.push_back(max(0, min(x, dim - 1)));
  }
  Expr x = v.read(0, read);
  if (!is_float(x.type())) x = cast(DType::I64, x);
  return select(inside, x, identity_of(Combine::Max, x.type()));
}
Expr index_finish(const OpView& v, const Index& out, const Expr& acc) {
  const auto& a = v.attrs.as<PoolAttrs>();
  Shape window(a.kernel.begin(), a.kernel.end()), spatial(v.inputs[0].shape.begin() + 2, v.inputs[0].shape.end());
  const Index taps = delinearize(window, acc);
  Index at;
  for (size_t d = 0; d < taps.size(); ++d)
    at.push_back(max(0, min(out[d + 2] * a.strides[d] + taps[d] * a.dilations[d] - a.begins[d], spatial[d] - 1)));
  if (a.column_major) {
    std::reverse(at.begin(), at.end());
    std::reverse(spatial.begin(), spatial.end());
  }
  const Expr plane = out[0] * v.inputs[0].shape[1] + out[1];
  return simplify(plane * element_count(spatial) + linear_index(spatial, at));
}

constexpr OpDef row(std::string_view name, std::span<const ImportRule> imports, Reduction lower) {
  OpDef d;
  d.name = name, d.imports = imports, d.infer = infer_pool, d.lower = lower;
  d.parse_attrs = parse_attrs<PoolAttrs>;
  return d;
}
const OpDef kWindow[] = {
    row("MaxPool", kRules<import_pool, 1, 8, 10, 11, 12, 22>, {pool_form<Combine::Max>, max_value}),
    row("AveragePool", kRules<import_pool, 7, 10, 11, 19, 22>, {pool_form<Combine::Sum>, sum_value, average_finish}),
    [] {
      OpDef d = row("MaxPoolIndex", {}, {pool_form<Combine::ArgMax>, index_value, index_finish});
      d.infer = infer_pool_index, d.doc = "internal";
      return d;
    }(),
    row("LpPool", kRules<import_pool, 2, 11, 18, 22>, {pool_form<Combine::Sum>, power_value, power_finish}),
};

}  // namespace

std::span<const OpDef> window_ops() { return kWindow; }

}  // namespace ingot
