// A norm of rows between products stops being a kernel. The product before it adds up parts of the rows that it stores, and
// their squares; the products behind it multiply rows that are not normed yet, with the norm's scale in their weight, and take
// mean and deviation from the sums:
//   ((x - mean) * r * scale + shift) W = r * (x W') - mean * r * colsum(W') + shift W,  W' = scale * W
// What reads the normed rows one by one (a residual) norms them where it reads them.
#include <algorithm>
#include <cmath>
#include <set>

#include "compiler/expr/simplify.h"
#include "compiler/ops/compose.h"
#include "passes/passes.h"

namespace ingot {
namespace {

constexpr int64_t kPart = 64;  // columns of a part: those of the least tile whose results leave by TMA
constexpr int64_t kStep = 64;  // of k: what is not whole steps is multiplied by other kernels
// Of the weight with the norm's scale in it, stored in 16 bits: neither close to overflow, nor all of it denormal.
constexpr float kLargestWeight = 3e4f, kSmallestPeak = 1e-3f;

/// (x - mean) * rsqrt(variance + epsilon) * scale + shift along the last dimension; without the mean where it is not centred.
struct Norm {
  NodeId node;
  ValueId x, y, scale, shift;  // of the graph; scale and shift may be missing
  double epsilon = 0;
  bool centred = false;
  std::vector<NodeId> moves;  // of the norm's body: from the normed rows to y
};

/// Movement that leaves the last dimension where and as it is.
bool keeps_columns(const Graph& b, const Node& n) {
  if (n.op->name == "Transpose") {
    const auto& perm = n.attrs.as<PermAttrs>().perm;
    return !perm.empty() && perm.back() + 1 == static_cast<int64_t>(perm.size());
  }
  if (n.op->name != "Reshape") return false;
  const Shape &from = b.value(n.inputs[0]).type.shape, &to = b.value(n.outputs[0]).type.shape;
  return !from.empty() && !to.empty() && proves_equal(from.back(), to.back());
}

/// Which value of the graph an input of the body is; invalid: it is none.
ValueId outside(const Node& group, ValueId inside) {
  for (size_t i = 0; i < group.inputs.size(); ++i)
    if (group.body->inputs[i] == inside) return group.inputs[i];
  return {};
}
bool is_kind(const Node& n, const char* kind) { return n.body && n.attrs.as<FusedAttrs>().kind == kind; }

class NormMatcher {
 public:
  NormMatcher(const Graph& g, NodeId id) : g_(g), n_(g.node(id)), b_(*n_.body) { norm_.node = id; }

  bool match() {
    if (n_.outputs.size() != 1 || g_.is_output(n_.outputs[0])) return false;
    norm_.y = n_.outputs[0];
    ValueId v = b_.outputs[0];
    for (const Node* n = b_.producer(v); n && n->op->lowers_as<Movement>(); n = b_.producer(v)) {
      if (!keeps_columns(b_, *n)) return false;
      norm_.moves.insert(norm_.moves.begin(), b_.value(v).producer);
      v = n->inputs[0];
    }
    v = without("Add", v, norm_.shift);
    v = without("Mul", v, norm_.scale);
    if (const Node* quotient = made_by(v, "Div")) {
      const Node* root = made_by(quotient->inputs[1], "Sqrt");
      return root && centred(quotient->inputs[0], root->inputs[0]);
    }
    const Node* product = made_by(v, "Mul");
    for (size_t i = 0; product && i < 2; ++i)
      if (const ValueId variance = under_root(product->inputs[i]); variance.valid()) return centred(product->inputs[1 - i], variance);
    return false;
  }
  const Norm& norm() const { return norm_; }

