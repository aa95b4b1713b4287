// Sliding windows of neighbouring outputs overlap: one thread computes several of them, so that an element is loaded once
// for all the windows that hold it. A rewrite of the kernel: the row of outputs is cut into parts, the reduction of each
// output becomes a chain of sums, and equal loads are then the printer's to share.
#include <algorithm>

#include <fmt/format.h>

#include "codegen/cuda/plan_cuda.h"
#include "codegen/cuda/window_form.h"
#include "codegen/lower/kernel_walk.h"
#include "codegen/text/c_printer.h"
#include "compiler/expr/simplify.h"

namespace ingot {

namespace {

constexpr int64_t kMaxTaps = 64, kMaxTerms = 200;  // of one window; of all windows of a thread
constexpr int64_t kLeastThreads = 512;  // that an image should keep busy
constexpr int64_t kParts[] = {4, 7, 2, 5, 3};  // outputs of a thread, by preference

/// The only reduction of the kernel, when all else computes with its result.
const Reduce* only_window(const Kernel& kernel) {
  const Reduce* found = nullptr;
  for (const Stmt& s : kernel.body) {
    if (auto* r = s.as<Reduce>()) {
      if (found || r->combine >= Combine::ArgMax) return nullptr;
      found = r;
    } else if (!s.as<Let>() && !s.as<Store>()) {
      return nullptr;
    }
  }
  if (!found || found->axes.empty()) return nullptr;
  int64_t taps = 1;
  for (const Axis& a : found->axes) {
    if (!a.extent.as_int()) return nullptr;
    taps *= *a.extent.as_int();
  }
  return taps > 1 && taps <= kMaxTaps ? found : nullptr;
}

int64_t taps_of(const Reduce& r) { return *total_of(r.axes).as_int(); }

/// Points of one image: with every dimension that is not known taken as 1.
int64_t least_points(const Kernel& kernel) {
  int64_t n = 1;
  for (const Axis& a : kernel.domain) n *= a.extent.as_int().value_or(1);
  return n;
}

/// How many neighbours along the last axis but one a thread computes; 1: none.
int64_t parts_of(const Kernel& kernel, const Reduce& window) {
  if (kernel.domain.size() < 2) return 1;
  const Axis &row = kernel.domain[kernel.domain.size() - 2], &inner = kernel.domain.back();
  const auto extent = row.extent.as_int();
  const int vector = widest_vector(kernel, kernel.body, inner.var, inner.extent, 8);
  if (!extent || vector < 2) return 1;
  for (int64_t parts : kParts) {
    if (*extent % parts != 0 || parts * taps_of(window) > kMaxTerms) continue;
    if (least_points(kernel) / (vector * parts) >= kLeastThreads) return parts;
  }
  return 1;
}

class Unroller {
 public:
  Unroller(const Kernel& kernel, const Reduce& window, int64_t parts)
      : kernel_(kernel), window_(window), parts_(parts), row_(kernel.domain[kernel.domain.size() - 2]) {}

  Kernel run() {
    Kernel out = kernel_;
    const Expr extent = simplify(floor_div(row_.extent, Expr(parts_)));
    const Expr part = Expr::index(row_.var.name() + "_part", extent);
    out.domain[out.domain.size() - 2] = {part, extent};
    out.body.clear();
    for (int64_t j = 0; j < parts_; ++j) places_.push_back({{row_.var.name(), part * parts_ + j}});
    for (const Stmt& s : kernel_.body) {
      if (s.as<Reduce>()) sums(out.body);
      else each_part(s, out.body);
    }
    return out;
  }

 private:
  /// acc = combine(acc, value) over the taps, row of taps by row of taps.
  void sums(Body& body) {
    const int64_t across = *window_.axes.back().extent.as_int();
    std::vector<Expr> acc(static_cast<size_t>(parts_), window_.init);
    for (int64_t first = 0; first < taps_of(window_); first += across) {
      for (size_t j = 0; j < places_.size(); ++j) {
        Expr sum = first == 0 ? at(acc[j], places_[j]) : acc[j];
        for (int64_t tap = first; tap < first + across; ++tap)
          sum = combine_pair(window_.combine, sum, value_at(j, tap));
        acc[j] = Expr::local(fmt::format("{}_{}_{}", window_.result.name(), j, first / across), window_.value.type());
        body.push_back({Let{acc[j], sum}});
      }
    }
    for (size_t j = 0; j < places_.size(); ++j) places_[j][window_.result.name()] = acc[j];
  }
  Expr value_at(size_t part, int64_t tap) const {
    Bindings bindings = places_[part];
    for (size_t i = window_.axes.size(); i-- > 0;) {
      const int64_t extent = *window_.axes[i].extent.as_int();
      bindings[window_.axes[i].var.name()] = Expr(tap % extent);
      tap /= extent;
    }
    return at(window_.value, bindings);
  }
  void each_part(const Stmt& s, Body& body) {
    for (size_t j = 0; j < places_.size(); ++j) {
      if (auto* store = s.as<Store>())
        body.push_back({Store{store->buffer, at(store->index, places_[j]), at(store->value, places_[j])}});
      if (auto* l = s.as<Let>()) {
        const Expr var = Expr::local(fmt::format("{}_{}", l->var.name(), j), l->var.type());
        body.push_back({Let{var, at(l->value, places_[j])}});
        places_[j][l->var.name()] = var;
      }
    }
  }

  const Kernel& kernel_;
  const Reduce& window_;
  int64_t parts_;
  const Axis& row_;
  std::vector<Bindings> places_;  // of each part: the row's index, and what has been computed
};

}  // namespace

Kernel unroll_windows(const Kernel& kernel) {
  const Reduce* window = only_window(kernel);
  const int64_t parts = window ? parts_of(kernel, *window) : 1;
  return parts == 1 ? kernel : Unroller(kernel, *window, parts).run();
}

}  // namespace ingot
