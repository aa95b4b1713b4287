#include "compiler/ops/compose.h"

#include <numeric>

namespace ingot {

Result<Values> Compose::result(Values values) {
  if (error_) return std::move(*error_);
  return values;
}
ValueId Compose::fail(Error error) {
  if (!error_) error_ = std::move(error);
  return {};
}
ValueId Compose::take(Result<ValueId> r) {
  if (!r) return fail(std::move(r).error());
  return *r;
}
const TensorType& Compose::type(ValueId v) const { return v.valid() ? b_.type(v) : none_; }

ValueId Compose::widen(ValueId x) {
  const DType t = dtype(x);
  return is_float(t) && compute_type(t) != t ? cast(x, DType::F32) : x;
}
ValueId Compose::swap_last(ValueId x) {
  if (failed()) return x;
  std::vector<int64_t> perm(rank(x));
  std::iota(perm.begin(), perm.end(), 0);
  std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
  return transpose(x, perm);
}
ValueId Compose::expand(ValueId x, Shape shape) {
  if (failed() || same_shape(this->shape(x), shape)) return x;
  return node("Expand", ShapeAttrs{std::move(shape)}, {x});
}
ValueId Compose::slice(ValueId x, size_t axis, Expr start, Expr size, int64_t step) {
  return failed() ? x : take(build_slice(b_, x, axis, std::move(start), std::move(size), step));
}
ValueId Compose::concat(std::vector<ValueId> parts, size_t axis) {
  return failed() ? ValueId() : take(build_concat(b_, std::move(parts), axis));
}
ValueId Compose::gather(ValueId x, ValueId indices, size_t axis) {
  return failed() ? x : take(build_gather(b_, x, indices, axis));
}
ValueId Compose::reduce(std::string_view name, ValueId x, std::vector<int64_t> axes, bool keep) {
  return failed() ? x : take(build_reduce(b_, name, x, std::move(axes), keep));
}
ValueId Compose::softmax(ValueId x, int64_t axis) { return failed() ? x : take(build_softmax(b_, x, axis)); }
ValueId Compose::position(Shape shape, size_t axis) {
  return node("Position", PositionAttrs{std::move(shape), static_cast<int64_t>(axis)}, {});
}
ValueId Compose::unsqueeze(ValueId x, size_t at) {
  if (failed()) return x;
  Shape s = shape(x);
  s.insert(s.begin() + static_cast<int64_t>(at), 1);
  return reshape(x, s);
}

}  // namespace ingot
