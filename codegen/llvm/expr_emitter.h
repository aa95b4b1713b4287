// ExprEmitter: scalar expressions to LLVM IR. Within a lane context one symbol (a loop index) stands for several
// consecutive values at once: what depends on it becomes a vector, everything else stays scalar ("uniform"). Loads
// whose index grows by one per lane are vector loads, other loads gathers; a guard (Select around a Load) becomes a
// mask.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "codegen/llvm/ir_tools.h"
#include "compiler/expr/expr.h"

namespace ingot::cpu {

struct BufferRef {
  llvm::Value* pointer = nullptr;
  DType type = DType::F32;
};

/// The symbol that varies by lane: its value in lane i is base + i. `mask`: the lanes in use (null: all; never none).
struct Lanes {
  std::string symbol;
  int width = 1;
  llvm::Value* base = nullptr;
  llvm::Value* mask = nullptr;
};

class ExprEmitter {
 public:
  ExprEmitter(IrTools& ir, const Machine& machine) : ir_(ir), machine_(machine) { scopes_.emplace_back(); }

  std::vector<BufferRef> buffers;  // parameters, then scratch arrays

  /// Values emitted since a scope began are forgotten at its end: open one for every block that may not run.
  class Scope {
   public:
    explicit Scope(ExprEmitter& e) : e_(e) { e_.scopes_.emplace_back(); }
    ~Scope() { e_.scopes_.pop_back(); }
    Scope(const Scope&) = delete;

   private:
    ExprEmitter& e_;
  };
  /// A lane context, which is a scope as well. Contexts do not nest.
  class LaneScope {
   public:
    LaneScope(ExprEmitter& e, Lanes lanes) : e_(e), scope_(e) { e_.lanes_ = std::move(lanes); }
    ~LaneScope() { e_.lanes_ = {}; }

   private:
    ExprEmitter& e_;
    Scope scope_;
  };
  /// Narrows the mask of stores and loads to lanes where `condition` (a vector) holds.
  class GuardScope {
   public:
    GuardScope(ExprEmitter& e, llvm::Value* condition);
    ~GuardScope() { e_.guard_ = saved_; }

   private:
    ExprEmitter& e_;
    llvm::Value* saved_;
    Scope scope_;
  };
  /// Conditions known to hold (conjuncts of guards), by structure.
  class AssumeScope {
   public:
    AssumeScope(ExprEmitter& e, std::vector<Expr> conditions) : e_(e), scope_(e) {
      e_.assumed_ = std::move(conditions);
    }
    ~AssumeScope() { e_.assumed_.clear(); }

   private:
    ExprEmitter& e_;
    Scope scope_;
  };

  void bind(const Expr& symbol, llvm::Value* value) { bound_[symbol.name()] = value; }

  /// A scalar when uniform, else a vector of lanes().width.
  llvm::Value* value(const Expr& e);
  llvm::Value* vector(const Expr& e) { return ir_.widen(value(e), lanes_.width); }
  bool varies(const Expr& e);
  const Lanes& lanes() const { return lanes_; }
  bool in_lanes() const { return !lanes_.symbol.empty(); }
  llvm::Value* mask();  // lanes in use and allowed by guards, or null for all

  llvm::Value* load(int buffer, const Expr& index);
  void store(int buffer, const Expr& index, llvm::Value* value);
  llvm::Value* address(int buffer, llvm::Value* index);
  /// Forgets every emitted value: what was loaded before a store to a scratch array may be stale.
  void forget() {
    for (Memo& m : scopes_) m.values.clear();
  }

 private:
  struct Memo {
    std::unordered_map<const void*, std::pair<Expr, llvm::Value*>> values;
    std::unordered_map<const void*, std::pair<Expr, bool>> varying;
  };
  struct Linear {  // an index as base + step*lane
    llvm::Value* base = nullptr;
    std::optional<int64_t> constant_step;
    llvm::Value* step = nullptr;
  };

  llvm::Value* emit(const Expr& e);
  llvm::Value* emit_symbol(const Expr& e);
  llvm::Value* emit_binary(const Expr& e);
  llvm::Value* difference(llvm::Value* x, llvm::Value* y);
  llvm::Value* emit_compare(const Expr& e);
  llvm::Value* emit_lane_compare(const Expr& e);
  llvm::Value* emit_select(const Expr& e);
  llvm::Value* emit_masked_select(llvm::Value* condition, const Expr& a, const Expr& otherwise);
  llvm::Value* emit_unary(const Expr& e);
  llvm::Value* load_contiguous(const BufferRef& buffer, llvm::Value* base);
  llvm::Value* load_every_other(const BufferRef& buffer, llvm::Value* base);
  llvm::Value* pointers_to(const BufferRef& buffer, llvm::Value* indices);
  llvm::Value* load_gather(const BufferRef& buffer, llvm::Value* pointers);
  llvm::Value* load_uniform(const BufferRef& buffer, llvm::Value* index);
  bool is_narrow(const Expr& e);
  llvm::Value* narrow(const Expr& e);
  llvm::Value* narrow_binary(const Expr& e);
  llvm::Value* narrow_address(const BufferRef& buffer, const Expr& index);
  llvm::Value* linear_vector(const Linear& linear);
  std::optional<Linear> linear_in_lane(const Expr& e);
  bool is_assumed(const Expr& condition) const;

  IrTools& ir_;
  const Machine& machine_;
  Lanes lanes_;
  llvm::Value* guard_ = nullptr;
  std::vector<Expr> assumed_;
  std::vector<Memo> scopes_;
  std::unordered_map<std::string, llvm::Value*> bound_;
};

/// The parts of a conjunction: And(And(a, b), c) gives a, b, c.
void conjuncts(const Expr& condition, std::vector<Expr>& out);
bool has_load(const Expr& e);
/// True when a float expression is proven to lie strictly within ±2^30 and not to be NaN: it converts without
/// saturation.
bool is_small_number(const Expr& e);

}  // namespace ingot::cpu
