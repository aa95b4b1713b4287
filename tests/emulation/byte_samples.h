// Products of 8-bit integers, built by hand, for tests of the bytes unit of the tensor cores: what QLinearMatMul,
// MatMulInteger and their convolutions become.
#pragma once

#include "tests/emulation/sample_kernels.h"

namespace ingot::samples {

/// What becomes of the sums: themselves; a corrected, scaled and rounded byte; a scaled value of 16 bits.
enum class ByteResult { Sums, Bytes, Halves };

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

}  // namespace ingot::samples
