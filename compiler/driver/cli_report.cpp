// An inspection as JSON: what `inspect --json` prints, and the larger part of what its page shows.
#include <fmt/format.h>

#include <cmath>

#include "compiler/driver/cli_inspection.h"
#include "compiler/ops/joins.h"
#include "compiler/ops/registry.h"

namespace ingot::cli {
namespace {

using nlohmann::json;

/// Positions in the plan's order by node; -1 for joins.
IdMap<NodeId, int> positions(const Inspection& i) {
  IdMap<NodeId, int> at(i.fused.graph.node_count(), -1);
  for (size_t k = 0; k < i.fused.plan.order.size(); ++k) at[i.fused.plan.order[k]] = static_cast<int>(k);
  return at;
}

double rounded(double us) { return std::round(us * 1000) / 1000; }

std::string name_in(const Graph& g, ValueId v) {
  const std::string& name = g.value(v).name;
  return name.empty() ? fmt::format("%{}", v.index) : name;
}

json describe_buffer(const Inspection& i, ValueId v) {
  const Graph& g = i.fused.graph;
  const TensorType& t = g.value(v).type;
  const int64_t bytes = evaluate_int(element_count(t.shape), i.at).value_or(0) * static_cast<int64_t>(size_of(t.dtype));
  const ValueId holder = holder_of(g, v);
  json j{{"name", name_in(g, v)}, {"type", to_string(t)}, {"bytes", bytes}};
  if (g.value(v).constant) j["weight"] = true;
  if (i.fused.plan.slot.at(holder) >= 0) j["slot"] = i.fused.plan.slot.at(holder);
  if (holder != v) j["part_of"] = name_in(g, holder);
  return j;
}

json describe_forms(const KernelView& view) {
  json forms = json::array();
  for (const KernelForm& f : view.forms)
    forms.push_back({{"name", f.name}, {"plan", f.plan}, {"threads", f.threads}, {"shared_bytes", f.shared_bytes}});
  return forms;
}

json describe_groups(const Inspection& i) {
  json list = json::array();
  const Compilation& c = i.fused;
  for (size_t k = 0; k < c.lowered.kernels.size(); ++k) {
    const Node& n = c.graph.node(c.plan.order[k]);
    const KernelView& view = i.kernels[k];
    json reads = json::array(), writes = json::array();
    for (ValueId v : n.inputs) reads.push_back(describe_buffer(i, v));
    for (ValueId v : n.outputs) writes.push_back(describe_buffer(i, v));
    list.push_back({{"name", c.lowered.kernels[k].name}, {"kind", n.attrs.as<FusedAttrs>().kind},
                    {"operators", c.lowered.kernels[k].header}, {"nodes", n.origin.nodes},
                    {"bytes", view.bytes}, {"flops", view.flops}, {"us", rounded(view.us)},
                    {"bound", view.memory_bound ? "memory" : "arithmetic"}, {"roof", view.roof},
                    {"forms", describe_forms(view)}, {"stream", c.plan.lanes.lane[k]}, {"waits", c.plan.lanes.waits[k]},
                    {"reads", reads}, {"writes", writes}});
  }
  return list;
}

json describe_neighbours(const Inspection& i) {
  const auto at = positions(i);
  json list = json::array();
  for (const Neighbours& n : i.neighbours)
    list.push_back({{"producer", at.at(n.producer)}, {"consumer", at.at(n.consumer)},
                    {"value", name_in(i.fused.graph, n.value)}, {"reason", n.reason}});
  return list;
}

json describe_arena(const Inspection& i) {
  json slots = json::array(), values = json::array();
  for (size_t s = 0; s < i.slot_offsets.size(); ++s) {
    const int64_t bytes = evaluate_int(i.fused.plan.slot_bytes[s], i.at).value_or(0);
    slots.push_back({{"offset", i.slot_offsets[s]}, {"bytes", bytes}});
  }
  for (const ArenaValue& v : i.arena)
    values.push_back({{"name", name_in(i.fused.graph, v.value)}, {"type", to_string(i.fused.graph.value(v.value).type)},
                      {"slot", v.slot}, {"offset", v.offset}, {"bytes", v.bytes}, {"first", v.first}, {"last", v.last}});
  return {{"bytes", i.arena_bytes}, {"slots", slots}, {"values", values}};
}

json describe_target(const Inspection& i) {
  json roofs = json::array();
  for (const Roof& r : i.roofs) roofs.push_back({{"name", r.name}, {"gflops", r.gflops}});
  return {{"name", i.options.targets[0]}, {"precision", i.options.precision}, {"memory_gbps", i.target.memory_gbps},
          {"roofs", roofs}};
}

}  // namespace

json report_json(const Inspection& i) {
  const Compilation& c = i.fused;
  json j{{"model", i.model}, {"opset", c.import.opset}, {"nodes", c.model_nodes}, {"target", describe_target(i)},
         {"kernels", c.lowered.kernels.size()}, {"kernels_unfused", i.unfused.lowered.kernels.size()},
         {"bytes_before", i.bytes_before}, {"bytes_after", i.bytes_after}, {"bytes_floor", i.bytes_floor},
         {"flops", i.flops}, {"arena_bytes", i.arena_bytes}, {"arena_slots", c.plan.slot_bytes.size()},
         {"symbols", json::object()}, {"groups", describe_groups(i)}, {"neighbours", describe_neighbours(i)},
         {"refusals", json::array()}, {"arena", describe_arena(i)}};
  for (const auto& [name, v] : i.at) j["symbols"][name] = v;
  for (const Refusal& r : c.refusals)
    j["refusals"].push_back({{"producer", r.producer}, {"consumer", r.consumer}, {"reason", r.reason}});
  return j;
}

std::string json_text(const json& j, int indent) {
  return j.dump(indent, ' ', false, json::error_handler_t::replace);
}

}  // namespace ingot::cli
