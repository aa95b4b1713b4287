// A model taken apart into its graph and its weights, and put together again with other weights. The graph alone is small
// and says all that a compilation did to the weights: compiling it again with new ones replays that (compiler/driver/refit.h).
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "compiler/support/tensor.h"
#include "frontend/onnx_model.h"

namespace ingot {

/// By name: initialisers, and the outputs of Constant nodes.
using Weights = std::map<std::string, TensorPtr>;

/// Floating-point initialisers and constants of the model's main graph above a few hundred bytes: what may be replaced.
/// Smaller ones and integers decide shapes, axes and bounds, and stay in the graph.
Result<Weights> weights_of(const OnnxModel& model);
/// The model without those, as bytes; names, types and dims stay.
Result<std::string> without_weights(const OnnxModel& model);
/// The other way round. Error: a weight is missing, has another type or other dims, or a name is not the model's.
Result<OnnxModel> with_weights(std::string_view bytes, const Weights& weights, const std::string& name);

}  // namespace ingot
