// Reductions over the lanes that share one row: a part of a warp, a warp, or a block. The result is the same in every
// lane, and the order of combination is fixed, so runs repeat bit for bit.
#pragma once
#include "prelude/math.cuh"
#include "prelude/memory.cuh"
#include "prelude/sync.cuh"
#include "prelude/warp.cuh"

/// A candidate of ArgMax or ArgMin; index -1 is "none yet" and loses to everything.
template <class T> struct Arg {
  T value;
  i64 index;
};
template <class T> INGOT_DEV Arg<T> shfl_xor(Arg<T> a, int mask) {
  return {shfl_xor(a.value, mask), shfl_xor(a.index, mask)};
}

struct SumOp { template <class T> INGOT_DEV T operator()(T a, T b) const { return (T)(a + b); } };
struct ProductOp { template <class T> INGOT_DEV T operator()(T a, T b) const { return (T)(a * b); } };
struct MaxOp { template <class T> INGOT_DEV T operator()(T a, T b) const { return ingot_max(a, b); } };
struct MinOp { template <class T> INGOT_DEV T operator()(T a, T b) const { return ingot_min(a, b); } };
struct AndOp { template <class T> INGOT_DEV T operator()(T a, T b) const { return (T)(a & b); } };
struct OrOp { template <class T> INGOT_DEV T operator()(T a, T b) const { return (T)(a | b); } };

/// Keeps the extreme value; NaN is the extreme. Of equal values the first position wins, or the last.
template <bool Largest, bool Last> struct ArgOp {
  template <class T> INGOT_DEV Arg<T> operator()(Arg<T> a, Arg<T> b) const {
    if (b.index < 0) return a;
    if (a.index < 0) return b;
    if (is_nan(a.value) != is_nan(b.value)) return is_nan(a.value) ? a : b;
    if (Largest ? a.value > b.value : a.value < b.value) return a;
    if (Largest ? b.value > a.value : b.value < a.value) return b;
    return (a.index < b.index) != Last ? a : b;
  }
};

/// Over groups of `Lanes` consecutive lanes; a power of two up to 32.
template <int Lanes, class Op, class T> INGOT_DEV T warp_reduce(T v, Op op) {
#pragma unroll
  for (int mask = Lanes / 2; mask > 0; mask /= 2) v = op(v, shfl_xor(v, mask));
  return v;
}

constexpr int kReduceSlot = 16;                      // bytes of one warp's value
constexpr int kReduceScratch = 32 * kReduceSlot;     // shared bytes of one block reduction

/// Over the lanes of a block whose thread lane * Groups + group holds part of the values of `group`: `Lanes` of them, a
/// power of two. Takes the scratch of all threads' values. The `Cluster` blocks of a cluster hold parts of the same groups.
template <int Groups, int Lanes, int Cluster, int V, class Op, class T>
INGOT_DEV void column_reduce(T (&v)[V], Op op, u32 scratch) {
  constexpr int kThreads = Groups * Lanes;
  const int lane = threadIdx.x / Groups;
  const auto place = [&](int i, int thread) { return scratch + (i * kThreads + thread) * (u32)sizeof(T); };
  if constexpr (Cluster > 1) cluster_sync();
  else cta_sync();  // what another reduction left there has been read
#pragma unroll
  for (int i = 0; i < V; ++i) sts(place(i, threadIdx.x), v[i]);
#pragma unroll
  for (int half = Lanes / 2; half > 0; half /= 2) {
    cta_sync();
    if (lane < half) {
#pragma unroll
      for (int i = 0; i < V; ++i) {
        v[i] = op(v[i], lds<T>(place(i, threadIdx.x + half * Groups)));
        sts(place(i, threadIdx.x), v[i]);
      }
    }
  }
  if constexpr (Cluster > 1) cluster_sync();
  else cta_sync();
#pragma unroll
  for (int i = 0; i < V; ++i) {
    const u32 at = place(i, threadIdx.x % Groups);
    if constexpr (Cluster == 1) {
      v[i] = lds<T>(at);
    } else {
      v[i] = lds_cluster_as<T>(at, 0);
#pragma unroll
      for (int rank = 1; rank < Cluster; ++rank) v[i] = op(v[i], lds_cluster_as<T>(at, rank));
    }
  }
}

/// Over each `Threads` threads of a block, a power of two: all of it, or groups that lie side by side. Consecutive reductions take turns with two scratch areas: whoever
/// writes the first again has passed the barrier of the second, which everyone reaches after reading the first.
template <int Threads, class Op, class T> INGOT_DEV T block_reduce(T v, Op op, u32 scratch) {
  static_assert(sizeof(T) <= kReduceSlot, "a value does not fit its slot");
  v = warp_reduce<32>(v, op);
  if constexpr (Threads > 32) {
    constexpr int kWarps = Threads / 32;
    const int lane = threadIdx.x % 32, first = threadIdx.x / Threads * kWarps;
    if (lane == 0) sts(scratch + threadIdx.x / 32 * kReduceSlot, v);
    cta_sync();
    v = warp_reduce<kWarps>(lds<T>(scratch + (first + lane % kWarps) * kReduceSlot), op);
  }
  return v;
}

/// Over the `Threads` threads, a power of two from 32 on, of each of the `Blocks` blocks of a cluster. Scratch areas take turns as above, and
/// have a slot for each warp of the cluster. All blocks have met before the first one.
template <int Threads, int Blocks, class Op, class T> INGOT_DEV T cluster_reduce(T v, Op op, u32 scratch) {
  constexpr int kWarps = Threads / 32, kAll = kWarps * Blocks, kLanes = kAll < 32 ? kAll : 32;
  v = warp_reduce<32>(v, op);
  const int lane = threadIdx.x % 32, own = (int)cluster_rank() * kWarps + threadIdx.x / 32;
  if (lane < Blocks) sts_cluster(scratch + own * kReduceSlot, v, lane);
  cluster_sync();
  v = lds<T>(scratch + lane % kLanes * kReduceSlot);
#pragma unroll
  for (int i = kLanes; i < kAll; i += kLanes) v = op(v, lds<T>(scratch + (i + lane % kLanes) * kReduceSlot));
  return warp_reduce<kLanes>(v, op);
}
