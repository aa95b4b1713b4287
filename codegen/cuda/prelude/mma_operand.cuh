// One operand of contraction_mma.cuh: a thread's share of its tile, the way into the ring in shared memory, and the way
// from there into the registers of an mma. Functors and plan are described there.
#pragma once
#include "prelude/cp_async.cuh"
#include "prelude/mma.cuh"

template <class T> struct MmaTraits;
template <> struct MmaTraits<f16> { static constexpr int type = kF16, k = 16; typedef float sum; };
template <> struct MmaTraits<bf16> { static constexpr int type = kBF16, k = 16; typedef float sum; };
template <> struct MmaTraits<float> { static constexpr int type = kTF32, k = 8; typedef float sum; };
template <> struct MmaTraits<i8> { static constexpr int type = kS8, k = 32; typedef int sum; };
template <> struct MmaTraits<f8e4m3> { static constexpr int type = kE4M3, k = 32; typedef float sum; };
/// What an instruction takes the operands of a plan as: each of 8 bits may be of the other kind.
template <class Plan> constexpr int mma_type() {
  constexpr int type = MmaTraits<typename Plan::element>::type;
  if constexpr (sizeof(typename Plan::element) > 1) return type;
  else return type + (Plan::a_other ? kOtherA : 0) + (Plan::b_other ? kOtherB : 0);
}
/// Tensor cores keep few bits of a sum of f8 products: they add a step up, and additions that round the steps.
template <class Plan> constexpr bool sums_settle() { return MmaTraits<typename Plan::element>::type == kE4M3; }

INGOT_DEV void set_element(float& to, float value) { to = value; }
INGOT_DEV void set_element(f16& to, float value) { to = to_f16(value); }
INGOT_DEV void set_element(bf16& to, float value) { to = to_bf16(value); }
INGOT_DEV void set_element(i8& to, int value) { to = (i8)value; }  // of either sign: the bits are the same

/// How many elements of a vector are there: all or none, or as many as the functor says.
template <int Vector> INGOT_DEV int elements_of(bool inside) { return inside ? Vector : 0; }
template <int Vector> INGOT_DEV int elements_of(int there) { return there; }

/// One operand: a thread's share of its tile, the way into shared memory, and the way from there into registers.
/// Bytes lie along k in shared memory, whatever their direction in memory: the matrix loads transpose pairs of bytes only. Where
/// they do not lie along k there, a thread fetches four rows, and turns them into words.
/// `Swizzled`: in the form that wgmma reads, 128-byte rows whose 16-byte chunks are permuted; an operand that is not
/// along k lies in panels of 64 columns.
template <class Plan, class Prologue, int Tile, bool AlongK, int Vector, bool Raw, bool Table, bool Swizzled = false>
struct MmaOperand {
  typedef typename Plan::element T;
  typedef typename Plan::index Index;
  static constexpr int kSize = sizeof(T);
  // Rows start 4 words apart modulo 32 where 16 bytes are read at a time, and 8 words where single words are.
  static constexpr bool kTurned = kSize == 1 && !AlongK, kRowsAlongK = AlongK || kTurned;
  static constexpr int kPad = Swizzled ? 0 : kRowsAlongK || kSize == 2 ? 16 : 32;
  static constexpr int kUnit = kTurned ? 4 : 1;  // rows that a thread has at a time
  static constexpr int kLong = AlongK ? Plan::tile_k : Tile, kRows = AlongK ? Tile : Plan::tile_k / kUnit;
  static constexpr int kRow = (kRowsAlongK ? Plan::tile_k : Tile) * kSize + kPad;
  static constexpr int kBytes = (kRowsAlongK ? Tile : Plan::tile_k) * kRow;
  static_assert(!Swizzled || kRow % 128 == 0, "a row is no multiple of the panel");
  static constexpr int kAcross = kLong / Vector, kTotal = kRows * kAcross;
  static constexpr int kVectors = (kTotal + Plan::threads - 1) / Plan::threads;
  static constexpr bool kAsync = Raw && Vector * kSize >= 4 && !kTurned, kWhole = kTotal % Plan::threads == 0;
  // The depths of the stages on their way, computed by one thread each.
  typedef typename Prologue::Depth Depth;
  static constexpr bool kTable = Table && !AlongK;
  static constexpr int kAhead = kAsync ? Plan::stages - 1 : 1;
  static constexpr int kTableBytes = kTable ? (kAhead + 1) * Plan::tile_k * (int)sizeof(Depth) : 0;
  u32 table;
  static constexpr int kSides = AlongK || Plan::threads % kAcross != 0 ? kVectors : 1;
  static_assert(kLong % Vector == 0, "a row of the tile is no multiple of the vector");
  typename Prologue::Side side[kSides];
  bool inside[kSides];
  T staged[kAsync ? 1 : kVectors * kUnit][Vector];

