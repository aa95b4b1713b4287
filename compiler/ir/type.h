// Shapes and tensor types. A dimension is an Expr, so static and symbolic shapes share every code path.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compiler/expr/expr.h"
#include "compiler/support/dtype.h"
#include "compiler/support/result.h"

namespace ingot {

using Shape = std::vector<Expr>;
using Index = std::vector<Expr>;

struct TensorType {
  DType dtype = DType::F32;
  Shape shape;
  size_t rank() const { return shape.size(); }
};

std::string to_string(const Shape& shape);        // "[N,64,8,8]"
std::string to_string(const TensorType& type);    // "f32[N,64,8,8]"
bool same_shape(const Shape& a, const Shape& b);  // proven equal
bool same_type(const TensorType& a, const TensorType& b);
Expr element_count(const Shape& shape);
/// The dims as numbers, when all are.
std::optional<std::vector<int64_t>> static_dims(const Shape& shape);
/// Row-major position of `index` in `shape`.
Expr linear_index(const Shape& shape, const Index& index);
/// The inverse: per-dimension indices of row-major position `linear`.
Index delinearize(const Shape& shape, const Expr& linear);

/// ONNX (numpy) broadcasting. A dimension that is 1 gives way; two symbolic dimensions that are not proven equal are
/// taken to be equal and `require_equal` (if given) receives the pair. Error: two unequal constants.
Result<Shape> broadcast(const Shape& a, const Shape& b, std::vector<std::pair<Expr, Expr>>* require_equal = nullptr);
/// The index into an operand of shape `shape` that `out` (an index of the broadcast shape) reads.
Index broadcast_index(const Shape& shape, const Index& out);

}  // namespace ingot