 private:
  const Node* made_by(ValueId v, std::string_view name) const {
    const Node* n = b_.producer(v);
    return n && n->op->name == name ? n : nullptr;
  }
  std::optional<double> number(ValueId v) const {
    const TensorPtr& c = b_.value(v).constant;
    return c && c->count() == 1 && c->type() == DType::F32 ? std::optional<double>(c->as<float>()[0]) : std::nullopt;
  }
  /// A constant vector along the last dimension.
  bool is_vector(ValueId v) const {
    if (!v.valid() || !g_.value(v).constant || g_.value(v).type.dtype != DType::F32) return false;
    const Shape& shape = g_.value(v).type.shape;
    return !shape.empty() && proves_equal(element_count(shape), shape.back()) &&
           proves_equal(shape.back(), g_.value(norm_.y).type.shape.back());
  }
  /// What the vector is combined with, if v is such a combination: else v.
  ValueId without(const char* name, ValueId v, ValueId& vector) const {
    const Node* n = made_by(v, name);
    for (size_t i = 0; n && i < 2; ++i) {
      const ValueId c = outside(n_, n->inputs[i]);
      if (!is_vector(c)) continue;
      vector = c;
      return n->inputs[1 - i];
    }
    return v;
  }
  /// What v is one over the root of; invalid: it is none.
  ValueId under_root(ValueId v) const {
    if (const Node* root = made_by(v, "Rsqrt")) return root->inputs[0];
    const Node* quotient = made_by(v, "Div");
    const Node* root = quotient && number(quotient->inputs[0]) == 1.0 ? made_by(quotient->inputs[1], "Sqrt") : nullptr;
    return root ? root->inputs[0] : ValueId();
  }
  bool is_square_of(ValueId v, ValueId x) const {
    if (const Node* n = made_by(v, "Mul")) return n->inputs[0] == x && n->inputs[1] == x;
    const Node* n = made_by(v, "Pow");
    return n && n->inputs[0] == x && number(n->inputs[1]) == 2.0;
  }
  const Node* mean_of_rows(ValueId v) const {
    const Node* n = made_by(v, "ReduceMean");
    if (!n) return nullptr;
    const auto& a = n->attrs.as<AxesAttrs>();
    const auto last = static_cast<int64_t>(b_.value(n->inputs[0]).type.rank()) - 1;
    return a.keep && a.axes == std::vector<int64_t>{last} ? n : nullptr;
  }
  /// `d`: what is scaled; `variance`: what its root is taken of.
  bool centred(ValueId d, ValueId variance) {
    const Node* sum = made_by(variance, "Add");
    for (size_t i = 0; sum && i < 2; ++i) {
      const auto epsilon = number(sum->inputs[i]);
      const Node* mean = mean_of_rows(sum->inputs[1 - i]);
      if (!epsilon || !mean || !is_square_of(mean->inputs[0], d)) continue;
      norm_.epsilon = *epsilon;
      ValueId x = d;
      if (const Node* difference = made_by(d, "Sub")) {
        const Node* middle = mean_of_rows(difference->inputs[1]);
        if (!middle || middle->inputs[0] != difference->inputs[0]) return false;
        norm_.centred = true;
        x = difference->inputs[0];
      }
      norm_.x = outside(n_, x);
      return norm_.x.valid() && !g_.value(norm_.x).constant && g_.value(norm_.x).type.dtype == DType::F32;
    }
    return false;
  }

  const Graph& g_;
  const Node& n_;
  const Graph& b_;
  Norm norm_;
};

/// The product of a group, if it is one of rows by a constant matrix, its k in whole steps.
const Node* product_of_rows(const Graph& g, const Node& group) {
  if (!is_kind(group, "contraction")) return nullptr;
  for (NodeId id : group.body->order()) {
    const Node& n = group.body->node(id);
    if (!n.op->lowers_as<Contraction>()) continue;
    if (n.op->name != "MatMul") return nullptr;
    const ValueId w = outside(group, n.inputs[1]);
    if (!w.valid() || !g.value(w).constant || g.value(w).type.rank() != 2 || g.value(w).type.dtype != DType::F32) return nullptr;
    return g.value(w).constant->dims()[0] % kStep == 0 ? &n : nullptr;
  }
  return nullptr;
}

/// The group stores x, its only output, as the product has it: whole parts of columns, with pointwise work on each result.
bool can_sum_parts(const Graph& g, const Node& group, ValueId x) {
  const Node* product = product_of_rows(g, group);
  const Graph& b = *group.body;
  if (!product || group.outputs.size() != 1 || g.is_output(x) || g.is_read_back(x)) return false;
  const auto columns = b.value(product->outputs[0]).type.shape.back().as_int();
  if (!columns || *columns % kPart != 0) return false;
  std::set<ValueId> in_columns{product->outputs[0]};
  for (NodeId id : b.order()) {
    const Node& n = b.node(id);
    const auto from = std::find_if(n.inputs.begin(), n.inputs.end(), [&](ValueId v) { return in_columns.count(v) > 0; });
    if (from == n.inputs.end()) continue;
    if (n.op->lowers_as<Reduction>()) return false;
    const bool stays = n.op->lowers_as<Pointwise>()
                           ? same_shape(b.value(*from).type.shape, b.value(n.outputs[0]).type.shape)
                           : n.op->lowers_as<Movement>() && keeps_columns(b, n);
    if (stays) in_columns.insert(n.outputs[0]);
  }
  return in_columns.count(b.outputs[0]) > 0;
}

/// A product that reads the normed rows: by way of which movement, and what its constants become.
struct Reader {
  NodeId node;
  std::vector<NodeId> moves;  // of the body, from the normed rows to operand A; A may also be the rows themselves
  NodeId product;             // invalid: the rows are read one by one only
  TensorPtr weight, columns, bias;  // W', its sums of columns, shift W
};

class Folder {
 public:
  Folder(Graph& g, const PassContext& ctx) : g_(g), ctx_(ctx) {}

