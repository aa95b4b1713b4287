// How far off a correct program's results of one node may be, by its operator, its types and its number of terms.
#pragma once

#include <cstdint>
#include <string_view>

#include "compiler/ir/graph.h"
#include "tests/random_graphs/term_order.h"

namespace ingot::testing {

/// Half the distance between neighbours, relative to the value.
double unit_of(DType t);
/// Values below this may be flushed or lose digits.
double tiny_of(DType t);

/// Results that are one of the operands or a small integer: nothing is rounded.
bool is_exact(const Node& n);
/// Where its first operand passes a threshold, its result is another one.
bool jumps(const Node& n, DType result);
/// Functions may be off by a few units of f32, and those that end in a difference by units of `base + |x|*by_input`.
struct FunctionError {
  double units = 0, base = 0, by_input = 0;
  double growth = 0;  // the exponent is a product that was rounded: units of the result for each unit of x
  double by_largest = 0;  // weights that follow from coordinates, zero among them: units of the largest operand
};
FunctionError function_error(std::string_view name);
/// What the node combines, for orders that go out of range on the way.
TermOrder order_of(const Graph& g, const Node& n, DType type, int64_t terms);
/// By their size, the operands that are part of the kernel's text: no noise reaches them as operands.
double numbers_in_text(const Graph& g, const Node& n);
/// How many terms an element of the node sums; 0 when it sums none.
int64_t terms_of(const Graph& g, const Node& n);
/// The second product of attention. Where its values are stored in 16 bits, tensor cores multiply them with weights of as many.
bool follows_softmax(const Graph& g, const Node& n);

}  // namespace ingot::testing
