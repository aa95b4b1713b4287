// Chains: small reductions and products, each of which needs all of what the one before computed for the same position of the
// first dimension (squeeze-and-excite, a gate and its softmax). One point of the kernel is such a position; what goes from
// one stage to the next is in scratch arrays, so that the lanes of a block share every stage.
#include <algorithm>
#include <map>
#include <set>

#include "codegen/lower/axis_order.h"
#include "codegen/lower/group_parts.h"
#include "compiler/expr/simplify.h"

namespace ingot {
namespace {

constexpr int64_t kPartialElements = 8192;  // of a reduction in two steps

bool is_stage(const Node& n) { return n.op->lowers_as<Reduction>() || n.op->lowers_as<Contraction>(); }

/// What reading walks furthest apart: of the largest buffer, for the order of loops.
Expr widest_load(const Kernel& k, const Expr& value) {
  Expr found;
  size_t rank = 0;
  visit(value, [&](const Expr& x) {
    if (x.op() != ExprOp::Load || x.buffer() >= static_cast<int>(k.buffers.size())) return;
    const size_t r = k.buffers[static_cast<size_t>(x.buffer())].shape.size();
    if (!found.valid() || r > rank) found = x.arg(0), rank = r;
  });
  return found;
}

class ChainLowering {
 public:
  ChainLowering(GroupValues& values, Kernel& k)
      : values_(values), body_(values.body()), k_(k), row_(Expr::index("row", body_.value(body_.outputs[0]).type.shape[0])) {
    k_.domain = axes_of({row_});
  }

  void run() {
    for (NodeId id : body_.order())
      if (is_stage(body_.node(id))) compute(body_.node(id));
    for (ValueId v : body_.outputs) {
      if (stored_.count(v)) continue;
      const ValueId from = unmoved(body_, v);
      const Index at = index_of(body_.value(from).type.shape);
      k_.body.push_back({Loop{loop_axes(at), {{store_of(values_, v, moved_index(body_, v, from, at), values_.at(from, at))}}}});
    }
  }

 private:
  std::string name(const char* stem) { return stem + std::to_string(names_++); }
  /// Fresh positions of all dimensions but the first.
  Index index_of(const Shape& shape) {
    Index index{row_};
    for (size_t d = 1; d < shape.size(); ++d) index.push_back(Expr::index(name("i"), shape[d]));
    return index;
  }
  static std::vector<Axis> loop_axes(const Index& at) { return axes_of(Index(at.begin() + 1, at.end())); }

  /// v needs no stage that is yet to come; what is in `with` is there.
  bool is_ready(ValueId v, const std::vector<ValueId>& with) const {
    if (!v.valid() || done_.count(v) || std::find(with.begin(), with.end(), v) != with.end()) return true;
    const Node* n = body_.producer(v);
    if (!n) return true;
    return !is_stage(*n) && std::all_of(n->inputs.begin(), n->inputs.end(), [&](ValueId i) { return is_ready(i, with); });
  }
  /// The value that stands for the stage's result from here on: behind the pointwise work of the same shape that only leads there.
  ValueId result_of(const Node& stage) const {
    std::vector<ValueId> reached{stage.outputs[0]};
    const Shape& shape = body_.value(reached[0]).type.shape;
    for (NodeId id : body_.order()) {
      const Node& n = body_.node(id);
      const bool reads = std::any_of(n.inputs.begin(), n.inputs.end(), [&](ValueId v) { return std::find(reached.begin(), reached.end(), v) != reached.end(); });
      if (!reads || !n.op->lowers_as<Pointwise>() || !same_shape(body_.value(n.outputs[0]).type.shape, shape)) continue;
      if (std::all_of(n.inputs.begin(), n.inputs.end(), [&](ValueId v) { return is_ready(v, reached); })) reached.push_back(n.outputs[0]);
    }
    for (size_t last = reached.size(); last-- > 1;) {
      const auto leads_there = [&](ValueId v) {
        const auto& users = body_.value(v).users;
        return !body_.is_output(v) && std::all_of(users.begin(), users.end(), [&](NodeId u) {
          return is_among(reached, last, body_.node(u).outputs[0]);
        });
      };
      if (std::all_of(reached.begin(), reached.begin() + static_cast<int64_t>(last), leads_there)) return reached[last];
    }
    return reached[0];
  }
  static bool is_among(const std::vector<ValueId>& list, size_t last, ValueId v) {
    const auto end = list.begin() + static_cast<int64_t>(last) + 1;
    return std::find(list.begin(), end, v) != end;
  }
  /// Nothing reads v but movement on its way to an output.
  bool only_leaves(ValueId v) const {
    const auto& users = body_.value(v).users;
    return std::all_of(users.begin(), users.end(), [&](NodeId u) {
      const auto* m = body_.node(u).op->lowers_as<Movement>();
      return m && m->inverse && only_leaves(body_.node(u).outputs[0]);
    });
  }

