// Operators whose output has as many elements as data says: NonZero, Compress, Unique, NonMaxSuppression. The count is read
// back, sizes follow from it (GraphBuilder::demand_content), and what comes after runs in a part of its own.
#include <fmt/format.h>

#include <cmath>

#include "compiler/expr/simplify.h"
#include "compiler/ops/control.h"
#include "compiler/ops/ordered.h"

namespace ingot {
namespace {

using Types = std::vector<TensorType>;

// ---- positions of what is true -------------------------------------------------------------------------------------------
// Running counts never fall, so the position of the j-th true element is how many counts are at most j. A first look at every
// kStride-th count finds the stretch, a second one the place in it.
constexpr int64_t kStride = 256;
struct FindAttrs {
  Expr count = 0;
  INGOT_FIELDS(count)
};
// Inputs: running counts [m], the stretch of each result [n] (may be omitted: all of m is one).
Result<Types> infer_find(const OpView& v) { return Types{{DType::I64, {v.attrs.as<FindAttrs>().count}}}; }
ReductionForm find_form(const OpView& v) {
  ReductionForm f;
  f.extents = {v.has(1) ? Expr(kStride) : v.inputs[0].shape[0]};
  return f;
}
Expr find_value(const OpView& v, const Index& out, const Index& reduced) {
  const Expr length = v.inputs[0].shape[0];
  if (!v.has(1)) return cast(DType::I64, le(v.read(0, {reduced[0]}), out[0]));
  const Expr at = v.read(1, out) * kStride + reduced[0];
  const Expr below = le(v.read(0, {max(0, min(at, length - 1))}), out[0]);
  return cast(DType::I64, logical_and(lt(at, length), below));
}
Expr find_finish(const OpView& v, const Index& out, const Expr& acc) {
  return v.has(1) ? min(v.read(1, out) * kStride + acc, max(0, v.inputs[0].shape[0] - 1)) : acc;
}
ValueId find_ranks(Compose& g, ValueId counts, const Expr& results) {
  if (g.failed()) return counts;
  const Expr length = g.shape(counts)[0];
  if (const auto n = length.as_int(); n && *n <= kStride) return g.node("FindRanks", FindAttrs{results}, {counts});
  const ValueId at = g.add(g.mul(g.position({simplify(floor_div(length, kStride))}, 0), static_cast<double>(kStride)), static_cast<double>(kStride - 1));
  const ValueId stretch = g.node("FindRanks", FindAttrs{results}, {g.gather(counts, at, 0)});
  return g.node("FindRanks", FindAttrs{results}, {counts, stretch});
}
/// i64 [n] of the positions at which flags, bool [m], are true. The number is known at run time.
ValueId positions_of(Compose& g, ValueId flags) {
  const ValueId hits = g.cast(flags, DType::I64), total = g.reduce("ReduceSum", hits, {0}, false);
  if (g.failed()) return {};
  const Content count = g.builder().demand_content(total);
  INGOT_CHECK(count != nullptr, "a count is no scalar");
  const Expr size = g.builder().dimension(cast(DType::I64, count->front()));
  return find_ranks(g, running(g, "CumSum", hits, {}), size);
}

// ---- NonZero, Compress ---------------------------------------------------------------------------------------------------
Result<Types> infer_unravel(const OpView& v) {
  return Types{{DType::I64, {static_cast<int64_t>(v.attrs.as<ShapeAttrs>().shape.size()), v.inputs[0].shape[0]}}};
}
/// Row d: index d of each position in the shape.
Expr unravel_element(const OpView& v, const Index& out) {
  const Index index = delinearize(v.attrs.as<ShapeAttrs>().shape, v.read(0, {out[1]}));
  Expr result = index.empty() ? Expr(0) : index.back();
  for (size_t d = index.size(); d-- > 1;) result = select(eq(out[0], static_cast<int64_t>(d - 1)), index[d - 1], result);
  return result;
}
ValueId is_true(Compose& g, ValueId x) {
  return g.failed() || g.dtype(x) == DType::Bool ? x : g.unary("Not", g.binary("Equal", x, g.scalar(g.dtype(x), 0)));
}
Result<Values> import_non_zero(ImportContext& c) {
  Compose g(c.builder);
  const Shape s = c.type(0).shape;
  const ValueId at = positions_of(g, is_true(g, g.reshape(c.in(0), {element_count(s)})));
  return g.result({g.node("Unravel", ShapeAttrs{s}, {at})});
}
Result<Values> import_compress(ImportContext& c) {
  Compose g(c.builder);
  ValueId x = c.in(0);
  size_t axis = 0;
  if (c.node.has("axis")) axis = static_cast<size_t>(INGOT_TRY(wrap_axis(INGOT_TRY(c.node.int_or("axis", 0)), c.rank(0))));
  else x = g.reshape(x, {element_count(c.type(0).shape)});
  return g.result({g.gather(x, positions_of(g, c.in(1)), axis)});
}

// ---- Unique --------------------------------------------------------------------------------------------------------------
/// For rows [n, L]: how many go before each, by the first column in which two differ, then by position.
ValueId rank_rows(Compose& g, ValueId rows) {
  if (g.failed()) return rows;
  const Expr n = g.shape(rows)[0], width = g.shape(rows)[1];
  const Shape pairs{n, n, width};
  const ValueId mine = g.expand(g.reshape(rows, {n, 1, width}), pairs), other = g.expand(g.reshape(rows, {1, n, width}), pairs);
  const ValueId differ = g.cast(g.unary("Not", g.binary("Equal", mine, other)), DType::I32);
  const ValueId first = g.reduce("ArgMax", differ, {2});
  if (g.failed()) return rows;
  const auto pick = [&](ValueId v) { return g.take(build_gather_elements(g.builder(), v, first, 2)); };
  const ValueId a = pick(mine), b = pick(other);
  const ValueId earlier = g.binary("Less", g.position({n, n, 1}, 1), g.position({n, n, 1}, 0));
  const ValueId before = g.binary("Or", g.binary("Less", b, a), g.binary("And", g.binary("Equal", a, b), earlier));
  return g.reshape(g.reduce("ReduceSum", g.cast(before, DType::I64), {1}, false), {n});
}
ValueId order_of(Compose& g, ValueId rank) {
  return g.failed() ? rank : g.node("PickRank", RankAttrs{0, false, g.shape(rank)[0]}, {rank});
}
/// What sorted rows [n, L] (or [n]) show: where a new one begins, and the number of each one's run.
struct Runs {
  ValueId starts, number;
};
Runs runs_of(Compose& g, ValueId sorted) {
  if (g.failed()) return {};
  const Shape s = g.shape(sorted);
  const ValueId at = g.position({s[0]}, 0), zero = g.scalar(DType::I64, 0);
  const ValueId previous = g.gather(sorted, g.binary("Max", g.sub(at, g.scalar(DType::I64, 1)), zero), 0);
  ValueId differs = g.unary("Not", g.binary("Equal", sorted, previous));
  if (s.size() > 1) differs = is_true(g, g.reduce("ReduceMax", g.cast(differs, DType::I32), {1}, false));
  const ValueId fresh = g.binary("Or", differs, g.binary("Equal", at, zero));
  const ValueId number = g.sub(running(g, "CumSum", g.cast(fresh, DType::I64), {}), g.scalar(DType::I64, 1));
  return {positions_of(g, fresh), number};
}
Result<Values> import_unique(ImportContext& c) {
  Compose g(c.builder);
  const Shape s = c.type(0).shape;
  ValueId x = c.in(0), rows, rank, order;
  int64_t axis = 0;
  if (c.node.has("axis")) {
    axis = INGOT_TRY(wrap_axis(INGOT_TRY(c.node.int_or("axis", 0)), s.size()));
    std::vector<int64_t> perm{axis};
    for (int64_t d = 0; d < static_cast<int64_t>(s.size()); ++d)
      if (d != axis) perm.push_back(d);
    Shape rest = s;
    rest.erase(rest.begin() + axis);
    rows = g.reshape(g.transpose(x, perm), {s[static_cast<size_t>(axis)], element_count(rest)});
    rank = rank_rows(g, rows);
  } else {
    x = rows = g.reshape(x, {element_count(s)});
    if (!g.failed() && worth_sorting(g.type(rows), 0)) {
      order = sorted(g, rows, 0, false).order;
      rank = sorted(g, order, 0, false).order;  // where each position went: a permutation's order is its inverse
    } else {
      rank = g.node("RankAlong", RankAttrs{0, false, 0}, {rows});
    }
  }
  if (!order.valid()) order = order_of(g, rank);
  const ValueId zero = g.scalar(DType::I64, 0), step = g.scalar(DType::I64, 1);
  const Runs runs = runs_of(g, g.gather(rows, order, 0));
  if (g.failed()) return g.result({});
  const Expr n = g.shape(rows)[0], found = g.shape(runs.starts)[0];
  const ValueId at = g.position({found}, 0), last = INGOT_TRY(build_values(c.builder, DType::I64, {}, {found - 1}));
  const ValueId next = g.gather(runs.starts, g.binary("Max", g.binary("Min", g.add(at, step), last), zero), 0);
  const ValueId end = g.where(g.binary("Less", at, last), next, INGOT_TRY(build_values(c.builder, DType::I64, {}, {n})));
  ValueId counts = g.sub(end, runs.starts), first = g.gather(order, runs.starts, 0), inverse = g.gather(runs.number, rank, 0);
  if (INGOT_TRY(c.node.int_or("sorted", 1)) == 0) {  // in the order of first appearance
    const ValueId place = g.node("RankAlong", RankAttrs{0, false, 0}, {first}), by_place = order_of(g, place);
    counts = g.gather(counts, by_place, 0);
    first = g.gather(first, by_place, 0);
    inverse = g.gather(place, inverse, 0);
  }
  return g.result({g.gather(x, first, static_cast<size_t>(axis)), first, inverse, counts});
}

// ---- NonMaxSuppression ---------------------------------------------------------------------------------------------------
/// Corners and area of boxes, each [B, 1, N].
struct Boxes {
  ValueId low_y, low_x, high_y, high_x, area;
};
Boxes corners(Compose& g, ValueId boxes, bool centred) {
  if (g.failed()) return {};
  const Shape s = g.shape(boxes), row{s[0], 1, s[1]};
  const auto column = [&](int64_t i) { return g.reshape(g.slice(boxes, 2, i, 1), row); };
  Boxes b;
  if (centred) {  // x, y, width, height
    const ValueId half_w = g.mul(column(2), 0.5), half_h = g.mul(column(3), 0.5);
    b.low_x = g.sub(column(0), half_w), b.high_x = g.add(column(0), half_w);
    b.low_y = g.sub(column(1), half_h), b.high_y = g.add(column(1), half_h);
  } else {  // any two opposite corners
    b.low_y = g.binary("Min", column(0), column(2)), b.high_y = g.binary("Max", column(0), column(2));
    b.low_x = g.binary("Min", column(1), column(3)), b.high_x = g.binary("Max", column(1), column(3));
  }
  b.area = g.mul(g.sub(b.high_y, b.low_y), g.sub(b.high_x, b.low_x));
  return b;
}
/// True where a box overlaps the one at `best` [B, C, 1] by more than the threshold.
ValueId overlaps(Compose& g, const Boxes& b, ValueId best, const Shape& all, ValueId threshold) {
  const auto chosen = [&](ValueId v) { return g.failed() ? v : g.take(build_gather_elements(g.builder(), g.expand(v, all), best, 2)); };
  const ValueId zero = g.scalar(DType::F32, 0);
  const ValueId h = g.sub(g.binary("Min", b.high_y, chosen(b.high_y)), g.binary("Max", b.low_y, chosen(b.low_y)));
  const ValueId w = g.sub(g.binary("Min", b.high_x, chosen(b.high_x)), g.binary("Max", b.low_x, chosen(b.low_x)));
  const ValueId shared = g.mul(g.binary("Max", h, zero), g.binary("Max", w, zero));
  const ValueId together = g.sub(g.add(b.area, chosen(b.area)), shared);
  // shared / together > threshold, where there is an area
  return g.binary("And", g.binary("Greater", together, zero), g.binary("Greater", g.div(shared, together), threshold));
}
struct Suppression {
  ValueId boxes, scores, limit, overlap;  // [B, N, 4]; [B, C, N], -inf where out of the question; i64 []; f32 []
  bool centred = false;
};
/// i64 [rounds, B, C]: the box chosen in each round, or -1.
Result<ValueId> choose_boxes(GraphBuilder& b, const Suppression& s) {
  LoopSpec spec;
  spec.trips = s.limit;
  spec.states = {s.scores};
  spec.body = [&](NestedGraph& nested, const std::vector<ValueId>& in) -> Result<std::vector<ValueId>> {
    GraphBuilder inside(nested.graph);
    Compose g(inside);
    const Shape all = g.shape(in[2]), one{all[0], all[1], 1};
    const ValueId low = g.scalar(DType::F32, -INFINITY);
    const ValueId best = g.reduce("ArgMax", in[2], {2}), top = g.reduce("ReduceMax", in[2], {2});
    const ValueId valid = g.binary("Greater", top, low);
    const Boxes boxes = corners(g, nested.capture(s.boxes), s.centred);
    const ValueId itself = g.binary("Equal", g.position(all, 2), best);
    const ValueId gone = g.binary("Or", overlaps(g, boxes, best, all, nested.capture(s.overlap)), itself);
    const ValueId left = g.where(g.binary("And", gone, valid), low, in[2]);
    const ValueId any = is_true(g, g.reduce("ReduceMax", g.cast(valid, DType::I32), {0, 1, 2}, false));
    const ValueId chosen = g.reshape(g.where(valid, best, g.scalar(DType::I64, -1)), {all[0], all[1]});
    return g.result({any, left, chosen});
  };
  return INGOT_TRY(build_loop(b, spec))[1];
}
Result<Values> import_suppression(ImportContext& c) {
  if (c.rank(0) != 3 || c.rank(1) != 3) return invalid("boxes and scores need rank 3");
  Compose g(c.builder);
  const Shape all = c.type(1).shape;
  Suppression s{c.in(0), c.in(1), g.scalar(DType::I64, 0), g.scalar(DType::F32, 0), INGOT_TRY(c.node.int_or("center_point_box", 0)) != 0};
  if (c.has(2)) s.limit = g.binary("Min", g.reshape(c.in(2), {}), INGOT_TRY(build_values(c.builder, DType::I64, {}, {all[2]})));
  if (c.has(3)) s.overlap = g.reshape(c.in(3), {});
  if (c.has(4)) s.scores = g.where(g.binary("Greater", s.scores, g.reshape(c.in(4), {})), s.scores, g.scalar(DType::F32, -INFINITY));
  if (g.failed()) return g.result({});
  const ValueId chosen = g.transpose(INGOT_TRY(choose_boxes(c.builder, s)), {1, 2, 0});
  if (g.failed()) return g.result({});
  const Shape order = g.shape(chosen);  // [B, C, rounds]
  const ValueId flat = g.reshape(chosen, {element_count(order)});
  const ValueId at = positions_of(g, g.unary("Not", g.binary("Less", flat, g.scalar(DType::I64, 0))));
  if (g.failed()) return g.result({});
  const Shape column{g.shape(at)[0], 1};
  const ValueId where = g.transpose(g.node("Unravel", ShapeAttrs{order}, {at}), {1, 0});  // [n, 3]: batch, class, round
  return g.result({g.concat({g.slice(where, 1, 0, 2), g.reshape(g.gather(flat, at, 0), column)}, 1)});
}

const OpDef kSelection[] = {
    lowered_row<FindAttrs>("FindRanks", "positions by running count; internal", {}, infer_find, Reduction{find_form, find_value, find_finish}, 1, 2),
    lowered_row<ShapeAttrs>("Unravel", "indices of positions; internal", {}, infer_unravel, Element{unravel_element}, 1, 1),
    import_row("NonZero", "", kRules<import_non_zero, 9, 13>, 1, 1),
    import_row("Compress", "", kRules<import_compress, 9, 11>, 2, 2),
    import_row("Unique", "", kRules<import_unique, 11>, 1, 1),
    import_row("NonMaxSuppression", "one round a box, as a loop of the program", kRules<import_suppression, 10, 11>, 2, 5),
};

}  // namespace

std::span<const OpDef> selection_ops() { return kSelection; }

}  // namespace ingot
