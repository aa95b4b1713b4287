// The CPU backend on points, rows and windows, against the kernel interpreter. Contractions: cpu_contract_test.cpp.
#include "codegen/kernel/attention_masks.h"
#include "tests/cpu_test_tools.h"

using namespace ingot;
using namespace ingot::testing;

namespace {

const std::vector<int64_t> kSizes = {1, 2, 5, 16, 17, 33, 100};

/// y[i] = f(x0[i], x1[i]) over n elements.
KernelCase pointwise(DType in, DType out, int64_t n, const std::function<Expr(Expr, Expr)>& f) {
  KernelCase c;
  const Axis i = axis("i", Expr(n));
  const int a = c.input(in, {n}), b = c.input(in, {n}), y = c.output(out, {n});
  c.kernel.domain = {i};
  c.kernel.body = {
      Stmt{Store{y, i.var, f(Expr::load(a, compute_type(in), i.var), Expr::load(b, compute_type(in), i.var))}}};
  fill(c.tensors[0], 1);
  fill(c.tensors[1], 2);
  return c;
}

void add_specials(Tensor& t) {
  const double values[] = {NAN, INFINITY, -INFINITY, 0.0, -0.0, 1e-40, 88.9, -104.5, 1e30, -1e30};
  for (int64_t i = 0; i < t.count() && i < 10; ++i) t.set_float(i, values[i]);
}

}  // namespace

TEST_CASE("arithmetic on floats, with NaN and infinity", "[cpu]") {
  for (int64_t n : kSizes) {
    KernelCase c = pointwise(DType::F32, DType::F32, n, [](Expr a, Expr b) {
      return max(a * b, min(a, b)) + select(lt(a, b), a / (b + f32(3)), f32(2) - b);
    });
    if (n == 33) add_specials(c.tensors[0]);
    if (n == 17) add_specials(c.tensors[1]);
    check_kernel(c, 1e-6);
  }
}

TEST_CASE("each binary operation", "[cpu]") {
  using F = std::function<Expr(Expr, Expr)>;
  const std::vector<std::pair<const char*, F>> operations = {
      {"add", [](Expr a, Expr b) { return a + b; }},
      {"sub", [](Expr a, Expr b) { return a - b; }},
      {"mul", [](Expr a, Expr b) { return a * b; }},
      {"div", [](Expr a, Expr b) { return a / b; }},
      {"rem", [](Expr a, Expr b) { return rem(a, b); }},
      {"floor_div", [](Expr a, Expr b) { return floor_div(a, b); }},
      {"floor_mod", [](Expr a, Expr b) { return floor_mod(a, b); }},
      {"min", [](Expr a, Expr b) { return min(a, b); }},
      {"max", [](Expr a, Expr b) { return max(a, b); }},
      {"eq", [](Expr a, Expr b) { return select(eq(a, b), a, zero_of(a)); }},
      {"ne", [](Expr a, Expr b) { return select(ne(a, b), a, zero_of(a)); }},
      {"le", [](Expr a, Expr b) { return select(le(a, b), a, zero_of(a)); }}};
  for (DType type : {DType::F32, DType::F64, DType::I64, DType::I32, DType::U8, DType::I8, DType::I16, DType::U32})
    for (const auto& [name, f] : operations) {
      INFO(name << " " << name_of(type));
      KernelCase c = pointwise(type, type, 37, f);
      if (type == DType::F32) add_specials(c.tensors[1]);
      check_kernel(c);
    }
}

TEST_CASE("bitwise operations and shifts", "[cpu]") {
  for (DType type : {DType::I32, DType::U8, DType::I64})
    for (ExprOp op : {ExprOp::And, ExprOp::Or, ExprOp::Xor, ExprOp::Shl, ExprOp::Shr})
      check_kernel(pointwise(type, type, 21, [&](Expr a, Expr b) {
        const bool shift = op == ExprOp::Shl || op == ExprOp::Shr;
        return bitwise(op, a, shift ? bitwise(ExprOp::And, b, Expr::integer(type, 7)) : b);
      }));
}

