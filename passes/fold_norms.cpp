// A norm of rows between products stops being a kernel. The product before it (or a window over images, whose pixels are the
// rows) adds up parts of the rows that it stores, and their squares; the products behind it multiply rows that are not normed yet, with the norm's scale in their weight, and take
// mean and deviation from the sums:
//   ((x - mean) * r * scale + shift) W = r * (x W') - mean * r * colsum(W') + shift W,  W' = scale * W
// What reads the normed rows one by one (a residual) norms them where it reads them.
#include <algorithm>
#include <cmath>
#include <set>

#include "compiler/expr/simplify.h"
#include "compiler/ops/compose.h"
#include "passes/match_norm.h"
#include "passes/passes.h"

namespace ingot {
namespace {

constexpr int64_t kPart = 64;  // columns of a part: those of the least tile whose results leave by TMA
constexpr int64_t kWindowParts[] = {64, 32};  // of the channels of a window's result
constexpr int64_t kStep = 64;  // of k: what is not whole steps is multiplied by other kernels, if it has few columns
constexpr int64_t kFewColumns = 256;
// Of the weight with the norm's scale in it, stored in 16 bits: what is larger or smaller gets a factor, which the row's makes up for.
constexpr float kLargestWeight = 1e3f, kSmallestPeak = 1e-2f;

bool is_kind(const Node& n, const char* kind) { return n.body && n.attrs.as<FusedAttrs>().kind == kind; }

/// The product of a group, if it is one of rows by a constant matrix, its k in whole steps.
const Node* product_of_rows(const Graph& g, const Node& group) {
  if (!is_kind(group, "contraction")) return nullptr;
  for (NodeId id : group.body->order()) {
    const Node& n = group.body->node(id);
    if (!n.op->lowers_as<Contraction>()) continue;
    if (n.op->name != "MatMul") return nullptr;
    const ValueId w = outside(group, n.inputs[1]);
    if (!w.valid() || !g.value(w).constant || g.value(w).type.rank() != 2 || g.value(w).type.dtype != DType::F32)
      return nullptr;
    const auto& dims = g.value(w).constant->dims();
    return dims[0] % kStep == 0 || (dims[0] % 8 == 0 && dims[1] > kFewColumns) ? &n : nullptr;
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
    const auto from =
        std::find_if(n.inputs.begin(), n.inputs.end(), [&](ValueId v) { return in_columns.count(v) > 0; });
    if (from == n.inputs.end()) continue;
    if (n.op->lowers_as<Reduction>()) return false;
    const bool stays = n.op->lowers_as<Pointwise>()
                           ? same_shape(b.value(*from).type.shape, b.value(n.outputs[0]).type.shape)
                           : n.op->lowers_as<Movement>() && keeps_columns(b, n);
    if (stays) in_columns.insert(n.outputs[0]);
  }
  return in_columns.count(b.outputs[0]) > 0;
}

/// Channels of a part where the group is a window that stores x alone: pixels of an image with known extents, which the norm turns
/// into rows. 0: it is none.
int64_t window_parts(const Graph& g, const Node& group, const Norm& norm) {
  if (!is_kind(group, "windows") || group.outputs.size() != 1 || g.is_output(norm.x) || g.is_read_back(norm.x))
    return 0;
  if (g.value(norm.x).users.size() != 1) return 0;
  const Graph& b = *group.body;
  const Node& turn = g.node(norm.node).body->node(norm.turn);
  if (turn.attrs.as<PermAttrs>().perm != std::vector<int64_t>{0, 2, 3, 1}) return 0;
  bool window = false;
  for (NodeId id : b.order()) {
    const Node& n = b.node(id);
    const bool is_window = n.op->name == "DepthwiseConv";
    if (window && !n.op->lowers_as<Pointwise>()) return 0;
    if (!is_window && n.op->lowers_as<Reduction>()) return 0;
    window |= is_window;
  }
  const Shape& s = g.value(norm.x).type.shape;
  const auto channels = s[1].as_int();
  if (!window || !channels || !s[2].as_int() || !s[3].as_int()) return 0;
  for (int64_t width : kWindowParts)
    if (*channels % width == 0) return width;
  return 0;
}

/// A product that reads the normed rows: by way of which movement, and what its constants become.
struct Reader {
  NodeId node;
  std::vector<NodeId> moves;  // of the body, from the normed rows to operand A; A may also be the rows themselves
  NodeId product;  // invalid: the rows are read one by one only
  TensorPtr weight, columns, bias;  // W', its sums of columns, shift W
  double factor = 1;  // of W' besides, a power of two
};

class Folder {
 public:
  Folder(Graph& g, const PassContext& ctx) : g_(g), ctx_(ctx) {}

