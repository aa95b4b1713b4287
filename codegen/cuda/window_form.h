// Sliding windows over the rows and columns of an image with channels last: depthwise convolutions and pools, as
// prelude/window.cuh takes them.
#pragma once

#include <optional>
#include <vector>

#include "codegen/kernel/kernel.h"

namespace ingot {

/// One direction: output o reads places o * step ... o * step + taps - 1.
struct WindowSide {
  std::optional<Axis> out;        // the outputs; none: there is one
  int64_t outputs = 1, taps = 1, step = 1;
  Expr tap, place;                // the reduction's index, and the symbol that input and guard are written over
  std::vector<Expr> inside;       // conditions on the place; where one fails, the element is `fill`
};

/// What a line of results (all that differ in x alone) is combined to: `reduce` of `value`, over the window's result; then the
/// epilogue.
struct WindowLine {
  Reduce reduce;
  Expr value;
  Body epilogue;
};

/// acc = combine over the taps of input * weight; then the epilogue, and what becomes of lines.
struct WindowForm {
  Reduce reduce;
  std::vector<Axis> outer;  // all but rows, columns and channels
  Axis channels;
  WindowSide y, x;
  Expr input, weight;  // loads; weight: may be invalid
  double fill = 0;
  Body epilogue;  // over the kernel's indices and the reduction's result
  std::optional<WindowLine> line;
  RowParts parts;  // of channels, all of a result: sums of what is stored; width 0: none
  Expr stored;  // that value, over the kernel's indices and the reduction's result
};
/// Nothing where the kernel is something else, or where a window is dilated or moves by other than whole places.
std::optional<WindowForm> window_form(const Kernel& kernel);
/// A kernel of windows whose points are lines of results, or parts of the channels of one, which it combines: it may have a window_form.
bool combines_windows(const Kernel& kernel);
/// How many results of windows there are: the domain's points, or what lies on these lines, or in these parts.
Expr window_results(const Kernel& kernel);
/// Shared memory of a block: where its weights are (-1: in registers), behind what lines need; and all of it.
struct WindowShared {
  int weights_at = -1, bytes = 0;
};
WindowShared window_shared(const WindowForm& form, const Schedule& schedule);

}  // namespace ingot
