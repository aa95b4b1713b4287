// Products of 8-bit integers and of f8, built by hand, for tests of the tensor cores' units for them: what QLinearMatMul,
// MatMulInteger, products of dequantised f8 and their convolutions become.
#pragma once

#include "tests/emulation/sample_kernels.h"

namespace ingot::samples {

/// What becomes of the sums: themselves; a corrected (integers), scaled and rounded byte; the same with a byte added; a scaled value
/// of 16 bits.
enum class ByteResult { Sums, Bytes, Added, Halves };

struct ByteTypes {
  DType a = DType::U8, b = DType::I8;
};

/// Sums of a[batch, m, k] * b[k, n] (a_turned: a[batch, k, m]; b_turned: b[n, k]).
Sample byte_matmul(int64_t batch, int64_t m, int64_t n, int64_t k, bool a_turned, bool b_turned, ByteTypes types,
                   ByteResult result);
/// A window over images, padded, channels last or as they come.
Sample byte_conv(int64_t n, int64_t c, int64_t h, int64_t w, int64_t out, int64_t filter, int64_t stride, bool nhwc,
                 ByteTypes types, ByteResult result);

std::vector<Sample> byte_samples();

/// Rows of f8 by each other: on the diagonal are sums of squares, where what tensor cores cut off adds up.
Sample f8_squares(int64_t m, int64_t k);
/// The forms of byte_samples, of all mixes of f8.
std::vector<Sample> f8_samples();

}  // namespace ingot::samples
