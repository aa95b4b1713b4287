// Scatters in gather form: each output element looks for the updates that hit it, so no two threads write one place and the
// result never depends on their order. Without a reduction the last update in row-major order wins.
#include <fmt/format.h>

#include "compiler/expr/simplify.h"
#include "compiler/ops/compose.h"

namespace ingot {
namespace {

using Types = std::vector<TensorType>;

struct ScatterAttrs {
  int64_t axis = 0;   // of ScatterElements; -1: ScatterND
  INGOT_FIELDS(axis)
};
// Inputs of every scatter row: data, indices, updates.
bool is_nd(const OpView& v) { return v.attrs.as<ScatterAttrs>().axis < 0; }

/// What is searched: the indices along the axis, or every index tuple.
Shape searched(const OpView& v) {
  const Shape& s = v.inputs[1].shape;
  if (!is_nd(v)) return {s[static_cast<size_t>(v.attrs.as<ScatterAttrs>().axis)]};
  return Shape(s.begin(), s.end() - 1);
}
/// True when update `at` goes to output element `out`.
Expr hits(const OpView& v, const Index& out, const Index& at) {
  const Shape &data = v.inputs[0].shape, &indices = v.inputs[1].shape;
  Expr hit = Expr::boolean(true);
  if (!is_nd(v)) {
    const auto axis = static_cast<size_t>(v.attrs.as<ScatterAttrs>().axis);
    Index in = out;
    in[axis] = at[0];
    Expr inside = Expr::boolean(true);
    for (size_t d = 0; d < out.size(); ++d)
      if (d != axis && !proves_equal(indices[d], data[d])) inside = logical_and(inside, lt(out[d], indices[d]));
    const Expr found = select(inside, cast(DType::I64, v.read(1, in)), Expr::integer(DType::I64, INT64_MIN / 2));
    return eq(wrapped_index(found, data[axis]), out[axis]);
  }
  const int64_t depth = *indices.back().as_int();
  for (int64_t d = 0; d < depth; ++d) {
    Index in = at;
    in.push_back(d);
    const auto dim = static_cast<size_t>(d);
    hit = logical_and(hit, eq(wrapped_index(v.read(1, in), data[dim]), out[dim]));
  }
  return hit;
}
/// The element of `updates` that update `at` puts at `out`.
Expr update_at(const OpView& v, size_t input, const Index& out, const Index& at) {
  if (!is_nd(v)) {
    Index in = out;
    in[static_cast<size_t>(v.attrs.as<ScatterAttrs>().axis)] = at[0];
    return v.read(input, in);
  }
  Index in = at;
  in.insert(in.end(), out.begin() + *v.inputs[1].shape.back().as_int(), out.end());
  return v.read(input, in);
}
Result<Types> infer_scatter(const OpView& v) {
  if (v.inputs[2].dtype != v.inputs[0].dtype) return invalid("data and updates of different types");
  return Types{v.inputs[0]};
}

// ---- the last update -----------------------------------------------------------------------------------------------------
/// The axes of the data that an update is looked for along: ScatterND's updates are slices, which have one source.
size_t source_rank(const OpView& v) { return is_nd(v) ? static_cast<size_t>(*v.inputs[1].shape.back().as_int()) : v.inputs[0].rank(); }
// Inputs: data (only its shape), indices. 1 + the row-major position of the last update, 0 for none.
Result<Types> infer_source(const OpView& v) {
  const Shape& data = v.inputs[0].shape;
  return Types{{DType::I64, Shape(data.begin(), data.begin() + static_cast<std::ptrdiff_t>(source_rank(v)))}};
}
template <Combine combine>
ReductionForm search_form(const OpView& v) {
  ReductionForm f;
  f.combine = combine;
  f.extents = searched(v);
  return f;
}
Expr source_value(const OpView& v, const Index& out, const Index& at) {
  return select(hits(v, out, at), linear_index(searched(v), at) + 1, Expr(0));
}
// Inputs: data, indices (only their shape), updates, source.
Expr take_element(const OpView& v, const Index& out) {
  const Expr source = v.read(3, Index(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(source_rank(v))));
  const Index at = delinearize(searched(v), max(source - 1, 0));
  Index safe = out;
  if (!is_nd(v))  // updates may be smaller than the data where nothing hits
    for (size_t d = 0; d < out.size(); ++d)
      if (!proves_equal(v.inputs[2].shape[d], v.inputs[0].shape[d])) safe[d] = min(out[d], v.inputs[2].shape[d] - 1);
  return select(lt(0, source), update_at(v, 2, safe, at), v.read(0, out));
}

// ---- reductions ----------------------------------------------------------------------------------------------------------
template <Combine combine>
Expr reduced_value(const OpView& v, const Index& out, const Index& at) {
  const Expr x = update_at(v, 2, out, at);
  return select(hits(v, out, at), x, identity_of(combine, x.type()));
}
template <Combine combine>
Expr reduced_finish(const OpView& v, const Index& out, const Expr& acc) {
  return combine_pair(combine, v.read(0, out), acc);
}

Result<Values> scatter(ImportContext& c, const ScatterAttrs& a) {
  const std::string reduction = INGOT_TRY(c.node.string_or("reduction", "none"));
  Compose g(c.builder);
  if (reduction != "none") {
    const char* name = reduction == "add" ? "ScatterAdd" : reduction == "mul" ? "ScatterMul" : reduction == "max" ? "ScatterMax"
                       : reduction == "min" ? "ScatterMin" : nullptr;
    if (!name) return invalid(fmt::format("reduction {}", reduction));
    return g.result({g.node(name, a, {c.in(0), c.in(1), c.in(2)})});
  }
  const ValueId source = g.node("ScatterSource", a, {c.in(0), c.in(1)});
  return g.result({g.node("ScatterTake", a, {c.in(0), c.in(1), c.in(2), source})});
}
Result<Values> import_elements(ImportContext& c) {
  if (c.rank(0) == 0 || c.rank(1) != c.rank(0) || c.rank(2) != c.rank(0)) return invalid("data, indices and updates differ in rank");
  if (element_count(c.type(1).shape).is_const(0)) return Values{c.in(0)};
  return scatter(c, {INGOT_TRY(wrap_axis(INGOT_TRY(c.node.int_or("axis", 0)), c.rank(0)))});
}
Result<Values> import_nd(ImportContext& c) {
  if (c.rank(1) == 0 || c.rank(0) == 0) return invalid("data and indices need rank 1 or more");
  const auto depth = c.type(1).shape.back().as_int();
  if (!depth || *depth < 1 || *depth > static_cast<int64_t>(c.rank(0))) return invalid("index depth exceeds the rank");
  if (element_count(c.type(1).shape).is_const(0)) return Values{c.in(0)};
  return scatter(c, {-1});
}

// ---- TensorScatter -------------------------------------------------------------------------------------------------------
struct CacheAttrs {
  int64_t axis = 0;
  bool circular = false, indexed = false;
  INGOT_FIELDS(axis, circular, indexed)
};
Expr cache_element(const OpView& v, const Index& out) {
  const auto& a = v.attrs.as<CacheAttrs>();
  const auto axis = static_cast<size_t>(a.axis);
  const Expr dim = v.inputs[0].shape[axis], length = v.inputs[1].shape[axis];
  Expr at = out[axis];
  if (a.indexed) at = at - cast(DType::I64, v.read(2, {out[0]}));
  if (a.circular) at = floor_mod(at, dim);
  Index in = out;
  in[axis] = max(0, min(at, length - 1));
  return select(logical_and(le(0, at), lt(at, length)), v.read(1, in), v.read(0, out));
}
Result<Types> infer_cache(const OpView& v) { return Types{v.inputs[0]}; }
Result<Values> import_cache(ImportContext& c) {
  CacheAttrs a;
  a.axis = INGOT_TRY(wrap_axis(INGOT_TRY(c.node.int_or("axis", -2)), c.rank(0)));
  a.circular = INGOT_TRY(c.node.string_or("mode", "linear")) == "circular";
  a.indexed = c.has(2);
  return one(c.builder.add(op("TensorScatter"), a, c.inputs));
}

template <Combine combine>
constexpr OpDef reduced_row(std::string_view name) {
  return lowered_row<ScatterAttrs>(name, "internal", {}, infer_scatter,
                                   Reduction{search_form<combine>, reduced_value<combine>, reduced_finish<combine>}, 3, 3);
}
const OpDef kScatter[] = {
    lowered_row<ScatterAttrs>("ScatterSource", "the last update of each element; internal", {}, infer_source,
                              Reduction{search_form<Combine::Max>, source_value}, 2, 2),
    lowered_row<ScatterAttrs>("ScatterTake", "internal", {}, infer_scatter, Element{take_element}, 4, 4),
    reduced_row<Combine::Sum>("ScatterAdd"),
    reduced_row<Combine::Product>("ScatterMul"),
    reduced_row<Combine::Max>("ScatterMax"),
    reduced_row<Combine::Min>("ScatterMin"),
    import_row("ScatterElements", "gather form; every reduction", kRules<import_elements, 11, 13, 16, 18>, 3, 3),
    import_row("Scatter", "ScatterElements", kRules<import_elements, 9, 11>, 3, 3),
    import_row("ScatterND", "gather form; every reduction", kRules<import_nd, 11, 13, 16, 18>, 3, 3),
    lowered_row<CacheAttrs>("TensorScatter", "", kRules<import_cache, 24>, infer_cache, Element{cache_element}, 2, 3),
};

}  // namespace

std::span<const OpDef> scatter_ops() { return kScatter; }

}  // namespace ingot
