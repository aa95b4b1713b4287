// The printers behind cuda_printer.h, one for each kind of schedule. Internal to codegen/cuda.
#pragma once

#include <string>
#include <unordered_set>

#include <fmt/format.h>

#include "codegen/cuda/crossed_form.h"
#include "codegen/cuda/cuda_printer.h"
#include "codegen/cuda/window_form.h"
#include "codegen/text/c_printer.h"

namespace ingot {

/// What all entry points share: the signature, the dims as local constants, the includes.
class CudaPrinter : public CPrinter {
 public:
  CudaPrinter(const Kernel& kernel, const Schedule& schedule, bool i32);
  /// The whole text: includes, then what was printed.
  std::string finish() const;

 protected:
  std::string signature() const;
  /// "const f16*". Loads of what is const and __restrict__ may be moved to before the wait for the kernel's predecessor
  /// (they are ld.global.nc): only weights are.
  std::string pointer_type(int buffer) const;
  void bind_dims();          // "const int N = (int)dim_N;" for the dims that the kernel uses
  /// Before the first access to memory.
  void wait_for_inputs();
  /// The body at this position of the domain, for `vector` points from there on.
  void print_points(const std::string& position);
  bool is_written(int buffer) const { return written_.count(buffer) > 0; }
  bool is_scratch(int buffer) const { return buffer >= static_cast<int>(kernel_.buffers.size()); }
  /// An element of a scratch array in shared memory.
  std::string shared_element(int buffer, const std::string& index) const;
  std::string dim_parameter(const Expr& dim) const;

  const Schedule& schedule_;
  int blocks_per_sm_ = 1;    // Tiles: what registers must suffice for
  std::unordered_set<int> written_, read_;
};

/// Points: one thread for one point, or for `vector` neighbouring points, or for several such groups.
class PointsPrinter : public CudaPrinter {
 public:
  using CudaPrinter::CudaPrinter;
  void print();
};

/// Crossed: a block's threads read a tile along one axis, and then take its points along another.
class CrossedPrinter : public CudaPrinter {
 public:
  CrossedPrinter(const Kernel& kernel, const Schedule& schedule, bool i32);
  void print();

 protected:
  std::string element(int buffer, const std::string& index) override {
    return is_scratch(buffer) ? shared_element(buffer, index) : CudaPrinter::element(buffer, index);
  }

 private:
  /// Reads staged value `i` of the tile into an array, whose name it returns; and stores that.
  std::string print_read(size_t i);
  void print_staged(size_t i, const std::string& arrived);
  void print_points_of_tile();
  /// Opens a loop over `count` items that the block's threads share; `stem`: of the name of an item's number.
  struct Shared {
    CodeWriter::Block loop;
    std::string part, item;
  };
  Shared share(int64_t count, const char* stem);
  /// Vectors of staged value `i` across a tile.
  int64_t vectors_across(size_t i) const { return schedule_.tile.m / tile_.staged[i].vector; }
  int64_t parts_of(int64_t count) const { return (count + schedule_.threads - 1) / schedule_.threads; }
  /// "x < 7 && y < 9", where the tile may reach behind the kernel's domain; empty where it can't.
  std::string inside(const std::string& across, const std::string& last);

  CrossedForm form_;
  CrossedTile tile_;
};

/// Columns: neighbouring threads take neighbouring points (`vector` each), rows_per_block threads side by side; the others
/// of the block share their points, and divide loops and reductions among them.
class ColumnsPrinter : public CudaPrinter {
 public:
  ColumnsPrinter(const Kernel& kernel, const Schedule& schedule, bool i32)
      : CudaPrinter(kernel, schedule, i32),
        groups_(schedule.rows_per_block),
        lanes_per_point_(schedule.threads / schedule.rows_per_block) {}
  void print();

 protected:
  void store(const Store& s) override;
  void loop(const Loop& s) override;
  void reduce(const Reduce& s) override;

 private:
  void share(const std::vector<Axis>& axes, const std::function<void()>& print_body);

