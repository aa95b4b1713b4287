#include "compiler/ops/open_axes.h"

#include <fmt/format.h>

#include <algorithm>

#include "compiler/expr/simplify.h"

namespace ingot {
namespace {

using Types = std::vector<TensorType>;

/// Output axis k is the input axis i whose place[k*rank + i] is 1; the others of its row are 0.
struct ReorderAttrs {
  std::vector<Expr> place, shape;
  INGOT_FIELDS(place, shape)
};
Result<Types> infer_reorder(const OpView& v) { return Types{{v.inputs[0].dtype, v.attrs.as<ReorderAttrs>().shape}}; }
Expr reorder_element(const OpView& v, const Index& out) {
  const auto& place = v.attrs.as<ReorderAttrs>().place;
  Index in(out.size(), Expr(0));
  for (size_t k = 0; k < out.size(); ++k)
    for (size_t i = 0; i < out.size(); ++i) in[i] = in[i] + place[k * out.size() + i] * out[k];
  return v.read(0, in);
}
Index reorder_inverse(const OpView& v, const Index& in) {
  const auto& place = v.attrs.as<ReorderAttrs>().place;
  Index out(in.size(), Expr(0));
  for (size_t k = 0; k < in.size(); ++k)
    for (size_t i = 0; i < in.size(); ++i) out[k] = out[k] + place[k * in.size() + i] * in[i];
  return out;
}

Expr number_of(const Expr& condition) { return cast(DType::I64, condition); }
Expr is_named(const OpenAxes& axes, size_t d) { return eq(axes.flags[d], 1); }
/// How many axes before d an entry names.
Expr named_before(const OpenAxes& axes, size_t d) {
  Expr n = 0;
  for (size_t i = 0; i < d; ++i) n = n + axes.flags[i];
  return n;
}
/// place[k*rank + i]: input axis i becomes axis k when the named ones go to the end.
std::vector<Expr> places_at_end(GraphBuilder& b, const OpenAxes& axes, size_t rank) {
  std::vector<Expr> place(rank * rank, Expr(0));
  for (size_t i = 0; i < rank; ++i) {
    if (i >= axes.rank()) {
      place[i * rank + i] = 1;
      continue;
    }
    const Expr before = named_before(axes, i), first = static_cast<int64_t>(axes.rank() - axes.count());
    const Expr at = select(is_named(axes, i), first + before, Expr(static_cast<int64_t>(i)) - before);
    for (size_t k = 0; k < axes.rank(); ++k) place[k * rank + i] = b.named(number_of(eq(at, static_cast<int64_t>(k))));
  }
  return place;
}
/// Dim k of the output: the sum over i of place[k*rank + i] * dims[i].
Shape placed(GraphBuilder& b, const std::vector<Expr>& place, const Shape& dims) {
  Shape out;
  for (size_t k = 0; k < dims.size(); ++k) {
    Expr d = 0;
    for (size_t i = 0; i < dims.size(); ++i) d = d + place[k * dims.size() + i] * dims[i];
    out.push_back(b.named(d));
  }
  return out;
}

}  // namespace

Result<std::optional<OpenAxes>> open_axes(ImportContext& c, size_t i, size_t rank) {
  if (!c.has(i)) return std::optional<OpenAxes>();
  const auto entries = INGOT_TRY(c.content(i));
  if (std::all_of(entries.begin(), entries.end(), [](const Expr& e) { return e.as_int().has_value(); }))
    return std::optional<OpenAxes>();
  if (entries.size() > rank) return invalid(fmt::format("{} axes of a tensor of rank {}", entries.size(), rank));
  OpenAxes axes;
  for (const Expr& e : entries) {
    const Expr axis = cast(DType::I64, e);
    axes.named.push_back(c.builder.named(select(lt(axis, 0), axis + static_cast<int64_t>(rank), axis)));
  }
  Expr hits = 0;
  for (size_t d = 0; d < rank; ++d) {
    Expr hit = Expr::boolean(false);
    for (const Expr& axis : axes.named) hit = logical_or(hit, eq(axis, static_cast<int64_t>(d)));
    axes.flags.push_back(c.builder.named(number_of(hit)));
    hits = hits + axes.flags.back();
  }
  c.builder.require(eq(hits, static_cast<int64_t>(axes.count())),
                    fmt::format("{} \"{}\": its {} axes must differ and be within [-{}, {})", c.node.op, c.node.name,
                                axes.count(), rank, rank));
  return std::optional(std::move(axes));
}

Expr entry_of(const OpenAxes& axes, const std::vector<Expr>& list, size_t d, const Expr& otherwise) {
  Expr result = otherwise;
  for (size_t j = axes.count(); j-- > 0;)
    result = select(eq(axes.named[j], static_cast<int64_t>(d)), cast(DType::I64, list[j]), result);
  return result;
}

Shape kept_dims(GraphBuilder& b, const OpenAxes& axes, const Shape& dims) {
  Shape all = placed(b, places_at_end(b, axes, dims.size()), dims);
  all.erase(all.begin() + static_cast<std::ptrdiff_t>(axes.rank() - axes.count()), all.begin() + static_cast<std::ptrdiff_t>(axes.rank()));
  return all;
}
Shape spread_dims(GraphBuilder& b, const OpenAxes& axes, const Shape& dims) {
  Shape out;
  for (size_t d = 0; d < axes.rank(); ++d) {
    const Expr from = Expr(static_cast<int64_t>(d)) - named_before(axes, d);
    Expr size = 1;
    for (size_t i = 0; i < dims.size(); ++i)
      size = select(logical_and(eq(axes.flags[d], 0), eq(from, static_cast<int64_t>(i))), dims[i], size);
    out.push_back(b.named(size));
  }
  return out;
}
Shape reduced_dims(const OpenAxes& axes, const Shape& dims) {
  Shape out;
  for (size_t d = 0; d < dims.size(); ++d) out.push_back(simplify(dims[d] - axes.flags[d] * (dims[d] - 1)));
  return out;
}

Result<ValueId> axes_to_end(GraphBuilder& b, ValueId x, const OpenAxes& axes) {
  ReorderAttrs a;
  a.place = places_at_end(b, axes, b.shape(x).size());
  a.shape = placed(b, a.place, b.shape(x));
  return b.add(op("Reorder"), std::move(a), {x});
}
Result<ValueId> axes_from_end(GraphBuilder& b, ValueId x, const OpenAxes& axes, Shape shape) {
  const size_t rank = shape.size();
  const std::vector<Expr> there = places_at_end(b, axes, rank);
  ReorderAttrs a{there, std::move(shape)};
  for (size_t k = 0; k < rank; ++k)
    for (size_t i = 0; i < rank; ++i) a.place[k * rank + i] = there[i * rank + k];
  return b.add(op("Reorder"), std::move(a), {x});
}

namespace {
const OpDef kOpenAxes[] = {
    lowered_row<ReorderAttrs>("Reorder", "Transpose in an order that only a call knows; internal", {}, infer_reorder,
                              Movement{reorder_element, reorder_inverse}, 1, 1),
};
}  // namespace

std::span<const OpDef> open_axes_ops() { return kOpenAxes; }

}  // namespace ingot
