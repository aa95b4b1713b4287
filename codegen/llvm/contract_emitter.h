// ContractEmitter: the tasks of a contraction kernel as LLVM IR, following a ContractPlan.
#pragma once

#include "codegen/llvm/contract_plan.h"
#include "codegen/llvm/pack_emitter.h"
#include "codegen/llvm/stmt_emitter.h"

namespace ingot::cpu {

class ContractEmitter {
 public:
  ContractEmitter(IrTools& ir, ExprEmitter& ex, StmtEmitter& stmts, const ContractPlan& plan)
      : ir_(ir), ex_(ex), stmts_(stmts), p_(plan), pack_(ir, ex) {}

  /// `scratch`: plan.scratch_bytes, 64-byte aligned.
  void emit_task(llvm::Value* task, llvm::Value* scratch);

 private:
  struct Operand {                 // element (k, i) is at pointer[k*k_step + i*side_step]
    llvm::Value *pointer = nullptr, *k_step = nullptr, *side_step = nullptr;
    bool aligned = false;
  };
  struct Panel {
    llvm::Value *first = nullptr, *count = nullptr;  // columns
    llvm::Value* packed = nullptr;                   // its part of scratch
  };
  void emit_panels(llvm::Value* first_panel, llvm::Value* last_panel, llvm::Value* first_tile, llvm::Value* last_tile);
  Panel panel_at(llvm::Value* number);
  void emit_blocked_panel(const Panel& panel, llvm::Value* first_tile, llvm::Value* last_tile);
  void pack_a(llvm::Value* first_tile, llvm::Value* last_tile, llvm::Value* k_first, llvm::Value* k_count);
  void pack_b(const Panel& panel, llvm::Value* k_first, llvm::Value* k_count);
  llvm::Value* tile_row(llvm::Value* tile);
  llvm::Value* tile_rows(llvm::Value* tile);
  void for_variant(llvm::Value* tile, const std::function<void(int rows)>& body);
  Operand a_operand(llvm::Value* tile, llvm::Value* first_tile, int rows, llvm::Value* k_count);
  Operand b_operand(const Panel& panel);
  void multiply_tile(const Panel& panel, llvm::Value* tile, llvm::Value* first_tile, llvm::Value* k_count,
                     llvm::Value* c, bool accumulate);
  void multiply(const Panel& panel, int rows, int vectors, const Operand& a, const Operand& b, llvm::Value* k_count,
                llvm::Value* c, bool accumulate);
  void multiply_body(llvm::Value* columns, int rows, int vectors, const Operand& a, const Operand& b,
                     llvm::Value* k_count, llvm::Value* c, bool accumulate);
  void multiply_step(int rows, int vectors, const Operand& a, const Operand& b, llvm::Value* k,
                     const std::vector<llvm::Value*>& masks, const std::vector<llvm::Value*>& sums);
  void dot_tile(const Panel& panel, llvm::Value* row, int rows, llvm::Value* c);
  void dot_columns(const Panel& panel, llvm::Value* row, int rows, llvm::Value* column, llvm::Value* c);
  void dot_step(llvm::Value* row, int rows, llvm::Value* column, const std::vector<llvm::Value*>& sums);
  void epilogue(const Panel& panel, llvm::Value* row, llvm::Value* rows, llvm::Value* c);
  void epilogue_run(llvm::Value* c_row, llvm::Value* offset, llvm::Value* start, llvm::Value* length);
  llvm::Value* multiply_add(llvm::Value* a, llvm::Value* x, llvm::Value* sum);
  llvm::Value* element_at(llvm::Value* pointer, llvm::Value* index) {
    return ir_.b.CreateGEP(ir_.scalar(p_.type), pointer, index);
  }
  llvm::Type* vector_type() { return ir_.vector_of(ir_.scalar(p_.type), p_.width); }
  llvm::Value* load_sum(llvm::Value* p) { return ir_.b.CreateAlignedLoad(vector_type(), p, element_align()); }
  llvm::Align element_align() const { return llvm::Align(size_of(p_.type)); }
  llvm::Value* part_of_scratch(llvm::Value* scratch, int64_t offset) {
    return ir_.b.CreateGEP(ir_.b.getInt8Ty(), scratch, ir_.i64(offset));
  }

  IrTools& ir_;
  ExprEmitter& ex_;
  StmtEmitter& stmts_;
  const ContractPlan& p_;
  PackEmitter pack_;
  llvm::Value *c_ = nullptr, *a_ = nullptr, *b_ = nullptr;  // scratch: sums, packed a, packed b
};

}  // namespace ingot::cpu