  int groups_, lanes_per_point_;
  int depth_ = 0;  // > 0 inside a shared loop, where each lane is on its own
};

/// Rows: some lanes share a point of the domain. Loops and reductions at the top of the body are divided among them; in a
/// loop over sums along contiguous elements (the columns of a small product), groups of lanes share each sum.
class RowsPrinter : public CudaPrinter {
 public:
  RowsPrinter(const Kernel& kernel, const Schedule& schedule, bool i32, RowShared shared)
      : CudaPrinter(kernel, schedule, i32),
        shared_(shared),
        lanes_per_row_(schedule.threads / schedule.rows_per_block * schedule.cluster_k) {}
  void print();

 protected:
  void statement(const Stmt& stmt) override;
  void store(const Store& s) override;
  void loop(const Loop& s) override;
  void reduce(const Reduce& s) override;
  void alloc(const Alloc& s) override;
  void conditional(const If& s) override;
  std::string element(int buffer, const std::string& index) override;
  void store_element(int buffer, const std::string& index, const std::string& stored) override;
  int access_bytes(int buffer) const override;
  std::string vector_load(int buffer, int width, const std::string& index) override;
  void store_vector(int buffer, const std::string& index, const std::string& vector) override;

 private:
  bool is_shared_by_lanes(int buffer) const;   // written and read in this kernel
  void order_accesses(const Stmt& stmt);
  /// "for (i = lane; ...)" over the flattened axes, in vector mode where the accesses allow it.
  void share(const std::vector<Axis>& axes, const Body& work, const std::function<void()>& print_body);
  /// The same for some lanes: "for (i = lane; ...; i += lanes)".
  void share_among(const std::string& lane, int lanes, const std::vector<Axis>& axes, const Body& work,
                   const std::function<void()>& print_body);
  int lanes_of_sum(const Loop& s) const;
  void finish_reduce(const Reduce& r, const std::string& acc);
  /// Each block of the cluster fills the scratch arrays of the loop by itself.
  bool is_repeated(const Loop& s) const;
  /// Blocks of the cluster store to each other's scratch arrays.
  bool tells_others() const;
  /// Those that share the loop at the top which is being printed.
  int sharers() const { return repeating_ ? schedule_.threads : lanes_per_row_; }
  void loop_by_groups(const Loop& s, int lanes, const std::function<void()>& print_body);
  // ---- weights in registers before the wait (rows_weights.cpp) ----
  /// A loop of groups of lanes, in so many passes over its sums and steps along them; while it is printed, its indices.
  struct HeldStage {
    const Loop* loop = nullptr;
    int64_t passes = 1, parts = 1;
    int width = 1;
    std::string pass, part;
  };
  /// A weight that the stage loads: of a step, or of a sum.
  struct HeldWeight {
    const Loop* loop = nullptr;
    Expr load;
    bool of_step = true;
    std::string array;
  };
  /// Nothing where that would take too many registers, or where a block has work enough besides.
  std::optional<HeldStage> held_stage(const Loop& s, int lanes) const;
  void hold_weights();
  void hold(const Loop& s, int lanes);
  void declare_held(const Expr& value, bool of_step);
  std::string place_of(const HeldWeight& weight) const;
  void load_held(bool of_step);
  /// Weights of a step, or of a sum, are where they are held.
  void bind_held(bool of_step);

  // ---- rows in registers (held_rows.cpp) ----
  /// Declares arrays for what several passes load alike, where all lanes of a block or a cluster share a row: it is loaded by the first of them.
  void hold_rows();

  RowShared shared_;
  int lanes_per_row_;
  RowPass held_pass_;                      // the passes that load what is held
  std::map<int, std::string> held_rows_;   // buffer -> array
  std::unordered_set<int> loaded_rows_;    // those that a pass has loaded
  std::string row_step_;                   // in such a pass: the step's name
  bool guarded_ = false;     // fewer than 32 lanes a row: lanes of rows behind the last repeat it and store nothing
  bool guard_stores_ = false;
  int depth_ = 0;            // > 0 inside a shared loop, where each lane is on its own
  int group_ = 1;            // lanes that share an iteration of the loop of depth 1
  int reductions_ = 0, scratch_used_ = 0;
  std::unordered_set<int> dirty_, read_since_;   // scratch written or read since the last barrier
  std::unordered_set<int> repeated_;             // scratch that no block tells others
  bool repeating_ = false;
  std::optional<HeldStage> stage_;
  std::vector<HeldWeight> held_;
};

/// A vector that an epilogue reads: the load, the index of its first element, and what it is called.
struct EpilogueInput {
  Expr load, base;
  std::string name;
};

/// Prints one function of a functor: buffers and dims are members of `args`.
class FunctorPrinter : public CudaPrinter {
 public:
  using CudaPrinter::CudaPrinter;

