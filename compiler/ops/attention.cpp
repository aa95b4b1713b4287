// Attention and RotaryEmbedding, as products, a softmax and pointwise work that fusion puts together again.
#include "compiler/ops/attention.h"

#include <fmt/format.h>

#include <cmath>

#include "compiler/expr/simplify.h"

namespace ingot {

ValueId split_heads(Compose& g, ValueId x, const Expr& heads) {
  if (g.failed()) return x;
  const Shape s = g.shape(x);
  return g.transpose(g.reshape(x, {s[0], s[1], heads, simplify(floor_div(s[2], heads))}), {0, 2, 1, 3});
}
ValueId merge_heads(Compose& g, ValueId x) {
  if (g.failed()) return x;
  const Shape s = g.shape(x);
  return g.reshape(g.transpose(x, {0, 2, 1, 3}), {s[0], s[2], simplify(s[1] * s[3])});
}
ValueId causal_mask(Compose& g, const Expr& rows, const Expr& columns, const Expr& offset) {
  const ValueId row = g.position({rows, 1}, 0), column = g.position({1, columns}, 1);
  const ValueId shift = g.take(build_values(g.builder(), DType::I64, {}, {simplify(offset)}));
  return g.binary("LessOrEqual", column, g.add(row, shift));
}

namespace {

/// The product of heads that share a key head: it is read again for each of them, in place. No copy is made.
ValueId grouped_product(Compose& g, ValueId x, ValueId y, const Expr& kv_heads) {
  if (g.failed()) return x;
  const Shape s = g.shape(x), t = g.shape(y);
  if (proves_equal(s[1], kv_heads)) return g.matmul(x, y);
  const Expr share = simplify(floor_div(s[1], kv_heads));
  const ValueId shared = g.expand(g.reshape(y, {t[0], kv_heads, 1, t[2], t[3]}), {t[0], kv_heads, share, t[2], t[3]});
  return g.matmul(x, g.reshape(shared, {t[0], s[1], t[2], t[3]}));
}

/// What broadcasts to [B, Hq, 1, T] for [B, Hkv, Hq / Hkv, T].
ValueId by_groups(Compose& g, ValueId mask, const Expr& kv_heads) {
  if (!mask.valid() || g.failed()) return mask;
  Shape s = g.shape(mask);
  const size_t rank = s.size();
  if (rank < 3 || s[rank - 3].is_const(1)) return mask;
  s[rank - 2] = simplify(floor_div(s[rank - 3], kv_heads));
  s[rank - 3] = kv_heads;
  return g.reshape(mask, s);
}

AttentionValues attend_apart(Compose& g, const AttentionParts& p) {
  AttentionValues out;
  const DType type = g.dtype(p.q);
  const Expr kv_heads = g.shape(p.k)[1], width = g.shape(p.q)[3];
  const ValueId q = g.widen(p.q);
  ValueId scores = grouped_product(g, q, g.swap_last(g.widen(p.k)), kv_heads);
  if (p.scale != 0) scores = g.mul(scores, p.scale);
  else if (width.as_int()) scores = g.mul(scores, 1 / std::sqrt(static_cast<double>(*width.as_int())));
  else g.fail(unsupported("a head size that is dynamic needs an explicit scale"));
  out.raw = scores;
  if (p.softcap != 0) scores = g.mul(g.unary("Tanh", g.mul(scores, 1 / p.softcap)), p.softcap);
  out.capped = scores;
  if (p.bias.valid()) scores = g.add(scores, g.cast(p.bias, g.dtype(scores)));
  if (p.keep.valid()) scores = g.where(p.keep, scores, g.scalar(g.dtype(scores), -INFINITY));
  out.biased = scores;
  scores = g.cast(scores, p.softmax_type);
  if (p.bias.valid() || (p.keep.valid() && !p.rows_see)) {
    // A row of -inf only has no maximum to subtract.
    const ValueId top = g.unary("FiniteOrZero", g.reduce("ReduceMax", scores, {3}));
    const ValueId e = g.unary("Exp", g.sub(scores, top)), sum = g.reduce("ReduceSum", e, {3});
    const ValueId zero = g.scalar(p.softmax_type, 0), none = g.binary("Equal", sum, zero);
    out.softmax = g.div(e, g.where(none, g.scalar(p.softmax_type, 1), sum));
  } else {
    out.softmax = g.softmax(scores, 3);
  }
  const ValueId weights = g.cast(out.softmax, g.dtype(q));
  out.y = g.cast(grouped_product(g, weights, g.widen(p.v), kv_heads), type);
  return out;
}

}  // namespace

AttentionValues attend(Compose& g, const AttentionParts& p) {
  if (g.failed()) return {};
  const Shape q = g.shape(p.q);
  const Expr kv_heads = g.shape(p.k)[1];
  if (!q[2].is_const(1) || proves_equal(q[1], kv_heads)) return attend_apart(g, p);
  // With one query each, heads that share a key head are the queries of one head.
  AttentionParts grouped = p;
  grouped.q = g.reshape(p.q, {q[0], kv_heads, simplify(floor_div(q[1], kv_heads)), q[3]});
  grouped.bias = by_groups(g, p.bias, kv_heads);
  grouped.keep = by_groups(g, p.keep, kv_heads);
  if (g.failed()) return {};
  AttentionValues out = attend_apart(g, grouped);
  for (ValueId* v : {&out.y, &out.raw, &out.capped, &out.biased, &out.softmax})
    if (!g.failed()) *v = g.reshape(*v, {q[0], q[1], 1, g.shape(*v)[3]});
  return out;
}

ValueId rotate(Compose& g, ValueId x, ValueId cos, ValueId sin, const Expr& rotated, bool interleaved) {
  if (g.failed()) return x;
  const Shape s = g.shape(x);
  const DType type = g.dtype(x);
  const Expr half = simplify(floor_div(rotated, 2)), rest = simplify(s[3] - rotated);
  const ValueId wide = g.widen(x);
  cos = g.widen(cos), sin = g.widen(sin);
  const ValueId first = g.slice(wide, 3, 0, half, interleaved ? 2 : 1);
  const ValueId second = g.slice(wide, 3, interleaved ? Expr(1) : half, half, interleaved ? 2 : 1);
  const ValueId real = g.sub(g.mul(first, cos), g.mul(second, sin)), imaginary = g.add(g.mul(first, sin), g.mul(second, cos));
  ValueId y;
  if (interleaved) {
    const Shape pair{s[0], s[1], s[2], half, 1};
    y = g.reshape(g.concat({g.reshape(real, pair), g.reshape(imaginary, pair)}, 4), {s[0], s[1], s[2], rotated});
  } else {
    y = g.concat({real, imaginary}, 3);
  }
  if (!rest.is_const(0)) y = g.concat({y, g.slice(wide, 3, rotated, rest)}, 3);
  return g.cast(y, type);
}

namespace {

/// attn_mask as a bias or a mask of [., ., S, T]; one that is shorter than T hides what is missing.
Status read_mask(ImportContext& c, Compose& g, const Expr& total, AttentionParts& p) {
  ValueId mask = c.in(3);
  if (c.rank(3) == 1) mask = g.unsqueeze(mask, 0);
  const size_t last = g.rank(mask) - 1;
  const Expr missing = simplify(total - g.shape(mask)[last]);
  const bool is_bool = g.dtype(mask) == DType::Bool;
  if (!missing.is_const(0)) {
    if (missing.as_int() && *missing.as_int() < 0) return invalid("attn_mask is longer than the keys");
    Shape s = g.shape(mask);
    s[last] = missing;
    mask = g.concat({mask, g.full(g.dtype(mask), is_bool ? 0 : -INFINITY, s)}, last);
  }
  (is_bool ? p.keep : p.bias) = mask;
  return {};
}
ValueId both(Compose& g, ValueId a, ValueId b) { return !a.valid() ? b : !b.valid() ? a : g.binary("And", a, b); }

/// What causality and padding hide: bool, broadcast to [B, Hq, S, T].
ValueId visible(ImportContext& c, Compose& g, const AttentionParts& p, const Expr& past, bool causal) {
  const Expr rows = g.shape(p.q)[2], total = g.shape(p.k)[2];
  ValueId keep;
  if (c.has(6)) {
    const ValueId lengths = g.reshape(g.cast(c.in(6), DType::I64), {c.type(6).shape[0], 1, 1, 1});
    const ValueId column = g.position({1, 1, 1, total}, 3);
    keep = g.binary("Less", column, lengths);
    if (!causal) return keep;
    const ValueId size = g.take(build_values(c.builder, DType::I64, {}, {rows}));
    const ValueId row = g.add(g.position({1, 1, rows, 1}, 2), g.sub(lengths, size));
    return g.binary("And", keep, g.binary("LessOrEqual", column, row));
  }
  return causal ? causal_mask(g, rows, total, past) : keep;
}

Result<Values> import_attention(ImportContext& c) {
  Compose g(c.builder);
  AttentionParts p{c.in(0), c.in(1), c.in(2)};
  const bool flat = c.rank(0) == 3;
  if (flat) {
    const int64_t q_heads = INGOT_TRY(c.node.int_or("q_num_heads", 0)), kv_heads = INGOT_TRY(c.node.int_or("kv_num_heads", 0));
    if (q_heads < 1 || kv_heads < 1) return invalid("inputs of rank 3 need q_num_heads and kv_num_heads");
    p.q = split_heads(g, p.q, q_heads), p.k = split_heads(g, p.k, kv_heads), p.v = split_heads(g, p.v, kv_heads);
  }
  Expr past = 0;
  if (c.has(4) && c.has(5)) {
    past = c.type(4).shape[2];
    p.k = g.concat({c.in(4), p.k}, 2), p.v = g.concat({c.in(5), p.v}, 2);
  }
  if (g.failed()) return g.result({});
  p.scale = INGOT_TRY(c.node.float_or("scale", 0));
  p.softcap = INGOT_TRY(c.node.float_or("softcap", 0));
  const int64_t precision = INGOT_TRY(c.node.int_or("softmax_precision", 0));
  p.softmax_type = compute_type(precision ? INGOT_TRY(dtype_from_onnx(precision)) : c.type(0).dtype);
  if (c.has(3)) INGOT_TRY(read_mask(c, g, g.shape(p.k)[2], p));
  p.rows_see = !c.has(3) && !c.has(6);  // causality alone leaves the first key to each
  p.keep = both(g, p.keep, visible(c, g, p, past, INGOT_TRY(c.node.int_or("is_causal", 0)) != 0));
  const AttentionValues a = attend(g, p);
  const int64_t mode = INGOT_TRY(c.node.int_or("qk_matmul_output_mode", 0));
  const ValueId stages[] = {a.raw, a.capped, a.biased, a.softmax};
  if (mode < 0 || mode > 3) return invalid(fmt::format("qk_matmul_output_mode {}", mode));
  return g.result({flat ? merge_heads(g, a.y) : a.y, p.k, p.v, g.cast(stages[mode], c.type(0).dtype)});
}

Result<Values> import_rotary(ImportContext& c) {
  Compose g(c.builder);
  const bool interleaved = INGOT_TRY(c.node.int_or("interleaved", 0)) != 0, flat = c.rank(0) == 3;
  const int64_t heads = INGOT_TRY(c.node.int_or("num_heads", 0)), rotated = INGOT_TRY(c.node.int_or("rotary_embedding_dim", 0));
  if (flat && heads < 1) return invalid("an input of rank 3 needs num_heads");
  const ValueId x = flat ? split_heads(g, c.in(0), heads) : c.in(0);
  ValueId cos = c.in(1), sin = c.in(2);
  if (c.has(3)) cos = g.gather(cos, c.in(3), 0), sin = g.gather(sin, c.in(3), 0);
  if (g.failed()) return g.result({});
  const Expr width = rotated ? Expr(rotated) : g.shape(x)[3];
  const ValueId y = rotate(g, x, g.unsqueeze(cos, 1), g.unsqueeze(sin, 1), width, interleaved);
  return g.result({flat ? merge_heads(g, y) : y});
}

const OpDef kAttention[] = {
    import_row("Attention", "one kernel on a GPU; grouped heads, masks, key lengths, softcap, caches", kRules<import_attention, 23, 24>, 3, 7),
    import_row("RotaryEmbedding", "", kRules<import_rotary, 23>, 3, 4),
};

}  // namespace

std::span<const OpDef> attention_ops() { return kAttention; }

}  // namespace ingot