  Result<bool> run() {
    bool changed = false;
    for (NodeId id : g_.order()) {
      if (g_.node(id).dead || !is_kind(g_.node(id), "rows")) continue;
      const auto found = match_norm(g_, id);
      if (!found) continue;
      const Norm& norm = *found;
      const Node* before = g_.producer(norm.x);
      if (!before) continue;
      const int64_t width = norm.turn.valid()                    ? window_parts(g_, *before, norm)
                            : can_sum_parts(g_, *before, norm.x) ? kPart
                                                                 : 0;
      const std::vector<Reader> readers = width > 0 ? readers_of(norm) : std::vector<Reader>{};
      if (readers.empty()) continue;
      if (norm.turn.valid()) INGOT_TRY(turn_image(norm));
      const auto sums = INGOT_TRY(add_sums(norm, width));
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
    const ValueId rows =
        b.inputs[static_cast<size_t>(std::find(n.inputs.begin(), n.inputs.end(), norm.y) - n.inputs.begin())];
    ValueId a = product->inputs[0];
    while (a != rows) {
      const NodeId m = b.value(a).producer;
      if (!m.valid() || !b.node(m).op->lowers_as<Movement>() || !keeps_columns(b, b.node(m)) ||
          b.value(a).users.size() != 1)
        break;
      r.moves.insert(r.moves.begin(), m);
      a = b.node(m).inputs[0];
    }
    if (a == rows) r.product = b.value(product->outputs[0]).producer;
    else r.moves.clear();
    if (!r.product.valid() && follows(b, product->inputs[0], rows))
      return std::nullopt;  // the product would norm each row for each tile
    if (r.product.valid() && !with_scale(*g_.value(outside(n, product->inputs[1])).constant, norm, r))
      return std::nullopt;
    return r;
  }
  static bool follows(const Graph& b, ValueId v, ValueId from) {
    const Node* n = b.producer(v);
    return v == from || (n && std::any_of(n->inputs.begin(), n->inputs.end(),
                                          [&](ValueId i) { return i.valid() && follows(b, i, from); }));
  }
  /// The constants of the product; false where they are not finite.
  bool with_scale(const Tensor& w, const Norm& norm, Reader& r) const {
    const int64_t k_end = w.dims()[0], n_end = w.dims()[1];
    const auto vector = [&](ValueId v) { return v.valid() ? g_.value(v).constant->as<float>() : nullptr; };
    const float *scale = vector(norm.scale), *shift = vector(norm.shift), *from = w.as<float>();
    auto weight = std::make_shared<Tensor>(DType::F32, w.dims());
    float* to = weight->mutable_as<float>();
    float peak = 0;
    for (int64_t i = 0; i < k_end * n_end; ++i) {
      to[i] = scale ? from[i] * scale[i / n_end] : from[i];
      if (!std::isfinite(to[i])) return false;
      peak = std::fmax(peak, std::fabs(to[i]));
    }
    if (peak > 0 && (peak > kLargestWeight || peak < kSmallestPeak)) r.factor = std::ldexp(1.0, -std::ilogb(peak));
    std::vector<double> columns(static_cast<size_t>(n_end)), bias(static_cast<size_t>(n_end));
    for (int64_t i = 0; i < k_end * n_end; ++i) {
      const auto n = static_cast<size_t>(i % n_end);
      to[i] = rounded(static_cast<float>(to[i] * r.factor));
      columns[n] += to[i];
      if (shift) bias[n] += static_cast<double>(shift[i / n_end]) * from[i];
    }
    r.weight = weight;
    r.columns = vector_of(columns);
    if (shift) r.bias = vector_of(bias);
    return true;
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
  /// The window stores its pixels as rows, where the norm made rows of them.
  Status turn_image(const Norm& norm) {
    Graph& b = *g_.node(g_.value(norm.x).producer).body;
    GraphBuilder builder(b);
    Compose c(builder);
    const ValueId rows = c.transpose(b.outputs[0], g_.node(norm.node).body->node(norm.turn).attrs.as<PermAttrs>().perm);
    b.outputs[0] = INGOT_TRY(c.result({rows}))[0];
    g_.value(norm.x).type = b.value(b.outputs[0]).type;
    return {};
  }
  Result<Sums> add_sums(const Norm& norm, int64_t width) {
    const NodeId id = g_.value(norm.x).producer;
    Graph& b = *g_.node(id).body;
    Sums sums;
    for (const bool square : {false, true}) {
      if (!square && !norm.centred) continue;
      GraphBuilder builder(b);
      const ValueId inside = INGOT_TRY(builder.add(op("PartSums"), PartSumsAttrs{width, square}, {b.outputs[0]}));
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
    ValueId y = c.mul(x, row.root);  // each step is a multiplication and an addition in one
    if (norm.centred) y = c.sub(y, c.mul(row.mean, row.root));
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
    const Row row =
        row_of(c, norm, {norm.centred ? add_input(r.node, sums[0]) : ValueId(), add_input(r.node, sums[1])});
    if (r.product.valid())
      INGOT_TRY(scale_product(
          c, r, norm, {moved(c, own, norm.moves, row.mean, false), moved(c, own, norm.moves, row.root, false)}));
    if (!one_by_one.empty()) {
      const auto vector = [&](ValueId v) { return v.valid() ? add_input(r.node, v) : v; };
      const ValueId y =
          moved(c, own, norm.moves, normed(c, norm, row, x, vector(norm.scale), vector(norm.shift)), true);
      for (NodeId u : one_by_one) b.replace_use(u, x, y);
    }
    if (!norm.moves.empty()) {
      const ValueId y = moved(c, own, norm.moves, x, true);
      for (NodeId u : all_readers) b.replace_use(u, x, y);
    }
    g_.node(r.node).origin.merge(g_.node(norm.node).origin);
    INGOT_TRY(c.result({}));
    drop_unread_inputs(r.node);
    return {};
  }
  /// In place of the product: root * product + (bias - mean * root * columns), with the constant vector that its only reader adds.
  Status scale_product(Compose& c, const Reader& r, const Norm& norm, Row row) {
    if (r.factor != 1) row.root = c.mul(row.root, 1 / r.factor);
    Graph& b = *g_.node(r.node).body;
    const Node product = b.node(r.product);
    const auto constant = [&](const TensorPtr& t) { return add_input(r.node, g_.add_constant(t)); };
    g_.replace_use(r.node, outside(g_.node(r.node), product.inputs[1]), g_.add_constant(r.weight));
    ValueId result = product.outputs[0];
    std::vector<NodeId> users = b.value(result).users;
    TensorPtr bias = r.bias;
    const auto own = own_bias(r, product);
    const NodeId addition = own ? users[0] : NodeId();
    if (own) {
      result = b.node(users[0]).outputs[0];
      users = b.value(result).users;
      bias = bias ? sum_of(**own, *bias) : *own;
    }
    const ValueId root = moved(c, b, r.moves, row.root, false);
    ValueId y = c.mul(product.outputs[0], root), shift = bias ? constant(bias) : ValueId();
    if (norm.centred) {
      const ValueId columns = c.mul(moved(c, b, r.moves, c.mul(row.mean, row.root), false), constant(r.columns));
      shift = shift.valid() ? c.sub(shift, columns) : columns;
      y = bias ? c.add(y, shift) : c.sub(y, shift);
    } else if (bias) {
      y = c.add(y, shift);
    }
    for (NodeId u : users) b.replace_use(u, result, y);
    for (ValueId& out : b.outputs)
      if (out == result) out = y;
    if (own) b.erase_if_dead(addition);
    return {};
  }
  /// What the body does not read any more is no input of the group.
  void drop_unread_inputs(NodeId id) {
    Graph& b = *g_.node(id).body;
    std::vector<ValueId> inside, inputs;
    for (size_t i = 0; i < b.inputs.size(); ++i) {
      if (b.value(b.inputs[i]).users.empty()) continue;
      inside.push_back(b.inputs[i]);
      inputs.push_back(g_.node(id).inputs[i]);
    }
    b.inputs = std::move(inside);
    g_.set_inputs(id, std::move(inputs));
  }
  static TensorPtr sum_of(const Tensor& x, const Tensor& y) {
    auto sum = std::make_shared<Tensor>(DType::F32, std::vector<int64_t>{x.count()});
    for (int64_t i = 0; i < x.count(); ++i) sum->mutable_as<float>()[i] = x.as<float>()[i] + y.as<float>()[i];
    return sum;
  }
  /// The constant vector that the only reader of the product adds to it.
  std::optional<TensorPtr> own_bias(const Reader& r, const Node& product) const {
    const Graph& b = *g_.node(r.node).body;
    const auto& users = b.value(product.outputs[0]).users;
    const bool leaves = std::count(b.outputs.begin(), b.outputs.end(), product.outputs[0]) > 0;
    if (leaves || users.size() != 1 || b.node(users[0]).op->name != "Add") return std::nullopt;
    for (ValueId in : b.node(users[0]).inputs) {
      const ValueId v = in == product.outputs[0] ? ValueId() : outside(g_.node(r.node), in);
      if (!v.valid() || !g_.value(v).constant || g_.value(v).type.dtype != DType::F32) continue;
      const Shape &shape = g_.value(v).type.shape, &rows = b.value(product.outputs[0]).type.shape;
      const bool vector =
          !shape.empty() && proves_equal(shape.back(), rows.back()) && proves_equal(element_count(shape), shape.back());
      if (vector && same_shape(b.value(b.node(users[0]).outputs[0]).type.shape, rows)) return g_.value(v).constant;
    }
    return std::nullopt;
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
