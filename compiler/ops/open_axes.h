// Axes that only a call knows. Each axis of the tensor gets a symbol that is 1 where an entry of the input names it, so that
// extents and index maps stay polynomials. An operator along such axes works on the last ones: a Reorder brings the axes
// there, and another brings them back. Only compiler/ops includes it.
#pragma once

#include <optional>

#include "compiler/ops/rows.h"

namespace ingot {

struct OpenAxes {
  std::vector<Expr> named;  // the entries, counted from the front
  std::vector<Expr> flags;  // per axis: 1 where an entry names it, else 0
  size_t rank() const { return flags.size(); }
  size_t count() const { return named.size(); }
};

/// The entries of input i as axes of a tensor of that rank, which a call checks. Empty where the input is missing or its
/// elements are numbers: ImportContext::axes reads those.
Result<std::optional<OpenAxes>> open_axes(ImportContext& c, size_t i, size_t rank);
/// What a list beside the axes has for axis d; `otherwise` where no entry names it.
Expr entry_of(const OpenAxes& axes, const std::vector<Expr>& list, size_t d, const Expr& otherwise);

/// The dims that no entry names, in order.
Shape kept_dims(GraphBuilder& b, const OpenAxes& axes, const Shape& dims);
/// The dims between which the named axes are put, as 1.
Shape spread_dims(GraphBuilder& b, const OpenAxes& axes, const Shape& dims);
/// The dims, 1 where an entry names the axis: by its flag, so that they broadcast with the dims themselves.
Shape reduced_dims(const OpenAxes& axes, const Shape& dims);

/// x with the named axes behind the others; axes that x has beyond axes.rank() stay last.
Result<ValueId> axes_to_end(GraphBuilder& b, ValueId x, const OpenAxes& axes);
/// The inverse, to the shape given.
Result<ValueId> axes_from_end(GraphBuilder& b, ValueId x, const OpenAxes& axes, Shape shape);

}  // namespace ingot