TEST_CASE("functions in f32 and f64", "[cpu]") {
  for (DType type : {DType::F32, DType::F64})
    for (int fn = 0; fn <= static_cast<int>(Fn::Pow); ++fn) {
      if (static_cast<Fn>(fn) == Fn::Pow) continue;
      INFO(info_of(static_cast<Fn>(fn)).text << " " << name_of(type));
      KernelCase c = pointwise(type, type, 301, [&](Expr a, Expr) { return call(static_cast<Fn>(fn), a); });
      for (int64_t i = 0; i < 301; ++i) c.tensors[0].set_float(i, static_cast<double>(i - 150) / 25.0);
      if (type == DType::F32) add_specials(c.tensors[0]);
      check_kernel(c, type == DType::F32 ? 2e-6 : 1e-12);
    }
  check_kernel(pointwise(DType::F32, DType::F32, 40,
                         [](Expr a, Expr b) {
                           return call(Fn::Pow, call(Fn::Abs, a), b) + call(Fn::Pow, a, f32(2)) +
                                  call(Fn::Pow, a, f32(3));
                         }),
               1e-5);
}

TEST_CASE("casts between all types", "[cpu]") {
  const std::vector<DType> types = {DType::Bool,       DType::U8,     DType::I8,     DType::I16,    DType::U16,
                                    DType::I32,        DType::U32,    DType::I64,    DType::F16,    DType::BF16,
                                    DType::F32,        DType::F64,    DType::F8E4M3, DType::F8E5M2, DType::F8E4M3FNUZ,
                                    DType::F8E5M2FNUZ, DType::F4E2M1, DType::I2,     DType::U2};
  for (DType from : types)
    for (DType to : types) {
      INFO(name_of(from) << " to " << name_of(to));
      KernelCase c = pointwise(from, to, 35, [&](Expr a, Expr) { return cast(compute_type(to), a); });
      if (from == DType::F32 || from == DType::F64) {
        add_specials(c.tensors[0]);
        c.tensors[0].set_float(11, 300.7);
        c.tensors[0].set_float(12, -3e9);
      }
      check_kernel(c, 0);
    }
}

TEST_CASE("small floats round to nearest even", "[cpu]") {
  for (DType type : {DType::F16, DType::BF16, DType::F8E4M3, DType::F8E5M2, DType::F8E4M3FNUZ, DType::F8E5M2FNUZ,
                     DType::F8E8M0, DType::F4E2M1}) {
    KernelCase c = pointwise(DType::F32, DType::F32, 4000, [&](Expr a, Expr) { return round_to(type, a); });
    std::mt19937 random(5);
    for (int64_t i = 0; i < 4000; ++i)
      c.tensors[0].set_float(
          i, std::ldexp(static_cast<double>(random()) / 2147483648.0 - 1, static_cast<int>(random() % 40) - 25));
    add_specials(c.tensors[0]);
    INFO(name_of(type));
    check_kernel(c, 0);
  }
}

TEST_CASE("broadcasts, transposes, strides and gathers", "[cpu]") {
  for (int64_t n : {3, 7, 16, 40}) {
    KernelCase c;
    const Axis i = axis("i", Expr(n)), j = axis("j", Expr(n + 2));
    const int x = c.input(DType::F32, {n, n + 2}), row = c.input(DType::F32, {n + 2}),
              t = c.input(DType::F32, {n + 2, n}), wide = c.input(DType::F32, {2 * (n + 2)}),
              ids = c.input(DType::I64, {n + 2});
    const int y = c.output(DType::F32, {n, n + 2});
    for (int b = 0; b < 4; ++b) fill(c.tensors[static_cast<size_t>(b)], static_cast<unsigned>(b));
    fill(c.tensors[4], 9, 0, static_cast<int>(n + 1));
    c.kernel.domain = {i, j};
    const Expr flat = i.var * Expr(n + 2) + j.var;
    const Expr gathered = load32(row, Expr::load(ids, DType::I64, j.var));
    c.kernel.body = {Stmt{Store{y, flat,
                                load32(x, flat) + load32(row, j.var) * load32(t, j.var * Expr(n) + i.var) -
                                    load32(wide, j.var * Expr(2)) + gathered + load32(row, Expr(n + 1) - j.var) +
                                    load32(x, floor_div(flat, Expr(3)))}}};
    check_kernel(c);
  }
}

