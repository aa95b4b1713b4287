// Running sums and ranks along an axis, for operators that choose or sort. Only compiler/ops includes it.
#pragma once

#include "compiler/ops/compose.h"

namespace ingot {

struct RankAttrs {
  int64_t axis = 0;
  bool largest = true;
  Expr count = 0;     // PickRank: how many ranks, of each block
  int64_t block = 0;  // ranks are within blocks of so many elements, which divide the axis; 0: within the whole axis
  INGOT_FIELDS(axis, largest, count, block)
};

struct RunningOptions {
  int64_t axis = 0;
  bool exclusive = false, reverse = false;
};
/// Sums ("CumSum") or products ("CumProd") of the elements up to each one.
ValueId running(Compose& g, std::string_view name, ValueId x, RunningOptions o);

}  // namespace ingot
