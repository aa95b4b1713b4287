// The planning half of Session: checking inputs, binding symbols, and turning a shape into sizes, offsets and grids. A
// plan is made once per shape; the launches themselves are in session_issue.cpp.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "runtime/executor.h"
#include "runtime/memory.h"

namespace ingot::runtime {
namespace {

Status add_to_arena(int64_t bytes, uint64_t& arena_bytes) {
  const uint64_t rounded = align_up(static_cast<uint64_t>(std::max<int64_t>(bytes, 1)));
  if (__builtin_add_overflow(arena_bytes, rounded, &arena_bytes))
    return make_error(ErrorKind::OutOfMemory, "the arena's size does not fit in 64 bits");
  return {};
}

std::string dims_text(const Dims& dims) { return fmt::format("[{}]", fmt::join(dims, ",")); }

/// "x f32[N,3,224,224]": what the model wants of an input.
std::string expected(const Program& p, const Binding& b) {
  std::string text;
  for (size_t d = 0; d < b.dims.size(); ++d) {
    const int32_t symbol = b.symbols.empty() ? -1 : b.symbols[d];
    const ShapeLine& line = p.shapes.lines[b.dims[d]];
    text += d ? "," : "";
    if (symbol >= 0) text += p.symbols[symbol].name;
    else if (line.op == ShapeOp::Constant) text += std::to_string(line.immediate);
    else text += "?";
  }
  return fmt::format("'{}' {}[{}]", b.name, name_of(b.type), text);
}

}  // namespace

uint64_t counter_bytes_of(const Program& program) {
  const bool any = std::any_of(program.instructions.begin(), program.instructions.end(),
                               [](const Instruction& in) { return in.part_bytes >= 0; });
  return any ? static_cast<uint64_t>(lanes_of(program)) * kCounterBytes : 0;
}

Status Session::check_types(const std::vector<Tensor>& inputs) const {
  const Program& p = engine_->program();
  if (inputs.size() != p.inputs.size()) {
    std::string wanted;
    for (const Binding& b : p.inputs) wanted += "\n  " + expected(p, b);
    return invalid(fmt::format("{} inputs given, the model has {}:{}", inputs.size(), p.inputs.size(), wanted));
  }
  for (size_t i = 0; i < inputs.size(); ++i)
    if (inputs[i].type() != p.inputs[i].type)
      return invalid(fmt::format("input {} has type {}, the model wants {}", i, name_of(inputs[i].type()),
                                 expected(p, p.inputs[i])));
  return {};
}

Result<std::vector<int64_t>> Session::bind_symbols(const std::vector<Dims>& input_dims) const {
  const Program& p = engine_->program();
  if (input_dims.size() != p.inputs.size())
    return invalid(fmt::format("{} inputs given, the model has {}", input_dims.size(), p.inputs.size()));
  std::vector<int64_t> symbols(p.symbols.size(), 0);
  std::vector<int> bound_by(p.symbols.size(), -1);
  for (size_t i = 0; i < input_dims.size(); ++i) {
    const Binding& b = p.inputs[i];
    const Dims& dims = input_dims[i];
    if (dims.size() != b.dims.size())
      return invalid(
          fmt::format("input {} {} has rank {}, the model wants {}", i, dims_text(dims), dims.size(), expected(p, b)));
    for (size_t d = 0; d < dims.size(); ++d) {
      if (dims[d] < 0) return invalid(fmt::format("input '{}': negative dimension in {}", b.name, dims_text(dims)));
      const int32_t s = b.symbols.empty() ? -1 : b.symbols[d];
      if (s < 0) continue;
      const SymbolInfo& info = p.symbols[s];
      if (bound_by[s] >= 0 && symbols[s] != dims[d])
        return invalid(fmt::format("input '{}': dimension {} is {}, but {} is {} in input '{}'", b.name, d, dims[d],
                                   info.name, symbols[s], p.inputs[bound_by[s]].name));
      if (dims[d] < info.low || dims[d] > info.high)
        return invalid(fmt::format("input '{}': dimension {} ({}) is {}; the model was built for {} to {}", b.name, d,
                                   info.name, dims[d], info.low, info.high));
      symbols[s] = dims[d];
      bound_by[s] = static_cast<int>(i);
    }
  }
  INGOT_TRY(bind_values(symbols));
  for (size_t s = 0; s < symbols.size(); ++s)
    if (bound_by[s] < 0 && p.symbols[s].input < 0) {
      if (p.symbols[s].low != p.symbols[s].high)
        return invalid(fmt::format("no input has a dimension that gives {} its value", p.symbols[s].name));
      symbols[s] = p.symbols[s].low;
    }
  return symbols;
}

Status Session::check_dims(const Plan& plan, const std::vector<Dims>& input_dims) const {
  const Program& p = engine_->program();
  for (size_t i = 0; i < input_dims.size(); ++i)
    for (size_t d = 0; d < input_dims[i].size(); ++d) {
      const int64_t want = plan.lines[p.inputs[i].dims[d]];
      if (input_dims[i][d] != want)
        return invalid(fmt::format("input {} {}: dimension {} must be {}, the model wants {}", i,
                                   dims_text(input_dims[i]), d, want, expected(p, p.inputs[i])));
    }
  return {};
}

Result<Session::Plan*> Session::plan_for(const std::vector<Dims>& input_dims) {
  std::vector<int64_t> symbols = INGOT_TRY(bind_symbols(input_dims));
  const auto found =
      std::find_if(plans_.begin(), plans_.end(), [&](const Plan& plan) { return plan.symbols == symbols; });
  if (found != plans_.end()) {
    plans_.splice(plans_.begin(), plans_, found);
  } else {
    const auto start = std::chrono::steady_clock::now();
    plans_.push_front(INGOT_TRY(make_plan(std::move(symbols), input_dims)));
    counters_.last_plan_us =
        std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
    ++counters_.plans_made;
    if (plans_.size() > std::max<size_t>(options_.max_plans, 1)) {
      INGOT_TRY(engine_->device()->synchronize(stream_.get()));  // a recording may still be running
      drop_recordings(&plans_.back());
      plans_.pop_back();
      ++counters_.plans_dropped;
    }
  }
  INGOT_TRY(check_dims(plans_.front(), input_dims));
  return &plans_.front();
}

Status Session::place_slots(Plan& plan) const {
  const Program& p = engine_->program();
  // Counters come first: where they are does not depend on the shape.
  plan.arena_bytes = counter_bytes_of(p);
  for (size_t i = 0; i < p.slots.size(); ++i) {
    const int64_t bytes = plan.lines[p.slots[i].bytes];
    if (bytes < 0) return invalid(fmt::format("arena slot {} has a negative size: the shape is impossible", i));
    plan.slot_offsets.push_back(plan.arena_bytes);
    INGOT_TRY(add_to_arena(bytes, plan.arena_bytes));
  }
  return {};
}

/// Launches of one lane follow each other, so they have the same memory for their parts of sums.
Status Session::place_parts(Plan& plan) const {
  std::vector<int64_t> most(static_cast<size_t>(engine_->lanes()), 0);
  for (const Step& s : plan.steps)
    if (s.parts && !s.empty) {
      int64_t& bytes = most[static_cast<size_t>(s.instruction->lane)];
      bytes = std::max(bytes, plan.lines[s.instruction->part_bytes]);
    }
  std::vector<uint64_t> offsets;
  for (const int64_t bytes : most) {
    offsets.push_back(plan.arena_bytes);
    if (bytes > 0) INGOT_TRY(add_to_arena(bytes, plan.arena_bytes));
  }
  for (Step& s : plan.steps)
    if (s.parts) s.parts = offsets[static_cast<size_t>(s.instruction->lane)];
  return {};
}

BoxSizes sizes_of(const BoxMap& map, std::span<const int64_t> lines) {
  BoxSizes sizes;
  sizes.argument = map.argument;
  sizes.type = map.type;
  sizes.offset = lines[static_cast<size_t>(map.offset)];
  sizes.rank = static_cast<int>(map.extents.size());
  for (size_t i = 0; i < map.extents.size(); ++i) {
    sizes.extents[i] = lines[static_cast<size_t>(map.extents[i])];
    if (i > 0) sizes.strides[i - 1] = lines[static_cast<size_t>(map.strides[i - 1])];
  }
  std::copy(map.box.begin(), map.box.end(), sizes.box.begin());
  sizes.clip(map.clipped);
  sizes.window = !map.low.empty();
  std::copy(map.low.begin(), map.low.end(), sizes.low.begin());
  std::copy(map.high.begin(), map.high.end(), sizes.high.begin());
  std::copy(map.steps.begin(), map.steps.end(), sizes.steps.begin());
  return sizes;
}

Result<Session::Plan> Session::make_plan(std::vector<int64_t> symbols, const std::vector<Dims>& input_dims) const {
  const Program& p = engine_->program();
  Plan plan;
  INGOT_TRY(p.shapes.evaluate(symbols, plan.lines));
  plan.symbols = std::move(symbols);
  for (const Program::Requirement& r : p.requirements)
    if (plan.lines[r.condition] == 0) {
      Error e = invalid("this shape does not fit the model: " + r.message);
      for (size_t i = 0; i < input_dims.size(); ++i)
        e.add(fmt::format("input '{}' {}", p.inputs[i].name, dims_text(input_dims[i])));
      return e;
    }
  INGOT_TRY(place_slots(plan));
  for (const Binding& b : p.outputs) {
    Dims dims;
    for (ShapeRef d : b.dims) dims.push_back(plan.lines[d]);
    auto count = checked_count(dims, size_of(b.type));
    if (!count) return std::move(count).error().add(fmt::format("output '{}' {}", b.name, dims_text(dims)));
    plan.output_dims.push_back(std::move(dims));
  }
  for (const Instruction& in : p.instructions) {
    Step step;
    step.instruction = &in;
    if (in.kind == Instruction::Kind::Copy) {
      step.bytes = static_cast<uint64_t>(plan.lines[p.values[in.args[0]].bytes]);
    } else {
      step.kernel = &engine_->kernel(in.kernel);
      for (ShapeRef d : in.dims) step.dims.push_back(plan.lines[d]);
      for (size_t g = 0; g < 3; ++g) step.grid[g] = plan.lines[in.grid[g]];
      for (const BoxMap& m : in.boxes) step.boxes.push_back(sizes_of(m, plan.lines));
      if (in.part_bytes >= 0) step.parts = 0;
      step.empty = step.grid[0] <= 0 || step.grid[1] <= 0 || step.grid[2] <= 0;
    }
    plan.steps.push_back(std::move(step));
  }
  INGOT_TRY(place_parts(plan));
  plan.lanes = worth_lanes(plan);
  return plan;
}

namespace {

/// How long launches take on one stream and on their lanes, in microseconds: each by itself at rates that are seldom reached, and what
/// waits for another lane an event longer: on a stream, launches start before the one in front has ended, which none does behind an event.
/// One that fills the device runs beside no other.
class LaneTimes {
 public:
  LaneTimes(int32_t lanes, size_t launches) : free_(static_cast<size_t>(lanes), 0) { finish_.reserve(launches); }
  void add(const Instruction& in, bool empty, bool fills, std::span<const int64_t> lines) {
    double& lane = free_[static_cast<size_t>(in.lane)];
    if (!empty) {
      constexpr double kLaunch = 2, kBytes = 3e6, kFlops = 4e8;
      const auto value = [&](ShapeRef line) { return static_cast<double>(lines[static_cast<size_t>(line)]); };
      const double time = kLaunch + std::max(value(in.bytes) / kBytes, value(in.flops) / kFlops);
      for (int32_t w : in.waits) lane = std::max(lane, finish_[static_cast<size_t>(w)] + kWait);
      if (fills) lane = *std::max_element(free_.begin(), free_.end());
      lane += time;
      if (fills) std::fill(free_.begin(), free_.end(), lane);
      one_stream_ += time;
    }
    finish_.push_back(lane);
  }
  double on_one_stream() const { return one_stream_; }
  double on_lanes() const { return *std::max_element(free_.begin(), free_.end()) + kWait; }

