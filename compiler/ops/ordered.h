// Running sums and ranks along an axis, for operators that choose or sort. Only compiler/ops includes it.
#pragma once

#include "compiler/ops/compose.h"

namespace ingot {

struct RankAttrs {
  int64_t axis = 0;
  bool largest = true;
  Expr count = 0;     // PickRank: how many ranks, of each block
  int64_t block = 0;  // ranks are within blocks of so many elements, the last of which may be shorter; 0: within the whole axis
  INGOT_FIELDS(axis, largest, count, block)
};

struct RunningOptions {
  int64_t axis = 0;
  bool exclusive = false, reverse = false;
};
/// Sums ("CumSum") or products ("CumProd") of the elements up to each one.
ValueId running(Compose& g, std::string_view name, ValueId x, RunningOptions o);

/// The elements of each block of kBlock along the axis as one: BlockSum, BlockProduct, BlockMax, BlockMin.
constexpr int64_t kBlock = 32;
ValueId combine_blocks(Compose& g, Combine combine, ValueId x, int64_t axis);

/// Whether sorted can sort the axis (one of a known length, of values that fit its keys), and is faster than counting.
bool worth_sorting(const TensorType& x, int64_t axis);
/// An axis in the order of its values, the greatest first with `largest`; equal ones stay in their order, NaN is the greatest.
struct Sorted {
  ValueId order, keys;  // i64, the shape of x: positions, and numbers that are ordered as the values (of integers, themselves)
};
Sorted sorted(Compose& g, ValueId x, int64_t axis, bool largest);
/// For each place 0, 1, … of an axis of `results` elements, how many of the keys, sorted upwards along it, are less than the
/// place (or equal to it).
ValueId count_below(Compose& g, ValueId keys, int64_t axis, const Expr& results, bool or_equal);

}  // namespace ingot
