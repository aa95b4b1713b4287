// The passes. Each is a free function whose comment is its contract; pipeline.cpp is their order.
#pragma once

#include "passes/pass_manager.h"

namespace ingot {

/// Replaces every node whose inputs are all constant, and every value with known constant content, by a constant.
///   before:  %1 = Add(const, const)        after:  %1 = const
/// Leaves what would grow the file: an Expand of a scalar stays. Tests: tests/golden/fold_constants/
Result<bool> fold_constants(Graph& graph, const PassContext& ctx);

/// On GPUs, a product of quantised values multiplies what is in memory, integers or floats of 8 bits: the zero points become
/// corrections of the sums, and the scales of dequantised operands one factor behind them.
///   before:  MatMul(Mul(Sub(x, p), s), Mul(w, t))         (x, w: i32 of bytes, then f32)
///   after:   Mul(Sub(MatMul(x, w), p * ReduceSum(w)), s * t)
/// Integers are the same. Of dequantised operands the sums become exact: nothing is rounded but the sum and its scale, so the
/// product must not be so long that 32 bits do not hold it. Tests: tests/golden/multiply_bytes/
Result<bool> multiply_bytes(Graph& graph, const PassContext& ctx);
/// On a GPU, a cast to i32 of bytes, or to f32 of f8, that a product reads (f8: for both operands): it stays with the product, and
/// the 8 bits are what is stored.
bool widens_bytes_of_product(const Graph& graph, const Node& node, const PassContext& ctx);
/// Pointwise work whose result such a cast widens: the product does not repeat it, because TMA sends only for what is in memory.
bool makes_bytes_of_product(const Graph& graph, const Node& node, const PassContext& ctx);

/// Applies the rewrite rules of simplify_graph.cpp until none fires: chains of reshapes, transposes and casts, identities.
/// Tests: tests/golden/simplify/
Result<bool> simplify_graph(Graph& graph, const PassContext& ctx);

/// Removes nodes that nobody uses and merges nodes that compute the same. Tests: tests/golden/dead/
Result<bool> remove_dead(Graph& graph, const PassContext& ctx);

/// Expands every operator whose row decomposes (BatchNormalization, Softmax, norms). Tests: tests/golden/decompose/
Result<bool> decompose(Graph& graph, const PassContext& ctx);

/// In a model whose products multiply 16-bit floats, values of that type become f32, and the type how values between kernels are
/// stored (assign_precision). Inputs and outputs of the model keep their types, and what it computes in f32 is stored as f32.
///   before:  MatMul(x, w): f16[N,64]       after:  Cast(MatMul(Cast(x), w): f32[N,64]): f16[N,64]
/// Not where a product of it multiplies f32. Tests: tests/golden/widen_halves/
Result<bool> widen_halves(Graph& graph, const PassContext& ctx);

/// Moves constant per-channel factors behind a convolution or product into its weight, and joins constant additions.
///   before:  Mul(Conv(x, w), s)            after:  Conv(x, w*s)
/// The weight is never changed for another reader: a new constant is made. A product that someone else reads, or that is an
/// output, keeps its weight. Tests: tests/golden/fold_scales/
Result<bool> fold_scales(Graph& graph, const PassContext& ctx);

/// Moves an average pool that leaves the image's size as it is behind the 1x1 convolution that reads it, where it has fewer
/// channels to average: what the pool is to a position, it is to every channel. The convolution then reads what its siblings read.
///   before:  Conv(AveragePool(x), w)       after:  AveragePool(Conv(x, w))
/// Tests: tests/golden/sink_pools/
Result<bool> sink_pools(Graph& graph, const PassContext& ctx);

/// Joins products of one value with several constant weights into one product, and splits the result by slices.
///   before:  MatMul(x, wq), MatMul(x, wk)  after:  Slice(MatMul(x, [wq wk])) twice
/// Bias and activation that follow every branch alike are joined, too. Tests: tests/golden/merge_contractions/
Result<bool> merge_contractions(Graph& graph, const PassContext& ctx);

/// A sum of products with constant weights is one product of what they multiply, side by side; a factor of a row (the gate of
/// an expert) goes to the other side, where it rides on what computes the operand.
///   before:  Add(Mul(MatMul(x, w), s), Mul(MatMul(y, v), t))
///   after:   MatMul(Concat(x, y) * Concat(s, t), [w; v])
/// Where the operands are no parts of one value and others read them, too, they would be copied: these stay.
/// Tests: tests/golden/join_sums/
Result<bool> join_sums(Graph& graph, const PassContext& ctx);

/// On GPUs, a convolution of few channels (the first one of an image network) reads a copy of its input with the channels
/// last, padded to four, so that the columns of a window are contiguous and count as its channels.
///   before:  Conv(x: f16[N,3,224,224], 7x7)
///   after:   Conv(Unfold(Contiguous(Pad(Transpose(x)))): f16[N,32,224,112], 7x1)
/// One of more channels reads a copy of the model's input with the channels last.
/// Tests: tests/golden/widen_channels/
Result<bool> widen_channels(Graph& graph, const PassContext& ctx);

/// On GPUs, the mean of an image that a window computes (squeeze-and-excite behind a depthwise convolution) becomes that of the
/// means of its lines, which the window's kernel has in hand. Sums, maxima and minima likewise.
///   before:  ReduceMean(x, axes=[2, 3])    after:  ReduceMean(ReduceMean(x, axes=[3]), axes=[2, 3])
/// Tests: tests/golden/reduce_lines/
Result<bool> reduce_lines(Graph& graph, const PassContext& ctx);

/// Constants that are masks (all the same, or one value up to a diagonal and another behind it) become formulas over positions.
/// Tests: tests/golden/describe_masks/
Result<bool> describe_masks(Graph& graph, const PassContext& ctx);

/// Puts every node into a fused group: contractions and windows with their epilogues, row reductions with the pointwise
/// work around them, pointwise trees; movement becomes index maps of the groups that read or write through it.
/// Tests: tests/golden/form_groups/
Result<bool> form_groups(Graph& graph, const PassContext& ctx);

/// On GPUs with boxes, in 16 bits: a norm of rows between products is no kernel. The product before it adds up parts of its
/// rows and their squares, the ones behind it multiply rows that are not normed yet and scale the result by the row.
///   before:  %1 = fused(...) {kind="contraction"}, %2 = fused(%1) {kind="rows"}, %3 = fused(%2, w) {kind="contraction"}
///   after:   %1, %2, %3 = fused(...) {kind="contraction"} {... PartSums ... PartSums ...}, %4 = fused(%1, %2, %3, w') {kind="contraction"}
/// Tests: tests/emulation/row_parts_test.cpp
Result<bool> fold_norms(Graph& graph, const PassContext& ctx);

/// With a precision of f16 or bf16: f32 values between kernels, and weights, are stored in 16 bits, and products multiply
/// them with f32 sums. Inputs and outputs of the model keep their types.
///   before:  %1 = fused(...) {... return %9}: f32[N,64]
///   after:   %1 = fused(...) {... %10 = Cast(%9) return %10}: f16[N,64], and readers begin with a Cast to f32
/// Tests: tests/golden/assign_precision/
Result<bool> assign_precision(Graph& graph, const PassContext& ctx);

/// On GPUs, values between the kernels of a convolution network are stored with their channels last, and weights in the
/// order in which they are read. Inputs and outputs of the model keep their order.
///   before:  %1 = fused(...) {... return %9}: f32[N,64,8,8]
///   after:   %1 = fused(...) {... %10 = Transpose(%9) return %10}: f32[N,8,8,64], and readers begin with the inverse
/// Tests: tests/golden/assign_layouts/
Result<bool> assign_layouts(Graph& graph, const PassContext& ctx);

/// A group that only concatenates stops being a kernel: its parts are written into their places by the groups that compute
/// them, and read there by others.
///   before:  %3 = fused(%1, %2) {kind="points"} {... Concat ...}
///   after:   %3 = fused(%1, %2) {kind="join"} {... Concat ...}, which says where %1 and %2 lie in %3
/// What has to lie elsewhere (an output of the model, a part of another join) is stored twice; what no group computes is
/// computed beside another part, or copied. Tests: tests/golden/join_parts/
Result<bool> join_parts(Graph& graph, const PassContext& ctx);

}  // namespace ingot