  void compute(const Node& stage) {
    Index at;
    std::vector<Axis> axes;
    Reduce r = stage.op->lowers_as<Contraction>() ? product(stage, at, axes) : reduction(stage, at, axes);
    sort_by_stride(r.axes, widest_load(k_, r.value));
    Loop loop{axes, {}};
    sort_by_stride(loop.axes, widest_load(k_, r.value));
    loop.body.push_back({std::move(r)});
    const ValueId result = result_of(stage);
    const Expr value = values_.at(result, at);
    if (!only_leaves(result)) loop.body.push_back({Store{scratch(result), place_in_row(body_.value(result).type.shape, at), value}});
    for (ValueId v : body_.outputs) {
      if (unmoved(body_, v) != result || !stored_.insert(v).second) continue;
      loop.body.push_back({store_of(values_, v, moved_index(body_, v, result, at), value)});
    }
    k_.body.push_back({std::move(loop)});
    done_.insert(result);
    if (scratch_of_.count(result)) values_.bind_scratch(result, scratch_of_.at(result));
  }
  int scratch(ValueId v) {
    const TensorType& type = body_.value(v).type;
    return scratch_of_[v] = allocate(element_count(Shape(type.shape.begin() + 1, type.shape.end())), compute_type(type.dtype));
  }
  int allocate(const Expr& elements, DType type) {
    const int buffer = static_cast<int>(k_.buffers.size()) + arrays_;
    k_.body.push_back({Alloc{buffer, "part" + std::to_string(arrays_++), type, simplify(elements)}});
    return buffer;
  }

