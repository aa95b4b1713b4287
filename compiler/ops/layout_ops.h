// Attributes of movement operators that passes build by themselves.
#pragma once

#include <string>
#include <vector>

#include "compiler/ir/builder.h"

namespace ingot {

struct PadAttrs {
  std::vector<Expr> begins, ends;
  std::string mode = "constant";
  INGOT_FIELDS(begins, ends, mode)
};

/// x with so many zeros before and after each axis; negative numbers cut.
Result<ValueId> build_pad(GraphBuilder& b, ValueId x, std::vector<Expr> begins, std::vector<Expr> ends);

/// Unfold, [N,H,W,C] -> [N, taps*C, H, count]: element (n, q, h, o) is the input's (n, h, o*stride + q/C, q%C), so that the
/// pixels of a window of `taps` columns are its channels; those from column `used` on are zeros, whatever the pixels are.
/// W is at least (count - 1)*stride + taps.
struct UnfoldAttrs {
  int64_t taps = 1, stride = 1, used = 1;
  Expr count;
  INGOT_FIELDS(taps, stride, used, count)
};

}  // namespace ingot
