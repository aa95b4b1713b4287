// The kernel IR: what one fused group computes, as loops over scalar expressions. CUDA text and LLVM IR are printed from it;
// interpret.h executes it and so defines what it means.
//
// A kernel runs `body` once for every point of `domain`, in any order and in parallel: no point may read what another
// writes. Within a point, statements run in order.
//   Let       binds a symbol for the statements after it in the same body (and bodies nested in them)
//   Store     buffer[index] = value, converted to the buffer's type (round to nearest even)
//   Loop      runs its body for each value of its variables; iterations are independent of each other
//   Reduce    binds `result`: the combination of `value` over all values of the variables, starting from `init`. Order is
//             not defined. ArgMax/ArgMin bind the linear position (i64) of the extreme value (the first; the last with
//             `last`), NaN counting as the extreme value
//   Alloc     a scratch array private to the point (numbered after the parameters), written by Store and read by Load
//   If        runs its body when the condition holds
//   Contract  for all (batch, m, n): acc = sum over k of a*b, accumulated in acc's type; then `epilogue` runs once with
//             acc bound. `a` depends on batch, m, k only and `b` on batch, k, n only. The only statement of its body; the
//             domain is empty. Backends tile it by the Schedule. With `group` axes, rows are (m, group): combined = the
//             combination of `value`, an expression over acc, over all of the group, and the epilogue runs once for all
//             (batch, m, n) with `combined` bound in place of acc. `rows` binds what the epilogue needs of (batch, m) alone.
//             With `parts`, what the epilogue stores is also added up over every `width` neighbours along n, the only axis
//   Attend    for all (batch, m, d): acc = sum over n of w(n)*value, where w is the softmax over n of `score`, an expression
//             over dot = sum over k of q*key; then `epilogue` runs once with acc bound. `q` depends on batch, m, k only, `key`
//             on batch, n, k, `score` on batch, m, n and dot, `value` on batch, n, d. Alone, like a Contract
//   Note      a comment for the reader of the generated text
// Index symbols are Expr::index(name, extent), unique in the kernel. Extents are expressions over `dims`.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "compiler/expr/combine.h"
#include "compiler/expr/expr.h"
#include "compiler/support/dtype.h"

