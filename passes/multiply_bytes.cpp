// Products of quantised values as products of what is in memory, integers or floats of 8 bits: zero points leave the operands
// and become corrections of the sums, and scales leave them, too, so that tensor cores multiply the bytes themselves.
#include <algorithm>
#include <limits>

#include "compiler/expr/simplify.h"
#include "compiler/ops/compose.h"
#include "compiler/ops/operands.h"
#include "compiler/ops/spatial.h"
#include "passes/passes.h"
#include "passes/typical.h"

namespace ingot {
namespace {

constexpr double kWorthSums =
    2e8;  // operations of a product that gains more than a kernel costs that sums an operand up

bool is_byte(DType t) { return t == DType::I8 || t == DType::U8; }

/// An operand as (bytes - zero) * scale.
struct Quantised {
  ValueId bytes, zero,
      scale;  // bytes: integers or f8; zero: an integer, invalid for 0; scale: of a float type, invalid for 1
};

class Rewriter {
 public:
  explicit Rewriter(Graph& graph) : g_(graph), builder_(graph), c_(builder_) {}

  Result<bool> run() {
    bool changed = false;
    const size_t nodes = g_.node_count();  // what looks for a form may add some, and find that it does not fit
    for (NodeId id : g_.order()) {
      const std::string_view name = g_.node(id).op->name;
      if (name == "MatMul" || name == "Conv") changed |= INGOT_TRY(rewrite(id));
    }
    return changed || g_.node_count() != nodes;
  }

 private:
  const Node* producer(ValueId v, std::string_view name) const {
    const Node* n = g_.producer(v);
    return n && n->op->name == name ? n : nullptr;
  }
  DType type_of(ValueId v) const { return g_.value(v).type.dtype; }
  const Shape& shape_of(ValueId v) const { return g_.value(v).type.shape; }

  /// The integers of a value that is known, or nothing.
  std::optional<std::vector<int64_t>> known(ValueId v) const {
    while (!g_.value(v).constant) {
      const Node* n = g_.producer(v);
      if (!n || (n->op->name != "Cast" && n->op->name != "Reshape")) return std::nullopt;
      v = n->inputs[0];
    }
    const Tensor& t = *g_.value(v).constant;
    if (is_float(t.type())) return std::nullopt;
    std::vector<int64_t> values;
    for (int64_t i = 0; i < t.count(); ++i) values.push_back(t.int_at(i));
    return values;
  }
  bool is_zero(ValueId v) const {
    const auto values = known(v);
    return values && std::all_of(values->begin(), values->end(), [](int64_t x) { return x == 0; });
  }
  /// bytes - zero, of type i32.
  std::optional<Quantised> centred(ValueId v) const {
    Quantised q;
    const Node* difference = producer(v, "Sub");
    const Node* widened = producer(difference ? difference->inputs[0] : v, "Cast");
    if (type_of(v) != DType::I32 || !widened || !is_byte(type_of(widened->inputs[0]))) return std::nullopt;
    q.bytes = widened->inputs[0];
    if (difference && !is_zero(difference->inputs[1])) q.zero = difference->inputs[1];
    return q;
  }
  std::optional<Quantised> scaled(ValueId v) const {
    const Node* product = producer(v, "Mul");
    const Node* as_float = product ? producer(product->inputs[0], "Cast") : nullptr;
    if (!as_float || type_of(v) != DType::F32 || type_of(product->inputs[1]) != DType::F32) return std::nullopt;
    auto q = centred(as_float->inputs[0]);
    if (!q || !keeps_shape(q->bytes, v)) return std::nullopt;
    q->scale = product->inputs[1];
    return q;
  }
  /// f8 as a wider float, which holds it as it is: the operand itself, or times a scale. What is then rounded to 16 bits need not be.
  std::optional<Quantised> small_float(ValueId v) const {
    const auto widened = [&](ValueId x) {
      const Node* n = producer(x, "Cast");
      return n && is_f8(type_of(n->inputs[0])) ? n->inputs[0] : ValueId();
    };
    const auto unrounded = [&](ValueId x) {
      const Node* n = producer(x, "Cast");
      return n && size_of(type_of(x)) == 2 && type_of(n->inputs[0]) == DType::F32 ? n->inputs[0] : x;
    };
    if (!is_float(type_of(v)) || type_of(v) == DType::F64) return std::nullopt;
    if (const ValueId bytes = widened(v); bytes.valid()) return Quantised{bytes, {}, {}};
    const Node* product = producer(unrounded(v), "Mul");
    for (size_t i = 0; product && i < 2; ++i)
      if (const ValueId bytes = widened(unrounded(product->inputs[i]));
          bytes.valid() && keeps_shape(bytes, product->outputs[0]))
        return Quantised{bytes, {}, product->inputs[1 - i]};
    return std::nullopt;
  }
  bool keeps_shape(ValueId bytes, ValueId v) const { return same_shape(shape_of(bytes), shape_of(v)); }
  std::optional<Quantised> of_any_kind(ValueId v) const {
    if (type_of(v) == DType::I32) return centred(v);
    auto q = small_float(v);
    return q ? q : scaled(v);
  }
  /// As above; behind a transpose, the parts are transposed.
  std::optional<Quantised> quantised(ValueId v) {
    if (auto q = of_any_kind(v)) return q;
    const Node* moved = producer(v, "Transpose");
    auto q = moved && type_of(v) != DType::I32 ? of_any_kind(moved->inputs[0]) : std::nullopt;
    if (!q) return std::nullopt;
    const std::vector<int64_t> perm = moved->attrs.as<PermAttrs>().perm;
    for (ValueId* part : {&q->bytes, &q->zero, &q->scale})
      if (part->valid() && shape_of(*part).size() == perm.size()) *part = c_.transpose(*part, perm);
    return q;
  }

