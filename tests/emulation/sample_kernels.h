// Kernels built by hand, one for each form that CUDA text takes. The tests print them, compile them for every
// architecture, and run them under the emulator against the interpreter.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "codegen/kernel/kernel.h"

namespace ingot::samples {

/// An element of a 32-bit buffer that is not random.
struct Planted {
  size_t buffer;
  int64_t element;
  uint32_t bits;
};

struct Sample {
  std::string name;
  Kernel kernel;
  std::unordered_map<std::string, int64_t> dims;  // values of the symbolic dims
  double tolerance = 1e-5;  // relative to the largest value of an output
  std::vector<Planted> planted = {};
};

/// Every sample, at sizes that leave tails everywhere.
std::vector<Sample> all_samples();

Sample broadcast_add(int64_t rows, int64_t columns, DType type);  // relu(x[n, c] + bias[c]), symbolic n
Sample shifted_pad(int64_t rows, int64_t columns);  // y[i, j] = x[i, j - 3] or 0: a lazy guard per element
Sample row_guard(int64_t rows, int64_t columns);  // the guard is the same for neighbouring elements
Sample shared_behind_guards(int64_t rows, int64_t columns);  // several guards lead to the same load
Sample math_zoo(int64_t count, DType type);
Sample gelu_forms(int64_t count);               // Gelu by erf and by tanh, f16
Sample integer_zoo(int64_t count, DType type);  // wrapping, division by zero, shifts
Sample gather_rows(int64_t count, int64_t rows, int64_t columns);  // an index from data, checked under a guard
Sample softmax(int64_t rows, int64_t columns, DType type);  // three passes over a row
Sample softmax_scratch(int64_t rows, int64_t columns);  // the row is kept in a scratch array
Sample argmax(int64_t rows, int64_t columns, bool last, bool smallest);
Sample logical_rows(int64_t rows, int64_t columns);  // And, Or, Min, Product of a row
/// Rows become columns; zeros follow where more are stored than there are.
Sample transposed_copy(int64_t n, int64_t rows, int64_t columns, int64_t stored_rows, DType type);
Sample column_sum(int64_t rows, int64_t columns);  // reduces the outer axis
Sample max_pool(int64_t n, int64_t c, int64_t h, int64_t w, bool nhwc);
/// A filter for each channel, channels last, padded to the same size at stride 1.
Sample depthwise(int64_t n, int64_t h, int64_t w, int64_t c, int64_t filter, int64_t stride, DType type);
/// The same, and the mean of each line of results (Sum), or their extreme.
Sample depthwise_lines(int64_t n, int64_t h, int64_t w, int64_t c, int64_t filter, int64_t stride, DType type, Combine combine);
Sample two_small_products(int64_t rows, int64_t k, int64_t inner, int64_t n);  // stages by way of a scratch array
/// A product's rows are combined; `between` more rows of x follow each group.
Sample rows_matmul(int64_t m, int64_t n, int64_t k, DType type, int64_t rows_of_gate, bool residual);  // rows_of_gate 0: no gate
Sample largest_of_rows(int64_t groups, int64_t together, int64_t n, int64_t k, DType type, int64_t between = 0);
Sample matmul(int64_t batch, int64_t m, int64_t n, int64_t k, bool a_transposed, bool b_transposed, DType type,
              bool batched_w = false);
Sample nan_matmul(int64_t m, int64_t n, int64_t k);  // NaN of several bit patterns, and an infinity, in x
Sample extreme_matmul(int64_t m, int64_t n,
                      int64_t k);  // f32, whose stored operands have NaN and infinities among them
Sample largest_matmul(int64_t m, int64_t n, int64_t k);  // f32 that would be infinite if it were rounded to tf32
/// relu(x w + bias + residual) for each of the batch; the residual is part of wider rows. w of f32 lies along k.
Sample residual_matmul(int64_t batch, int64_t m, int64_t n, int64_t k, DType type);
Sample conv(int64_t n, int64_t c, int64_t h, int64_t w, int64_t out, int64_t filter, int64_t stride, bool nhwc,
            DType type = DType::F32, int64_t present = 0);  // channels from `present` on count as zeros; 0: none does
/// relu of windows of h lines, of which `channels` elements count (in 16s), over images of lines of pixels of `pixel` elements each: the
/// windows of neighbours overlap. As a stem of few channels is read.
Sample overlapping_windows(int64_t images, int64_t out_h, int64_t out_w, int64_t n, int64_t taps, int64_t step, int64_t pixel, int64_t channels,
                           DType type);
/// x w + bias with rows known at run time only.
Sample dynamic_matmul(int64_t rows, int64_t n, int64_t k, DType type);
/// relu(x / 2 + 1/4) w + residual: the elements of an operand are computed.
Sample activated_matmul(int64_t m, int64_t n, int64_t k, DType type, bool b_transposed);

/// softmax(q k' / 4 + mask) v + bias: [batch, m, k], [batch, n, k], [batch, n, d], the mask [m, n], the bias [d].
/// `strided`: heads lie side by side in rows of all batches, as after a joined projection. `scaled`: without the mask.
Sample attention(int64_t batch, int64_t m, int64_t n, int64_t k, int64_t d, DType type, bool strided, bool scaled = false);
Sample extreme_attention(int64_t m, int64_t n, int64_t k, int64_t d);  // of four batch indices: infinities and NaN in q, key and value

}  // namespace ingot::samples
