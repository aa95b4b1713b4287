#include "tests/random_graphs/shrink.h"

#include <algorithm>

#include "compiler/expr/simplify.h"
#include "compiler/ir/text.h"

namespace ingot::testing {
namespace {

constexpr int kMostTries = 600;

class Shrinker {
 public:
  Shrinker(const GraphCase& c, const CheckResult& first, const std::function<CheckResult(const GraphCase&)>& fails)
      : shrunk_{c, first, 0}, fails_(fails) {}

  Shrunk run() {
    for (bool smaller = true; smaller && shrunk_.tried < kMostTries;)
      smaller = one_size() | fewer_outputs() | fewer_nodes() | fixed_symbols() | smaller_dims() | plainer_types();
    return std::move(shrunk_);
  }

 private:
  bool keep(GraphCase c) {
    if (++shrunk_.tried > kMostTries || c.text + std::to_string(c.sizes.size()) ==
                                            shrunk_.smallest.text + std::to_string(shrunk_.smallest.sizes.size()))
      return false;
    const CheckResult r = fails_(c);
    if (r.fault != shrunk_.result.fault) return false;
    shrunk_.smallest = std::move(c);
    shrunk_.result = r;
    return true;
  }
  bool try_edit(GraphEdit e) {
    e.drop_inputs = true;
    auto g = graph_of(shrunk_.smallest);
    auto edited = edit_graph(*g, e);
    if (!edited) return false;
    GraphCase c = shrunk_.smallest;
    c.text = print_graph(edited->graph);
    return graph_of(c).ok() && keep(std::move(c));
  }
  Graph graph() const { return graph_of(shrunk_.smallest).value(); }

  bool one_size() {
    for (const Sizes& s : shrunk_.smallest.sizes) {
      if (shrunk_.smallest.sizes.size() == 1) break;
      GraphCase c = shrunk_.smallest;
      c.sizes = {s};
      if (keep(std::move(c))) return true;
    }
    return false;
  }
  bool fewer_outputs() {
    bool any = false;
    for (size_t i = graph().outputs.size(); i-- > 0 && graph().outputs.size() > 1;) {
      GraphEdit e;
      for (size_t k = 0; k < graph().outputs.size(); ++k)
        if (k != i) e.outputs.push_back(k);
      any |= try_edit(e);
    }
    return any;
  }
  /// A node gives way to one of its operands, or to an input; later nodes first, then those that inputs feed.
  bool fewer_nodes() {
    bool any = false;
    for (size_t at = graph().order().size(); at-- > 0;) {
      const Graph g = graph();
      const auto order = g.order();
      if (at >= order.size()) continue;
      any |= remove(g, g.node(order[at]));
    }
    return any;
  }
  bool remove(const Graph& g, const Node& n) {
    const ValueId out = n.outputs[0];
    for (ValueId in : n.inputs) {
      if (!in.valid() || !same_type(g.value(in).type, g.value(out).type)) continue;
      GraphEdit e;
      e.replace[out] = in;
      if (try_edit(e)) return true;
    }
    GraphEdit cut;
    cut.cut.insert(out);
    if (n.inputs.empty() ||
        !std::all_of(n.inputs.begin(), n.inputs.end(), [&](ValueId v) { return !v.valid() || g.value(v).constant; }))
      if (try_edit(cut)) return true;
    return false;
  }
  bool fixed_symbols() {
    bool any = false;
    for (const Expr& s : graph().symbols) {
      const auto size = shrunk_.smallest.sizes[0].find(s.name());
      if (shrunk_.smallest.sizes.size() == 1 && size != shrunk_.smallest.sizes[0].end())
        any |= try_edit(with_sizes({{s.name(), size->second}}));
    }
    return any;
  }
  /// Every dim and attribute of one number becomes a smaller number.
  bool smaller_dims() {
    std::set<int64_t> numbers;
    const Graph g = graph();
    const auto collect = [&](const Shape& s) {
      for (const Expr& d : s)
        if (d.as_int() && *d.as_int() > 1) numbers.insert(*d.as_int());
    };
    for (ValueId v : g.inputs) collect(g.value(v).type.shape);
    for (NodeId id : g.order())
      for (ValueId v : g.node(id).outputs) collect(g.value(v).type.shape);
    bool any = false;
    for (auto it = numbers.rbegin(); it != numbers.rend(); ++it)
      for (int64_t smaller : {int64_t{1}, int64_t{2}, *it / 2, *it - 1}) {
        if (smaller >= *it || smaller < 1) continue;
        GraphEdit e;
        e.dim = [from = *it, smaller](const Expr& x) { return x.as_int() == from ? Expr(smaller) : Expr(); };
        if (!try_edit(e)) continue;
        any = true;
        break;
      }
    for (size_t s = 0; s < shrunk_.smallest.sizes.size(); ++s)
      for (const auto& [name, size] : Sizes(shrunk_.smallest.sizes[s]))
        for (int64_t smaller : {1, 2}) {
          if (size <= smaller) continue;
          GraphCase c = shrunk_.smallest;
          c.sizes[s][name] = smaller;
          c.text += "\n";  // differs from what was kept
          any |= keep(std::move(c));
        }
    return any;
  }
  bool plainer_types() {
    for (DType t : {DType::F16, DType::BF16}) {
      GraphEdit e;
      e.type = [t](DType x) { return x == t ? DType::F32 : x; };
      if (shrunk_.smallest.text.find(std::string(name_of(t)) + "[") != std::string::npos && try_edit(e)) return true;
    }
    return false;
  }

  Shrunk shrunk_;
  const std::function<CheckResult(const GraphCase&)>& fails_;
};

}  // namespace

Shrunk shrink(const GraphCase& c, const CheckResult& first, const std::function<CheckResult(const GraphCase&)>& fails) {
  return Shrinker(c, first, fails).run();
}

}  // namespace ingot::testing
