#include "tests/random_graphs/graph_edit.h"

#include <fmt/format.h>

#include <algorithm>

#include "compiler/expr/simplify.h"
#include "compiler/ir/builder.h"
#include "compiler/ops/layout_ops.h"
#include "compiler/ops/rows.h"

namespace ingot::testing {
namespace {

TensorPtr edit_constant(const Tensor& t, const GraphEdit& e) {
  std::vector<int64_t> dims;
  for (int64_t d : t.dims()) {
    const Expr changed = e.dim ? e.dim(Expr(d)) : Expr();
    dims.push_back(changed.valid() ? changed.as_int().value_or(d) : d);
  }
  Tensor out(e.type ? e.type(t.type()) : t.type(), dims);
  for (int64_t i = 0; i < out.count() && t.count(); ++i)
    is_float(t.type()) ? out.set_float(i, t.float_at(i % t.count())) : out.set_int(i, t.int_at(i % t.count()));
  return std::make_shared<const Tensor>(std::move(out));
}

class Editor {
 public:
  Editor(const Graph& graph, const GraphEdit& edit) : old_(graph), edit_(edit), builder_(out_.graph) {}

  Result<EditedGraph> run() {
    out_.graph.name = old_.name;
    for (const Expr& s : old_.symbols)
      if (const Expr d = dim(s); d.op() == ExprOp::Symbol) out_.graph.symbols.push_back(d);
    choose_outputs();
    for (ValueId v : old_.inputs)
      if (needed_.count(v) || !edit_.drop_inputs) add_input(v);
    for (NodeId id : old_.order()) INGOT_TRY(add_node(old_.node(id)));
    for (size_t i : outputs_) {
      out_.graph.outputs.push_back(INGOT_TRY(get(old_.outputs[i])));
      out_.graph.output_names.push_back(old_.output_names[i]);
    }
    return std::move(out_);
  }

 private:
  Expr dim(const Expr& e) const { return edit_.dim && e.valid() ? simplify(rewrite(e, edit_.dim)) : e; }
  ValueId source(ValueId v) const {
    for (auto it = edit_.replace.find(v); it != edit_.replace.end(); it = edit_.replace.find(v)) v = it->second;
    return v;
  }
  void choose_outputs() {
    outputs_ = edit_.outputs;
    if (outputs_.empty())
      for (size_t i = 0; i < old_.outputs.size(); ++i) outputs_.push_back(i);
    std::vector<ValueId> open;
    for (size_t i : outputs_) open.push_back(source(old_.outputs[i]));
    while (!open.empty()) {
      const ValueId v = open.back();
      open.pop_back();
      if (!needed_.insert(v).second || edit_.cut.count(v)) continue;
      if (const Node* n = old_.producer(v))
        for (ValueId in : n->inputs)
          if (in.valid()) open.push_back(source(in));
    }
  }
  void add_input(ValueId v) {
    TensorType t = old_.value(v).type;
    if (edit_.type) t.dtype = edit_.type(t.dtype);
    for (Expr& d : t.shape) d = dim(d);
    const std::string& name = old_.value(v).name;
    out_.values[v] = out_.graph.add_input(t, name.empty() ? fmt::format("cut{}", v.index) : name);
  }
  Result<ValueId> get(ValueId v) {
    if (!v.valid()) return v;
    v = source(v);
    if (auto it = out_.values.find(v); it != out_.values.end()) return it->second;
    if (!old_.value(v).constant) return invalid("a value is read before it is computed");
    return out_.values[v] = out_.graph.add_constant(edit_constant(*old_.value(v).constant, edit_), old_.value(v).name);
  }
  Result<AttrsBox> attributes(const Node& n) const {
    if (n.attrs.empty()) return n.attrs;
    if ((n.op->name == "Cast" || n.op->name == "QuantizeTo") && edit_.type) {
      CastAttrs a = n.attrs.as<CastAttrs>();
      a.to = edit_.type(a.to);
      return AttrsBox::of(a);
    }
    if (n.op->name == "EyeLike" && edit_.type) return unsupported("EyeLike of another type");
    return edit_.dim ? n.attrs.mapped([&](const Expr& e) { return dim(e); }) : n.attrs;
  }
  Status add_node(const Node& n) {
    const bool wanted =
        std::any_of(n.outputs.begin(), n.outputs.end(), [&](ValueId v) { return needed_.count(v) != 0; });
    if (!wanted) return {};
    if (std::any_of(n.outputs.begin(), n.outputs.end(), [&](ValueId v) { return edit_.cut.count(v) != 0; })) {
      for (ValueId v : n.outputs) add_input(v);
      return {};
    }
    std::vector<ValueId> inputs;
    for (ValueId v : n.inputs) inputs.push_back(INGOT_TRY(get(v)));
    const auto made = INGOT_TRY(builder_.add_all(*n.op, INGOT_TRY(attributes(n)), inputs));
    for (size_t i = 0; i < made.size(); ++i) out_.values[n.outputs[i]] = made[i];
    return {};
  }

