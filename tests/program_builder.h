// Programs written by hand, for tests that link only the runtime.
#pragma once

#include <memory>
#include <string>

#include "runtime/program.h"

namespace ingot::testing {

/// Lines of a shape program, one at a time.
struct Lines {
  runtime::ShapeProgram program;
  runtime::ShapeRef constant(int64_t v) { return push({runtime::ShapeOp::Constant, 0, 0, 0, v}); }
  runtime::ShapeRef symbol(int32_t s) { return push({runtime::ShapeOp::Symbol, s, 0, 0, 0}); }
  runtime::ShapeRef op(runtime::ShapeOp o, runtime::ShapeRef a, runtime::ShapeRef b, runtime::ShapeRef c = 0) {
    return push({o, a, b, c, 0});
  }
  runtime::ShapeRef push(runtime::ShapeLine l) {
    program.lines.push_back(l);
    return static_cast<runtime::ShapeRef>(program.lines.size()) - 1;
  }
};

/// y = x + x + … + x by `steps` kernels "add0", "add1", … (summary "Add", node "node 0", …), each adding x to the last
/// sum, in two arena slots by turns; x is f32[N,3] with N in [0, 1000], but not 13.
inline std::shared_ptr<runtime::Program> sums_program(int steps) {
  using namespace runtime;
  auto p = std::make_shared<Program>();
  p->target = "cpu";
  p->symbols = {{"N", 0, 1000}};
  Lines l;
  const ShapeRef n = l.symbol(0), three = l.constant(3), count = l.op(ShapeOp::Mul, n, three);
  const ShapeRef bytes = l.op(ShapeOp::Mul, count, l.constant(4)), one = l.constant(1);
  const ShapeRef tasks = l.op(ShapeOp::FloorDiv, l.op(ShapeOp::Add, count, three), l.constant(4));
  const ShapeRef not_13 = l.op(ShapeOp::Ne, n, l.constant(13));
  p->shapes = l.program;
  p->inputs = {{"x", DType::F32, {n, three}, {0, -1}}};
  p->outputs = {{"y", DType::F32, {n, three}, {}}};
  p->slots = {{bytes}, {bytes}};
  p->values = {{Place::Input, 0, DType::F32, bytes, "x"},
               {Place::Output, 0, DType::F32, bytes, "y"},
               {Place::Arena, 0, DType::F32, bytes, "t0"},
               {Place::Arena, 1, DType::F32, bytes, "t1"}};
  int32_t last = 0;
  for (int i = 0; i < steps; ++i) {
    KernelInfo k;
    k.name = "add" + std::to_string(i);
    k.summary = "Add";
    k.nodes = {"node " + std::to_string(i)};
    p->kernels.push_back(k);
    Instruction in;
    in.kernel = i;
    in.args = {last, 0, i + 1 == steps ? 1 : 2 + i % 2};
    in.first_written = 2;
    in.dims = {count};
    in.grid = {tasks, one, one};
    in.bytes = bytes;
    in.flops = count;
    last = in.args[2];
    p->instructions.push_back(std::move(in));
  }
  p->requirements = {{not_13, "N must not be 13"}};
  return p;
}

}  // namespace ingot::testing
