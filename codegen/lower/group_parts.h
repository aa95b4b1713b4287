// What the lowerings of the group kinds share: axes from indices, and where the results of a group are stored.
#pragma once

#include <span>

#include "codegen/kernel/kernel.h"
#include "codegen/lower/group_values.h"

namespace ingot {

std::vector<Axis> axes_of(const std::vector<Expr>& indices);
Store store_of(const GroupValues& values, ValueId v, const Index& index, Expr value);
/// Walks the nodes after an anchor: whatever reads a bound value at its own position becomes bound, and knows where its
/// element goes. Outputs that read nothing bound are computed where an element of their shape is.
/// Returns the stores of the group's outputs, but for what is reduced; `position`, if given, gets where each element goes.
Body epilogue_of(GroupValues& values, ValueId anchor, const Index& at, const Expr& acc, std::map<ValueId, Index>* position = nullptr);
/// Those of some outputs.
Body epilogue_of(GroupValues& values, ValueId anchor, const Index& at, const Expr& acc, std::span<const ValueId> outputs);
/// A result that is sums over parts of what the group stores, and has no anchor of its own.
inline bool sums_parts(const Node& n) { return n.op->name == "PartSums"; }
/// The value behind movement at the end of a body that only says where elements are stored.
ValueId unmoved(const Graph& body, ValueId v);
/// Where element `index` of unmoved(body, v) lies in v.
Index moved_index(const Graph& body, ValueId v, ValueId source, const Index& index);

/// A Reduce statement for node n at output index `out`, binding its (unfinished) result to `name`; and what makes its result.
Reduce reduce_of(GroupValues& values, const Node& n, const Index& out, const Index& reduced, const std::string& name);
Expr finish_of(GroupValues& values, const Node& n, const Index& out, const Expr& acc);
Index fresh_index(const std::string& prefix, const Shape& shape);

/// The statement of a product, its axes in order (lower_contraction.cpp).
void lower_contraction(GroupValues& values, Kernel& kernel);
/// The statements of a window (lower_windows.cpp).
void lower_windows(GroupValues& values, Kernel& kernel);
/// The statements of a chain (lower_chain.cpp).
void lower_chain(GroupValues& values, Kernel& kernel);
/// The statement of an attention group (lower_attention.cpp).
void lower_attention(GroupValues& values, Kernel& kernel);

}  // namespace ingot
