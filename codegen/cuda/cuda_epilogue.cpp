// The functor of the results of a product on tensor cores: `load` reads what it needs from memory at places that follow from
// the position alone, so that several loads are on their way before the first result is computed; operator() does the rest.
#include <fmt/format.h>

#include "codegen/cuda/cuda_printers.h"
#include "compiler/expr/simplify.h"

namespace ingot {

namespace {

bool is_flat(const Body& body) {
  for (const Stmt& s : body)
    if (!s.as<Let>() && !s.as<Store>()) return false;
  return true;
}

/// The loads in e that always happen: not those behind a condition.
void each_certain_load(const Expr& e, const std::function<void(const Expr&)>& use) {
  if (e.op() == ExprOp::Select) return each_certain_load(e.arg(0), use);
  if (e.op() == ExprOp::Load) use(e);
  for (const Expr& a : e.args()) each_certain_load(a, use);
}

}  // namespace

std::vector<Expr> epilogue_loads(const Kernel& kernel, const Contract& contract) {
  std::vector<Expr> loads;
  if (!is_flat(contract.epilogue)) return loads;
  std::unordered_set<std::string> locals{contract.acc.name()};
  std::unordered_set<int> written;
  for (const Stmt& s : contract.epilogue) {
    if (const Let* l = s.as<Let>()) locals.insert(l->var.name());
    if (const Store* st = s.as<Store>()) written.insert(st->buffer);
  }
  ExprSet seen;
  const auto consider = [&](const Expr& load) {
    bool given = true;  // by the position and the dims
    visit(load.arg(0), [&](const Expr& x) {
      given &= x.op() != ExprOp::Load && !(x.op() == ExprOp::Symbol && locals.count(x.name()));
    });
    if (!given || load.buffer() >= static_cast<int>(kernel.buffers.size())) return;
    if (written.count(load.buffer()) == 0 && seen.insert(load).second) loads.push_back(load);
  };
  for (const Stmt& s : contract.epilogue) {
    if (const Let* l = s.as<Let>()) each_certain_load(l->value, consider);
    if (const Store* st = s.as<Store>()) each_certain_load(st->value, consider);
  }
  return loads;
}

std::vector<EpilogueInput> FunctorPrinter::epilogue_inputs(const Contract& contract) const {
  std::vector<EpilogueInput> inputs;
  for (const Expr& load : epilogue_loads(kernel_, contract)) {
    const Buffer& b = kernel_.buffers[static_cast<size_t>(load.buffer())];
    // Weights may be loaded early wherever they stand; only the pairs of staged results want theirs told apart.
    if (staged_ ? load.same(staged_->load) : b.is_constant) continue;
    if (const auto base = neighbour_base(load.buffer(), load.arg(0)))
      inputs.push_back({load, *base, identifier_of(b.name) + std::to_string(inputs.size())});
  }
  return inputs;
}

std::vector<EpilogueInput> FunctorPrinter::print_inputs(const Axis& axis, const Expr& base, int width, const Contract& contract,
                                                        const char* n_name, const std::function<void(const Body&)>& split) {
  std::vector<EpilogueInput> inputs;
  with_lanes(axis.var, base, width, [&] {
    inputs = epilogue_inputs(contract);
    Body uses;
    {
      auto type = out_.type_block("struct Inputs");
      for (const EpilogueInput& in : inputs) {
        out_.line(fmt::format("Vec<{}, {}> {};", c_storage_type(buffer_type(in.load.buffer())), width, in.name));
        uses.push_back({Let{Expr::local("at_" + in.name, DType::I64), in.base}});
      }
    }
    const char* index = expr_.index_type();
    auto call = out_.block(fmt::format("INGOT_DEV Inputs load({0} batch, {0} m, {0} {1}) const", index, n_name));
    bind_args();
    split(uses);
    out_.line("Inputs in;");
    for (const EpilogueInput& in : inputs)
      out_.line(fmt::format("in.{} = {};", in.name, vector_load(in.load.buffer(), width, expr_.operand(in.base))));
    out_.line("return in;");
  });
  if (!inputs.empty()) expr_.include("memory.cuh");
  return inputs;
}

void FunctorPrinter::vectorise_epilogue(const Axis& axis, const Expr& base, int width, const Contract& contract,
                                        const std::vector<EpilogueInput>& inputs) {
  with_lanes(axis.var, base, width, [&] {
    bind_results(contract, inputs);
    body(contract.epilogue);
    if (contract.parts.width == 0) return;
    auto lane = lane_loop();
    out_.line(fmt::format("acc[v] = {};", expr_.value(contract.parts.stored)));
  });
}

void FunctorPrinter::bind_results(const Contract& contract, const std::vector<EpilogueInput>& inputs) {
  const Expr& result = contract.group.empty() ? contract.acc : contract.combined;
  arrays_[result.name()] = {"acc[v]", false};
  lanes_->variant.insert(result.name());
  for (const EpilogueInput& in : inputs)
    expr_.bind_value(in.load, from_storage(buffer_type(in.load.buffer()), "in." + in.name + "[v]"));
}

void FunctorPrinter::vectorise_staged(const Axis& axis, const Expr& base, const Contract& contract,
                                      const std::vector<EpilogueInput>& inputs, const StagedResults& staged) {
  with_lanes(axis.var, base, 2, [&] {
    bind_results(contract, inputs);
    if (staged.load.valid()) expr_.bind_value(staged.load, from_storage(buffer_type(staged.load.buffer()), "staged[v]"));
    for (const Stmt& s : contract.epilogue) {
      const Store* store = s.as<Store>();
      if (store) print_value(store->value);
      else statement(s);
    }
  });
}

void FunctorPrinter::change_results(const Axis& axis, const Expr& base, int width, const Expr& acc, const Expr& value) {
  if (width > 1) {
    with_lanes(axis.var, base, width, [&] {
      arrays_[acc.name()] = {"acc[v]", false};
      lanes_->variant.insert(acc.name());
      load_vectors(value);
      auto lane = lane_loop();
      out_.line(fmt::format("acc[v] = {};", expr_.value(value)));
    });
  } else {
    bind_acc(acc, "acc[0]");
    out_.line(fmt::format("acc[0] = {};", expr_.value(value)));
  }
}

void FunctorPrinter::print_combination(Combine combine, DType type) {
  Reduce r;
  r.combine = combine;
  expr_.include("reduce.cuh");
  out_.line(fmt::format("static INGOT_DEV {0} combine({0} x, {0} y) {{ return {1}{{}}(x, y); }}", c_type(type), op_type(r)));
}

void FunctorPrinter::print_group(const Axis& axis, const Expr& base, int width, const Contract& contract,
                                 const std::function<void(const Body&)>& split) {
  const char* index = expr_.index_type();
  {
    auto call = out_.block(fmt::format("INGOT_DEV void value({0} batch, {0} m, {0} n, {1} (&acc)[{2}]) const", index,
                                       c_type(contract.acc.type()), width));
    bind_args();
    split(as_body(contract.value));
    change_results(axis, base, width, contract.acc, contract.value);
  }
  print_combination(contract.combine, contract.acc.type());
}

void ProductPrinter::print_results(const Contract& contract, bool along_m, int vector, const char* n_name) {
  const char* index = expr_.index_type();
  std::vector<Axis> m = contract.m, n = contract.n;
  Axis lane;
  Expr base;
  if (vector > 1) {
    std::vector<Axis>& lanes_in = along_m ? m : n;
    lane = lanes_in.back();
    base = Expr::index(lane.var.name() + "0", lane.extent);
    lanes_in.back().var = base;
  }
  const auto split = [&](FunctorPrinter& f, Body uses) {
    if (vector > 1) uses.push_back({Let{Expr::local("base", DType::I64), base}});
    f.split(contract.batch, "batch", uses);
    f.split(m, "m", uses);
    f.split(n, n_name, uses);
  };
  auto type = out_.type_block("struct Epilogue");
  out_.line("Args args;");
  if (!contract.rows.empty()) print_rows_in_shared(contract);
  FunctorPrinter loads(kernel_, schedule_, expr_.i32()), f(kernel_, schedule_, expr_.i32());
  std::vector<EpilogueInput> inputs;
  if (vector > 1) {
    inputs = loads.print_inputs(lane, base, vector, contract, n_name, [&](const Body& uses) { split(loads, uses); });
    splice(loads);
  } else {
    out_.line("struct Inputs {};");
    out_.line(fmt::format("INGOT_DEV Inputs load({0}, {0}, {0}) const {{ return {{}}; }}", index));
  }
  {
    auto call = f.writer().block(
        fmt::format("INGOT_DEV void operator()({0} batch, {0} m, {0} {1}, {2} (&acc)[{3}], const Inputs& in) const", index,
                    n_name, c_type(contract.acc.type()), vector));
    f.bind_args();
    f.bind_row_values(contract, [&](size_t i) {
      return fmt::format("lds<float>(room + ((u32)(m - first_row) * {} + {}) * 4)", contract.rows.size(), i);
    });
    split(f, contract.epilogue);
    if (vector > 1) {
      f.vectorise_epilogue(lane, base, vector, contract, inputs);
    } else {
      f.bind_acc(contract.group.empty() ? contract.acc : contract.combined, "acc[0]");
      f.print_body(contract.epilogue);
      if (contract.parts.width > 0) f.writer().line(fmt::format("acc[0] = {};", f.value(contract.parts.stored)));
    }
  }
  splice(f);
  print_parts(contract);
  if (contract.group.empty()) return;
  FunctorPrinter g(kernel_, schedule_, expr_.i32());
  g.print_group(lane, base, vector, contract, [&](const Body& uses) { split(g, uses); });
  splice(g);
}

void ProductPrinter::print_staged_results(const Contract& contract, const StagedResults& staged) {
  const char* index = expr_.index_type();
  std::vector<Axis> n = contract.n;
  const Axis lane = n.back();
  const Expr base = Expr::index(lane.var.name() + "0", lane.extent);
  n.back().var = base;
  const auto split = [&](FunctorPrinter& f, Body uses) {
    uses.push_back({Let{Expr::local("base", DType::I64), base}});
    f.split(contract.batch, "batch", uses);
    f.split(contract.m, "m", uses);
    f.split(n, "n", uses);
  };
  const auto storage = [&](int buffer) { return c_storage_type(kernel_.buffers[static_cast<size_t>(buffer)].type); };
  auto type = out_.type_block("struct Epilogue");
  out_.line(fmt::format("typedef {} StagedOutput;", storage(staged.out.buffer)));
  out_.line(fmt::format("typedef {} StagedInput;", storage(staged.load.valid() ? staged.in.buffer : staged.out.buffer)));
  const char* computed = c_type(compute_type(kernel_.buffers[static_cast<size_t>(staged.out.buffer)].type));
  out_.line(fmt::format("typedef {} Result;", computed));
  out_.line("Args args;");
  print_rows(contract);
  FunctorPrinter loads(kernel_, schedule_, expr_.i32()), f(kernel_, schedule_, expr_.i32());
  loads.stage(staged);
  const auto inputs = loads.print_inputs(lane, base, 2, contract, "n", [&](const Body& uses) { split(loads, uses); });
  splice(loads);
  {
    auto call = f.writer().block(fmt::format(
        "INGOT_DEV void result({0} batch, {0} m, {0} n, {1} (&acc)[2], const Inputs& in, Vec<StagedInput, 2> staged, "
        "const Rows& row, Result (&out)[2]) const",
        index, c_type(contract.acc.type())));
    f.bind_args();
    f.bind_row_values(contract, [](size_t i) { return fmt::format("row.of[{}]", i); });
    split(f, contract.epilogue);
    f.vectorise_staged(lane, base, contract, inputs, staged);
  }
  splice(f);
  print_parts(contract);
}

}  // namespace ingot
