// An inspection as JSON: what `inspect --json` prints, and the larger part of what its page shows.
#include <fmt/format.h>

#include <cmath>

#include "compiler/driver/cli_inspection.h"
#include "compiler/ops/joins.h"
#include "compiler/ops/registry.h"

namespace ingot::cli {
namespace {

using nlohmann::json;

/// Launches by node; -1 for joins.
IdMap<NodeId, int> positions(const PartView& p) {
  IdMap<NodeId, int> at(p.fused.graph.node_count(), -1);
  for (size_t k = 0; k < p.fused.plan.order.size(); ++k) at[p.fused.plan.order[k]] = static_cast<int>(p.first + k);
  return at;
}

double rounded(double us) { return std::round(us * 1000) / 1000; }

std::string name_in(const Graph& g, ValueId v) {
  const std::string& name = g.value(v).name;
  return name.empty() ? fmt::format("%{}", v.index) : name;
}

json describe_buffer(const Inspection& i, const PartView& p, ValueId v) {
  const Graph& g = p.fused.graph;
  const TensorType& t = g.value(v).type;
  const int64_t bytes = evaluate_int(element_count(t.shape), i.at).value_or(0) * static_cast<int64_t>(size_of(t.dtype));
  const ValueId holder = holder_of(g, v);
  json j{{"name", name_in(g, v)}, {"type", to_string(t)}, {"bytes", bytes}};
  if (g.value(v).constant) j["weight"] = true;
  if (p.fused.plan.slot.at(holder) >= 0) j["slot"] = p.fused.plan.slot.at(holder);
  if (holder != v) j["part_of"] = name_in(g, holder);
  return j;
}

json describe_forms(const KernelView& view) {
  json forms = json::array();
  for (const KernelForm& f : view.forms)
    forms.push_back({{"name", f.name}, {"plan", f.plan}, {"threads", f.threads}, {"shared_bytes", f.shared_bytes}});
  return forms;
}

void describe_groups(const Inspection& i, const PartView& p, json& list) {
  const Compilation& c = p.fused;
  for (size_t k = 0; k < c.lowered.kernels.size(); ++k) {
    const Node& n = c.graph.node(c.plan.order[k]);
    const KernelView& view = p.kernels[k];
    json reads = json::array(), writes = json::array(), waits = json::array();
    for (ValueId v : n.inputs) reads.push_back(describe_buffer(i, p, v));
    for (ValueId v : n.outputs) writes.push_back(describe_buffer(i, p, v));
    for (auto other : c.plan.lanes.waits[k]) waits.push_back(p.first + static_cast<size_t>(other));
    list.push_back({{"name", c.lowered.kernels[k].name},
                    {"kind", n.attrs.as<FusedAttrs>().kind},
                    {"operators", c.lowered.kernels[k].header},
                    {"nodes", n.origin.nodes},
                    {"bytes", view.bytes},
                    {"flops", view.flops},
                    {"us", rounded(view.us)},
                    {"bound", view.memory_bound ? "memory" : "arithmetic"},
                    {"roof", view.roof},
                    {"forms", describe_forms(view)},
                    {"stream", c.plan.lanes.lane[k]},
                    {"waits", waits},
                    {"reads", reads},
                    {"writes", writes}});
    if (!i.scripts.empty()) list.back()["part"] = static_cast<size_t>(&p - i.parts.data());
  }
}

void describe_neighbours(const PartView& p, json& list) {
  const auto at = positions(p);
  for (const Neighbours& n : p.neighbours)
    list.push_back({{"producer", at.at(n.producer)},
                    {"consumer", at.at(n.consumer)},
                    {"value", name_in(p.fused.graph, n.value)},
                    {"reason", n.reason}});
}

/// Slots of the parts one behind the other.
json describe_arena(const Inspection& i) {
  json slots = json::array(), values = json::array();
  int64_t base = 0;
  for (const PartView& p : i.parts) {
    const size_t first_slot = slots.size();
    for (size_t s = 0; s < p.slot_offsets.size(); ++s) {
      const int64_t bytes = evaluate_int(p.fused.plan.slot_bytes[s], i.at).value_or(0);
      slots.push_back({{"offset", base + p.slot_offsets[s]}, {"bytes", bytes}});
    }
    for (const ArenaValue& v : p.arena)
      values.push_back({{"name", name_in(p.fused.graph, v.value)},
                        {"type", to_string(p.fused.graph.value(v.value).type)},
                        {"slot", first_slot + static_cast<size_t>(v.slot)},
                        {"offset", base + v.offset},
                        {"bytes", v.bytes},
                        {"first", p.first + v.first},
                        {"last", p.first + v.last}});
    base += p.arena_bytes;
  }
  return {{"bytes", i.arena_bytes}, {"slots", slots}, {"values", values}};
}

json describe_target(const Inspection& i) {
  json roofs = json::array();
  for (const Roof& r : i.roofs) roofs.push_back({{"name", r.name}, {"gflops", r.gflops}});
  return {{"name", i.options.targets[0]},
          {"precision", i.options.precision},
          {"memory_gbps", i.target.memory_gbps},
          {"roofs", roofs}};
}

}  // namespace

json report_json(const Inspection& i) {
  json j{{"model", i.model},
         {"opset", i.opset},
         {"nodes", i.model_nodes},
         {"target", describe_target(i)},
         {"kernels", i.kernels},
         {"kernels_unfused", i.kernels_unfused},
         {"bytes_before", i.bytes_before},
         {"bytes_after", i.bytes_after},
         {"bytes_floor", i.bytes_floor},
         {"flops", i.flops},
         {"arena_bytes", i.arena_bytes},
         {"symbols", json::object()},
         {"groups", json::array()},
         {"neighbours", json::array()},
         {"refusals", json::array()},
         {"arena", describe_arena(i)}};
  j["arena_slots"] = j["arena"]["slots"].size();
  for (const auto& [name, v] : i.at) j["symbols"][name] = v;
  for (const PartView& p : i.parts) {
    describe_groups(i, p, j["groups"]);
    describe_neighbours(p, j["neighbours"]);
    for (const Refusal& r : p.fused.refusals)
      j["refusals"].push_back({{"producer", r.producer}, {"consumer", r.consumer}, {"reason", r.reason}});
  }
  if (!i.scripts.empty()) j["course"] = course_json(i);
  return j;
}

std::string json_text(const json& j, int indent) { return j.dump(indent, ' ', false, json::error_handler_t::replace); }

}  // namespace ingot::cli
