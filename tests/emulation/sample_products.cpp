// Products, convolutions and attention by hand.
#include <fmt/format.h>

#include "compiler/expr/simplify.h"
#include "tests/emulation/sample_parts.h"

namespace ingot::samples {

Sample matmul(int64_t batch, int64_t m, int64_t n, int64_t kk, bool a_transposed, bool b_transposed, DType type,
              bool batched_w) {
  const Expr ib = index("b", batch), im = index("i", m), in = index("j", n), ik = index("k", kk);
  Kernel k = kernel("matmul_add_relu",
                    {input("x", type, {batch, m, kk}), input("w", type, {batched_w ? batch : 1, kk, n}),
                     input("bias", type, {n}), output("out0", type, {batch, m, n})},
                    {});
  const DType c = compute_type(type);
  Contract product;
  product.batch = {axis(ib)};
  product.m = {axis(im)};
  product.n = {axis(in)};
  product.k = {axis(ik)};
  product.a = Expr::load(0, type, a_transposed ? (ib * kk + ik) * m + im : (ib * m + im) * kk + ik);
  const Expr first = batched_w ? ib * (kk * n) : Expr(0);
  product.b = Expr::load(1, type, first + (b_transposed ? in * kk + ik : ik * n + in));
  product.a_type = product.b_type = type;
  product.acc = Expr::local("acc", c);
  const Expr sum = product.acc + Expr::load(2, type, in);
  product.epilogue.push_back({Store{3, (ib * m + im) * n + in, max(sum, zero_of(sum))}});
  k.body.push_back({product});
  return {fmt::format("matmul_{}x{}x{}x{}_{}{}_{}", batch, m, n, kk, a_transposed ? 't' : 'n', b_transposed ? 't' : 'n',
                      name_of(type)),
          k,
          {},
          size_of(type) == 2 ? 2e-3 : 1e-5};
}

Sample nan_matmul(int64_t m, int64_t n, int64_t kk) {
  Sample sample = matmul(1, m, n, kk, false, true, DType::F32);
  auto& product = std::get<Contract>(sample.kernel.body[0].node);
  const Expr im = product.m[0].var, ik = product.k[0].var;
  // 0x7fffffff in row 5, 0x7f800001 in row 9: written with the row, so that they are no constants.
  const Expr late = Expr::make(ExprOp::Bits, DType::F32, {cast(DType::I32, im + (0x7fffffff - 5))});
  const Expr early = Expr::make(ExprOp::Bits, DType::F32, {cast(DType::I32, im + (0x7f800001 - 9))});
  const Expr infinity = Expr::real(DType::F32, INFINITY);
  const auto at = [&](int64_t row, int64_t depth) { return logical_and(eq(im, Expr(row)), eq(ik, Expr(depth))); };
  product.a = select(at(5, 3), late, select(at(9, 2), early, select(at(7, 4), infinity, product.a)));
  sample.name = "nan_" + sample.name;
  return sample;
}

Sample extreme_matmul(int64_t m, int64_t n, int64_t kk) {
  Sample sample = matmul(1, m, n, kk, false, true, DType::F32);
  const auto a = [&](int64_t row, int64_t k, uint32_t bits) { sample.planted.push_back({0, row * kk + k, bits}); };
  const auto b = [&](int64_t row, int64_t k, uint32_t bits) { sample.planted.push_back({1, row * kk + k, bits}); };
  a(5, 3, 0x7fffffff);        // a NaN that carries into the sign when it is rounded
  a(9, 2, 0x7f800001);        // one that is an infinity where its last bits are cut off
  a(12, 4, 0x7f800000);       // infinity, and one of the other sign
  a(m - 1, kk - 1, 0xff800000);
  b(2, 4, 0x7f800000);        // meets the infinity of A
  // One of A alone in 32 of k, and one of B.
  a(28, 70, 0x7f800000);
  b(19, 40, 0xff800000);
  b(n - 1, kk - 3, 0x7fffffff);
  b(6, kk - 2, 0x7f800001);
  sample.name = "extreme_" + sample.name;
  return sample;
}

Sample largest_matmul(int64_t m, int64_t n, int64_t kk) {
  Sample sample = matmul(1, m, n, kk, false, true, DType::F32);
  sample.planted = {{0, 3 * kk + 5, 0x7f7fffff}, {0, (m - 2) * kk + 1, 0xff7ff001}, {1, 4 * kk + 7, 0x7f7fffff}};
  sample.name = "largest_" + sample.name;
  return sample;
}

Sample residual_matmul(int64_t batch, int64_t m, int64_t n, int64_t kk, DType type) {
  Sample sample = matmul(batch, m, n, kk, false, type == DType::F32, type, true);
  Kernel& k = sample.kernel;
  auto& product = std::get<Contract>(k.body[0].node);
  k.buffers[2].type = DType::F32;
  k.buffers[2].is_constant = true;
  k.buffers.insert(k.buffers.begin() + 3, input("residual", type, {batch, m, n + 16}));
  const Expr ib = product.batch[0].var, im = product.m[0].var, in = product.n[0].var;
  const Expr sum = product.acc + Expr::load(2, DType::F32, in) + Expr::load(3, type, (ib * m + im) * (n + 16) + in + 8);
  product.epilogue = {{Store{4, (ib * m + im) * n + in, max(sum, zero_of(sum))}}};
  sample.name = "residual_" + sample.name;
  return sample;
}

Sample rows_matmul(int64_t m, int64_t n, int64_t kk, DType type, int64_t rows_of_gate, bool residual) {
  const Expr im = index("i", m), in = index("j", n), ik = index("k", kk);
  const int64_t gates = rows_of_gate > 0 ? (m + rows_of_gate - 1) / rows_of_gate : 1;
  Kernel k = kernel("rows",
                    {input("x", type, {m, kk}), input("gate", type, {gates, kk}), input("w", type, {n, kk}),
                     input("bias", DType::F32, {n}), input("residual", type, {m, n}), output("out0", type, {m, n})},
                    {});
  k.buffers[2].is_constant = k.buffers[3].is_constant = true;
  Contract product;
  product.m = {axis(im)};
  product.n = {axis(in)};
  product.k = {axis(ik)};
  product.a = Expr::load(0, type, im * kk + ik);
  if (rows_of_gate > 0) product.a = product.a * Expr::load(1, type, floor_div(im, Expr(rows_of_gate)) * kk + ik);
  product.b = Expr::load(2, type, in * kk + ik);
  product.a_type = product.b_type = type;
  product.acc = Expr::local("acc", DType::F32);
  Expr sum = product.acc + Expr::load(3, DType::F32, in);
  if (residual) sum = sum + Expr::load(4, type, im * n + in);
  product.epilogue.push_back({Store{5, im * n + in, sum}});
  k.body.push_back({product});
  return {fmt::format("rows_{}x{}x{}_{}{}{}", m, n, kk, name_of(type), rows_of_gate ? "_gated" : "",
                      residual ? "_residual" : ""),
          k,
          {},
          rows_of_gate > 0 ? 1e-2 : 2e-3};
}

Sample largest_of_rows(int64_t groups, int64_t together, int64_t n, int64_t kk, DType type, int64_t between) {
  const Expr im = index("i", groups), ig = index("g", together), in = index("j", n), ik = index("k", kk);
  Kernel k = kernel("matmul_relu_max",
                    {input("x", type, {groups, together + between, kk}), input("w", type, {kk, n}),
                     output("out0", type, {groups, n})},
                    {});
  Contract product;
  product.m = {axis(im)};
  product.group = {axis(ig)};
  product.n = {axis(in)};
  product.k = {axis(ik)};
  product.a = Expr::load(0, type, (im * (together + between) + ig) * kk + ik);
  product.b = Expr::load(1, type, ik * n + in);
  product.a_type = product.b_type = type;
  product.acc = Expr::local("acc", DType::F32);
  product.combine = Combine::Max;
  product.value = max(product.acc, f32(0));
  product.combined = Expr::local("most", DType::F32);
  product.epilogue.push_back({Store{2, im * n + in, product.combined + f32(0.5)}});
  k.body.push_back({product});
  return {fmt::format("largest_{}x{}+{}x{}x{}_{}", groups, together, between, n, kk, name_of(type)),
          k,
          {},
          size_of(type) == 2 ? 2e-3 : 1e-5};
}

Sample two_small_products(int64_t rows, int64_t kk, int64_t inner, int64_t n) {
  const Expr ir = index("row", rows), i1 = index("i", inner), k1 = index("k", kk), i2 = index("j", n),
             k2 = index("l", inner);
  Kernel k = kernel(
      "two_products",
      {input("x", DType::F32, {rows, kk}), input("w", DType::F32, {inner, kk}), input("bias", DType::F32, {inner}),
       input("v", DType::F32, {n, inner}), output("out0", DType::F32, {rows, n})},
      {axis(ir)});
  for (size_t weight : {1, 2, 3}) k.buffers[weight].is_constant = true;
  k.body.push_back({Alloc{5, "line", DType::F32, Expr(inner)}});
  const Expr first = Expr::local("first", DType::F32), second = Expr::local("second", DType::F32);
  Loop fill{{axis(i1)}, {}}, write{{axis(i2)}, {}};
  fill.body.push_back(
      {reduction(first, Combine::Sum, {axis(k1)},
                 Expr::load(0, DType::F32, ir * kk + k1) * Expr::load(1, DType::F32, i1 * kk + k1), f32(0))});
  fill.body.push_back({Store{5, i1, max(first + Expr::load(2, DType::F32, i1), f32(0))}});
  write.body.push_back({reduction(second, Combine::Sum, {axis(k2)},
                                  Expr::load(5, DType::F32, k2) * Expr::load(3, DType::F32, i2 * inner + k2), f32(0))});
  write.body.push_back({Store{4, ir * n + i2, second}});
  k.body.push_back({fill});
  k.body.push_back({write});
  return {fmt::format("two_products_{}x{}x{}x{}", rows, kk, inner, n), k, {}, 1e-5};
}

Sample attention(int64_t batch, int64_t m, int64_t n, int64_t kk, int64_t d, DType type, bool strided, bool scaled) {
  const Expr ib = index("b", batch), im = index("i", m), in = index("j", n), ik = index("k", kk), id = index("d", d);
  Kernel k =
      kernel("attention",
             {input("q", type, {batch, m, kk}), input("key", type, {batch, n, kk}), input("value", type, {batch, n, d}),
              input("mask", type, {m, n}), input("bias", type, {d}), output("out0", type, {batch, m, d})},
             {});
  const auto place = [&](const Expr& row, int64_t rows, const Expr& column, int64_t columns) {
    return strided ? (row * batch + ib) * columns + column : (ib * rows + row) * columns + column;
  };
  Attend t;
  t.batch = {axis(ib)};
  t.m = {axis(im)};
  t.n = {axis(in)};
  t.k = {axis(ik)};
  t.d = {axis(id)};
  t.q = Expr::load(0, type, place(im, m, ik, kk));
  t.key = Expr::load(1, type, place(in, n, ik, kk));
  t.value = Expr::load(2, type, place(in, n, id, d));
  t.dot = Expr::local("dot", DType::F32);
  t.score = t.dot * Expr::number(DType::F32, 0.25);
  if (!scaled) t.score = t.score + Expr::load(3, type, im * n + in);
  t.acc = Expr::local("acc", DType::F32);
  t.epilogue.push_back({Store{5, place(im, m, id, d), t.acc + Expr::load(4, type, id)}});
  t.q_type = t.v_type = type;
  k.body.push_back({t});
  return {fmt::format("attention_{}x{}x{}x{}x{}_{}{}", batch, m, n, kk, d, name_of(type),
                      strided  ? "_strided"
                      : scaled ? "_scaled"
                               : ""),
          k,
          {},
          type == DType::BF16  ? 1e-2
          : type == DType::F16 ? 2e-3
                               : 1e-5};
}

Sample extreme_attention(int64_t m, int64_t n, int64_t kk, int64_t d) {
  Sample s = attention(4, m, n, kk, d, DType::F32, false, true);
  const auto plant = [&](int buffer, int64_t batch, int64_t row, int64_t column, uint32_t bits) {
    const int64_t rows = buffer == 0 ? m : n, columns = buffer == 2 ? d : kk;
    s.planted.push_back({static_cast<size_t>(buffer), (batch * rows + row) * columns + column, bits});
  };
  plant(0, 0, 3, 5, 0x7f800000);  // all logits of a row are infinite or NaN
  plant(0, 0, m - 1, 1, 0x7f800001);
  plant(1, 1, 7, 3, 0x7f800000);  // every row has an infinite logit, of either sign
  plant(2, 2, 9, 4, 0x7f800000);
  plant(2, 2, n - 1, 5, 0xff800000);
  plant(2, 3, 1, d - 1, 0x7fffffff);
  s.name = "extreme_" + s.name;
  return s;
}

Sample conv(int64_t n, int64_t c, int64_t h, int64_t w, int64_t out, int64_t filter, int64_t stride, bool nhwc,
            DType type, int64_t present) {
  const int64_t pad = filter / 2, p = (h + 2 * pad - filter) / stride + 1, q = (w + 2 * pad - filter) / stride + 1;
  const Expr in = index("n", n), ic = index("c", c), ip = index("p", p), iq = index("q", q), io = index("o", out),
             r = index("r", filter), s = index("s", filter);
  const auto shape = [&](int64_t a, int64_t channels, int64_t rows, int64_t columns) {
    return nhwc ? std::vector<Expr>{a, rows, columns, channels} : std::vector<Expr>{a, channels, rows, columns};
  };
  Kernel k = kernel("conv_relu",
                    {input("x", type, shape(n, c, h, w)), input("w", type, shape(out, c, filter, filter)),
                     input("bias", type, {out}), output("out0", type, shape(n, out, p, q))},
                    {});
  const Expr y = ip * stride + r - pad, x = iq * stride + s - pad;
  const Expr inside =
      logical_and(logical_and(ge(y, Expr(0)), lt(y, Expr(h))), logical_and(ge(x, Expr(0)), lt(x, Expr(w))));
  const Expr from = nhwc ? ((in * h + y) * w + x) * c + ic : ((in * c + ic) * h + y) * w + x;
  const Expr weight = nhwc ? ((io * filter + r) * filter + s) * c + ic : ((io * c + ic) * filter + r) * filter + s;
  Contract product;
  product.m = {axis(in), axis(ip), axis(iq)};
  product.n = {axis(io)};
  product.k = nhwc ? std::vector<Axis>{axis(r), axis(s), axis(ic)} : std::vector<Axis>{axis(ic), axis(r), axis(s)};
  const Expr pixel = Expr::load(0, type, from);
  product.a = select(inside, present > 0 ? select(lt(ic, present), pixel, f32(0)) : pixel, f32(0));
  product.b = Expr::load(1, type, weight);
  product.a_type = product.b_type = type;
  product.acc = Expr::local("acc", DType::F32);
  const Expr sum = product.acc + Expr::load(2, type, io);
  product.epilogue.push_back(
      {Store{3, nhwc ? ((in * p + ip) * q + iq) * out + io : ((in * out + io) * p + ip) * q + iq, max(sum, f32(0))}});
  k.body.push_back({product});
  return {fmt::format("conv{}x{}_s{}_{}_{}{}", filter, filter, stride, nhwc ? "nhwc" : "nchw", name_of(type),
                      present > 0 ? fmt::format("_of{}", present) : ""),
          k,
          {},
          size_of(type) == 2 ? 2e-3 : 1e-5};
}

Sample overlapping_windows(int64_t images, int64_t out_h, int64_t out_w, int64_t n, int64_t taps, int64_t step,
                           int64_t pixel, int64_t channels, DType type) {
  const int64_t whole = (channels + 15) / 16 * 16, low = -(taps / 2), h = (out_h - 1) * step + 1,
                line = ((out_w - 1) * pixel + whole + 7) / 8 * 8;
  const Expr image = index("image", images), ip = index("p", out_h), iq = index("q", out_w), io = index("o", n),
             r = index("r", taps), c = index("c", whole), y = ip * step + r + low;
  Kernel k = kernel("windows",
                    {input("x", type, {images, h, line}), input("w", type, {n, taps, whole}), input("bias", type, {n}),
                     output("out0", type, {images, out_h, out_w, n})},
                    {});
  k.buffers[1].is_constant = k.buffers[2].is_constant = true;
  Contract product;
  product.m = {axis(image), axis(ip), axis(iq)};
  product.n = {axis(io)};
  product.k = {axis(r), axis(c)};
  const Expr x = Expr::load(0, type, (image * h + y) * line + iq * pixel + c),
             inside = logical_and(ge(y, Expr(0)), lt(y, Expr(h)));
  product.a = select(inside, channels < whole ? select(lt(c, channels), x, f32(0)) : x, f32(0));
  product.b = Expr::load(1, type, (io * taps + r) * whole + c);
  product.a_type = product.b_type = type;
  product.acc = Expr::local("acc", DType::F32);
  product.epilogue.push_back(
      {Store{3, ((image * out_h + ip) * out_w + iq) * n + io, max(product.acc + Expr::load(2, type, io), f32(0))}});
  k.body.push_back({product});
  return {fmt::format("windows{}_s{}_{}x{}_{}of{}_{}", taps, step, out_h, out_w, channels, pixel, name_of(type)),
          k,
          {},
          2e-3};
}

Sample activated_matmul(int64_t m, int64_t n, int64_t kk, DType type, bool b_transposed) {
  const Expr im = index("i", m), in = index("j", n), ik = index("k", kk);
  Kernel k = kernel("mul_relu_matmul_add",
                    {input("x", type, {m, kk}), input("w", type, {kk, n}), input("residual", type, {m, n}),
                     output("out0", type, {m, n})},
                    {});
  Contract product;
  product.m = {axis(im)};
  product.n = {axis(in)};
  product.k = {axis(ik)};
  product.a = round_to(type, max(Expr::load(0, type, im * kk + ik) * f32(0.5) + f32(0.25), f32(0)));
  product.b = Expr::load(1, type, b_transposed ? in * kk + ik : ik * n + in);
  product.a_type = product.b_type = type;
  product.acc = Expr::local("acc", DType::F32);
  product.epilogue.push_back({Store{3, im * n + in, product.acc + Expr::load(2, type, im * n + in)}});
  k.body.push_back({product});
  return {
      fmt::format("activated_matmul_{}x{}x{}_{}", m, n, kk, name_of(type)), k, {}, size_of(type) == 2 ? 8e-3 : 1e-5};
}

Sample dynamic_matmul(int64_t rows, int64_t n, int64_t kk, DType type) {
  const Expr m = Expr::symbol("N", 1, 65536);
  const Expr im = index("i", m), in = index("j", n), ik = index("k", kk);
  Kernel k = kernel(
      "matmul_add",
      {input("x", type, {m, kk}), input("w", type, {kk, n}), input("bias", type, {n}), output("out0", type, {m, n})},
      {});
  k.dims = {m};
  Contract product;
  product.m = {axis(im)};
  product.n = {axis(in)};
  product.k = {axis(ik)};
  product.a = Expr::load(0, type, im * kk + ik);
  product.b = Expr::load(1, type, ik * n + in);
  product.a_type = product.b_type = type;
  product.acc = Expr::local("acc", DType::F32);
  product.epilogue.push_back({Store{3, im * n + in, product.acc + Expr::load(2, type, in)}});
  k.body.push_back({product});
  return {fmt::format("dynamic_matmul_{}x{}x{}_{}", rows, n, kk, name_of(type)),
          k,
          {{"N", rows}},
          size_of(type) == 2 ? 2e-3 : 1e-5};
}

}  // namespace ingot::samples
