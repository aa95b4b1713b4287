// IrTools: the few shapes of LLVM IR that the CPU backend builds everything from: loops, branches, vectors. The
// emitters of this folder share one.
#pragma once

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>

#include <functional>

#include "compiler/support/dtype.h"
#include "compiler/support/result.h"
#include "compiler/support/target_traits.h"

namespace ingot::cpu {

/// What the emitters ask of the processor.
struct Machine {
  int vector_bytes = 32;
  int vector_registers = 16;
  bool avx512 = false;
  int threads = 2;
  explicit Machine(const TargetTraits& t)
      : vector_bytes(t.vector_bytes),
        vector_registers(t.vector_registers),
        avx512(t.vector_bytes >= 64),
        threads(t.parallel_units) {}
};

class IrTools {
 public:
  explicit IrTools(llvm::Module& m);

  llvm::IRBuilder<> b;
  llvm::Module& module;
  llvm::Function* function = nullptr;  // being built

  /// Builds `f` for a while, then goes on where it was.
  class FunctionScope {
   public:
    FunctionScope(IrTools& ir, llvm::Function* f) : ir_(ir), saved_(ir.function), at_(ir.b.saveIP()) {
      ir_.function = f;
      ir_.b.SetInsertPoint(llvm::BasicBlock::Create(ir_.b.getContext(), "entry", f));
    }
    ~FunctionScope() {
      ir_.function = saved_;
      ir_.b.restoreIP(at_);
    }
    FunctionScope(const FunctionScope&) = delete;

   private:
    IrTools& ir_;
    llvm::Function* saved_;
    llvm::IRBuilderBase::InsertPoint at_;
  };

  llvm::Constant* i64(int64_t v) { return b.getInt64(static_cast<uint64_t>(v)); }
  llvm::Constant* i32(int32_t v) { return b.getInt32(static_cast<uint32_t>(v)); }
  /// A stack variable of the function; promoted to registers by the first pass.
  llvm::Value* variable(llvm::Type* type, llvm::Value* initial = nullptr);

  using Body = std::function<void(llvm::Value* i)>;
  /// for (i = begin; i < end; i += step) body(i), all i64.
  void loop(llvm::Value* begin, llvm::Value* end, llvm::Value* step, const Body& body);
  void loop(llvm::Value* begin, llvm::Value* end, int64_t step, const Body& body) { loop(begin, end, i64(step), body); }
  /// for (i = begin; i < end; i += body(i)).
  void stepping_loop(llvm::Value* begin, llvm::Value* end, const std::function<llvm::Value*(llvm::Value* i)>& body);
  void if_then(llvm::Value* condition, const std::function<void()>& body);
  void if_else(llvm::Value* condition, const std::function<void()>& then, const std::function<void()>& otherwise);
  /// condition ? a() : b(), evaluating one of them.
  llvm::Value* choose(llvm::Value* condition, const std::function<llvm::Value*()>& a,
                      const std::function<llvm::Value*()>& otherwise);

  /// The compute type as an LLVM scalar: Bool is i1.
  llvm::Type* scalar(DType type);
  /// How one element of a buffer is accessed: f16 is half, bf16 and fp8 are integers.
  llvm::Type* storage(DType type);
  llvm::Type* vector_of(llvm::Type* element, int width);
  /// The value as a vector of `width` (itself when it is one already, or when width is 1).
  llvm::Value* widen(llvm::Value* v, int width);
  /// 0, 1, 2, … as a vector of `element` integers.
  llvm::Value* lane_numbers(llvm::Type* element, int width);
  /// Lanes with number < count (i64), as a mask.
  llvm::Value* first_lanes(llvm::Value* count, int width);
  llvm::Value* min(llvm::Value* a, llvm::Value* b2);  // i64, signed
  llvm::Value* max(llvm::Value* a, llvm::Value* b2);
  /// i64 division of non-negative numbers; the divisor is positive.
  llvm::Value* ceil_div(llvm::Value* a, llvm::Value* d);

  llvm::Value* intrinsic(llvm::Intrinsic::ID id, llvm::ArrayRef<llvm::Value*> args) {
    return b.CreateIntrinsic(id, {args[0]->getType()}, args);
  }
  llvm::Value* fma(llvm::Value* a, llvm::Value* x, llvm::Value* c);
};

inline bool is_vector(llvm::Value* v) { return v->getType()->isVectorTy(); }

}  // namespace ingot::cpu