  const Graph& old_;
  const GraphEdit& edit_;
  EditedGraph out_;
  GraphBuilder builder_;
  std::set<ValueId> needed_;
  std::vector<size_t> outputs_;
};

using Dims = std::vector<int64_t>;

int64_t count_of(const Dims& dims) {
  int64_t n = 1;
  for (int64_t d : dims) n *= d;
  return n;
}
Status check_slice(const SliceAttrs& a, const Dims& in) {
  for (size_t d = 0; d < in.size(); ++d) {
    const int64_t size = *a.sizes[d].as_int(), first = *a.starts[d].as_int(),
                  last = first + (size - 1) * *a.steps[d].as_int();
    if (size > 0 && (std::min(first, last) < 0 || std::max(first, last) >= in[d]))
      return invalid("a slice reaches outside");
  }
  return {};
}
Status check_pad(const PadAttrs& a, const Dims& in) {
  for (size_t d = 0; d < in.size(); ++d) {
    const int64_t most = std::max(*a.begins[d].as_int(), *a.ends[d].as_int());
    if (most > 0 && a.mode != "constant" && (in[d] == 0 || (a.mode == "reflect" && most >= in[d])))
      return invalid("padding of too few elements");
  }
  return {};
}
Status check_expand(const Dims& in, const Dims& out) {
  if (in.size() > out.size()) return invalid("Expand to fewer dimensions");
  for (size_t i = 0; i < in.size(); ++i)
    if (in[in.size() - 1 - i] != 1 && in[in.size() - 1 - i] != out[out.size() - 1 - i])
      return invalid("Expand to other dims");
  return {};
}
/// Index operators read something for every index, which an axis without elements cannot give.
Status check_gather(const Node& n, const std::vector<Dims>& in) {
  const auto axis = static_cast<size_t>(n.attrs.as<AxisAttrs>().axis);
  if (in[0][axis] == 0 && count_of(in[1]) > 0) return invalid("an index into an empty axis");
  if (n.op->name == "GatherElements")
    for (size_t d = 0; d < in[0].size(); ++d)
      if (d != axis && in[1][d] > in[0][d]) return invalid("indices are larger than the data");
  return {};
}
Status check_node(const Node& n, const std::vector<Dims>& in, const Dims& out) {
  if (n.op->name == "Reshape" && count_of(in[0]) != count_of(out)) return invalid("Reshape to another count");
  if (n.op->name == "Transpose" && n.attrs.as<PermAttrs>().perm.size() != in[0].size())
    return invalid("a permutation of another rank");
  if (n.op->name == "Slice") return check_slice(n.attrs.as<SliceAttrs>(), in[0]);
  if (n.op->name == "Pad") return check_pad(n.attrs.as<PadAttrs>(), in[0]);
  if (n.op->name == "Expand") return check_expand(in[0], out);
  if (n.op->name == "Gather" || n.op->name == "GatherElements") return check_gather(n, in);
  return {};
}

}  // namespace

Result<EditedGraph> edit_graph(const Graph& graph, const GraphEdit& edit) { return Editor(graph, edit).run(); }

GraphEdit with_sizes(const Sizes& sizes) {
  GraphEdit e;
  e.dim = [sizes](const Expr& x) -> Expr {
    if (x.op() != ExprOp::Symbol) return Expr();
    const auto it = sizes.find(x.name());
    return it == sizes.end() ? Expr() : Expr(it->second);
  };
  return e;
}

Status check_static(const Graph& graph) {
  for (NodeId id : graph.order()) {
    const Node& n = graph.node(id);
    std::vector<Dims> in;
    for (ValueId v : n.inputs) {
      const auto dims = v.valid() ? static_dims(graph.value(v).type.shape) : Dims{};
      if (!dims) return invalid("dims are not numbers");
      in.push_back(*dims);
    }
    const auto out = static_dims(graph.value(n.outputs[0]).type.shape);
    if (!out) return invalid("dims are not numbers");
    if (std::any_of(out->begin(), out->end(), [](int64_t d) { return d < 0; }))
      return invalid("a dimension is negative");
    if (auto ok = check_node(n, in, *out); !ok) return std::move(ok.error().add(fmt::format("in {}", n.op->name)));
  }
  return {};
}

}  // namespace ingot::testing
