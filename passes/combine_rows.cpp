// Reductions over the rows of a product (max over time behind a convolution, the average of a layer's last pixels) in the
// product's epilogue: its tiles then hold whole groups of rows.
#include <algorithm>

#include "compiler/expr/simplify.h"
#include "compiler/ops/rows.h"
#include "compiler/ops/spatial.h"
#include "passes/groups.h"
#include "passes/product_rates.h"
#include "passes/typical.h"

namespace ingot {
namespace {

constexpr int64_t kTiles[] = {64, 128};  // rows of a tile
constexpr int64_t kColumns = 8;          // of results, at least
// How much more than two kernels one may take with many rows: with few, it always wins.
constexpr double kMayLose = 1.2;

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

/// An axis of the product makes a dimension that is reduced and one that is not: the pixels of a 1x1 convolution, of which one
/// direction is reduced.
bool shares_axes(const Graph& g, const Node& product, const std::vector<size_t>& axes) {
  const NodeView view(g, product);
  const ContractionForm form = product.op->lowers_as<Contraction>()->form(*view);
  const auto mentioned = [&](const Expr& axis, bool reduced) {
    for (size_t d = 0; d < form.out.size(); ++d)
      if ((std::find(axes.begin(), axes.end(), d) != axes.end()) == reduced && depends_on(form.out[d], axis.name())) return true;
    return false;
  };
  for (const auto* side : {&form.batch, &form.m, &form.n})
    for (const Expr& axis : *side)
      if (mentioned(axis, true) && mentioned(axis, false)) return true;
  return false;
}

/// The share of a tile's rows that are in whole groups: the others are multiplied in vain.
double used_rows(int64_t together) {
  double best = 0;
  for (int64_t tile : kTiles) best = std::max(best, static_cast<double>(tile / together * together) / static_cast<double>(tile));
  return best;
}

/// By the time of a result in nanoseconds, at typical sizes: multiplying in whole groups, against storing the results for a
/// kernel of its own.
bool takes_too_long(const Graph& g, const TargetTraits& target, const Node& product, int64_t together, int64_t bytes) {
  const NodeView view(g, product);
  double terms = 1;
  for (const Expr& k : product.op->lowers_as<Contraction>()->form(*view).k) terms *= static_cast<double>(typical(k.extent()));
  const double multiplies = 2 * terms / (kTensorRate * target.f32_gflops);
  const bool boxes = product.op->name == "MatMul" || view->inputs[0].shape.size() == 4;
  const double results = std::max<double>(static_cast<double>(typical(element_count(view->outputs[0].shape))), 1);
  const double apart = multiplies / (boxes ? 1 : kWithoutBoxes) + 2 * static_cast<double>(bytes) / target.memory_gbps + kLaunch / results;
  const double used = used_rows(together);
  return used == 0 || multiplies / kWithoutBoxes / used > kMayLose * apart;
}

}  // namespace

const char* combine_rows_refusal(const Groups& groups, const PassContext& ctx, int group, NodeId id) {
  const Graph& g = groups.graph();
  const Group& own = groups.at(group);
  const Node &n = g.node(id), &product = g.node(own.anchor);
  if (ctx.target.kind != TargetKind::Cuda || ctx.target.compute_capability < 80 || own.kind != "contraction") return "the reader reduces values that different blocks compute";
  const NodeView view(g, n);
  const ReductionForm form = n.op->lowers_as<Reduction>()->form(*view);
  const RowDims dims = row_dims(g, product);
  if (form.axes.empty() || !dims.fits || form.combine >= Combine::ArgMax) return "the reader reduces values that different blocks compute";
  if (std::find(form.axes.begin(), form.axes.end(), dims.columns) != form.axes.end()) return "it reduces the columns of the product, which no tile holds";
  if (element_count(g.value(product.outputs[0]).type.shape).is_const(0)) return "the product has no elements";
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
  if (shares_axes(g, product, form.axes)) return "the rows that it reduces are not apart from those that stay";
  if (takes_too_long(g, ctx.target, product, *together, ctx.precision == DType::F32 ? 4 : 2)) return "tiles of whole groups of rows take longer than storing the rows";
  return nullptr;
}

}  // namespace ingot
