#include "passes/neighbours.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "compiler/ops/joins.h"
#include "compiler/ops/registry.h"

namespace ingot {
namespace {

using Labels = std::set<std::string>;

class Explainer {
 public:
  Explainer(const Graph& graph, const std::vector<Refusal>& refusals) : g_(graph), labels_(graph.node_count()) {
    for (const Refusal& r : refusals) by_producer_[r.producer].push_back(&r);
    for (NodeId id : g_.order())
      if (g_.node(id).body) labels_[id] = labels_of(*g_.node(id).body);
  }

  std::vector<Neighbours> run() const {
    std::vector<Neighbours> pairs;
    for (NodeId reader : g_.order()) {
      if (is_join(g_.node(reader))) continue;
      std::set<NodeId> seen;
      for (ValueId v : g_.node(reader).inputs)
        if (v.valid())
          for (const Source& s : sources_of(v))
            if (seen.insert(s.writer).second) pairs.push_back({s.writer, reader, v, reason(s, reader, v)});
    }
    return pairs;
  }

 private:
  /// A group that writes what is read, and the joins that its result lies in.
  struct Source {
    NodeId writer;
    std::vector<NodeId> joins;
  };
  static Labels labels_of(const Graph& body) {
    Labels labels;
    for (NodeId id : body.order()) labels.insert(node_label(body.node(id)));
    return labels;
  }
  std::vector<Source> sources_of(ValueId v) const {
    const NodeId p = g_.value(v).producer;
    if (!p.valid()) return {};
    if (!is_join(g_.node(p))) return {{p, {}}};
    std::vector<Source> all;
    for (ValueId part : g_.node(p).inputs)
      for (Source& s : sources_of(part)) {
        s.joins.push_back(p);
        all.push_back(std::move(s));
      }
    return all;
  }
  std::string reason(const Source& s, NodeId reader, ValueId v) const {
    const Refusal* r = recorded(s, reader);
    if (!s.joins.empty()) return "it reads a concatenation, whose parts several kernels write in place";
    const char* often = has_anchor(s.writer) ? anchor_reads(g_.node(reader), v) : nullptr;
    // What lies between the two was refused before they were; a reason against a chain of both says more.
    if (often && !(r && between_anchors(*r, s.writer, reader))) return often;
    if (r) return r->reason;
    if (holds_copy(reader) || holds_copy(s.writer)) return "a copy in another order: read through, each access would be on its own";
    if (has_anchor(s.writer) && has_anchor(reader)) return "each has a product, window or reduction of its own";
    return "several kernels read the value, so it is stored once";
  }
  /// A refusal between nodes of the two groups, between anchors if there is one; else one that names the value's readers, or
  /// the parts of a concatenation, in general.
  const Refusal* recorded(const Source& s, NodeId reader) const {
    const Refusal *general = nullptr, *some = nullptr;
    for (const std::string& label : labels_.at(s.writer)) {
      const auto it = by_producer_.find(label);
      if (it == by_producer_.end()) continue;
      for (const Refusal* r : it->second) {
        if (labels_.at(reader).count(r->consumer)) {
          if (between_anchors(*r, s.writer, reader)) return r;
          some = some ? some : r;
        }
        if (r->consumer == kItsReaders) general = r;
      }
    }
    for (const std::string& label : labels_.at(reader))
      if (const auto it = by_producer_.find(label); it != by_producer_.end())
        for (const Refusal* r : it->second)
          if (r->consumer == kItsParts) general = r;
    return some ? some : general;
  }
  bool between_anchors(const Refusal& r, NodeId writer, NodeId reader) const {
    return is_anchor(*g_.node(writer).body, r.producer) && is_anchor(*g_.node(reader).body, r.consumer);
  }
  static bool is_anchor(const Graph& body, const std::string& label) {
    for (NodeId id : body.order()) {
      const Node& n = body.node(id);
      if ((n.op->lowers_as<Contraction>() || n.op->lowers_as<Reduction>()) && node_label(n) == label) return true;
    }
    return false;
  }
  /// Why the reader's product, window or reduction keeps v in memory; null where only its epilogue reads v.
  static const char* anchor_reads(const Node& reader, ValueId v) {
    const Graph& body = *reader.body;
    const std::string& kind = reader.attrs.as<FusedAttrs>().kind;
    const bool reduces = kind == "rows" || kind == "chain";  // and not only what its product computes
    std::set<ValueId> from;
    for (size_t i = 0; i < reader.inputs.size(); ++i)
      if (reader.inputs[i] == v) from.insert(body.inputs[i]);
    for (NodeId id : body.order()) {
      const Node& n = body.node(id);
      if (std::none_of(n.inputs.begin(), n.inputs.end(), [&](ValueId in) { return from.count(in) > 0; })) continue;
      if (const char* why = reads_often(body, n)) return why;
      if (reduces && n.op->lowers_as<Reduction>()) return "the reader reduces values that different blocks compute";
      from.insert(n.outputs.begin(), n.outputs.end());
    }
    return nullptr;
  }
  bool holds_copy(NodeId id) const {
    const Graph& body = *g_.node(id).body;
    const auto order = body.order();
    return std::any_of(order.begin(), order.end(), [&](NodeId n) {
      return body.node(n).op->name == "Contiguous" || body.node(n).op->name == "ChannelsLast";
    });
  }
  bool has_anchor(NodeId id) const { return g_.node(id).attrs.as<FusedAttrs>().kind != "points"; }

  const Graph& g_;
  IdMap<NodeId, Labels> labels_;
  std::map<std::string, std::vector<const Refusal*>> by_producer_;
};

}  // namespace

std::vector<Neighbours> explain_neighbours(const Graph& graph, const std::vector<Refusal>& refusals) {
  return Explainer(graph, refusals).run();
}

const char* reads_often(const Graph& graph, const Node& n) {
  if (n.op->lowers_as<Contraction>()) return "the reader is a product, which reads each value for many of its results";
  const auto* r = n.op->lowers_as<Reduction>();
  if (!r) return nullptr;
  const NodeView view(graph, n);
  return r->form(*view).axes.empty() ? "the reader is a window, which reads each value for several of its results" : nullptr;
}

std::string node_label(const Node& n) {
  return n.origin.nodes.empty() ? std::string(n.op->name) : fmt::format("{} \"{}\"", n.op->name, n.origin.nodes[0]);
}

}  // namespace ingot
