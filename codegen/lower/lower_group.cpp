#include "codegen/lower/lower_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "codegen/lower/axis_order.h"
#include "codegen/lower/group_parts.h"
#include "compiler/expr/simplify.h"
#include "compiler/ops/joins.h"
#include "compiler/ops/operands.h"
#include "compiler/ops/registry.h"

namespace ingot {
namespace {

constexpr const char* kKindNames[] = {"points", "windows", "rows", "contraction", "attention", "chain"};

/// How many elements of an input the body reads: those of its slices, where that is all that reads it.
Expr elements_read(const Graph& body, ValueId v) {
  const Expr all = element_count(body.value(v).type.shape);
  Expr total = 0;
  for (NodeId u : body.value(v).users) {
    const Node& n = body.node(u);
    const auto* move = n.op->lowers_as<Movement>();
    const ValueId out = n.outputs[0];
    const Expr some = n.op->name == "Slice" ? element_count(body.value(out).type.shape)
                      : n.op->name == "Cast" || (move && move->inverse) ? elements_read(body, out) : all;
    if (proves_equal(some, all)) return all;
    total = total + some;
  }
  return body.value(v).users.empty() ? all : simplify(total);
}

/// Buffers of the group's inputs and outputs.
void declare_buffers(const Graph& graph, const Node& node, Kernel& k) {
  int inputs = 0, weights = 0;
  const auto lies_in = [&](Buffer& b, ValueId v, const Expr& touched) {
    b.shape = graph.value(holder_of(graph, v)).type.shape;
    if (!proves_equal(touched, element_count(b.shape))) b.part = touched;
  };
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const Value& v = graph.value(node.inputs[i]);
    Buffer b{v.constant ? fmt::format("w{}", weights++) : fmt::format("x{}", inputs++), v.type.dtype, v.type.shape};
    b.is_constant = v.constant != nullptr;
    lies_in(b, node.inputs[i], elements_read(*node.body, node.body->inputs[i]));
    k.buffers.push_back(std::move(b));
  }
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    const Value& v = graph.value(node.outputs[i]);
    k.buffers.push_back({fmt::format("out{}", i), v.type.dtype, v.type.shape, true, false});
    lies_in(k.buffers.back(), node.outputs[i], element_count(v.type.shape));
  }
}

void lower_points(GroupValues& values, Kernel& k) {
  const Graph& body = values.body();
  const Index index = fresh_index("i", body.value(body.outputs[0]).type.shape);
  k.domain = axes_of(index);
  for (ValueId v : body.outputs) k.body.push_back({store_of(values, v, index, values.at(v, index))});
  sort_by_stride(k.domain, first_store(k.body));
}

template <class T>
const Node* find_anchor(const Graph& body) {
  for (NodeId id : body.order())
    if (body.node(id).op->lowers_as<T>()) return &body.node(id);
  return nullptr;
}

/// Rows: dimensions of the common shape that are not reduced are the domain; each reduction is a pass over the others.
class RowsLowering {
 public:
  RowsLowering(GroupValues& values, Kernel& k) : values_(values), body_(values.body()), k_(k) {
    const Node& first = *find_anchor<Reduction>(body_);
    const NodeView view(body_, first);
    shape_ = view->inputs[0].shape;
    axes_ = first.op->lowers_as<Reduction>()->form(*view).axes;
    for (size_t d = 0; d < shape_.size(); ++d)
      if (!reduced(d)) row_.push_back(Expr::index("r" + std::to_string(d), shape_[d]));
    k_.domain = axes_of(row_);
  }

  void run() {
    for (NodeId id : body_.order()) {
      const Node& n = body_.node(id);
      if (n.op->lowers_as<Reduction>()) reduce(n);
      else if (is_row(n.outputs[0]) && reads_bound(n) && n.op->lowers_as<Pointwise>()) let(n.outputs[0], values_.pointwise(n, row_index(n.outputs[0])), "v");
    }
    Body last;
    const Index full = full_index(fresh_columns());
    if (const ValueId moved = rows_to_move(); moved.valid()) {
      k_.body.push_back({Loop{axes_of(columns_of(full)), epilogue_of(values_, moved, full, values_.at(moved, full))}});
      return;
    }
    for (ValueId v : body_.outputs) {
      const ValueId from = unmoved(body_, v);
      const bool of_row = values_.is_bound(from);
      const Index at = of_row ? row_index(from) : full;
      const Expr value = of_row ? values_.bound(from) : values_.at(from, at);
      (of_row ? k_.body : last).push_back({store_of(values_, v, moved_index(body_, v, from, at), value)});
    }
    if (!last.empty()) k_.body.push_back({Loop{axes_of(columns_of(full)), std::move(last)}});
  }

