// What a graph's outputs must be, and how far off each element may be.
//
// The value is that of the graph computed in f64, operator by operator, with composites decomposed. How far off a correct
// program may be depends on the element: rounding after each operator (or not, inside a fused kernel), sums in another order,
// factors moved into weights all change intermediate values by a few units in the last place of their types. So the f64
// computation is repeated with every intermediate value moved at random by as much, operands of sums by more; the spread
// that an output element shows is its own condition, and its tolerance is a small multiple of it. Cancellation,
// large exponents and comparisons near a tie widen exactly the elements that they touch.
//
// Some repetitions have that multiple in their noise instead: whether a step (a comparison, a rounding, which of several is the
// largest) or a bend (the flat part of tanh) is within reach depends on how far off its operand may be, and does not grow
// with its result. In half of those, what is off by as much as lies between it and zero, or the other operand of Equal, becomes
// equal to it, as values do that are rounded alike. One repetition takes the terms of sums and products in the order that
// goes out of range, if there is one. Where the repetitions do not agree on whether the element is finite (f16 values near
// their limit), nothing is known of it, and it is counted as such.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tests/random_graphs/graph_edit.h"

namespace ingot::testing {

struct ExpectedOutput {
  DType type = DType::F32;
  std::vector<int64_t> dims;
  std::vector<double> value, slack;  // of each element; NaN slack: unknown
  std::vector<int64_t> whole;  // instead of `value`, which is rounded, where the type is no float
  double scale = 0;  // root of the mean square of the finite values
};

struct NoiseOptions {
  int samples = 6;
  double amplitude = 1;  // units in the last place
  DType storage = DType::F32;  // what f32 values may be rounded to between kernels: --precision
  uint64_t seed = 1;
};

/// The graph prepared for repeated evaluation at one set of sizes.
class Expectation {
 public:
  static Result<Expectation> prepare(const Graph& graph, const Sizes& sizes, const std::vector<Tensor>& inputs);
  Result<std::vector<ExpectedOutput>> evaluate(const NoiseOptions& options) const;

 private:
  struct Step;
  struct Pass;  // one evaluation
  Graph wide_;
  std::vector<Step> steps_;
  std::vector<Tensor> inputs_;
  std::vector<DType> output_types_;
  std::map<ValueId, DType> types_;  // of the wide graph's values, before they were widened

 public:
  Expectation();
  Expectation(Expectation&&) noexcept;
  Expectation& operator=(Expectation&&) noexcept;
  ~Expectation();
};

struct Comparison {
  bool equal = true;
  std::string text;  // of the worst element
  int64_t elements = 0, unknown = 0, loose = 0;  // loose: may differ by more than a tenth of the output's scale
};
Comparison compare_with(const Tensor& got, const ExpectedOutput& want);

}  // namespace ingot::testing