  void bind_args();
  /// Binds the axes by splitting the parameter `flat`, if `uses` mentions one of them.
  bool split(const std::vector<Axis>& axes, const std::string& flat, const Body& uses);
  void print_value(const Expr& value);
  /// print_value in vector mode. `arriving`, if valid: a load whose values are in x[v].
  void vectorise(const Expr& inner, const Expr& base, int width, const Expr& value, const Expr& arriving = {});
  /// The load of `width` neighbours as one access; empty where they are none.
  std::string neighbours_text(const Expr& inner, const Expr& base, int width, const Expr& load);
  /// Touches what the value loads besides `arriving`.
  void print_touch(const Expr& inner, const Expr& base, const Expr& value, const Expr& arriving);
  void print_body(const Body& b) { body(b); }
  /// "struct Inputs" and "Inputs load(batch, m, n) const": what the epilogue of `width` neighbours reads. `split` binds the
  /// axes that the given body mentions.
  std::vector<EpilogueInput> print_inputs(const Axis& axis, const Expr& base, int width, const Contract& contract,
                                          const char* n_name, const std::function<void(const Body&)>& split);
  /// The body for `width` neighbours, the results in acc[v], the inputs in `in`.
  void vectorise_epilogue(const Axis& axis, const Expr& base, int width, const Contract& contract,
                          const std::vector<EpilogueInput>& inputs);
  /// The same for a result that leaves as out[v], and what has been loaded into its place.
  void vectorise_staged(const Axis& axis, const Expr& base, const Contract& contract, const std::vector<EpilogueInput>& inputs,
                        const StagedResults& staged);
  /// What is staged is no member of `in`, and weights are.
  void stage(const StagedResults& staged) { staged_ = &staged; }
  /// "void value(batch, m, n, acc) const" and "combine(x, y)": what the rows of a group become, and are combined by.
  void print_group(const Axis& axis, const Expr& base, int width, const Contract& contract, const std::function<void(const Body&)>& split);
  /// "row.of[0] = ...;" for each value of the row. A sum of neighbours in memory is read by vectors.
  void print_row_values(const Contract& contract);
  /// The epilogue's names for the values of its row stand for the given text of each.
  void bind_row_values(const Contract& contract, const std::function<std::string(size_t)>& text);
  /// "add(stored, sums)" and "store_sums(batch, m, n, sums) const" (prelude/row_parts.cuh).
  void print_part_sums(const RowParts& parts, const std::vector<const char*>& row, const char* column, const std::function<void(const Body&)>& split);
  /// Of `width` neighbours: acc[v] becomes `value`, an expression over `acc`.
  void change_results(const Axis& axis, const Expr& base, int width, const Expr& acc, const Expr& value);
  /// "combine(x, y)"
  void print_combination(Combine combine, DType type);
  void bind_acc(const Expr& acc, const char* text) { expr_.bind(acc, text, false); }
  void bind_index_text(const Expr& var, const std::string& text) { expr_.bind(var, text, expr_.i32()); }
  std::string value(const Expr& e) { return expr_.value(e); }
  std::string fresh(const std::string& stem) { return expr_.fresh(stem); }
  std::string pointer_to(int buffer, const Expr& index) {
    return fmt::format("{} + {}", pointer(buffer), expr_.operand(index));
  }
  CodeWriter& writer() { return out_; }

 protected:
  std::string element(int buffer, const std::string& index) override {
    return fmt::format("args.{}[{}]", buffer_name(buffer), index);
  }
  std::string pointer(int buffer) override { return "args." + buffer_name(buffer); }

 private:
  std::vector<EpilogueInput> epilogue_inputs(const Contract& contract) const;
  void bind_results(const Contract& contract, const std::vector<EpilogueInput>& inputs);

  const StagedResults* staged_ = nullptr;
};

/// What the printers of products have in common: arguments in a struct, and the functors of operands and results.
class ProductPrinter : public CudaPrinter {
 public:
  using CudaPrinter::CudaPrinter;

