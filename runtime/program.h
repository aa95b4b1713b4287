// Program: what a compiled model is at run time. Plain data: a flat instruction list over values, sizes as shape code,
// kernels as binaries per target. codegen/build_program.cpp fills it; engine_file.h stores it; executor.h runs it.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "compiler/support/dtype.h"
#include "compiler/support/tensor.h"
#include "runtime/script.h"
#include "runtime/shape_program.h"

namespace ingot::runtime {

/// A named dimension, bound by an input dimension that is this bare symbol; or, with `input` set, element `element` of that
/// input, an integer or bool tensor. A value outside [low, high] is an error.
struct SymbolInfo {
  std::string name;
  int64_t low = 0, high = 0;
  int32_t input = -1;
  int64_t element = 0;
  bool operator==(const SymbolInfo&) const = default;
};

/// An input or output of the model. dims refer to lines of the shape program.
struct Binding {
  std::string name;
  DType type = DType::F32;
  std::vector<ShapeRef> dims;
  std::vector<int32_t> symbols;  // inputs: per dimension, the symbol that it binds, or -1 (then it must equal dims[i])
  bool operator==(const Binding&) const = default;
};

/// Where the bytes of a value are.
enum class Place : uint8_t { Input, Output, Constant, Arena };
struct ValueInfo {
  Place place = Place::Arena;
  int32_t index = 0;  // number of the input, output, constant or arena slot
  DType type = DType::F32;
  ShapeRef bytes = 0;
  std::string name;  // for messages
  /// An earlier value in whose memory this one lies, with elements of its own: parts of one value share none. -1 without.
  int32_t part_of = -1;
  bool operator==(const ValueInfo&) const = default;
};

/// A piece of the arena, shared by values whose lifetimes do not overlap.
struct ArenaSlot {
  ShapeRef bytes = 0;  // not rounded; the executor aligns each slot to 256
  bool operator==(const ArenaSlot&) const = default;
};

struct ConstantInfo {
  std::string name;
  DType type = DType::F32;
  std::vector<int64_t> dims;
  TensorPtr data;  // mapped from the engine file, or from the compiler
};

/// One compiled form of a kernel. `code` is a CUBIN ("sm_90a"), PTX ("ptx_75"), or a relocatable x86-64 object ("cpu").
struct KernelBinary {
  std::string target;
  std::vector<uint8_t> code;
};

/// The entry point has the kernel's name. CUDA: void name(buffers..., dims...) with dims as int64.
/// CPU: void name(void* const* buffers, const int64_t* dims, int64_t first, int64_t last, void* scratch): works on the tasks
/// [first, last) of the launch; the executor hands ranges to its thread pool. `scratch` is private to the call.
struct KernelInfo {
  std::string name;
  std::string summary;  // "Conv+Add+Relu"
  std::vector<std::string> nodes;  // model nodes inside
  std::string source;  // CUDA text or LLVM IR, may be empty
  std::vector<KernelBinary> binaries;
  int32_t threads = 1;  // CUDA: threads of a block
  int32_t shared_bytes = 0;  // CUDA: dynamic shared memory
  int64_t scratch_bytes = 0;  // CPU: bytes of `scratch`, 64-byte aligned
  // CUDA: begins with griddepcontrol.wait, so that it may start before its predecessor ends.
  bool waits_for_inputs = false;
  // CUDA: what a product costs on tensor cores, in products of 16-bit values: 1, 2 (tf32), 6 (three tf32 products of an fp32
  // one); 0: it runs elsewhere. For the roof of a profile.
  int32_t tensor_cost = 0;
};

/// How copies by box (TMA) see one argument of a launch: a CUtensorMap but for the address. The kernel takes it after its dims.
struct BoxMap {
  int32_t argument = 0;
  DType type = DType::F16;
  ShapeRef offset = 0;  // bytes into the argument's memory
  std::vector<ShapeRef> extents, strides;  // elements, innermost first; bytes, of all but the innermost
  std::vector<int32_t>
      box;  // elements of one copy; the innermost fill 64 or 128 bytes, which lie permuted in shared memory
  // If not empty, a window over the middle axes (TMA's im2col mode): where its corner starts, how far from the end of the axis
  // it stops, and its steps. box is then {channels, places}.
  std::vector<int32_t> low, high, steps;
  int32_t clipped = 0;  // the axis along which a box is no longer than what is there; 0: none
  bool operator==(const BoxMap&) const = default;
};
constexpr size_t kMaxBoxRank = 5;

constexpr int32_t kMaxLanes = 16;

/// Of each lane: counters by which blocks of one launch tell each other what they have done. All are zero between launches.
constexpr int64_t kCounters = 1 << 15;
constexpr uint64_t kCounterBytes = kCounters * 4;

/// Launch: run a kernel. Copy: args[0] to args[1], same size (an input or constant that is an output itself).
/// Instructions of one lane run in order; lanes run beside each other, on streams of their own. Lane 0 is the caller's
/// stream. Without lanes, the order of the list is a valid order.
struct Instruction {
  enum class Kind : uint8_t { Launch, Copy } kind = Kind::Launch;
  int32_t kernel = -1;
  std::vector<int32_t> args;  // numbers of values
  int32_t first_written = 0;  // args from here on are written, those before it only read
  std::vector<ShapeRef> dims;  // the kernel's dims
  std::array<ShapeRef, 3> grid{};  // CUDA: blocks; CPU: grid[0] is the number of tasks, the others are 1
  ShapeRef bytes = 0;  // bytes read and written, for the profile
  ShapeRef flops = 0;
  int32_t lane = 0;
  std::vector<BoxMap> boxes;  // CUDA
  // CUDA: blocks divide sums among them and put their parts in memory, so many bytes. The kernel takes its lane's counters and that
  // memory behind `args`. -1: it does not.
  ShapeRef part_bytes = -1;
  // The kernel reads values before it waits for the launch in front of it, which did not write them: it may only start early if that
  // is this instruction or a later one. -1: it does not, or any will do.
  int32_t early_behind = -1;
  std::vector<int32_t> waits;  // numbers of earlier instructions, of other lanes, that must have finished
  bool operator==(const Instruction&) const = default;
};

struct Program {
  std::string target;  // "cpu" or the CUDA targets, comma-separated, that its kernels were compiled for
  std::string model_name, options;
  std::vector<SymbolInfo> symbols;
  ShapeProgram shapes;
  std::vector<Binding> inputs, outputs;
  std::vector<ConstantInfo> constants;
  std::vector<ArenaSlot> slots;
  std::vector<ValueInfo> values;
  std::vector<KernelInfo> kernels;
  std::vector<Instruction> instructions;
  /// Conditions a shape must meet (each line must be 1) with the message of a failure.
  struct Requirement {
    ShapeRef condition = 0;
    std::string message;
  };
  std::vector<Requirement> requirements;
  /// A model whose course is decided at run time: programs for its parts, and scripts that run them (scripts[0] is the model).
  /// Nothing but inputs and outputs is set beside them, and outputs have no dims.
  std::vector<std::shared_ptr<const Program>> parts;
  std::vector<Script> scripts;

  /// All numbers in range, every value placed once, kernels' binaries named, and no two instructions that may run at the
  /// same time touch the same memory with one of them writing: for programs read from a file.
  Status verify() const;
};

/// The part of verify() about lanes (program_order.cpp). The other numbers must be in range.
Status verify_order(const Program& program);
/// The number of lanes that its instructions use; 1 without any.
int32_t lanes_of(const Program& program);
/// The number of its instructions; those that write the same values (forms of a kernel for different sizes) count once.
size_t steps_of(const Program& program);

/// The scripts' part of Program::verify: numbers in range, values given before they are taken, calls that only go forward.
Status verify_scripts(const Program& program);

}  // namespace ingot::runtime
