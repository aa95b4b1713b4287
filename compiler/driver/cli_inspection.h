// What `inspect` shows of a model: the two compilations, and figures of every kernel. cli_inspection.cpp computes it,
// cli_report.cpp and cli_course.cpp write it as JSON, cli_page.cpp as a page; cli_inspect.cpp is the verb.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "compiler/driver/session.h"
#include "frontend/model_outline.h"
#include "passes/neighbours.h"

namespace ingot::cli {

using Sizes = std::unordered_map<std::string, int64_t>;

/// A kernel as its backend plans it; several where sizes are known at run time only.
struct KernelForm {
  std::string name, plan, source;  // source: CUDA text; of the CPU, the kernel IR
  int threads = 0, shared_bytes = 0;  // of a block; 0 on the CPU
};
/// One launch, in the plan's order.
struct KernelView {
  std::vector<KernelForm> forms;
  int64_t bytes = 0, flops = 0;
  std::string roof;         // the name of the roof that its arithmetic is under (Roof::name)
  double us = 0;            // the longer of what memory and arithmetic take at their nominal rates
  bool memory_bound = true;
};
/// A rate of arithmetic of the target.
struct Roof {
  std::string name;  // "f32", "f16 tensor cores"
  double gflops = 0;
};
/// What lies in the arena at `offset`, from the launch that writes it first to the one that reads it last.
struct ArenaValue {
  ValueId value;
  int slot = 0;
  int64_t offset = 0, bytes = 0;
  size_t first = 0, last = 0;  // positions in the plan's order
};

/// One program: the model, or a part of one whose course is decided at run time.
struct PartView {
  Compilation fused, unfused;
  size_t first = 0;  // launches of the parts before it
  std::vector<KernelView> kernels;
  std::vector<Neighbours> neighbours;
  std::vector<int64_t> slot_offsets;
  std::vector<ArenaValue> arena;
  int64_t arena_bytes = 0;
};
/// Figures are those of one run of every part.
struct Inspection {
  std::string model;
  CompileOptions options;
  TargetTraits target;
  int64_t opset = 0;
  size_t model_nodes = 0;
  std::vector<std::pair<std::string, std::string>> inputs, outputs;  // names and types
  std::vector<PartView> parts;
  std::vector<runtime::Script> scripts;  // empty: one part is the model
  std::vector<std::vector<std::string>> script_names;
  Sizes at;  // the dims that sizes are counted at
  std::vector<Roof> roofs;
  size_t kernels = 0, kernels_unfused = 0;
  int64_t bytes_before = 0, bytes_after = 0, bytes_floor = 0, arena_bytes = 0, flops = 0;  // arena: of all parts
};
/// `batch`: for the sizes of dynamic models. Error: that of a compilation.
Result<Inspection> inspect(const std::string& path, const CompileOptions& options, int64_t batch);

/// The steps of a model whose course is decided at run time: a list of objects with "kind" (part, if, loop), the names of what
/// the host "reads" for the step, "inputs" and "outputs"; a part's number and its launches [first, end); steps of a loop's
/// "body", of an if's "then" and "else". Null where one part is the model.
nlohmann::json course_json(const Inspection& inspection);
/// The same for people, a line a step.
std::string course_text(const nlohmann::json& course);
/// The node of the model that runs each part, "" for the model itself.
std::vector<std::string> owners_of_parts(const Inspection& inspection);

/// All but graphs and sources.
nlohmann::json report_json(const Inspection& inspection);
/// The nodes of the file, and the groups, with the edges of both, as the page draws them.
nlohmann::json graphs_json(const Inspection& inspection, const ModelOutline& outline, const Graph& imported);
/// One page that needs nothing else. Error: it cannot be written.
Status write_page(const Inspection& inspection, const std::string& path);

/// A JSON text; bytes of a model's names that are not UTF-8 become U+FFFD.
std::string json_text(const nlohmann::json& j, int indent = -1);

}  // namespace ingot::cli
