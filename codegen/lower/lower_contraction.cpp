// A contraction group: a product and its epilogue; what the epilogue needs of the row alone; rows that are combined before
// it; and sums over parts of the rows that it stores.
#include <algorithm>
#include <set>

#include "codegen/lower/axis_order.h"
#include "codegen/lower/group_parts.h"
#include "compiler/expr/simplify.h"
#include "compiler/ops/operands.h"
#include "compiler/ops/rows.h"

namespace ingot {
namespace {

constexpr int kLeastRowLoads = 2;  // of a value of the row: one load is as cheap beside the others

const Node& product_of(const Graph& body) {
  for (NodeId id : body.order())
    if (body.node(id).op->lowers_as<Contraction>()) return body.node(id);
  INGOT_CHECK(false, "lower_contraction: the group has no product");
}

/// The reduction that combines rows of the product's results, or null: others read what the group is given.
const Node* combining_reduction(const Graph& body, const Node& product) {
  std::set<ValueId> computed{product.outputs[0]};
  for (NodeId id : body.order()) {
    const Node& n = body.node(id);
    if (std::none_of(n.inputs.begin(), n.inputs.end(), [&](ValueId v) { return computed.count(v) > 0; })) continue;
    if (n.op->lowers_as<Reduction>() && !sums_parts(n)) return &n;
    computed.insert(n.outputs.begin(), n.outputs.end());
  }
  return nullptr;
}

/// The rows of a product that are combined before the epilogue: a reduction behind it takes all axes of its results that the
/// given positions, of the reduced dimensions, mention. Returns the stores behind it.
Body lower_row_groups(GroupValues& values, const Node& product, const Node& reduction, const Index& out, Contract& c) {
  const ReductionForm form = reduction.op->lowers_as<Reduction>()->form(*NodeView(values.body(), reduction));
  values.bind(product.outputs[0], c.acc);
  Index kept, reduced;
  for (size_t d = 0; d < out.size(); ++d) {
    const bool gone = std::find(form.axes.begin(), form.axes.end(), d) != form.axes.end();
    if (gone) reduced.push_back(out[d]);
    if (!gone || form.keep) kept.push_back(gone ? Expr(0) : out[d]);
  }
  const Reduce r = reduce_of(values, reduction, kept, reduced, "combined");
  c.combine = r.combine;
  c.value = r.value;
  c.combined = r.result;
  for (auto* side : {&c.batch, &c.m, &c.n})
    for (auto it = side->begin(); it != side->end();) {
      const bool in_group =
          std::any_of(reduced.begin(), reduced.end(), [&](const Expr& e) { return depends_on(e, it->var.name()); });
      if (in_group) c.group.push_back(*it);
      it = in_group ? side->erase(it) : it + 1;
    }
  return epilogue_of(values, reduction.outputs[0], kept, finish_of(values, reduction, kept, r.result));
}

/// The stored value gets a name, and the outputs that are sums over its parts become RowParts.
void lower_row_parts(GroupValues& values, const std::map<ValueId, Index>& position, Contract& c) {
  const Graph& body = values.body();
  for (ValueId v : body.outputs) {
    const Node* n = body.producer(v);
    if (!n || !sums_parts(*n)) continue;
    const ValueId x = n->inputs[0];
    const auto& attrs = n->attrs.as<PartSumsAttrs>();
    if (c.parts.width == 0) {
      c.parts.width = static_cast<int>(attrs.width);
      const Expr parts = body.value(v).type.shape.back();
      c.parts.part = {Expr::index("part", parts), parts};
      c.parts.stored = Expr::local("stored", DType::F32);
      Store& store = std::get<Store>(c.epilogue.back().node);
      INGOT_CHECK(c.epilogue.size() == 1 && store.value.same(values.bound(x)),
                  "PartSums: not of what the group stores");
      c.epilogue.insert(c.epilogue.begin(), {Let{c.parts.stored, store.value}});
      std::get<Store>(c.epilogue.back().node).value = c.parts.stored;
    }
    Index at = position.at(x);
    INGOT_CHECK(attrs.width == c.parts.width && c.n.size() == 1 && at.back().same(c.n[0].var),
                "PartSums: not along the product's columns");
    at.back() = c.parts.part.var;
    const Expr value = attrs.square ? c.parts.stored * c.parts.stored : c.parts.stored;
    c.parts.sums.push_back(store_of(values, v, at, value));
  }
}

/// Moves what depends on the row alone, and loads several values, from the epilogue to `rows`.
class RowValues {
 public:
  explicit RowValues(Contract& c) : c_(c) {
    for (const Axis& a : c.n) varying_.insert(a.var.name());
    varying_.insert((c.group.empty() ? c.acc : c.combined).name());
  }
  void run() {
    for (Stmt& s : c_.epilogue) {
      if (auto* let = std::get_if<Let>(&s.node)) let->value = of_columns(let->value), varying_.insert(let->var.name());
      if (auto* store = std::get_if<Store>(&s.node)) store->value = of_columns(store->value);
    }
  }

 private:
  bool is_of_row(const Expr& e) const {
    std::set<Expr, bool (*)(const Expr&, const Expr&)> loads(
        [](const Expr& a, const Expr& b) { return a.id() < b.id(); });
    bool varies = false;
    visit(e, [&](const Expr& x) {
      varies |= x.op() == ExprOp::Symbol && varying_.count(x.name()) > 0;
      if (x.op() == ExprOp::Load) loads.insert(x);
    });
    return !varies && static_cast<int>(loads.size()) >= kLeastRowLoads;
  }
  Expr of_columns(const Expr& e) {
    return rewrite(e, [&](const Expr& x) {
      if (x.type() == DType::F32 && is_of_row(x)) return named(x);
      return x.op() == ExprOp::Select ? x : Expr();  // what stands behind a condition is not computed without it
    });
  }
  Expr named(const Expr& e) {
    for (const Stmt& s : c_.rows)
      if (s.as<Let>()->value.same(e)) return s.as<Let>()->var;
    const Expr var = Expr::local("row" + std::to_string(c_.rows.size()), DType::F32);
    c_.rows.push_back({Let{var, e}});
    return var;
  }

  Contract& c_;
  std::set<std::string> varying_;
};

}  // namespace

void lower_contraction(GroupValues& values, Kernel& k) {
  const Graph& body = values.body();
  const Node& n = product_of(body);
  const NodeView view(body, n);
  const ContractionForm form = n.op->lowers_as<Contraction>()->form(*view);
  Contract c;
  c.batch = axes_of(form.batch);
  c.m = axes_of(form.m);
  c.n = axes_of(form.n);
  c.k = axes_of(form.k);
  c.a = values.resolve(n, form.a);
  c.b = values.resolve(n, form.b);
  c.acc = Expr::local("acc", c.a.type());
  c.a_type = operand_type(body, n.inputs[static_cast<size_t>(form.a_input)]);
  c.b_type = operand_type(body, n.inputs[static_cast<size_t>(form.b_input)]);
  Index out = form.out;
  for (Expr& i : out) i = simplify(i);
  std::map<ValueId, Index> position;
  const Node* reduction = combining_reduction(body, n);
  c.epilogue = reduction ? lower_row_groups(values, n, *reduction, out, c)
                         : epilogue_of(values, n.outputs[0], out, c.acc, &position);
  lower_row_parts(values, position, c);
  k.body.push_back({std::move(c)});
  split_divided_axes(k);
  auto& placed = std::get<Contract>(k.body[0].node);
  orient(placed);
  RowValues(placed).run();
}

}  // namespace ingot
