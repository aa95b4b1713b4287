// Plans of products on tensor cores that tests force.
#pragma once

#include "codegen/cuda/plan_cuda.h"

namespace ingot::samples {

/// A machine so small that every plan prefers wide accesses and large tiles.
inline TargetTraits tiny_machine(int capability = 90) {
  TargetTraits t = cuda_traits(capability);
  t.parallel_units = 1;
  return t;
}

/// Tensor cores: warps of (tile / warp) tiles, k_warps of them on each, in clusters of `cluster` blocks.
inline Schedule mma(MultiplyUnit unit, int m, int n, int warp_m, int warp_n, int k_warps, int cluster, int stages) {
  Schedule s;
  s.kind = Schedule::Kind::Tiles;
  s.unit = unit;
  s.tile = {.m = m, .n = n, .warp_m = warp_m, .warp_n = warp_n, .k_warps = k_warps, .stages = stages};
  s.tile.k = (unit == MultiplyUnit::Tf32x3 ? 16 : 32) * k_warps;
  s.cluster_k = cluster;
  s.threads = s.tile.threads();
  return s;
}

/// wgmma: warpgroups of (tile / warp) tiles.
inline Schedule groups(MultiplyUnit unit, int m, int n, int warp_m, int warp_n, int cluster, int stages, bool overlap) {
  Schedule s = mma(unit, m, n, warp_m, warp_n, 1, cluster, stages);
  s.tile.k = 64;
  s.tile.warpgroups = true;
  s.tile.overlap = overlap;
  s.threads = s.tile.threads();
  return s;
}

/// wgmma with boxes: warpgroups of (tile / warp) tiles, or two in turn; three blocks, so that each has several tiles.
inline Schedule boxes(MultiplyUnit unit, int m, int n, int warp_m, int warp_n, int stages, bool in_turn) {
  Schedule s = groups(unit, m, n, warp_m, warp_n, 1, stages, true);
  s.tile.boxes = true;
  s.tile.in_turn = in_turn;
  s.tile.split = unit == MultiplyUnit::Tf32x3;
  s.tile.k = element_of(unit) == DType::F32 ? 32 : 64;
  s.threads = s.tile.threads();
  s.most_blocks = 3;
  return s;
}

/// The same without turns, the k of a tile shared by the blocks of a cluster.
inline Schedule shared_boxes(MultiplyUnit unit, int m, int n, int warp_m, int warp_n, int cluster, int stages) {
  Schedule s = boxes(unit, m, n, warp_m, warp_n, stages, false);
  s.tile.k = 128 / static_cast<int>(size_of(element_of(unit)));
  s.cluster_k = cluster;
  s.most_blocks = 132;
  return s;
}

/// Rows as they lie in memory, by `teams` warpgroups; two blocks.
inline Schedule rows_by(int teams, MultiplyUnit unit, int rows, int n, int k, int stages) {
  Schedule s = groups(unit, rows * 64, n, rows * 64, n, 1, stages, false);
  s.tile.boxes = true;
  s.tile.k = k;
  s.tile.row_teams = teams;
  s.threads = s.tile.threads();
  s.most_blocks = 2;
  return s;
}

/// Boxes whose k blocks of the grid divide.
inline Schedule divided_boxes(MultiplyUnit unit, int m, int n, int warp_m, int warp_n, int blocks, int stages) {
  Schedule s = shared_boxes(unit, m, n, warp_m, warp_n, 1, stages);
  s.grid_k = blocks;
  return s;
}

}  // namespace ingot::samples