  // Whole rows at a time, as a rule: then a thread stays in its column, and its rows are a constant apart.
  static constexpr bool kRowwise = Plan::threads % kAcross == 0;
  static INGOT_DEV int row_of(int j) {
    return kRowwise ? (int)(threadIdx.x / kAcross) + j * (Plan::threads / kAcross)
                    : (int)(threadIdx.x + j * Plan::threads) / kAcross;
  }
  static INGOT_DEV int column_of(int j) {
    return (kRowwise ? (int)(threadIdx.x % kAcross) : (int)(threadIdx.x + j * Plan::threads) % kAcross) * Vector;
  }
  static INGOT_DEV int k_of(int j, int u = 0) { return AlongK ? column_of(j) : row_of(j) * kUnit + u; }
  static INGOT_DEV bool mine(int j) { return kWhole || threadIdx.x + j * Plan::threads < kTotal; }
  static INGOT_DEV u32 place_of(int j, int ahead = 0) {
    const int along = column_of(j) + ahead, r = kTurned ? along : row_of(j), byte = kTurned ? k_of(j) : along * kSize;
    if constexpr (!Swizzled) return r * kRow + byte;
    else if constexpr (kRowsAlongK) return r * 128 + (byte ^ r % 8 * 16);
    else return byte / 128 * (kRows * 128) + r * 128 + ((byte ^ r % 8 * 16) & 127);
  }