 private:
  bool reduced(size_t d) const { return std::find(axes_.begin(), axes_.end(), d) != axes_.end(); }
  /// The rows that movement takes to another shape in which work goes on, if there are any: nothing else leaves the group then.
  ValueId rows_to_move() const {
    std::set<ValueId> computed;  // from a reduction
    for (NodeId id : body_.order()) {
      const Node& n = body_.node(id);
      const bool follows = std::any_of(n.inputs.begin(), n.inputs.end(), [&](ValueId v) { return computed.count(v) > 0; });
      const auto* move = n.op->lowers_as<Movement>();
      if (follows && move && move->inverse && same_shape(body_.value(n.inputs[0]).type.shape, shape_) && goes_on(n.outputs[0]))
        return n.inputs[0];
      if (follows || n.op->lowers_as<Reduction>()) computed.insert(n.outputs.begin(), n.outputs.end());
    }
    return {};
  }
  /// Something but movement reads v, directly or behind movement.
  bool goes_on(ValueId v) const {
    const auto& users = body_.value(v).users;
    return std::any_of(users.begin(), users.end(), [&](NodeId u) {
      return !body_.node(u).op->lowers_as<Movement>() || goes_on(body_.node(u).outputs[0]);
    });
  }
  Index fresh_columns() { return fresh_index("c" + std::to_string(stage_++) + "_", column_shape()); }
  Shape column_shape() const {
    Shape s;
    for (size_t d : axes_) s.push_back(shape_[d]);
    return s;
  }
  Index full_index(const Index& columns) const {
    Index index(shape_.size());
    for (size_t i = 0; i < axes_.size(); ++i) index[axes_[i]] = columns[i];
    size_t next = 0;
    for (Expr& i : index)
      if (!i.valid()) i = row_[next++];
    return index;
  }
  std::vector<Expr> columns_of(const Index& full) const {
    std::vector<Expr> columns;
    for (size_t d : axes_) columns.push_back(full[d]);
    return columns;
  }
  /// Values with one element a row: keepdims or not.
  bool is_row(ValueId v) const {
    const Shape& s = body_.value(v).type.shape;
    if (s.size() == row_.size() && s.size() != shape_.size()) {
      for (size_t i = 0; i < s.size(); ++i)
        if (!proves_equal(s[i], row_[i].extent())) return false;
      return true;
    }
    if (s.size() != shape_.size()) return false;
    for (size_t d = 0; d < s.size(); ++d)
      if (reduced(d) ? !s[d].is_const(1) : !proves_equal(s[d], shape_[d])) return false;
    return true;
  }
  Index row_index(ValueId v) const {
    if (body_.value(v).type.rank() != shape_.size()) return row_;
    return full_index(Index(axes_.size(), Expr(0)));
  }
  bool reads_bound(const Node& n) const {
    return std::any_of(n.inputs.begin(), n.inputs.end(), [&](ValueId v) { return v.valid() && values_.is_bound(v); });
  }
  void let(ValueId v, Expr value, const char* prefix) {
    const Expr var = Expr::local(prefix + std::to_string(lets_++), value.type());
    k_.body.push_back({Let{var, std::move(value)}});
    values_.bind(v, var);
  }
  void reduce(const Node& n) {
    const Index columns = fresh_columns(), out = row_index(n.outputs[0]);
    Reduce r = reduce_of(values_, n, out, columns, "acc" + std::to_string(stage_));
    const Expr acc = r.result;
    k_.body.push_back({std::move(r)});
    const Expr finished = finish_of(values_, n, out, acc);
    if (finished.same(acc)) values_.bind(n.outputs[0], acc);
    else let(n.outputs[0], finished, "v");
  }

  GroupValues& values_;
  const Graph& body_;
  Kernel& k_;
  Shape shape_;
  std::vector<size_t> axes_;
  std::vector<Expr> row_;
  int stage_ = 0, lets_ = 0;
};

}  // namespace

const char* name_of(GroupKind kind) { return kKindNames[static_cast<size_t>(kind)]; }
std::optional<GroupKind> parse_group_kind(std::string_view name) {
  for (size_t i = 0; i < std::size(kKindNames); ++i)
    if (name == kKindNames[i]) return static_cast<GroupKind>(i);
  return std::nullopt;
}

Result<Kernel> lower_group(const Graph& graph, const Node& node) {
  INGOT_CHECK(node.body != nullptr, "lower_group: not a fused node");
  const auto kind = parse_group_kind(node.attrs.as<FusedAttrs>().kind);
  INGOT_CHECK(kind.has_value(), "lower_group: unknown group kind");
  Kernel k;
  declare_buffers(graph, node, k);
  GroupValues values(graph, node);
  switch (*kind) {
    case GroupKind::Points: lower_points(values, k); break;
    case GroupKind::Windows: lower_windows(values, k); break;
    case GroupKind::Rows:
      RowsLowering(values, k).run();
      split_divided_columns(k);
      break;
    case GroupKind::Contraction: lower_contraction(values, k); break;
    case GroupKind::Attention: lower_attention(values, k); break;
    case GroupKind::Chain: lower_chain(values, k); break;
  }
  collapse_axes(k);
  k.dims = free_dims(k);
  return k;
}

}  // namespace ingot
