// Planning for CUDA: which schedule a kernel gets, and what follows from it for the launch. Plain analytic choices; a
// schedule is data and can be overridden.
//
// Tiles with thread_m == 0 is the skinny form (prelude/contraction_skinny.cuh), for products with a side of at most
// kThinLimit: that side's tile is its row count, the other side's tile the columns of a warp (along k), `vector` the
// elements of one access, and split_k the warps that share a sum.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <unordered_map>

#include "codegen/backend.h"
#include "codegen/cuda/operand_access.h"
#include "codegen/kernel/kernel.h"
#include "compiler/support/result.h"
#include "compiler/support/target_traits.h"

namespace ingot {

constexpr int kThinLimit = 8;

/// Dims by name.
using DimValues = std::unordered_map<std::string, int64_t>;
/// A plan that fits, and what it is expected to take: cycles, or another number that only orders plans of one kernel.
struct RankedPlan {
  Schedule schedule;
  double cycles = 0;
};
/// All plans that fit, in no order, for these dims: what tuning_candidates.h chooses from. plan_… takes the least.
std::vector<RankedPlan> rank_window(const Kernel& kernel, const TargetTraits& target, const DimValues& at);
std::vector<RankedPlan> rank_tiles(const Kernel& kernel, const TargetTraits& target, const DimValues& at);
std::vector<RankedPlan> rank_mma(const Kernel& kernel, const TargetTraits& target, const Schedule& schedule,
                                 const DimValues& at);
std::vector<RankedPlan> rank_attention(const Kernel& kernel, const TargetTraits& target, const DimValues& at);

/// A kernel of sliding windows that computes several neighbouring outputs for each of its points, or the same kernel.
Kernel unroll_windows(const Kernel& kernel);
/// Sliding windows with their own kernel (window_form.h): nothing where that does not fit.
std::vector<Schedule> plan_window(const Kernel& kernel, const TargetTraits& target);
/// One schedule, or one for each range of sizes.
std::vector<Schedule> plan_cuda(const Kernel& kernel, const TargetTraits& target);
std::vector<Schedule> plan_tiles(const Kernel& kernel, const TargetTraits& target);

/// What the printer and the launch derive from a contraction and its schedule.
struct TileDetails {
  bool skinny = false, thin_is_m = false;
  bool a_along_k = true, b_along_k = true, out_along_m = false;  // direction of consecutive threads
  int a_vector = 1, b_vector = 1, e_vector = 1;  // e_vector: tensor cores
  bool a_raw = false, b_raw = false;             // tensor cores: elements go to shared memory as they are stored
  bool a_table = false, b_table = false;         // tensor cores: what they need of k comes from a table
  bool batched = false;                          // tensor cores with boxes
  std::optional<OperandWindow> window;           // tensor cores with boxes: of A
  int a_rows = 0;                                // tensor cores with boxes: rows of A in a box along k
  bool by_group = false;                         // tensor cores with boxes: rows of A have an axis for groups
  std::optional<StagedResults> staged;           // tensor cores with boxes: how results leave
  std::optional<ProductOfRows> rows;             // tensor cores: rows as they lie in memory
  Expr a_load;                                   // tensor cores with boxes: what arrives, if A is computed from it
  int blocks_per_sm = 1;                         // tensor cores: what registers must suffice for
  int thin = 0, columns = 1;    // skinny
  int row_room = 0;             // tensor cores with boxes: where the values of rows are in shared memory
  int shared_bytes = 0;
};
TileDetails tile_details(const Kernel& kernel, const Schedule& schedule);

/// Tensor cores (prelude/contraction_mma.cuh): the unit that fits the operands, or Simt; its schedule; its details, given
/// the directions. A block's shared memory is the larger of the ring of stages and the tile of results.
MultiplyUnit multiply_unit(const Kernel& kernel, const TargetTraits& target);
std::vector<Schedule> plan_mma(const Kernel& kernel, const TargetTraits& target, const Schedule& schedule);
void mma_details(const Kernel& kernel, const Schedule& schedule, TileDetails& details);
/// What the operands are in shared memory: I8 stands for bytes of either sign, F8E4M3 for both kinds of f8.
DType element_of(MultiplyUnit unit);

/// Blocks of the grid divide the k of a tile (prelude/divided_sums.cuh): columns of a warpgroup's tile that are finished at a time. Of
/// such a plan the kernel takes the counters and the memory for parts behind its buffers.
constexpr int kDividedColumns = 16;
Kernel with_divided_sums(Kernel kernel, const Schedule& schedule);
/// Blocks that have parts of the same tile.
inline int sharers_of(const Schedule& s) { return s.cluster_k * s.grid_k; }

/// How many rows are combined before the epilogue: 1 without groups. And the rows of a tile that are whole groups.
int rows_together(const Contract& contract);
int whole_rows(int tile_m, int together);

/// With boxes, the shared memory for what a tile's results need of their rows alone.
int row_bytes(const Contract& contract, const Schedule& schedule);
/// What the epilogue loads, but for what is staged, follows from the column alone.
bool loads_by_column(const Kernel& kernel);
/// The schedule's tiles have whole parts of rows (Contract::parts), and their results leave in a way that adds them up.
bool adds_up_parts(const Kernel& kernel, const Schedule& schedule);
/// The kernel as this schedule prints it: where neither a thread nor a cluster keeps the values of a row, the epilogue computes them.
Kernel with_row_values(Kernel kernel, const Schedule& schedule);

/// True when TMA can send for the operands and the results go along n, as the kernels with boxes have it.
bool takes_boxes(const Kernel& kernel, DType element);
/// The load that arrives where A is computed from it on the way to the tensor cores; invalid where A arrives as it is.
Expr load_to_change(const Kernel& kernel, DType element);
/// The tensor maps of a plan with boxes: of A, then of B; or of queries, keys and values.
std::vector<BoxMap> box_maps(const Kernel& kernel, const Schedule& schedule);

/// The shared memory of a Rows kernel: scratch arrays of every row of the block, then two areas for the reductions of its warps, and
/// of those of its cluster.
struct RowShared {
  int scratch_bytes = 0;        // of one row
  int reduce_offset = 0, reduce_bytes = 0;  // of one area
  int total_bytes = 0;
};
Result<RowShared> row_shared(const Kernel& kernel, const Schedule& schedule);

/// A pass over the columns of a row by vectors of `width`; 0: something else. Several axes are taken as one.
struct RowPass {
  std::vector<int64_t> extents;
  int width = 0;
  int64_t steps(int lanes) const;
  bool operator==(const RowPass&) const = default;
};
RowPass row_pass(const Kernel& kernel, const std::vector<Axis>& axes, const Body& work, int vector);
/// What several passes over a row load alike, so that lanes may keep it in registers from one to the next (held_rows.cpp).
struct HeldRows {
  RowPass pass;              // of those that load it
  std::vector<int> buffers;
  int64_t bytes = 0;         // of a step of a lane
};
HeldRows held_rows(const Kernel& kernel, int vector);
/// The lanes of a row, `threads` of them in a block, keep it: few enough steps, and registers.
bool fits_registers(const HeldRows& held, int lanes, int threads);

/// How an operand of a tensor-core kernel is fetched.
struct OperandForm {
  int vector = 1;    // elements of one access along `inner`
  bool raw = false;  // as they are stored
};
OperandForm operand_form(const Kernel& kernel, const Expr& value, const Axis* inner, DType element);

/// Attention: what the printer and the launch derive from the statement and its schedule.
struct AttentionDetails {
  OperandForm q, key, value;
  int e_vector = 1;
  int head = 16, columns = 16;  // channels of queries and of values, rounded up to 16
  int shared_bytes = 0;
  int chunk = 16, q_stages = 1, arriving = 1;  // with boxes
  int blocks_per_sm = 1;
  int part_rows = 16;  // with boxes, where warps share keys: rows of a tile that may have results
};
/// Attention with boxes: the operands, if TMA can read all three (where warps share keys: these and their values), and the tensor maps.
struct AttentionRows {
  OperandRows q, key, value;
};
std::optional<AttentionRows> attention_rows(const Kernel& kernel, DType element);
/// Keys and values alone, for the kernel that heads_as_rows makes.
struct KeyRows {
  OperandRows key, value;
};
std::optional<KeyRows> key_rows(const Kernel& kernel, DType element);
std::vector<BoxMap> attention_maps(const Kernel& kernel, const Schedule& schedule);
std::vector<Schedule> plan_attention(const Kernel& kernel, const TargetTraits& target);
/// Few queries (attention_few.cpp): true for the plans in which warps and blocks share the keys of the same rows. Such a plan
/// is for the kernel that heads_as_rows makes, where heads with the same keys and values are more queries.
bool shares_keys(const Schedule& schedule);
Kernel heads_as_rows(Kernel kernel);
/// Where the number of queries is open there are forms for few, launched where is_few holds, and for many. The same is said of
/// what heads_as_rows makes.
bool has_few_form(const Kernel& kernel);
Expr is_few(const Kernel& kernel);
bool is_few(const Kernel& kernel, const DimValues& at);
/// `schedule`: the unit. All plans for these dims, in no order; one form, or one for each range of sizes of the batch.
std::vector<RankedPlan> rank_few_queries(const Kernel& kernel, const TargetTraits& target, const DimValues& at, Schedule schedule);
std::vector<Schedule> plan_few_queries(const Kernel& kernel, const TargetTraits& target, const Schedule& schedule);
AttentionDetails attention_details(const Kernel& kernel, const Schedule& schedule);
/// The two products of an attention: queries by keys, and weights by values (whose `a` is not set).
Contract score_product(const Attend& attend);
Contract value_product(const Attend& attend);

struct CudaLaunch {
  Expr part_bytes;  // EmittedKernel::part_bytes
  std::array<Expr, 3> grid{1, 1, 1};  // over the kernel's dims; with a 0 in it there is nothing to launch
  int threads = 1;
  int shared_bytes = 0;
};
Result<CudaLaunch> cuda_launch(const Kernel& kernel, const Schedule& schedule);

/// False when a buffer or the domain is known to exceed kMaxI32Elements: then indices are 64-bit.
bool fits_i32(const Kernel& kernel);

/// Of 1, 2, 4, ... the largest up to n; numbers without a bound count as a million.
int power_of_two_below(int64_t n);
/// The product of the extents.
Expr total_of(const std::vector<Axis>& axes);
/// A number to plan by: the value, or the upper bound, or `otherwise`.
int64_t estimate(const Expr& e, int64_t otherwise);
/// The last axis, or null.
const Axis* inner_axis(const std::vector<Axis>& axes);
/// A body of one Let, for functions that look at bodies.
Body as_body(const Expr& value);

}  // namespace ingot
