// The importer's state: the graph in the making, what each ONNX name stands for in each scope, and the nodes that could
// not be imported. Shared by onnx_import.cpp (the model), import_nodes.cpp (nodes), import_calls.cpp (functions and
// branches), import_loops.cpp (loops) and import_control.cpp (both at run time); nobody else includes it.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "compiler/ops/control.h"
#include "compiler/ops/onnx_node.h"
#include "frontend/node_order.h"
#include "frontend/onnx_import.h"
#include "frontend/onnx_weights.h"

namespace ingot {

/// What a name stands for. Constants become graph values when first used. All of it empty: an omitted input.
struct Binding {
  ValueId value;
  const onnx::Tensor* tensor = nullptr;
  const onnx::SparseTensor* sparse = nullptr;
  TensorPtr loaded;
  Binding* alias = nullptr;  // the same thing in a scope that outlives this one
  std::string missing;  // why it has no value, said when it is used
  bool poisoned = false;  // its node is on the list of failures; consumers are not listed again
};

/// One scope: the main graph, a function call, or a branch.
struct Frame {
  Frame() = default;
  /// Of a graph inside a node of `around`.
  Frame(Frame& around, std::string names)
      : outer(&around),
        sees_outer(true),
        function(around.function),
        opsets(around.opsets),
        params(around.params),
        prefix(std::move(names)),
        depth(around.depth + 1) {}

  Frame* outer = nullptr;  // the caller, or the graph around a branch
  bool sees_outer = false;  // a branch reads the names around it, a function does not
  const onnx::Function* function = nullptr;
  std::map<std::string, int> opsets;
  std::unordered_map<std::string_view, const onnx::Attribute*> params;  // a function's attributes
  std::unordered_map<std::string_view, Binding> bindings;
  std::string prefix;  // of value and node names
  int depth = 0;
  NestedGraph* nested = nullptr;  // of a frame whose values live in a graph of their own
};

/// A node and where it is.
struct NodeSite {
  Frame& frame;
  const onnx::Node& node;
  std::string label, domain;
  int opset = 0;
  size_t position = 0, total = 0;  // from 1
};

class Importer {
 public:
  Importer(const OnnxModel& model, const ImportOptions& options)
      : model_(model), options_(options), weights_(model.owner(), model.folder()), builder_(graph_), current_(&builder_) {}
  Result<Graph> run();
  ImportReport& report() { return report_; }

 private:
  GraphBuilder& builder() { return *current_; }
  Graph& graph() { return current_->graph(); }

  // onnx_import.cpp
  Status index_functions();
  Status bind_given_constants(Frame& frame);
  Status import_inputs(Frame& frame);
  Status import_outputs(Frame& frame);
  Error failure() const;
  void note_symbolic();

  // import_nodes.cpp
  Status bind_initialisers(Frame& frame, const onnx::Graph& graph);
  Status import_nodes(Frame& frame, const NodeList& nodes, const std::vector<std::string_view>& outputs);
  Status import_node(const NodeSite& site);
  Status import_by_rule(const NodeSite& site);
  Result<std::vector<ValueId>> apply_rule(const NodeSite& site, std::vector<ValueId> inputs);
  void import_constant(const NodeSite& site);
  void bind_outputs(const NodeSite& site, const std::vector<ValueId>& values);
  void poison_outputs(const NodeSite& site);
  void fail(const NodeSite& site, const Error& error);
  void note_deciding(const std::vector<ValueId>& wanted);
  std::string describe_inputs(const NodeSite& site);
  const onnx::Attribute* find_attribute(const NodeSite& site, std::string_view name) const;
  Binding* find(Frame& frame, std::string_view name);
  Binding* capture(Frame& frame, std::string_view name);
  Result<ValueId> resolve(Binding& binding, const std::string& name);
  std::string unique_name(const std::string& wanted);

  // import_calls.cpp
  Status call_function(const NodeSite& site, const onnx::Function& function);
  Status import_if(const NodeSite& site);
  Status inline_branch(const NodeSite& site, const onnx::Graph& branch);
  void export_outputs(const NodeSite& site, Frame& inner, const std::vector<std::string_view>& names,
                      size_t first_new_value);

  // import_loops.cpp
  struct ScanInput;
  struct ScanRows;
  Status import_loop(const NodeSite& site);
  Status unroll_loop(const NodeSite& site);
  Status import_scan(const NodeSite& site);
  Status unroll_scan(const NodeSite& site);
  Status unroll_batched_scan(const NodeSite& site);
  Result<std::optional<std::vector<std::vector<ValueId>>>> scan_rows(const NodeSite& site, const onnx::Graph& body,
                                                                     std::vector<Binding>& state, const ScanRows& rows);
  const onnx::Graph* find_body(const NodeSite& site) const;
  Binding input_binding(const NodeSite& site, int i);
  Result<Content> input_content(const NodeSite& site, int i);
  Result<std::vector<Binding>> inline_body(const NodeSite& site, const onnx::Graph& body,
                                           const std::vector<Binding>& inputs, int64_t iteration);
  Result<ValueId> stack(const std::vector<ValueId>& parts, size_t axis);

  // import_control.cpp
  Status run_time_if(const NodeSite& site, ValueId condition);
  Status run_time_loop(const NodeSite& site);
  Status run_time_scan(const NodeSite& site);
  Result<std::vector<ValueId>> nest(const NodeSite& site, const onnx::Graph& body, NestedGraph& nested,
                                    const std::vector<ValueId>& inputs);
  void bind_results(const NodeSite& site, const std::vector<ValueId>& values);
  Result<ValueId> resolve_input(const NodeSite& site, int i);
  void bind_loop_outputs(const NodeSite& site, const std::vector<Binding>& results);
  static bool any_poisoned(std::vector<Binding>& bindings);
  Result<std::vector<int64_t>> scan_list(const NodeSite& site, const char* name, size_t count) const;
  Result<std::vector<ScanInput>> scan_inputs(const NodeSite& site, int first, int64_t& length);

  const onnx::Function* find_function(const onnx::Node& node, const std::string& domain) const;

  const OnnxModel& model_;
  const ImportOptions& options_;
  WeightLoader weights_;
  Graph graph_;
  GraphBuilder builder_;
  GraphBuilder* current_;  // of the graph that nodes go into: the model's, or a nested one
  ImportReport report_;
  std::map<std::string, const onnx::Function*> functions_;
  std::unordered_set<std::string> names_;
  std::vector<std::string> failures_;  // lines
  bool any_unsupported_ = false;
};

/// Domains have two spellings of ONNX's own.
inline std::string domain_of(const std::string& domain) { return domain == "ai.onnx" ? "" : domain; }
/// Domain -> version. Error: a version of ONNX's own domain beyond what this build knows.
Result<std::map<std::string, int>> read_opsets(const google::protobuf::RepeatedPtrField<onnx::OperatorSetId>& imports);
/// What binding stands for, past aliases.
inline Binding& target_of(Binding& binding) {
  Binding* b = &binding;
  while (b->alias) b = b->alias;
  return *b;
}

}  // namespace ingot
