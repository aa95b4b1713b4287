#include "compiler/ops/registry.h"

#include <map>

namespace ingot {
namespace {

using Key = std::pair<std::string_view, std::string_view>;

const OpDef kInternal[] = {[] {
  OpDef d;
  d.name = "fused", d.doc = "a fused group; its body is a graph", d.lower = Fused{}, d.min_inputs = 0, d.max_inputs = 1 << 20;
  d.parse_attrs = parse_attrs<FusedAttrs>;
  return d;
}()};

std::vector<std::span<const OpDef>>& families() {
  static std::vector<std::span<const OpDef>> list = {
      pointwise_ops(), movement_ops(), parts_ops(),  gather_ops(),  shape_ops(),  reduce_ops(),    contraction_ops(), window_ops(), unpool_ops(),
      resize_ops(),    resample_ops(),  ordered_ops(), sorting_ops(), scatter_ops(), sampling_ops(), einsum_ops(),      normalization_ops(),
      attention_ops(), quantize_ops(),  signal_ops(),  vision_ops(), loss_ops(),      recurrent_ops(),   linear_attention_ops(),
      contrib_ops(),   control_ops(),   selection_ops(), open_axes_ops(),   internal_ops()};
  return list;
}
std::map<Key, const OpDef*>& table() {
  static std::map<Key, const OpDef*> map = [] {
    std::map<Key, const OpDef*> m;
    for (auto rows : families())
      for (const OpDef& d : rows) INGOT_CHECK(m.emplace(Key{d.domain, d.name}, &d).second, "two rows named " + std::string(d.name));
    return m;
  }();
  return map;
}

}  // namespace

std::span<const OpDef> internal_ops() { return kInternal; }

std::vector<const OpDef*> all_ops() {
  std::vector<const OpDef*> ops;
  for (auto rows : families())
    for (const OpDef& d : rows) ops.push_back(&d);
  return ops;
}
const OpDef* find_op(std::string_view name, std::string_view domain) {
  auto it = table().find({domain, name});
  return it == table().end() ? nullptr : it->second;
}
const OpDef& op(std::string_view name) {
  const OpDef* d = find_op(name);
  INGOT_CHECK(d != nullptr, "no operator row " + std::string(name));
  return *d;
}
const ImportRule* find_import(const OpDef& op, int opset) {
  const ImportRule* best = nullptr;
  for (const ImportRule& r : op.imports)
    if (r.since <= opset) best = &r;
  return best;
}
void add_ops(std::span<const OpDef> rows) {
  families().push_back(rows);
  for (const OpDef& d : rows) table()[{d.domain, d.name}] = &d;
}

}  // namespace ingot
