// RNN, GRU and LSTM: one product for the inputs of all steps, then a product and pointwise work for each step. Everything
// computes in f32 (or f64). Steps are unrolled up to kMostSteps; longer sequences, and those of dynamic length, are a loop of
// the program.
#include <fmt/format.h>

#include "compiler/expr/simplify.h"
#include "compiler/ops/compose.h"
#include "compiler/ops/control.h"

namespace ingot {
namespace {

constexpr int64_t kMostSteps = 128;

// ---- activations ---------------------------------------------------------------------------------------------------------
struct Activation {
  std::string name;
  double alpha = 0, beta = 0;
};
struct ActivationInfo {
  const char* name;
  bool alpha, beta;
  double alpha_default, beta_default;
};
constexpr ActivationInfo kActivations[] = {
    {"Relu", false, false, 0, 0},       {"Tanh", false, false, 0, 0},         {"Sigmoid", false, false, 0, 0},
    {"Affine", true, true, 1, 0},       {"LeakyRelu", true, false, 0.01, 0},  {"ThresholdedRelu", true, false, 1, 0},
    {"ScaledTanh", true, true, 1, 1},   {"HardSigmoid", true, true, 0.2, 0.5}, {"Elu", true, false, 1, 0},
    {"Softsign", false, false, 0, 0},   {"Softplus", false, false, 0, 0}};

bool same_name(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}
ValueId activate(Compose& g, const Activation& a, ValueId x) {
  if (g.failed()) return x;
  const auto zero = [&] { return g.scalar(g.dtype(x), 0); };
  const auto one = [&] { return g.scalar(g.dtype(x), 1); };
  if (a.name == "Affine") return g.add(g.mul(x, a.alpha), a.beta);
  if (a.name == "ScaledTanh") return g.mul(g.unary("Tanh", g.mul(x, a.beta)), a.alpha);
  if (a.name == "LeakyRelu") return g.where(g.binary("Less", x, zero()), g.mul(x, a.alpha), x);
  if (a.name == "ThresholdedRelu") return g.where(g.binary("Greater", x, a.alpha), x, zero());
  if (a.name == "Elu") return g.where(g.binary("Less", x, zero()), g.mul(g.sub(g.unary("Exp", x), one()), a.alpha), x);
  if (a.name == "HardSigmoid") return g.binary("Max", zero(), g.binary("Min", one(), g.add(g.mul(x, a.alpha), a.beta)));
  return g.unary(a.name, x);
}

// ---- what the node says --------------------------------------------------------------------------------------------------
struct Cell {
  std::string kind;             // RNN, GRU, LSTM
  int64_t gates = 1, hidden = 0;
  bool linear_before_reset = false, input_forget = false;
  double clip = 0;
  std::vector<Activation> activations;  // of every direction
};
Result<std::vector<double>> floats_or_empty(ImportContext& c, const char* name) {
  auto it = c.node.attrs.find(name);
  if (it == c.node.attrs.end()) return std::vector<double>{};
  if (auto* v = std::get_if<std::vector<double>>(&it->second)) return *v;
  return std::vector<double>{};
}
Status read_activations(ImportContext& c, Cell& cell, int64_t directions) {
  std::vector<std::string> names;
  if (auto it = c.node.attrs.find("activations"); it != c.node.attrs.end()) {
    if (auto* list = std::get_if<std::vector<std::string>>(&it->second)) names = *list;
  }
  const std::vector<std::string> defaults = cell.kind == "RNN" ? std::vector<std::string>{"Tanh"}
                                            : cell.kind == "GRU" ? std::vector<std::string>{"Sigmoid", "Tanh"}
                                                                 : std::vector<std::string>{"Sigmoid", "Tanh", "Tanh"};
  if (names.empty())
    for (int64_t d = 0; d < directions; ++d) names.insert(names.end(), defaults.begin(), defaults.end());
  if (names.size() != defaults.size() * static_cast<size_t>(directions)) return invalid(fmt::format("{} activations", names.size()));
  const auto alphas = INGOT_TRY(floats_or_empty(c, "activation_alpha")), betas = INGOT_TRY(floats_or_empty(c, "activation_beta"));
  size_t next_alpha = 0, next_beta = 0;
  for (const std::string& name : names) {
    const ActivationInfo* info = nullptr;
    for (const ActivationInfo& i : kActivations)
      if (same_name(i.name, name)) info = &i;
    if (!info) return unsupported(fmt::format("activation {}", name));
    Activation a{info->name, info->alpha_default, info->beta_default};
    if (info->alpha && next_alpha < alphas.size()) a.alpha = alphas[next_alpha++];
    if (info->beta && next_beta < betas.size()) a.beta = betas[next_beta++];
    cell.activations.push_back(a);
  }
  return {};
}

// ---- one direction -------------------------------------------------------------------------------------------------------
struct Weights {
  ValueId w, r, input_bias, hidden_bias, peephole;  // w [I, G*H], r [H, G*H], biases [G*H]; the last three may be invalid
};
struct State {
  ValueId h, c;
};
class Direction {
 public:
  Direction(Compose& g, const Cell& cell, const Weights& w, const Activation* f) : g_(g), cell_(cell), w_(w), f_(f) {}