  /// The sum that makes element `at` of a product, for all values of `axes`; binds its result.
  Reduce product(const Node& n, Index& at, std::vector<Axis>& axes) {
    const NodeView view(body_, n);
    ContractionForm form = n.op->lowers_as<Contraction>()->form(*view);
    Bindings fresh{{form.out[0].name(), row_}};
    for (const auto* side : {&form.batch, &form.m, &form.n, &form.k})
      for (const Expr& x : *side) fresh.emplace(x.name(), Expr::index(name("i"), x.extent()));
    for (const Expr& i : form.out) at.push_back(simplify(substitute(i, fresh)));
    for (const auto* side : {&form.batch, &form.m, &form.n})
      for (const Expr& x : *side)
        if (!x.same(form.out[0])) axes.push_back({fresh.at(x.name()), x.extent()});
    Reduce r;
    std::vector<Expr> k;
    for (const Expr& x : form.k) k.push_back(fresh.at(x.name()));
    r.axes = axes_of(k);
    r.value = values_.resolve(n, substitute(form.a, fresh)) * values_.resolve(n, substitute(form.b, fresh));
    r.result = Expr::local(name("sum"), r.value.type());
    r.init = identity_of(Combine::Sum, r.value.type());
    values_.bind(n.outputs[0], r.result);
    return r;
  }
  Reduce reduction(const Node& n, Index& at, std::vector<Axis>& axes) {
    const NodeView view(body_, n);
    const ReductionForm form = n.op->lowers_as<Reduction>()->form(*view);
    at = index_of(body_.value(n.outputs[0]).type.shape);
    axes = loop_axes(at);
    Index taps;
    for (const Expr& e : form.extents) taps.push_back(Expr::index(name("i"), e));
    Reduce r = reduce_of(values_, n, at, taps, name("acc"));
    values_.bind(n.outputs[0], finish_of(values_, n, at, r.result));
    return in_two_steps(std::move(r), at);
  }
  /// The axis of a reduction along one as two: about as many parts as steps of a part. False where that is no gain.
  bool halve(Reduce& r) {
    const Axis whole = r.axes[0];
    const auto extent = whole.extent.as_int();
    int64_t parts = 1;
    for (int64_t d = 2; extent && d * d <= 2 * *extent; ++d)
      if (*extent % d == 0) parts = d;
    if (parts == 1) return false;
    const int64_t steps = *extent / parts;
    const Expr part = Expr::index(name("i"), Expr(parts)), step = Expr::index(name("i"), Expr(steps));
    r.axes = {{part, Expr(parts)}, {step, Expr(steps)}};
    r.value = simplify(substitute(r.value, {{whole.var.name(), part * steps + step}}));
    return true;
  }
  /// A reduction along axes of which none is contiguous (the pixels of an image with channels last) is shared by more lanes when
  /// its last axis, or the steps of an axis alone, come first, for all positions of the others at once.
  Reduce in_two_steps(const Reduce& whole, const Index& at) {
    Reduce r = whole;
    std::erase_if(r.axes, [](const Axis& a) { return a.extent.is_const(1); });
    Expr load = widest_load(k_, r.value);
    if (r.axes.empty() || r.combine >= Combine::ArgMax || !load.valid()) return whole;
    const auto distance = linear_coefficient(load, r.axes.back().var.name());
    if (!distance || distance->is_const(1) || (r.axes.size() == 1 && !halve(r))) return whole;
    load = widest_load(k_, r.value);
    std::vector<Axis> outer(r.axes.begin(), r.axes.end() - 1), all = loop_axes(at);
    all.insert(all.end(), outer.begin(), outer.end());
    Expr count = 1, position = 0;
    for (const Axis& a : all) count = count * a.extent;
    const auto elements = simplify(count).as_int();
    if (!elements || *elements > kPartialElements) return whole;
    sort_by_stride(all, load);
    for (const Axis& a : all) position = position * a.extent + a.var;
    const int buffer = allocate(count, r.value.type());
    Reduce inner = r;
    inner.axes = {r.axes.back()};
    inner.result = Expr::local(name("acc"), r.value.type());
    const Expr made = inner.result;
    // The second step counts with variables of its own.
    Bindings fresh;
    for (Axis& a : outer) {
      const Expr var = Expr::index(name("i"), a.extent);
      fresh.emplace(a.var.name(), var);
      a.var = var;
    }
    Bindings first;
    for (const Axis& a : whole.axes)
      if (a.extent.is_const(1)) first.emplace(a.var.name(), Expr(0));
    for (const Axis& a : loop_axes(at)) first.emplace(a.var.name(), Expr::index(name("i"), a.extent));
    inner.value = substitute(inner.value, first);
    for (Axis& a : all)
      if (auto it = first.find(a.var.name()); it != first.end()) a.var = it->second;
    k_.body.push_back({Loop{all, {{std::move(inner)}, {Store{buffer, simplify(substitute(position, first)), made}}}}});
    r.axes = outer;
    r.value = Expr::load(buffer, r.value.type(), simplify(substitute(position, fresh)));
    return r;
  }

  GroupValues& values_;
  const Graph& body_;
  Kernel& k_;
  Expr row_;
  int names_ = 0, arrays_ = 0;
  std::map<ValueId, int> scratch_of_;
  std::set<ValueId> done_, stored_;
};

}  // namespace

void lower_chain(GroupValues& values, Kernel& kernel) { ChainLowering(values, kernel).run(); }

}  // namespace ingot
