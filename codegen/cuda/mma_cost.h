// What a contraction costs on tensor cores, tile by tile: the estimate by which plan_mma.cpp chooses.
#pragma once

#include <vector>

#include "codegen/cuda/operand_access.h"
#include "codegen/kernel/kernel.h"
#include "compiler/support/target_traits.h"

namespace ingot {

/// What the estimate knows about one operand.
struct OperandCost {
  double bytes = 4, gather = 0;  // of an element: in memory, and cycles of one SM to fetch it
};

/// Numbers of one SM, in a cycle.
struct MmaMachine {
  double sms = 132, multiplies = 1000, group_multiplies = 0;  // by warps; by warpgroups (0: there is no wgmma)
  double shared_bytes = 128, l2_bytes = 40, memory_bytes = 18;
  int shared_limit = 0;  // of a block
  bool clusters = false;
};
MmaMachine mma_machine(const TargetTraits& target, MultiplyUnit unit);

/// How results leave a kernel with boxes: by the threads, by TMA, or by TMA after inputs of the epilogue have come the same way.
enum class Staging { None, Results, Inputs };

Staging staging_of(const std::optional<StagedResults>& staged);

/// Blocks that share the k of a tile: those of a cluster, or, without being one, of the grid.
struct Sharing {
  int cluster = 1, grid = 1;
  int blocks() const { return cluster * grid; }
  bool operator==(const Sharing&) const = default;
};

/// A contraction with numbers for extents.
struct MmaProblem {
  double m = 1, n = 1, k = 1, batch = 1;
  double most_m = 0, most_n = 0, most_batch = 0;  // that the form is ever launched for; 0: as they are
  int part_width = 0;       // columns whose sums are stored, too: a tile has whole parts
  int row_values = 0;       // floats that results need of their row
  int together = 1;         // rows that are combined before the epilogue: a tile computes whole groups of them
  bool k_known = false;     // and not only estimated
  OperandCost a, b;
  double result_bytes = 4;  // of one result: what the epilogue moves to and from memory
  double result_access = 4; // and all that it loads and stores
  double result_work = 10;  // instructions of one result
  int element = 4;          // bytes, in shared memory
  bool a_along_k = true, b_along_k = true, out_along_m = false, window = false;
  int table_bytes = 0;      // of a step's k, where copies by threads look up what they need of it (not with boxes)
  bool boxes = false;       // both operands can arrive by TMA
  Staging staging = Staging::None;
  int staged_size = 2;  // bytes of a result that leaves by TMA
  bool split = false;  // f32 with its accuracy: three tf32 products for each
  bool settles = false;  // f8: the sums of a step are added up apart (prelude/mma_operand.cuh: sums_settle)
  std::optional<ProductOfRows> rows;  // rows can arrive and leave as they lie in memory
  bool a_changes = false;   // A is computed from what arrives, in registers
  bool half_steps =
      false;  // boxes of 64 bytes of k: no more of them than of 128 bytes, or no more than half a one more
  double partial_steps = 0;  // of boxes: steps of a tile that reach behind the end of k, or of a window's channels
  double reuse = 1;         // how often a window reads an element of A
  double box_k = 0;         // k as boxes make it: whole steps of channels for each tap of a window; 0: as it is
};

/// The tiles that fit operands and machine; k and stages are still open. INGOT_TILE=64x128/64x64 ("o" behind it: overlap, "b": boxes, "t": boxes in turn),
/// or rows64, leaves only that one where it fits, and "@4" behind it a cluster of four blocks, "%4" four of the grid: for measurements.
std::vector<MmaTile> mma_candidates(const MmaProblem& problem, const MmaMachine& machine);
/// The sharing that INGOT_TILE asks for; 0 blocks: none.
Sharing forced_sharing();
/// The same tile with its k, and as many stages as are of use when `blocks` blocks run on each SM.
MmaTile completed(const MmaProblem& problem, const MmaMachine& machine, MmaTile tile, Sharing sharing);
/// The same with no more stages than steps where each block has one tile: what is left of the SM's shared memory is for a block of the next
/// kernel, which then fetches its weights beside this one.
MmaTile trimmed(const MmaProblem& problem, const MmaMachine& machine, MmaTile tile, Sharing sharing);
double tiles_of(const MmaProblem& problem, const MmaTile& tile);
/// Blocks that share a tile put their results in place of the stages.
bool holds_results(const MmaTile& tile, const MmaProblem& problem);
/// The blocks of the grid can share the k of such tiles (prelude/divided_sums.cuh): their counters suffice. And it may be of use: a
/// product bound by memory needs no more SMs than the blocks of clusters are on, unless it is so long that what follows its main loop
/// does not count.
bool may_divide(const MmaProblem& problem, const MmaMachine& machine, const MmaTile& tile);
/// Cycles of the busiest SM.
double estimated_cycles(const MmaProblem& problem, const MmaMachine& machine, const MmaTile& tile, Sharing sharing);

/// Tiles of a product of rows (product_of_rows.cpp), complete, with what they need of shared memory, and their cycles.
std::vector<MmaTile> rows_tiles(const MmaProblem& problem, const MmaMachine& machine);
int rows_shared_bytes(const MmaTile& tile, const ProductOfRows& rows);
double rows_cycles(const MmaProblem& problem, const MmaMachine& machine, const MmaTile& tile);

/// Shared memory: of one stage, and of the tile of results.
int mma_stage_bytes(const MmaTile& tile, bool a_along_k, bool b_along_k, int element);
int mma_result_bytes(const MmaTile& tile, bool out_along_m);
/// Columns of results that a warp passes through shared memory at a time.
int box_chunk(const MmaTile& tile);
/// Columns in a box of results of so many bytes; boxes of results that a warp has room for: 0 where the tile has its results stored
/// by the threads.
int staged_columns(int result_size);
int staged_buffers(const MmaTile& tile, Staging staging, int result_size);
/// Shared memory of a block whose operands arrive as boxes (prelude/contraction_boxes.cuh), of so many that share a tile: then the
/// ring holds its results.
int box_shared_bytes(const MmaTile& tile, int element, Staging staging, int result_size, int cluster = 1);
/// The same for `values` floats of each row that results need: where a cluster adds up, of a tile; for two warpgroups, of two tiles,
/// with their barriers (prelude/row_parts.cuh).
int row_value_bytes(const MmaTile& tile, int values, int cluster);
/// Blocks that registers allow on one SM.
int blocks_by_registers(const MmaTile& tile, int element, bool window);

}  // namespace ingot
