// Pointwise kernels that read along another axis than they store along: transposed copies, and what is fused with them. A block
// reads a tile of both axes in the order of loads into shared memory, and computes and stores its points in the order of stores.
#pragma once

#include <optional>
#include <vector>

#include "codegen/kernel/kernel.h"
#include "compiler/support/target_traits.h"

namespace ingot {

struct CrossedForm {
  std::vector<Axis> outer;  // all but the two
  Axis across, last;  // of loads, and of stores
  std::vector<Expr> staged;  // what goes through shared memory: loads along `across`, or zero where a condition fails
  std::vector<DType> types;  // of their elements
};
/// Nothing where the kernel is something else.
std::optional<CrossedForm> crossed_form(const Kernel& kernel);
/// One schedule, or one for each range of sizes; nothing where there is no such form. tile.m is the tile's extent across, tile.n that
/// along the stores, `vector` the results of one access.
std::vector<Schedule> plan_crossed(const Kernel& kernel, const TargetTraits& target);

/// What the printer and the launch derive from the form and its schedule.
struct CrossedTile {
  struct Staged {
    int vector = 1;  // elements of one access along `across`
    int64_t pitch = 0, offset = 0;  // elements from one position along the stores to the next; bytes into shared memory
  };
  std::vector<Axis> blocks, points;  // of the grid; of a tile
  Expr across_start, last_start;  // the tile's place, over blocks
  Body body;  // over those; staged values are loads of buffers behind the kernel's
  Expr across, last;  // a point's place, over those
  std::vector<Staged> staged;
  int64_t shared_bytes = 0;
};
CrossedTile crossed_tile(const Kernel& kernel, const CrossedForm& form, const Schedule& schedule);

}  // namespace ingot
