#include "compiler/ir/builder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "compiler/expr/simplify.h"

namespace ingot {
namespace {

/// Calls f with every index of a static shape, row-major; stops when f returns false.
template <class F>
bool for_each_index(const std::vector<int64_t>& dims, F f) {
  int64_t count = 1;
  for (int64_t d : dims) count *= d;
  for (int64_t linear = 0; linear < count; ++linear) {
    Index index(dims.size());
    int64_t rest = linear;
    for (size_t i = dims.size(); i-- > 0;) {
      index[i] = rest % dims[i];
      rest /= dims[i];
    }
    if (!f(index)) return false;
  }
  return true;
}

/// Replaces Reads by the contents of the inputs; an invalid Expr when one is unknown.
Expr resolve_reads(const Expr& e, const OpView& view, const std::vector<Content>& in) {
  bool known = true;
  std::function<Expr(const Expr&)> replace = [&](const Expr& x) -> Expr {
    if (x.op() == ExprOp::Select) {  // only the chosen side may be read
      const Expr condition = simplify(rewrite(x.arg(0), replace));
      if (condition.is_const()) return rewrite(x.arg(condition.int_value() ? 1 : 2), replace);
      return Expr();
    }
    if (x.op() != ExprOp::Read) return Expr();
    const auto input = static_cast<size_t>(x.buffer());
    Index index;
    for (const Expr& i : x.args()) index.push_back(rewrite(i, replace));
    const auto position = linear_index(view.inputs[input].shape, index).as_int();
    if (!in[input] || !position || *position < 0 || *position >= static_cast<int64_t>(in[input]->size())) {
      known = false;
      return zero_of(x);
    }
    return (*in[input])[static_cast<size_t>(*position)];
  };
  const Expr result = simplify(rewrite(e, replace));
  return known ? result : Expr();
}

Expr output_element(const OpDef& op, const OpView& view, const Index& out) {
  if (auto* p = op.lowers_as<Pointwise>()) {
    std::vector<Expr> args;
    for (size_t i = 0; i < view.inputs.size(); ++i)
      args.push_back(view.has(i) ? view.read(i, broadcast_index(view.inputs[i].shape, out)) : Expr());
    return p->scalar(view, args);
  }
  if (auto* m = op.lowers_as<Movement>()) return m->element(view, out);
  if (auto* e = op.lowers_as<Element>()) return e->element(view, out);
  const auto* r = op.lowers_as<Reduction>();
  if (!r) return Expr();
  const ReductionForm form = r->form(view);
  const auto extents = static_dims(form.extents);
  if (!extents || form.combine >= Combine::ArgMax) return Expr();
  Expr acc;
  for_each_index(*extents, [&](const Index& reduced) {
    const Expr v = r->value(view, out, reduced);
    acc = acc.valid() ? combine_pair(form.combine, acc, v) : v;
    return true;
  });
  if (!acc.valid()) return Expr();
  return r->finish ? r->finish(view, out, acc) : acc;
}

constexpr int64_t kMostTerms = kMaxContent;

/// Elements that all of a reduction's outputs read together; 0 for other operators. More than a few are no shape arithmetic,
/// and constants fold later, by a kernel.
int64_t terms_of(const OpDef& op, const OpView& view, int64_t outputs) {
  const auto* r = op.lowers_as<Reduction>();
  if (!r) return 0;
  const auto extents = static_dims(r->form(view).extents);
  const auto each = extents ? checked_count(*extents, 1) : Result<int64_t>(0);
  return each.ok() && each.value() <= kMostTerms ? outputs * each.value() : kMostTerms + 1;
}

}  // namespace

std::vector<Content> evaluate_content(const Graph& graph, const Node& node) {
  std::vector<Content> result(node.outputs.size()), in;
  bool any = node.inputs.empty();
  for (ValueId v : node.inputs) {
    in.push_back(v.valid() ? graph.value(v).content : nullptr);
    any |= in.back() != nullptr;
  }
  if (!any || node.outputs.size() != 1) return result;
  const TensorType& type = graph.value(node.outputs[0]).type;
  const auto dims = static_dims(type.shape);
  if (!dims) return result;
  int64_t count = 1;
  for (int64_t d : *dims) count *= d;
  if (count > kMaxContent) return result;
  const NodeView view(graph, node);
  if (terms_of(*node.op, *view, count) > kMostTerms) return result;
  std::vector<Expr> items;
  const bool known = for_each_index(*dims, [&](const Index& out) {
    Expr e = output_element(*node.op, *view, out);
    if (e.valid()) e = resolve_reads(e, *view, in);
    if (!e.valid()) return false;
    items.push_back(std::move(e));
    return true;
  });
  if (known) result[0] = std::make_shared<const std::vector<Expr>>(std::move(items));
  return result;
}

/// The types, unless a dimension is known to be less than nothing.
static Result<std::vector<TensorType>> possible(Result<std::vector<TensorType>> types) {
  if (!types) return types;
  for (const TensorType& t : *types)
    for (const Expr& d : t.shape)
      if (d.as_int().value_or(0) < 0) return invalid(fmt::format("the result {} would have a negative dimension", to_string(t)));
  return types;
}

Result<std::vector<ValueId>> GraphBuilder::add_all(const OpDef& op, AttrsBox attrs, std::vector<ValueId> inputs) {
  std::vector<TensorType> types;
  for (ValueId v : inputs) types.push_back(v.valid() ? graph_.value(v).type : TensorType{DType::String, {}});
  auto outputs = possible(op.infer(OpView{attrs, types, {}}));
  if (!outputs) {
    std::string list;
    for (const TensorType& t : types) list += (list.empty() ? "" : ", ") + to_string(t);
    return std::move(outputs.error().add(fmt::format("in {}({})", op.name, list)));
  }
  for (TensorType& t : *outputs)
    for (Expr& d : t.shape) d = dimension(d);
  const NodeId id = graph_.add_node(&op, std::move(attrs), std::move(inputs), std::move(*outputs), origin);
  const std::vector<Content> contents = evaluate_content(graph_, graph_.node(id));
  for (size_t i = 0; i < contents.size(); ++i) graph_.value(graph_.node(id).outputs[i]).content = contents[i];
  return graph_.node(id).outputs;
}

Result<ValueId> GraphBuilder::add(const OpDef& op, AttrsBox attrs, std::vector<ValueId> inputs) {
  return INGOT_TRY(add_all(op, std::move(attrs), std::move(inputs)))[0];
}

namespace {

constexpr int64_t kMostValueSymbols = 64;  // of one value
constexpr int kDeepestDemand = 32;
constexpr int64_t kLowestValue = 1 - kNoLimit;  // unknown, but above that of an Expr::local, which a kernel binds itself

/// A symbol that may be negative stands for a value, not for a dimension.
bool uses_values(const Expr& e) {
  bool found = false;
  visit(e, [&](const Expr& x) { found |= x.op() == ExprOp::Symbol && !x.extent().valid() && x.low() < 0; });
  return found;
}

/// The element whose Tensor::bits_at is the symbol.
Expr element_of(DType type, const Expr& symbol) {
  const DType compute = compute_type(type);
  if (!is_float(compute)) return cast(compute, symbol);
  return Expr::make(ExprOp::Bits, compute, {compute == DType::F64 ? symbol : cast(DType::I32, symbol)});
}

std::string symbol_stem(const std::string& name) {
  std::string stem;
  for (char c : name) stem += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return stem.empty() || !std::isalpha(static_cast<unsigned char>(stem[0])) ? "v" + stem : stem;
}

}  // namespace

Expr GraphBuilder::derived(const Expr& definition, int64_t low) {
  for (const DerivedSymbol& known : graph_.derived_symbols)
    if (known.definition.same(definition) && known.symbol.low() == low) return known.symbol;
  const std::string name = fmt::format("size{}", graph_.derived_symbols.size());
  const Expr symbol = Expr::symbol(name, low, std::max(low, bounds_of(definition).high));
  graph_.derived_symbols.push_back({symbol, definition});
  return symbol;
}

Expr GraphBuilder::dimension(const Expr& size) {
  const Expr d = simplify(size);
  if (d.is_const() || !uses_values(d)) return d;
  return derived(d, std::max<int64_t>(bounds_of(d).low, 0));
}

Expr GraphBuilder::named(const Expr& e) {
  const Expr d = simplify(e);
  if (d.is_const() || d.op() == ExprOp::Symbol) return d;
  return derived(d, std::max(bounds_of(d).low, kLowestValue));
}

void GraphBuilder::require(const Expr& condition, std::string message) {
  const Expr c = simplify(condition);
  for (const ShapeRequirement& known : graph_.requirements)
    if (known.condition.same(c)) return;
  if (!c.is_const() || !c.int_value()) graph_.requirements.push_back({c, std::move(message)});
}

bool GraphBuilder::may_be_symbols(ValueId v) const {
  const TensorType& t = graph_.value(v).type;
  const auto dims = static_dims(t.shape);
  if (!dims || t.dtype == DType::String) return false;
  const auto count = checked_count(*dims, 1);
  return count.ok() && count.value() <= kMostValueSymbols;
}

bool GraphBuilder::follows_from_inputs(ValueId v, int depth) const {
  const Value& value = graph_.value(v);
  if (value.content) return true;
  if (!may_be_symbols(v) || depth > kDeepestDemand) return false;
  const Node* n = graph_.producer(v);
  if (!n) return value.constant == nullptr;
  const bool computes = n->outputs.size() == 1 && !n->op->lowers_as<Decompose>() && !n->op->lowers_as<Contraction>();
  return computes && std::all_of(n->inputs.begin(), n->inputs.end(),
                                 [&](ValueId in) { return !in.valid() || follows_from_inputs(in, depth + 1); });
}

Content GraphBuilder::bind_symbols(ValueId v) {
  Value& value = graph_.value(v);
  const std::string stem = symbol_stem(value.name.empty() ? fmt::format("v{}", v.index) : value.name);
  const int64_t count = *element_count(value.type.shape).as_int();
  std::vector<Expr> items;
  for (int64_t i = 0; i < count; ++i) {
    // The number of symbols so far keeps the name from meeting another's.
    const std::string name = fmt::format("{}_value{}", stem, graph_.value_symbols.size());
    const Expr symbol = Expr::symbol(name, kLowestValue, kNoLimit);
    graph_.value_symbols.push_back({symbol, v, i});
    items.push_back(element_of(value.type.dtype, symbol));
  }
  return value.content = std::make_shared<const std::vector<Expr>>(std::move(items));
}

Content GraphBuilder::demand_content(ValueId v) {
  if (!v.valid()) return nullptr;
  const auto usable = [&](const Content& c) {
    return c && (!may_be_symbols(v) || std::all_of(c->begin(), c->end(), evaluates_on_host));
  };
  if (const Content known = graph_.value(v).content; usable(known)) return known;
  if (follows_from_inputs(v, 0)) {
    const Node* n = graph_.producer(v);
    if (!n) return bind_symbols(v);
    const std::vector<ValueId> inputs = n->inputs;
    for (ValueId in : inputs)
      if (in.valid()) demand_content(in);
    const Node& again = graph_.node(graph_.value(v).producer);
    if (Content computed = evaluate_content(graph_, again)[0]; usable(computed)) return graph_.value(v).content = computed;
  }
  return may_be_symbols(v) ? bind_symbols(v) : nullptr;
}

ValueId GraphBuilder::constant(Tensor tensor, std::string name) {
  return graph_.add_constant(std::make_shared<const Tensor>(std::move(tensor)), std::move(name));
}

}  // namespace ingot