  /// Of a shape that lines up with `rank` dimensions from the right, only dimension `along` is more than one element.
  static bool varies_along(const Shape& s, size_t rank, size_t along) {
    if (s.size() > rank) return false;
    for (size_t d = 0; d < s.size(); ++d)
      if (d + rank - s.size() != along && !s[d].is_const(1)) return false;
    return true;
  }
  bool parts_vary_along(const Quantised& q, size_t along) const {
    const size_t rank = shape_of(q.bytes).size();
    const auto fits = [&](ValueId v) { return !v.valid() || varies_along(shape_of(v), rank, along); };
    return fits(q.zero) && fits(q.scale);
  }
  bool is_single(ValueId v) const { return !v.valid() || element_count(shape_of(v)).is_const(1); }

  /// A weight less its zero point, where bytes hold the difference.
  void absorb_zero(Quantised& q) {
    const TensorPtr t = g_.value(q.bytes).constant;
    const auto zeros = q.zero.valid() ? known(q.zero) : std::nullopt;
    if (!t || !zeros) return;
    // Zeros vary along one dimension: how many elements stand together, and how often they come round.
    int64_t together = 1;
    const Shape& zs = shape_of(q.zero);
    for (size_t d = 0; zeros->size() > 1 && d < zs.size(); ++d)
      if (zs[d].is_const(static_cast<int64_t>(zeros->size())))
        for (size_t e = d + 1 + t->dims().size() - zs.size(); e < t->dims().size(); ++e) together *= t->dims()[e];
    int64_t low = 0, high = 0;
    std::vector<int64_t> values;
    for (int64_t i = 0; i < t->count(); ++i) {
      values.push_back(t->int_at(i) - (*zeros)[static_cast<size_t>(i / together) % zeros->size()]);
      low = std::min(low, values.back());
      high = std::max(high, values.back());
    }
    if (low < (high > 127 ? 0 : -128) || high > 255) return;
    Tensor fresh(high > 127 ? DType::U8 : DType::I8, t->dims());
    for (int64_t i = 0; i < fresh.count(); ++i) fresh.set_int(i, values[static_cast<size_t>(i)]);
    q.bytes = g_.add_constant(std::make_shared<const Tensor>(std::move(fresh)), g_.value(q.bytes).name);
    q.zero = {};
  }

