// A fused group of the operator graph -> a kernel. One function a group kind; all of them resolve operators through
// GroupValues, which turns "element idx of value v" into a scalar expression over the group's inputs.
#pragma once

#include "codegen/kernel/kernel.h"
#include "compiler/ir/graph.h"

namespace ingot {

/// How the values of a group are computed: which loop nest its kernel has.
enum class GroupKind : uint8_t {
  Points,       // every output element by itself
  Windows,      // every point reduces over a window, then the epilogue
  Rows,         // reductions over the same axes of one shape, with pointwise work between
  Contraction,  // a product, then the epilogue
  Attention,    // two products with a softmax between them, then the epilogue
  Chain         // small products and reductions, one after the other, of each position of the first dimension
};
const char* name_of(GroupKind kind);
std::optional<GroupKind> parse_group_kind(std::string_view name);

/// The kernel of fused node `node`. Its buffers are the node's inputs, then its outputs. Not yet scheduled or named.
Result<Kernel> lower_group(const Graph& graph, const Node& node);

/// Merges neighbouring axes that every access walks in order (i*E + j), and drops axes of extent 1.
void collapse_axes(Kernel& kernel);
/// The dims (free i64 symbols) of everything in the kernel, by name.
std::vector<Expr> free_dims(const Kernel& kernel);

}  // namespace ingot
