// How a contraction runs on the CPU: which side lies along the vector, tile sizes, what is packed, how the work is cut
// into tasks. Plain data, made by plan_contract and consumed by ContractEmitter.
//
// The vector side is called n ("columns", a panel = `vectors` vectors wide), the other m ("rows", a register tile is up
// to `rows` high). A task computes some register-tile rows times some panels of one batch element:
//   pack the panels of b; for each row tile and panel: multiply over the whole k in registers, then run the epilogue
#pragma once

#include "codegen/kernel/kernel.h"
#include "codegen/llvm/ir_tools.h"

namespace ingot::cpu {

/// An operand that is read where it is: a plain Load, linear in the flattened k and in the one row or column axis.
struct DirectOperand {
  int buffer = 0;
  Expr origin;  // the index at k = 0 and row (or column) 0
  Expr k_step, side_step;  // elements between neighbours
};

/// Rows cut into register tiles: tile t has rows_of(t) rows. A constant m is cut evenly, so that no tile has idle rows;
/// otherwise full tiles come first, then tiles of 4, then of 1.
struct RowTiles {
  Expr count;
  bool even = false;
  int64_t base = 0, longer = 0;  // even: the first `longer` tiles have base + 1 rows, the others base
  int full = 0;  // not even: rows of a full tile
  std::vector<int> variants;  // the different row counts
};

struct ContractPlan {
  Contract c;  // normalised: unit axes dropped, axes merged, sides swapped if that is better
  DType type = DType::F32;  // of the accumulator
  int width = 8, vectors = 2, tail_vectors = 2, rows = 6;
  bool dot = false;  // vectors along k instead (both operands contiguous in k, few rows)
  std::optional<DirectOperand> a_direct, b_direct;
  RowTiles tiles;
  int64_t tiles_per_task = 16, panels_per_task = 1;
  Expr batch, m, n, k;  // total extents
  Expr panels, tile_blocks, panel_groups, tasks;
  bool k_blocked = false;
  int64_t k_block = 0;  // most k positions that are packed at once
  int64_t c_offset = 0, a_offset = 0, b_offset = 0, scratch_bytes = 0;

  int panel() const { return width * vectors; }
  /// Elements of scratch for one packed panel; whole vectors may be written behind its last k position.
  int64_t packed_panel() const { return (k_block + width) * panel(); }
  bool fixed_n() const { return n.as_int().has_value(); }
};

ContractPlan plan_contract(const Kernel& kernel, const Machine& machine);

/// True for products with so few rows that windows (a sum per point, vectors along the points, nothing packed) suit
/// them better: depthwise convolutions, convolutions to one or two channels.
bool suits_windows(const ContractPlan& plan);
/// The same computation as a Points kernel with a Reduce.
Kernel as_windows(const Kernel& kernel, const ContractPlan& plan);

/// Product of the extents.
Expr total_extent(const std::vector<Axis>& axes);

}  // namespace ingot::cpu
