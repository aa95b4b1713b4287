// Graph rewrite rules, one row each: {name, operator, rewrite}. A rewrite returns the value that stands for the node's
// output, or an invalid id when the rule does not apply.
#include <algorithm>

#include "compiler/expr/simplify.h"
#include "compiler/ops/layout_ops.h"
#include "compiler/ops/rows.h"
#include "passes/passes.h"

namespace ingot {
namespace {

using Rewritten = Result<ValueId>;
const ValueId kNo;

const Node* producer_named(const Graph& g, ValueId v, std::string_view name) {
  const Node* p = g.producer(v);
  return p && p->op->name == name ? p : nullptr;
}

Rewritten same_shape_reshape(GraphBuilder& b, const Node& n) {
  return same_shape(b.shape(n.inputs[0]), b.shape(n.outputs[0])) ? n.inputs[0] : kNo;
}
Rewritten reshape_of_reshape(GraphBuilder& b, const Node& n) {
  const Node* p = producer_named(b.graph(), n.inputs[0], "Reshape");
  if (!p) return kNo;
  return b.add(op("Reshape"), ShapeAttrs{b.shape(n.outputs[0])}, {p->inputs[0]});
}
Rewritten identity_transpose(GraphBuilder&, const Node& n) {
  const auto& perm = n.attrs.as<PermAttrs>().perm;
  for (size_t i = 0; i < perm.size(); ++i)
    if (perm[i] != static_cast<int64_t>(i)) return kNo;
  return n.inputs[0];
}
Rewritten transpose_of_transpose(GraphBuilder& b, const Node& n) {
  const Node* p = producer_named(b.graph(), n.inputs[0], "Transpose");
  if (!p) return kNo;
  std::vector<int64_t> perm;
  for (int64_t i : n.attrs.as<PermAttrs>().perm) perm.push_back(p->attrs.as<PermAttrs>().perm[static_cast<size_t>(i)]);
  return build_transpose(b, p->inputs[0], perm);
}
Rewritten cast_to_itself(GraphBuilder& b, const Node& n) {
  return b.type(n.inputs[0]).dtype == n.attrs.as<CastAttrs>().to ? n.inputs[0] : kNo;
}
/// x -> wider -> x's type again loses nothing.
Rewritten cast_there_and_back(GraphBuilder& b, const Node& n) {
  const Node* p = producer_named(b.graph(), n.inputs[0], "Cast");
  if (!p) return kNo;
  const DType inner = b.type(p->inputs[0]).dtype, middle = b.type(n.inputs[0]).dtype;
  const bool widens = is_float(inner) && is_float(middle) && size_of(middle) > size_of(inner);
  return widens && inner == n.attrs.as<CastAttrs>().to ? p->inputs[0] : kNo;
}
/// f32(x + y) of 16-bit floats -> f32(x) + f32(y), when nothing else needs the sum: it is rounded once less, whether the two
/// end up in one kernel or not. Likewise for what a reduction makes.
Rewritten widen_arithmetic(GraphBuilder& b, const Node& n) {
  Graph& g = b.graph();
  const ValueId narrow = n.inputs[0];
  const Node* p = g.producer(narrow);
  const DType from = b.type(narrow).dtype;
  if (!p || n.attrs.as<CastAttrs>().to != DType::F32 || (from != DType::F16 && from != DType::BF16)) return kNo;
  const bool reduces = p->op->name.starts_with("Reduce") && p->op->lowers_as<Reduction>() && p->inputs.size() == 1;
  if (p->op->name != "Add" && p->op->name != "Sub" && p->op->name != "Mul" && !reduces) return kNo;
  if (g.value(narrow).users.size() != 1 || g.is_output(narrow)) return kNo;
  const Node wide = *p;
  b.origin.merge(wide.origin);
  std::vector<ValueId> operands;
  for (ValueId v : wide.inputs) operands.push_back(INGOT_TRY(build_cast(b, v, DType::F32)));
  return b.add(*wide.op, wide.attrs, std::move(operands));
}
Rewritten expand_to_itself(GraphBuilder& b, const Node& n) { return same_shape_reshape(b, n); }
Rewritten expand_of_expand(GraphBuilder& b, const Node& n) {
  const Node* p = producer_named(b.graph(), n.inputs[0], "Expand");
  return p ? b.add(op("Expand"), ShapeAttrs{b.shape(n.outputs[0])}, {p->inputs[0]}) : Rewritten(kNo);
}
Rewritten whole_slice(GraphBuilder& b, const Node& n) {
  const auto& a = n.attrs.as<SliceAttrs>();
  for (size_t d = 0; d < a.starts.size(); ++d)
    if (!a.starts[d].is_const(0) || !a.steps[d].is_const(1)) return kNo;
  return same_shape(b.shape(n.inputs[0]), b.shape(n.outputs[0])) ? n.inputs[0] : kNo;
}
/// x + 0, x * 1 and the like, where the constant does not widen the shape.
Rewritten neutral_operand(GraphBuilder& b, const Node& n, double neutral, bool commutes) {
  for (size_t i = commutes ? 0 : 1; i < 2; ++i) {
    const Content c = b.content(n.inputs[i]);
    if (!c || c->size() != 1 || !(*c)[0].is_const() || (*c)[0].float_value() != neutral) continue;
    const ValueId other = n.inputs[1 - i];
    if (same_shape(b.shape(other), b.shape(n.outputs[0]))) return other;
  }
  return kNo;
}
Rewritten add_zero(GraphBuilder& b, const Node& n) {
  return is_float(b.type(n.inputs[0]).dtype) ? Rewritten(kNo) : neutral_operand(b, n, 0, true);
}
Rewritten mul_one(GraphBuilder& b, const Node& n) { return neutral_operand(b, n, 1, true); }
Rewritten div_one(GraphBuilder& b, const Node& n) { return neutral_operand(b, n, 1, false); }
/// Where(true, x, y) -> x.
Rewritten where_known(GraphBuilder& b, const Node& n) {
  const Content c = b.content(n.inputs[0]);
  if (!c || c->size() != 1 || !(*c)[0].is_const()) return kNo;
  const ValueId taken = n.inputs[(*c)[0].int_value() ? 1 : 2];
  return same_shape(b.shape(taken), b.shape(n.outputs[0])) ? taken : kNo;
}
/// Consumers read an Expand through broadcasting when they broadcast anyway.
Rewritten expand_into_pointwise(GraphBuilder& b, const Node& n) {
  if (!n.op->lowers_as<Pointwise>() || n.inputs.size() < 2) return kNo;
  for (size_t i = 0; i < n.inputs.size(); ++i) {
    const Node* p = n.inputs[i].valid() ? producer_named(b.graph(), n.inputs[i], "Expand") : nullptr;
    if (!p) continue;
    Shape out;
    std::vector<ValueId> inputs = n.inputs;
    inputs[i] = p->inputs[0];
    bool ok = true;
    for (ValueId v : inputs) {
      if (!v.valid()) continue;
      auto s = broadcast(out, b.shape(v));
      ok &= s.ok();
      if (ok) out = *s;
    }
    if (ok && same_shape(out, b.shape(n.outputs[0]))) return b.add(*n.op, n.attrs, inputs);
  }
  return kNo;
}

Rewritten empty_pad(GraphBuilder& b, const Node& n) {
  const auto& a = n.attrs.as<PadAttrs>();
  for (size_t d = 0; d < a.begins.size(); ++d)
    if (!a.begins[d].is_const(0) || !a.ends[d].is_const(0)) return kNo;
  return same_shape_reshape(b, n);
}
/// Concat(x[s:], x[:s]) -> Roll(x, s): one to one, so that products store and read through it.
Rewritten concat_of_halves(GraphBuilder& b, const Node& n) {
  const Graph& g = b.graph();
  if (n.inputs.size() != 2) return kNo;
  const Node *tail = producer_named(g, n.inputs[0], "Slice"), *head = producer_named(g, n.inputs[1], "Slice");
  if (!tail || !head || tail->inputs[0] != head->inputs[0]) return kNo;
  const ValueId x = tail->inputs[0];
  const auto axis = static_cast<size_t>(n.attrs.as<AxisAttrs>().axis);
  const SliceAttrs &t = tail->attrs.as<SliceAttrs>(), &h = head->attrs.as<SliceAttrs>();
  for (size_t d = 0; d < t.starts.size(); ++d) {
    if (!t.steps[d].is_const(1) || !h.steps[d].is_const(1) || !h.starts[d].is_const(0)) return kNo;
    const Expr& size = b.shape(x)[d];
    const bool whole = t.starts[d].is_const(0) && proves_equal(t.sizes[d], size) && proves_equal(h.sizes[d], size);
    const bool halves = proves_equal(t.starts[d] + t.sizes[d], size) && proves_equal(t.starts[d], h.sizes[d]);
    if (!(d == axis ? halves : whole)) return kNo;
  }
  return b.add(op("Roll"), RollAttrs{n.attrs.as<AxisAttrs>().axis, t.starts[axis]}, {x});
}
/// Concat(x[a:b], x[b:c], ...) -> x[a:c].
Rewritten concat_of_slices(GraphBuilder& b, const Node& n) {
  const auto axis = static_cast<size_t>(n.attrs.as<AxisAttrs>().axis);
  SliceAttrs whole;
  ValueId x;
  for (ValueId part : n.inputs) {
    const Node* p = producer_named(b.graph(), part, "Slice");
    if (!p || (x.valid() && p->inputs[0] != x)) return kNo;
    const auto& s = p->attrs.as<SliceAttrs>();
    for (const Expr& step : s.steps)
      if (!step.is_const(1)) return kNo;
    if (!x.valid()) {
      x = p->inputs[0], whole = s;
      continue;
    }
    for (size_t d = 0; d < s.starts.size(); ++d) {
      const Expr next = d == axis ? whole.starts[d] + whole.sizes[d] : whole.starts[d];
      if (!proves_equal(s.starts[d], next) || (d != axis && !proves_equal(s.sizes[d], whole.sizes[d]))) return kNo;
    }
    whole.sizes[axis] = simplify(whole.sizes[axis] + s.sizes[axis]);
  }
  return b.add(op("Slice"), whole, {x});
}
/// Concat(a, b, c) beside Concat(a, b) -> Concat(Concat(a, b), c): what grows by one part at a time is one value that grows.
Rewritten concat_of_more(GraphBuilder& b, const Node& n) {
  const Graph& g = b.graph();
  const Node* longest = nullptr;
  for (NodeId u : g.value(n.inputs[0]).users) {
    const Node& other = g.node(u);
    if (other.op != n.op || !(other.attrs == n.attrs) || other.inputs.size() < 2 || other.inputs.size() >= n.inputs.size()) continue;
    if (!std::equal(other.inputs.begin(), other.inputs.end(), n.inputs.begin())) continue;
    if (!longest || other.inputs.size() > longest->inputs.size()) longest = &other;
  }
  if (!longest) return kNo;
  std::vector<ValueId> inputs{longest->outputs[0]};
  inputs.insert(inputs.end(), n.inputs.begin() + static_cast<std::ptrdiff_t>(longest->inputs.size()), n.inputs.end());
  return b.add(*n.op, n.attrs, inputs);
}

/// An operand of pointwise work of shape `middle`, for the same work on what was reshaped to it: `same` dimensions at the end
/// are those of `shape`.
Rewritten reshaped_operand(GraphBuilder& b, ValueId v, const Shape& middle, const Shape& shape, size_t same) {
  const Shape& own = b.shape(v);
  if (own.size() <= same) return v;
  const Shape last(own.end() - static_cast<std::ptrdiff_t>(same), own.end());
  const Shape first(own.begin(), own.end() - static_cast<std::ptrdiff_t>(same));
  if (std::all_of(first.begin(), first.end(), [](const Expr& d) { return d.is_const(1); })) return build_reshape(b, v, last);
  Shape whole(middle.begin(), middle.end() - static_cast<std::ptrdiff_t>(same)), result(shape.begin(), shape.end() - static_cast<std::ptrdiff_t>(same));
  whole.insert(whole.end(), last.begin(), last.end());
  result.insert(result.end(), last.begin(), last.end());
  const ValueId expanded = same_shape(own, whole) ? v : INGOT_TRY(b.add(op("Expand"), ShapeAttrs{whole}, {v}));
  return build_reshape(b, expanded, result);
}
/// v is a reshaped value of this shape, or pointwise work on one, and only read here.
bool turns(GraphBuilder& b, ValueId v, const Shape& shape, const Shape& middle) {
  const Graph& g = b.graph();
  const Node* n = v.valid() && g.only_reader(v) && same_shape(b.shape(v), middle) ? g.producer(v) : nullptr;
  if (!n) return false;
  if (n->op->name == "Reshape") return same_shape(b.shape(n->inputs[0]), shape);
  return n->op->lowers_as<Pointwise>() && std::any_of(n->inputs.begin(), n->inputs.end(), [&](ValueId in) { return turns(b, in, shape, middle); });
}
/// The same in the given shape.
Rewritten turned(GraphBuilder& b, ValueId v, const Shape& shape, const Shape& middle) {
  const Node n = *b.graph().producer(v);
  if (n.op->name == "Reshape") return n.inputs[0];
  size_t same = 0;
  while (same < middle.size() && same < shape.size() && proves_equal(middle[middle.size() - 1 - same], shape[shape.size() - 1 - same])) ++same;
  b.origin.merge(n.origin);
  std::vector<ValueId> inputs;
  for (ValueId in : n.inputs) {
    if (!in.valid()) inputs.push_back(in);
    else inputs.push_back(INGOT_TRY(turns(b, in, shape, middle) ? turned(b, in, shape, middle) : reshaped_operand(b, in, middle, shape, same)));
  }
  return b.add(*n.op, n.attrs, inputs);
}
/// Reshape(f(Reshape(x), y)) that ends in the shape of x -> f(x, y reshaped): a mask that is added for each window.
Rewritten reshaped_and_back(GraphBuilder& b, const Node& n) {
  const Node* p = b.graph().producer(n.inputs[0]);
  if (!p || p->inputs.size() < 2) return kNo;
  const Shape shape = b.shape(n.outputs[0]), middle = b.shape(n.inputs[0]);
  return p->op->name != "Reshape" && turns(b, n.inputs[0], shape, middle) ? turned(b, n.inputs[0], shape, middle) : Rewritten(kNo);
}

/// Rows of matrices in another order, each as it was.
bool moves_rows(const Node& n) {
  const auto& perm = n.attrs.as<PermAttrs>().perm;
  return perm.size() >= 3 && perm.back() + 1 == static_cast<int64_t>(perm.size());
}
/// The first dims of both shapes agree, and one dim of `merged` is what remains of `whole`.
bool merges_tail(const Shape& whole, const Shape& merged) {
  if (merged.size() < 2 || whole.size() < merged.size()) return false;
  for (size_t d = 0; d + 1 < merged.size(); ++d)
    if (!proves_equal(whole[d], merged[d])) return false;
  return true;
}
/// Rows of Reshape(Transpose(x)), which merges the dims of a row: both reorderings are one.
Rewritten transpose_of_merged(GraphBuilder& b, const Node& n) {
  const Node* merge = producer_named(b.graph(), n.inputs[0], "Reshape");
  if (!merge || !moves_rows(n) || !producer_named(b.graph(), merge->inputs[0], "Transpose")) return kNo;
  const ValueId whole = merge->inputs[0];
  if (!merges_tail(b.shape(whole), b.shape(n.inputs[0]))) return kNo;
  std::vector<int64_t> perm = n.attrs.as<PermAttrs>().perm;
  while (perm.size() < b.shape(whole).size()) perm.push_back(static_cast<int64_t>(perm.size()));
  const ValueId moved = INGOT_TRY(build_transpose(b, whole, perm));
  return b.add(op("Reshape"), ShapeAttrs{b.shape(n.outputs[0])}, {moved});
}
/// The rows of a product in another order are the product of rows in that order: worth it where those are reordered anyway, as
/// between the heads of an attention and the projection behind them.
Rewritten rows_of_product(GraphBuilder& b, const Node& n) {
  const Graph& g = b.graph();
  if (!moves_rows(n)) return kNo;
  std::vector<Node> above;  // what is done to each row, last first: a bias, a cast; and the reshape of rows
  ValueId v = n.inputs[0];
  const Node* product = nullptr;
  for (bool reshaped = false; !product;) {
    const Node* p = g.producer(v);
    if (!p || g.value(v).users.size() != 1 || g.is_output(v)) return kNo;
    if (p->op->name == "MatMul") product = p;
    const bool rows = p->op->name == "Reshape" && !reshaped && b.shape(v).size() > b.shape(p->inputs[0]).size() &&
                      proves_equal(b.shape(v).back(), b.shape(p->inputs[0]).back());
    const bool each = p->op->name == "Cast" || (p->op->name == "Add" && b.shape(p->inputs[1]).size() <= 1);
    if (!product && !rows && !each) return kNo;
    if (each) above.push_back(*p);
    reshaped |= rows;
    if (!product) v = p->inputs[0];
  }
  const ValueId left = product->inputs[0], right = product->inputs[1];
  const Node* merge = producer_named(g, left, "Reshape");
  if (b.shape(right).size() != 2 || !merge || !producer_named(g, merge->inputs[0], "Transpose")) return kNo;
  Shape rows = b.shape(n.inputs[0]);
  rows.back() = b.shape(left).back();
  if (!merges_tail(b.shape(merge->inputs[0]), rows)) return kNo;
  const ValueId apart = INGOT_TRY(b.add(op("Reshape"), ShapeAttrs{rows}, {left}));
  const ValueId moved = INGOT_TRY(build_transpose(b, apart, n.attrs.as<PermAttrs>().perm));
  ValueId result = INGOT_TRY(b.add(op("MatMul"), {moved, right}));
  for (auto each = above.rbegin(); each != above.rend(); ++each) {
    std::vector<ValueId> inputs = each->inputs;
    inputs[0] = result;
    result = INGOT_TRY(b.add(*each->op, each->attrs, inputs));
  }
  return result;
}

/// What v consists of, a constant of one element that has been moved, repeated and cast on the way.
struct Uniform {
  ValueId source;
  std::vector<DType> casts;  // the last one first

