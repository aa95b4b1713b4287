// The one explicit list of operators. A new family is one file and one line in registry.cpp.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "compiler/ir/op_def.h"

namespace ingot {

/// Attributes of a fused group: which loop nest its kernel has (codegen/lower/lower_group.h: GroupKind).
struct FusedAttrs {
  std::string kind;
  INGOT_FIELDS(kind)
};

/// All rows, family by family.
std::vector<const OpDef*> all_ops();
/// The row of that name and domain ("" is ONNX's own), or null.
const OpDef* find_op(std::string_view name, std::string_view domain = "");
/// The row of an internal or ONNX operator that must exist.
const OpDef& op(std::string_view name);
/// The newest rule that is not newer than `opset`, or null.
const ImportRule* find_import(const OpDef& op, int opset);

/// A family registers rows of a user's own (before the first import; not thread-safe).
void add_ops(std::span<const OpDef> rows);

// The families, one per file.
std::span<const OpDef> pointwise_ops();
std::span<const OpDef> movement_ops();
std::span<const OpDef> parts_ops();
std::span<const OpDef> shape_ops();
std::span<const OpDef> reduce_ops();
std::span<const OpDef> contraction_ops();
std::span<const OpDef> window_ops();
std::span<const OpDef> normalization_ops();
std::span<const OpDef> resize_ops();
std::span<const OpDef> gather_ops();
std::span<const OpDef> attention_ops();
std::span<const OpDef> quantize_ops();
std::span<const OpDef> ordered_ops();
std::span<const OpDef> sorting_ops();
std::span<const OpDef> scatter_ops();
std::span<const OpDef> sampling_ops();
std::span<const OpDef> resample_ops();
std::span<const OpDef> einsum_ops();
std::span<const OpDef> signal_ops();
std::span<const OpDef> vision_ops();
std::span<const OpDef> unpool_ops();
std::span<const OpDef> loss_ops();
std::span<const OpDef> recurrent_ops();
std::span<const OpDef> linear_attention_ops();
std::span<const OpDef> contrib_ops();
std::span<const OpDef> control_ops();
std::span<const OpDef> selection_ops();
std::span<const OpDef> open_axes_ops();
std::span<const OpDef> internal_ops();

}  // namespace ingot
