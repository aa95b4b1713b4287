// Reductions over the rows of a product (max over time behind a convolution, the average of a layer's last pixels) in the
// product's epilogue: its tiles then hold whole groups of rows.
#include <algorithm>

#include "compiler/ops/rows.h"
#include "compiler/ops/spatial.h"
#include "passes/groups.h"

namespace ingot {
namespace {

constexpr int64_t kTiles[] = {64, 128};  // rows of a tile
constexpr double kUsed = 0.85;           // of them in whole groups, at least: the others are multiplied in vain
constexpr int64_t kColumns = 8;          // of results, at least

/// Which dimension of the product's result its columns are; the others are rows, if it has one weight for all.
struct RowDims {
  size_t columns = 0;
  bool fits = false;
};
RowDims row_dims(const Graph& g, const Node& n) {
  const size_t rank = g.value(n.outputs[0]).type.rank();
  if (!g.value(n.inputs[1]).constant || g.value(n.inputs[0]).constant) return {};
  if (n.op->name == "MatMul") return {rank - 1, g.value(n.inputs[1]).type.rank() == 2};
  if (n.op->name == "Conv") return {1, n.attrs.as<ConvAttrs>().groups == 1};
  return {};
}

bool multiplied_in_halves(const TensorType& t) { return t.dtype == DType::F32 || t.dtype == DType::F16 || t.dtype == DType::BF16; }

double used_rows(int64_t together) {
  double best = 0;
  for (int64_t tile : kTiles) best = std::max(best, static_cast<double>(tile / together * together) / static_cast<double>(tile));
  return best;
}

}  // namespace

const char* combine_rows_refusal(const Groups& groups, const PassContext& ctx, int group, NodeId id) {
  const Graph& g = groups.graph();
  const Group& own = groups.at(group);
  const Node &n = g.node(id), &product = g.node(own.anchor);
  if (ctx.target.kind != TargetKind::Cuda || ctx.target.compute_capability < 80 || own.kind != "contraction") return "it is not pointwise";
  const NodeView view(g, n);
  const ReductionForm form = n.op->lowers_as<Reduction>()->form(*view);
  const RowDims dims = row_dims(g, product);
  if (form.axes.empty() || !dims.fits || form.combine >= Combine::ArgMax) return "it is not pointwise";
  if (std::find(form.axes.begin(), form.axes.end(), dims.columns) != form.axes.end()) return "it reduces the columns of the product, which no tile holds";
  if (!multiplied_in_halves(g.value(product.outputs[0]).type) || g.value(n.outputs[0]).type.dtype != g.value(product.outputs[0]).type.dtype)
    return "results of this type do not come from tensor cores";
  for (NodeId m : own.nodes) {
    const bool last = g.node(m).outputs[0] == n.inputs[0];
    if (g.node(m).op->lowers_as<Movement>() || g.node(m).op->lowers_as<Reduction>()) return "what it reduces is not what the product computes";
    for (ValueId v : g.node(m).outputs) {
      const auto outside = [&](NodeId u) { return groups.group_of(u) != group; };
      const auto& users = g.value(v).users;
      const auto others = std::count_if(users.begin(), users.end(), outside);
      if (g.is_output(v) || others != (last ? 1 : 0)) return "others read what it reduces, too";
    }
  }
  const auto together = element_count(form.extents).as_int(), columns = g.value(product.outputs[0]).type.shape[dims.columns].as_int();
  if (!together || *together < 2 || !columns || *columns < kColumns) return "how many rows it reduces is not known";
  if (used_rows(*together) < kUsed) return "whole groups of its rows leave too much of a tile unused";
  return nullptr;
}

}  // namespace ingot
