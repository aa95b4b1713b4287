// Shapes, sizes and grids of a program as flat code: one operation a line, each defines one i64 value. Where scales or
// bounds of type float decide sizes, the value of a line is the bits of a double. The runtime evaluates the whole of it once
// per new input shape; it knows no expression trees.
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
  Select,    // value = values[a] ? values[b] : values[c]
  FloatAdd,  // of doubles, as those below
  FloatSub,
  FloatMul,
  FloatDiv,
  FloatMin,
  FloatMax,  // a NaN operand gives NaN
  FloatEq,
  FloatNe,
  FloatLt,
  FloatLe,     // give 0 or 1
  ToFloat,     // the double of an integer
  ToInteger,   // truncates; beyond the range the nearest end of it, NaN gives 0
  ToSingle,    // rounds to f32
  SingleBits,  // the double of the f32 whose bits are the low half of values[a]
  Floor,
  Ceil,
  Round,  // to the nearest, ties to even
  Sqrt,
  Abs
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
