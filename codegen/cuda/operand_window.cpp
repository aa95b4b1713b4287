// The operands of a convolution, channels last, as TMA reads them: the image by a window, the weights tap by tap.
#include <algorithm>

#include "codegen/cuda/plan_cuda.h"
#include "codegen/text/c_printer.h"
#include "compiler/expr/simplify.h"

namespace ingot {

namespace {

// What a tensor map of an image can hold (CUDA driver API, cuTensorMapEncodeIm2col, four axes).
constexpr int64_t kMostSteps = 8, kLowestCorner = -128, kHighestCorner = 127, kMostOffset = 255;

std::optional<int64_t> number(const std::optional<Expr>& e) { return e ? e->as_int() : std::nullopt; }

/// "0 <= e" and "e < bound", from a conjunction. False when there is anything else in it.
struct Limits {
  std::vector<Expr> not_negative;
  std::vector<std::pair<Expr, Expr>> below;
};
bool collect_limits(const Expr& guard, Limits& limits) {
  if (guard.op() == ExprOp::And) return collect_limits(guard.arg(0), limits) && collect_limits(guard.arg(1), limits);
  if (guard.op() == ExprOp::Le && guard.arg(0).is_const(0)) limits.not_negative.push_back(guard.arg(1));
  else if (guard.op() == ExprOp::Lt) limits.below.emplace_back(guard.arg(0), guard.arg(1));
  else return false;
  return true;
}

/// Reads the axes of a window off the index and the guard of an access.
class WindowReader {
 public:
  WindowReader(const Kernel& kernel, const Contract& c, const RawAccess& access) : c_(c), access_(access) {
    int64_t stride = 1;
    const std::vector<Expr>& shape = kernel.buffers[static_cast<size_t>(access.buffer)].shape;
    for (size_t i = shape.size(); i-- > 1;) {
      const auto extent = shape[i].as_int();
      if (!extent) break;
      rows_.push_back({stride, *extent});
      stride *= *extent;
    }
  }

  std::optional<OperandWindow> read() {
    if (!c_.batch.empty() || c_.k.empty() || coefficient(c_.k.back()) != 1) return std::nullopt;
    if (access_.guard.valid()) {
      const AxisGuard guard = guard_along(access_.guard, innermost(c_.k));
      present_ = guard.bound.value_or(INT64_MAX);
      if (guard.rest.valid() && !collect_limits(guard.rest, limits_)) return std::nullopt;
    }
    const auto window = read_axes(1);  // the first axis of m is the images'
    return window ? window : read_axes(0);
  }

 private:
  std::optional<OperandWindow> read_axes(size_t first) {
    paired_ = limits_seen_ = 0;
    const auto channels = c_.k.back().extent.as_int();
    const size_t count = c_.m.size() - std::min(first, c_.m.size());
    if (!channels || count < 1 || count > 2) return std::nullopt;
    OperandWindow window;
    window.buffer = access_.buffer;
    window.channels = *channels;
    window.present = std::min(*channels, present_);
    if (!read_axis(c_.m.back(), window.w)) return std::nullopt;
    if (count == 2 && !read_axis(c_.m[first], window.h)) return std::nullopt;
    const int64_t rows = window.w.extent * window.w.stride;
    if (count == 1) window.h.stride = rows;
    if (first && count == 1 && paired_ == 0 && c_.k.size() == 2 && !read_patches(window.h)) return std::nullopt;
    window.images = first ? c_.m[0].extent : Expr(1);
    const auto image = first ? coefficient(c_.m[0]) : std::optional<int64_t>(window.h.extent * window.h.stride);
    const auto offset = index_without(index_without(access_.index, c_.m), c_.k).as_int();
    if (paired_ + 1 != c_.k.size() || limits_seen_ != limits_.not_negative.size() + limits_.below.size() || !image || !offset)
      return std::nullopt;
    window.image_stride = *image;
    window.offset = *offset - window.h.low * window.h.stride - window.w.low * window.w.stride;
    return window;
  }
  std::optional<int64_t> coefficient(const Axis& a) const { return number(linear_coefficient(access_.index, a.var.name())); }

