// Contractions on the CPU backend against plain host loops: sizes around every tile edge, operand layouts,
// convolutions, types, permuted outputs, dynamic dims.
#include "tests/cpu_test_tools.h"

using namespace ingot;
using namespace ingot::testing;

namespace {

struct Layout {
  bool a_transposed = false, b_transposed = false, out_transposed = false;
};

/// y[b,m,n] = relu(a*b + bias[n]) with operands stored as `type`.
KernelCase product(DType type, DType acc, int64_t batch, int64_t m, int64_t n, int64_t k, Layout layout,
                   bool dynamic = false) {
  KernelCase c;
  const Expr em = dynamic ? c.dim("M", m) : Expr(m), en = dynamic ? c.dim("N", n) : Expr(n),
             ek = dynamic ? c.dim("K", k) : Expr(k);
  const int a = c.input(type, {batch, m, k}), b = c.input(type, {batch, k, n}), bias = c.input(DType::F32, {n});
  const int y = c.output(acc, {batch, m, n});
  fill(c.tensors[0], 1, -4, 4);
  fill(c.tensors[1], 2, -4, 4);
  fill(c.tensors[2], 3);
  Contract x;
  x.batch = {axis("b", Expr(batch))};
  x.m = {axis("m", em)};
  x.n = {axis("n", en)};
  x.k = {axis("k", ek)};
  const Expr vb = x.batch[0].var, vm = x.m[0].var, vn = x.n[0].var, vk = x.k[0].var;
  const auto operand = [&](int buffer, const Expr& index) {
    return cast(acc, Expr::load(buffer, compute_type(type), index));
  };
  x.a = operand(a, vb * em * ek + (layout.a_transposed ? vk * em + vm : vm * ek + vk));
  x.b = operand(b, vb * ek * en + (layout.b_transposed ? vn * ek + vk : vk * en + vn));
  x.acc = Expr::local("acc", acc);
  x.a_type = x.b_type = type;
  const Expr shifted = x.acc + cast(acc, load32(bias, vn));
  x.epilogue = {Stmt{Store{y, vb * em * en + (layout.out_transposed ? vn * em + vm : vm * en + vn),
                           max(shifted, Expr::number(acc, 0))}}};
  c.kernel.body = {Stmt{x}};
  return c;
}

/// The same by three loops, in double.
void check_product(const KernelCase& c, int64_t batch, int64_t m, int64_t n, int64_t k, Layout layout, double tolerance,
                   const TargetTraits& traits) {
  const std::vector<Tensor> got = run_compiled(c, traits, 3);
  const bool real = is_float(c.tensors[3].type());
  int64_t wrong = 0;
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) {
        double sum = 0;
        for (int64_t p = 0; p < k; ++p)
          sum += c.tensors[0].float_at(b * m * k + (layout.a_transposed ? p * m + i : i * k + p)) *
                 c.tensors[1].float_at(b * k * n + (layout.b_transposed ? j * k + p : p * n + j));
        const double bias = c.tensors[2].float_at(j);
        const double want = std::max(0.0, sum + (real ? bias : std::trunc(bias)));
        const int64_t at = b * m * n + (layout.out_transposed ? j * m + i : i * n + j);
        wrong += !close(got[3].float_at(at), want, tolerance);
      }
  INFO("batch " << batch << " m " << m << " n " << n << " k " << k << " a^T " << layout.a_transposed << " b^T "
                << layout.b_transposed << " out^T " << layout.out_transposed << " vector " << traits.vector_bytes);
  CHECK(wrong == 0);
}

std::vector<TargetTraits> machines() {
  std::vector<TargetTraits> list = {host_traits()};
  if (host_traits().vector_bytes == 64) list.push_back(cpu_traits("x86-64-v3").value());
  return list;
}

const std::vector<Layout> kLayouts = {
    {}, {true, false, false}, {false, true, false}, {true, true, false}, {false, false, true}};

}  // namespace

TEST_CASE("matrix products of odd sizes and layouts", "[cpu]") {
  const std::vector<std::array<int64_t, 3>> sizes = {{1, 1, 1},      {1, 70, 90},  {2, 33, 17},  {3, 100, 65},
                                                     {5, 5, 5},      {13, 17, 31}, {25, 49, 40}, {64, 48, 7},
                                                     {70, 130, 100}, {40, 3, 80},  {0, 3, 4},    {4, 0, 3},
                                                     {3, 4, 0}};
  for (const TargetTraits& traits : machines())
    for (const auto& [m, n, k] : sizes)
      for (const Layout& layout : kLayouts)
        check_product(product(DType::F32, DType::F32, 2, m, n, k, layout), 2, m, n, k, layout, 1e-5, traits);
}

TEST_CASE("products with dynamic dims, k longer than a block", "[cpu]") {
  const std::vector<std::array<int64_t, 3>> sizes = {{1, 20, 30}, {4, 64, 600}, {50, 33, 1030},
                                                     {19, 1, 5},  {0, 3, 4},    {3, 4, 0}};
  for (const TargetTraits& traits : machines())
    for (const auto& [m, n, k] : sizes)
      for (const Layout& layout : kLayouts)
        check_product(product(DType::F32, DType::F32, 1, m, n, k, layout, true), 1, m, n, k, layout, 1e-5, traits);
}

