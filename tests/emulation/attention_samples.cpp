#include "tests/emulation/attention_samples.h"

#include <cmath>

#include <fmt/format.h>

#include "compiler/expr/simplify.h"

namespace ingot::samples {

Sample decoding(const Decoding& x) {
  const auto extent = [&](const char* name, int64_t size) { return x.open ? Expr::symbol(name, 1, 4096) : Expr(size); };
  const Expr batches = extent("B", x.batch), queries = extent("M", x.m), keys = extent("N", x.n);
  const auto index = [](const char* name, const Expr& size) { return Expr::index(name, size); };
  const Expr ib = index("b", batches), ih = index("h", x.heads), im = index("i", queries), in = index("j", keys);
  const Expr ik = index("k", x.k), id = index("d", x.d), key_head = floor_div(ih, Expr(x.heads / x.key_heads));
  const auto buffer = [](const char* name, DType type, std::vector<Expr> shape, bool is_output = false) {
    return Buffer{name, type, std::move(shape), is_output, false};
  };
  Sample s;
  s.kernel.name = "decoding";
  s.kernel.header = {"decoding (hand-made)"};
  s.kernel.buffers = {buffer("q", x.type, {batches, x.heads, queries, x.k}),
                      buffer("key", x.type, {batches, x.key_heads, keys, x.k}),
                      buffer("value", x.type, {batches, x.key_heads, keys, x.d}),
                      buffer("lengths", DType::I64, {batches}),
                      buffer("bias", x.type, {x.heads, queries, keys}),
                      buffer("out0", x.type, {batches, queries, x.heads, x.d}, true)};
  if (x.open) {
    s.kernel.dims = {batches, queries, keys};
    s.dims = {{"B", x.batch}, {"M", x.m}, {"N", x.n}};
  }
  Attend t;
  t.batch = {{ib, batches}, {ih, x.heads}};
  t.m = {{im, queries}};
  t.n = {{in, keys}};
  t.k = {{ik, x.k}};
  t.d = {{id, x.d}};
  t.q = Expr::load(0, x.type, ((ib * x.heads + ih) * queries + im) * x.k + ik);
  t.key = Expr::load(1, x.type, ((ib * x.key_heads + key_head) * keys + in) * x.k + ik);
  t.value = Expr::load(2, x.type, ((ib * x.key_heads + key_head) * keys + in) * x.d + id);
  t.dot = Expr::local("dot", DType::F32);
  t.score = t.dot * Expr::number(DType::F32, 0.5);
  if (x.biased) t.score = t.score + Expr::load(4, x.type, (ih * queries + im) * keys + in);
  const Expr length = Expr::load(3, DType::I64, ib) * 6 + 30, below = lt(in, length);
  const Expr seen = x.sees == Sees::Causal         ? le(in, im + (keys - queries))
                    : x.sees == Sees::Length       ? below
                    : x.sees == Sees::CausalLength ? logical_and(below, le(in, im + (length - queries)))
                                                   : Expr();
  if (seen.valid()) t.score = select(seen, t.score, Expr::number(DType::F32, -INFINITY));
  t.acc = Expr::local("acc", DType::F32);
  t.epilogue.push_back({Store{5, ((ib * queries + im) * x.heads + ih) * x.d + id, t.acc}});
  t.q_type = t.v_type = x.type;
  t.no_logit = x.no_logit;
  s.kernel.body.push_back({t});
  s.name = fmt::format("decoding_{}x{}of{}_{}x{}x{}x{}_{}_{}{}{}", x.batch, x.heads, x.key_heads, x.m, x.n, x.k, x.d,
                       name_of(x.type), static_cast<int>(x.sees), x.biased ? "_biased" : "", x.open ? "_open" : "");
  s.tolerance = x.type == DType::BF16 ? 1e-2 : x.type == DType::F16 ? 2e-3 : 1e-5;
  return s;
}

}  // namespace ingot::samples
