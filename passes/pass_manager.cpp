#include "passes/pass_manager.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <fstream>

#include "compiler/ir/text.h"

namespace ingot {
namespace {

Status check_names(const PipelineOptions& o) {
  std::vector<std::string> names = o.skip;
  if (!o.until.empty()) names.push_back(o.until);
  for (const std::string& n : names) {
    const auto passes = pipeline();
    if (std::any_of(passes.begin(), passes.end(), [&](const Pass& p) { return n == p.name; })) continue;
    std::string list;
    for (const Pass& p : passes) list += (list.empty() ? "" : ", ") + std::string(p.name);
    return invalid(fmt::format("no pass named {}; the passes are {}", n, list));
  }
  return {};
}

void dump(const Graph& graph, const std::string& dir, size_t number, const std::string& name) {
  if (dir.empty()) return;
  std::ofstream(fmt::format("{}/{:02}-{}.ir", dir, number, name)) << print_graph(graph);
}

}  // namespace

Result<bool> run_pass(const Pass& pass, Graph& graph, PassContext& ctx) {
  const bool changed = INGOT_TRY(pass.run(graph, ctx));
  if (graph.stored_as != DType::F32) ctx.precision = graph.stored_as;
  return changed;
}

Result<std::vector<PassTrace>> run_pipeline(Graph& graph, const PassContext& given, const PipelineOptions& o) {
  PassContext ctx = given;
  INGOT_TRY(check_names(o));
  std::vector<PassTrace> trace;
  dump(graph, o.dump_dir, 0, "import");
  Stage stage = Stage::Imported;
  for (const Pass& p : pipeline()) {
    if (o.until == p.name) break;
    if (std::find(o.skip.begin(), o.skip.end(), p.name) != o.skip.end()) continue;
    const auto start = std::chrono::steady_clock::now();
    const std::string before = o.verify ? print_graph(graph) : "";
    auto changed = run_pass(p, graph, ctx);
    if (!changed) return std::move(changed.error().add(fmt::format("in pass {}", p.name)));
    if (o.verify) INGOT_CHECK(*changed || before == print_graph(graph), fmt::format("pass {} says unchanged, but the graph differs", p.name));
    const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    if (*changed) graph.compact();
    trace.push_back({p.name, ms, *changed, graph.live_nodes()});
    dump(graph, o.dump_dir, trace.size(), p.name);
    stage = std::max(stage, p.stage);
    const bool skipped_any = !o.skip.empty();
    auto ok = verify(graph, skipped_any && stage == Stage::Canonical ? Stage::Imported : stage);
    if (!ok) return std::move(ok.error().add(fmt::format("after pass {}", p.name)));
  }
  return trace;
}

}  // namespace ingot
