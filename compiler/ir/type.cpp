#include "compiler/ir/type.h"

#include "compiler/expr/simplify.h"

namespace ingot {

std::string to_string(const Shape& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i ? "," : "") + to_string(shape[i]);
  return text + "]";
}
std::string to_string(const TensorType& type) { return name_of(type.dtype) + to_string(type.shape); }

bool same_shape(const Shape& a, const Shape& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i)
    if (!proves_equal(a[i], b[i])) return false;
  return true;
}
bool same_type(const TensorType& a, const TensorType& b) { return a.dtype == b.dtype && same_shape(a.shape, b.shape); }

Expr element_count(const Shape& shape) { return simplify(product(shape)); }

std::optional<std::vector<int64_t>> static_dims(const Shape& shape) {
  std::vector<int64_t> dims;
  for (const Expr& d : shape) {
    auto v = d.as_int();
    if (!v) return std::nullopt;
    dims.push_back(*v);
  }
  return dims;
}

Expr linear_index(const Shape& shape, const Index& index) {
  INGOT_CHECK(shape.size() == index.size(), "linear_index: rank mismatch for " + to_string(shape));
  Expr linear = 0;
  for (size_t i = 0; i < shape.size(); ++i) linear = linear * shape[i] + index[i];
  return simplify(linear);
}

Index delinearize(const Shape& shape, const Expr& linear) {
  Index index(shape.size(), Expr(0));
  Expr stride = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    if (shape[i].is_const(1)) continue;
    const Expr quotient = floor_div(linear, stride);
    index[i] = simplify(i == 0 ? quotient : floor_mod(quotient, shape[i]));
    stride = simplify(stride * shape[i]);
  }
  return index;
}

namespace {
/// 1, or symbolic but never more: such a dimension gives way like 1. (Where it is 0 the result is empty or the call invalid.)
bool at_most_one(const Expr& d) { return d.is_const(1) || (!d.is_const() && bounds_of(d).high <= 1); }

Expr at_flag(const Expr& d, const Expr& flag, int64_t value) { return simplify(substitute(d, {{flag.name(), Expr(value)}})); }
/// A symbol, 0 or 1, at whose 1 the dimension is 1: what a reduction leaves of an axis that only a call names. Else invalid.
Expr flag_of(const Expr& d) {
  Expr found;
  if (d.is_const() || d.op() == ExprOp::Symbol) return found;
  visit(d, [&](const Expr& x) {
    const bool flag = x.op() == ExprOp::Symbol && !x.extent().valid() && x.low() == 0 && x.high() == 1;
    if (flag && !found.valid() && at_flag(d, x, 1).is_const(1)) found = x;
  });
  return found;
}
/// x is y, or 1 where its flag is set.
bool gives_way(const Expr& x, const Expr& y) {
  const Expr flag = flag_of(x);
  return flag.valid() && proves_equal(at_flag(x, flag, 0), y);
}
}  // namespace

Result<Shape> broadcast(const Shape& a, const Shape& b, std::vector<std::pair<Expr, Expr>>* require_equal) {
  const size_t rank = std::max(a.size(), b.size());
  Shape out(rank);
  for (size_t i = 0; i < rank; ++i) {
    const Expr x = i + a.size() >= rank ? a[i + a.size() - rank] : Expr(1);
    const Expr y = i + b.size() >= rank ? b[i + b.size() - rank] : Expr(1);
    if (at_most_one(x)) out[i] = y.is_const(1) ? x : y;
    else if (at_most_one(y) || proves_equal(x, y)) out[i] = x;
    else if (gives_way(x, y)) out[i] = y;
    else if (gives_way(y, x)) out[i] = x;
    else if (x.is_const() && y.is_const())
      return invalid("shapes " + to_string(a) + " and " + to_string(b) + " do not broadcast");
    else {
      out[i] = x.is_const() ? x : y.is_const() ? y : x;
      if (require_equal) require_equal->emplace_back(x, y);
    }
  }
  return out;
}

Index broadcast_index(const Shape& shape, const Index& out) {
  Index index;
  for (size_t i = 0; i < shape.size(); ++i) {
    const Expr at = out[i + out.size() - shape.size()], flag = flag_of(shape[i]);
    if (at_most_one(shape[i])) index.emplace_back(0);
    else index.push_back(flag.valid() ? at * (Expr(1) - flag) : at);
  }
  return index;
}

}  // namespace ingot
