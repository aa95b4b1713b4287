#include "codegen/build_program.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <thread>

#include "codegen/kernel/verify.h"
#include "codegen/lower/lower_group.h"
#include "codegen/shape_emitter.h"
#include "compiler/ops/joins.h"

namespace ingot {
namespace {

/// "conv_add_relu", from the operators of the body; movement only when there is nothing else.
std::string stem_of(const Graph& body) {
  std::string stem;
  std::string last;
  for (int pass = 0; pass < 2 && stem.empty(); ++pass)
    for (NodeId id : body.order()) {
      const Node& n = body.node(id);
      if (pass == 0 && (n.op->lowers_as<Movement>() || n.op->name == "Values")) continue;
      if (n.op->name == last) continue;
      last = n.op->name;
      stem += (stem.empty() ? "" : "_") + last;
    }
  return stem.empty() ? "copy" : stem;
}

std::vector<std::string> header_of(const Graph& body) {
  std::vector<std::string> lines;
  for (NodeId id : body.order()) {
    const Node& n = body.node(id);
    std::string names;
    for (const std::string& o : n.origin.nodes) names += (names.empty() ? "" : ", ") + ("\"" + o + "\"");
    const std::string attrs = n.attrs.text();
    lines.push_back(fmt::format("{}{}  {}  {}", n.op->name, attrs.empty() ? "" : " {" + attrs + "}", to_string(body.value(n.outputs[0]).type), names));
  }
  return lines;
}

class ProgramBuilder {
 public:
  ProgramBuilder(const Graph& graph, const MemoryPlan& plan, const LoweredProgram& lowered) : g_(graph), plan_(plan), lowered_(lowered) {}

  Result<runtime::Program> run(const std::vector<ShapeRequirement>& requirements, const KernelCompiler& compile, const BuildOptions& options) {
    INGOT_TRY(compile_kernels(compile, options));
    INGOT_TRY(declare_bindings());
    for (const Expr& b : plan_.slot_bytes) program_.slots.push_back({INGOT_TRY(shape(b))});
    INGOT_TRY(place_outputs());
    for (size_t i = 0; i < plan_.order.size(); ++i) INGOT_TRY(launch(i));
    INGOT_TRY(copy_outputs());
    for (const ShapeRequirement& r : requirements) program_.requirements.push_back({INGOT_TRY(shape(r.condition)), r.message});
    program_.model_name = g_.name;
    return std::move(program_);
  }

 private:
  Result<runtime::ShapeRef> shape(const Expr& e) { return emitter_->emit(e); }

  Status compile_kernels(const KernelCompiler& compile, const BuildOptions& options) {
    // Kernels with the same text are the same: compiled once, launched from several places.
    std::map<std::string, size_t> known;
    std::vector<size_t> distinct;
    for (size_t i = 0; i < lowered_.kernels.size(); ++i) {
      auto [it, inserted] = known.emplace(to_string(lowered_.kernels[i]), distinct.size());
      if (inserted) distinct.push_back(i);
      kernel_of_.push_back(static_cast<int32_t>(it->second));
    }
    typedef Result<std::vector<BuiltKernel>> Forms;
    std::vector<Forms> results(distinct.size(), Forms(std::vector<BuiltKernel>{}));
    std::atomic<size_t> next{0}, done{0};
    auto work = [&] {
      for (size_t i; (i = next++) < distinct.size();) {
        results[i] = compile(lowered_.kernels[distinct[i]]);
        ++done;
      }
    };
    std::vector<std::thread> workers;
    for (int t = 1; t < options.threads; ++t) workers.emplace_back(work);
    for (size_t i; (i = next++) < distinct.size();) {
      results[i] = compile(lowered_.kernels[distinct[i]]);
      ++done;
      if (options.progress) options.progress(done, distinct.size());
    }
    for (std::thread& t : workers) t.join();
    std::map<std::string, int32_t> names;
    for (size_t i = 0; i < results.size(); ++i) {
      if (!results[i]) {
        std::string nodes;
        for (const std::string& line : lowered_.kernels[distinct[i]].header) nodes += "\n    " + line;
        return std::move(results[i].error().add("in the kernel of" + nodes));
      }
      built_.push_back(std::move(*results[i]));
      number_of_built_.emplace_back();
      for (const BuiltKernel& form : built_.back()) {
        // A name stands for the content: kernels of the same code may differ in their shapes, and so in their grids.
        const auto [it, fresh] = names.emplace(form.info.name, static_cast<int32_t>(program_.kernels.size()));
        if (fresh) program_.kernels.push_back(form.info);
        number_of_built_.back().push_back(it->second);
      }
    }
    return {};
  }

