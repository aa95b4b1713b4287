// What hand-made kernels are put together from. Internal to sample_kernels.cpp and sample_products.cpp.
#pragma once

#include "compiler/expr/combine.h"
#include "tests/emulation/sample_kernels.h"

namespace ingot::samples {

inline Expr index(const char* name, Expr extent) { return Expr::index(name, std::move(extent)); }
inline Axis axis(const Expr& var) { return {var, var.extent()}; }
inline Buffer input(const char* name, DType type, std::vector<Expr> shape) {
  return {name, type, std::move(shape), false, false};
}
inline Buffer output(const char* name, DType type, std::vector<Expr> shape) {
  return {name, type, std::move(shape), true, false};
}

inline Reduce reduction(const Expr& result, Combine combine, std::vector<Axis> axes, const Expr& value,
                        Expr init = {}) {
  return {result, combine, init.valid() ? init : identity_of(combine, value.type()), std::move(axes), value, false};
}

inline Kernel kernel(const char* name, std::vector<Buffer> buffers, std::vector<Axis> domain) {
  Kernel k;
  k.name = name;
  k.header = {std::string(name) + " (hand-made)"};
  k.buffers = std::move(buffers);
  k.domain = std::move(domain);
  return k;
}

inline Expr f32(double v) { return Expr::real(DType::F32, v); }

}  // namespace ingot::samples
