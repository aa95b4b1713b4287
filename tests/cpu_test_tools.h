// Shared by the CPU backend's tests: hand-built kernels run through LLVM and through the kernel interpreter, and
// compared.
#pragma once

#include <sys/mman.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <unordered_map>

#include "catch2/catch.hpp"
#include "codegen/kernel/interpret.h"
#include "codegen/llvm/cpu_backend.h"
#include "compiler/support/tensor.h"
#include "runtime/cpu/object_loader.h"

namespace ingot::testing {

inline const TargetTraits& host_traits() {
  static const TargetTraits traits = cpu_traits().value();
  return traits;
}

inline Axis axis(const std::string& name, const Expr& extent) { return {Expr::index(name, extent), extent}; }
inline Expr f32(double v) { return Expr::real(DType::F32, v); }
inline Expr load32(int buffer, const Expr& index) { return Expr::load(buffer, DType::F32, index); }

/// A kernel under construction; the element counts of its buffers are constants.
struct KernelCase {
  Kernel kernel;
  std::vector<Tensor> tensors;
  std::unordered_map<std::string, int64_t> dims;

  int input(DType type, std::vector<int64_t> shape) { return add(type, std::move(shape), false); }
  int output(DType type, std::vector<int64_t> shape) { return add(type, std::move(shape), true); }
  Expr dim(const std::string& name, int64_t value, int64_t high = kNoLimit) {
    dims[name] = value;
    kernel.dims.push_back(Expr::symbol(name, 0, high));
    return kernel.dims.back();
  }

 private:
  int add(DType type, std::vector<int64_t> shape, bool is_output) {
    Buffer b;
    b.name = (is_output ? "y" : "x") + std::to_string(kernel.buffers.size());
    b.type = type;
    for (int64_t d : shape) b.shape.push_back(Expr(d));
    b.is_output = is_output;
    kernel.buffers.push_back(b);
    tensors.emplace_back(type, std::move(shape));
    return static_cast<int>(tensors.size()) - 1;
  }
};

/// Fills a tensor with small numbers: fractions for floats, integers in [low, high] otherwise.
inline void fill(Tensor& t, unsigned seed, int low = -9, int high = 9) {
  std::mt19937 random(seed);
  std::uniform_int_distribution<int> integer(low, high);
  for (int64_t i = 0; i < t.count(); ++i) {
    if (is_float(t.type())) t.set_float(i, integer(random) / 8.0 + (random() % 100) / 1000.0);
    else t.set_int(i, is_signed(t.type()) ? integer(random) : std::abs(integer(random)));
  }
}

inline bool close(double a, double b, double tolerance) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  if (std::isinf(a) || std::isinf(b)) return a == b;
  return std::abs(a - b) <= tolerance * (1 + std::abs(b));
}

/// Memory that ends (or begins) at an unmapped page: an access beside it crashes the test.
class FencedMemory {
 public:
  FencedMemory(size_t bytes, bool fence_behind) {
    const size_t page = 4096, used = (std::max<size_t>(bytes, 8) + page - 1) / page * page;
    size_ = used + 2 * page;
    base_ = static_cast<char*>(::mmap(nullptr, size_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    INGOT_CHECK(base_ != MAP_FAILED && ::mprotect(base_ + page, used, PROT_READ | PROT_WRITE) == 0, "no memory");
    data_ = base_ + page + (fence_behind ? used - std::max<size_t>(bytes, 8) : 0);
  }
  FencedMemory(FencedMemory&& other) noexcept : base_(other.base_), data_(other.data_), size_(other.size_) {
    other.base_ = nullptr;
  }
  ~FencedMemory() {
    if (base_) ::munmap(base_, size_);
  }
  void* data() const { return data_; }

 private:
  char *base_, *data_;
  size_t size_;
};

/// The outputs of the kernel as compiled by the CPU backend, tasks handed out in ranges of `chunk`.
inline std::vector<Tensor> run_compiled(const KernelCase& c, const TargetTraits& traits, int64_t chunk = 1 << 30) {
  Kernel kernel = c.kernel;
  kernel.name = "kernel_under_test";
  auto emitted = emit_cpu(kernel, traits);
  if (!emitted) FAIL(emitted.error().to_string());
  auto code = runtime::load_object(emitted->object, kernel.name);
  if (!code) FAIL(code.error().to_string());
  std::vector<FencedMemory> memory_of;
  std::vector<void*> pointers;
  for (const Tensor& t : c.tensors) {
    memory_of.emplace_back(t.bytes(), /*fence_behind=*/chunk > 1);
    pointers.push_back(memory_of.back().data());
    std::memcpy(pointers.back(), t.data(), t.bytes());
  }
  std::vector<int64_t> dims;
  for (const Expr& d : kernel.dims) dims.push_back(c.dims.at(d.name()));
  const int64_t tasks = evaluate_int(emitted->launch.tasks, c.dims).value();
  // Scratch starts as NaNs: nothing may depend on what it held.
  std::vector<uint8_t> memory(static_cast<size_t>(emitted->launch.scratch_bytes) + 64, 0xff);
  auto* scratch = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) % 64;
  for (int64_t first = 0; first < tasks; first += chunk)
    code->function(pointers.data(), dims.data(), first, std::min(first + chunk, tasks), scratch);
  std::vector<Tensor> out;
  for (size_t i = 0; i < c.tensors.size(); ++i) {
    out.emplace_back(c.tensors[i].type(), c.tensors[i].dims());
    std::memcpy(out[i].mutable_data(), pointers[i], out[i].bytes());
  }
  return out;
}

inline std::vector<Tensor> run_interpreted(const KernelCase& c) {
  std::vector<Tensor> out;
  std::vector<void*> pointers;
  std::vector<int64_t> sizes;
  for (const Tensor& t : c.tensors) {
    out.emplace_back(t.type(), t.dims());
    std::memcpy(out.back().mutable_data(), t.data(), t.bytes());
    sizes.push_back(t.count());
  }
  for (Tensor& t : out) pointers.push_back(t.mutable_data());
  const Status status = interpret(c.kernel, pointers, sizes, c.dims);
  if (!status) FAIL(status.error().to_string());
  return out;
}

inline void expect_same(const KernelCase& c, const std::vector<Tensor>& got, const std::vector<Tensor>& want,
                        double tolerance, const std::string& what) {
  for (size_t b = 0; b < got.size(); ++b) {
    int64_t wrong = 0, first = -1;
    for (int64_t i = 0; i < got[b].count(); ++i)
      if (!close(got[b].float_at(i), want[b].float_at(i), tolerance)) {
        if (first < 0) first = i;
        ++wrong;
      }
    if (wrong == 0) continue;
    INFO(to_string(c.kernel));
    FAIL(what << ": " << c.kernel.buffers[b].name << ": " << wrong << " of " << got[b].count() << " differ, first ["
              << first << "]: " << got[b].float_at(first) << ", expected " << want[b].float_at(first));
  }
  CHECK(true);
}

/// Compiled = interpreted, on the host's widest vectors and on 256 bits, in one range and task by task.
inline void check_kernel(const KernelCase& c, double tolerance = 1e-5) {
  const std::vector<Tensor> want = run_interpreted(c);
  expect_same(c, run_compiled(c, host_traits()), want, tolerance, "host");
  expect_same(c, run_compiled(c, host_traits(), 1), want, tolerance, "host, task by task");
  if (host_traits().vector_bytes == 64)
    expect_same(c, run_compiled(c, cpu_traits("x86-64-v3").value()), want, tolerance, "x86-64-v3");
}

}  // namespace ingot::testing
