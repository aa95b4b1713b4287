// How the operands of a contraction lie in memory: what decides whether a kernel gathers them, copies them by vector, or
// has TMA send for them.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "codegen/kernel/kernel.h"

namespace ingot {

/// An operand over its own axes along k: one axis where the element lies at a fixed distance from the next along all of
/// them (the weights of a window, whatever the axes of the other operand).
struct OperandView {
  Expr value;
  std::vector<Axis> k;
};
OperandView view_of(const Contract& contract, const Expr& value);

/// An operand that is an element of a buffer, or that where `guard` holds and zero elsewhere.
struct RawAccess {
  int buffer = 0;
  Expr index, guard;  // guard: invalid when there is none
};
/// An `element` of I8 stands for bytes of either sign, F8E4M3 for both kinds of f8.
std::optional<RawAccess> raw_access(const Kernel& kernel, const Expr& value, DType element);
/// I8 or U8, where every value of this expression of type I32 is one: a byte that is widened, or a number.
std::optional<DType> byte_type(const Expr& value);
/// A guard as what it asks of one axis, to be less than a number, and the rest of it (invalid: nothing). Of no axis, null, it
/// asks nothing.
struct AxisGuard {
  std::optional<int64_t> bound;
  Expr rest;
};
AxisGuard guard_along(const Expr& guard, const Axis* axis);
/// The axis whose elements come one after the other, null where there is none.
inline const Axis* innermost(const std::vector<Axis>& axes) { return axes.empty() ? nullptr : &axes.back(); }

/// An operand that TMA can read: its elements lie at `offset`, one after the other along k or along its other side, and at
/// constant distances of whole 16 bytes along the rest.
struct OperandBox {
  int buffer = 0;
  Expr offset;             // in elements
  bool along_k = true;
  Expr inner, outer, batch;            // extents
  Expr outer_stride, batch_stride;     // in elements; of an axis of one element, of no meaning
  bool by_group = false;   // outer is the rows of a group, batch the groups
};
std::optional<OperandBox> operand_box(const Kernel& kernel, const Expr& value, const std::vector<Axis>& side,
                                      DType element);
/// The rows of A that TMA brings: of a load that A is, or is computed from along with what is read where it is used (a gate).
struct ArrivingRows {
  OperandBox box;
  Expr load;
  bool prologue = false;  // A is more than the load
};
std::optional<ArrivingRows> arriving_rows(const Kernel& kernel, DType element);
/// A box of the buffer's elements at `index`: neighbours along `inner`, rows along `outer`.
std::optional<OperandBox> box_of(int buffer, const Expr& index, const std::vector<Axis>& inner, const std::vector<Axis>& outer,
                                 const std::vector<Axis>& batch, DType element);
/// What an epilogue always loads at places that follow from the position of the result.
std::vector<Expr> epilogue_loads(const Kernel& kernel, const Contract& contract);
/// Results that go to memory by TMA (prelude/staged_results.cuh), from an epilogue that stores one value of 16 bits for each.
struct StagedResults {
  OperandBox out;
  int size = 2;  // bytes of a result, and of what comes into its place
  Expr load;       // what comes by TMA into the place of the results; invalid: nothing
  OperandBox in;
};
std::optional<StagedResults> staged_results(const Kernel& kernel);
/// An operand of attention that TMA can read: rows of neighbouring elements at a fixed distance, which begin where the batch
/// index says, at a multiple of 16 bytes.
struct OperandRows {
  int buffer = 0;
  Expr start;                       // elements, over the batch axes
  Expr rows, columns, row_stride;   // row_stride: elements; of a single row, of no meaning
};
std::optional<OperandRows> operand_rows(const Kernel& kernel, const Expr& value, const std::vector<Axis>& rows,
                                        const std::vector<Axis>& columns, DType element);
/// The rows of A as pixels of an image that a window goes over, channels last (TMA's im2col mode): pixel (h, w) of the output
/// reads rows h * step + low + tap * dilation of the input, and zeros outside of it.
struct WindowAxis {
  int64_t outputs = 1, extent = 1;   // pixels of the output, and of the input
  int64_t stride = 0;                // elements between neighbours of the input
  int64_t step = 1, low = 0, taps = 1, dilation = 1;
  /// So that the last output is the last place of the window.
  int64_t high() const { return low + (outputs - 1) * step - (extent - 1); }
};
struct OperandWindow {
  int buffer = 0;
  int64_t offset = 0, channels = 0;  // elements
  int64_t present = 0;               // channels that the image has; those behind them are zeros
  Expr images;
  int64_t image_stride = 0;
  WindowAxis h, w;
  int64_t taps() const { return h.taps * w.taps; }
};
std::optional<OperandWindow> operand_window(const Kernel& kernel, DType element);
/// The weights of a window: channels, then taps, then columns of the product.
std::optional<OperandBox> window_weights(const Kernel& kernel, DType element);
/// A window whose pixels overlap along the lines of the image (a stem's, of few channels): the lines come to shared memory once, and
/// rows of A are read from there (prelude/row_source.cuh).
struct WindowLines {
  OperandWindow window;
  int64_t length = 0;  // elements of a line
  int64_t pixels() const { return window.h.outputs * window.w.outputs; }
  /// Lines of the image under `rows` pixels of the output that begin at a multiple of `rows` pixels.
  int64_t of_tile(int64_t rows) const;
};
std::optional<WindowLines> window_lines(const Kernel& kernel, DType element);
/// A product with few columns and a short k, whose rows can arrive and leave as they lie in memory
/// (prelude/contraction_rows.cuh).
struct ProductOfRows {
  ArrivingRows a;  // with lines, only where they begin
  OperandBox b;
  StagedResults results;
  int64_t n = 0, k = 0;
  std::optional<WindowLines> lines = {};
  /// Results leave as boxes of 64 columns by 16 rows: whole ones, of one image.
  bool boxed() const { return n % 64 == 0 && (!lines || lines->pixels() % 16 == 0); }
  int buffers(int rows) const { return rows / 64 * (boxed() ? static_cast<int>(n) / 64 : 1); }  // of a warp
  /// Of A in shared memory.
  int64_t bytes_of_tile(int64_t rows) const { return 2 * (lines ? lines->of_tile(rows) * lines->length : rows * k); }
  /// Tiles of so many rows.
  Expr tiles(const Expr& m, int64_t rows) const;
};
std::optional<ProductOfRows> product_of_rows(const Kernel& kernel, DType element);
/// The distance between neighbours when the axes are one, 0 where there is one element only; nullopt when they are not one.
std::optional<Expr> common_stride(const Expr& index, const std::vector<Axis>& axes);
/// The index with zeros for the axes.
Expr index_without(Expr index, const std::vector<Axis>& axes);

}  // namespace ingot
