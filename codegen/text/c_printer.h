// CPrinter: kernel IR as C-like text for one thread: statements become loops and assignments. A backend derives from it
// and overrides what it does differently (how a buffer is accessed, how a loop is shared among threads).
//
// Vector mode: the body is printed for `width` consecutive values of one index at a time. What does not depend on that
// index is computed once; neighbouring elements are loaded and stored by one access; the rest runs in a short unrolled
// loop over v, with values that later statements need in arrays.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "codegen/kernel/kernel.h"
#include "codegen/text/code_writer.h"
#include "codegen/text/expr_printer.h"

namespace ingot {

class CPrinter {
 public:
  CPrinter(const Kernel& kernel, bool i32);
  virtual ~CPrinter() = default;

  const std::string& text() const { return out_.text(); }
  const std::set<std::string>& includes() const { return expr_.includes(); }

 protected:
  /// An index that runs over `width` neighbours at a time: base + v.
  struct Lanes {
    int width = 1;
    Expr inner, base;  // base: a symbol bound to the first of them
    std::unordered_set<std::string> variant;  // symbols whose value differs between the lanes (inner among them)
  };

  virtual void body(const Body& body);
  virtual void statement(const Stmt& stmt);
  virtual void let(const Let& s);
  virtual void store(const Store& s);
  virtual void loop(const Loop& s);
  virtual void reduce(const Reduce& s);
  virtual void alloc(const Alloc& s);
  virtual void conditional(const If& s);

  /// The text of a value as an element of `type`. What is loaded from such an element is not converted there and back.
  std::string stored_text(DType type, const Expr& value);
  /// The text of one element, as an lvalue or operand: "x[i]".
  virtual std::string element(int buffer, const std::string& index);
  virtual void store_element(int buffer, const std::string& index, const std::string& stored);
  /// The most bytes of a vector access to the buffer; 0 for none. And the text of such accesses.
  virtual int access_bytes(int buffer) const;
  virtual std::string vector_load(int buffer, int width, const std::string& index);
  virtual void store_vector(int buffer, const std::string& index, const std::string& vector);
  /// The pointer that vector accesses start from.
  virtual std::string pointer(int buffer) { return buffer_name(buffer); }

  DType buffer_type(int buffer) const;
  std::string buffer_name(int buffer) const;

  /// Serial loops over axes around `print_body`.
  void loops(const std::vector<Axis>& axes, size_t first, const std::function<void()>& print_body);
  /// Binds an index to an identifier of its own, and returns that.
  std::string bind_index(const Expr& var);
  /// Splits the flat position `flat` (a name or constant text) into the axes, the last one fastest, and binds them.
  void bind_axes(const std::vector<Axis>& axes, const std::string& flat);

  // ---- reductions ----
  /// acc combined with value.
  std::string combine_text(Combine combine, DType type, const std::string& acc, const std::string& value);
  static bool is_arg(const Reduce& r) { return r.combine == Combine::ArgMax || r.combine == Combine::ArgMin; }
  /// "ArgOp<true, false>", "SumOp".
  static std::string op_type(const Reduce& r);
  std::string accumulator_type(const Reduce& r) const;
  std::string identity_text(const Reduce& r);
  /// One step: updates `acc` by r.value for the current indices.
  void accumulate(const Reduce& r, const std::string& acc);
  /// The linear position of the current indices among r.axes.
  static Expr position_of(const Reduce& r);
  void reduce_serial(const Reduce& r, const std::string& acc);
  static std::string result_text(const Reduce& r, const std::string& acc) { return is_arg(r) ? acc + ".index" : acc; }

  // ---- vector mode ----
  bool varies(const Expr& e) const;
  bool varies(const std::vector<Axis>& axes) const;
  /// Opens "for (v...)" with the inner index bound to base + v. Block and scope end with the result.
  struct LaneLoop {
    CodeWriter::Block block;
    ExprPrinter::Scope scope;
    LaneLoop(CPrinter& p, CodeWriter::Block b) : block(std::move(b)), scope(p.expr_) {}
  };
  std::unique_ptr<LaneLoop> lane_loop();
  /// Runs `print` in scalar mode inside a lane loop: for statements that differ in shape between the lanes.
  void each_lane(const std::function<void()>& print);
  /// Loads by vector access what `e` reads at neighbouring places.
  void load_vectors(const Expr& e);
  struct VectorReads {
    ExprSet seen, holds;      // holds: reads neighbours somewhere below
    std::vector<Expr> order;  // those that hold, operands before what reads them
    ExprSet by_lane;          // loads behind a condition that differs between the lanes
    ExprMap<std::set<std::string>> guards;  // conditions under which it is reached; "" is always
  };
  bool order_reads(const Expr& e, VectorReads& reads);
  void find_guards(VectorReads& reads);
  std::string condition_text(const Expr& condition, const std::string& guard);
  void load_vector(const Expr& e, std::string guard, bool by_lane);
  /// Vectors that were loaded under a guard are right for the statement that has it.
  void forget_guarded();
  /// The index of the first neighbour, if the access is neighbouring and aligned for the lanes.
  std::optional<Expr> neighbour_base(int buffer, const Expr& index) const;
  /// Runs `print` in vector mode: `inner` takes the values of `base` + 0 ... width - 1; the caller has bound `base`.
  void with_lanes(const Expr& inner, const Expr& base, int width, const std::function<void()>& print);
  /// Keeps what a nested body names out of the statements behind it.
  void nested(const std::function<void()>& print);

  const Kernel& kernel_;
  CodeWriter out_;
  ExprPrinter expr_;
  std::optional<Lanes> lanes_;
  struct LaneValue {
    std::string text;  // inside a lane loop: "sum1[v]"
    bool is_int = false;
  };
  std::unordered_map<std::string, LaneValue> arrays_;  // variant symbols by name
  ExprMap<std::string> guarded_;  // vectors of the present statement that are loaded under a guard, and which
  std::vector<Alloc> scratch_;  // in order of their buffer numbers
};

/// Calls `use` for every value, index, condition and extent in the body, nested bodies included.
void each_expr(const Body& body, const std::function<void(const Expr&)>& use);
/// Calls `use` for every access to a buffer: loads, then stores.
void each_access(const Body& body, const std::function<void(int buffer, const Expr& index, bool is_store)>& use);
/// The widest vector (8, 4, 2 or 1, at most `most`) that the accesses of `body` allow along `inner`, of the given
/// extent.
int widest_vector(const Kernel& kernel, const Body& body, const Expr& inner, const Expr& extent, int most);
/// True when e is proven to be a multiple of n.
bool is_multiple(const Expr& e, int64_t n);

}  // namespace ingot