  /// Patches without gaps (2x2 in steps of 2): their columns are channels, and each row of patches is an image of its own, as high as a
  /// patch.
  bool read_patches(WindowAxis& axis) {
    const auto stride = coefficient(c_.k[0]), taps = c_.k[0].extent.as_int();
    if (!stride || *stride <= 0 || !taps) return false;
    axis = WindowAxis{1, *taps, *stride, 1, 0, *taps, 1};
    ++paired_;
    return true;
  }
  /// The axis of the input that the axis `o` of the output goes over, with the tap of k that belongs to it.
  bool read_axis(const Axis& o, WindowAxis& axis) {
    const auto outputs = o.extent.as_int(), distance = coefficient(o);
    if (!outputs || !distance || *distance <= 0) return false;
    axis.outputs = *outputs;
    for (size_t i = 0; i + 1 < c_.k.size(); ++i) {
      const Axis& t = c_.k[i];
      const auto step = coefficient(t);
      if (!step || *step <= 0 || !t.extent.as_int()) return false;
      for (const auto& [stride, extent] : rows_) {
        if (*distance % stride != 0 || *step % stride != 0) continue;
        WindowAxis found{*outputs, extent, stride, *distance / stride, 0, *t.extent.as_int(), *step / stride};
        if (!find_low(o, t, found)) continue;
        ++paired_;
        axis = found;
        return true;
      }
    }
    axis.extent = *outputs;  // no window along this axis
    axis.stride = *distance;
    return true;
  }
  /// The guard's word on where the window starts; without one it starts at the first element and ends inside.
  bool find_low(const Axis& o, const Axis& t, WindowAxis& axis) {
    std::optional<int64_t> low;
    size_t seen = 0;
    const auto place = [&](const Expr& e) -> std::optional<int64_t> {
      return simplify(e - o.var * axis.step - t.var * axis.dilation).as_int();
    };
    for (const Expr& e : limits_.not_negative)
      if (const auto at = place(e)) {
        low = at;
        ++seen;
      }
    for (const auto& [e, bound] : limits_.below)
      if (const auto at = place(e)) {
        if (!bound.is_const(axis.extent) || (low && *low != *at)) return false;
        low = at;
        ++seen;
      }
    axis.low = low.value_or(0);
    if (!low && (axis.outputs - 1) * axis.step + (axis.taps - 1) * axis.dilation >= axis.extent) return false;
    limits_seen_ += seen;
    return true;
  }

  const Contract& c_;
  const RawAccess& access_;
  std::vector<std::pair<int64_t, int64_t>> rows_;  // stride and extent of the buffer's axes, innermost first
  Limits limits_;
  int64_t present_ = INT64_MAX;
  size_t paired_ = 0, limits_seen_ = 0;
};

bool fits(const WindowAxis& a) {
  const auto is_corner = [](int64_t x) { return x >= kLowestCorner && x <= kHighestCorner; };
  return a.step <= kMostSteps && is_corner(a.low) && is_corner(a.high()) && (a.taps - 1) * a.dilation <= kMostOffset;
}

}  // namespace

std::optional<OperandWindow> operand_window(const Kernel& kernel, DType element) {
  const Contract& c = *kernel.contract();
  const auto access = raw_access(kernel, c.a, element);
  if (!access || operand_box(kernel, c.a, c.m, element)) return std::nullopt;  // rows of a matrix are no pixels
  const auto window = WindowReader(kernel, c, *access).read();
  const int64_t whole = 16 / static_cast<int64_t>(size_of(element));
  if (!window || window->offset < 0 || !fits(window->h) || !fits(window->w)) return std::nullopt;
  for (int64_t x : {window->offset, window->image_stride, window->h.stride, window->w.stride})
    if (x % whole != 0) return std::nullopt;
  return window;
}

std::optional<OperandBox> window_weights(const Kernel& kernel, DType element) {
  const Contract& c = *kernel.contract();
  const auto access = raw_access(kernel, c.b, element);
  if (!access || access->guard.valid() || c.k.empty()) return std::nullopt;
  const std::vector<Axis> taps(c.k.begin(), c.k.end() - 1), channel{c.k.back()};
  return box_of(access->buffer, access->index, channel, taps, c.n, element);
}

}  // namespace ingot
