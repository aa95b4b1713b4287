// The nodes of a model as its file has them, by name: what a picture of the model is drawn from. Nothing is checked or
// evaluated; import_graph (onnx_import.h) does that.
#pragma once

#include <string>
#include <vector>

#include "frontend/onnx_model.h"

namespace ingot {

struct OutlineNode {
  std::string label;                 // as Origin::nodes has it
  std::string op;                    // with its domain where that is not ONNX's own
  std::vector<std::string> inputs;   // names of values, the results of its subgraphs among them; no initialisers
  std::vector<std::string> weights;  // names of initialisers that it reads
  std::vector<std::string> outputs;
};
struct ModelOutline {
  std::vector<OutlineNode>
      nodes;  // in the file's order, those of subgraphs behind theirs; a call of a function is one node
  std::vector<std::string> inputs, outputs;
};
ModelOutline outline_of(const OnnxModel& model);

}  // namespace ingot
