// Matrix products with a thin side (up to about 8 rows), bound by reading the wide operand once. Functors and plan are
// those of contraction_simt.cuh, with the operands called thin and wide, and in the plan:
//   thin         rows of the thin operand, at most (compile time)     thin_is_m   whether they are the m side
//   vector       elements of one access to the wide operand           columns     along k: wide columns of a warp
//   k_warps      warps that share a column's sum; threads / 32 / k_warps groups of columns in a block (along n: 1
// group)
#pragma once
#include "prelude/memory.cuh"
#include "prelude/reduce.cuh"
#include "prelude/sync.cuh"

template <class Plan, class Epilogue>
INGOT_DEV void skinny_result(const Epilogue& epilogue, typename Plan::index batch, int row, typename Plan::index column,
                             typename Plan::acc acc) {
  if constexpr (Plan::thin_is_m) epilogue(batch, row, column, acc);
  else epilogue(batch, column, row, acc);
}

/// The wide operand is contiguous along k: the lanes of a warp walk down a column together and add up at the end.
template <class Plan, class Thin, class Wide, class Epilogue>
INGOT_DEV void contraction_skinny_along_k(const Thin& thin, const Wide& wide, const Epilogue& epilogue,
                                          typename Plan::index batches, typename Plan::index rows,
                                          typename Plan::index columns, typename Plan::index k_end, u32 shared) {
  typedef typename Plan::acc T;
  typedef typename Plan::index Index;
  constexpr int kResults = Plan::thin * Plan::columns, kGroups = Plan::threads / 32 / Plan::k_warps;
  static_assert(kResults <= 32, "more results than lanes");
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, part = warp % Plan::k_warps, group = warp / Plan::k_warps;
  const Index first = ((Index)blockIdx.x * kGroups + group) * Plan::columns;
  for (Index batch = blockIdx.z; batch < batches; batch += gridDim.z) {
    T acc[kResults];
#pragma unroll
    for (int i = 0; i < kResults; ++i) acc[i] = 0;
    for (Index k = (part * 32 + lane) * Plan::vector; k < k_end; k += Plan::k_warps * 32 * Plan::vector) {
      T x[Plan::thin][Plan::vector], w[Plan::columns][Plan::vector];
#pragma unroll
      for (int c = 0; c < Plan::columns; ++c) {
        if (first + c < columns) {
          wide(w[c], batch, first + c, k);
        } else {
#pragma unroll
          for (int v = 0; v < Plan::vector; ++v) w[c][v] = 0;
        }
      }
#pragma unroll
      for (int r = 0; r < Plan::thin; ++r) {
        if (r < rows) {
          thin(x[r], batch, r, k);
        } else {
#pragma unroll
          for (int v = 0; v < Plan::vector; ++v) x[r][v] = 0;
        }
#pragma unroll
        for (int c = 0; c < Plan::columns; ++c) {
#pragma unroll
          for (int v = 0; v < Plan::vector; ++v) acc[r * Plan::columns + c] += x[r][v] * w[c][v];
        }
      }
    }
    T mine = 0;  // lane i takes result i
#pragma unroll
    for (int i = 0; i < kResults; ++i) {
      const T sum = warp_reduce<32>(acc[i], SumOp{});
      mine = lane == i ? sum : mine;
    }
    if constexpr (Plan::k_warps > 1) {
      if (lane < kResults) sts(shared + (warp * 32 + lane) * (int)sizeof(T), mine);
      cta_sync();
      if (part == 0 && lane < kResults) {
#pragma unroll
        for (int p = 1; p < Plan::k_warps; ++p) mine += lds<T>(shared + ((warp + p) * 32 + lane) * (int)sizeof(T));
      }
      cta_sync();
    }
    const Index row = lane / Plan::columns, column = first + lane % Plan::columns;
    if (part == 0 && lane < kResults && row < rows && column < columns) {
      skinny_result<Plan>(epilogue, batch, row, column, mine);
    }
  }
}

/// The wide operand is contiguous along its own side: every lane owns `vector` columns, and the warps share k.
template <class Plan, class Thin, class Wide, class Epilogue>
INGOT_DEV void contraction_skinny_along_n(const Thin& thin, const Wide& wide, const Epilogue& epilogue,
                                          typename Plan::index batches, typename Plan::index rows,
                                          typename Plan::index columns, typename Plan::index k_end, u32 shared) {
  typedef typename Plan::acc T;
  typedef typename Plan::index Index;
  constexpr int kWidth = 32 * Plan::vector, kPart = Plan::thin * kWidth;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const Index column = (Index)blockIdx.x * kWidth + lane * Plan::vector;
  for (Index batch = blockIdx.z; batch < batches; batch += gridDim.z) {
    T acc[Plan::thin][Plan::vector];
#pragma unroll
    for (int r = 0; r < Plan::thin; ++r) {
#pragma unroll
      for (int v = 0; v < Plan::vector; ++v) acc[r][v] = 0;
    }
    if (column < columns) {
#pragma unroll 4
      for (Index k = warp; k < k_end; k += Plan::k_warps) {
        T w[Plan::vector], x[1];
        wide(w, batch, column, k);
#pragma unroll
        for (int r = 0; r < Plan::thin; ++r) {
          x[0] = 0;
          if (r < rows) thin(x, batch, r, k);
#pragma unroll
          for (int v = 0; v < Plan::vector; ++v) acc[r][v] += x[0] * w[v];
        }
      }
    }
#pragma unroll
    for (int r = 0; r < Plan::thin; ++r) {
#pragma unroll
      for (int v = 0; v < Plan::vector; ++v) {
        sts(shared + (warp * kPart + r * kWidth + lane * Plan::vector + v) * (int)sizeof(T), acc[r][v]);
      }
    }
    cta_sync();
    for (int i = threadIdx.x; i < kPart; i += Plan::threads) {
      const Index at = (Index)blockIdx.x * kWidth + i % kWidth;
      T sum = 0;
#pragma unroll
      for (int p = 0; p < Plan::k_warps; ++p) sum += lds<T>(shared + (p * kPart + i) * (int)sizeof(T));
      if (i / kWidth < rows && at < columns) skinny_result<Plan>(epilogue, batch, i / kWidth, at, sum);
    }
    cta_sync();
  }
}
