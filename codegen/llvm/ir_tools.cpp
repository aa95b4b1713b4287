#include "codegen/llvm/ir_tools.h"

#include <llvm/IR/Intrinsics.h>

namespace ingot::cpu {

using llvm::BasicBlock;
using llvm::Value;

IrTools::IrTools(llvm::Module& m) : b(m.getContext()), module(m) {
  llvm::FastMathFlags flags;
  flags.setAllowContract(true);  // a*b + c may be fused, as on the GPU
  b.setFastMathFlags(flags);
}

Value* IrTools::variable(llvm::Type* type, Value* initial) {
  BasicBlock& entry = function->getEntryBlock();
  llvm::IRBuilder<> at_entry(&entry, entry.begin());
  Value* p = at_entry.CreateAlloca(type);
  if (initial) b.CreateStore(initial, p);
  return p;
}

void IrTools::loop(Value* begin, Value* end, Value* step, const Body& body) {
  stepping_loop(begin, end, [&](Value* i) {
    body(i);
    return step;
  });
}

void IrTools::stepping_loop(Value* begin, Value* end, const std::function<Value*(Value* i)>& body) {
  llvm::LLVMContext& context = b.getContext();
  BasicBlock* before = b.GetInsertBlock();
  BasicBlock* head = BasicBlock::Create(context, "loop", function);
  BasicBlock* after = BasicBlock::Create(context, "done", function);
  b.CreateCondBr(b.CreateICmpSLT(begin, end), head, after);
  b.SetInsertPoint(head);
  llvm::PHINode* i = b.CreatePHI(b.getInt64Ty(), 2);
  i->addIncoming(begin, before);
  Value* step = body(i);
  Value* next = b.CreateAdd(i, step, "", /*HasNUW=*/false, /*HasNSW=*/true);
  i->addIncoming(next, b.GetInsertBlock());
  b.CreateCondBr(b.CreateICmpSLT(next, end), head, after);
  b.SetInsertPoint(after);
}

void IrTools::if_then(Value* condition, const std::function<void()>& body) {
  if_else(condition, body, [] {});
}

void IrTools::if_else(Value* condition, const std::function<void()>& then, const std::function<void()>& otherwise) {
  llvm::LLVMContext& context = b.getContext();
  BasicBlock* yes = BasicBlock::Create(context, "then", function);
  BasicBlock* no = BasicBlock::Create(context, "else", function);
  BasicBlock* after = BasicBlock::Create(context, "join", function);
  b.CreateCondBr(condition, yes, no);
  b.SetInsertPoint(yes);
  then();
  b.CreateBr(after);
  b.SetInsertPoint(no);
  otherwise();
  b.CreateBr(after);
  b.SetInsertPoint(after);
}

Value* IrTools::choose(Value* condition, const std::function<Value*()>& a, const std::function<Value*()>& otherwise) {
  Value *va = nullptr, *vb = nullptr;
  BasicBlock *from_a = nullptr, *from_b = nullptr;
  if_else(
      condition,
      [&] {
        va = a();
        from_a = b.GetInsertBlock();
      },
      [&] {
        vb = otherwise();
        from_b = b.GetInsertBlock();
      });
  llvm::PHINode* phi = b.CreatePHI(va->getType(), 2);
  phi->addIncoming(va, from_a);
  phi->addIncoming(vb, from_b);
  return phi;
}

llvm::Type* IrTools::scalar(DType type) {
  switch (compute_type(type)) {
    case DType::Bool: return b.getInt1Ty();
    case DType::F32: return b.getFloatTy();
    case DType::F64: return b.getDoubleTy();
    default: return b.getIntNTy(static_cast<unsigned>(size_of(compute_type(type)) * 8));
  }
}

llvm::Type* IrTools::storage(DType type) {
  switch (type) {
    case DType::F16: return b.getHalfTy();
    case DType::F32: return b.getFloatTy();
    case DType::F64: return b.getDoubleTy();
    default: return b.getIntNTy(static_cast<unsigned>(size_of(type) * 8));
  }
}

llvm::Type* IrTools::vector_of(llvm::Type* element, int width) {
  return width == 1 ? element : llvm::FixedVectorType::get(element, static_cast<unsigned>(width));
}

Value* IrTools::widen(Value* v, int width) {
  return width == 1 || is_vector(v) ? v : b.CreateVectorSplat(static_cast<unsigned>(width), v);
}

Value* IrTools::lane_numbers(llvm::Type* element, int width) {
  std::vector<llvm::Constant*> numbers;
  for (int i = 0; i < width; ++i) numbers.push_back(llvm::ConstantInt::get(element, static_cast<uint64_t>(i)));
  return width == 1 ? static_cast<Value*>(numbers[0]) : llvm::ConstantVector::get(numbers);
}

Value* IrTools::first_lanes(Value* count, int width) {
  Value* clamped = b.CreateTrunc(max(i64(0), min(count, i64(width))), b.getInt32Ty());
  return b.CreateICmpSLT(lane_numbers(b.getInt32Ty(), width), widen(clamped, width));
}

Value* IrTools::min(Value* a, Value* b2) { return b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, a, b2); }
Value* IrTools::max(Value* a, Value* b2) { return b.CreateBinaryIntrinsic(llvm::Intrinsic::smax, a, b2); }
Value* IrTools::ceil_div(Value* a, Value* d) { return b.CreateUDiv(b.CreateAdd(a, b.CreateSub(d, i64(1))), d); }
Value* IrTools::fma(Value* a, Value* x, Value* c) {
  return b.CreateIntrinsic(llvm::Intrinsic::fmuladd, {a->getType()}, {a, x, c});
}

}  // namespace ingot::cpu
