// Convolutions of two to four channels: the columns of a window become channels. Read in the order of the model, such a
// window is gathered element by element; in a copy with channels last, its columns lie side by side. Patches that neither overlap
// nor leave anything out are rows of a product in a copy of their own order. Other convolutions of an input of the model read a
// copy with channels last, too.
#include <map>
#include <optional>

#include "compiler/ops/compose.h"
#include "compiler/ops/layout_ops.h"
#include "compiler/ops/spatial.h"
#include "passes/passes.h"

namespace ingot {
namespace {

constexpr int64_t kChannels = 4;  // of the copy
constexpr int64_t kAligned = 4;   // elements that make one access
constexpr int64_t kLineTaps = 4;  // whose channels, in 16 bits, are one step of k of windows that lie in lines (prelude/row_source.cuh)

struct Stem {
  int64_t channels, outputs, height, width;  // of the weight
  int64_t columns, count;                    // of the input, of the output
  int64_t begin, end, taps;                  // columns in front and behind; taps across the window, rounded up
};

std::optional<int64_t> number(const Expr& e) { return e.as_int(); }

std::optional<Stem> stem_of(const Graph& g, const Node& n, const PassContext& ctx) {
  if (n.op->name != "Conv" || !g.value(n.inputs[1]).constant) return std::nullopt;
  const auto& a = n.attrs.as<ConvAttrs>();
  const Shape &x = g.value(n.inputs[0]).type.shape, &y = g.value(n.outputs[0]).type.shape;
  const auto& w = g.value(n.inputs[1]).constant->dims();
  if (w.size() != 4 || a.groups != 1 || a.same || w[1] < 2 || w[1] > kChannels || w[3] < 2) return std::nullopt;
  const auto columns = number(x[3]), count = number(y[3]), begin = number(a.begins[1]);
  if (!columns || !count || !begin || *begin < 0 || a.dilations[1] != 1) return std::nullopt;
  // The columns of a window are contiguous and aligned as they are.
  if (a.strides[1] % kAligned == 0 && w[3] % kAligned == 0 && *begin % kAligned == 0 && *columns % kAligned == 0)
    return std::nullopt;
  Stem s{w[1], w[0], w[2], w[3], *columns, *count, *begin, 0, 0};
  const bool lines = ctx.target.compute_capability == 90 && ctx.precision != DType::F32;
  const int64_t whole = lines ? kLineTaps : 2;
  s.taps = (s.width + whole - 1) / whole * whole;
  s.end = std::max<int64_t>((s.count - 1) * a.strides[1] + s.taps - s.begin - s.columns, 0);
  if ((s.begin + s.columns + s.end) % 2 != 0) ++s.end;  // rows start at multiples of 16 bytes
  return s;
}

/// The weight [O, C, H, W] as [O, taps * 4, H, 1].
ValueId widened(Compose& c, ValueId weight, const Stem& s) {
  const ValueId last = c.transpose(weight, {0, 2, 3, 1});
  const ValueId padded =
      c.node("Pad", PadAttrs{{0, 0, 0, 0}, {0, 0, s.taps - s.width, kChannels - s.channels}}, {last});
  const ValueId rows = c.reshape(padded, {s.outputs, s.height, s.taps * kChannels});
  return c.reshape(c.transpose(rows, {0, 2, 1}), {s.outputs, s.taps * kChannels, s.height, 1});
}

Status widen(Graph& g, NodeId id, const Stem& s) {
  const Node n = g.node(id);
  GraphBuilder b(g);
  b.origin.merge(n.origin);
  Compose c(b);
  auto a = n.attrs.as<ConvAttrs>();
  const int64_t stride = a.strides[1];
  a.kernel[1] = a.strides[1] = 1;
  a.begins[1] = a.ends[1] = 0;
  const ValueId last = c.transpose(n.inputs[0], {0, 2, 3, 1});
  const ValueId padded = c.node("Pad", PadAttrs{{0, 0, s.begin, 0}, {0, 0, s.end, kChannels - s.channels}}, {last});
  const ValueId copy = c.node("Contiguous", {padded});
  const ValueId windows = c.node("Unfold", UnfoldAttrs{s.taps, stride, s.width, s.count}, {copy});
  const ValueId product = c.node("Conv", a, {windows, widened(c, n.inputs[1], s)});
  const ValueId result = INGOT_TRY(c.result({product}))[0];
  g.value(result).name = g.value(n.outputs[0]).name;
  g.replace_all_uses(n.outputs[0], result);
  g.erase_if_dead(id);
  return {};
}

/// The convolution is a product of patches with its weight, and a patch's elements are whole accesses.
bool multiplies_patches(const Graph& g, const Node& n) {
  if (n.op->name != "Conv" || !g.value(n.inputs[1]).constant) return false;
  const auto& a = n.attrs.as<ConvAttrs>();
  const Shape& x = g.value(n.inputs[0]).type.shape;
  const auto& w = g.value(n.inputs[1]).constant->dims();
  if (w.size() != 4 || a.groups != 1 || w[1] > kChannels || w[2] * w[3] == 1 || w[1] * w[2] * w[3] % (2 * kAligned) != 0) return false;
  for (size_t d = 0; d < 2; ++d) {
    const auto size = number(x[d + 2]), begin = number(a.begins[d]), end = number(a.ends[d]);
    if (a.strides[d] != w[d + 2] || a.dilations[d] != 1 || !size || *size == 0 || *size % w[d + 2] != 0) return false;
    if (!a.same && (!begin || *begin != 0 || !end || *end != 0)) return false;
  }
  return true;
}

/// [N, C, H, W] as [N, C * taps, rows, columns], channels last, for a convolution of one tap.
Status multiply_patches(Graph& g, NodeId id) {
  const Node n = g.node(id);
  GraphBuilder b(g);
  b.origin.merge(n.origin);
  Compose c(b);
  const Shape x = g.value(n.inputs[0]).type.shape, y = g.value(n.outputs[0]).type.shape;
  const auto w = g.value(n.inputs[1]).constant->dims();
  const int64_t depth = w[1] * w[2] * w[3];
  const ValueId apart = c.reshape(n.inputs[0], {x[0], x[1], y[2], w[2], y[3], w[3]});
  const ValueId copy = c.node("Contiguous", {c.transpose(apart, {0, 2, 4, 1, 3, 5})});
  const ValueId channels = c.transpose(c.reshape(copy, {x[0], y[2], y[3], depth}), {0, 3, 1, 2});
  const ConvAttrs one{.kernel = {1, 1}, .strides = {1, 1}, .dilations = {1, 1}, .begins = {0, 0}, .ends = {0, 0}};
  const ValueId product = c.node("Conv", one, {channels, c.reshape(n.inputs[1], {w[0], depth, 1, 1})});
  const ValueId result = INGOT_TRY(c.result({product}))[0];
  g.value(result).name = g.value(n.outputs[0]).name;
  g.replace_all_uses(n.outputs[0], result);
  g.erase_if_dead(id);
  return {};
}

/// An input of the model, or the same as another type.
bool is_given(const Graph& g, ValueId v) {
  const Node* n = g.producer(v);
  return !n || (n->op->name == "Cast" && !g.value(n->inputs[0]).producer.valid());
}
/// The product reads an input of the model, whose channels are far apart.
bool reads_model_input(const Graph& g, const Node& n) {
  if (n.op->name != "Conv" || n.attrs.as<ConvAttrs>().groups != 1 || g.value(n.inputs[0]).constant) return false;
  const auto channels = number(g.value(n.inputs[0]).type.shape[1]);
  return channels && *channels >= 2 * kChannels && is_given(g, n.inputs[0]);
}

}  // namespace

Result<bool> widen_channels(Graph& graph, const PassContext& ctx) {
  if (ctx.target.kind != TargetKind::Cuda || !ctx.fuse) return false;
  bool changed = false;
  std::map<ValueId, ValueId> copies;
  for (NodeId id : graph.order()) {
    if (multiplies_patches(graph, graph.node(id))) {
      INGOT_TRY(multiply_patches(graph, id));
      changed = true;
      continue;
    }
    const auto stem = stem_of(graph, graph.node(id), ctx);
    if (!stem && reads_model_input(graph, graph.node(id))) {
      const ValueId from = graph.node(id).inputs[0];
      ValueId& copy = copies[from];
      if (!copy.valid()) {
        const NodeId made = graph.add_node(&op("ChannelsLast"), {}, {from}, {graph.value(from).type}, graph.node(id).origin);
        copy = graph.node(made).outputs[0];
      }
      graph.replace_use(id, from, copy);
      changed = true;
    }
    if (!stem) continue;
    INGOT_TRY(widen(graph, id, *stem));
    changed = true;
  }
  return changed;
}

}  // namespace ingot
