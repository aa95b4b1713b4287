// How a Points or Rows kernel runs on the CPU: which axis lies along the vector and how the points are cut into tasks.
#pragma once

#include <optional>

#include "codegen/llvm/ir_tools.h"
#include "codegen/llvm/kernel_rewrite.h"

namespace ingot::cpu {

struct PointsPlan {
  std::vector<Axis> rows;       // domain axes that are walked one position at a time
  std::optional<Axis> lanes;    // the domain axis along the vector; none: the body's own loops are vectorised
  Body body;
  Expr row_count;
  Expr rows_per_task;           // at least 1
  int64_t lanes_per_task = 0;   // a task covers this many positions of `lanes` (all when there are fewer)
  Expr chunks;                  // tasks along `lanes`
  Expr tasks;
};

PointsPlan plan_points(const Kernel& kernel, const Machine& machine);
/// Where a scratch array of a kernel lives: in the launch's scratch memory, or on the heap when its size is not known
/// to be small. The array is the same for all points of a call.
struct ScratchArray {
  int buffer = 0;
  DType type = DType::F32;
  Expr size;  // elements; of heap arrays, over dims only
  int64_t offset = -1;  // into the scratch memory; -1: on the heap
};
struct ScratchPlan {
  std::vector<ScratchArray> arrays;
  int64_t bytes = 0;
};
/// An Error when an array's size depends on more than dims and has no bound.
Result<ScratchPlan> plan_scratch(const Kernel& kernel, const Body& body);

}  // namespace ingot::cpu
