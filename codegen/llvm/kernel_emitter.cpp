#include "codegen/llvm/kernel_emitter.h"

#include "codegen/llvm/contract_emitter.h"
#include "compiler/expr/simplify.h"

namespace ingot::cpu {
namespace {

using llvm::Function;
using llvm::Value;

class KernelEmitter {
 public:
  KernelEmitter(llvm::Module& module, const Kernel& kernel, const CpuPlan& plan, const Machine& machine)
      : ir_(module), kernel_(kernel), plan_(plan), ex_(ir_, machine), stmts_(ir_, ex_, machine) {}

  void emit() {
    Function* work = emit_work();
    emit_entry(work);
  }

 private:
  llvm::Type* pointer() { return llvm::PointerType::getUnqual(ir_.b.getContext()); }

  /// The tasks, with every buffer as a parameter of its own: only parameters can be declared free of aliases.
  Function* emit_work() {
    llvm::Type* i64 = ir_.b.getInt64Ty();
    std::vector<llvm::Type*> types(kernel_.buffers.size(), pointer());
    types.insert(types.end(), kernel_.dims.size() + 2, i64);
    types.push_back(pointer());
    Function* f = Function::Create(llvm::FunctionType::get(ir_.b.getVoidTy(), types, false), Function::InternalLinkage,
                                   kernel_.name + ".work", ir_.module);
    f->addFnAttr(llvm::Attribute::NoInline);
    f->setDoesNotThrow();
    ir_.function = f;
    ir_.b.SetInsertPoint(llvm::BasicBlock::Create(ir_.b.getContext(), "entry", f));
    unsigned n = 0;
    for (const Buffer& buffer : kernel_.buffers) {
      f->addParamAttr(n, llvm::Attribute::NoAlias);
      f->addParamAttr(n, llvm::Attribute::NoCapture);
      if (!buffer.is_output) f->addParamAttr(n, llvm::Attribute::ReadOnly);
      f->getArg(n)->setName(buffer.name);
      ex_.buffers.push_back({f->getArg(n++), buffer.type});
    }
    for (const Expr& dim : kernel_.dims) {
      f->getArg(n)->setName(dim.name());
      ex_.bind(dim, f->getArg(n++));
    }
    Value *first = f->getArg(n), *last = f->getArg(n + 1);
    scratch_ = f->getArg(n + 2);
    f->addParamAttr(n + 2, llvm::Attribute::NoAlias);
    place_arrays();
    ir_.loop(first, last, 1, [&](Value* task) {
      if (plan_.contract) ContractEmitter(ir_, ex_, stmts_, *plan_.contract).emit_task(task, scratch_);
      else points_task(*plan_.points, task);
    });
    for (Value* array : heap_) ir_.b.CreateCall(host_function("ingot_free", ir_.b.getVoidTy(), pointer()), array);
    ir_.b.CreateRetVoid();
    return f;
  }

  llvm::FunctionCallee host_function(const char* name, llvm::Type* result, llvm::Type* argument) {
    return ir_.module.getOrInsertFunction(name, llvm::FunctionType::get(result, {argument}, false));
  }

  /// Gives every scratch array its memory, once a call.
  void place_arrays() {
    auto& b = ir_.b;
    for (const ScratchArray& a : plan_.scratch.arrays) {
      Value* memory = nullptr;
      if (a.offset >= 0) {
        memory = b.CreateGEP(b.getInt8Ty(), scratch_, ir_.i64(a.offset));
      } else {
        Value* bytes = b.CreateMul(ex_.value(a.size), ir_.i64(static_cast<int64_t>(size_of(a.type))));
        memory = b.CreateCall(host_function("ingot_allocate", pointer(), b.getInt64Ty()), bytes);
        heap_.push_back(memory);
      }
      const auto index = static_cast<size_t>(a.buffer);
      if (ex_.buffers.size() <= index) ex_.buffers.resize(index + 1);
      ex_.buffers[index] = {memory, a.type};
    }
  }

  void points_task(const PointsPlan& p, Value* task) {
    auto& b = ir_.b;
    ExprEmitter::Scope scope(ex_);
    Value* chunks = ex_.value(p.chunks);
    Value* block = b.CreateUDiv(task, chunks);
    Value* chunk = b.CreateSub(task, b.CreateMul(block, chunks));
    Value* per_task = ex_.value(p.rows_per_task);
    Value* first = b.CreateMul(block, per_task);
    Value* last = ir_.min(b.CreateAdd(first, per_task), ex_.value(p.row_count));
    ir_.loop(first, last, 1, [&](Value* row) {
      ExprEmitter::Scope row_scope(ex_);
      bind_position(ir_, ex_, p.rows, row);
      if (!p.lanes) return stmts_.emit_body(p.body);
      Value* low = b.CreateMul(chunk, ir_.i64(p.lanes_per_task));
      Value* high = ir_.min(b.CreateAdd(low, ir_.i64(p.lanes_per_task)), ex_.value(p.lanes->extent));
      stmts_.lane_loop(p.lanes->var, p.lanes->extent, low, high, p.body);
    });
  }

  void emit_entry(Function* work) {
    auto& b = ir_.b;
    llvm::Type* i64 = b.getInt64Ty();
    auto* type = llvm::FunctionType::get(b.getVoidTy(), {pointer(), pointer(), i64, i64, pointer()}, false);
    Function* f = Function::Create(type, Function::ExternalLinkage, kernel_.name, ir_.module);
    f->setDoesNotThrow();
    b.SetInsertPoint(llvm::BasicBlock::Create(b.getContext(), "entry", f));
    std::vector<Value*> args;
    for (size_t i = 0; i < kernel_.buffers.size(); ++i)
      args.push_back(b.CreateLoad(pointer(), b.CreateConstGEP1_64(pointer(), f->getArg(0), i)));
    for (size_t i = 0; i < kernel_.dims.size(); ++i)
      args.push_back(b.CreateLoad(i64, b.CreateConstGEP1_64(i64, f->getArg(1), i)));
    for (unsigned i = 2; i < 5; ++i) args.push_back(f->getArg(i));
    b.CreateCall(work, args);
    b.CreateRetVoid();
  }

  IrTools ir_;
  const Kernel& kernel_;
  const CpuPlan& plan_;
  ExprEmitter ex_;
  StmtEmitter stmts_;
  Value* scratch_ = nullptr;
  std::vector<Value*> heap_;  // scratch arrays to free
};

}  // namespace

void emit_kernel(llvm::Module& module, const Kernel& kernel, const CpuPlan& plan, const Machine& machine) {
  KernelEmitter(module, kernel, plan, machine).emit();
}

}  // namespace ingot::cpu