 protected:
  void print_args();
  /// Opens the entry point: shared memory, and `args`.
  void open_entry();
  void bind_args_of_entry();
  /// "const int m_end = ...;"
  void print_extent(const std::vector<Axis>& axes, const char* name);
  /// The functor of an operand for tensor cores (cuda_mma.cpp); `contract` says which axes are k and batch. `arriving`, if
  /// valid: a load of the operand whose values the functor is given.
  void print_operand(const char* name, const Contract& contract, const Expr& operand, const std::vector<Axis>& side,
                     const char* side_name, bool along_k, int vector, bool raw, const Expr& arriving = {});
  /// Of a value that is the product of what arrives and of another stored element, the latter: pairs of both are multiplied by one
  /// instruction, and rounded as the value is. Invalid: it is another one.
  Expr factor_of_pairs(const Expr& value, const Expr& arriving) const;
  /// The functor of `vector` neighbouring results along the last axis of n, or of m.
  void print_results(const Contract& contract, bool along_m, int vector, const char* n_name);
  /// The functor of two neighbouring results along n that leave by TMA (prelude/staged_results.cuh).
  void print_staged_results(const Contract& contract, const StagedResults& staged);
  /// "struct Rows" and "Rows rows(batch, m) const" of an epilogue.
  void print_rows(const Contract& contract);
  /// The row's values in shared memory: "put_rows(batch, m) const", and where they are.
  void print_rows_in_shared(const Contract& contract);
  void print_parts(const Contract& contract);
  void splice(const FunctorPrinter& f);
};

/// Attention: the functors, the plan and the entry point around prelude/attention.cuh.
class AttentionPrinter : public ProductPrinter {
 public:
  AttentionPrinter(const Kernel& kernel, const Schedule& schedule, bool i32);
  void print();

 private:
  void print_plan();
  void print_score();
  void print_starts();
  void print_limit(const char* name, const Expr& bound);
  void print_logit(const char* name, const Expr& logit);

  const Attend& attend_;
  AttentionDetails details_;
};

/// Windows: the functors, the plan and the entry point around prelude/window.cuh.
class WindowPrinter : public ProductPrinter {
 public:
  WindowPrinter(const Kernel& kernel, const Schedule& schedule, bool i32);
  void print();

 private:
  void print_plan();
  void print_window();
  void print_load(FunctorPrinter& f, const char* head, const Expr& load, const std::vector<std::pair<Expr, const char*>>& indices);
  void print_inside(FunctorPrinter& f, const char* name, const WindowSide& side, const char* at);
  /// A function of a functor that has `vector` neighbouring values over `acc`: at the place (outer, y, x, c), or of a line.
  void print_call(FunctorPrinter& f, const char* name, bool of_line, const Body& uses, const std::function<void(const Expr& base)>& print);
  void print_results(FunctorPrinter& f, bool of_line, const Expr& acc, const Body& results);
  void print_epilogue();
  void print_line();
  void print_parts_of_channels();

  WindowForm form_;
};

/// Tiles: the functors, the plan and the entry point around a main loop of the prelude.
class TilesPrinter : public ProductPrinter {
 public:
  TilesPrinter(const Kernel& kernel, const Schedule& schedule, bool i32);
  void print();

 private:
  void print_plan();
  void print_prologue(const char* name, const Expr& value, const std::vector<Axis>& side, const char* side_name,
                      bool along_k, int vector);
  void print_epilogue();
  void print_entry();
  bool is_mma() const { return schedule_.unit != MultiplyUnit::Simt; }
  // ---- tensor cores (cuda_mma.cpp) ----
  void print_mma();
  void print_mma_plan();
  /// Nothing in it waits for the launch in front.
  bool comes_early(const Expr& operand) const;
  /// Plan::a_early and b_early, which it returns.
  std::pair<bool, bool> print_early();
  /// The functor of rows of A that arrive by TMA: empty where A is what arrives.
  void print_change_of_a();
  // rows as they lie in memory
  void print_product_of_rows();
  void print_lines(const WindowLines& lines);
  void print_rows_call();
  void print_window();
  const char* acc_type() const { return c_type(contract_.acc.type()); }

  const Contract& contract_;
  TileDetails details_;
};

}  // namespace ingot
