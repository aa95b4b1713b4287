// The order of axes, and which side of a product is which: so that neighbours in an axis list are neighbours in memory,
// whatever order the values are stored in. Between lower_group and collapse_axes.
#pragma once

#include "codegen/kernel/kernel.h"

namespace ingot {

/// The index of the first Store of a body; invalid when there is none.
Expr first_store(const Body& body);

/// Axes by descending distance in memory of what `index` walks; axes that it does not step along evenly stay in front.
void sort_by_stride(std::vector<Axis>& axes, const Expr& index);

/// Results are contiguous along n, where they are along any axis, or nearest to it; batches that the weights do not depend on are rows where
/// rows follow each other in memory; the axis of k along which an operand is contiguous is the last.
void orient(Contract& contract);

/// The rows and columns of a product: an axis whose position is divided by a constant somewhere (three projections stored one
/// after the other) becomes two, and the division disappears.
void split_divided_axes(Kernel& kernel);

/// The same for what is gone over in each row: sums in the order in which their elements lie in memory, and loops in that of their results.
/// Groups of channels, where the channels lie side by side.
void split_divided_columns(Kernel& kernel);

}  // namespace ingot
