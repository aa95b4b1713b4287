// Expr: algebra by "is the same as", and the simplifier against brute-force evaluation.
#include <catch2/catch.hpp>
#include <bit>
#include <cstring>
#include <random>

#include "compiler/expr/simplify.h"

using namespace ingot;

namespace {

const Expr N = Expr::symbol("N", 1), C = Expr::symbol("C", 1), H = Expr::symbol("H", 1), W = Expr::symbol("W", 1);

void expect_same(const Expr& e, const std::string& text) { CHECK(to_string(simplify(e)) == text); }

/// A random i64 expression over the symbols a, b, c in [0, 9].
Expr random_expr(std::mt19937& rng, int depth) {
  static const Expr symbols[] = {Expr::symbol("a", 0, 9), Expr::symbol("b", 0, 9), Expr::symbol("c", 0, 9)};
  if (depth == 0 || rng() % 5 == 0) return rng() % 2 ? symbols[rng() % 3] : Expr(static_cast<int64_t>(rng() % 7) - 2);
  const Expr x = random_expr(rng, depth - 1), y = random_expr(rng, depth - 1);
  switch (rng() % 9) {
    case 0: return x + y;
    case 1: return x - y;
    case 2: return x * y;
    case 3: return floor_div(x, Expr(static_cast<int64_t>(rng() % 5) + 1));
    case 4: return floor_mod(x, Expr(static_cast<int64_t>(rng() % 5) + 1));
    case 5: return min(x, y);
    case 6: return max(x, y);
    case 7: return select(lt(x, y), x, y);
    default: return select(eq(x, y), y + 1, x);
  }
}

}  // namespace

TEST_CASE("dimensions compare by content") {
  expect_same(N * 2 + N, "N*3");
  expect_same(floor_div(H + W - W, 1) - H, "0");
  CHECK(proves_equal(N * (C + 1), C * N + N));
  CHECK_FALSE(proves_equal(N, C));
  CHECK(proves_less(N - 1, N));
  CHECK_FALSE(proves_less(N, C));
}

TEST_CASE("index arithmetic of reshapes cancels") {
  const Expr n = Expr::index("n", N), c = Expr::index("c", C), h = Expr::index("h", H), w = Expr::index("w", W);
  const Expr linear = ((n * C + c) * H + h) * W + w;
  expect_same(floor_mod(linear, W), "w");
  expect_same(floor_mod(floor_div(linear, W), H), "h");
  const Expr column = Expr::index("column", 768), row = Expr::index("row", N * 197);
  expect_same(floor_div(row * 768 + column, N * 768), to_string(floor_div(row, N)));
  expect_same(floor_mod(row * 768 + column, N * 768), to_string(simplify(floor_mod(row, N) * 768 + column)));
  expect_same(floor_mod(floor_div(linear, W * H), C), "c");
  expect_same(floor_div(linear, C * H * W), "n");
  const Expr window = Expr::index("window", N * 64), inside = Expr::index("inside", 49 * 96);
  expect_same(floor_div(window * (49 * 96) + inside, 8 * 49 * 96), "window//8");
  expect_same(floor_mod(window * (49 * 96) + inside, 8 * 49 * 96), to_string(simplify(floor_mod(window, 8) * (49 * 96) + inside)));
  const Expr pixel = Expr::index("pixel", 784);
  expect_same(floor_mod(floor_div(pixel, 28), 28), "pixel//28");
  const Expr i = Expr::index("i", H * W);
  const Expr head = Expr::index("head", 32), channel = Expr::index("channel", 128), key = Expr::index("key", N);
  const Expr transposed = N * head * 128 + N * channel + key;  // heads in groups of four
  expect_same(floor_div(transposed, N * 512), "head//4");
  expect_same(floor_div(N * head * 128 + key * 128 + channel, N * 512), "head//4");
  expect_same(floor_mod(floor_div(transposed, N), 128), "channel");
  expect_same(floor_mod(transposed, N * 512), to_string(simplify(floor_mod(head, 4) * N * 128 + N * channel + key)));
  expect_same(floor_div(i, W) * W + floor_mod(i, W), "i");
}

TEST_CASE("guards that ranges prove disappear") {
  const Expr out = Expr::index("o", floor_div(H - 3, 2) + 1), tap = Expr::index("t", 3);
  expect_same(lt(out * 2 + tap, H), "true");
  expect_same(le(0, out * 2 + tap), "true");
  CHECK_FALSE(simplify(le(0, out * 2 + tap - 1)).is_const());
}

TEST_CASE("linear coefficients") {
  const Expr i = Expr::index("i", N);
  CHECK(to_string(*linear_coefficient(i * C + H, "i")) == "C");
  CHECK(to_string(*linear_coefficient(H, "i")) == "0");
  CHECK_FALSE(linear_coefficient(floor_div(i, 2), "i").has_value());
}

TEST_CASE("simplify keeps the value and is idempotent") {
  std::mt19937 rng(11);
  for (int round = 0; round < 3000; ++round) {
    const Expr e = random_expr(rng, 4), s = simplify(e);
    INFO(to_string(e) << "  =>  " << to_string(s));
    CHECK(to_string(simplify(s)) == to_string(s));
    const Interval range = bounds_of(e);
    for (int k = 0; k < 8; ++k) {
      const std::unordered_map<std::string, int64_t> at{{"a", rng() % 10}, {"b", rng() % 10}, {"c", rng() % 10}};
      const auto want = evaluate_int(e, at);
      REQUIRE(want.has_value());
      REQUIRE(evaluate_int(s, at) == want);
      CHECK(*want >= range.low);
      CHECK(*want <= range.high);
    }
  }
}

TEST_CASE("constants fold with the meaning of the storage type") {
  CHECK((Expr::integer(DType::I8, 127) + Expr::integer(DType::I8, 1)).int_value() == -128);
  CHECK((Expr(-7) / Expr(2)).int_value() == -3);
  CHECK(floor_div(Expr(-7), Expr(2)).int_value() == -4);
  CHECK(floor_mod(Expr(-7), Expr(2)).int_value() == 1);
  CHECK(rem(Expr(-7), Expr(2)).int_value() == -1);
  CHECK((Expr(5) / Expr(0)).int_value() == 0);
  CHECK(Expr::real(DType::F32, 0.1).float_value() == static_cast<double>(0.1f));
}

TEST_CASE("f16 widens by integers as the compiler's own conversion does, for every bit pattern", "[dtype]") {
  int wrong = 0;
  for (uint32_t i = 0; i < 65536; ++i) {
    const auto bits = static_cast<uint16_t>(i);
    _Float16 half;
    std::memcpy(&half, &bits, 2);
    wrong += std::bit_cast<uint32_t>(f16_to_float(bits)) != std::bit_cast<uint32_t>(static_cast<float>(half));
  }
  CHECK(wrong == 0);
}
