// Operators of the domain com.microsoft that exporters leave behind, in terms of the standard's.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "compiler/expr/simplify.h"
#include "compiler/ops/attention.h"

namespace ingot {
namespace {

constexpr std::string_view kDomain = "com.microsoft";

// ---- activations ---------------------------------------------------------------------------------------------------------
ValueId gelu(Compose& g, ValueId x) {
  const ValueId inner = g.add(g.unary("Erf", g.mul(x, 0.70710678118654752440)), 1.0);
  return g.mul(x, g.mul(inner, 0.5));
}
ValueId gelu_tanh(Compose& g, ValueId x) {
  const ValueId cube = g.mul(g.mul(x, x), x);
  const ValueId inner = g.mul(g.add(x, g.mul(cube, 0.044715)), 0.79788456080286535588);
  return g.mul(x, g.mul(g.add(g.unary("Tanh", inner), 1.0), 0.5));
}
template <ValueId (*F)(Compose&, ValueId)>
Result<Values> import_gelu(ImportContext& c) {
  Compose g(c.builder);
  ValueId x = g.widen(c.in(0));
  if (c.has(1)) x = g.add(x, g.widen(c.in(1)));
  return g.result({g.cast(F(g, x), c.type(0).dtype)});
}
Result<Values> import_quick_gelu(ImportContext& c) {
  Compose g(c.builder);
  const ValueId x = g.widen(c.in(0));
  return g.result({g.cast(g.mul(x, g.unary("Sigmoid", g.mul(x, INGOT_TRY(c.node.float_or("alpha", 1.702))))), c.type(0).dtype)});
}

// ---- norms ---------------------------------------------------------------------------------------------------------------
struct Normed {
  ValueId y, mean, inverse;
};
/// Over the axes from `axis` on; without a mean when not centred.
Normed norm(Compose& g, ValueId x, int64_t axis, double epsilon, bool centred, ValueId scale, ValueId bias) {
  if (g.failed()) return {};
  std::vector<int64_t> axes(g.rank(x) - static_cast<size_t>(axis));
  std::iota(axes.begin(), axes.end(), axis);
  Normed n;
  ValueId d = x;
  if (centred) {
    n.mean = g.reduce("ReduceMean", x, axes);
    d = g.sub(x, n.mean);
  }
  n.inverse = g.unary("Rsqrt", g.add(g.reduce("ReduceMean", g.mul(d, d), axes), epsilon));
  n.y = g.mul(d, n.inverse);
  if (scale.valid()) n.y = g.mul(n.y, g.cast(scale, g.dtype(n.y)));
  if (bias.valid()) n.y = g.add(n.y, g.cast(bias, g.dtype(n.y)));
  return n;
}
/// input, skip, gamma, beta (not of the simplified form), bias.
template <bool centred>
Result<Values> import_skip_norm(ImportContext& c) {
  Compose g(c.builder);
  const DType type = c.type(0).dtype;
  ValueId sum = g.add(g.widen(c.in(0)), g.widen(c.in(1)));
  const size_t bias = centred ? 4 : 3;
  if (c.has(bias)) sum = g.add(sum, g.widen(c.in(bias)));
  const auto axis = static_cast<int64_t>(c.rank(0)) - 1;
  const Normed n = norm(g, sum, axis, INGOT_TRY(c.node.float_or("epsilon", 1e-12)), centred, c.in(2), centred ? c.in(3) : ValueId());
  return g.result({g.cast(n.y, type), n.mean, n.inverse, g.cast(sum, type)});
}
Result<Values> import_simplified_norm(ImportContext& c) {
  Compose g(c.builder);
  const int64_t axis = INGOT_TRY(wrap_axis(INGOT_TRY(c.node.int_or("axis", -1)), c.rank(0)));
  const Normed n = norm(g, g.widen(c.in(0)), axis, INGOT_TRY(c.node.float_or("epsilon", 1e-5)), false, c.in(1), {});
  return g.result({g.cast(n.y, c.has(1) ? c.type(1).dtype : c.type(0).dtype), n.inverse});
}
/// input_ids, segment_ids, word, position, segment embeddings, gamma, beta, mask, position_ids.
Result<Values> import_embed_norm(ImportContext& c) {
  Compose g(c.builder);
  const Shape ids = c.type(0).shape;
  if (ids.size() != 2) return invalid("input_ids need rank 2");
  ValueId sum = g.widen(g.gather(c.in(2), c.in(0), 0));
  const ValueId positions = c.has(8) ? c.in(8) : g.position({1, ids[1]}, 1);
  sum = g.add(sum, g.widen(g.gather(c.in(3), positions, 0)));
  if (c.has(1) && c.has(4)) sum = g.add(sum, g.widen(g.gather(c.in(4), c.in(1), 0)));
  const Normed n = norm(g, sum, 2, INGOT_TRY(c.node.float_or("epsilon", 1e-12)), true, c.in(5), c.in(6));
  const DType type = c.type(2).dtype;
  ValueId mask_index;
  if (c.has(7)) mask_index = g.reduce("ReduceSum", c.in(7), {1}, false);
  else mask_index = g.full(DType::I32, 0, {ids[0]});
  return g.result({g.cast(n.y, type), mask_index, g.cast(sum, type)});
}

// ---- FusedMatMul ---------------------------------------------------------------------------------------------------------
/// transBatch moves the matrix' first axis to the front of the last: [m, batch…, k] is [batch…, m, k].
ValueId fused_operand(Compose& g, ValueId x, bool transpose, bool batch) {
  if (g.failed() || g.rank(x) < 2) return x;
  if (batch && g.rank(x) > 2) {
    std::vector<int64_t> perm(g.rank(x));
    std::iota(perm.begin(), perm.end(), 0);
    std::rotate(perm.begin(), perm.begin() + 1, perm.end() - 1);
    x = g.transpose(x, perm);
  }
  return transpose ? g.swap_last(x) : x;
}
Result<Values> import_fused_matmul(ImportContext& c) {
  Compose g(c.builder);
  auto flag = [&](const char* name) { return c.node.int_or(name, 0); };
  const ValueId a = fused_operand(g, c.in(0), INGOT_TRY(flag("transA")) != 0, INGOT_TRY(flag("transBatchA")) != 0);
  const ValueId b = fused_operand(g, c.in(1), INGOT_TRY(flag("transB")) != 0, INGOT_TRY(flag("transBatchB")) != 0);
  if (g.failed()) return g.result({});
  const ValueId y = g.take(build_matmul(c.builder, a, b));
  const double alpha = INGOT_TRY(c.node.float_or("alpha", 1));
  return g.result({alpha == 1 ? y : g.mul(y, alpha)});
}

// ---- attention -----------------------------------------------------------------------------------------------------------
/// A padding mask [B] (lengths), [B, T] or [B, S, T] of integers as bool against [B, H, S, T].
Result<ValueId> padding_mask(ImportContext& c, Compose& g, size_t input, const Expr& total) {
  const Shape s = c.type(input).shape;
  if (s.size() == 1) {
    const ValueId lengths = g.reshape(g.cast(c.in(input), DType::I64), {s[0], 1, 1, 1});
    return g.binary("Less", g.position({1, 1, 1, total}, 3), lengths);
  }
  const ValueId keep = g.cast(c.in(input), DType::Bool);
  if (s.size() == 2) return g.reshape(keep, {s[0], 1, 1, s[1]});
  if (s.size() == 3) return g.reshape(keep, {s[0], 1, s[1], s[2]});
  return unsupported(fmt::format("a mask of rank {}", s.size()));
}
Result<Values> finish_attention(ImportContext& c, Compose& g, AttentionParts& p, bool causal, const Expr& past) {
  if (g.failed()) return g.result({});
  if (causal) {
    const ValueId mask = causal_mask(g, g.shape(p.q)[2], g.shape(p.k)[2], past);
    p.keep = p.keep.valid() ? g.binary("And", p.keep, mask) : mask;
  }
  p.scale = INGOT_TRY(c.node.float_or("scale", 0));
  const AttentionValues a = attend(g, p);
  return g.result({merge_heads(g, a.y)});
}
/// query, key, value [B, S, hidden], bias, key_padding_mask, attention_bias, past_key, past_value.
Result<Values> import_multi_head(ImportContext& c) {
  Compose g(c.builder);
  const int64_t heads = INGOT_TRY(c.node.int_or("num_heads", 0));
  if (heads < 1 || c.rank(0) != 3 || !c.has(1) || !c.has(2) || c.rank(1) != 3) return unsupported("packed queries, keys and values");
  ValueId q = c.in(0), k = c.in(1), v = c.in(2);
  if (c.has(3)) {
    const Expr width = c.type(0).shape[2], value_width = c.type(2).shape[2];
    q = g.add(q, g.slice(c.in(3), 0, 0, width));
    k = g.add(k, g.slice(c.in(3), 0, width, width));
    v = g.add(v, g.slice(c.in(3), 0, width * 2, value_width));
  }
  AttentionParts p{split_heads(g, q, heads), split_heads(g, k, heads), split_heads(g, v, heads)};
  Expr past = 0;
  if (c.has(6) && c.has(7)) {
    past = c.type(6).shape[2];
    p.k = g.concat({c.in(6), p.k}, 2), p.v = g.concat({c.in(7), p.v}, 2);
  }
  if (g.failed()) return g.result({});
  if (c.has(4)) p.keep = INGOT_TRY(padding_mask(c, g, 4, g.shape(p.k)[2]));
  if (c.has(5)) p.bias = c.in(5);
  auto out = INGOT_TRY(finish_attention(c, g, p, INGOT_TRY(c.node.int_or("unidirectional", 0)) != 0, past));
  out.push_back(p.k), out.push_back(p.v);
  return out;
}
/// input [B, S, hidden], weights [hidden, 3*width], bias, mask_index, past, attention_bias.
Result<Values> import_contrib_attention(ImportContext& c) {
  Compose g(c.builder);
  const int64_t heads = INGOT_TRY(c.node.int_or("num_heads", 0));
  if (heads < 1 || c.rank(0) != 3) return invalid("needs num_heads and an input of rank 3");
  if (c.has(4)) return unsupported("the past input");
  if (c.node.has("qkv_hidden_sizes")) return unsupported("qkv_hidden_sizes");
  if (INGOT_TRY(c.node.int_or("do_rotary", 0)) != 0) return unsupported("do_rotary");
  ValueId all = g.matmul(c.in(0), c.in(1));
  if (c.has(2)) all = g.add(all, c.in(2));
  if (g.failed()) return g.result({});
  const Expr width = simplify(floor_div(g.shape(all)[2], 3)), total = c.type(0).shape[1];
  auto part = [&](int64_t i) { return split_heads(g, g.slice(all, 2, width * i, width), heads); };
  AttentionParts p{part(0), part(1), part(2)};
  if (c.has(3)) p.keep = INGOT_TRY(padding_mask(c, g, 3, total));
  if (c.has(5)) p.bias = c.in(5);
  return finish_attention(c, g, p, INGOT_TRY(c.node.int_or("unidirectional", 0)) != 0, 0);
}
/// input, position_ids [1] or [B, S], cos_cache, sin_cache.
Result<Values> import_contrib_rotary(ImportContext& c) {
  Compose g(c.builder);
  const bool flat = c.rank(0) == 3, interleaved = INGOT_TRY(c.node.int_or("interleaved", 0)) != 0;
  int64_t heads = INGOT_TRY(c.node.int_or("num_heads", 0));
  const int64_t rotated = INGOT_TRY(c.node.int_or("rotary_embedding_dim", 0));
  const auto half = c.type(2).shape[1].as_int(), hidden = c.type(0).shape.back().as_int();
  if (flat && heads == 0 && half && hidden && rotated == 0) heads = *hidden / (2 * *half);
  if (flat && heads < 1) return invalid("an input of rank 3 needs num_heads");
  const ValueId x = flat ? split_heads(g, c.in(0), heads) : c.in(0);
  if (g.failed()) return g.result({});
  ValueId ids = c.in(1);
  if (c.rank(1) == 1) ids = g.add(g.position({1, g.shape(x)[2]}, 1), g.reshape(ids, {1, 1}));
  const ValueId cos = g.unsqueeze(g.gather(c.in(2), ids, 0), 1), sin = g.unsqueeze(g.gather(c.in(3), ids, 0), 1);
  const ValueId y = rotate(g, x, cos, sin, rotated ? Expr(rotated) : g.shape(x)[3], interleaved);
  return g.result({flat ? merge_heads(g, y) : y});
}

const OpDef kContrib[] = {
    import_row("Gelu", "", kRules<import_gelu<gelu>, 1>, 1, 1, kDomain),
    import_row("BiasGelu", "", kRules<import_gelu<gelu>, 1>, 2, 2, kDomain),
    import_row("FastGelu", "the tanh form", kRules<import_gelu<gelu_tanh>, 1>, 1, 2, kDomain),
    import_row("QuickGelu", "", kRules<import_quick_gelu, 1>, 1, 1, kDomain),
    import_row("SkipLayerNormalization", "", kRules<import_skip_norm<true>, 1>, 3, 5, kDomain),
    import_row("SkipSimplifiedLayerNormalization", "", kRules<import_skip_norm<false>, 1>, 3, 4, kDomain),
    import_row("SimplifiedLayerNormalization", "", kRules<import_simplified_norm, 1>, 2, 2, kDomain),
    import_row("SimplifiedLayerNormalization", "as some exporters write it", kRules<import_simplified_norm, 1>, 2, 2),
    import_row("EmbedLayerNormalization", "", kRules<import_embed_norm, 1>, 7, 9, kDomain),
    import_row("FusedMatMul", "", kRules<import_fused_matmul, 1>, 2, 2, kDomain),
    import_row("MultiHeadAttention", "separate queries, keys and values", kRules<import_multi_head, 1>, 3, 8, kDomain),
    import_row("Attention", "without past", kRules<import_contrib_attention, 1>, 2, 6, kDomain),
    import_row("RotaryEmbedding", "", kRules<import_contrib_rotary, 1>, 4, 4, kDomain),
};

}  // namespace

std::span<const OpDef> contrib_ops() { return kContrib; }

}  // namespace ingot
