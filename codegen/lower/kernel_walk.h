// Visiting and rewriting every expression of a kernel. Used by axis collapsing, dims collection and planners.
#pragma once

#include <functional>

#include "codegen/kernel/kernel.h"

namespace ingot {

/// Calls f on every expression, statement by statement (extents included).
void for_each_expr(const Kernel& kernel, const std::function<void(const Expr&)>& f);
/// Replaces every expression; index variables of axes are left alone.
void map_exprs(Kernel& kernel, const std::function<Expr(const Expr&)>& f);
/// The expression with these values for symbols, and simple indices and conditions.
Expr at(const Expr& e, const Bindings& bindings);
/// Calls f on every list of axes that may be collapsed.
void for_each_axes(Kernel& kernel, const std::function<void(std::vector<Axis>&)>& f);

}  // namespace ingot
