#include "tests/random_graphs/expected.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <set>

#include "codegen/kernel/interpret.h"
#include "compiler/driver/reference.h"
#include "compiler/ir/builder.h"
#include "compiler/ops/operands.h"
#include "compiler/ops/registry.h"
#include "passes/passes.h"
#include "tests/random_graphs/node_error.h"
#include "tests/random_graphs/term_order.h"

namespace ingot::testing {
namespace {

constexpr double kSafety = 4;  // over the spread that noise of the right size makes

double round_to_type(DType t, double v) {
  char bytes[8];
  store_float(t, bytes, v);
  return load_float(t, bytes);
}
DType wide(DType t) { return is_float(t) ? DType::F64 : t; }

Result<Graph> decomposed(const Graph& graph, const Sizes& sizes) {
  Graph g = INGOT_TRY(edit_graph(graph, with_sizes(sizes))).graph;
  PassContext ctx;
  ctx.evaluate = evaluate_node;
  INGOT_TRY(decompose(g, ctx));
  g.compact();
  return g;
}
/// The kernel of the first operand less the second.
Result<NodeKernel> subtraction(Graph& g, const std::vector<ValueId>& operands) {
  const ValueId difference = INGOT_TRY(GraphBuilder(g).add(*find_op("Sub"), operands));
  return lower_node(g, *g.producer(difference));
}
Tensor widened(const Tensor& t) {
  if (!is_float(t.type())) return t;
  Tensor out(DType::F64, t.dims());
  for (int64_t i = 0; i < t.count(); ++i) out.set_float(i, t.float_at(i));
  return out;
}

/// On a grid as coarse as the value is off: what may be zero is, and what may be equal to a neighbour.
double snapped(double v, double exact) {
  const double off = std::abs(v - exact);
  if (!(off > 0) || !std::isfinite(off)) return v;
  if (off >= std::abs(exact)) return std::copysign(0.0, v);
  const double grid = std::exp2(std::ceil(std::log2(off)));
  return std::nearbyint(exact / grid) * grid;
}

double largest_of(const Tensor& t) {
  double most = 0;
  for (int64_t i = 0; i < t.count(); ++i)
    if (const double size = std::abs(t.float_at(i)); std::isfinite(size)) most = std::max(most, size);
  return most;
}

/// A root of a sum of squares that f32 holds: those overflow, and vanish, long before the root does; small terms vanish first.
double through_square(double v, int64_t terms) {
  if (std::abs(v) > 0x1p63) return INFINITY;
  const double left = v * v - static_cast<double>(terms) * 0x1p-126;
  return std::abs(v) < 0x1p-60 || left <= 0 ? 0 : std::copysign(std::sqrt(left), v);
}

class Noise {
 public:
  explicit Noise(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 0x1234567) {}
  /// Uniform in [-1, 1).
  double next() {
    state_ ^= state_ << 13, state_ ^= state_ >> 7, state_ ^= state_ << 17;
    return static_cast<double>(static_cast<int64_t>(state_)) * 0x1p-63;
  }

 private:
  uint64_t state_;
};

}  // namespace

struct Expectation::Step {
  NodeKernel lowered;
  std::optional<NodeKernel> subtracted;  // of operands that are compared for equality: their difference
  std::vector<ValueId> outputs;
  std::vector<DType> output_types, input_types;  // before widening
  std::vector<bool> constant_input;
  int64_t terms = 0;
  TermOrder order;
  DType multiplied_as = DType::F32;  // how the first operand may be rounded on the way
  bool exact = false, is_cast = false, squares = false, jumps = false;
  FunctionError function;
  std::vector<TensorType> types;
};

/// How far the operands of jumping steps were off in any evaluation.
using Spread = std::map<ValueId, std::vector<double>>;

/// One evaluation; as it begins, that of the exact values.
struct Expectation::Pass {
  const Expectation& e;
  DType storage;
  double amplitude = 0;
  bool rounds = false, worst_order = false;
  Pass* exact = nullptr;  // set: values that are off by as much as lies between them are equal
  Noise noise{0};
  uint64_t together = 0;            // set: equal values of a tensor are off by the same
  const Spread* pushed = nullptr;   // set: operands of jumping steps are off by `direction` times this
  double direction = 0;
  std::map<ValueId, Tensor> values{};

  double noise_of(double v) {
    uint64_t bits;
    std::memcpy(&bits, &v, sizeof bits);
    return together ? Noise((bits ^ together) * 0xff51afd7ed558ccdu).next() : noise.next();
  }

