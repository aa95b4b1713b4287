// Inputs for any program, comparison of outputs, and the memory of this process: for tests of the runtime.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <random>

#include "runtime/executor.h"

namespace ingot::testing {

/// Inputs with every symbol at `size`, as far as its range goes.
inline std::vector<Tensor> inputs_of_size(const runtime::Program& p, const std::vector<int64_t>& sizes,
                                          std::mt19937& rng) {
  std::vector<int64_t> symbols, lines;
  for (size_t s = 0; s < p.symbols.size(); ++s)
    symbols.push_back(std::clamp<int64_t>(sizes[s % sizes.size()], p.symbols[s].low, p.symbols[s].high));
  std::vector<Tensor> inputs;
  if (!p.shapes.evaluate(symbols, lines)) return inputs;
  for (const runtime::Binding& b : p.inputs) {
    runtime::Dims dims;
    for (runtime::ShapeRef d : b.dims) dims.push_back(lines[static_cast<size_t>(d)]);
    Tensor t(b.type, dims);
    std::normal_distribution<double> normal;
    for (int64_t i = 0; i < t.count(); ++i)
      if (is_float(b.type)) t.set_float(i, normal(rng));
      else t.set_int(i, static_cast<int64_t>(rng() % 2));
    inputs.push_back(std::move(t));
  }
  return inputs;
}

/// Inputs with every symbol at a random size from 1 to `most`.
inline std::vector<Tensor> random_inputs(const runtime::Program& p, int64_t most, std::mt19937& rng) {
  std::vector<int64_t> sizes(std::max<size_t>(p.symbols.size(), 1));
  for (int64_t& s : sizes) s = 1 + static_cast<int64_t>(rng() % static_cast<unsigned>(most));
  return inputs_of_size(p, sizes, rng);
}

/// The largest difference, relative to 1 + |expected|; infinite when shapes differ.
inline double worst_difference(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  double worst = a.size() == b.size() ? 0 : INFINITY;
  for (size_t o = 0; o < std::min(a.size(), b.size()); ++o) {
    if (a[o].dims() != b[o].dims()) return INFINITY;
    for (int64_t i = 0; i < a[o].count(); ++i) {
      const double d = std::abs(a[o].float_at(i) - b[o].float_at(i)) / (1 + std::abs(b[o].float_at(i)));
      if (!(d <= worst)) worst = d;
    }
  }
  return worst;
}

inline bool same_bytes(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  if (a.size() != b.size()) return false;
  for (size_t o = 0; o < a.size(); ++o)
    if (a[o].dims() != b[o].dims() || std::memcmp(a[o].data(), b[o].data(), b[o].bytes()) != 0) return false;
  return true;
}

/// Bytes of memory that this process holds.
inline int64_t resident_bytes() {
  std::ifstream in("/proc/self/statm");
  int64_t size = 0, resident = 0;
  in >> size >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

}  // namespace ingot::testing