  Result<bool> rewrite(NodeId id) {
    const Node n = g_.node(id);
    builder_.origin = n.origin;
    const DType type = type_of(n.outputs[0]);
    if (type != DType::I32 && (!is_float(type) || type == DType::F64)) return false;
    auto a = quantised(n.inputs[0]), b = quantised(n.inputs[1]);
    if (!a || !b || is_f8(type_of(a->bytes)) != is_f8(type_of(b->bytes)) || are_widened(n)) return false;
    absorb_zero(*a);
    absorb_zero(*b);
    const auto y = n.op->name == "Conv" ? conv(n, *a, *b) : matmul(shape_of(n.outputs[0]), *a, *b);
    if (!y) return false;
    const ValueId result = INGOT_TRY(c_.result({c_.cast(scale(n, *y, *a, *b), type)}))[0];
    g_.value(result).name = g_.value(n.outputs[0]).name;
    g_.replace_all_uses(n.outputs[0], result);
    g_.erase_if_dead(id);
    return true;
  }
  /// Both operands are casts to f32 of f8, as this pass leaves them.
  bool are_widened(const Node& n) const {
    return std::all_of(n.inputs.begin(), n.inputs.begin() + 2, [&](ValueId v) {
      const Node* cast = producer(v, "Cast");
      return cast && is_f8(type_of(cast->inputs[0])) && type_of(v) == DType::F32;
    });
  }
  /// The sums of products of k elements fit in 32 bits; sums of integers wrap as they did.
  bool fits(const Quantised& a, const Expr& k) const {
    const auto count = k.as_int();
    return !a.scale.valid() || is_f8(type_of(a.bytes)) ||
           (count && *count * 255 * 255 <= std::numeric_limits<int32_t>::max());
  }
  ValueId widen(ValueId bytes) { return c_.cast(bytes, is_f8(type_of(bytes)) ? DType::F32 : DType::I32); }
  /// Over these axes, which stay. Of a weight they are a constant: what multiplies it keeps its bytes as they are.
  ValueId sums_of(ValueId bytes, const std::vector<int64_t>& axes) {
    const TensorPtr t = g_.value(bytes).constant;
    if (!t) return c_.reduce("ReduceSum", widen(bytes), axes);
    std::vector<int64_t> dims = t->dims(), strides(dims.size(), 0);
    for (int64_t a : axes) dims[static_cast<size_t>(a)] = 1;
    int64_t count = 1;
    for (size_t d = dims.size(); d-- > 0; count *= dims[d])
      if (dims[d] == t->dims()[d]) strides[d] = count;
    std::vector<int64_t> sums(static_cast<size_t>(count), 0);
    for (int64_t i = 0; i < t->count(); ++i) {
      int64_t at = 0, rest = i;
      for (size_t d = dims.size(); d-- > 0; rest /= t->dims()[d]) at += rest % t->dims()[d] * strides[d];
      sums[static_cast<size_t>(at)] += t->int_at(i);
    }
    Tensor result(DType::I32, dims);
    for (int64_t i = 0; i < count; ++i) result.set_int(i, static_cast<int32_t>(sums[static_cast<size_t>(i)]));
    return builder_.constant(std::move(result));
  }
  /// acc - zero * sums
  ValueId correct(ValueId acc, ValueId zero, ValueId sums) { return c_.sub(acc, c_.mul(widen(zero), sums)); }

