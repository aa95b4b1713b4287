#include "frontend/node_order.h"

#include <fmt/format.h>

#include <algorithm>
#include <queue>
#include <unordered_map>

#include "frontend/text.h"

namespace ingot {
namespace {

/// Adds the names that the graph uses and does not define. The nesting is bounded by the parser's own limit.
void add_free_names(const onnx::Graph& graph, NameSet& free) {
  NameSet own, used;
  for (const onnx::ValueInfo& v : graph.input()) own.insert(v.name());
  for (const onnx::Tensor& t : graph.initializer()) own.insert(t.name());
  for (const onnx::SparseTensor& t : graph.sparse_initializer()) own.insert(t.values().name());
  for (const onnx::Node& n : graph.node()) {
    for (const std::string& name : n.output()) own.insert(name);
    for (const std::string& name : n.input()) used.insert(name);
    for (std::string_view name : captured_names(n)) used.insert(name);
  }
  for (const onnx::ValueInfo& v : graph.output()) used.insert(v.name());
  for (std::string_view name : used)
    if (!name.empty() && !own.contains(name)) free.insert(name);
}

using Producers = std::unordered_map<std::string_view, int>;

Result<Producers> find_producers(const OrderRequest& request) {
  Producers producers;
  for (int i = 0; i < request.nodes.size(); ++i)
    for (const std::string& name : request.nodes[i].output()) {
      if (name.empty()) continue;
      const std::string label = quote_name(label_of(request.nodes[i], i));
      if (request.defined.contains(name))
        return invalid(fmt::format("the value {} is defined twice: as an input or initialiser, and by node {}",
                                   quote_name(name), label));
      const auto [it, fresh] = producers.emplace(name, i);
      if (!fresh)
        return invalid(fmt::format("the value {} is defined twice: by node {} and by node {}", quote_name(name),
                                   quote_name(label_of(request.nodes[it->second], it->second)), label));
    }
  return producers;
}

/// For each node, the nodes of this list that it reads from.
Result<std::vector<std::vector<int>>> find_sources(const OrderRequest& request, const Producers& producers) {
  std::vector<std::vector<int>> sources(static_cast<size_t>(request.nodes.size()));
  for (int i = 0; i < request.nodes.size(); ++i) {
    std::vector<int>& list = sources[static_cast<size_t>(i)];
    for (const std::string& name : request.nodes[i].input()) {
      if (name.empty()) continue;
      if (auto it = producers.find(name); it != producers.end()) list.push_back(it->second);
      else if (!request.defined.contains(name) && !request.is_visible(name))
        return invalid(fmt::format("the input {} of node {} is not defined anywhere", quote_name(name),
                                   quote_name(label_of(request.nodes[i], i))));
    }
    for (std::string_view name : captured_names(request.nodes[i]))
      if (auto it = producers.find(name); it != producers.end()) list.push_back(it->second);
    std::sort(list.begin(), list.end());
    list.erase(std::unique(list.begin(), list.end()), list.end());
  }
  return sources;
}

/// Names a cycle among the nodes that are not `done`; each of them waits for another one.
Error cycle_error(const NodeList& nodes, const std::vector<std::vector<int>>& sources, const std::vector<bool>& done) {
  const auto start = std::find(done.begin(), done.end(), false) - done.begin();
  std::vector<int> path{static_cast<int>(start)};
  std::vector<int> seen_at(done.size(), -1);
  while (seen_at[static_cast<size_t>(path.back())] < 0) {
    const auto here = static_cast<size_t>(path.back());
    seen_at[here] = static_cast<int>(path.size()) - 1;
    path.push_back(*std::find_if(sources[here].begin(), sources[here].end(),
                                 [&](int s) { return !done[static_cast<size_t>(s)]; }));
  }
  path.erase(path.begin(), path.begin() + seen_at[static_cast<size_t>(path.back())]);
  std::reverse(path.begin(), path.end());
  constexpr size_t kShown = 12;
  std::string text;
  for (size_t i = 0; i < std::min(path.size(), kShown); ++i)
    text += (i ? " -> " : "") + quote_name(label_of(nodes[path[i]], path[i]));
  if (path.size() > kShown) text += fmt::format(" -> … ({} nodes)", path.size() - 1);
  return invalid("the graph has a cycle: " + text);
}

Result<std::vector<int>> sort_nodes(const NodeList& nodes, const std::vector<std::vector<int>>& sources) {
  const size_t n = sources.size();
  std::vector<std::vector<int>> users(n);
  std::vector<size_t> missing(n);
  std::priority_queue<int, std::vector<int>, std::greater<>> ready;
  for (size_t i = 0; i < n; ++i) {
    missing[i] = sources[i].size();
    for (int s : sources[i]) users[static_cast<size_t>(s)].push_back(static_cast<int>(i));
    if (missing[i] == 0) ready.push(static_cast<int>(i));
  }
  std::vector<int> order;
  std::vector<bool> done(n, false);
  while (!ready.empty()) {
    const int i = ready.top();
    ready.pop();
    order.push_back(i);
    done[static_cast<size_t>(i)] = true;
    for (int u : users[static_cast<size_t>(i)])
      if (--missing[static_cast<size_t>(u)] == 0) ready.push(u);
  }
  if (order.size() < n) return cycle_error(nodes, sources, done);
  return order;
}

}  // namespace

std::string label_of(const onnx::Node& node, int index) {
  return node.name().empty() ? fmt::format("{}_{}", node.op_type(), index) : node.name();
}

std::vector<std::string_view> captured_names(const onnx::Node& node) {
  NameSet free;
  for (const onnx::Attribute& a : node.attribute()) {
    if (a.has_g()) add_free_names(a.g(), free);
    for (const onnx::Graph& g : a.graphs()) add_free_names(g, free);
  }
  return {free.begin(), free.end()};
}

Result<std::vector<int>> order_nodes(const OrderRequest& request) {
  const Producers producers = INGOT_TRY(find_producers(request));
  const auto sources = INGOT_TRY(find_sources(request, producers));
  for (std::string_view name : request.outputs)
    if (!producers.contains(name) && !request.defined.contains(name) && !request.is_visible(name))
      return invalid(fmt::format("the output {} is not defined anywhere", quote_name(name)));
  const std::vector<int> order = INGOT_TRY(sort_nodes(request.nodes, sources));
  std::vector<bool> live(order.size(), false);
  for (std::string_view name : request.outputs)
    if (auto it = producers.find(name); it != producers.end()) live[static_cast<size_t>(it->second)] = true;
  for (size_t i = order.size(); i-- > 0;)
    if (live[static_cast<size_t>(order[i])])
      for (int s : sources[static_cast<size_t>(order[i])]) live[static_cast<size_t>(s)] = true;
  std::vector<int> result;
  for (int i : order)
    if (live[static_cast<size_t>(i)]) result.push_back(i);
  return result;
}

}  // namespace ingot
