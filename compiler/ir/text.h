// Graph <-> text. parse(print(g)) prints the same text. Constants of more than kInlineConstant elements print as their hash
// and parse as seeded random data of that type (they keep the label), so that a dump is always small enough to read.
#pragma once

#include "compiler/ir/graph.h"

namespace ingot {

constexpr int64_t kInlineConstant = 16;

std::string print_graph(const Graph& graph);
/// Error: with line and column. Operators are found through `find` (compiler/ops/registry.h: find_op), since ir knows no ops.
using OpFinder = const OpDef* (*)(std::string_view name, std::string_view domain);
Result<Graph> parse_graph(std::string_view text, OpFinder find);
/// An expression over the given symbols, as to_string prints it.
Result<Expr> parse_expr(std::string_view text, const SymbolScope& symbols);

}  // namespace ingot