namespace ingot {

struct Axis {
  Expr var;     // Expr::index
  Expr extent;
};

struct Stmt;
using Body = std::vector<Stmt>;

struct Let { Expr var; Expr value; };
struct Store { int buffer = 0; Expr index; Expr value; };
struct Loop { std::vector<Axis> axes; Body body; };
struct Reduce {
  Expr result;
  Combine combine = Combine::Sum;
  Expr init;                   // ignored by ArgMax and ArgMin
  std::vector<Axis> axes;
  Expr value;
  bool last = false;
};
struct Alloc { int buffer = 0; std::string name; DType type = DType::F32; Expr size; };
struct If { Expr condition; Body body; };
/// Sums over parts of a product's rows: for all (batch, m) and each part of `width` results along n, `sums` are stores of the
/// sums of their values, which are expressions over `stored`: what the epilogue binds under that name and stores.
struct RowParts {
  int width = 0;               // 0: none
  Axis part;                   // n / width
  Expr stored;                 // Expr::local, f32
  std::vector<Store> sums;     // of f32; their index depends on batch, m and part
};
struct Contract {
  std::vector<Axis> batch, m, n, k;
  Expr a, b;                   // the elements, in the accumulator's type
  Expr acc;                    // Expr::local
  Body epilogue;               // Let, Store, If
  DType a_type = DType::F32, b_type = DType::F32;  // what the operands are stored as: picks the multiply unit
  std::vector<Axis> group = {};  // more rows, which the epilogue does not tell apart; then the following are valid
  Combine combine = Combine::Sum;
  Expr value = {}, combined = {};  // combined: Expr::local
  Body rows = {};              // Let
  RowParts parts = {};
};
/// The result of a row all of whose logits are -inf: NaN, or zero; with NanIsZero also that of a row of which one is NaN.
enum class NoLogit : uint8_t { Nan, Zero, NanIsZero };
struct Attend {
  std::vector<Axis> batch, m, n, k, d;  // queries, keys, the channels of both, the channels of values
  Expr q, key, value;                   // f32
  Expr dot, score;                      // dot: Expr::local
  Expr acc;                             // Expr::local
  Body epilogue;
  NoLogit no_logit = NoLogit::Nan;
  DType q_type = DType::F32, v_type = DType::F32;  // what all operands are multiplied as; what values are stored as
};
struct Note { std::string text; };

struct Stmt {
  std::variant<Let, Store, Loop, Reduce, Alloc, If, Contract, Attend, Note> node;
  template <class T>
  const T* as() const { return std::get_if<T>(&node); }
};

struct Buffer {
  std::string name;            // "x", "w", "out0": an identifier, unique in the kernel
  DType type = DType::F32;
  std::vector<Expr> shape;     // for comments and bounds checks; the element count is its product
  bool is_output = false;
  bool is_constant = false;    // a weight: never changes between launches
  Expr part = {};              // how many of its elements the kernel touches; invalid: all
  bool is_early = false;       // complete before the launch in front of this one starts: may be read while that one runs
};

/// What multiplies in a contraction: plain arithmetic, or tensor cores on operands of that type. Tf32x3 is f32 accuracy from
/// three tf32 products; Tf32 is one of them. Bytes: integers of 8 bits, of either sign, with sums in 32 bits. F8: e4m3 or e5m2.
enum class MultiplyUnit : uint8_t { Simt, F16, BF16, Tf32x3, Tf32, Bytes, F8 };
const char* name_of(MultiplyUnit unit);

/// A tile of a contraction on tensor cores.
struct MmaTile {
  int m = 64, n = 64, k = 32;
  int warp_m = 32, warp_n = 32;  // of a warp; of a warpgroup (four warps) with `warpgroups`
  int k_warps = 1;               // warps that share a warp's tile, each with its part of k
  int stages = 3;
  bool warpgroups = false;       // wgmma in place of mma.sync
  bool overlap = false;          // wgmma: one product stays in flight while the next stage is waited for
  bool boxes = false;            // wgmma, and attention whose warps share keys: operands arrive as boxes (TMA), sent for by threads of their own
  bool in_turn = false;          // with `boxes`: two teams of warpgroups, a tile each; one multiplies while the other stores
  bool split = false;            // with `boxes`: f32 as two tf32 each, their small parts beside them (prelude/split_product.cuh)
  int row_teams = 0;             // with `boxes`: rows as they lie in memory (prelude/contraction_rows.cuh), by so many warpgroups
  int teams() const { return row_teams > 0 ? row_teams : in_turn ? 2 : 1; }
  int groups() const { return m / warp_m * (n / warp_n) * teams(); }  // warps or warpgroups that multiply
  int threads() const {
    const int senders = boxes && row_teams == 0 ? (warpgroups && groups() > 1 ? 128 : 32) : 0;
    return groups() * k_warps * (warpgroups ? 128 : 32) + senders;
  }
  bool operator==(const MmaTile&) const = default;
};

/// What a planner chose. Plain numbers: printed, parsed from an override file, hashed with the kernel.
struct Schedule {
  enum class Kind : uint8_t { Points, Crossed, Columns, Rows, Tiles, Attention, Window } kind = Kind::Points;
  int threads = 256;           // CUDA: threads of a block
  int vector = 1;              // elements of one access along the innermost axis
  int points_per_thread = 1;   // Points
  int rows_per_block = 1;      // Rows, Columns: points (of `vector` neighbours) that a block works on; the other threads
                               // share them: threads / rows_per_block lanes each
  int tile_m = 64, tile_n = 64, tile_k = 16, thread_m = 4, thread_n = 4, stages = 2, split_k = 1;  // Tiles, plain arithmetic
  MultiplyUnit unit = MultiplyUnit::Simt;  // Tiles
  MmaTile tile;                  // tensor cores; attention: m queries and n keys at a time; Crossed: m positions across by n along
                                 // the stores; windows: m rows and n columns of outputs of a thread, and k vectors of channels of
                                 // a block that has whole lines (0: blocks have whatever follows)
  bool shared_weights = false;   // Window: each thread has its weights in shared memory, and not in registers
  int cluster_k = 1;             // tensor cores: blocks of a cluster that share a tile, each with its part of k
  int grid_k =
      1;  // tensor cores with boxes: blocks that divide the k of a tile, whose parts of the sums meet in memory
  // Tiles with extents known at run time only come in forms: this one is launched for [from, below) results (0: no limit).
  int64_t from = 0, below = 0;
  int most_blocks = 0;           // tensor cores with boxes: blocks of a launch, which go on from tile to tile
};
std::string to_string(const Schedule& schedule);

struct Kernel {
  std::string name = "kernel";          // a pure function of the content once named (codegen/text/kernel_name.h)
  std::vector<std::string> header;      // comment lines: fused operators, types, plan
  std::vector<Buffer> buffers;          // parameters, in order
  std::vector<Expr> dims;               // i64 symbols passed by value after the buffers, in order
  std::vector<Axis> domain;
  Body body;
  Schedule schedule;
  int64_t flops_per_point = 0;          // for the profile; a Contract counts 2*m*n*k by itself

  const Contract* contract() const;     // the Contract statement of a contraction kernel, or null
  const Attend* attend() const;         // the same for attention
};

/// A contraction whose epilogue binds by itself what depends on the row alone, for backends that have no other place for it.
Kernel rows_in_epilogue(Kernel kernel);

/// The text form: one statement a line, braces for nesting.
std::string to_string(const Kernel& kernel);

}  // namespace ingot
