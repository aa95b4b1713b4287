// The state of group formation: which group each node is in, who reads what, and whether one group must run before another.
// Policy (what to absorb) is in form_groups.cpp; making fused nodes of the result is build_groups.cpp.
#pragma once

#include <set>

#include "passes/pass_manager.h"

namespace ingot {

constexpr size_t kMaxNodes = 96;   // of a group: bounds the depth of its expressions
constexpr size_t kMaxInputs = 24;  // kernel parameters
constexpr const char* kStaysBytes = "the product behind it multiplies bytes";

inline bool is_pointwise(const Node& n) { return n.op->lowers_as<Pointwise>() != nullptr; }
inline bool is_movement(const Node& n) { return n.op->lowers_as<Movement>() != nullptr; }

struct Group {
  std::string kind;                 // GroupKind's name
  NodeId anchor;                    // invalid for points
  std::vector<NodeId> nodes;        // owned: each node is in one group
  std::set<NodeId> inlined;         // movement computed again inside this group, owned by none or another
  std::set<NodeId> prologue;        // nodes that the anchor reads through: repeated for each of its tiles or taps
  int64_t prologue_flops = 0;       // of one element
  ValueId moved;                    // rows: what they are stored as, in another shape; invalid: as they are
};

class Groups {
 public:
  explicit Groups(const Graph& graph);

  const Graph& graph() const { return graph_; }
  const Group& at(int g) const { return groups_[static_cast<size_t>(g)]; }
  int group_of(NodeId n) const { return owner_.at(n); }
  bool is_free(NodeId n) const { return owner_.at(n) < 0; }
  Group& operator[](int g) { return groups_[static_cast<size_t>(g)]; }
  size_t size() const { return groups_.size(); }

  int open(std::string kind, NodeId anchor);
  void add(int group, NodeId n);
  /// Moves all nodes of one group into another; the first is empty then.
  void merge(int from, int into);
  /// The value is computed inside the group.
  bool inside(int group, ValueId v) const;
  /// Every use of the node's outputs is inside the group (an output of the graph is a use outside).
  bool read_only_by(int group, NodeId n) const;
  /// Computing v needs the group to have run: v must not become an input of it.
  bool depends_on(ValueId v, int group) const;
  /// Values that it reads and does not compute.
  size_t input_count(int group) const;
  const std::vector<NodeId>& order() const { return order_; }
  std::string label(NodeId n) const;  // "Relu \"layer1/relu\""

 private:
  const Graph& graph_;
  std::vector<NodeId> order_;
  IdMap<NodeId, int> owner_;
  mutable IdMap<NodeId, int> seen_;  // marks of the walk in depends_on; epoch_ tells the walks apart
  mutable int epoch_ = 0;
  std::vector<Group> groups_;
};

/// Joins groups that each reduce or multiply little for one position of the first dimension, where one reads the other: a
/// global average and the two products of squeeze-and-excite, a gate and its softmax (chain_groups.cpp).
void chain_groups(Groups& groups, const PassContext& ctx);

/// Why the results of the product's group are not combined by this reduction of its rows in its epilogue; null when they are
/// (combine_rows.cpp).
const char* combine_rows_refusal(const Groups& groups, const PassContext& ctx, int group, NodeId reduction);

/// The same of a window's results and a reduction along the lines of the image (reduce_lines.cpp).
const char* combine_line_refusal(const Groups& groups, const PassContext& ctx, int group, NodeId reduction);

/// Whoever reads the node's result may compute it there: nothing in memory is behind it, or less than it would store
/// (read_through.cpp).
bool is_free_to_read(const Graph& graph, const Node& node);
/// Why a product or window does not gather what this node gathers or interpolates; null when it does: pixels of an image that is
/// enlarged, where that costs less than to store it (read_through.cpp).
const char* gather_refusal(const Groups& groups, const PassContext& ctx, int reader, NodeId node);

/// Puts every node that is still free into a group (place_rest.cpp).
void place_rest(Groups& groups, const PassContext& ctx);

/// Joins pointwise kernels of one shape that read what the same kernels write: none of them has to wait for more than it did
/// (merge_points.cpp).
void merge_points(Groups& groups);

/// Replaces the nodes of each group by one fused node.
Status build_groups(Graph& graph, Groups& groups);

}  // namespace ingot