TEST_CASE("pad and concat read only what exists", "[cpu]") {
  for (int64_t w : {1, 6, 20, 90}) {
    KernelCase c;
    const Axis i = axis("i", Expr(3)), j = axis("j", Expr(2 * w + 4));
    const int a = c.input(DType::F32, {3, w}), b = c.input(DType::F32, {3, w});
    const int y = c.output(DType::F32, {3, 2 * w + 4}), p = c.output(DType::F32, {3, 2 * w + 4});
    fill(c.tensors[0], 1);
    fill(c.tensors[1], 2);
    c.kernel.domain = {i, j};
    const Expr flat = i.var * Expr(2 * w + 4) + j.var, shifted = j.var - Expr(2);
    const Expr left = load32(a, i.var * Expr(w) + j.var), right = load32(b, i.var * Expr(w) + j.var - Expr(w));
    const Expr inside = logical_and(le(Expr(0), shifted), lt(shifted, Expr(w)));
    c.kernel.body = {
        Stmt{Store{y, flat, select(lt(j.var, Expr(w)), left, select(lt(j.var, Expr(2 * w)), right, f32(7)))}},
        Stmt{Store{p, flat, select(inside, load32(a, i.var * Expr(w) + shifted), f32(-1))}}};
    check_kernel(c);
  }
}

TEST_CASE("every reduction, along rows and along columns", "[cpu]") {
  for (DType type : {DType::F32, DType::I32, DType::I64, DType::U8, DType::F64})
    for (Combine combine :
         {Combine::Sum, Combine::Product, Combine::Max, Combine::Min, Combine::ArgMax, Combine::ArgMin})
      for (bool columns : {false, true})
        for (int64_t n : {1, 7, 33, 150}) {
          KernelCase c;
          const int64_t rows = 5;
          const Axis r = axis("r", Expr(rows)), k = axis("k", Expr(n));
          const bool arg = combine == Combine::ArgMax || combine == Combine::ArgMin;
          const int x = c.input(type, {rows, n}), y = c.output(arg ? DType::I64 : type, {rows});
          fill(c.tensors[0], 3, combine == Combine::Product ? -2 : -9, combine == Combine::Product ? 2 : 9);
          if (type == DType::F32 && n == 33) c.tensors[0].set_float(40, NAN);
          Reduce reduce;
          reduce.result = Expr::local("total", arg ? DType::I64 : compute_type(type));
          reduce.combine = combine;
          reduce.init = arg ? Expr(0) : identity_of(combine, type);
          reduce.axes = {k};
          reduce.last = n == 150;
          reduce.value = Expr::load(x, type, columns ? k.var * Expr(rows) + r.var : r.var * Expr(n) + k.var);
          c.kernel.domain = {r};
          c.kernel.body = {Stmt{reduce}, Stmt{Store{y, r.var, reduce.result}}};
          INFO(name_of(combine) << " " << name_of(type) << " n " << n << (columns ? " columns" : " rows"));
          check_kernel(c, 1e-4);
        }
}

TEST_CASE("logical reductions", "[cpu]") {
  for (Combine combine : {Combine::And, Combine::Or}) {
    KernelCase c;
    const Axis r = axis("r", Expr(4)), k = axis("k", Expr(39));
    const int x = c.input(DType::I32, {4, 39}), y = c.output(DType::Bool, {4});
    fill(c.tensors[0], 4);
    Reduce reduce;
    reduce.result = Expr::local("total", DType::Bool);
    reduce.combine = combine;
    reduce.init = Expr::boolean(combine == Combine::And);
    reduce.axes = {k};
    reduce.value = lt(Expr::load(x, DType::I32, r.var * Expr(39) + k.var),
                      r.var.type() == DType::I64 ? Expr::integer(DType::I32, 9) : Expr());
    c.kernel.domain = {r};
    c.kernel.body = {Stmt{reduce}, Stmt{Store{y, r.var, reduce.result}}};
    check_kernel(c);
  }
}

TEST_CASE("softmax of rows keeps its exponentials in scratch", "[cpu]") {
  for (int64_t n : {1, 10, 64, 131}) {
    KernelCase c;
    const Expr width = n == 131 ? c.dim("N", n, 4096) : n == 64 ? c.dim("N", n) : Expr(n);
    const Axis r = axis("r", Expr(6)), a = axis("a", width), b = axis("b", width), d = axis("d", width);
    const int x = c.input(DType::F32, {6, n}), y = c.output(DType::F32, {6, n});
    fill(c.tensors[0], 8);
    Reduce most{Expr::local("most", DType::F32), Combine::Max, f32(-INFINITY), {a}, load32(x, r.var * width + a.var)};
    Reduce sum{Expr::local("sum", DType::F32), Combine::Sum, f32(0), {d}, load32(2, d.var)};
    c.kernel.domain = {r};
    c.kernel.body = {
        Stmt{Alloc{2, "e", DType::F32, width}}, Stmt{most},
        Stmt{Loop{{b}, {Stmt{Store{2, b.var, call(Fn::Exp, load32(x, r.var * width + b.var) - most.result)}}}}},
        Stmt{sum},
        Stmt{Loop{{axis("o", width)},
                  {Stmt{Store{y, r.var * width + Expr::index("o", width),
                              load32(2, Expr::index("o", width)) / sum.result}}}}}};
    check_kernel(c, 1e-5);
  }
}