  DType stored(DType t) const { return t == DType::F32 ? storage : t; }
  Tensor* get(ValueId v) {
    if (auto it = values.find(v); it != values.end()) return &it->second;
    Tensor& t = values.emplace(v, *e.wide_.value(v).constant).first->second;
    // Weights are stored as values are; single numbers are part of a kernel's text.
    if (const DType type = e.types_.at(v); stored(type) != type && t.count() > 1) round_weight(t, stored(type));
    return &t;
  }
  void round_weight(Tensor& t, DType kept) {
    if (amplitude == 0 && !rounds) return;
    Tensor rounded(t.type(), t.dims());
    for (int64_t i = 0; i < t.count(); ++i) {
      const double v = t.float_at(i) * (1 + noise.next() * amplitude * unit_of(kept));
      rounded.set_float(i, rounds ? round_to_type(kept, v) : v);
    }
    t = std::move(rounded);
  }
  /// Sums add their terms in any order: each operand moves by what that may cost.
  Tensor moved_operand(const Tensor& t, const Step& s, size_t input) {
    Tensor out(t.type(), t.dims());
    const DType type = s.input_types[input];
    const double wide_unit = unit_of(compute_type(type)) * (1 + 0.15 * static_cast<double>(s.terms));
    const bool rounded = s.constant_input[input] || storage != DType::F32;
    const double as_stored = rounded ? unit_of(stored(type)) : 0;
    const double own =
        input == 0 && s.multiplied_as != DType::F32 ? std::max(as_stored, unit_of(s.multiplied_as)) : as_stored;
    // Equal terms are rounded in the same direction, so a part of the noise is common to all.
    const double common = 1 + noise.next() * amplitude * wide_unit;
    for (int64_t i = 0; i < t.count(); ++i) {
      const double by = s.jumps ? noise_of(t.float_at(i)) : noise.next();
      out.set_float(i, t.float_at(i) * common * (1 + by * amplitude * (wide_unit + own)));
    }
    return out;
  }
  void move_output(Tensor& t, const Step& s, size_t output, const Tensor* x) {
    const DType type = s.output_types[output];
    if (!is_float(type)) return;
    const DType kept = stored(type);
    const bool silent =
        s.exact || (s.is_cast && (!is_float(s.input_types[0]) || unit_of(s.input_types[0]) >= unit_of(kept)));
    const double unit = unit_of(kept), inner = unit_of(compute_type(type));
    const bool same_count = x && x->count() == t.count();
    const double largest = s.function.by_largest > 0 && x ? s.function.by_largest * largest_of(*x) : 0;
    for (int64_t i = 0; i < t.count(); ++i) {
      double v = t.float_at(i);
      const double x_size = same_count ? std::abs(x->float_at(i)) : 1;
      const double lost =
          s.function.units * inner * (s.function.base + s.function.by_input * x_size + largest);  // by cancellation, at most
      if (amplitude > 0 && !silent && std::isfinite(v)) {
        const double from_function = s.function.units * (inner * std::abs(v) * (1 + s.function.growth * x_size) +
                                                         tiny_of(compute_type(type)) * (1 + x_size)) +
                                     lost;
        const double own = v == 0 ? 0 : unit * std::abs(v) + tiny_of(kept);
        v += noise_of(v) * amplitude * (own + from_function);
      }
      if (rounds && std::abs(v) < lost) v = noise.next() < 0 ? -0.0 : 0.0;  // of either sign: a quotient by it is an infinity of either
      // A CPU may take what is below the normal numbers of f32 for zero (docs/decisions/0003).
      if (rounds && !silent && inner == unit_of(DType::F32) && std::abs(v) < 0x1p-126) v = std::copysign(0.0, v);
      if (rounds && s.squares && inner > unit_of(DType::F64)) v = through_square(v, s.terms);
      if (rounds) v = round_to_type(kept, v);
      if (exact && !silent) v = snapped(v, exact->values.at(s.outputs[output]).float_at(i));
      t.set_float(i, v);
    }
  }
  Result<Tensor> subtract(const Step& s) {
    std::vector<Tensor> operands;
    for (ValueId v : s.subtracted->inputs) operands.push_back(*get(v));
    return std::move(
        INGOT_TRY(run_kernel_alone(s.subtracted->kernel, operands, {{DType::F64, s.types[0].shape}}, {}))[0]);
  }
  /// Sets those elements of a comparison whose operands may be equal, also when one of them is not off at all.
  Status equate(const Step& s) {
    const Tensor now = INGOT_TRY(subtract(s)), then = INGOT_TRY(exact->subtract(s));
    Tensor& result = values.at(s.outputs[0]);
    for (int64_t i = 0; i < result.count(); ++i)
      if (const double off = std::abs(now.float_at(i) - then.float_at(i)); off > 0 && off >= std::abs(then.float_at(i)))
        result.set_int(i, 1);
    return {};
  }
  Status run_step(const Step& s) {
    std::vector<Tensor> moved;
    moved.reserve(s.lowered.inputs.size());
    std::vector<Tensor*> args;
    for (size_t i = 0; i < s.lowered.inputs.size(); ++i) {
      Tensor* t = get(s.lowered.inputs[i]);
      if (const auto by = pushed && s.jumps && i == 0 ? pushed->find(s.lowered.inputs[0]) : Spread::const_iterator();
          pushed && s.jumps && i == 0 && by != pushed->end()) {
        moved.push_back(*t);
        for (int64_t k = 0; k < t->count(); ++k)
          moved.back().set_float(k, t->float_at(k) + direction * by->second[static_cast<size_t>(k)]);
        t = &moved.back();
      }
      if (amplitude > 0 && s.terms > 0 && is_float(s.input_types[i])) {
        moved.push_back(moved_operand(*t, s, i));
        t = &moved.back();
      }
      args.push_back(t);
    }
    for (size_t i = 0; i < s.outputs.size(); ++i)
      args.push_back(
          &values.emplace(s.outputs[i], Tensor(s.types[i].dtype, *static_dims(s.types[i].shape))).first->second);
    std::vector<void*> buffers;
    std::vector<int64_t> sizes;
    for (Tensor* t : args) buffers.push_back(t->mutable_data()), sizes.push_back(t->count());
    INGOT_TRY(interpret(s.lowered.kernel, buffers, sizes, {}));
    const auto results = args.begin() + static_cast<std::ptrdiff_t>(s.lowered.inputs.size());
    if (worst_order) INGOT_TRY(apply_worst_order(s.order, s.lowered, {args.begin(), results}, {results, args.end()}));
    for (size_t i = 0; i < s.outputs.size(); ++i)
      if (amplitude > 0 || rounds) move_output(values.at(s.outputs[i]), s, i, args.empty() ? nullptr : args[0]);
    return exact && s.subtracted ? equate(s) : Status{};
  }
  Result<std::vector<Tensor>> run() {
    for (size_t i = 0; i < e.inputs_.size(); ++i) values.emplace(e.wide_.inputs[i], e.inputs_[i]);
    for (const Step& s : e.steps_) INGOT_TRY(run_step(s));
    std::vector<Tensor> outputs;
    for (ValueId v : e.wide_.outputs) outputs.push_back(*get(v));
    return outputs;
  }
};

Expectation::Expectation() = default;
Expectation::Expectation(Expectation&&) noexcept = default;
Expectation& Expectation::operator=(Expectation&&) noexcept = default;
Expectation::~Expectation() = default;

Result<Expectation> Expectation::prepare(const Graph& graph, const Sizes& sizes, const std::vector<Tensor>& inputs) {
  Expectation e;
  const Graph narrow = INGOT_TRY(decomposed(graph, sizes));
  GraphEdit widen;
  widen.type = wide;
  EditedGraph edited = INGOT_TRY(edit_graph(narrow, widen));
  e.wide_ = std::move(edited.graph);
  std::map<ValueId, DType>& types = e.types_;
  for (const auto& [before, after] : edited.values) types[after] = narrow.value(before).type.dtype;
  std::map<ValueId, DType> weights;  // products with weights that may be narrowed -> their type
  for (NodeId id : narrow.order())
    if (const Node& n = narrow.node(id); follows_softmax(narrow, n))
      if (const DType type = operand_type(narrow, n.inputs[1]); size_of(type) == 2)
        weights[edited.values.at(n.outputs[0])] = type;
  for (const Tensor& t : inputs) e.inputs_.push_back(widened(t));
  for (ValueId v : narrow.outputs) e.output_types_.push_back(narrow.value(v).type.dtype);
  std::set<ValueId> folded;  // what is known at compile time: factors may be moved into it
  for (NodeId id : e.wide_.order()) {
    const Node& n = e.wide_.node(id);
    const auto is_known = [&](ValueId v) { return !v.valid() || e.wide_.value(v).constant != nullptr || folded.count(v) > 0; };
    if (std::all_of(n.inputs.begin(), n.inputs.end(), is_known)) folded.insert(n.outputs.begin(), n.outputs.end());
    Step s;
    s.lowered = INGOT_TRY(lower_node(e.wide_, n));
    s.outputs = n.outputs;
    for (ValueId v : s.lowered.inputs)
      s.input_types.push_back(types.at(v)), s.constant_input.push_back(is_known(v));
    for (ValueId v : n.outputs) s.output_types.push_back(types.at(v)), s.types.push_back(e.wide_.value(v).type);
    s.terms = terms_of(e.wide_, n);
    s.order = order_of(e.wide_, n, s.output_types[0], s.terms);
    if (const auto it = weights.find(n.outputs[0]); it != weights.end()) s.multiplied_as = it->second;
    // A pool may move behind a 1x1 convolution (sink_pools), and then averages what has been rounded.
    if (n.op->name == "AveragePool") s.multiplied_as = s.input_types[0];
    s.exact = is_exact(n), s.is_cast = n.op->name == "Cast";
    s.jumps = is_float(s.input_types.empty() ? DType::Bool : s.input_types[0]) && jumps(n, s.output_types[0]);
    s.squares = n.op->name == "ReduceL2" || n.op->name == "LpPool";
    s.function = function_error(n.op->name);
    if (n.op->name == "Sum" || n.op->name == "Mean")
      s.function = {static_cast<double>(s.terms), numbers_in_text(e.wide_, n), 0, 0};
    if (n.op->name == "Equal" && is_float(types.at(n.inputs[0])))
      s.subtracted = INGOT_TRY(subtraction(e.wide_, n.inputs));
    e.steps_.push_back(std::move(s));
  }
  return e;
}

namespace {

/// Finite, an infinity or NaN.
int class_of(double v) { return std::isnan(v) ? 2 : std::isinf(v) ? (v > 0 ? 1 : -1) : 0; }
double value_at(const Tensor& t, int64_t i) {
  return is_float(t.type()) ? t.float_at(i) : static_cast<double>(t.int_at(i));
}

/// Element i less what is expected; integers that are far apart do not round into the same double.
double difference(const Tensor& t, const ExpectedOutput& want, size_t i) {
  if (want.whole.empty()) return t.float_at(static_cast<int64_t>(i)) - want.value[i];
  const int64_t a = t.int_at(static_cast<int64_t>(i)), b = want.whole[i];
  return a == b ? 0 : std::max(1.0, std::abs(static_cast<double>(a) - static_cast<double>(b)));
}
/// Some value on the way is finite in one evaluation, and not in the other.
template <class Values>
bool differ_in_class(const Values& exact, const Values& sample) {
  for (const auto& [id, t] : exact) {
    const auto other = sample.find(id);
    if (other == sample.end() || !is_float(t.type())) continue;
    for (int64_t i = 0; i < t.count(); ++i)
      if (class_of(t.float_at(i)) != class_of(other->second.float_at(i))) return true;
  }
  return false;
}
void widen_slack(ExpectedOutput& out, const Tensor& sample, double safety) {
  for (size_t i = 0; i < out.value.size(); ++i) {
    const double v = value_at(sample, static_cast<int64_t>(i)), want = out.value[i];
    if (class_of(v) != class_of(want)) out.slack[i] = NAN;
    else if (class_of(v) == 0 && !std::isnan(out.slack[i]))
      out.slack[i] = std::max(out.slack[i], safety * std::abs(difference(sample, out, i)));
  }
}
void add_spread(std::vector<double>& spread, const Tensor& exact, const Tensor& sample, double safety) {
  spread.resize(static_cast<size_t>(exact.count()));
  for (int64_t i = 0; i < exact.count(); ++i)
    if (const double off = std::abs(sample.float_at(i) - exact.float_at(i)); std::isfinite(off))
      spread[static_cast<size_t>(i)] = std::max(spread[static_cast<size_t>(i)], safety * off);
}
void finish(ExpectedOutput& out) {
  double squares = 0, count = 0;
  const double unit = is_float(out.type) ? unit_of(out.type) : 0, tiny = is_float(out.type) ? tiny_of(out.type) : 0;
  const double largest = out.type == DType::F16   ? 65504
                         : out.type == DType::F64 ? std::numeric_limits<double>::max()
                                                  : std::numeric_limits<float>::max();
  for (size_t i = 0; i < out.value.size(); ++i) {
    if (class_of(out.value[i]) != 0) continue;
    out.slack[i] += 2 * unit * std::abs(out.value[i]) + tiny;
    if (is_float(out.type) && std::abs(out.value[i]) + 2 * out.slack[i] > largest)
      out.slack[i] = NAN;  // may be infinite
    squares += out.value[i] * out.value[i], ++count;
  }
  out.scale = count > 0 ? std::sqrt(squares / count) : 0;
  // What may be off by more than itself says nothing, and a few samples do not bound it: a quotient by what may be zero.
  for (size_t i = 0; i < out.value.size(); ++i)
    if (is_float(out.type) && out.slack[i] > std::abs(out.value[i]) && out.slack[i] > 0.1 * out.scale)
      out.slack[i] = NAN;
}

}  // namespace

Result<std::vector<ExpectedOutput>> Expectation::evaluate(const NoiseOptions& o) const {
  Pass plain{*this, o.storage};
  const std::vector<Tensor> exact = INGOT_TRY(plain.run());
  bool differ = false;
  std::vector<ExpectedOutput> outputs(exact.size());
  for (size_t k = 0; k < exact.size(); ++k) {
    outputs[k].type = output_types_[k];
    outputs[k].dims = exact[k].dims();
    for (int64_t i = 0; i < exact[k].count(); ++i) {
      outputs[k].value.push_back(value_at(exact[k], i));
      if (!is_float(outputs[k].type)) outputs[k].whole.push_back(exact[k].int_at(i));
    }
    outputs[k].slack.assign(outputs[k].value.size(), 0);
  }
  Spread spread;
  for (const Step& s : steps_)
    if (s.jumps) spread[s.lowered.inputs[0]];
  for (int sample = 0; sample <= o.samples; ++sample) {
    const bool far = sample > 0 && sample % 4 % 3 == 0;  // the safety is in the noise
    Pass pass{*this, o.storage};
    pass.amplitude = sample ? o.amplitude * (far ? kSafety : 1) : 0;
    pass.rounds = sample % 2 == 0, pass.worst_order = sample == 2;
    if (sample % 4 == 3) pass.exact = &plain;
    pass.noise = Noise(o.seed * 1000 + static_cast<uint64_t>(sample));
    if (sample % 4 < 2 && sample > 0) pass.together = o.seed * 1000 + static_cast<uint64_t>(sample);
    const std::vector<Tensor> got = INGOT_TRY(pass.run());
    for (size_t k = 0; k < got.size(); ++k) widen_slack(outputs[k], got[k], far ? 1 : kSafety);
    differ = differ || differ_in_class(plain.values, pass.values);
    for (auto& [v, off] : spread) add_spread(off, *plain.get(v), *pass.get(v), far ? 1 : kSafety);
  }
  // A few samples hardly ever pass a threshold that a value is near to: each goes as far as it may, either way.
  for (const double direction : {-1.0, 1.0}) {
    if (spread.empty()) break;
    Pass pass{*this, o.storage};
    pass.pushed = &spread, pass.direction = direction;
    const std::vector<Tensor> got = INGOT_TRY(pass.run());
    for (size_t k = 0; k < got.size(); ++k) widen_slack(outputs[k], got[k], 1);
  }
  // A NaN of what may be NaN by chance is no evidence that it has to be one: log(x) is, too, where x is just below 0.
  for (ExpectedOutput& out : outputs)
    for (size_t i = 0; differ && i < out.value.size(); ++i)
      if (class_of(out.value[i]) == 2) out.slack[i] = NAN;
  for (ExpectedOutput& out : outputs) finish(out);
  return outputs;
}

Comparison compare_with(const Tensor& got, const ExpectedOutput& want) {
  Comparison c;
  c.elements = got.count();
  if (got.type() != want.type || got.dims() != want.dims) {
    c.equal = false;
    c.text = fmt::format("{} where {} is expected", describe(got.type(), got.dims()), describe(want.type, want.dims));
    return c;
  }
  double worst = 0;
  if (got.type() == DType::Bool)
    for (int64_t i = 0; i < got.count(); ++i)
      if (const int byte = got.as<uint8_t>()[i]; byte > 1) {
        c.equal = false;
        c.text =
            fmt::format("element {} of {} is the byte {}, no truth value", i, describe(got.type(), got.dims()), byte);
        return c;
      }
  for (int64_t i = 0; i < got.count(); ++i) {
    const auto at = static_cast<size_t>(i);
    const double slack = want.slack[at], expected = want.value[at], value = value_at(got, i);
    if (std::isnan(slack)) {
      ++c.unknown;
      continue;
    }
    if (slack > 0.1 * want.scale) ++c.loose;
    const bool both_special = class_of(expected) != 0 && class_of(expected) == class_of(value);
    if (both_special || std::abs(difference(got, want, at)) <= slack) continue;
    const double excess =
        class_of(value) || class_of(expected) ? INFINITY : std::abs(value - expected) / std::max(slack, 1e-300);
    if (!c.equal && !(excess > worst)) continue;
    worst = excess;
    c.equal = false;
    c.text = fmt::format("element {} of {} is {:.9g}, expected {:.9g} within {:.3g}", i,
                         describe(got.type(), got.dims()), value, expected, slack);
  }
  return c;
}

}  // namespace ingot::testing
