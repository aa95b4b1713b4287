// Attention in a graph of primitives: MatMul, pointwise work, softmax written as max, sub, exp, sum and div, MatMul.
#pragma once

#include <optional>
#include <vector>

#include "compiler/ir/graph.h"
#include "compiler/support/target_traits.h"

namespace ingot {

struct AttentionMatch {
  NodeId scores, values;      // the two products
  std::vector<NodeId> nodes;  // these and all between them
};

/// The attention that ends with this product, if the target has a kernel for it: f16, bf16 or f32, at most 256 channels
/// (f32: 128) known at compile time, and nobody else reads what lies between. On the CPU only where the scores are large: its
/// kernel takes little memory, and two to three times as long as two products and a softmax. On a GPU without clusters not where
/// few heads with few queries see many keys.
std::optional<AttentionMatch> match_attention(const Graph& graph, NodeId product, const TargetTraits& target);

}  // namespace ingot
