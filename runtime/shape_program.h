// Shapes, sizes and grids of a program as flat code: one operation a line, each defines one i64 value. The runtime
// evaluates the whole of it once per new input shape; it knows no expression trees.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "compiler/support/result.h"

namespace ingot::runtime {

enum class ShapeOp : uint8_t {
  Constant,  // value = immediate
  Symbol,    // value = symbols[a]
  Add,
  Sub,
  Mul,
  Div,
  Rem,
  FloorDiv,
  FloorMod,
  Min,
  Max,
  Eq,
  Ne,
  Lt,
  Le,
  And,
  Or,  // value = values[a] op values[b]
  Not,       // value = !values[a]
  Select     // value = values[a] ? values[b] : values[c]
};

struct ShapeLine {
  ShapeOp op = ShapeOp::Constant;
  int32_t a = 0, b = 0, c = 0;  // numbers of earlier lines (Symbol: of a symbol)
  int64_t immediate = 0;
  bool operator==(const ShapeLine&) const = default;
};
using ShapeRef = int32_t;  // the number of a line

struct ShapeProgram {
  std::vector<ShapeLine> lines;
  /// Fills `values` (resized to lines.size()). Errors: an arithmetic overflow, naming the line. Division by zero gives
  /// 0.
  Status evaluate(std::span<const int64_t> symbols, std::vector<int64_t>& values) const;
  /// Errors when a line refers to itself, a later line or a symbol >= symbol_count: for programs read from a file.
  Status verify(size_t symbol_count) const;
  bool operator==(const ShapeProgram&) const = default;
};

}  // namespace ingot::runtime