TEST_CASE("attention keeps one row of scores in scratch", "[cpu]") {
  constexpr int64_t kHeads = 3, kQueries = 5, kWidth = 24, kColumns = 17;
  for (int64_t n : {1, 10, 70})
    for (const NoLogit no_logit : {NoLogit::Nan, NoLogit::Zero, NoLogit::NanIsZero}) {
      KernelCase c;
      const Expr keys = n == 70 ? c.dim("N", n) : Expr(n);
      const Axis b = axis("b", kHeads), m = axis("m", kQueries), k = axis("k", kWidth), d = axis("d", kColumns), j = axis("n", keys);
      const int q = c.input(DType::F32, {kHeads, kQueries, kWidth}), key = c.input(DType::F32, {kHeads, n, kWidth});
      const int value = c.input(DType::F32, {kHeads, n, kColumns}), bias = c.input(DType::F32, {kQueries, n});
      const int y = c.output(DType::F32, {kHeads, kQueries, kColumns});
      for (int i = 0; i < 4; ++i) fill(c.tensors[static_cast<size_t>(i)], 20 + static_cast<unsigned>(i));
      for (int64_t i = 0; i < n; ++i) c.tensors[static_cast<size_t>(bias)].set_float(2 * n + i, -INFINITY);  // sees nothing
      c.tensors[static_cast<size_t>(bias)].set_float(3 * n, NAN);
      Attend t{.batch = {b}, .m = {m}, .n = {j}, .k = {k}, .d = {d}};
      t.q = load32(q, (b.var * kQueries + m.var) * kWidth + k.var);
      t.key = load32(key, (b.var * keys + j.var) * kWidth + k.var);
      t.value = load32(value, (b.var * keys + j.var) * kColumns + d.var);
      t.dot = Expr::local("dot", DType::F32);
      t.score = call(Fn::Tanh, t.dot * f32(0.2)) + load32(bias, m.var * keys + j.var);
      t.acc = Expr::local("acc", DType::F32);
      t.epilogue = {Stmt{Store{y, (b.var * kQueries + m.var) * kColumns + d.var, t.acc + f32(1)}}};
      t.no_logit = no_logit;
      c.kernel.body = {Stmt{std::move(t)}};
      check_kernel(c, 1e-5);
    }
}

TEST_CASE("attention's loops over keys end where a mask says so", "[cpu]") {
  constexpr int64_t kBatches = 4, kQueries = 5, kKeys = 70, kWidth = 24, kColumns = 17;
  for (const NoLogit no_logit : {NoLogit::Nan, NoLogit::Zero}) {
    KernelCase c;
    const Axis b = axis("b", kBatches), m = axis("m", kQueries), k = axis("k", kWidth), d = axis("d", kColumns), j = axis("n", kKeys);
    const int q = c.input(DType::F32, {kBatches, kQueries, kWidth}), key = c.input(DType::F32, {kBatches, kKeys, kWidth});
    const int value = c.input(DType::F32, {kBatches, kKeys, kColumns}), lengths = c.input(DType::I64, {kBatches});
    const int y = c.output(DType::F32, {kBatches, kQueries, kColumns});
    for (int i = 0; i < 3; ++i) fill(c.tensors[static_cast<size_t>(i)], 20 + static_cast<unsigned>(i));
    const int64_t counts[] = {-3, 2, 33, 500};
    for (int64_t i = 0; i < kBatches; ++i) c.tensors[static_cast<size_t>(lengths)].set_int(i, counts[i]);
    Attend t{.batch = {b}, .m = {m}, .n = {j}, .k = {k}, .d = {d}};
    t.q = load32(q, (b.var * kQueries + m.var) * kWidth + k.var);
    t.key = load32(key, (b.var * kKeys + j.var) * kWidth + k.var);
    t.value = load32(value, (b.var * kKeys + j.var) * kColumns + d.var);
    t.dot = Expr::local("dot", DType::F32);
    const Expr length = Expr::load(lengths, DType::I64, b.var);
    const Expr seen = logical_and(lt(j.var, length), le(j.var, m.var + (length - kQueries)));
    t.score = select(seen, t.dot * f32(0.2), f32(-INFINITY));
    t.acc = Expr::local("acc", DType::F32);
    t.epilogue = {Stmt{Store{y, (b.var * kQueries + m.var) * kColumns + d.var, t.acc}}};
    t.no_logit = no_logit;
    REQUIRE(reach_of(t).valid());
    c.kernel.body = {Stmt{std::move(t)}};
    check_kernel(c, 1e-5);
  }
}

