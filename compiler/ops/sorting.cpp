// Sorting a long axis in near n log n steps, in gather form: ranks within short blocks, then runs merged two by two. Each place
// of a merged run finds how many elements before it come from the first of the two, by a search in a few steps of kFan. Nothing
// is written out of order, so there is one result whatever runs first, and both backends run it as plain kernels.
#include "compiler/expr/simplify.h"
#include "compiler/ops/ordered.h"
#include "compiler/ops/registry.h"

namespace ingot {
namespace {

using Types = std::vector<TensorType>;

constexpr int64_t kFan = 16;         // places that a step of a search looks at
constexpr int64_t kShortRun = 64;    // ranked by counting
constexpr int64_t kSortFrom = 1024;  // below it counting takes less time than the launches of a sort

// ---- keys ------------------------------------------------------------------------------------------------------------------
// Integers compare in one step; an order over floats with NaN would compare several times.
Result<Types> infer_key(const OpView& v) { return Types{{DType::I64, v.inputs[0].shape}}; }
/// A number that is ordered as the values are: both zeros alike, every NaN above infinity. `x` is at most 32 bits wide or i64.
Expr key_element(const OpView& v, const Index& out) {
  const Expr x = v.read(0, out);
  if (!is_float(x.type())) return cast(DType::I64, x);
  const Expr bits = cast(DType::I64, Expr::make(ExprOp::Bits, DType::I32, {cast(DType::F32, x)}));
  const Expr negative = cast(DType::I64, lt(bits, Expr(0))), nan = cast(DType::I64, ne(x, x));
  const Expr ordered = bits + negative * (Expr(int64_t{INT32_MIN}) - bits * 2);  // sign and magnitude as two's complement
  return ordered * (1 - nan) + nan * int64_t{INT32_MAX};
}

// ---- a step of a search ----------------------------------------------------------------------------------------------------
// Inputs: keys, of runs the order of the keys, and what the step before has found (omitted by the first).
// What is searched for is the last of the candidates 1, 2, … for which something holds that holds for all before it; 0 if for
// none. A step looks at every stride-th one behind what the step before has found.
struct SearchAttrs {
  int64_t axis = 0;
  int64_t stride = 1, count = kFan;
  bool flag = false;  // merging: the greatest first; counting: equal ones count
  Expr extent = 0;    // merging: of a sorted run, a power of two, pairs of which are merged; counting: of the result
  INGOT_FIELDS(axis, stride, count, flag, extent)
};
ReductionForm search_form(const OpView& v) {
  ReductionForm f;
  f.extents = {v.attrs.as<SearchAttrs>().count};
  return f;
}
template <size_t before>
Expr found(const OpView& v, const Index& out) { return v.has(before) ? v.read(before, out) : Expr(0); }
template <size_t before>
Expr candidate(const OpView& v, const Index& out, const Index& reduced) {
  return found<before>(v, out) + (reduced[0] + 1) * v.attrs.as<SearchAttrs>().stride;
}
template <size_t before>
Expr search_finish(const OpView& v, const Index& out, const Expr& acc) {
  return found<before>(v, out) + acc * v.attrs.as<SearchAttrs>().stride;
}
/// The element of an input at a place of the axis, which may lie outside of it: then any.
Expr read_along(const OpView& v, size_t input, const Index& out, const Expr& at) {
  const auto axis = static_cast<size_t>(v.attrs.as<SearchAttrs>().axis);
  Index in = out;
  in[axis] = max(Expr(0), min(at, v.inputs[input].shape[axis] - 1));
  return v.read(input, in);
}
Expr number(const Expr& condition) { return cast(DType::I64, condition); }

/// Steps until strides of one, over at most `most` candidates. Every step is a node of its own, and so a kernel.
template <class AddStep>
ValueId search(int64_t most, AddStep add) {
  int64_t stride = 1;
  while (stride * kFan <= most) stride *= kFan;
  ValueId found;
  for (int64_t count = most / stride; stride >= 1; stride /= kFan, count = kFan - 1) found = add(found, stride, count);
  return found;
}

// ---- merging -----------------------------------------------------------------------------------------------------------------
/// Two runs that are merged, and a place of the result.
struct Pair {
  Expr start, first, second, before;  // where they start, their lengths, places of the result before this one
};
Pair pair_at(const OpView& v, const Index& out) {
  const auto& a = v.attrs.as<SearchAttrs>();
  const auto axis = static_cast<size_t>(a.axis);
  const Expr extent = v.inputs[0].shape[axis], run = a.extent;
  Pair p;
  p.start = floor_div(out[axis], run * 2) * (run * 2);
  p.first = min(extent - p.start, run);
  p.second = min(extent - p.start - p.first, run);
  p.before = out[axis] - p.start;
  return p;
}
/// Whether the key at place `mine` of the runs goes behind that at `other`. Only the order moves from run to run: keys that
/// moved along would be a chain of gathers.
Expr goes_behind(const OpView& v, const Index& out, const Expr& mine, const Expr& other) {
  const auto key = [&](const Expr& at) { return read_along(v, 0, out, read_along(v, 1, out, at)); };
  return v.attrs.as<SearchAttrs>().flag ? lt(key(mine), key(other)) : lt(key(other), key(mine));
}
/// Taking t of the first run is right when it has as many and the t-th of them goes before what the second would give. Of
/// equal ones those of the first go first.
Expr taken_value(const OpView& v, const Index& out, const Index& reduced) {
  const Pair p = pair_at(v, out);
  const Expr t = candidate<2>(v, out, reduced), rest = p.before - t;
  const Expr behind = goes_behind(v, out, p.start + t - 1, p.start + p.first + rest);
  return number(le(t, min(p.first, p.before))) * max(number(le(p.second, rest)), 1 - number(behind));
}
/// The position of the element that belongs at `out`: of what is next in both runs the one that goes first.
Expr merged_element(const OpView& v, const Index& out) {
  const Pair p = pair_at(v, out);
  const Expr taken = v.read(2, out), rest = p.before - taken;
  const Expr behind = goes_behind(v, out, p.start + taken, p.start + p.first + rest);
  const Expr from_first = number(lt(taken, p.first)) * max(number(le(p.second, rest)), 1 - number(behind));
  return read_along(v, 1, out, p.start + from_first * taken + (1 - from_first) * (p.first + rest));
}

// ---- counting ------------------------------------------------------------------------------------------------------------------
Result<Types> infer_count(const OpView& v) {
  const auto& a = v.attrs.as<SearchAttrs>();
  Shape s = v.inputs[0].shape;
  s[static_cast<size_t>(a.axis)] = a.extent;
  return Types{{DType::I64, s}};
}
/// Whether the t-th key is less than the place of the result (or equal, where equal ones count).
Expr count_value(const OpView& v, const Index& out, const Index& reduced) {
  const auto& a = v.attrs.as<SearchAttrs>();
  const auto axis = static_cast<size_t>(a.axis);
  const Expr t = candidate<1>(v, out, reduced), key = read_along(v, 0, out, t - 1);
  return number(le(t, v.inputs[0].shape[axis])) * number(a.flag ? le(key, out[axis]) : lt(key, out[axis]));
}

const OpDef kSorting[] = {
    lowered_row<void>("SortKey", "integers in the order of the values; internal", {}, infer_key, Element{key_element}, 1, 1),
    lowered_row<SearchAttrs>("MergeSearch", "how many elements of the first of two runs go before each place; internal", {}, infer_key,
                             Reduction{search_form, taken_value, search_finish<2>}, 2, 3),
    lowered_row<SearchAttrs>("MergeRuns", "the order of runs merged two by two; internal", {}, infer_key, Element{merged_element}, 3, 3),
    lowered_row<SearchAttrs>("CountBelow", "how many sorted keys are below each place; internal", {}, infer_count,
                             Reduction{search_form, count_value, search_finish<1>}, 1, 2),
};

}  // namespace

bool worth_sorting(const TensorType& x, int64_t axis) {
  const auto extent = x.shape[static_cast<size_t>(axis)].as_int();
  return extent && *extent > kSortFrom && x.dtype != DType::F64 && x.dtype != DType::U64;
}

Sorted sorted(Compose& g, ValueId x, int64_t axis, bool largest) {
  const auto at = static_cast<size_t>(axis);
  const ValueId key = g.node("SortKey", {x});
  const ValueId rank = g.node("RankAlong", RankAttrs{axis, largest, 0, kShortRun}, {key});
  ValueId order = g.node("PickRank", RankAttrs{axis, largest, kShortRun, kShortRun}, {rank});
  if (g.failed()) return {};
  const int64_t extent = *g.shape(x)[at].as_int();
  for (int64_t run = kShortRun; run < extent && !g.failed(); run *= 2) {
    const ValueId taken = search(run, [&](ValueId before, int64_t stride, int64_t count) {
      std::vector<ValueId> inputs{key, order};
      if (before.valid()) inputs.push_back(before);
      return g.node("MergeSearch", SearchAttrs{axis, stride, count, largest, run}, std::move(inputs));
    });
    order = g.node("MergeRuns", SearchAttrs{axis, 1, 1, largest, run}, {key, order, taken});
  }
  if (g.failed()) return {};
  return {order, g.take(build_gather_elements(g.builder(), key, order, at))};
}

ValueId count_below(Compose& g, ValueId keys, int64_t axis, const Expr& results, bool or_equal) {
  if (g.failed()) return keys;
  const int64_t most = *g.shape(keys)[static_cast<size_t>(axis)].as_int();
  return search(most, [&](ValueId before, int64_t stride, int64_t count) {
    std::vector<ValueId> inputs{keys};
    if (before.valid()) inputs.push_back(before);
    return g.node("CountBelow", SearchAttrs{axis, stride, count, or_equal, results}, std::move(inputs));
  });
}

std::span<const OpDef> sorting_ops() { return kSorting; }

}  // namespace ingot
