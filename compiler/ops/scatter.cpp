// Scatters in gather form: each output element looks for the updates that hit it, so no two threads write one place and the
// result never depends on their order. Without a reduction the last update in row-major order wins. Where that would be many
// comparisons, the updates are sorted by their place first, and each output element finds its own by two searches.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "compiler/expr/simplify.h"
#include "compiler/ops/ordered.h"

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

// ---- many updates: sorted ------------------------------------------------------------------------------------------------
constexpr int64_t kSearchedFrom = 1 << 18;  // comparisons, along one line: below it searching all of them takes less time
constexpr int64_t kShortSegment = 2 * kBlock;

/// Inputs: data (only its shape), indices. The place of each update along the line that is searched; behind its end where it
/// hits nothing.
Expr place_element(const OpView& v, const Index& out) {
  const Shape &data = v.inputs[0].shape, &indices = v.inputs[1].shape;
  const auto along = [](const Expr& index, const Expr& dim) { return wrapped_index(cast(DType::I64, index), dim); };
  if (!is_nd(v)) {
    const Expr dim = data[static_cast<size_t>(v.attrs.as<ScatterAttrs>().axis)], at = along(v.read(1, out), dim);
    return select(logical_and(le(0, at), lt(at, dim)), at, dim);
  }
  Index in = delinearize(Shape(indices.begin(), indices.end() - 1), out[0]);
  in.emplace_back(0);
  Expr place = 0, extent = 1, inside = Expr::boolean(true);
  for (size_t d = 0; d < source_rank(v); ++d) {
    in.back() = static_cast<int64_t>(d);
    const Expr at = along(v.read(1, in), data[d]);
    inside = logical_and(inside, logical_and(le(0, at), lt(at, data[d])));
    place = place * data[d] + at;
    extent = extent * data[d];
  }
  return select(inside, place, extent);
}
Result<Types> infer_place(const OpView& v) {
  return Types{{DType::I64, is_nd(v) ? Shape{product(searched(v))} : v.inputs[1].shape}};
}
/// The update before `end` among the sorted ones, plus one, where it is one of this place; else 0. Inputs: sorted, keys, end.
Expr last_element(const OpView& v, const Index& out) {
  const auto axis = static_cast<size_t>(v.attrs.as<ScatterAttrs>().axis);
  Index in = out;
  const Expr end = v.read(2, out);
  in[axis] = max(Expr(0), end - 1);
  return select(logical_and(lt(0, end), eq(v.read(1, in), out[axis])), v.read(0, in) + 1, Expr(0));
}
Result<Types> infer_last(const OpView& v) { return Types{v.inputs[2]}; }

/// A part of each segment [start, end) of an axis: elements up to the next whole block and those behind the last one, of
/// blocks of blocks likewise. Inputs: elements of this level, start, end, what it is combined with.
struct SegmentAttrs {
  int64_t axis = 0;
  int64_t unit = 1;   // elements of the segment's axis in one of this level
  bool last = false;  // there is no further level: all elements of this one
  INGOT_FIELDS(axis, unit, last)
};
template <Combine combine>
ReductionForm segment_form(const OpView& v) {
  const auto& a = v.attrs.as<SegmentAttrs>();
  ReductionForm f;
  f.combine = combine;
  f.extents = {a.last ? v.inputs[0].shape[static_cast<size_t>(a.axis)] : Expr(kShortSegment)};
  return f;
}
template <Combine combine>
Expr segment_value(const OpView& v, const Index& out, const Index& reduced) {
  const auto& a = v.attrs.as<SegmentAttrs>();
  const auto axis = static_cast<size_t>(a.axis);
  const auto bound = [&](size_t input) {
    Index in = out;
    for (size_t d = 0; d < in.size(); ++d)
      if (v.inputs[input].shape[d].is_const(1)) in[d] = Expr(0);
    return v.read(input, in);
  };
  const Expr start = ceil_div(bound(1), a.unit), end = floor_div(bound(2), a.unit), j = reduced[0];
  Expr at = j, counts = logical_and(le(start, j), lt(j, end));
  if (!a.last) {
    const Expr whole = ceil_div(start, kBlock) * kBlock, tail = floor_div(end, kBlock) * kBlock;
    const Expr head = lt(j, Expr(kBlock));
    at = select(head, start + j, tail + j - kBlock);
    counts = logical_and(lt(at, end), select(head, lt(at, whole), le(whole, at)));
  }
  Index in = out;
  in[axis] = max(Expr(0), min(at, v.inputs[0].shape[axis] - 1));
  const Expr x = v.read(0, in);
  return select(counts, x, identity_of(combine, x.type()));
}
template <Combine combine>
Expr segment_finish(const OpView& v, const Index& out, const Expr& acc) {
  return combine_pair(combine, v.read(3, out), acc);
}
Result<Types> infer_segment(const OpView& v) { return Types{v.inputs[3]}; }

