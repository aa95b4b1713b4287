// Models whose values are 16-bit floats: what the operators compute is f32 in a kernel anyway, so the graph says so, and the 16 bits
// become how values between kernels are stored. Everything behind sees one form of a model, whatever types it was exported in.
#include <algorithm>
#include <map>
#include <set>

#include "compiler/ops/compose.h"
#include "compiler/ops/registry.h"
#include "compiler/ops/rows.h"
#include "passes/passes.h"

namespace ingot {
namespace {

bool is_half(DType t) { return t == DType::F16 || t == DType::BF16; }

/// The 16-bit float that all products of floats multiply; F32: there are none, or wider ones among them.
DType type_of_products(const Graph& g) {
  DType found = DType::F32;
  for (NodeId id : g.order()) {
    const Node& n = g.node(id);
    if (!n.op->lowers_as<Contraction>()) continue;
    for (size_t i = 0; i < 2; ++i) {
      const DType t = g.value(n.inputs[i]).type.dtype;
      if (!is_float(t) || size_of(t) == 1) continue;
      if (!is_half(t) || (found != DType::F32 && t != found)) return DType::F32;
      found = t;
    }
  }
  return found;
}

class Widener {
 public:
  Widener(Graph& graph, DType type, bool asked) : g_(graph), b_(graph), type_(type), asked_(asked) {}

  /// False: an operator wants the narrow type.
  Result<bool> run() {
    if (!asked_) mark_wide();
    std::vector<size_t> narrow;  // outputs, by position
    for (size_t i = 0; i < g_.outputs.size(); ++i)
      if (is_narrow(g_.outputs[i])) narrow.push_back(i);
    for (const ValueId v : g_.inputs)
      if (is_narrow(v)) INGOT_TRY(read_wide(v));
    widen_constants();
    for (NodeId id : g_.order())
      if (!INGOT_TRY(widen(id))) return false;
    for (const size_t i : narrow) INGOT_TRY(store_narrow(i));
    return true;
  }

 private:
  bool is_narrow(ValueId v) const { return v.valid() && g_.value(v).type.dtype == type_; }

  /// What the model itself computes in f32 stays f32 where it is stored.
  void mark_wide() {
    for (uint32_t i = 0; i < g_.value_count(); ++i) {
      Value& v = g_.value(ValueId{i});
      v.keeps_f32 = v.type.dtype == DType::F32 && (v.constant || v.producer.valid());
    }
  }
  /// Readers of `v` read it by way of a cast.
  Status read_wide(ValueId v) {
    const std::vector<NodeId> users = g_.value(v).users;
    if (users.empty()) return {};
    const ValueId wide = INGOT_TRY(build_cast(b_, v, DType::F32));
    for (NodeId u : users) g_.replace_use(u, v, wide);
    return {};
  }
  void widen_constants() {
    const size_t count = g_.value_count();
    for (uint32_t i = 0; i < count; ++i) {
      const ValueId v{i};
      const TensorPtr from = g_.value(v).constant;
      if (!from || !is_narrow(v) || (g_.value(v).users.empty() && !g_.is_output(v))) continue;
      auto to = std::make_shared<Tensor>(DType::F32, from->dims());
      for (int64_t k = 0; k < from->count(); ++k) to->mutable_as<float>()[k] = static_cast<float>(from->float_at(k));
      const ValueId wide = g_.add_constant(std::move(to), g_.value(v).name);
      g_.replace_all_uses(v, wide);
    }
  }
  /// The node with what its operands have become. Casts to or from the narrow type are nothing any more.
  Result<bool> widen(NodeId id) {
    if (g_.node(id).op->name == "Cast" && g_.node(id).attrs.as<CastAttrs>().to == type_)
      g_.node(id).attrs = AttrsBox::of(CastAttrs{DType::F32});
    const Node n = g_.node(id);
    if (!n.branches.empty() || n.body || !n.op->infer) return false;
    std::vector<TensorType> types;
    {
      const NodeView view(g_, n);
      auto inferred = n.op->infer(*view);
      if (!inferred) return false;
      types = std::move(*inferred);
    }
    for (size_t i = 0; i < n.outputs.size(); ++i) {
      const ValueId v = n.outputs[i];
      g_.value(v).type.dtype = types[i].dtype;
      if (types[i].dtype == type_) INGOT_TRY(read_wide(v));  // its attributes say so
    }
    if (n.op->name == "Cast" && g_.value(n.inputs[0]).type.dtype == n.attrs.as<CastAttrs>().to) drop_cast(id);
    return true;
  }
  /// A value that the model rounds for all of its readers is stored so.
  void drop_cast(NodeId id) {
    const ValueId from = g_.node(id).inputs[0], to = g_.node(id).outputs[0];
    const bool rounds = !g_.value(to).keeps_f32;
    const bool for_all = g_.value(from).users.size() == 1 && !g_.is_output(from);
    if (rounds && for_all) g_.value(from).keeps_f32 = false;
    if (rounds && !for_all) read_apart_.insert(from);
    g_.value(to).keeps_f32 = false;  // what takes its place has its own
    g_.replace_all_uses(to, from);
    g_.erase_if_dead(id);
  }
  /// An output of the model has its type; what else reads the value reads the output, so that it is stored once.
  Status store_narrow(size_t position) {
    const ValueId v = g_.outputs[position];
    ValueId& narrow = stored_[v];
    if (!narrow.valid()) {
      const std::vector<NodeId> users = g_.value(v).users;
      narrow = INGOT_TRY(build_cast(b_, v, type_));
      g_.value(narrow).name = g_.value(v).name;
      if (!users.empty() && !read_apart_.count(v) && !g_.value(v).constant) {
        const ValueId wide = INGOT_TRY(build_cast(b_, narrow, DType::F32));
        for (NodeId u : users) g_.replace_use(u, v, wide);
      }
    }
    g_.outputs[position] = narrow;
    return {};
  }

  Graph& g_;
  GraphBuilder b_;
  DType type_;
  bool asked_;  // for 16 bits, by the user
  std::set<ValueId> read_apart_;  // values that some readers want as f32, and others rounded
  std::map<ValueId, ValueId> stored_;  // values and what outputs of them are
};

}  // namespace

Result<bool> widen_halves(Graph& graph, const PassContext& ctx) {
  if (!ctx.fuse || !graph.value_symbols.empty()) return false;
  const bool asked = ctx.precision != DType::F32;
  const DType type = type_of_products(graph);
  if (type == DType::F32 || (asked && type != ctx.precision)) return false;
  Graph widened = graph;
  Widener widener(widened, type, asked);
  if (!INGOT_TRY(widener.run())) return false;
  graph = std::move(widened);
  if (!asked) graph.stored_as = type;
  return true;
}

}  // namespace ingot
