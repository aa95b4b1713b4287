#include "tests/emulation/byte_samples.h"

#include <fmt/format.h>

#include "compiler/expr/combine.h"
#include "compiler/expr/simplify.h"
#include "compiler/ops/operands.h"

namespace ingot::samples {

namespace {

Axis axis(const char* name, int64_t extent) { return {Expr::index(name, extent), extent}; }
Expr widened(int buffer, DType type, const Expr& at) {
  const Expr load = Expr::load(buffer, type, at);
  return is_f8(type) ? load : cast(DType::I32, load);
}
const char* name_of_result(ByteResult r) {
  return r == ByteResult::Sums    ? "sums"
         : r == ByteResult::Bytes ? "bytes"
         : r == ByteResult::Added ? "added"
                                  : "halves";
}
DType type_of(ByteResult r, bool f8) {
  if (r == ByteResult::Halves) return DType::F16;
  return r == ByteResult::Sums ? (f8 ? DType::F32 : DType::I32) : f8 ? DType::F8E4M3 : DType::I8;
}
/// Of f8: tensor cores cut sums off, and what they round to 8 bits may be the neighbour.
double tolerance_of(ByteResult r, bool f8) {
  if (!f8) return r == ByteResult::Halves ? 1e-3 : 0;
  return r == ByteResult::Halves ? 1.5e-3 : r == ByteResult::Sums ? 1e-3 : 0.13;
}

/// Buffers 2 and 3 are a correction and a scale for each column; 4 is the output, 5 is what may be added.
Store store_of(ByteResult result, const Expr& acc, const Expr& column, const Expr& at) {
  if (result == ByteResult::Sums) return {4, at, acc};
  const bool f8 = is_float(acc.type());
  const Expr corrected = f8 ? acc : acc - Expr::load(2, DType::I32, column);
  const Expr scaled = cast(DType::F32, corrected) * Expr::load(3, DType::F32, column);
  if (result == ByteResult::Halves) return {4, at, scaled};
  if (result == ByteResult::Added) {
    const DType type = type_of(result, f8);
    const Expr sum = scaled * number_like(scaled, f8 ? 1 : 0.01) + cast(DType::F32, Expr::load(5, type, at));
    return {4, at,
            f8 ? max(number_like(sum, -448), min(number_like(sum, 448), sum)) : cast(type, call(Fn::Round, sum))};
  }
  if (f8) return {4, at, max(number_like(scaled, -448), min(number_like(scaled, 448), scaled))};
  const Expr rounded = call(Fn::Round, scaled * number_like(scaled, 0.01)) + number_like(scaled, 3);
  const Expr bounded = max(number_like(scaled, -128), min(number_like(scaled, 127), rounded));
  return {4, at, cast(DType::I8, bounded)};
}

Sample sample_of(const std::string& name, Kernel kernel, Contract product, const Expr& column, const Expr& at,
                 int64_t columns, std::vector<Expr> shape, ByteResult result) {
  const DType a = kernel.buffers[0].type, b = kernel.buffers[1].type;
  const bool f8 = is_f8(a);
  product.acc = Expr::local("acc", f8 ? DType::F32 : DType::I32);
  if (f8) product.a_type = a, product.b_type = b;
  product.epilogue.push_back({store_of(result, product.acc, column, at)});
  kernel.name = "matmulinteger";
  kernel.buffers[1].is_constant = true;
  kernel.buffers.push_back({"correction", DType::I32, {columns}, false, true});
  kernel.buffers.push_back({"scale", DType::F32, {columns}, false, true});
  kernel.buffers.push_back({"out0", type_of(result, f8), shape, true});
  if (result == ByteResult::Added) kernel.buffers.push_back({"residual", type_of(result, f8), std::move(shape)});
  kernel.body.push_back({std::move(product)});
  return {name, std::move(kernel), {}, tolerance_of(result, f8)};
}

}  // namespace

Sample byte_matmul(int64_t batch, int64_t m, int64_t n, int64_t k, bool a_turned, bool b_turned, ByteTypes types,
                   ByteResult result) {
  Contract c;
  c.batch = {axis("b", batch)}, c.m = {axis("i", m)}, c.n = {axis("j", n)}, c.k = {axis("k", k)};
  const Expr ib = c.batch[0].var, im = c.m[0].var, in = c.n[0].var, ik = c.k[0].var;
  Kernel kernel;
  kernel.buffers = {{"x", types.a, {batch, m, k}}, {"w", types.b, {k, n}}};
  c.a = widened(0, types.a, a_turned ? (ib * k + ik) * m + im : (ib * m + im) * k + ik);
  c.b = widened(1, types.b, b_turned ? in * k + ik : ik * n + in);
  return sample_of(fmt::format("byte_matmul_{}x{}x{}x{}_{}{}_{}{}_{}", batch, m, n, k, a_turned ? 't' : 'n',
                               b_turned ? 't' : 'n', name_of(types.a), name_of(types.b), name_of_result(result)),
                   std::move(kernel), std::move(c), in, (ib * m + im) * n + in, n, {batch, m, n}, result);
}

Sample byte_conv(int64_t n, int64_t c, int64_t h, int64_t w, int64_t out, int64_t filter, int64_t stride, bool nhwc,
                 ByteTypes types, ByteResult result) {
  const int64_t pad = filter / 2, p = (h + 2 * pad - filter) / stride + 1, q = (w + 2 * pad - filter) / stride + 1;
  const Axis in = axis("n", n), ip = axis("p", p), iq = axis("q", q), io = axis("o", out), ic = axis("c", c),
             r = axis("r", filter), s = axis("s", filter);
  const auto shape = [&](int64_t images, int64_t channels, int64_t rows, int64_t columns) {
    return nhwc ? std::vector<Expr>{images, rows, columns, channels}
                : std::vector<Expr>{images, channels, rows, columns};
  };
  Kernel kernel;
  kernel.buffers = {{"x", types.a, shape(n, c, h, w)}, {"w", types.b, shape(out, c, filter, filter)}};
  const Expr y = ip.var * stride + r.var - pad, x = iq.var * stride + s.var - pad;
  const Expr inside =
      logical_and(logical_and(ge(y, Expr(0)), lt(y, Expr(h))), logical_and(ge(x, Expr(0)), lt(x, Expr(w))));
  Contract product;
  product.m = {in, ip, iq};
  product.n = {io};
  product.k = nhwc ? std::vector<Axis>{r, s, ic} : std::vector<Axis>{ic, r, s};
  const Expr from = nhwc ? ((in.var * h + y) * w + x) * c + ic.var : ((in.var * c + ic.var) * h + y) * w + x;
  const Expr weight = nhwc ? ((io.var * filter + r.var) * filter + s.var) * c + ic.var
                           : ((io.var * c + ic.var) * filter + r.var) * filter + s.var;
  const Expr pixel = widened(0, types.a, from);
  product.a = select(inside, pixel, zero_of(pixel));
  product.b = widened(1, types.b, weight);
  const Expr at =
      nhwc ? ((in.var * p + ip.var) * q + iq.var) * out + io.var : ((in.var * out + io.var) * p + ip.var) * q + iq.var;
  return sample_of(fmt::format("byte_conv{0}x{0}_s{1}_{2}_{3}{4}_{5}", filter, stride, nhwc ? "nhwc" : "nchw",
                               name_of(types.a), name_of(types.b), name_of_result(result)),
                   std::move(kernel), std::move(product), io.var, at, out, shape(n, out, p, q), result);
}

std::vector<Sample> byte_samples() {
  constexpr ByteTypes us{DType::U8, DType::I8}, ss{DType::I8, DType::I8}, su{DType::I8, DType::U8},
      uu{DType::U8, DType::U8};
  return {byte_matmul(1, 70, 72, 96, false, true, us, ByteResult::Bytes),
          byte_matmul(1, 33, 40, 300, false, true, ss, ByteResult::Sums),
          byte_matmul(2, 40, 48, 80, false, true, su, ByteResult::Halves),
          byte_matmul(1, 37, 29, 51, false, false, uu, ByteResult::Sums),  // no two elements by one access
          byte_matmul(1, 64, 96, 144, false, false, us, ByteResult::Bytes),
          byte_matmul(2, 48, 32, 64, true, false, ss, ByteResult::Sums),
          byte_matmul(1, 130, 130, 257, true, true, us, ByteResult::Bytes),
          byte_matmul(2, 90, 144, 160, false, true, ss, ByteResult::Added),
          byte_conv(2, 32, 7, 9, 40, 3, 1, true, us, ByteResult::Bytes),
          byte_conv(2, 16, 11, 8, 24, 3, 2, true, ss, ByteResult::Halves),
          byte_conv(1, 5, 9, 9, 17, 3, 1, false, us, ByteResult::Bytes),
          byte_conv(3, 64, 5, 6, 64, 1, 1, true, uu, ByteResult::Sums)};
}

Sample f8_squares(int64_t m, int64_t k) {
  Contract c;
  c.m = {axis("i", m)}, c.n = {axis("j", m)}, c.k = {axis("k", k)};
  const Expr im = c.m[0].var, in = c.n[0].var, ik = c.k[0].var;
  Kernel kernel;
  kernel.buffers = {{"x", DType::F8E4M3, {m, k}}, {"w", DType::F8E4M3, {1}}};
  c.a = widened(0, DType::F8E4M3, im * k + ik);
  c.b = widened(0, DType::F8E4M3, in * k + ik);
  Sample sample = sample_of(fmt::format("f8_squares_{}x{}", m, k), std::move(kernel), std::move(c), in, im * m + in, m,
                            {m, m}, ByteResult::Sums);
  sample.tolerance = 8e-4;
  return sample;
}

std::vector<Sample> f8_samples() {
  constexpr ByteTypes e44{DType::F8E4M3, DType::F8E4M3}, e54{DType::F8E5M2, DType::F8E4M3},
      e45{DType::F8E4M3, DType::F8E5M2}, e55{DType::F8E5M2, DType::F8E5M2};
  return {byte_matmul(1, 70, 72, 96, false, true, e44, ByteResult::Sums),
          byte_matmul(1, 33, 40, 300, false, true, e54, ByteResult::Sums),
          byte_matmul(2, 40, 48, 80, false, true, e45, ByteResult::Halves),
          byte_matmul(1, 37, 29, 51, false, false, e55, ByteResult::Sums),
          byte_matmul(1, 64, 96, 144, false, false, e44, ByteResult::Bytes),
          byte_matmul(2, 48, 32, 64, true, false, e45, ByteResult::Sums),
          byte_matmul(1, 130, 130, 257, true, true, e54, ByteResult::Halves),
          byte_matmul(2, 90, 144, 160, false, true, e44, ByteResult::Added),
          byte_conv(2, 32, 7, 9, 40, 3, 1, true, e44, ByteResult::Sums),
          byte_conv(2, 16, 11, 8, 24, 3, 2, true, e45, ByteResult::Halves),
          byte_conv(1, 5, 9, 9, 17, 3, 1, false, e54, ByteResult::Sums),
          byte_conv(3, 64, 5, 6, 64, 1, 1, true, e44, ByteResult::Bytes),
          f8_squares(48, 1024)};
}

}  // namespace ingot::samples