  INGOT_DEV void start(const Prologue& prologue, Index b, Index x0, Index x_end) {
#pragma unroll
    for (int j = 0; j < kSides; ++j) {
      const Index x = x0 + (AlongK ? row_of(j) : column_of(j));
      inside[j] = x < x_end;
      side[j] = prologue.side(b, inside[j] ? x : x0);
    }
  }
  /// Fills the table for one step.
  INGOT_DEV void prepare(const Prologue& prologue, Index step, Index k_begin) const {
    if constexpr (kTable) {
      for (int i = threadIdx.x; i < Plan::tile_k; i += Plan::threads)
        sts(entry(step, i), prologue.depth(k_begin + step * Plan::tile_k + i));
    }
  }
  INGOT_DEV u32 entry(Index step, int k) const {
    return table + ((int)(step % (kAhead + 1)) * Plan::tile_k + k) * (int)sizeof(Depth);
  }
  /// Of element `i` of a step, which is `k` of all.
  INGOT_DEV Depth depth_of(const Prologue& prologue, Index step, int i, Index k) const {
    if constexpr (kTable) return lds<Depth>(entry(step, i));
    else return prologue.depth(k);
  }
  INGOT_DEV void copy(const Prologue& prologue, u32 stage, Index step, Index k_begin, Index k_end) {
    if constexpr (kAsync) {
      // One after the other where the side is the same: all at once would take the registers of the multiplication.
#pragma unroll(kSides == 1 ? 2 : kVectors)
      for (int j = 0; j < kVectors; ++j) {
        if (!mine(j)) continue;
        const Index k = k_begin + step * Plan::tile_k + k_of(j);
        const T* from;
        const bool in = inside[kSides == 1 ? 0 : j] && k < k_end;
        const int there = elements_of<Vector>(prologue.at(from, side[kSides == 1 ? 0 : j], depth_of(prologue, step, k_of(j), k)));
        cp_async_some<Vector * kSize>(stage + place_of(j), from, in ? there * kSize : 0);
      }
    }
  }
  INGOT_DEV void fetch(const Prologue& prologue, Index step, Index k_begin, Index k_end) {
    if constexpr (!kAsync) {
#pragma unroll
      for (int i = 0; i < kVectors * kUnit; ++i) {
        const int j = i / kUnit, u = i % kUnit;
        const Index k = k_begin + step * Plan::tile_k + k_of(j, u);
        const bool in = mine(j) && inside[j % kSides] && k < k_end;
        fetch_one(prologue, staged[i], side[j % kSides], depth_of(prologue, step, in ? k_of(j, u) : 0, in ? k : k_begin), in);
      }
    }
  }
  static INGOT_DEV void fetch_one(const Prologue& prologue, T (&to)[Vector], const typename Prologue::Side& s,
                                  const Depth& depth, bool in) {
    Vec<T, Vector> v = {};
    if constexpr (Raw) {
      const T* from;
      if (prologue.at(from, s, depth) && in) v = load_vec<Vector>(from);
    } else {
      // What is outside has the place of something inside: loads without a condition are on their way together.
      typename MmaTraits<T>::sum values[Vector];
      prologue(values, s, depth);
#pragma unroll
      for (int i = 0; i < Vector; ++i) set_element(v[i], in ? values[i] : 0);
    }
#pragma unroll
    for (int i = 0; i < Vector; ++i) to[i] = v[i];
  }
  INGOT_DEV void store(u32 stage) const {
    if constexpr (!kAsync) {
#pragma unroll
      for (int j = 0; j < kVectors; ++j) {
        if (!mine(j)) continue;
        if constexpr (kTurned) {
#pragma unroll
          for (int i = 0; i < Vector; ++i) {
            Vec<T, kUnit> word;
#pragma unroll
            for (int u = 0; u < kUnit; ++u) word[u] = staged[j * kUnit + u][i];
            sts(stage + place_of(j, i), word);
          }
          continue;
        }
        constexpr int kGroup = Vector * kSize > 16 ? 16 / kSize : Vector;
#pragma unroll
        for (int g = 0; g < Vector; g += kGroup) {
          Vec<T, kGroup> v;
#pragma unroll
          for (int i = 0; i < kGroup; ++i) v[i] = staged[j][g + i];
          sts(stage + place_of(j, g), v);
        }
      }
    }
  }

  /// 16 rows from x on, MmaTraits::k elements from k on: the A operand of an mma.
  static INGOT_DEV void load16(u32 (&r)[4], u32 stage, int x, int k) {
    const int lane = threadIdx.x % 32;
    if constexpr (kRowsAlongK) {
      ldmatrix4(stage + (x + lane % 16) * kRow + k * kSize + lane / 16 * 16, r);
    } else if constexpr (kSize == 2) {
      ldmatrix4_trans(stage + (k + lane % 8 + lane / 16 * 8) * kRow + (x + lane / 8 % 2 * 8) * 2, r);
    } else {
      const u32 at = stage + (k + lane % 4) * kRow + (x + lane / 4) * 4;
      r[0] = lds<u32>(at);
      r[1] = lds<u32>(at + 32);
      r[2] = lds<u32>(at + 4 * kRow);
      r[3] = lds<u32>(at + 4 * kRow + 32);
    }
  }
  /// The same as two B operands of 8 columns each: {first low k, first high k, second low k, second high k}.
  static INGOT_DEV void load8x2(u32 (&r)[4], u32 stage, int x, int k) {
    const int lane = threadIdx.x % 32;
    if constexpr (kRowsAlongK) {
      ldmatrix4(stage + (x + lane % 8 + lane / 16 * 8) * kRow + k * kSize + lane / 8 % 2 * 16, r);
    } else if constexpr (kSize == 2) {
      ldmatrix4_trans(stage + (k + lane % 16) * kRow + (x + lane / 16 * 8) * 2, r);
    } else {
      const u32 at = stage + (k + lane % 4) * kRow + (x + lane / 4) * 4;
      r[0] = lds<u32>(at);
      r[1] = lds<u32>(at + 4 * kRow);
      r[2] = lds<u32>(at + 32);
      r[3] = lds<u32>(at + 4 * kRow + 32);
    }
  }
};