  /// One step: x is the step's input product [B, G*H].
  State step(ValueId x, const State& s) {
    if (cell_.kind == "RNN") return {activate(g_, f_[0], clipped(g_.add(x, recur(s.h)))), {}};
    return cell_.kind == "GRU" ? gru(x, s) : lstm(x, s);
  }

 private:
  ValueId gate(ValueId x, int64_t i, int64_t n = 1) { return g_.slice(x, g_.rank(x) - 1, i * cell_.hidden, n * cell_.hidden); }
  ValueId clipped(ValueId x) {
    if (cell_.clip <= 0) return x;
    return g_.binary("Min", g_.binary("Max", x, -cell_.clip), cell_.clip);
  }
  ValueId recur(ValueId h) {
    const ValueId y = g_.matmul(h, w_.r);
    return w_.hidden_bias.valid() ? g_.add(y, w_.hidden_bias) : y;
  }
  State gru(ValueId x, const State& s) {
    ValueId zr, inner;
    if (cell_.linear_before_reset) {
      const ValueId all = recur(s.h);
      zr = g_.add(gate(x, 0, 2), gate(all, 0, 2));
      const ValueId gates = activate(g_, f_[0], clipped(zr));
      inner = g_.add(gate(x, 2), g_.mul(gate(gates, 1), gate(all, 2)));
      return blend(gate(gates, 0), activate(g_, f_[1], clipped(inner)), s.h);
    }
    zr = g_.add(gate(x, 0, 2), g_.matmul(s.h, gate(w_.r, 0, 2)));
    if (w_.hidden_bias.valid()) zr = g_.add(zr, gate(w_.hidden_bias, 0, 2));
    const ValueId gates = activate(g_, f_[0], clipped(zr));
    inner = g_.add(gate(x, 2), g_.matmul(g_.mul(gate(gates, 1), s.h), gate(w_.r, 2)));
    if (w_.hidden_bias.valid()) inner = g_.add(inner, gate(w_.hidden_bias, 2));
    return blend(gate(gates, 0), activate(g_, f_[1], clipped(inner)), s.h);
  }
  /// (1 - z)*fresh + z*old.
  State blend(ValueId z, ValueId fresh, ValueId old) {
    if (g_.failed()) return {};
    const ValueId rest = g_.sub(g_.scalar(g_.dtype(z), 1), z);
    return {g_.add(g_.mul(rest, fresh), g_.mul(z, old)), {}};
  }
  ValueId peep(ValueId x, int64_t i, ValueId c) { return w_.peephole.valid() ? g_.add(x, g_.mul(gate(w_.peephole, i), c)) : x; }
  State lstm(ValueId x, const State& s) {
    const ValueId all = g_.add(x, recur(s.h));
    const ValueId i = activate(g_, f_[0], clipped(peep(gate(all, 0), 0, s.c)));
    ValueId f;
    if (g_.failed()) return {};
    if (cell_.input_forget) f = g_.sub(g_.scalar(g_.dtype(i), 1), i);
    else f = activate(g_, f_[0], clipped(peep(gate(all, 2), 2, s.c)));
    const ValueId candidate = activate(g_, f_[1], clipped(gate(all, 3)));
    const ValueId c = g_.add(g_.mul(f, s.c), g_.mul(i, candidate));
    const ValueId o = activate(g_, f_[0], clipped(peep(gate(all, 1), 1, c)));
    return {g_.mul(o, activate(g_, f_[2], c)), c};
  }

