// Compose: writes a composite operator as arithmetic over graph values. The first error sticks: later steps do nothing, and
// result() returns it, so that a rule reads as the formula it implements. Only compiler/ops includes it.
#pragma once

#include <optional>

#include "compiler/ops/rows.h"

namespace ingot {

class Compose {
 public:
  explicit Compose(GraphBuilder& b) : b_(b) {}

  /// The values, or the first error of any step.
  Result<Values> result(Values values);
  bool failed() const { return error_.has_value(); }
  ValueId fail(Error error);
  /// Unwraps a Result of a builder.
  ValueId take(Result<ValueId> r);

  const TensorType& type(ValueId v) const;
  const Shape& shape(ValueId v) const { return type(v).shape; }
  DType dtype(ValueId v) const { return type(v).dtype; }
  size_t rank(ValueId v) const { return type(v).rank(); }
  GraphBuilder& builder() { return b_; }

  template <class T>
  ValueId node(std::string_view name, T attrs, std::vector<ValueId> inputs) {
    return usable(inputs) ? take(b_.add(op(name), std::move(attrs), std::move(inputs))) : ValueId();
  }
  ValueId node(std::string_view name, std::vector<ValueId> inputs) {
    return usable(inputs) ? take(b_.add(op(name), std::move(inputs))) : ValueId();
  }
  ValueId binary(std::string_view name, ValueId x, ValueId y) { return node(name, {x, y}); }
  ValueId binary(std::string_view name, ValueId x, double y) { return failed() ? x : node(name, {x, scalar(dtype(x), y)}); }
  ValueId add(ValueId x, ValueId y) { return binary("Add", x, y); }
  ValueId sub(ValueId x, ValueId y) { return binary("Sub", x, y); }
  ValueId mul(ValueId x, ValueId y) { return binary("Mul", x, y); }
  ValueId div(ValueId x, ValueId y) { return binary("Div", x, y); }
  ValueId add(ValueId x, double y) { return binary("Add", x, y); }
  ValueId mul(ValueId x, double y) { return binary("Mul", x, y); }
  ValueId where(ValueId condition, ValueId x, ValueId y) { return node("Where", {condition, x, y}); }
  ValueId unary(std::string_view name, ValueId x) { return node(name, {x}); }

  ValueId scalar(DType type, double value) { return b_.scalar(type, value); }
  ValueId full(DType type, double value, Shape shape) { return expand(scalar(type, value), std::move(shape)); }
  ValueId cast(ValueId x, DType to) { return failed() ? x : take(build_cast(b_, x, to)); }
  /// f16, bf16 and fp8 as f32; other types as they are.
  ValueId widen(ValueId x);
  ValueId reshape(ValueId x, Shape shape) { return failed() ? x : take(build_reshape(b_, x, std::move(shape))); }
  ValueId transpose(ValueId x, std::vector<int64_t> perm) { return failed() ? x : take(build_transpose(b_, x, std::move(perm))); }
  /// The last two axes exchanged.
  ValueId swap_last(ValueId x);
  ValueId expand(ValueId x, Shape shape);
  /// Elements start, start + step, … (size of them) of one axis.
  ValueId slice(ValueId x, size_t axis, Expr start, Expr size, int64_t step = 1);
  ValueId concat(std::vector<ValueId> parts, size_t axis);
  ValueId gather(ValueId x, ValueId indices, size_t axis) ;
  ValueId reduce(std::string_view name, ValueId x, std::vector<int64_t> axes, bool keep = true);
  ValueId matmul(ValueId x, ValueId y) { return binary("MatMul", x, y); }
  ValueId softmax(ValueId x, int64_t axis);
  /// An i64 tensor of the shape whose element is its own index along the axis.
  ValueId position(Shape shape, size_t axis);
  /// x with an axis of one element put in front of axis `at`.
  ValueId unsqueeze(ValueId x, size_t at);

 private:
  bool usable(const std::vector<ValueId>&) const { return !failed(); }

  GraphBuilder& b_;
  std::optional<Error> error_;
  TensorType none_;
};

}  // namespace ingot