  Result<runtime::Binding> binding(ValueId v, const std::string& name, bool binds) {
    const TensorType& t = g_.value(v).type;
    runtime::Binding b{name, t.dtype, {}, {}};
    for (const Expr& d : t.shape) {
      b.dims.push_back(INGOT_TRY(shape(d)));
      if (!binds) continue;
      const bool bare = d.op() == ExprOp::Symbol;
      b.symbols.push_back(bare ? symbol_numbers_.at(d.name()) : -1);
    }
    return b;
  }
  Status declare_bindings() {
    std::map<std::string, Expr> bound;
    for (ValueId v : g_.inputs)
      for (const Expr& d : g_.value(v).type.shape)
        if (d.op() == ExprOp::Symbol) bound.emplace(d.name(), d);
    for (const auto& [name, e] : bound) {
      symbol_numbers_.emplace(name, static_cast<int32_t>(program_.symbols.size()));
      program_.symbols.push_back({name, e.low(), e.high() >= kNoLimit ? INT64_MAX : e.high()});
    }
    for (const ValueSymbol& s : g_.value_symbols) INGOT_TRY(declare_value_symbol(s));
    std::unordered_map<std::string, Expr> derived;
    for (const DerivedSymbol& d : g_.derived_symbols) derived.emplace(d.symbol.name(), d.definition);
    emitter_ = std::make_unique<ShapeEmitter>(program_.shapes, symbol_numbers_, std::move(derived));
    for (size_t i = 0; i < g_.inputs.size(); ++i) {
      program_.inputs.push_back(INGOT_TRY(binding(g_.inputs[i], g_.value(g_.inputs[i]).name, true)));
      INGOT_TRY(declare(g_.inputs[i], runtime::Place::Input, static_cast<int32_t>(i)));
    }
    for (size_t i = 0; i < g_.outputs.size(); ++i) program_.outputs.push_back(INGOT_TRY(binding(g_.outputs[i], g_.output_names[i], false)));
    return {};
  }
  Status declare_value_symbol(const ValueSymbol& s) {
    const auto input = std::find(g_.inputs.begin(), g_.inputs.end(), s.value);
    if (input == g_.inputs.end())
      return unsupported(fmt::format("sizes follow from \"{}\", which is computed at run time", g_.value(s.value).name));
    symbol_numbers_.emplace(s.symbol.name(), static_cast<int32_t>(program_.symbols.size()));
    program_.symbols.push_back({s.symbol.name(), INT64_MIN, INT64_MAX, static_cast<int32_t>(input - g_.inputs.begin()), s.element});
    return {};
  }
  Status declare(ValueId v, runtime::Place place, int32_t index) {
    const Value& value = g_.value(v);
    const Expr bytes = element_count(value.type.shape) * static_cast<int64_t>(size_of(value.type.dtype));
    value_numbers_[v] = static_cast<int32_t>(program_.values.size());
    program_.values.push_back({place, index, value.type.dtype, INGOT_TRY(shape(bytes)), value.name});
    return {};
  }
  /// Computed outputs are written where the caller wants them; others are copied at the end.
  Status place_outputs() {
    for (size_t i = 0; i < g_.outputs.size(); ++i) {
      const ValueId v = g_.outputs[i];
      if (g_.producer(v) && !value_numbers_.count(v)) INGOT_TRY(declare(v, runtime::Place::Output, static_cast<int32_t>(i)));
      else copies_.emplace_back(v, i);
    }
    return {};
  }
  Result<int32_t> number_of(ValueId v) {
    if (auto it = value_numbers_.find(v); it != value_numbers_.end()) return it->second;
    const Value& value = g_.value(v);
    if (const Node* join = join_of(g_, v)) {
      const int32_t whole = INGOT_TRY(number_of(join->outputs[0]));
      const runtime::ValueInfo in = program_.values[static_cast<size_t>(whole)];
      INGOT_TRY(declare(v, in.place, in.index));
      program_.values.back().part_of = whole;
    } else if (value.constant) {
      program_.constants.push_back({value.name, value.type.dtype, value.constant->dims(), value.constant});
      INGOT_TRY(declare(v, runtime::Place::Constant, static_cast<int32_t>(program_.constants.size() - 1)));
    } else {
      INGOT_TRY(declare(v, runtime::Place::Arena, plan_.slot.at(v)));
    }
    return value_numbers_.at(v);
  }
  Status launch(size_t i) {
    const Node& n = g_.node(plan_.order[i]);
    const Kernel& k = lowered_.kernels[i];
    const auto built = static_cast<size_t>(kernel_of_[i]);
    runtime::Instruction in;
    const bool early = std::any_of(k.buffers.begin(), k.buffers.end(), [](const Buffer& b) { return b.is_early; });
    if (early) in.early_behind = i == 1 ? 0 : last_of_[i - 2] + 1;
    for (ValueId v : n.inputs) in.args.push_back(INGOT_TRY(number_of(v)));
    in.first_written = static_cast<int32_t>(in.args.size());
    in.lane = plan_.lanes.lane[i];
    for (int32_t w : plan_.lanes.waits[i]) in.waits.push_back(last_of_[static_cast<size_t>(w)]);
    for (ValueId v : n.outputs) in.args.push_back(INGOT_TRY(number_of(v)));
    for (const Expr& d : k.dims) in.dims.push_back(INGOT_TRY(shape(d)));
    in.bytes = INGOT_TRY(shape(kernel_bytes(k)));
    in.flops = INGOT_TRY(shape(kernel_flops(k)));
    for (size_t f = 0; f < built_[built].size(); ++f) {
      in.kernel = number_of_built_[built][f];
      auto& nodes = program_.kernels[static_cast<size_t>(in.kernel)].nodes;
      nodes.insert(nodes.end(), n.origin.nodes.begin(), n.origin.nodes.end());
      INGOT_TRY(add_form(in, built_[built][f]));
    }
    last_of_.push_back(static_cast<int32_t>(program_.instructions.size()) - 1);
    return {};
  }
  Status add_form(runtime::Instruction in, const BuiltKernel& form) {
    for (size_t d = 0; d < 3; ++d) in.grid[d] = INGOT_TRY(shape(form.grid[d]));
    for (const BoxMap& map : form.boxes)
      in.boxes.push_back(INGOT_TRY(lower_box(map, [&](const Expr& e) { return shape(e); })));
    if (form.part_bytes.valid()) in.part_bytes = INGOT_TRY(shape(form.part_bytes));
    program_.instructions.push_back(std::move(in));
    return {};
  }
  /// The launches that make v and that lane 0 has to wait for.
  std::vector<int32_t> waits_for(ValueId v) const {
    std::vector<int32_t> waits;
    const std::vector<NodeId> writers = writers_of(g_, v);
    for (size_t i = 0; i < plan_.order.size(); ++i)
      if (plan_.lanes.lane[i] != 0 && std::find(writers.begin(), writers.end(), plan_.order[i]) != writers.end())
        waits.push_back(last_of_[i]);
    return waits;
  }
  Status copy_outputs() {
    for (const auto& [v, i] : copies_) {
      const int32_t from = INGOT_TRY(number_of(v));
      runtime::Instruction in;
      in.kind = runtime::Instruction::Kind::Copy;
      const runtime::ShapeRef bytes = program_.values[static_cast<size_t>(from)].bytes;
      program_.values.push_back({runtime::Place::Output, static_cast<int32_t>(i), g_.value(v).type.dtype, bytes, g_.output_names[i]});
      in.args = {from, static_cast<int32_t>(program_.values.size() - 1)};
      in.first_written = 1;
      in.waits = waits_for(v);
      in.bytes = in.flops = bytes;
      const runtime::ShapeRef one = INGOT_TRY(shape(1));
      in.grid = {one, one, one};
      in.flops = INGOT_TRY(shape(0));
      program_.instructions.push_back(std::move(in));
    }
    return {};
  }