  /// sum (a - p)(b - q) = sum ab - p sum b - q sum a + k p q
  std::optional<ValueId> matmul(const Shape& out, const Quantised& a, const Quantised& b) {
    const size_t ra = shape_of(a.bytes).size(), rb = shape_of(b.bytes).size();
    const Expr k = shape_of(a.bytes).back();
    if (ra < 2 || rb < 2 || !parts_vary_along(a, ra - 2) || !parts_vary_along(b, rb - 1) || !fits(a, k))
      return std::nullopt;
    if (a.zero.valid() && b.zero.valid() && !k.as_int()) return std::nullopt;
    const bool sums_at_run_time =
        (a.zero.valid() && !g_.value(b.bytes).constant) || (b.zero.valid() && !g_.value(a.bytes).constant);
    if (sums_at_run_time &&
        2.0 * static_cast<double>(typical(element_count(out))) * static_cast<double>(typical(k)) < kWorthSums)
      return std::nullopt;
    ValueId y = c_.node("MatMul", {widen(a.bytes), widen(b.bytes)});
    if (a.zero.valid()) y = correct(y, a.zero, sums_of(b.bytes, {static_cast<int64_t>(rb) - 2}));
    if (b.zero.valid()) y = correct(y, b.zero, sums_of(a.bytes, {static_cast<int64_t>(ra) - 1}));
    if (a.zero.valid() && b.zero.valid())
      y = c_.add(y, c_.mul(c_.mul(widen(a.zero), widen(b.zero)), static_cast<double>(*k.as_int())));
    return y;
  }
  std::optional<ValueId> conv(const Node& n, const Quantised& x, const Quantised& w) {
    const Shape& ws = shape_of(w.bytes);
    Expr k = 1;
    for (size_t d = 1; d < ws.size(); ++d) k = k * ws[d];
    if (!is_single(x.zero) || !is_single(x.scale) || w.zero.valid() || !parts_vary_along(w, 0) || !fits(x, simplify(k)))
      return std::nullopt;
    const std::optional<ValueId> sums = x.zero.valid() ? weights_inside(n, x, w) : ValueId();
    if (!sums) return std::nullopt;
    const ValueId y = c_.node("Conv", n.attrs.as<ConvAttrs>(), {widen(x.bytes), widen(w.bytes)});
    return x.zero.valid() ? correct(y, c_.reshape(x.zero, {}), *sums) : y;
  }
  /// The sums of the weights that a position multiplies: of all of them, or of those inside the image. Nothing where
  /// its size is not known.
  std::optional<ValueId> weights_inside(const Node& n, const Quantised& x, const Quantised& w) {
    ConvAttrs a = n.attrs.as<ConvAttrs>();
    const Shape &xs = shape_of(x.bytes), &ws = shape_of(w.bytes);
    bool padded = a.same;
    for (size_t d = 0; d < a.begins.size(); ++d) padded |= !a.begins[d].is_const(0) || !a.ends[d].is_const(0);
    std::vector<int64_t> axes{1}, image{1, 1};
    if (padded) {
      for (size_t d = 2; d < xs.size(); ++d) {
        if (!xs[d].as_int()) return std::nullopt;
        image.push_back(*xs[d].as_int());
      }
      a.groups = 1;
      Tensor ones(DType::I32, image);
      for (int64_t i = 0; i < ones.count(); ++i) ones.set_int(i, 1);
      return c_.node("Conv", a, {builder_.constant(std::move(ones)), sums_of(w.bytes, axes)});
    }
    Shape per_channel{ws[0]};
    for (size_t d = 2; d < ws.size(); ++d) axes.push_back(static_cast<int64_t>(d)), per_channel.push_back(1);
    return c_.reshape(sums_of(w.bytes, axes), per_channel);
  }
  ValueId scale(const Node& n, ValueId y, const Quantised& a, const Quantised& b) {
    ValueId sa = a.scale, sb = b.scale;
    if (n.op->name == "Conv") {
      Shape per_channel{shape_of(b.bytes)[0]};
      for (size_t d = 2; d < shape_of(b.bytes).size(); ++d) per_channel.push_back(1);
      if (sa.valid()) sa = c_.reshape(sa, {});
      if (sb.valid()) sb = c_.reshape(sb, is_single(sb) ? Shape{} : per_channel);
    }
    ValueId factor;
    for (ValueId s : {sa, sb}) {
      if (!s.valid()) continue;
      s = c_.cast(s, DType::F32);
      factor = factor.valid() ? c_.mul(factor, s) : s;
    }
    return factor.valid() ? c_.mul(c_.cast(y, DType::F32), factor) : y;
  }

  Graph& g_;
  GraphBuilder builder_;
  Compose c_;
};

}  // namespace

static bool has_unit(const PassContext& ctx) { return ctx.target.kind == TargetKind::Cuda && ctx.fuse; }

bool widens_bytes_of_product(const Graph& g, const Node& n, const PassContext& ctx) {
  const auto widens = [&](const Node& x) {
    if (x.op->name != "Cast") return false;
    const DType from = g.value(x.inputs[0]).type.dtype, to = g.value(x.outputs[0]).type.dtype;
    return to == DType::I32 ? is_byte(from) : to == DType::F32 && is_f8(from);
  };
  if (!has_unit(ctx) || !widens(n)) return false;
  // f8 beside another float is what it always was: a value that is converted.
  const auto is_widened = [&](ValueId v) {
    const Node* from = g.producer(v);
    return from && widens(*from);
  };
  const bool integers = g.value(n.outputs[0]).type.dtype == DType::I32;
  const std::vector<NodeId>& users = g.value(n.outputs[0]).users;
  return std::any_of(users.begin(), users.end(), [&](NodeId u) {
    const Node& user = g.node(u);
    return user.op->lowers_as<Contraction>() &&
           (integers || (is_widened(user.inputs[0]) && is_widened(user.inputs[1])));
  });
}

bool makes_bytes_of_product(const Graph& g, const Node& n, const PassContext& ctx) {
  if (!n.op->lowers_as<Pointwise>()) return false;
  return std::any_of(n.outputs.begin(), n.outputs.end(), [&](ValueId v) {
    const std::vector<NodeId>& users = g.value(v).users;
    return std::any_of(users.begin(), users.end(), [&](NodeId u) { return widens_bytes_of_product(g, g.node(u), ctx); });
  });
}

Result<bool> multiply_bytes(Graph& graph, const PassContext& ctx) {
  if (!has_unit(ctx)) return false;
  return Rewriter(graph).run();
}

}  // namespace ingot