  Result<bool> run() {
    bool changed = false;
    for (NodeId id : g_.order()) {
      if (g_.node(id).dead || !is_kind(g_.node(id), "rows")) continue;
      NormMatcher matcher(g_, id);
      if (!matcher.match()) continue;
      const Norm norm = matcher.norm();
      const Node* before = g_.producer(norm.x);
      if (!before || !can_sum_parts(g_, *before, norm.x)) continue;
      const std::vector<Reader> readers = readers_of(norm);
      if (readers.empty()) continue;
      const auto sums = INGOT_TRY(add_sums(norm));
      for (const Reader& r : readers) INGOT_TRY(rewrite(r, norm, sums));
      g_.erase_if_dead(id);
      changed = true;
    }
    return changed;
  }

 private:
  using Sums = std::array<ValueId, 2>;  // of parts, of their squares

  // ---- what reads the rows ---------------------------------------------------------------------------------------------
  /// All that read the normed rows; none where one of them cannot do without, or no product reads them.
  std::vector<Reader> readers_of(const Norm& norm) const {
    std::set<NodeId> users(g_.value(norm.y).users.begin(), g_.value(norm.y).users.end());
    std::vector<Reader> readers;
    bool multiplied = false;
    for (NodeId u : users) {
      auto r = reader(u, norm);
      if (!r) return {};
      multiplied |= r->product.valid();
      readers.push_back(std::move(*r));
    }
    return multiplied ? readers : std::vector<Reader>{};
  }
  std::optional<Reader> reader(NodeId id, const Norm& norm) const {
    const Node& n = g_.node(id);
    const Node* product = product_of_rows(g_, n);
    if (!product || std::count(n.inputs.begin(), n.inputs.end(), norm.y) != 1) return std::nullopt;
    const Graph& b = *n.body;
    for (NodeId m : b.order()) {
      const bool combines = b.node(m).op->lowers_as<Reduction>() && b.node(m).op->name != "PartSums";
      if (combines && follows(b, b.node(m).inputs[0], product->outputs[0])) return std::nullopt;
    }
    Reader r;
    r.node = id;
    const ValueId rows = b.inputs[static_cast<size_t>(std::find(n.inputs.begin(), n.inputs.end(), norm.y) - n.inputs.begin())];
    ValueId a = product->inputs[0];
    while (a != rows) {
      const NodeId m = b.value(a).producer;
      if (!m.valid() || !b.node(m).op->lowers_as<Movement>() || !keeps_columns(b, b.node(m)) || b.value(a).users.size() != 1) break;
      r.moves.insert(r.moves.begin(), m);
      a = b.node(m).inputs[0];
    }
    if (a == rows) r.product = b.value(product->outputs[0]).producer;
    else r.moves.clear();
    if (!r.product.valid() && follows(b, product->inputs[0], rows)) return std::nullopt;  // the product would norm each row for each tile
    if (r.product.valid() && !with_scale(*g_.value(outside(n, product->inputs[1])).constant, norm, r)) return std::nullopt;
    return r;
  }
  static bool follows(const Graph& b, ValueId v, ValueId from) {
    const Node* n = b.producer(v);
    return v == from || (n && std::any_of(n->inputs.begin(), n->inputs.end(), [&](ValueId i) { return i.valid() && follows(b, i, from); }));
  }
  /// The constants of the product; false where 16 bits do not hold the weight well.
  bool with_scale(const Tensor& w, const Norm& norm, Reader& r) const {
    const int64_t k_end = w.dims()[0], n_end = w.dims()[1];
    const auto vector = [&](ValueId v) { return v.valid() ? g_.value(v).constant->as<float>() : nullptr; };
    const float *scale = vector(norm.scale), *shift = vector(norm.shift), *from = w.as<float>();
    auto weight = std::make_shared<Tensor>(DType::F32, w.dims());
    std::vector<double> columns(static_cast<size_t>(n_end)), bias(static_cast<size_t>(n_end));
    float peak = 0;
    float* to = weight->mutable_as<float>();
    for (int64_t k = 0; k < k_end; ++k)
      for (int64_t n = 0; n < n_end; ++n) {
        const float value = from[k * n_end + n], stored = rounded(scale ? value * scale[k] : value);
        to[k * n_end + n] = stored;
        columns[static_cast<size_t>(n)] += stored;
        if (shift) bias[static_cast<size_t>(n)] += static_cast<double>(shift[k]) * value;
        peak = std::fmax(peak, std::fabs(stored));
        if (std::isnan(stored)) return false;
      }
    r.weight = weight;
    r.columns = vector_of(columns);
    if (shift) r.bias = vector_of(bias);
    return peak <= kLargestWeight && peak >= kSmallestPeak;
  }
  float rounded(float value) const {
    return ctx_.precision == DType::F16 ? f16_to_float(float_to_f16(value)) : bf16_to_float(float_to_bf16(value));
  }
  static TensorPtr vector_of(const std::vector<double>& values) {
    auto t = std::make_shared<Tensor>(DType::F32, std::vector<int64_t>{static_cast<int64_t>(values.size())});
    std::copy(values.begin(), values.end(), t->mutable_as<float>());
    return t;
  }