  const Graph& g_;
  const MemoryPlan& plan_;
  const LoweredProgram& lowered_;
  runtime::Program program_;
  std::vector<std::vector<BuiltKernel>> built_;
  std::vector<int32_t> kernel_of_;  // of each group, in built_
  std::vector<std::vector<int32_t>> number_of_built_;  // in the program
  std::vector<int32_t> last_of_;  // of each group, its last instruction
  std::unordered_map<std::string, int32_t> symbol_numbers_;
  std::unique_ptr<ShapeEmitter> emitter_;
  std::map<ValueId, int32_t> value_numbers_;
  std::vector<std::pair<ValueId, size_t>> copies_;
};

}  // namespace

Result<LoweredProgram> lower_program(const Graph& graph, const MemoryPlan& plan) {
  LoweredProgram lowered;
  for (NodeId id : plan.order) {
    const Node& n = graph.node(id);
    auto k = lower_group(graph, n);
    if (!k) return std::move(k.error());
    k->name = stem_of(*n.body);
    k->header = header_of(*n.body);
    INGOT_TRY(verify(*k));
    lowered.kernels.push_back(std::move(*k));
  }
  return lowered;
}

namespace {

/// Marks what the products of the launch at `position` read and launches before the one in front of it wrote.
void mark_early(const Graph& graph, const Node& n, int position, const std::vector<int>& position_of, Kernel& kernel) {
  const Contract* const c = kernel.contract();
  if (!c || position == 0) return;
  const auto is_early = [&](ValueId v) {
    const std::vector<NodeId> writers = writers_of(graph, v);
    return std::all_of(writers.begin(), writers.end(), [&](NodeId w) { return position_of[w.index] <= position - 2; });
  };
  for (const Expr* operand : {&c->a, &c->b})
    visit(*operand, [&](const Expr& x) {
      if (x.op() != ExprOp::Load) return;
      Buffer& b = kernel.buffers[static_cast<size_t>(x.buffer())];
      b.is_early = !b.is_constant && is_early(n.inputs[static_cast<size_t>(x.buffer())]);
    });
}

}  // namespace

void overlap_launches(const Graph& graph, const MemoryPlan& plan, LoweredProgram& lowered) {
  std::vector<int> position_of(graph.node_count(), -1);
  for (size_t i = 0; i < plan.order.size(); ++i) position_of[plan.order[i].index] = static_cast<int>(i);
  for (size_t i = 0; i < plan.order.size(); ++i)
    mark_early(graph, graph.node(plan.order[i]), static_cast<int>(i), position_of, lowered.kernels[i]);
}

Result<runtime::BoxMap> lower_box(const BoxMap& map,
                                  const std::function<Result<runtime::ShapeRef>(const Expr&)>& shape) {
  runtime::BoxMap out{map.buffer,
                      map.type,
                      INGOT_TRY(shape(map.offset)),
                      {},
                      {},
                      {map.box.begin(), map.box.end()},
                      {map.low.begin(), map.low.end()},
                      {map.high.begin(), map.high.end()},
                      {map.steps.begin(), map.steps.end()},
                      map.clipped};
  for (const Expr& e : map.extents) out.extents.push_back(INGOT_TRY(shape(e)));
  for (const Expr& e : map.strides) out.strides.push_back(INGOT_TRY(shape(e)));
  return out;
}

Result<runtime::Program> describe_interface(const Graph& graph) {
  Graph inputs;  // the same inputs, with nothing that uses them
  inputs.name = graph.name;
  for (ValueId v : graph.inputs) inputs.add_input(graph.value(v).type, graph.value(v).name);
  runtime::Program p = INGOT_TRY(ProgramBuilder(inputs, {}, {}).run({}, nullptr, {}));
  for (size_t i = 0; i < graph.outputs.size(); ++i)
    p.outputs.push_back({graph.output_names[i], graph.value(graph.outputs[i]).type.dtype, {}, {}});
  return p;
}

Result<runtime::Program> build_program(const Graph& graph, const MemoryPlan& plan, const std::vector<ShapeRequirement>& requirements,
                                       const LoweredProgram& lowered, const KernelCompiler& compile, const BuildOptions& options) {
  return ProgramBuilder(graph, plan, lowered).run(requirements, compile, options);
}

}  // namespace ingot
