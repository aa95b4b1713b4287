// Operators along an ordered axis: running sums, ranks, reversal. Running sums go block by block, and those of the blocks
// likewise. Ranks come from counting (how many elements go before this one), which needs no sort and runs in parallel. A long
// axis is thinned out first, block by block, where few elements are wanted, and sorted (sorting.cpp) where many are.
#include "compiler/expr/simplify.h"
#include "compiler/ops/open_axes.h"
#include "compiler/ops/ordered.h"

namespace ingot {
namespace {

using Types = std::vector<TensorType>;

Result<Types> infer_first(const OpView& v) { return Types{v.inputs[0]}; }

// ---- CumSum, CumProd ---------------------------------------------------------------------------------------------------
struct RunningAttrs {
  int64_t axis = 0;
  bool exclusive = false, reverse = false;
  int64_t block = 0;  // sums start again at its multiples; 0: they never do
  INGOT_FIELDS(axis, exclusive, reverse, block)
};
constexpr int64_t kWholeLimit = 64;  // shorter axes are summed in one go
constexpr int kMostLevels = 4;       // of a dynamic axis

Expr axis_extent(const OpView& v) { return v.inputs[0].shape[static_cast<size_t>(v.attrs.as<RunningAttrs>().axis)]; }
template <Combine combine>
ReductionForm running_form(const OpView& v) {
  const int64_t block = v.attrs.as<RunningAttrs>().block;
  ReductionForm f;
  f.combine = combine;
  f.extents = {block > 0 ? Expr(block) : axis_extent(v)};
  return f;
}
template <Combine combine>
Expr running_value(const OpView& v, const Index& out, const Index& reduced) {
  const auto& a = v.attrs.as<RunningAttrs>();
  const auto axis = static_cast<size_t>(a.axis);
  const Expr at = a.block > 0 ? floor_div(out[axis], a.block) * a.block + reduced[0] : reduced[0];
  Index in = out;
  in[axis] = at;
  const Expr from = a.reverse ? out[axis] : at, to = a.reverse ? at : out[axis];
  Expr counts = a.exclusive ? lt(from, to) : le(from, to);
  if (a.block > 0) counts = logical_and(lt(at, axis_extent(v)), counts);
  const Expr x = v.read(0, in);
  return select(counts, x, identity_of(combine, x.type()));
}
/// What each block of the axis adds up to.
Result<Types> infer_blocks(const OpView& v) {
  TensorType t = v.inputs[0];
  const auto& a = v.attrs.as<RunningAttrs>();
  t.shape[static_cast<size_t>(a.axis)] = ceil_div(axis_extent(v), a.block);
  return Types{t};
}
template <Combine combine>
Expr block_value(const OpView& v, const Index& out, const Index& reduced) {
  const auto& a = v.attrs.as<RunningAttrs>();
  const auto axis = static_cast<size_t>(a.axis);
  Index in = out;
  in[axis] = out[axis] * a.block + reduced[0];
  const Expr x = v.read(0, in);
  return select(lt(in[axis], axis_extent(v)), x, identity_of(combine, x.type()));
}
/// Inputs: by block, by element. Each element gets its block's.
Result<Types> infer_spread(const OpView& v) { return Types{{v.inputs[0].dtype, v.inputs[1].shape}}; }
Expr spread_element(const OpView& v, const Index& out) {
  const auto& a = v.attrs.as<RunningAttrs>();
  Index in = out;
  in[static_cast<size_t>(a.axis)] = floor_div(out[static_cast<size_t>(a.axis)], a.block);
  return v.read(0, in);
}
ValueId running_blocks(Compose& g, std::string_view name, ValueId x, RunningOptions o, int level) {
  if (g.failed()) return x;
  RunningAttrs a{o.axis, o.exclusive, o.reverse};
  const Expr extent = g.shape(x)[static_cast<size_t>(o.axis)];
  if (bounds_of(extent).high <= kWholeLimit || (!extent.is_const() && level >= kMostLevels)) return g.node(name, a, {x});
  a.block = kBlock;
  const bool sums = name == "CumSum";
  const ValueId inside = g.node(name, a, {x}), blocks = combine_blocks(g, sums ? Combine::Sum : Combine::Product, x, o.axis);
  const ValueId before = running_blocks(g, name, blocks, {o.axis, true, o.reverse}, level + 1);
  return g.binary(sums ? "Add" : "Mul", inside, g.node("SpreadBlocks", a, {before, x}));
}
Result<Values> import_running(ImportContext& c) {
  if (INGOT_TRY(c.content(1)).size() != 1) return invalid("axis needs one element");
  RunningOptions o{0, INGOT_TRY(c.node.int_or("exclusive", 0)) != 0, INGOT_TRY(c.node.int_or("reverse", 0)) != 0};
  Compose g(c.builder);
  if (const auto open = INGOT_TRY(open_axes(c, 1, c.rank(0)))) {
    o.axis = static_cast<int64_t>(c.rank(0)) - 1;
    const ValueId y = running(g, c.node.op, g.take(axes_to_end(c.builder, c.in(0), *open)), o);
    return g.failed() ? g.result({}) : one(axes_from_end(c.builder, y, *open, c.type(0).shape));
  }
  o.axis = INGOT_TRY(wrap_axis(INGOT_TRY(c.ints(1))[0], c.rank(0)));
  return g.result({running(g, c.node.op, c.in(0), o)});
}

// ---- TopK --------------------------------------------------------------------------------------------------------------
Result<Types> infer_rank(const OpView& v) { return Types{{DType::I64, v.inputs[0].shape}}; }
ReductionForm rank_form(const OpView& v) {
  ReductionForm f;
  const auto& a = v.attrs.as<RankAttrs>();
  f.extents = {a.block > 0 ? Expr(a.block) : v.inputs[0].shape[static_cast<size_t>(a.axis)]};
  return f;
}
/// Element `within` of the block (or of the axis) that an element is in; behind the end in the last block, which may be short.
Expr in_block(const Expr& at, int64_t block, const Expr& within) {
  return block > 0 ? floor_div(at, block) * block + within : within;
}
bool whole_blocks(const OpView& v) {
  const auto& a = v.attrs.as<RankAttrs>();
  const auto extent = v.inputs[0].shape[static_cast<size_t>(a.axis)].as_int();
  return a.block == 0 || (extent && *extent % a.block == 0);
}
/// 1 when element `reduced` goes before element `out`: greater (or less), or equal and earlier. NaN is the greatest.
Expr rank_value(const OpView& v, const Index& out, const Index& reduced) {
  const auto& a = v.attrs.as<RankAttrs>();
  const auto axis = static_cast<size_t>(a.axis);
  Index other = out;
  other[axis] = in_block(out[axis], a.block, reduced[0]);
  const Expr y = v.read(0, other), x = v.read(0, out);
  Expr before = a.largest ? lt(x, y) : lt(y, x), same = eq(x, y);
  if (is_float(x.type())) {
    const Expr x_nan = ne(x, x), y_nan = ne(y, y);
    before = logical_or(before, a.largest ? logical_and(y_nan, logical_not(x_nan)) : logical_and(x_nan, logical_not(y_nan)));
    same = logical_or(same, logical_and(x_nan, y_nan));
  }
  const Expr counts = cast(DType::I64, logical_or(before, logical_and(same, lt(other[axis], out[axis]))));
  return whole_blocks(v) ? counts : select(lt(other[axis], v.inputs[0].shape[axis]), counts, Expr(0));
}
Result<Types> infer_pick(const OpView& v) {
  const auto& a = v.attrs.as<RankAttrs>();
  Shape s = v.inputs[0].shape;
  Expr& d = s[static_cast<size_t>(a.axis)];
  if (a.block == 0) d = a.count;
  else if (!a.count.is_const(a.block)) d = floor_div(d, a.block) * a.count;  // of whole blocks; all of them where all are taken
  return Types{{DType::I64, s}};
}
/// The position of the element whose rank is the output's position; ranks are a permutation, so one term is not 0.
Expr pick_value(const OpView& v, const Index& out, const Index& reduced) {
  const auto& a = v.attrs.as<RankAttrs>();
  const auto axis = static_cast<size_t>(a.axis);
  Index in = out;
  in[axis] = a.block > 0 ? floor_div(out[axis], a.count) * a.block + reduced[0] : reduced[0];
  const Expr rank = a.block > 0 ? floor_mod(out[axis], a.count) : out[axis];
  const Expr found = select(eq(v.read(0, in), rank), in[axis], Expr(0));
  return whole_blocks(v) ? found : select(lt(in[axis], v.inputs[0].shape[axis]), found, Expr(0));
}
constexpr int64_t kRankBlock = 512, kRankWhole = 4096;

/// Candidates for the first k of an axis: the best of each block, and the rest behind the last whole one. Elements that
/// compare equal stay in their order.
struct Candidates {
  ValueId x, index;  // values, and where they were (invalid: where they are)
};
Candidates thin_out(Compose& g, ValueId x, int64_t axis, int64_t k, bool largest) {
  const auto at = static_cast<size_t>(axis);
  Candidates now{x, {}};
  for (int64_t n; !g.failed() && (n = *g.shape(now.x)[at].as_int()) > kRankWhole;) {
    const int64_t blocks = n / kRankBlock, whole = blocks * kRankBlock;
    const ValueId rank = g.node("RankAlong", RankAttrs{axis, largest, 0, kRankBlock}, {g.slice(now.x, at, 0, whole)});
    ValueId keep = g.node("PickRank", RankAttrs{axis, largest, k, kRankBlock}, {rank});
    if (whole < n) {
      Shape rest = g.shape(now.x);
      rest[at] = n - whole;
      keep = g.concat({keep, g.add(g.position(rest, at), static_cast<double>(whole))}, at);
    }
    const auto pick = [&](ValueId v) {
      return g.failed() ? v : g.take(build_gather_elements(g.builder(), v, keep, at));
    };
    now = {pick(now.x), now.index.valid() ? pick(now.index) : keep};
  }
  return now;
}
Result<Values> import_top_k(ImportContext& c) {
  const int64_t axis = INGOT_TRY(wrap_axis(INGOT_TRY(c.node.int_or("axis", -1)), c.rank(0)));
  Expr k;
  if (c.has(1)) k = INGOT_TRY(c.content(1)).at(0);
  else k = INGOT_TRY(c.node.int_or("k", 0));
  const Expr dim = c.type(0).shape[static_cast<size_t>(axis)];
  if (k.as_int() && *k.as_int() < 0) return invalid("k is negative");
  if (k.as_int() && dim.as_int() && *k.as_int() > *dim.as_int()) return invalid("k exceeds the axis");
  const bool largest = INGOT_TRY(c.node.int_or("largest", 1)) != 0;
  Compose g(c.builder);
  Candidates from{c.in(0), {}};
  if (dim.as_int() && k.as_int() && *k.as_int() * 4 <= kRankBlock)
    from = thin_out(g, c.in(0), axis, *k.as_int(), largest);
  ValueId index;
  if (!g.failed() && worth_sorting(g.type(from.x), axis))
    index = g.slice(sorted(g, from.x, axis, largest).order, static_cast<size_t>(axis), 0, k);
  else
    index = g.node("PickRank", RankAttrs{axis, largest, k}, {g.node("RankAlong", RankAttrs{axis, largest, 0}, {from.x})});
  if (g.failed()) return g.result({});
  const auto pick = [&](ValueId v) {
    return g.take(build_gather_elements(c.builder, v, index, static_cast<size_t>(axis)));
  };
  return g.result({pick(from.x), from.index.valid() ? pick(from.index) : index});
}

// ---- Hardmax, ReverseSequence --------------------------------------------------------------------------------------------
Result<Values> import_hardmax(ImportContext& c) {
  const Shape s = c.type(0).shape;
  Compose g(c.builder);
  const bool flattens = c.node.opset < 13;
  int64_t axis = INGOT_TRY(wrap_axis(INGOT_TRY(c.node.int_or("axis", flattens ? 1 : -1)), c.rank(0)));
  ValueId x = c.in(0);
  if (flattens) {
    x = g.reshape(x, {element_count(Shape(s.begin(), s.begin() + axis)), element_count(Shape(s.begin() + axis, s.end()))});
    axis = 1;
  }
  const ValueId best = g.reduce("ArgMax", x, {axis});
  const Shape flat = g.shape(x);
  const ValueId hit = g.binary("Equal", g.position(flat, static_cast<size_t>(axis)), best);
  return g.result({g.reshape(g.cast(hit, c.type(0).dtype), s)});
}
struct ReverseAttrs {
  int64_t batch = 1, time = 0;
  INGOT_FIELDS(batch, time)
};
Expr reverse_element(const OpView& v, const Index& out) {
  const auto& a = v.attrs.as<ReverseAttrs>();
  const auto time = static_cast<size_t>(a.time);
  const Expr length = cast(DType::I64, v.read(1, {out[static_cast<size_t>(a.batch)]}));
  const Expr dim = v.inputs[0].shape[time], t = out[time];
  Index in = out;
  in[time] = max(0, min(select(lt(t, length), length - 1 - t, t), dim - 1));
  return v.read(0, in);
}
Result<Values> import_reverse(ImportContext& c) {
  const ReverseAttrs a{INGOT_TRY(wrap_axis(INGOT_TRY(c.node.int_or("batch_axis", 1)), c.rank(0))),
                       INGOT_TRY(wrap_axis(INGOT_TRY(c.node.int_or("time_axis", 0)), c.rank(0)))};
  if (a.batch == a.time) return invalid("batch_axis and time_axis are the same");
  return one(c.builder.add(op("ReverseSequence"), a, c.inputs));
}

template <Combine combine>
constexpr OpDef block_row(std::string_view name) {
  return lowered_row<RunningAttrs>(name, "blocks of an axis as one element each; internal", {}, infer_blocks,
                                   Reduction{running_form<combine>, block_value<combine>}, 1, 1);
}
constexpr Reduction kSum{running_form<Combine::Sum>, running_value<Combine::Sum>};
constexpr Reduction kProduct{running_form<Combine::Product>, running_value<Combine::Product>};
const OpDef kOrdered[] = {
    lowered_row<RunningAttrs>("CumSum", "", kRules<import_running, 11, 14>, infer_first, kSum, 1, 2),
    lowered_row<RunningAttrs>("CumProd", "", kRules<import_running, 26>, infer_first, kProduct, 1, 2),
    block_row<Combine::Sum>("BlockSum"),
    block_row<Combine::Product>("BlockProduct"),
    block_row<Combine::Max>("BlockMax"),
    block_row<Combine::Min>("BlockMin"),
    lowered_row<RunningAttrs>("SpreadBlocks", "each element's block; internal", {}, infer_spread, Movement{spread_element}, 2, 2),
    lowered_row<RankAttrs>("RankAlong", "how many elements go before each; internal", {}, infer_rank, Reduction{rank_form, rank_value}, 1, 1),
    lowered_row<RankAttrs>("PickRank", "positions by rank; internal", {}, infer_pick, Reduction{rank_form, pick_value}, 1, 1),
    import_row("TopK", "ranks by counting, long axes by merging; NaN is the greatest", kRules<import_top_k, 1, 10, 11, 24>, 1, 2),
    import_row("Hardmax", "", kRules<import_hardmax, 1, 11, 13>, 1, 1),
    lowered_row<ReverseAttrs>("ReverseSequence", "", kRules<import_reverse, 10>, infer_first, Element{reverse_element}, 2, 2),
};

}  // namespace

ValueId running(Compose& g, std::string_view name, ValueId x, RunningOptions o) { return running_blocks(g, name, x, o, 0); }

ValueId combine_blocks(Compose& g, Combine combine, ValueId x, int64_t axis) {
  const char* name = combine == Combine::Sum       ? "BlockSum"
                     : combine == Combine::Product ? "BlockProduct"
                     : combine == Combine::Max     ? "BlockMax"
                                                   : "BlockMin";
  return g.node(name, RunningAttrs{axis, false, false, kBlock}, {x});
}

std::span<const OpDef> ordered_ops() { return kOrdered; }

}  // namespace ingot
