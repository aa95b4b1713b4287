#include "tests/emulation/sample_kernels.h"

#include <fmt/format.h>

#include "compiler/expr/simplify.h"
#include "tests/emulation/sample_parts.h"

namespace ingot::samples {

Sample broadcast_add(int64_t rows, int64_t columns, DType type) {
  const Expr n = Expr::symbol("N", 1, 4096);
  const Expr i = index("row", n), j = index("col", columns);
  Kernel k = kernel(
      "add_relu", {input("x", type, {n, columns}), input("bias", type, {columns}), output("out0", type, {n, columns})},
      {axis(i), axis(j)});
  k.dims = {n};
  const Expr sum = Expr::load(0, type, i * columns + j) + Expr::load(1, type, j);
  k.body.push_back({Store{2, i * columns + j, max(sum, zero_of(sum))}});
  return {fmt::format("broadcast_add_{}_{}", columns, name_of(type)),
          k,
          {{"N", rows}},
          is_float(type) && size_of(type) < 4 ? 2e-3 : 1e-6};
}

Sample shifted_pad(int64_t rows, int64_t columns) {
  const Expr i = index("row", rows), j = index("col", columns);
  Kernel k = kernel("pad", {input("x", DType::F32, {rows, columns - 3}), output("out0", DType::F32, {rows, columns})},
                    {axis(i), axis(j)});
  const Expr value = Expr::load(0, DType::F32, i * (columns - 3) + j - 3);
  k.body.push_back({Store{1, i * columns + j, select(ge(j, Expr(3)), value * value + 1, f32(0))}});
  return {"shifted_pad", k, {}, 1e-6};
}

Sample row_guard(int64_t rows, int64_t columns) {
  const Expr i = index("row", rows), j = index("col", columns);
  Kernel k = kernel("concat",
                    {input("x", DType::F32, {rows / 2, columns}), input("y", DType::F32, {rows - rows / 2, columns}),
                     output("out0", DType::F32, {rows, columns})},
                    {axis(i), axis(j)});
  const Expr half = rows / 2;
  k.body.push_back({Store{2, i * columns + j,
                          select(lt(i, half), Expr::load(0, DType::F32, i * columns + j),
                                 Expr::load(1, DType::F32, (i - half) * columns + j))}});
  return {"row_guard", k, {}, 0};
}

Sample shared_behind_guards(int64_t rows, int64_t columns) {
  const Expr n = Expr::symbol("N", 8, 4096);
  const Expr i = index("row", n), j = index("col", columns);
  std::vector<Buffer> buffers = {input("x", DType::F32, {n, columns}), input("w", DType::F32, {columns}),
                                 input("m", DType::F32, {8})};
  for (const char* name : {"out0", "out1", "out2", "out3"}) buffers.push_back(output(name, DType::F32, {n, columns}));
  Kernel k = kernel("concat", std::move(buffers), {axis(i), axis(j)});
  k.dims = {n};
  const Expr at = i * columns + j, x = Expr::load(0, DType::F32, at), w = Expr::load(1, DType::F32, j);
  k.body.push_back({Store{3, at, select(lt(i, 4), x * w, select(lt(i, 8), f32(3), x - w))}});
  // Some lanes need x where the guard does not hold.
  k.body.push_back({Store{5, at, select(lt(i, 4), x, select(lt(j, 5), x, f32(0)))}});
  // A condition that is read behind a guard.
  const Expr below = lt(Expr::load(2, DType::F32, i), f32(0));
  k.body.push_back({Store{6, at, select(lt(i, 8), select(below, x, w * 2), x)}});
  k.body.push_back({Store{4, at, w + x}});
  return {"shared_behind_guards", k, {{"N", rows}}, 1e-6};
}

Sample math_zoo(int64_t count, DType type) {
  const Expr i = index("i", count);
  Kernel k = kernel("gelu_zoo",
                    {input("x", type, {count}), output("out0", type, {count}), output("out1", DType::Bool, {count}),
                     output("out2", DType::I32, {count})},
                    {axis(i)});
  const Expr x = Expr::load(0, type, i), one = one_of(x), half = number_like(x, 0.5);
  const Expr gelu = x * half * (one + call(Fn::Erf, x * number_like(x, 0.70710678118654752)));
  const Expr t = call(Fn::Tanh, gelu) + call(Fn::Exp, min(x, one)) * call(Fn::Sigmoid, gelu);
  const Expr u = t + call(Fn::Sqrt, call(Fn::Abs, x)) + floor_mod(x, number_like(x, 1.5)) +
                 call(Fn::Pow, call(Fn::Abs, x) + one, half);
  k.body.push_back({Note{"GELU and friends"}});
  k.body.push_back({Let{Expr::local("total", x.type()), u}});
  const Expr total = Expr::local("total", x.type());
  const Expr rounded = type == DType::F32 ? round_to(DType::F16, total) : total;  // Round is defined for f32
  k.body.push_back({Store{1, i, rounded + total * half}});
  k.body.push_back({Store{2, i, logical_and(lt(x, total), logical_not(eq(x, zero_of(x))))}});
  k.body.push_back({Store{3, i, cast(DType::I32, total * number_like(x, 1e3))}});
  return {std::string("math_zoo_") + name_of(type), k, {}, 1e-3};  // a last-bit difference may round to the next f16
}

Sample gelu_forms(int64_t count) {
  const Expr i = index("i", count);
  Kernel k = kernel(
      "gelu_forms",
      {input("x", DType::F16, {count}), output("out0", DType::F16, {count}), output("out1", DType::F16, {count})},
      {axis(i)});
  const Expr x = Expr::load(0, DType::F16, i), one = one_of(x), half = number_like(x, 0.5);
  const Expr by_erf = x * (call(Fn::Erf, x / number_like(x, 1.4142135623730951)) + one) * half;
  const Expr inner = (x + x * x * x * number_like(x, 0.044715)) * number_like(x, 0.79788456080286541);
  k.body.push_back({Store{1, i, by_erf}});
  k.body.push_back({Store{2, i, half * x * (one + call(Fn::Tanh, inner))}});
  return {"gelu_forms", k, {}, 1e-3};
}

Sample integer_zoo(int64_t count, DType type) {
  const Expr i = index("i", count);
  Kernel k = kernel("integers",
                    {input("x", type, {count}), input("y", type, {count}), output("out0", type, {count}),
                     output("out1", DType::I64, {count})},
                    {axis(i)});
  const Expr x = Expr::load(0, type, i), y = Expr::load(1, type, i);
  const Expr a = x * y + x / y - rem(x, y), b = bitwise(ExprOp::Xor, floor_div(x, y), floor_mod(x, y));
  k.body.push_back({Store{
      2, i, max(a, b) + bitwise(ExprOp::Shl, x, number_like(x, 3)) + bitwise(ExprOp::Shr, y, number_like(x, 1))}});
  k.body.push_back({Store{3, i, cast(DType::I64, x) * 100000000 + i}});
  return {std::string("integer_zoo_") + name_of(type), k, {}, 0};
}

Sample gather_rows(int64_t count, int64_t rows, int64_t columns) {
  const Expr i = index("i", count), j = index("col", columns);
  Kernel k = kernel("gather",
                    {input("x", DType::F32, {rows, columns}), input("at", DType::I64, {count}),
                     output("out0", DType::F32, {count, columns})},
                    {axis(i), axis(j)});
  const Expr raw = Expr::load(1, DType::I64, i), at = select(lt(raw, Expr(0)), raw + rows, raw);
  const Expr inside = logical_and(ge(at, Expr(0)), lt(at, Expr(rows)));
  k.body.push_back({Store{2, i * columns + j, select(inside, Expr::load(0, DType::F32, at * columns + j), f32(0))}});
  return {"gather_rows", k, {}, 0};
}

Sample softmax(int64_t rows, int64_t columns, DType type) {
  const Expr i = index("row", rows), j = index("j", columns), l = index("l", columns), o = index("o", columns);
  Kernel k = kernel("softmax", {input("x", type, {rows, columns}), output("out0", type, {rows, columns})}, {axis(i)});
  const auto at = [&](const Expr& c) { return Expr::load(0, type, i * columns + c); };
  const DType c = compute_type(type);
  const Expr peak = Expr::local("peak", c), sum = Expr::local("sum", c), scale = Expr::local("scale", c);
  k.body.push_back({reduction(peak, Combine::Max, {axis(j)}, at(j))});
  k.body.push_back({reduction(sum, Combine::Sum, {axis(l)}, call(Fn::Exp, at(l) - peak))});
  k.body.push_back({Let{scale, Expr::number(c, 1) / sum}});
  Loop write;
  write.axes = {axis(o)};
  write.body.push_back({Store{1, i * columns + o, call(Fn::Exp, at(o) - peak) * scale}});
  k.body.push_back({write});
  return {fmt::format("softmax_{}x{}_{}", rows, columns, name_of(type)), k, {}, type == DType::F32 ? 1e-5 : 2e-3};
}

Sample softmax_scratch(int64_t rows, int64_t columns) {
  const Expr i = index("row", rows), j = index("j", columns), l = index("l", columns), o = index("o", columns);
  Kernel k = kernel("exp_norm",
                    {input("x", DType::F32, {rows, columns}), output("out0", DType::F32, {rows, columns}),
                     output("out1", DType::F32, {rows})},
                    {axis(i)});
  k.body.push_back({Alloc{3, "line", DType::F32, Expr(columns)}});
  Loop fill;
  fill.axes = {axis(j)};
  fill.body.push_back({Store{3, j, call(Fn::Exp, Expr::load(0, DType::F32, i * columns + j))}});
  k.body.push_back({fill});
  const Expr sum = Expr::local("sum", DType::F32);
  k.body.push_back(
      {reduction(sum, Combine::Sum, {axis(l)}, Expr::load(3, DType::F32, Expr(columns - 1) - l), f32(0.25))});
  Loop write;
  write.axes = {axis(o)};
  write.body.push_back({Store{1, i * columns + o, Expr::load(3, DType::F32, Expr(columns - 1) - o) / sum}});
  k.body.push_back({write});
  k.body.push_back({Store{2, i, sum}});
  return {fmt::format("softmax_scratch_{}x{}", rows, columns), k, {}, 1e-5};
}

Sample argmax(int64_t rows, int64_t columns, bool last, bool smallest) {
  const Expr i = index("row", rows), j = index("j", columns);
  Kernel k = kernel("argmax", {input("x", DType::I8, {rows, columns}), output("out0", DType::I64, {rows})}, {axis(i)});
  const Expr at = Expr::local("at", DType::I64);
  Reduce r = reduction(at, smallest ? Combine::ArgMin : Combine::ArgMax, {axis(j)},
                       cast(DType::F32, Expr::load(0, DType::I8, i * columns + j)), f32(0));
  r.last = last;
  k.body.push_back({r});
  k.body.push_back({Store{1, i, at}});
  return {fmt::format("argmax_{}x{}{}{}", rows, columns, last ? "_last" : "", smallest ? "_min" : ""), k, {}, 0};
}

Sample logical_rows(int64_t rows, int64_t columns) {
  const Expr i = index("row", rows), a = index("a", columns), b = index("b", columns), c = index("c", columns),
             d = index("d", columns);
  Kernel k = kernel("row_tests",
                    {input("x", DType::F32, {rows, columns}), output("out0", DType::Bool, {rows, 2}),
                     output("out1", DType::F32, {rows, 2})},
                    {axis(i)});
  const auto at = [&](const Expr& j) { return Expr::load(0, DType::F32, i * columns + j); };
  const Expr all = Expr::local("all", DType::Bool), any = Expr::local("any", DType::Bool);
  const Expr least = Expr::local("least", DType::F32), prod = Expr::local("prod", DType::F32);
  k.body.push_back({reduction(all, Combine::And, {axis(a)}, lt(at(a), f32(0.95)))});
  k.body.push_back({reduction(any, Combine::Or, {axis(b)}, lt(f32(0.99), at(b)))});
  k.body.push_back({reduction(least, Combine::Min, {axis(c)}, at(c))});
  k.body.push_back({reduction(prod, Combine::Product, {axis(d)}, at(d) * f32(0.1) + 1)});
  k.body.push_back({Store{1, i * 2, all}});
  k.body.push_back({Store{1, i * 2 + 1, any}});
  k.body.push_back({Store{2, i * 2, least}});
  k.body.push_back({Store{2, i * 2 + 1, prod}});
  return {fmt::format("logical_rows_{}x{}", rows, columns), k, {}, 1e-5};
}

Sample transposed_copy(int64_t n, int64_t rows, int64_t columns, int64_t stored_rows, DType type) {
  const Expr b = index("batch", n), j = index("col", columns), i = index("row", stored_rows);
  Kernel k =
      kernel("transposed_copy", {input("x", type, {n, rows, columns}), output("out0", type, {n, columns, stored_rows})},
             {axis(b), axis(j), axis(i)});
  const Expr element = Expr::load(0, compute_type(type), (b * rows + i) * columns + j);
  const Expr value = stored_rows > rows ? select(lt(i, Expr(rows)), element, zero_of(element)) : element;
  k.body.push_back({Store{1, (b * columns + j) * stored_rows + i, value}});
  return {fmt::format("transposed_copy_{}x{}x{}_{}_{}", n, rows, columns, stored_rows, name_of(type)), k, {}, 0};
}

Sample column_sum(int64_t rows, int64_t columns) {
  const Expr j = index("col", columns), i = index("row", rows);
  Kernel k =
      kernel("column_sum", {input("x", DType::F32, {rows, columns}), output("out0", DType::F32, {columns})}, {axis(j)});
  const Expr sum = Expr::local("sum", DType::F32);
  k.body.push_back({reduction(sum, Combine::Sum, {axis(i)}, Expr::load(0, DType::F32, i * columns + j))});
  k.body.push_back({Store{1, j, sum / static_cast<int>(rows)}});
  return {fmt::format("column_sum_{}x{}", rows, columns), k, {}, 1e-5};
}

Sample max_pool(int64_t n, int64_t c, int64_t h, int64_t w, bool nhwc) {
  const int64_t p = (h - 1) / 2 + 1, q = (w - 1) / 2 + 1;
  const Expr in = index("n", n), ic = index("c", c), ip = index("p", p), iq = index("q", q), r = index("r", 3),
             s = index("s", 3);
  const auto place = [&](const Expr& y, const Expr& x, int64_t height, int64_t width) {
    return nhwc ? ((in * height + y) * width + x) * c + ic : ((in * c + ic) * height + y) * width + x;
  };
  std::vector<Axis> domain = nhwc ? std::vector<Axis>{axis(in), axis(ip), axis(iq), axis(ic)}
                                  : std::vector<Axis>{axis(in), axis(ic), axis(ip), axis(iq)};
  Kernel k =
      kernel("max_pool", {input("x", DType::F32, {n, c, h, w}), output("out0", DType::F32, {n, c, p, q})}, domain);
  const Expr y = ip * 2 + r - 1, x = iq * 2 + s - 1;
  const Expr inside =
      logical_and(logical_and(ge(y, Expr(0)), lt(y, Expr(h))), logical_and(ge(x, Expr(0)), lt(x, Expr(w))));
  const Expr peak = Expr::local("peak", DType::F32), low = identity_of(Combine::Max, DType::F32);
  k.body.push_back({reduction(peak, Combine::Max, {axis(r), axis(s)},
                              select(inside, Expr::load(0, DType::F32, place(y, x, h, w)), low))});
  k.body.push_back({Store{1, place(ip, iq, p, q), peak}});
  return {fmt::format("max_pool_{}", nhwc ? "nhwc" : "nchw"), k, {}, 0};
}

Sample depthwise(int64_t n, int64_t h, int64_t w, int64_t c, int64_t filter, int64_t stride, DType type) {
  const int64_t pad = filter / 2, p = (h + 2 * pad - filter) / stride + 1, q = (w + 2 * pad - filter) / stride + 1;
  const Expr in = index("n", n), ip = index("p", p), iq = index("q", q), ic = index("c", c), r = index("r", filter),
             s = index("s", filter);
  Kernel k = kernel("depthwise_relu",
                    {input("x", type, {n, h, w, c}), input("w", type, {filter, filter, c}), input("bias", type, {c}),
                     output("out0", type, {n, p, q, c})},
                    {axis(in), axis(ip), axis(iq), axis(ic)});
  k.buffers[1].is_constant = true;
  const Expr y = ip * stride + r - pad, x = iq * stride + s - pad;
  const Expr inside =
      simplify(logical_and(logical_and(ge(y, Expr(0)), lt(y, Expr(h))), logical_and(ge(x, Expr(0)), lt(x, Expr(w)))));
  const Expr element = Expr::load(0, type, ((in * h + y) * w + x) * c + ic);
  const DType compute = compute_type(type);
  Reduce sum;
  sum.result = Expr::local("acc", compute);
  sum.combine = Combine::Sum;
  sum.init = Expr::number(compute, 0);
  sum.axes = {axis(r), axis(s)};
  sum.value = select(inside, element, zero_of(element)) * Expr::load(1, type, (r * filter + s) * c + ic);
  k.body.push_back({sum});
  const Expr biased = sum.result + Expr::load(2, type, ic);
  k.body.push_back({Store{3, ((in * p + ip) * q + iq) * c + ic, max(biased, zero_of(biased))}});
  return {fmt::format("depthwise_{}x{}x{}x{}_{}x{}_s{}_{}", n, h, w, c, filter, filter, stride, name_of(type)),
          k,
          {},
          size_of(type) == 2 ? 2e-3 : 1e-5};
}

Sample depthwise_lines(int64_t n, int64_t h, int64_t w, int64_t c, int64_t filter, int64_t stride, DType type,
                       Combine combine) {
  Sample sample = depthwise(n, h, w, c, filter, stride, type);
  Kernel& k = sample.kernel;
  const Axis line = k.domain[2];
  const Expr p = k.domain[1].extent, result = std::get<Store>(k.body[1].node).value;
  k.domain.erase(k.domain.begin() + 2);
  k.buffers.push_back(output("out1", type, {n, *p.as_int(), c}));
  const int scratch = static_cast<int>(k.buffers.size());
  const Expr x = Expr::index("x", line.extent);
  Body each = std::move(k.body);
  each.push_back({Store{scratch, line.var, result}});
  const Reduce r =
      reduction(Expr::local("line", result.type()), combine, {axis(x)}, Expr::load(scratch, result.type(), x));
  k.body = {{Alloc{scratch, "line", result.type(), line.extent}}, {Loop{{line}, std::move(each)}}, {r}};
  const Expr finished = combine == Combine::Sum
                            ? r.result / Expr::number(result.type(), static_cast<double>(*line.extent.as_int()))
                            : r.result;
  k.body.push_back({Store{4, (k.domain[0].var * p + k.domain[1].var) * c + k.domain[2].var, finished}});
  sample.name += combine == Combine::Sum ? "_lines" : "_peaks";
  return sample;
}

std::vector<Sample> all_samples() {
  return {broadcast_add(37, 64, DType::F32),
          broadcast_add(5, 7, DType::F32),
          broadcast_add(300, 128, DType::F16),
          broadcast_add(3, 40, DType::BF16),
          broadcast_add(3, 40, DType::F8E4M3),
          broadcast_add(3, 40, DType::F8E4M3FNUZ),
          broadcast_add(3, 40, DType::F8E5M2FNUZ),
          broadcast_add(3, 40, DType::F4E2M1),
          broadcast_add(9, 12, DType::F64),
          shifted_pad(13, 40),
          row_guard(11, 36),
          shared_behind_guards(12, 36),
          column_sum(2312, 17),
          transposed_copy(3, 65, 200, 65, DType::F16),
          transposed_copy(2, 96, 1030, 96, DType::F32),
          transposed_copy(7, 3, 5000, 3, DType::F16),
          transposed_copy(5, 3, 2216, 4, DType::BF16),
          math_zoo(999, DType::F32),
          math_zoo(130, DType::F64),
          gelu_forms(1000),
          integer_zoo(513, DType::I32),
          integer_zoo(100, DType::I8),
          integer_zoo(100, DType::U8),
          integer_zoo(77, DType::I64),
          gather_rows(19, 10, 33),
          softmax(7, 1000, DType::F32),
          softmax(33, 10, DType::F32),
          softmax(5, 65, DType::F16),
          softmax(3, 4099, DType::F32),
          softmax(300, 128, DType::F16),
          softmax(3, 100000, DType::F32),  // eight blocks for each row
          softmax_scratch(6, 300),
          softmax_scratch(5, 2500),
          two_small_products(3, 72, 20, 33),
          two_small_products(2, 520, 40, 250),  // eight blocks for each row
          two_small_products(2, 120, 40, 250),  // the first product by each of four
          two_small_products(40, 96, 30, 64),   // two
          two_small_products(2, 4096, 4, 33),   // several warps for each sum, of one block of eight
          two_small_products(40, 4096, 4, 33),  // of several sums a block
          largest_of_rows(11, 14, 40, 72, DType::F32),
          largest_of_rows(5, 49, 24, 64, DType::F16),
          argmax(9, 70, false, false),
          argmax(6, 1500, true, false),
          argmax(17, 13, false, true),
          logical_rows(5, 50),
          logical_rows(3, 3000),
          column_sum(70, 65),
          column_sum(500, 4096),
          max_pool(2, 5, 9, 11, false),
          max_pool(1, 8, 8, 6, true),
          depthwise(2, 16, 16, 64, 3, 1, DType::F16),
          depthwise(1, 28, 28, 32, 5, 2, DType::F32),
          depthwise(3, 14, 14, 24, 7, 1, DType::F16),
          depthwise(2, 12, 9, 20, 3, 2, DType::BF16),
          depthwise(1, 14, 14, 96, 7, 1, DType::F16),
          depthwise_lines(3, 14, 14, 96, 5, 1, DType::F16, Combine::Sum),
          depthwise_lines(2, 28, 28, 40, 3, 2, DType::F32, Combine::Max),
          depthwise_lines(5, 7, 7, 64, 5, 1, DType::BF16, Combine::Sum),
          depthwise_lines(1, 30, 56, 32, 3, 1, DType::F16, Combine::Sum),
          matmul(1, 70, 66, 37, false, false, DType::F32),
          matmul(2, 33, 72, 64, true, true, DType::F32),
          overlapping_windows(3, 9, 19, 64, 7, 2, 8, 28, DType::F16),
          overlapping_windows(2, 56, 56, 32, 3, 2, 8, 12, DType::BF16),
          nan_matmul(40, 36, 40),
          extreme_matmul(150, 72, 104),
          residual_matmul(1, 130, 72, 100, DType::F32),
          matmul(1, 130, 132, 40, false, false, DType::F16),
          matmul(1, 20, 24, 18, false, true, DType::F64),
          matmul(1, 1, 300, 260, false, true, DType::F32),
          matmul(3, 5, 100, 72, false, false, DType::F32, true),
          matmul(1, 200, 4, 96, false, true, DType::F32),
          matmul(1, 17, 19, 23, false, false, DType::BF16),
          conv(1, 8, 9, 10, 20, 3, 1, false),
          conv(2, 3, 11, 13, 33, 3, 2, false),
          conv(2, 8, 7, 9, 34, 3, 2, true),
          conv(1, 16, 12, 12, 24, 1, 1, false),
          conv(1, 65, 5, 3, 16, 3, 1, true),
          conv(2, 64, 5, 3, 40, 3, 1, true, DType::F16),
          conv(1, 16, 9, 10, 24, 3, 2, true, DType::F16),
          conv(1, 16, 9, 10, 24, 3, 2, true, DType::F16, 12),
          conv(1, 16, 9, 10, 24, 3, 1, true, DType::F32, 12),
          conv(2, 12, 7, 7, 40, 3, 1, false, DType::F16),
          dynamic_matmul(70, 72, 300, DType::F32),
          dynamic_matmul(37, 40, 64, DType::F16),
          attention(2, 70, 130, 64, 64, DType::F16, false),
          attention(3, 17, 65, 24, 40, DType::F16, true),
          attention(1, 33, 20, 80, 16, DType::BF16, false),
          attention(2, 20, 70, 32, 32, DType::F32, true),
          attention(1, 1, 9, 7, 5, DType::F16, false),
          attention(2, 140, 100, 64, 64, DType::F16, false, true),
          attention(140, 20, 24, 16, 16, DType::BF16, true),
          attention(1, 90, 130, 80, 96, DType::F16, false),
          attention(1, 130, 150, 128, 128, DType::F16, true, true),
          attention(1, 20, 70, 256, 256, DType::F16, false),
          activated_matmul(37, 72, 45, DType::F32, false),
          activated_matmul(66, 40, 64, DType::F16, true)};
}

}  // namespace ingot::samples
