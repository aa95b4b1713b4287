// Operators of recurrent language models: causal convolution with a state, linear attention (unrolled), SwiGLU; and BitCast.
#include <fmt/format.h>

#include <cmath>

#include "compiler/expr/simplify.h"
#include "compiler/ops/attention.h"

namespace ingot {
namespace {

using Types = std::vector<TensorType>;

constexpr int64_t kMostSteps = 128;

Result<Values> import_swiglu(ImportContext& c) {
  Compose g(c.builder);
  const double alpha = INGOT_TRY(c.node.float_or("alpha", 1));
  const ValueId a = g.widen(c.in(0));
  const ValueId gate = g.mul(a, g.unary("Sigmoid", alpha == 1 ? a : g.mul(a, alpha)));
  return g.result({g.cast(g.mul(gate, g.widen(c.in(1))), c.type(0).dtype)});
}

// ---- CausalConvWithState -------------------------------------------------------------------------------------------------
// CausalWindow: padded [N, C, L + k - 1], weight [C, 1, k] -> [N, C, L].
Result<Types> infer_window(const OpView& v) {
  const Shape &x = v.inputs[0].shape, &w = v.inputs[1].shape;
  return Types{{v.inputs[0].dtype, {x[0], x[1], simplify(x[2] - w[2] + 1)}}};
}
ReductionForm window_form(const OpView& v) {
  ReductionForm f;
  f.extents = {v.inputs[1].shape[2]};
  return f;
}
Expr window_value(const OpView& v, const Index& out, const Index& tap) {
  return v.read(0, {out[0], out[1], out[2] + tap[0]}) * v.read(1, {out[1], 0, tap[0]});
}
/// input [N, C, L], weight [C, 1, k], bias [C], past_state [N, C, k - 1].
Result<Values> import_causal_conv(ImportContext& c) {
  Compose g(c.builder);
  const Shape x = c.type(0).shape, w = c.type(1).shape;
  if (x.size() != 3 || w.size() != 3) return invalid("input and weight need rank 3");
  const std::string activation = INGOT_TRY(c.node.string_or("activation", "none"));
  if (activation != "none" && activation != "silu" && activation != "swish") return invalid(fmt::format("activation {}", activation));
  const Expr kept = simplify(w[2] - 1);
  ValueId padded = g.widen(c.in(0));
  if (!kept.is_const(0)) {
    const ValueId past = c.has(3) ? g.widen(c.in(3)) : g.full(g.dtype(padded), 0, {x[0], x[1], kept});
    padded = g.concat({past, padded}, 2);
  }
  ValueId y = g.node("CausalWindow", {padded, g.widen(c.in(1))});
  if (c.has(2)) y = g.add(y, g.reshape(g.widen(c.in(2)), {x[1], 1}));
  if (activation != "none") y = g.mul(y, g.unary("Sigmoid", y));
  return g.result({g.cast(y, c.type(0).dtype), g.cast(g.slice(padded, 2, x[2], kept), c.type(0).dtype)});
}

// ---- LinearAttention -----------------------------------------------------------------------------------------------------
struct LinearParts {
  ValueId q, k, v, decay, beta;  // by step t: [B, H, T, …]; decay and beta may be invalid
  bool gated = false, delta = false;
  double scale = 1;
};
/// One step: the state [B, H, Dk, Dv] after token t, and the token's output [B, Hq, 1, Dv].
std::pair<ValueId, ValueId> linear_step(Compose& g, const LinearParts& p, ValueId state, int64_t t, const Expr& kv_heads) {
  auto at = [&](ValueId x) { return g.slice(x, 2, t, 1); };
  const ValueId k = g.swap_last(at(p.k));  // [B, H, Dk, 1]
  ValueId v = at(p.v);                     // [B, H, 1, Dv]
  if (p.gated) state = g.mul(state, g.unary("Exp", g.swap_last(at(p.decay))));
  if (p.delta) v = g.mul(g.sub(v, g.matmul(at(p.k), state)), at(p.beta));
  state = g.add(state, g.mul(k, v));
  if (g.failed()) return {};
  const Shape q = g.shape(p.q);
  const Expr share = simplify(floor_div(q[1], kv_heads));
  ValueId y = g.matmul(g.reshape(at(p.q), {q[0], kv_heads, share, q[3]}), state);
  if (g.failed()) return {};
  return {state, g.mul(g.reshape(y, {q[0], q[1], 1, g.shape(y)[3]}), p.scale)};
}
/// decay or beta [B, T, H] or [B, T, H*D] as [B, H, T, 1 or D].
ValueId per_head(Compose& g, ValueId x, const Expr& heads) { return split_heads(g, g.widen(x), heads); }

Result<Values> import_linear_attention(ImportContext& c) {
  Compose g(c.builder);
  const int64_t q_heads = INGOT_TRY(c.node.int_or("q_num_heads", 0)), kv_heads = INGOT_TRY(c.node.int_or("kv_num_heads", 0));
  if (q_heads < 1 || kv_heads < 1 || c.rank(0) != 3) return invalid("needs q_num_heads, kv_num_heads and inputs of rank 3");
  const auto steps = c.type(0).shape[1].as_int(), width = c.type(0).shape[2].as_int();
  if (!steps || !width || *steps > kMostSteps) return unsupported(fmt::format("sequences that are dynamic or longer than {}", kMostSteps));
  const std::string rule = INGOT_TRY(c.node.string_or("update_rule", "gated_delta"));
  LinearParts p;
  p.gated = rule == "gated" || rule == "gated_delta", p.delta = rule == "delta" || rule == "gated_delta";
  if (!p.gated && !p.delta && rule != "linear") return invalid(fmt::format("update_rule {}", rule));
  if ((p.gated && !c.has(4)) || (p.delta && !c.has(5))) return invalid("decay or beta is missing");
  p.scale = INGOT_TRY(c.node.float_or("scale", 0));
  if (p.scale == 0) p.scale = 1 / std::sqrt(static_cast<double>(*width / q_heads));
  p.q = split_heads(g, g.widen(c.in(0)), q_heads);
  p.k = split_heads(g, g.widen(c.in(1)), kv_heads);
  p.v = split_heads(g, g.widen(c.in(2)), kv_heads);
  if (p.gated) p.decay = per_head(g, c.in(4), kv_heads);
  if (p.delta) {
    const bool shared = c.type(5).shape.back().is_const(1);
    p.beta = per_head(g, c.in(5), shared ? Expr(1) : Expr(kv_heads));
  }
  if (g.failed()) return g.result({});
  const Shape k = g.shape(p.k), v = g.shape(p.v);
  ValueId state = c.has(3) ? g.widen(c.in(3)) : g.full(g.dtype(p.k), 0, {k[0], k[1], k[3], v[3]});
  std::vector<ValueId> rows;
  for (int64_t t = 0; t < *steps && !g.failed(); ++t) {
    const auto [next, y] = linear_step(g, p, state, t, kv_heads);
    state = next;
    rows.push_back(y);
  }
  const DType state_type = c.has(3) ? c.type(3).dtype : c.type(0).dtype;
  return g.result({g.cast(merge_heads(g, g.concat(rows, 2)), c.type(0).dtype), g.cast(state, state_type)});
}

// ---- BitCast -------------------------------------------------------------------------------------------------------------
Result<Types> infer_bits(const OpView& v) {
  const DType to = v.attrs.as<CastAttrs>().to, from = v.inputs[0].dtype;
  if (size_of(to) != size_of(from)) return invalid("the types differ in size");
  if (compute_type(to) != to || compute_type(from) != from) return unsupported(fmt::format("{} as {}", name_of(from), name_of(to)));
  return Types{{to, v.inputs[0].shape}};
}
Expr bits_scalar(const OpView& v, std::span<const Expr> x) {
  const DType to = v.attrs.as<CastAttrs>().to;
  const bool reinterprets = is_float(x[0].type()) != is_float(to);
  // Between integers of one size a conversion keeps the bits.
  return reinterprets ? Expr::make(ExprOp::Bits, to, {x[0]}) : cast(to, x[0]);
}
Result<Values> import_bit_cast(ImportContext& c) {
  const DType to = INGOT_TRY(dtype_from_onnx(INGOT_TRY(c.node.int_or("to", 0))));
  if (to == c.type(0).dtype) return Values{c.in(0)};
  return one(c.builder.add(op("BitCast"), CastAttrs{to}, {c.in(0)}));
}

const OpDef kLinearAttention[] = {
    import_row("SwiGLU", "", kRules<import_swiglu, 28>, 2, 2),
    lowered_row<void>("CausalWindow", "internal", {}, infer_window, Reduction{window_form, window_value}, 2, 2),
    import_row("CausalConvWithState", "", kRules<import_causal_conv, 27>, 2, 4),
    import_row("LinearAttention", "unrolled, up to 128 steps", kRules<import_linear_attention, 27>, 3, 6),
    lowered_row<CastAttrs>("BitCast", "types of one size", kRules<import_bit_cast, 26>, infer_bits, Pointwise{bits_scalar}, 1, 1),
};

}  // namespace

std::span<const OpDef> linear_attention_ops() { return kLinearAttention; }

}  // namespace ingot
