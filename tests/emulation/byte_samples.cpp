#include "tests/emulation/byte_samples.h"

#include <fmt/format.h>

#include "compiler/expr/combine.h"
#include "compiler/expr/simplify.h"

namespace ingot::samples {

namespace {

Axis axis(const char* name, int64_t extent) { return {Expr::index(name, extent), extent}; }
Expr widened(int buffer, DType type, const Expr& at) { return cast(DType::I32, Expr::load(buffer, type, at)); }
const char* name_of_result(ByteResult r) {
  return r == ByteResult::Sums ? "sums" : r == ByteResult::Bytes ? "bytes" : "halves";
}
DType type_of(ByteResult r) {
  return r == ByteResult::Sums ? DType::I32 : r == ByteResult::Bytes ? DType::I8 : DType::F16;
}

/// Buffers 2 and 3 are a correction and a scale for each column; 4 is the output.
Store store_of(ByteResult result, const Expr& acc, const Expr& column, const Expr& at) {
  if (result == ByteResult::Sums) return {4, at, acc};
  const Expr corrected = acc - Expr::load(2, DType::I32, column);
  const Expr scaled = cast(DType::F32, corrected) * Expr::load(3, DType::F32, column);
  if (result == ByteResult::Halves) return {4, at, scaled};
  const Expr rounded = call(Fn::Round, scaled * number_like(scaled, 0.01)) + number_like(scaled, 3);
  const Expr bounded = max(number_like(scaled, -128), min(number_like(scaled, 127), rounded));
  return {4, at, cast(DType::I8, bounded)};
}

Sample sample_of(const std::string& name, Kernel kernel, Contract product, const Expr& column, const Expr& at,
                 int64_t columns, std::vector<Expr> shape, ByteResult result) {
  product.acc = Expr::local("acc", DType::I32);
  product.epilogue.push_back({store_of(result, product.acc, column, at)});
  kernel.name = "matmulinteger";
  kernel.buffers[1].is_constant = true;
  kernel.buffers.push_back({"correction", DType::I32, {columns}, false, true});
  kernel.buffers.push_back({"scale", DType::F32, {columns}, false, true});
  kernel.buffers.push_back({"out0", type_of(result), std::move(shape), true});
  kernel.body.push_back({std::move(product)});
  return {name, std::move(kernel), {}, result == ByteResult::Halves ? 1e-3 : 0};
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
          byte_conv(2, 32, 7, 9, 40, 3, 1, true, us, ByteResult::Bytes),
          byte_conv(2, 16, 11, 8, 24, 3, 2, true, ss, ByteResult::Halves),
          byte_conv(1, 5, 9, 9, 17, 3, 1, false, us, ByteResult::Bytes),
          byte_conv(3, 64, 5, 6, 64, 1, 1, true, uu, ByteResult::Sums)};
}

}  // namespace ingot::samples