  Compose& g_;
  const Cell& cell_;
  Weights w_;
  const Activation* f_;
};

// ---- the node ------------------------------------------------------------------------------------------------------------
struct Sequence {
  ValueId x, lengths;   // [T, B, I]; [1, B, 1] or invalid
  Expr batch, width, length;
  int64_t steps = 0;    // unrolled ones; 0: a loop
  DType type = DType::F32;
};
ValueId pick(Compose& g, ValueId v, int64_t direction) {
  if (g.failed() || !v.valid()) return v;
  Shape s = g.shape(v);
  s.erase(s.begin());
  return g.widen(g.reshape(g.slice(v, 0, direction, 1), s));
}
Weights weights_of(Compose& g, ImportContext& c, const Cell& cell, int64_t d) {
  Weights w;
  w.w = g.swap_last(pick(g, c.in(1), d));
  w.r = g.swap_last(pick(g, c.in(2), d));
  if (c.has(3)) {
    const ValueId b = pick(g, c.in(3), d);
    w.input_bias = g.slice(b, 0, 0, cell.gates * cell.hidden);
    w.hidden_bias = g.slice(b, 0, cell.gates * cell.hidden, cell.gates * cell.hidden);
  }
  if (cell.kind == "LSTM" && c.has(7)) w.peephole = pick(g, c.in(7), d);
  return w;
}
struct Outputs {
  std::vector<ValueId> y;  // by step: [B, H]
  ValueId all;             // of a loop: [T, B, H]
  State last;
};
/// What a step leaves where the sequence has ended already: zeros as output, the old state.
struct Masked {
  ValueId y;
  State next;
};
Masked mask_step(Compose& g, ValueId lengths, ValueId t, const State& next, const State& old) {
  if (!lengths.valid() || g.failed()) return {next.h, next};
  const ValueId runs = g.binary("Greater", lengths, t);
  Masked m{g.where(runs, next.h, g.scalar(g.dtype(next.h), 0)), {g.where(runs, next.h, old.h), {}}};
  if (next.c.valid()) m.next.c = g.where(runs, next.c, old.c);
  return m;
}
/// x [T*B, I] times the weights, for all steps: [T, B, G*H].
ValueId input_products(Compose& g, const Cell& cell, const Weights& w, const Sequence& s) {
  ValueId inputs = g.matmul(g.reshape(s.x, {simplify(s.batch * s.length), s.width}), w.w);
  if (w.input_bias.valid()) inputs = g.add(inputs, w.input_bias);
  return g.reshape(inputs, {s.length, s.batch, cell.gates * cell.hidden});
}
Outputs loop_direction(Compose& g, const Cell& cell, const Weights& w, const Activation* f, const Sequence& s, State state, bool reverse) {
  const ValueId inputs = input_products(g, cell, w, s);
  if (g.failed()) return {};
  LoopSpec spec;
  spec.trips = g.take(build_values(g.builder(), DType::I64, {}, {s.length}));
  spec.states = {state.h};
  if (state.c.valid()) spec.states.push_back(state.c);
  spec.body = [&](NestedGraph& nested, const std::vector<ValueId>& in) -> Result<std::vector<ValueId>> {
    GraphBuilder inside(nested.graph);
    Compose k(inside);
    const auto bring = [&](ValueId v) { return v.valid() ? nested.capture(v) : v; };
    const Weights own{{}, bring(w.r), {}, bring(w.hidden_bias), bring(w.peephole)};
    const ValueId products = nested.capture(inputs);
    ValueId t = in[0];
    if (reverse) t = k.sub(k.take(build_values(inside, DType::I64, {}, {inside.shape(products)[0] - 1})), t);
    const State old{in[2], in.size() > 3 ? in[3] : ValueId()};
    const State next = Direction(k, cell, own, f).step(k.gather(products, t, 0), old);
    const Masked m = mask_step(k, bring(s.lengths), t, next, old);
    std::vector<ValueId> outputs{k.scalar(DType::Bool, 1), m.next.h};
    if (next.c.valid()) outputs.push_back(m.next.c);
    outputs.push_back(m.y);
    return k.result(outputs);
  };
  auto results = build_loop(g.builder(), spec);
  if (!results) {
    g.fail(std::move(results).error());
    return {};
  }
  Outputs out;
  out.last.h = (*results)[0];
  if (state.c.valid()) out.last.c = (*results)[1];
  out.all = g.reshape(results->back(), {s.length, s.batch, cell.hidden});
  if (reverse) out.all = g.slice(out.all, 0, s.length - 1, s.length, -1);
  return out;
}
Outputs run_direction(Compose& g, const Cell& cell, const Weights& w, const Activation* f, const Sequence& s, State state, bool reverse) {
  Outputs out;
  out.y.resize(static_cast<size_t>(s.steps));
  const Expr gates = cell.gates * cell.hidden;
  const ValueId inputs = input_products(g, cell, w, s);
  Direction cellular(g, cell, w, f);
  for (int64_t i = 0; i < s.steps && !g.failed(); ++i) {
    const int64_t t = reverse ? s.steps - 1 - i : i;
    const State next = cellular.step(g.reshape(g.slice(inputs, 0, t, 1), {s.batch, gates}), state);
    const Masked m = mask_step(g, s.lengths, g.scalar(DType::I64, static_cast<double>(t)), next, state);
    out.y[static_cast<size_t>(t)] = m.y;
    state = m.next;
  }
  out.last = state;
  return out;
}
Result<Cell> read_cell(ImportContext& c, int64_t directions) {
  Cell cell;
  cell.kind = c.node.op;
  cell.gates = cell.kind == "RNN" ? 1 : cell.kind == "GRU" ? 3 : 4;
  const auto hidden = c.type(2).shape.back().as_int();
  if (!hidden) return unsupported("a hidden size that is dynamic");
  cell.hidden = *hidden;
  if (INGOT_TRY(c.node.int_or("hidden_size", cell.hidden)) != cell.hidden) return invalid("hidden_size differs from the weights");
  cell.linear_before_reset = INGOT_TRY(c.node.int_or("linear_before_reset", 0)) != 0;
  cell.input_forget = INGOT_TRY(c.node.int_or("input_forget", 0)) != 0;
  cell.clip = INGOT_TRY(c.node.float_or("clip", 0));
  INGOT_TRY(read_activations(c, cell, directions));
  return cell;
}
Result<Sequence> read_sequence(ImportContext& c, Compose& g, bool batch_first) {
  Sequence s;
  s.type = c.type(0).dtype;
  s.x = g.widen(batch_first ? g.transpose(c.in(0), {1, 0, 2}) : c.in(0));
  const Shape x = g.shape(s.x);
  s.length = x[0], s.batch = x[1], s.width = x[2];
  if (const auto known = x[0].as_int(); known && *known <= kMostSteps) s.steps = *known;
  if (c.has(4)) s.lengths = g.reshape(g.cast(c.in(4), DType::I64), {s.batch, 1});
  return s;
}
Result<Values> import_recurrent(ImportContext& c) {
  if (c.rank(0) != 3 || c.rank(1) != 3 || c.rank(2) != 3) return invalid("X, W and R need rank 3");
  Compose g(c.builder);
  const std::string direction = INGOT_TRY(c.node.string_or("direction", "forward"));
  const int64_t directions = direction == "bidirectional" ? 2 : 1;
  const bool batch_first = INGOT_TRY(c.node.int_or("layout", 0)) != 0;
  const Cell cell = INGOT_TRY(read_cell(c, directions));
  const Sequence s = INGOT_TRY(read_sequence(c, g, batch_first));
  const size_t per_direction = cell.activations.size() / static_cast<size_t>(directions);
  std::vector<std::vector<ValueId>> steps(static_cast<size_t>(s.steps));
  std::vector<ValueId> h, last_c, whole;
  auto initial = [&](size_t input, int64_t d) {
    if (!c.has(input)) return g.full(g.dtype(s.x), 0, {s.batch, cell.hidden});
    return pick(g, batch_first ? g.transpose(c.in(input), {1, 0, 2}) : c.in(input), d);
  };
  const Shape one_step{1, 1, s.batch, cell.hidden}, one_state{1, s.batch, cell.hidden};
  for (int64_t d = 0; d < directions; ++d) {
    State start{initial(5, d), cell.kind == "LSTM" ? initial(6, d) : ValueId()};
    const bool reverse = d == 1 || direction == "reverse";
    const auto go = s.steps > 0 || s.length.is_const(0) ? run_direction : loop_direction;
    const Outputs out = go(g, cell, weights_of(g, c, cell, d), &cell.activations[static_cast<size_t>(d) * per_direction], s, start, reverse);
    if (g.failed()) return g.result({});
    if (out.all.valid()) whole.push_back(g.reshape(out.all, {s.length, 1, s.batch, cell.hidden}));
    for (size_t t = 0; t < steps.size(); ++t) steps[t].push_back(g.reshape(out.y[t], one_step));
    h.push_back(g.reshape(out.last.h, one_state));
    if (out.last.c.valid()) last_c.push_back(g.reshape(out.last.c, one_state));
  }
  std::vector<ValueId> rows;
  for (const auto& step : steps) rows.push_back(g.concat(step, 1));
  ValueId y = !whole.empty() ? g.concat(whole, 1) : rows.empty() ? g.full(g.dtype(s.x), 0, {0, directions, s.batch, cell.hidden}) : g.concat(rows, 0);
  auto finish = [&](ValueId v, std::vector<int64_t> perm) { return g.cast(batch_first ? g.transpose(v, std::move(perm)) : v, s.type); };
  Values result{finish(y, {2, 0, 1, 3}), finish(g.concat(h, 0), {1, 0, 2})};
  if (!last_c.empty()) result.push_back(finish(g.concat(last_c, 0), {1, 0, 2}));
  return g.result(result);
}

constexpr auto kRecurrentRules = std::span<const ImportRule>(kRules<import_recurrent, 7, 14, 22>);
const OpDef kRecurrent[] = {
    import_row("RNN", "unrolled; a loop beyond 128 steps or of dynamic length", kRecurrentRules, 3, 6),
    import_row("GRU", "unrolled; a loop beyond 128 steps or of dynamic length", kRecurrentRules, 3, 6),
    import_row("LSTM", "unrolled; a loop beyond 128 steps or of dynamic length", kRecurrentRules, 3, 8),
};

}  // namespace

std::span<const OpDef> recurrent_ops() { return kRecurrent; }

}  // namespace ingot
