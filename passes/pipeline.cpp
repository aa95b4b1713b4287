// The order of the passes, and why. The only place that knows it.
#include "passes/passes.h"

namespace ingot {
namespace {

constexpr Pass kPipeline[] = {
    {"multiply_bytes", multiply_bytes, Stage::Imported,
     "before constants fold: a weight that is dequantised is no bytes any more"},
    {"fold_early", fold_constants, Stage::Imported,
     "shape arithmetic and constant subgraphs go before anything looks at nodes"},
    {"simplify", simplify_graph, Stage::Imported, "fewer nodes to decompose"},
    {"decompose", decompose, Stage::Canonical,
     "composite operators become reductions and pointwise work, which fusion puts together again"},
    {"widen_halves", widen_halves, Stage::Canonical, "products are what they are now, and no pass behind it knows 16-bit floats"},
    {"fold_constants", fold_constants, Stage::Canonical,
     "decomposed statistics (scale / sqrt(var + eps)) become constants"},
    {"fold_scales", fold_scales, Stage::Canonical, "needs those constants; leaves products of constants behind"},
    {"fold_late", fold_constants, Stage::Canonical, "evaluates the products that fold_scales left"},
    {"sink_pools", sink_pools, Stage::Canonical,
     "before merge, which then finds one product more that reads the same value"},
    {"merge", merge_contractions, Stage::Canonical, "weights and biases are final constants now"},
    {"join_sums", join_sums, Stage::Canonical,
     "after merge, which makes parts of one value of the operands of experts"},
    {"widen_channels", widen_channels, Stage::Canonical, "after merge, which looks for products of the same value"},
    {"fold_merged", fold_constants, Stage::Canonical,
     "joins the constants of merged products, and evaluates the weights that widen_channels rearranges"},
    {"reduce_lines", reduce_lines, Stage::Canonical, "before groups are formed, and after decompose, which makes means"},
    {"describe_masks", describe_masks, Stage::Canonical, "constants are final, and nothing folds the formulas again"},
    {"simplify_late", simplify_graph, Stage::Canonical, "decomposition leaves casts and reshapes to themselves"},
    {"remove_dead", remove_dead, Stage::Canonical, "groups must not hold what nobody reads"},
    {"form_groups", form_groups, Stage::Fused, "only values between kernels have a place in memory"},
    {"fold_norms", fold_norms, Stage::Fused,
     "needs to know which kernels are products; before the weights that it scales are rounded"},
    {"assign_precision", assign_precision, Stage::Fused, "only values between kernels have a width of their own"},
    {"assign_layouts", assign_layouts, Stage::Fused, "needs to know which values those are"},
    {"join_parts", join_parts, Stage::Fused,
     "what lies side by side depends on the order of the values; what follows is code generation"},
};

}  // namespace

std::span<const Pass> pipeline() { return kPipeline; }

}  // namespace ingot