TEST_CASE("windows: max pooling and depthwise convolution", "[cpu]") {
  for (int64_t size : {1, 5, 14, 29, 80})
    for (int64_t stride : {1, 2, 3})
      for (Combine combine : {Combine::Max, Combine::Sum}) {
        KernelCase c;
        const int64_t out = (size + stride - 1) / stride;
        const Axis ch = axis("c", Expr(3)), oh = axis("oh", Expr(out)), ow = axis("ow", Expr(out)),
                   kh = axis("kh", Expr(3)), kw = axis("kw", Expr(3));
        const int x = c.input(DType::F32, {3, size, size}), w = c.input(DType::F32, {3, 3, 3});
        const int y = c.output(DType::F32, {3, out, out});
        fill(c.tensors[0], 1);
        fill(c.tensors[1], 2);
        const Expr s = Expr(size), h = oh.var * Expr(stride) + kh.var - Expr(1),
                   v = ow.var * Expr(stride) + kw.var - Expr(1);
        const Expr inside = logical_and(logical_and(le(Expr(0), h), lt(h, s)), logical_and(le(Expr(0), v), lt(v, s)));
        const Expr element =
            select(inside, load32(x, (ch.var * s + h) * s + v), f32(combine == Combine::Max ? -INFINITY : 0));
        Reduce r{Expr::local("acc", DType::F32), combine, identity_of(combine, DType::F32), {kh, kw}, element};
        if (combine == Combine::Sum) r.value = element * load32(w, (ch.var * Expr(3) + kh.var) * Expr(3) + kw.var);
        c.kernel.domain = {ch, oh, ow};
        c.kernel.body = {Stmt{r}, Stmt{Store{y, (ch.var * Expr(out) + oh.var) * Expr(out) + ow.var, r.result}}};
        INFO("size " << size << " stride " << stride << " " << name_of(combine));
        check_kernel(c);
      }
}

TEST_CASE("dynamic dims and empty tensors", "[cpu]") {
  for (int64_t n : {0, 1, 50}) {
    KernelCase c;
    const Expr dim = c.dim("N", n);
    const Axis i = axis("i", dim), j = axis("j", Expr(9));
    const int x = c.input(DType::F32, {n, 9}), y = c.output(DType::F32, {n, 9});
    fill(c.tensors[0], 1);
    c.kernel.domain = {i, j};
    const Expr flat = i.var * Expr(9) + j.var;
    c.kernel.body = {Stmt{If{lt(i.var, dim - Expr(1)), {Stmt{Store{y, flat, load32(x, flat) * f32(2)}}}}}};
    check_kernel(c);
  }
}

TEST_CASE("older processors: no vectors of half floats, no fused multiply-add", "[cpu]") {
  for (DType type : {DType::F16, DType::BF16, DType::F32, DType::F8E4M3}) {
    KernelCase c =
        pointwise(type, type, 37, [](Expr a, Expr b) { return call(Fn::Exp, a) * f32(1.5) + call(Fn::Floor, b); });
    const std::vector<Tensor> want = run_interpreted(c);
    for (const char* level : {"x86-64", "x86-64-v2", "x86-64-v3"})
      expect_same(c, run_compiled(c, cpu_traits(level).value()), want, type == DType::F32 ? 1e-6 : 2e-2, level);
  }
}

TEST_CASE("an unknown CPU level is refused, a plan costs no compilation", "[cpu]") {
  CHECK(!cpu_traits("x86-64-v9").ok());
  KernelCase c = pointwise(DType::F32, DType::F32, 100000, [](Expr a, Expr b) { return a + b; });
  const auto launch = plan_cpu(c.kernel, host_traits());
  REQUIRE(launch.ok());
  CHECK(launch.value().tasks.as_int().value_or(0) >= 2);
  CHECK(launch.value().scratch_bytes == 0);
}