struct Reducing {
  const char *attribute, *searching, *segments;
  Combine combine;
};
constexpr Reducing kReducing[] = {{"add", "ScatterAdd", "SegmentSum", Combine::Sum},
                                  {"mul", "ScatterMul", "SegmentProduct", Combine::Product},
                                  {"max", "ScatterMax", "SegmentMax", Combine::Max},
                                  {"min", "ScatterMin", "SegmentMin", Combine::Min}};

/// Data, updates and their places with one line along an axis: of ScatterND, slices in the order of their index tuples.
struct Line {
  int64_t axis = 0;
  ValueId data, updates, places;
  Expr extent;  // of the line in the data
};
/// Nothing where searching all updates is less work, or sizes are not known.
std::optional<Line> long_line(Compose& g, const ImportContext& c, const ScatterAttrs& a) {
  const Shape data = c.type(0).shape, indices = c.type(1).shape;
  const bool nd = a.axis < 0;
  const auto depth = nd ? *indices.back().as_int() : 0;
  const Expr extent = nd ? product(std::span(data).first(static_cast<size_t>(depth))) : data[static_cast<size_t>(a.axis)];
  const Expr count = nd ? product(std::span(indices).first(indices.size() - 1)) : indices[static_cast<size_t>(a.axis)];
  if (!extent.as_int() || !count.as_int() || *extent.as_int() < kShortSegment || *count.as_int() < kShortSegment) return std::nullopt;
  if (*extent.as_int() < kSearchedFrom / *count.as_int()) return std::nullopt;
  for (size_t d = 0; d < data.size() && !nd; ++d)
    if (static_cast<int64_t>(d) != a.axis && !proves_equal(data[d], indices[d])) return std::nullopt;
  Line line{nd ? 0 : a.axis, c.in(0), c.in(2), g.node("ScatterPlaces", a, {c.in(0), c.in(1)}), extent};
  if (nd) {
    const Expr rest = product(std::span(data).subspan(static_cast<size_t>(depth)));
    line.data = g.reshape(line.data, {extent, rest});
    line.updates = g.reshape(line.updates, {count, rest});
  }
  return line;
}
ValueId reduce_sorted(Compose& g, const Line& line, const Sorted& s, const Reducing& how, bool nd) {
  const auto axis = static_cast<size_t>(line.axis);
  ValueId start = count_below(g, s.keys, line.axis, line.extent, false), end = count_below(g, s.keys, line.axis, line.extent, true);
  if (nd) start = g.reshape(start, {line.extent, 1}), end = g.reshape(end, {line.extent, 1});
  if (g.failed()) return start;
  const DType type = g.dtype(line.data);
  ValueId values = nd ? g.gather(line.updates, s.order, 0) : g.take(build_gather_elements(g.builder(), line.updates, s.order, axis));
  values = g.widen(values);  // several levels must not round to 16 bits in between
  ValueId result = g.widen(line.data);
  for (int64_t unit = 1; !g.failed(); unit *= kBlock) {
    const bool last = *g.shape(values)[axis].as_int() <= kShortSegment;
    result = g.node(how.segments, SegmentAttrs{line.axis, unit, last}, {values, start, end, result});
    if (last) break;
    values = combine_blocks(g, how.combine, values, line.axis);
  }
  return g.cast(result, type);
}