  Result<ValueId> build(GraphBuilder& b) const {
    ValueId one = INGOT_TRY(build_reshape(b, source, {}));
    for (auto type = casts.rbegin(); type != casts.rend(); ++type) one = INGOT_TRY(build_cast(b, one, *type));
    return one;
  }
};
std::optional<Uniform> uniform_of(GraphBuilder& b, ValueId v) {
  std::vector<DType> casts{b.type(v).dtype};
  for (const Node* p = b.graph().producer(v); p; p = b.graph().producer(v)) {
    const bool moves = p->op->name == "Expand" || p->op->name == "Reshape" || p->op->name == "Transpose" || p->op->name == "Slice";
    if (!moves && p->op->name != "Cast") return std::nullopt;
    v = p->inputs[0];
    casts.push_back(b.type(v).dtype);
  }
  const TensorPtr& t = b.graph().value(v).constant;
  return t && t->count() == 1 ? std::optional(Uniform{v, casts}) : std::nullopt;
}
/// Whatever is taken from where all is the same: that.
Rewritten part_of_uniform(GraphBuilder& b, const Node& n) {
  if (n.op->lowers_as<Movement>() && !b.graph().producer(n.inputs[0])) return kNo;  // a constant moves at compile time
  const auto uniform = uniform_of(b, n.inputs[0]);
  if (!uniform) return kNo;
  return b.add(op("Expand"), ShapeAttrs{b.shape(n.outputs[0])}, {INGOT_TRY(uniform->build(b))});
}
/// And(x, true everywhere) -> x.
Rewritten and_true(GraphBuilder& b, const Node& n) {
  for (size_t i = 0; i < 2; ++i) {
    const auto uniform = uniform_of(b, n.inputs[i]);
    const TensorPtr t = uniform ? b.graph().value(uniform->source).constant : TensorPtr();
    if (!t || is_float(t->type()) || t->int_at(0) != 1) continue;  // 1 is true however it is cast
    const ValueId other = n.inputs[1 - i];
    return same_shape(b.shape(other), b.shape(n.outputs[0])) ? Rewritten(other)
                                                            : b.add(op("Expand"), ShapeAttrs{b.shape(n.outputs[0])}, {other});
  }
  return kNo;
}

struct Rule {
  const char* name;
  const char* op;  // nullptr: any
  Rewritten (*rewrite)(GraphBuilder&, const Node&);
};
constexpr Rule kRewrites[] = {
    {"same_shape_reshape", "Reshape", same_shape_reshape},
    {"reshape_of_reshape", "Reshape", reshape_of_reshape},
    {"reshaped_and_back", "Reshape", reshaped_and_back},
    {"identity_transpose", "Transpose", identity_transpose},
    {"transpose_of_transpose", "Transpose", transpose_of_transpose},
    {"transpose_of_merged", "Transpose", transpose_of_merged},
    {"rows_of_product", "Transpose", rows_of_product},
    {"cast_to_itself", "Cast", cast_to_itself},
    {"cast_there_and_back", "Cast", cast_there_and_back},
    {"widen_arithmetic", "Cast", widen_arithmetic},
    {"expand_to_itself", "Expand", expand_to_itself},
    {"expand_of_expand", "Expand", expand_of_expand},
    {"whole_slice", "Slice", whole_slice},
    {"add_zero", "Add", add_zero},
    {"mul_one", "Mul", mul_one},
    {"div_one", "Div", div_one},
    {"where_known", "Where", where_known},
    {"and_true", "And", and_true},
    {"part_of_uniform", "Gather", part_of_uniform},
    {"part_of_uniform", "GatherND", part_of_uniform},
    {"part_of_uniform", "GatherElements", part_of_uniform},
    {"part_of_uniform", "Reshape", part_of_uniform},
    {"part_of_uniform", "Transpose", part_of_uniform},
    {"part_of_uniform", "Slice", part_of_uniform},
    {"empty_pad", "Pad", empty_pad},
    {"concat_of_halves", "Concat", concat_of_halves},
    {"concat_of_slices", "Concat", concat_of_slices},
    {"concat_of_more", "Concat", concat_of_more},
    {"expand_into_pointwise", nullptr, expand_into_pointwise},
};

Result<bool> apply_rules(Graph& graph, NodeId id) {
  for (const Rule& r : kRewrites) {
    const Node n = graph.node(id);
    if (r.op && n.op->name != r.op) continue;
    GraphBuilder b(graph);
    b.origin = n.origin;
    const ValueId v = INGOT_TRY(r.rewrite(b, n));
    if (!v.valid()) continue;
    if (graph.value(v).name.empty()) graph.value(v).name = graph.value(n.outputs[0]).name;
    graph.replace_all_uses(n.outputs[0], v);
    graph.erase_if_dead(id);
    return true;
  }
  return false;
}

}  // namespace

Result<bool> simplify_graph(Graph& graph, const PassContext&) {
  bool changed = false;
  for (bool again = true; again;) {
    again = false;
    for (NodeId id : graph.order()) {
      if (graph.node(id).dead) continue;
      again |= INGOT_TRY(apply_rules(graph, id));
    }
    changed |= again;
  }
  return changed;
}

}  // namespace ingot
