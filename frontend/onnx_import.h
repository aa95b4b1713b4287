// An ONNX model -> the operator graph: functions inlined, constants bound, nodes sorted, each turned into operators by its
// row's import rule. Last stage of the frontend; the driver calls it and hands the graph to the passes.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "compiler/ir/graph.h"
#include "frontend/onnx_model.h"

namespace ingot {

struct SymbolRange {
  int64_t low = 0, high = kNoLimit;  // inclusive
};

struct ImportOptions {
  /// Per input, one text per dimension: "64", "1..64", "N", "N=1..64"; "?" leaves the model's. A number or range also holds
  /// for every other dimension that the model gives the same name.
  std::map<std::string, std::vector<std::string>> shapes;
  /// Ranges of named dimensions, by the model's name or the imported one.
  std::map<std::string, SymbolRange> ranges;
  /// Inputs that become constants of these values: those that decide shapes (axes, sizes), and switches.
  std::map<std::string, TensorPtr> constants;
  /// Initialisers that are also listed as inputs become inputs with a default, where the model's IR version means that.
  /// Otherwise they are constants.
  bool keep_overridable = false;
};

/// An initialiser that the model lets its caller override.
struct Overridable {
  std::string name;
  bool is_input = false;  // kept as a graph input
  TensorPtr value;  // the default; set when it is
};

struct ImportReport {
  int opset = 0;  // of ONNX's own domain
  size_t nodes = 0;  // imported, those in functions and branches included
  size_t inlined_calls = 0;
  std::vector<Overridable> overridable;
  /// Inputs whose values decided shapes, axes or branches that could not be imported without them.
  std::vector<std::string> deciding;
  /// Inputs whose elements became symbols, to be bound when the program runs.
  std::vector<std::string> symbolic;
};

/// Error: the model is malformed (the first fault found), or nodes cannot be imported (all of them, one context line each:
/// name, position, opset, input types, reason).
Result<Graph> import_graph(const OnnxModel& model, const ImportOptions& options = {}, ImportReport* report = nullptr);

/// Names of the inputs a caller passes, in order: those of the graph that are no initialisers.
std::vector<std::string> required_inputs(const OnnxModel& model);
/// All inputs of the graph, in order; some may be initialisers that a caller overrides.
std::vector<std::string> listed_inputs(const OnnxModel& model);

}  // namespace ingot