Result<Values> scatter(ImportContext& c, const ScatterAttrs& a) {
  const std::string reduction = INGOT_TRY(c.node.string_or("reduction", "none"));
  const auto* how = std::find_if(std::begin(kReducing), std::end(kReducing), [&](const Reducing& r) { return reduction == r.attribute; });
  const bool reduces = how != std::end(kReducing);
  if (!reduces && reduction != "none") return invalid(fmt::format("reduction {}", reduction));
  Compose g(c.builder);
  const auto line = long_line(g, c, a);
  Sorted s;
  if (line && !g.failed()) s = sorted(g, line->places, line->axis, false);
  if (reduces && line) return g.result({g.reshape(reduce_sorted(g, *line, s, *how, a.axis < 0), c.type(0).shape)});
  if (reduces) return g.result({g.node(how->searching, a, {c.in(0), c.in(1), c.in(2)})});
  ValueId source;
  if (line) {
    const ValueId end = count_below(g, s.keys, line->axis, line->extent, true);
    source = g.node("ScatterLast", ScatterAttrs{line->axis}, {s.order, s.keys, end});
    if (a.axis < 0) {
      const Shape& data = c.type(0).shape;
      source = g.reshape(source, Shape(data.begin(), data.begin() + static_cast<std::ptrdiff_t>(*c.type(1).shape.back().as_int())));
    }
  } else {
    source = g.node("ScatterSource", a, {c.in(0), c.in(1)});
  }
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
template <Combine combine>
constexpr OpDef segment_row(std::string_view name) {
  return lowered_row<SegmentAttrs>(name, "a part of each segment; internal", {}, infer_segment,
                                   Reduction{segment_form<combine>, segment_value<combine>, segment_finish<combine>}, 4, 4);
}
const OpDef kScatter[] = {
    lowered_row<ScatterAttrs>("ScatterPlaces", "where each update goes; internal", {}, infer_place, Element{place_element}, 2, 2),
    lowered_row<ScatterAttrs>("ScatterLast", "the last of sorted updates; internal", {}, infer_last, Element{last_element}, 3, 3),
    segment_row<Combine::Sum>("SegmentSum"),
    segment_row<Combine::Product>("SegmentProduct"),
    segment_row<Combine::Max>("SegmentMax"),
    segment_row<Combine::Min>("SegmentMin"),
    lowered_row<ScatterAttrs>("ScatterSource", "the last update of each element; internal", {}, infer_source,
                              Reduction{search_form<Combine::Max>, source_value}, 2, 2),
    lowered_row<ScatterAttrs>("ScatterTake", "internal", {}, infer_scatter, Element{take_element}, 4, 4),
    reduced_row<Combine::Sum>("ScatterAdd"),
    reduced_row<Combine::Product>("ScatterMul"),
    reduced_row<Combine::Max>("ScatterMax"),
    reduced_row<Combine::Min>("ScatterMin"),
    import_row("ScatterElements", "gather form, many updates sorted; every reduction", kRules<import_elements, 11, 13, 16, 18>, 3, 3),
    import_row("Scatter", "ScatterElements", kRules<import_elements, 9, 11>, 3, 3),
    import_row("ScatterND", "gather form, many updates sorted; every reduction", kRules<import_nd, 11, 13, 16, 18>, 3, 3),
    lowered_row<CacheAttrs>("TensorScatter", "", kRules<import_cache, 24>, infer_cache, Element{cache_element}, 2, 3),
};

}  // namespace

std::span<const OpDef> scatter_ops() { return kScatter; }

}  // namespace ingot
