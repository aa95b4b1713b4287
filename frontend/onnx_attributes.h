// Attributes of ONNX nodes as the plain values that import rules see.
#pragma once

#include <optional>

#include "compiler/ops/onnx_node.h"
#include "frontend/onnx_ir.pb.h"
#include "frontend/onnx_weights.h"

namespace ingot {

/// The value; nothing for kinds that no rule reads (graphs, types). Error: the payload is missing or malformed.
Result<std::optional<OnnxAttr>> attr_from_onnx(const onnx::Attribute& attribute, WeightLoader& weights);

/// A Constant node's value that is not a tensor message: value_float, value_floats, value_int, value_ints. Error: strings.
Result<TensorPtr> constant_from_attr(const onnx::Attribute& attribute);

}  // namespace ingot