  // ---- the rewrite -----------------------------------------------------------------------------------------------------
  Result<Sums> add_sums(const Norm& norm) {
    const NodeId id = g_.value(norm.x).producer;
    Graph& b = *g_.node(id).body;
    Sums sums;
    for (const bool square : {false, true}) {
      if (!square && !norm.centred) continue;
      GraphBuilder builder(b);
      const ValueId inside = INGOT_TRY(builder.add(op("PartSums"), PartSumsAttrs{kPart, square}, {b.outputs[0]}));
      b.outputs.push_back(inside);
      b.output_names.push_back("out" + std::to_string(b.output_names.size()));
      sums[square] = g_.append_output(id, b.value(inside).type);
    }
    return sums;
  }
  struct Row {
    ValueId mean, root;  // of the body, one element a row; mean is invalid where the norm has none
  };
  Row row_of(Compose& c, const Norm& norm, const std::array<ValueId, 2>& sums) const {
    const auto last = static_cast<int64_t>(g_.value(norm.x).type.rank()) - 1;
    const double one = 1.0 / static_cast<double>(*g_.value(norm.x).type.shape.back().as_int());
    const auto average = [&](ValueId v) { return c.mul(c.reduce("ReduceSum", v, {last}), one); };
    Row row{norm.centred ? average(sums[0]) : ValueId(), {}};
    ValueId variance = average(sums[1]);
    if (norm.centred) variance = c.binary("Max", c.sub(variance, c.mul(row.mean, row.mean)), 0.0);
    row.root = c.unary("Rsqrt", c.add(variance, norm.epsilon));
    return row;
  }
  static ValueId normed(Compose& c, const Norm& norm, const Row& row, ValueId x, ValueId scale, ValueId shift) {
    ValueId y = c.mul(norm.centred ? c.sub(x, row.mean) : x, row.root);
    if (scale.valid()) y = c.mul(y, scale);
    return shift.valid() ? c.add(y, shift) : y;
  }
  /// v behind movement of the body `b`: whole rows, or one value of each.
  static ValueId moved(Compose& c, const Graph& b, const std::vector<NodeId>& moves, ValueId v, bool whole) {
    for (NodeId m : moves) {
      if (!v.valid()) break;
      const Node n = b.node(m);
      Shape shape = b.value(n.outputs[0]).type.shape;
      if (!whole) shape.back() = 1;
      v = n.op->name == "Transpose" ? c.transpose(v, n.attrs.as<PermAttrs>().perm) : c.reshape(v, shape);
    }
    return v;
  }
  ValueId add_input(NodeId id, ValueId v) {
    std::vector<ValueId> inputs = g_.node(id).inputs;
    const auto known = std::find(inputs.begin(), inputs.end(), v);
    if (known != inputs.end()) return g_.node(id).body->inputs[static_cast<size_t>(known - inputs.begin())];
    inputs.push_back(v);
    g_.set_inputs(id, std::move(inputs));
    return g_.node(id).body->add_input(g_.value(v).type, g_.value(v).name);
  }
  Status rewrite(const Reader& r, const Norm& norm, const Sums& sums) {
    const auto& inputs = g_.node(r.node).inputs;
    Graph& b = *g_.node(r.node).body;
    const ValueId x = b.inputs[static_cast<size_t>(std::find(inputs.begin(), inputs.end(), norm.y) - inputs.begin())];
    g_.replace_use(r.node, norm.y, norm.x);
    std::vector<NodeId> one_by_one;
    for (NodeId u : b.value(x).users)
      if (u != r.product && (r.moves.empty() || u != r.moves.front())) one_by_one.push_back(u);
    GraphBuilder builder(b);
    builder.origin = g_.node(norm.node).origin;
    Compose c(builder);
    const std::vector<NodeId> all_readers = b.value(x).users;
    b.value(x).type = g_.value(norm.x).type;
    const Graph& own = *g_.node(norm.node).body;
    const Row row = row_of(c, norm, {norm.centred ? add_input(r.node, sums[0]) : ValueId(), add_input(r.node, sums[1])});
    if (r.product.valid()) INGOT_TRY(scale_product(c, r, norm, {moved(c, own, norm.moves, row.mean, false), moved(c, own, norm.moves, row.root, false)}));
    if (!one_by_one.empty()) {
      const auto vector = [&](ValueId v) { return v.valid() ? add_input(r.node, v) : v; };
      const ValueId y = moved(c, own, norm.moves, normed(c, norm, row, x, vector(norm.scale), vector(norm.shift)), true);
      for (NodeId u : one_by_one) b.replace_use(u, x, y);
    }
    if (!norm.moves.empty()) {
      const ValueId y = moved(c, own, norm.moves, x, true);
      for (NodeId u : all_readers) b.replace_use(u, x, y);
    }
    g_.node(r.node).origin.merge(g_.node(norm.node).origin);
    INGOT_TRY(c.result({}));
    return {};
  }
  /// root * product - mean * root * columns + bias in place of the product.
  Status scale_product(Compose& c, const Reader& r, const Norm& norm, const Row& row) {
    Graph& b = *g_.node(r.node).body;
    const Node product = b.node(r.product);
    const auto constant = [&](const TensorPtr& t) { return add_input(r.node, g_.add_constant(t)); };
    g_.replace_use(r.node, outside(g_.node(r.node), product.inputs[1]), g_.add_constant(r.weight));
    const std::vector<NodeId> users = b.value(product.outputs[0]).users;
    const ValueId root = moved(c, b, r.moves, row.root, false);
    ValueId y = c.mul(product.outputs[0], root);
    if (norm.centred) y = c.sub(y, c.mul(moved(c, b, r.moves, c.mul(row.mean, row.root), false), constant(r.columns)));
    if (r.bias && !add_to_bias(r, product, users)) y = c.add(y, constant(r.bias));
    for (NodeId u : users) b.replace_use(u, product.outputs[0], y);
    for (ValueId& out : b.outputs)
      if (out == product.outputs[0]) out = y;
    return {};
  }

