// Runs the pipeline. The manager, not the pass, times, dumps, verifies and checks that a pass which reports "unchanged"
// changed nothing.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "compiler/ir/graph.h"
#include "compiler/ir/verify.h"
#include "compiler/support/target_traits.h"

namespace ingot {

/// Why two neighbouring groups are two: collected by the fusion passes, printed by --explain.
struct Refusal {
  std::string producer, consumer, reason;
};
// Consumers that stand for several: all that read what the producer computes, all that a concatenation joins.
constexpr const char* kItsReaders = "its readers";
constexpr const char* kItsParts = "its parts";

struct PassContext {
  TargetTraits target;
  /// Evaluates one node whose inputs are all constant; handed in by the driver, since passes know no code generation.
  std::function<Result<std::vector<Tensor>>(const Graph&, const Node&)> evaluate;
  DType precision = DType::F32;              // of values between kernels and of weights: F32 (as the model says), F16, BF16
  bool fuse = true;                          // false: every node is a kernel of its own
  std::vector<Refusal>* refusals = nullptr;  // may be null

  void refuse(const std::string& producer, const std::string& consumer, const std::string& reason) const {
    if (refusals) refusals->push_back({producer, consumer, reason});
  }
};

/// A pass changes the graph and says whether it did.
using PassFn = Result<bool> (*)(Graph&, const PassContext&);
struct Pass {
  const char* name;
  PassFn run;
  Stage stage;       // what the graph must satisfy afterwards
  const char* why;   // why it stands at this place
};
std::span<const Pass> pipeline();

/// Runs one pass. What it finds out about the model's types is the context's from then on.
Result<bool> run_pass(const Pass& pass, Graph& graph, PassContext& ctx);

struct PassTrace {
  std::string name;
  double ms = 0;
  bool changed = false;
  size_t nodes = 0;
};
struct PipelineOptions {
  std::string until;                 // stop before the pass of this name
  std::vector<std::string> skip;
  std::string dump_dir;              // numbered text files, when not empty
  bool verify = true;
};
/// Runs the table. Error: that of a pass, with its name; an unknown name in `until` or `skip`.
Result<std::vector<PassTrace>> run_pipeline(Graph& graph, const PassContext& ctx, const PipelineOptions& options);

}  // namespace ingot
