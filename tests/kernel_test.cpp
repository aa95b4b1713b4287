// The kernel IR: its verifier finds planted faults, its text shows every part, and the interpreter does what kernel.h says.
#include <catch2/catch.hpp>
#include <cmath>

#include "codegen/kernel/interpret.h"
#include "codegen/kernel/verify.h"

using namespace ingot;

namespace {

const Expr N = Expr::symbol("N", 0);

/// out[i] = sum over t of x[i*3 + t], with a window of 3.
Kernel window_sum() {
  Kernel k;
  k.name = "window_sum";
  k.buffers = {{"x", DType::F32, {N, 3}, false, false}, {"out0", DType::F32, {N}, true, false}};
  k.dims = {N};
  const Expr i = Expr::index("i", N), t = Expr::index("t", 3), acc = Expr::local("acc", DType::F32);
  k.domain = {{i, N}};
  Reduce r;
  r.result = acc;
  r.init = Expr::real(DType::F32, 0);
  r.axes = {{t, 3}};
  r.value = Expr::load(0, DType::F32, i * 3 + t);
  k.body = {{r}, {Store{1, i, acc}}};
  return k;
}
Kernel product() {
  Kernel k;
  k.buffers = {{"a", DType::F32, {4, 5}, false, false}, {"b", DType::F32, {5, 6}, false, false}, {"out0", DType::F32, {4, 6}, true, false}};
  const Expr m = Expr::index("m", 4), n = Expr::index("n", 6), kk = Expr::index("k", 5);
  Contract c;
  c.m = {{m, 4}}, c.n = {{n, 6}}, c.k = {{kk, 5}};
  c.a = Expr::load(0, DType::F32, m * 5 + kk);
  c.b = Expr::load(1, DType::F32, kk * 6 + n);
  c.acc = Expr::local("acc", DType::F32);
  c.epilogue = {{Store{2, m * 6 + n, max(c.acc, Expr::real(DType::F32, 0))}}};
  k.body = {{c}};
  return k;
}
void expect_fault(const Kernel& k, const std::string& text) {
  auto s = verify(k);
  REQUIRE_FALSE(s.ok());
  INFO(s.error().message);
  CHECK(s.error().message.find(text) != std::string::npos);
}

}  // namespace

TEST_CASE("sound kernels verify") {
  CHECK(verify(window_sum()).ok());
  CHECK(verify(product()).ok());
}
TEST_CASE("planted faults are found") {
  Kernel k = window_sum();
  k.dims.clear();
  expect_fault(k, "N, which is not bound");
  k = window_sum();
  std::get<Store>(k.body[1].node).buffer = 0;
  expect_fault(k, "no output");
  k = window_sum();
  std::get<Store>(k.body[1].node).buffer = 7;
  expect_fault(k, "no output");
  k = window_sum();
  std::get<Reduce>(k.body[0].node).value = Expr::load(5, DType::F32, Expr(0));
  expect_fault(k, "buffer 5, which does not exist");
  k = window_sum();
  std::swap(k.body[0], k.body[1]);
  expect_fault(k, "acc, which is not bound");
  k = window_sum();
  k.body.push_back(k.body[0]);
  expect_fault(k, "acc is bound twice");
  k = window_sum();
  std::get<Store>(k.body[1].node).value = Expr::read(0, DType::F32, {Expr(0)});
  expect_fault(k, "still has a Read");
  k = product();
  k.body.push_back({Note{"x"}});
  expect_fault(k, "stands alone");
  k = product();
  auto& c = std::get<Contract>(k.body[0].node);
  c.a = Expr::load(0, DType::F32, c.n[0].var);
  expect_fault(k, "operand a uses n, which is not bound");
  k = product();
  std::get<Contract>(k.body[0].node).epilogue.push_back({Loop{}});
  expect_fault(k, "may only bind, store and branch");
}
TEST_CASE("the text form shows the kernel") {
  CHECK(to_string(window_sum()) ==
        "kernel window_sum(in x: f32[N,3], out out0: f32[N], N) for i in N {\n"
        "  reduce acc: f32 = sum over t in 3 of load0[i*3 + t]\n"
        "  store1[i] = acc\n"
        "}\n");
}
TEST_CASE("the interpreter runs windows and products, and reports what lies outside") {
  std::vector<float> x{1, 2, 3, 4, 5, 6}, out(2, NAN);
  void* buffers[] = {x.data(), out.data()};
  const int64_t sizes[] = {6, 2};
  REQUIRE(interpret(window_sum(), buffers, sizes, {{"N", 2}}).ok());
  CHECK(out == std::vector<float>{6, 15});
  CHECK(interpret(window_sum(), buffers, sizes, {{"N", 0}}).ok());
  auto outside = interpret(window_sum(), buffers, sizes, {{"N", 3}});
  REQUIRE_FALSE(outside.ok());
  CHECK(outside.error().message.find("element 6 of 6") != std::string::npos);
  std::vector<float> a(20), b(30), c(24, NAN);
  for (size_t i = 0; i < 20; ++i) a[i] = static_cast<float>(i) - 9;
  for (size_t i = 0; i < 30; ++i) b[i] = static_cast<float>(i % 7) - 3;
  void* abc[] = {a.data(), b.data(), c.data()};
  const int64_t counts[] = {20, 30, 24};
  REQUIRE(interpret(product(), abc, counts, {}).ok());
  for (size_t m = 0; m < 4; ++m)
    for (size_t n = 0; n < 6; ++n) {
      float want = 0;
      for (size_t k = 0; k < 5; ++k) want += a[m * 5 + k] * b[k * 6 + n];
      CHECK(c[m * 6 + n] == std::max(want, 0.0f));
    }
}