  /// Where the product's only reader adds a constant vector, that becomes the sum of both.
  bool add_to_bias(const Reader& r, const Node& product, const std::vector<NodeId>& users) {
    Graph& b = *g_.node(r.node).body;
    if (users.size() != 1 || b.node(users[0]).op->name != "Add") return false;
    for (ValueId in : b.node(users[0]).inputs) {
      const ValueId v = in == product.outputs[0] ? ValueId() : outside(g_.node(r.node), in);
      if (!v.valid() || !g_.value(v).constant || g_.value(v).type.dtype != DType::F32 || b.value(in).users.size() != 1) continue;
      const Tensor &own = *g_.value(v).constant, &more = *r.bias;
      const Shape& shape = g_.value(v).type.shape;
      if (own.count() != more.count() || shape.empty() || !proves_equal(shape.back(), Expr(own.count()))) continue;
      auto sum = std::make_shared<Tensor>(DType::F32, own.dims());
      for (int64_t i = 0; i < own.count(); ++i) sum->mutable_as<float>()[i] = own.as<float>()[i] + more.as<float>()[i];
      const ValueId both = g_.add_constant(std::move(sum), g_.value(v).name);
      if (std::count(g_.node(r.node).inputs.begin(), g_.node(r.node).inputs.end(), v) != 1) return false;
      g_.replace_use(r.node, v, both);
      return true;
    }
    return false;
  }

  Graph& g_;
  const PassContext& ctx_;
};

}  // namespace

Result<bool> fold_norms(Graph& graph, const PassContext& ctx) {
  // Rows in 16 bits carry no more of a mean than f32 sums of squares tell; products with boxes have the row's values at hand.
  const bool sixteen = ctx.precision == DType::F16 || ctx.precision == DType::BF16;
  if (!ctx.fuse || !sixteen || ctx.target.kind != TargetKind::Cuda || ctx.target.compute_capability != 90) return false;
  return Folder(graph, ctx).run();
}

}  // namespace ingot
