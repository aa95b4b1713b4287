// Loads and stores of ExprEmitter: contiguous, strided, gathered, masked.
#include <llvm/IR/Intrinsics.h>

#include "codegen/llvm/convert_emitter.h"
#include "codegen/llvm/expr_emitter.h"

namespace ingot::cpu {

using llvm::Value;

namespace {

llvm::Align alignment(DType type) { return llvm::Align(size_of(type)); }

}  // namespace

Value* ExprEmitter::address(int buffer, Value* index) {
  const BufferRef& ref = buffers[static_cast<size_t>(buffer)];
  return ir_.b.CreateGEP(ir_.storage(ref.type), ref.pointer, index);
}

Value* ExprEmitter::load(int buffer, const Expr& index) {
  const BufferRef& ref = buffers[static_cast<size_t>(buffer)];
  if (!varies(index)) return from_storage(ir_, ref.type, load_uniform(ref, value(index)));
  Value* raw = nullptr;
  if (auto linear = linear_in_lane(index)) {
    if (linear->constant_step == 1) raw = load_contiguous(ref, linear->base);
    else if (linear->constant_step == 2) raw = load_every_other(ref, linear->base);
    else raw = load_gather(ref, pointers_to(ref, linear_vector(*linear)));
  } else if (Value* pointers = narrow_address(ref, index)) {
    raw = load_gather(ref, pointers);
  } else {
    raw = load_gather(ref, pointers_to(ref, value(index)));
  }
  return from_storage(ir_, ref.type, raw);
}

/// Under a guard that may exclude every lane the index may be out of range: element 0 is read instead.
Value* ExprEmitter::load_uniform(const BufferRef& ref, Value* index) {
  if (guard_) {
    Value* any = ir_.b.CreateOrReduce(guard_);
    index = ir_.b.CreateSelect(any, index, ir_.i64(0));
  }
  llvm::Type* type = ir_.storage(ref.type);
  return ir_.b.CreateAlignedLoad(type, ir_.b.CreateGEP(type, ref.pointer, index), alignment(ref.type));
}

Value* ExprEmitter::load_contiguous(const BufferRef& ref, Value* base) {
  llvm::Type* element = ir_.storage(ref.type);
  llvm::Type* type = ir_.vector_of(element, lanes_.width);
  Value* p = ir_.b.CreateGEP(element, ref.pointer, base);
  Value* active = mask();
  if (!active) return ir_.b.CreateAlignedLoad(type, p, alignment(ref.type));
  return ir_.b.CreateMaskedLoad(type, p, alignment(ref.type), active, llvm::Constant::getNullValue(type));
}

/// Elements base, base+2, …: one masked load of twice the width, so that nothing in between or behind is touched.
Value* ExprEmitter::load_every_other(const BufferRef& ref, Value* base) {
  const int width = lanes_.width;
  llvm::Type* element = ir_.storage(ref.type);
  if (!machine_.avx512) return load_gather(ref, pointers_to(ref, linear_vector({base, 2, ir_.i64(2)})));
  Value* active = mask();
  if (!active) active = llvm::ConstantInt::getTrue(ir_.vector_of(ir_.b.getInt1Ty(), width));
  std::vector<int> spread, even;
  for (int i = 0; i < width; ++i) {
    spread.push_back(i);
    spread.push_back(width);  // a false lane
    even.push_back(2 * i);
  }
  Value* wide_mask = ir_.b.CreateShuffleVector(active, llvm::Constant::getNullValue(active->getType()), spread);
  llvm::Type* type = ir_.vector_of(element, 2 * width);
  Value* wide = ir_.b.CreateMaskedLoad(type, ir_.b.CreateGEP(element, ref.pointer, base), alignment(ref.type),
                                       wide_mask, llvm::Constant::getNullValue(type));
  return ir_.b.CreateShuffleVector(wide, even);
}

Value* ExprEmitter::pointers_to(const BufferRef& ref, Value* indices) {
  return ir_.b.CreateGEP(ir_.storage(ref.type), ref.pointer, indices);
}

Value* ExprEmitter::load_gather(const BufferRef& ref, Value* pointers) {
  llvm::Type* element = ir_.storage(ref.type);
  llvm::Type* type = ir_.vector_of(element, lanes_.width);
  Value* active = mask();
  const bool hardware = machine_.avx512 && size_of(ref.type) >= 4;
  if (active && !hardware) {
    // Without a gather instruction, lanes load one by one: reading element 0 is cheaper than a branch per lane.
    pointers = ir_.b.CreateSelect(active, pointers, ir_.widen(ref.pointer, lanes_.width));
    active = nullptr;
  }
  if (!hardware) {
    Value* out = llvm::PoisonValue::get(type);
    for (int i = 0; i < lanes_.width; ++i) {
      Value* lane = ir_.b.CreateExtractElement(pointers, static_cast<uint64_t>(i));
      out = ir_.b.CreateInsertElement(out, ir_.b.CreateAlignedLoad(element, lane, alignment(ref.type)),
                                      static_cast<uint64_t>(i));
    }
    return out;
  }
  if (!active) active = llvm::ConstantInt::getTrue(ir_.vector_of(ir_.b.getInt1Ty(), lanes_.width));
  return ir_.b.CreateMaskedGather(type, pointers, alignment(ref.type), active, llvm::Constant::getNullValue(type));
}

void ExprEmitter::store(int buffer, const Expr& index, Value* v) {
  const BufferRef& ref = buffers[static_cast<size_t>(buffer)];
  llvm::Type* element = ir_.storage(ref.type);
  if (!in_lanes()) {
    ir_.b.CreateAlignedStore(to_storage(ir_, ref.type, v), address(buffer, value(index)), alignment(ref.type));
    return;
  }
  Value* wide = to_storage(ir_, ref.type, ir_.widen(v, lanes_.width));
  Value* active = mask();
  auto linear = varies(index) ? linear_in_lane(index) : std::nullopt;
  if (linear && linear->constant_step == 1) {
    Value* p = ir_.b.CreateGEP(element, ref.pointer, linear->base);
    if (active) ir_.b.CreateMaskedStore(wide, p, alignment(ref.type), active);
    else ir_.b.CreateAlignedStore(wide, p, alignment(ref.type));
    return;
  }
  Value* indices = linear ? linear_vector(*linear) : vector(index);
  Value* pointers = ir_.b.CreateGEP(element, ref.pointer, indices);
  if (!active) active = llvm::ConstantInt::getTrue(ir_.vector_of(ir_.b.getInt1Ty(), lanes_.width));
  ir_.b.CreateMaskedScatter(wide, pointers, alignment(ref.type), active);
}

}  // namespace ingot::cpu
