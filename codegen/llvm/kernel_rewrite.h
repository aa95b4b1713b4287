// Rewrites of kernel bodies that make them fit for vectors: axes of extent 1 dropped, neighbouring axes merged where
// memory is contiguous across them, index Lets inlined, small windows unrolled. Kernel in, kernel out; no LLVM.
#pragma once

#include <functional>

#include "codegen/kernel/kernel.h"

namespace ingot::cpu {

/// Applies `f` to every expression of the statements (values, indices, conditions, extents, sizes), nested ones
/// included.
Body map_body(const Body& body, const std::function<Expr(const Expr&)>& f);
/// Calls `f` for every expression as in map_body; the index of a Store comes as a Load of the same element.
void for_each_expr(const Body& body, const std::function<void(const Expr&)>& f);

/// Replaces symbols, and simplifies what changed.
Body substitute_body(const Body& body, const Bindings& bindings);

/// Removes axes of extent 1 and adds their symbols (as 0) to `zeros`.
void drop_unit_axes(std::vector<Axis>& axes, Bindings& zeros);
/// Merges neighbouring axes whose symbols occur in `roots` only inside of load indices that are contiguous across the
/// two. Returns the substitutions that the merged axes need.
Bindings merge_axes(std::vector<Axis>& axes, std::vector<Expr> roots);
/// Both of the above for the axes of a kernel or loop around `body`.
void simplify_axes(std::vector<Axis>& axes, Body& body);

/// Let of index arithmetic (i64, no load) replaced by its value.
Body inline_index_lets(const Body& body);
/// Reductions over at most `limit` constant positions become Lets of the combined values; of longer ones, the last axes
/// are unrolled within that limit: partial sums that do not wait for each other, and guards without loop variables.
Body unroll_reductions(const Body& body, int64_t limit);

/// The guards of a body around which a loop over `symbol` is worth splitting: comparisons of index arithmetic,
/// conjuncts of the condition of a Select with no load on its other side, linear in `symbol` or free of it, over
/// symbols known at the loop.
struct Guards {
  std::vector<Expr> in_symbol;  // depend on the symbol, with a constant coefficient
  std::vector<Expr> uniform;
  bool empty() const { return in_symbol.empty() && uniform.empty(); }
};
Guards find_guards(const Body& body, const std::string& symbol);

bool has_statement(const Body& body, const std::function<bool(const Stmt&)>& test);
int64_t body_flops(const Body& body);  // of one execution; loops of unknown extent count 256 times

}  // namespace ingot::cpu
