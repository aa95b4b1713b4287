// Attention with few queries, heads that share keys, and masks by position, built by hand.
#pragma once

#include "tests/emulation/sample_kernels.h"

namespace ingot::samples {

/// A query sees all keys; those up to its own position behind the ones before (causal); those below a length that memory has
/// for each batch index, which may be negative, zero or more than there are; or both, counted from the length's end.
enum class Sees { All, Causal, Length, CausalLength };

struct Decoding {
  int64_t batch = 1, heads = 8, key_heads = 2, m = 1, n = 70, k = 32, d = 32;
  DType type = DType::F16;
  Sees sees = Sees::All;
  NoLogit no_logit = NoLogit::Zero;
  bool biased = false;  // an addend for each head, query and key
  bool open = false;  // the batch is B, the queries are M, the keys are N
};
Sample decoding(const Decoding& x);

}  // namespace ingot::samples