TEST_CASE("products of other types", "[cpu]") {
  struct Types {
    DType stored, acc;
  };
  for (const Types t : {Types{DType::F16, DType::F32},
                        {DType::BF16, DType::F32},
                        {DType::F64, DType::F64},
                        {DType::I32, DType::I32},
                        {DType::U8, DType::I32},
                        {DType::I8, DType::I32},
                        {DType::I64, DType::I64}})
    for (const Layout& layout : kLayouts) {
      INFO(name_of(t.stored));
      check_product(product(t.stored, t.acc, 1, 30, 45, 70, layout), 1, 30, 45, 70, layout, 1e-5, host_traits());
      check_product(product(t.stored, t.acc, 1, 1, 45, 70, layout), 1, 1, 45, 70, layout, 1e-5, host_traits());
    }
}

namespace {

struct ConvShape {
  int64_t groups, channels, filters, size, window, stride, pad, dilation;
};

KernelCase convolution(const ConvShape& s, bool channels_last) {
  KernelCase c;
  const int64_t out = (s.size + 2 * s.pad - s.dilation * (s.window - 1) - 1) / s.stride + 1;
  const int x = c.input(DType::F32, {2, s.groups, s.channels, s.size, s.size});
  const int w = c.input(DType::F32, {s.groups, s.filters, s.channels, s.window, s.window});
  const int y = c.output(DType::F32, {2, s.groups, s.filters, out, out});
  fill(c.tensors[0], 1);
  fill(c.tensors[1], 2);
  Contract k;
  k.batch = {axis("b", Expr(2)), axis("g", Expr(s.groups))};
  k.m = {axis("oc", Expr(s.filters))};
  k.n = {axis("oh", Expr(out)), axis("ow", Expr(out))};
  k.k = {axis("ic", Expr(s.channels)), axis("kh", Expr(s.window)), axis("kw", Expr(s.window))};
  const Expr b = k.batch[0].var, g = k.batch[1].var, oc = k.m[0].var, oh = k.n[0].var, ow = k.n[1].var, ic = k.k[0].var,
             kh = k.k[1].var, kw = k.k[2].var, size = Expr(s.size);
  const Expr h = oh * Expr(s.stride) + kh * Expr(s.dilation) - Expr(s.pad);
  const Expr v = ow * Expr(s.stride) + kw * Expr(s.dilation) - Expr(s.pad);
  const Expr inside = logical_and(logical_and(le(Expr(0), h), lt(h, size)), logical_and(le(Expr(0), v), lt(v, size)));
  const Expr channel = (b * Expr(s.groups) + g) * Expr(s.channels) + ic;
  const Expr at = channels_last ? (((b * size + h) * size + v) * Expr(s.groups) + g) * Expr(s.channels) + ic
                                : (channel * size + h) * size + v;
  k.a = load32(w, (((g * Expr(s.filters) + oc) * Expr(s.channels) + ic) * Expr(s.window) + kh) * Expr(s.window) + kw);
  k.b = s.pad ? select(inside, load32(x, at), f32(0)) : load32(x, at);
  k.acc = Expr::local("acc", DType::F32);
  const Expr filter = (b * Expr(s.groups) + g) * Expr(s.filters) + oc;
  const Expr to = channels_last ? (((b * Expr(out) + oh) * Expr(out) + ow) * Expr(s.groups) + g) * Expr(s.filters) + oc
                                : (filter * Expr(out) + oh) * Expr(out) + ow;
  k.epilogue = {Stmt{Store{y, to, max(k.acc, f32(0))}}};
  c.kernel.body = {Stmt{k}};
  return c;
}

}  // namespace

TEST_CASE("convolutions: padding, stride, dilation, groups, both layouts", "[cpu]") {
  for (const ConvShape& s : {ConvShape{1, 3, 20, 9, 3, 1, 1, 1},
                             {1, 5, 13, 20, 3, 2, 1, 1},
                             {1, 4, 8, 11, 3, 1, 2, 2},
                             {1, 6, 25, 14, 1, 1, 0, 1},
                             {1, 6, 10, 14, 1, 2, 0, 1},
                             {2, 3, 7, 10, 5, 1, 2, 1},
                             {6, 1, 1, 17, 3, 1, 1, 1},
                             {6, 1, 1, 40, 3, 2, 1, 1},
                             {4, 1, 2, 12, 3, 1, 1, 1},
                             {1, 70, 33, 7, 3, 1, 1, 1},
                             {1, 3, 16, 30, 7, 2, 3, 1}})
    for (bool channels_last : {false, true}) {
      INFO("groups " << s.groups << " channels " << s.channels << " filters " << s.filters << " size " << s.size
                     << " window " << s.window << " stride " << s.stride << " dilation " << s.dilation << " nhwc "
                     << channels_last);
      check_kernel(convolution(s, channels_last), 2e-5);
    }
}
