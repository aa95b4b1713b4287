// Interpolation weights that Resize and GridSample share. Only compiler/ops includes it.
#pragma once

#include <vector>

#include "compiler/expr/expr.h"

namespace ingot {

/// Keys' cubic kernel with parameter a at distance |x|; 0 from 2 on.
inline Expr cubic_kernel(const Expr& distance, double a) {
  const Expr x = call(Fn::Abs, distance);
  const auto n = [&](double v) { return number_like(x, v); };
  const Expr near = ((n(a + 2) * x - n(a + 3)) * x) * x + n(1);
  const Expr far = ((n(a) * x - n(5 * a)) * x + n(8 * a)) * x - n(4 * a);
  return select(le(x, n(1)), near, select(lt(x, n(2)), far, n(0)));
}
/// The weights of the taps at -1, 0, 1, 2 from the left neighbour, for a position t in [0, 1) after it.
inline std::vector<Expr> cubic_weights(const Expr& t, double a) {
  std::vector<Expr> w;
  for (int i = -1; i <= 2; ++i) w.push_back(cubic_kernel(t - number_like(t, i), a));
  return w;
}

}  // namespace ingot