 private:
  static constexpr double kWait = 2.5;
  std::vector<double> free_, finish_;  // of each lane; of each launch
  double one_stream_ = 0;
};

/// Whether a launch leaves the device room for another one. Of blocks with more than half of an SM's shared memory there is one an SM: three
/// quarters of the SMs with one each are as good as all of them.
bool leaves_room(const std::array<int64_t, 3>& grid, int32_t shared_bytes, int64_t units) {
  constexpr int32_t kHalf = 114 << 10;
  const int64_t room = shared_bytes > kHalf ? units * 3 / 4 : 2 * units;
  return grid[0] < room && grid[0] * grid[1] * grid[2] < room;
}

}  // namespace

/// Lanes help where kernels leave the device room for each other, and branches are long enough for what their events cost.
bool Session::worth_lanes(const Plan& plan) const {
  if (options_.lanes == Lanes::Never || options_.synchronous || engine_->lanes() < 2 || engine_->device()->is_host())
    return false;
  if (options_.lanes == Lanes::Always) return true;
  constexpr double kWorth = 0.9;
  const int64_t units = engine_->device()->parallel_units();
  LaneTimes times(engine_->lanes(), plan.steps.size());
  for (const Step& step : plan.steps) {
    const int32_t kernel = step.instruction->kernel;
    const int32_t shared = kernel < 0 ? 0 : engine_->program().kernels[static_cast<size_t>(kernel)].shared_bytes;
    times.add(*step.instruction, step.empty, !step.empty && !leaves_room(step.grid, shared, units), plan.lines);
  }
  return times.on_lanes() <= kWorth * times.on_one_stream();
}

}  // namespace ingot::runtime
