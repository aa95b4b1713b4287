#include "tests/random_graphs/generator.h"

#include <fmt/format.h>

#include <algorithm>

#include "compiler/expr/simplify.h"
#include "compiler/ir/text.h"
#include "compiler/ops/registry.h"

namespace ingot::testing {
namespace {

constexpr int64_t kUsualSize = 5;
constexpr size_t kMostRank = 5;

}  // namespace

GraphCase generate_case(uint64_t seed) { return Generator(seed).run(); }

Generator::Generator(uint64_t seed) : rng_(seed), seed_(seed), builder_(graph_) {
  static const std::vector<int64_t> kUsual = {1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 16, 17, 24, 31, 32, 33};
  static const std::vector<int64_t> kLarge = {1, 3, 16, 33, 48, 63, 64, 65, 97, 100, 127, 128, 130};
  const bool large = chance(0.1);  // several tiles, panels and vectors an axis
  const std::vector<int64_t>& sizes = large ? kLarge : kUsual;
  most_elements_ = large ? 25000 : 3000;
  const int64_t count = 2 + below(3);
  for (int64_t i = 0; i < count; ++i) dims_.emplace_back(pick(sizes));
  if (chance(0.5)) dims_.emplace_back(1);
  if (chance(0.04)) dims_.emplace_back(0);
  if (chance(0.55)) {
    const int64_t number = 1 + below(2), low = chance(0.5) ? 1 : 0;
    for (int64_t i = 0; i < number; ++i)
      symbols_.push_back(Expr::symbol(i ? "M" : "N", low, chance(0.3) ? 64 : kNoLimit));
    dims_.insert(dims_.end(), symbols_.begin(), symbols_.end());
  }
  const int64_t t = below(10);
  main_ = t < 6 ? DType::F32 : t < 8 ? DType::F16 : t < 9 ? DType::BF16 : DType::F32;
}

// clang-format off
/// How often each step is taken.
const std::vector<std::pair<int, bool (Generator::*)()>>& Generator::steps() {
  static const std::vector<std::pair<int, bool (Generator::*)()>> kSteps = {
      {10, &Generator::unary}, {12, &Generator::binary}, {3, &Generator::comparison}, {4, &Generator::choice},
      {5, &Generator::integers}, {4, &Generator::cast}, {6, &Generator::permute}, {6, &Generator::reshape_step},
      {5, &Generator::slice}, {3, &Generator::split}, {5, &Generator::concat}, {3, &Generator::pad},
      {4, &Generator::expand}, {4, &Generator::gather}, {1, &Generator::triangle}, {8, &Generator::reduce},
      {4, &Generator::softmax}, {5, &Generator::norm}, {9, &Generator::matmul}, {3, &Generator::parallel_products},
      {2, &Generator::perceptron}, {9, &Generator::convolution}, {4, &Generator::pool}, {4, &Generator::attention},
      {1, &Generator::running_sum}, {2, &Generator::resize}, {4, &Generator::choose_elements},
      {3, &Generator::quantized}, {3, &Generator::blocks}, {2, &Generator::einsum}, {3, &Generator::statistics},
      {4, &Generator::gemm}, {3, &Generator::squeeze}, {4, &Generator::reduced_rows}, {2, &Generator::experts},
      {2, &Generator::branches}, {3, &Generator::transformer_parts}, {1, &Generator::recurrent},
      {2, &Generator::normed_products}};
  return kSteps;
}
// clang-format on

GraphCase Generator::run() {
  int total = 0;
  for (const auto& [weight, step] : steps()) total += weight;
  keep(input(main_, random_shape(1 + static_cast<size_t>(below(4)))));
  follow_ = chance(0.4) ? 0.9 : 0.45;
  const int64_t count = 1 + below(chance(0.2) ? 18 : 10);
  for (int64_t i = 0; i < count; ++i) {
    int64_t at = below(total);
    for (const auto& [weight, step] : steps()) {
      at -= weight;
      if (at >= 0) continue;
      (this->*step)();
      break;
    }
  }
  choose_outputs();
  GraphCase c;
  c.seed = seed_;
  for (const Expr& s : symbols_) graph_.symbols.push_back(s);
  bind_symbols();
  c.text = print_graph(graph_);
  c.sizes = choose_sizes();
  return c;
}

/// A symbol gets its value from the dims of an input.
void Generator::bind_symbols() {
  for (const Expr& s : symbols_) {
    const bool bound = std::any_of(graph_.inputs.begin(), graph_.inputs.end(), [&](ValueId v) {
      return std::any_of(shape(v).begin(), shape(v).end(), [&](const Expr& d) { return d.same(s); });
    });
    if (!bound) input(DType::F32, {s});
  }
}

/// Sinks, mostly; also values that others read, the same value twice, an input.
void Generator::choose_outputs() {
  if (pool_.empty()) pool_.push_back(input(DType::F32, {3}));  // all values so far are too large to be kept
  std::vector<ValueId> sinks, others;
  for (ValueId v : pool_)
    (graph_.value(v).users.empty() && graph_.value(v).producer.valid() ? sinks : others).push_back(v);
  while (sinks.size() > 4) sinks.erase(sinks.begin() + below(static_cast<int64_t>(sinks.size())));
  if (sinks.empty() || chance(0.35)) sinks.push_back(pick(pool_));
  if (!others.empty() && chance(0.2)) sinks.push_back(pick(others));
  if (chance(0.03)) sinks.push_back(sinks[0]);
  for (ValueId v : sinks) {
    graph_.outputs.push_back(v);
    graph_.output_names.push_back(fmt::format("y{}", graph_.outputs.size() - 1));
  }
}

/// No value has a dimension below zero: a transposed convolution of nothing would.
bool Generator::fits(const Sizes& sizes) const {
  for (NodeId id : graph_.order())
    for (ValueId v : graph_.node(id).outputs)
      for (const Expr& d : graph_.value(v).type.shape)
        if (evaluate_int(d, sizes).value_or(0) < 0) return false;
  return true;
}

std::vector<Sizes> Generator::choose_sizes() {
  static const std::vector<int64_t> kSizes = {1, 2, 3, 4, 5, 7, 8, 9, 11, 16, 17};
  std::vector<Sizes> list;
  const int64_t count = symbols_.empty() ? 1 : 2 + below(2);
  for (int64_t i = 0; i < count; ++i) {
    Sizes s;
    for (const Expr& symbol : symbols_) s[symbol.name()] = symbol.low() == 0 && chance(0.06) ? 0 : pick(kSizes);
    for (int tries = 0; !fits(s) && tries < 20; ++tries)
      for (auto& [name, size] : s) size = pick(kSizes);
    list.push_back(std::move(s));
  }
  return list;
}

DType Generator::pick_type() {
  static const std::vector<DType> kOthers = {DType::F32, DType::F16,  DType::BF16, DType::I32,
                                             DType::I64, DType::Bool, DType::I8,   DType::U8};
  return chance(0.6) ? main_ : pick(kOthers);
}

ValueId Generator::input(DType t, Shape s) {
  return graph_.add_input({t, std::move(s)}, fmt::format("x{}", graph_.inputs.size()));
}

ValueId Generator::constant(DType t, const Shape& s) {
  std::vector<int64_t> dims;
  for (const Expr& d : s) dims.push_back(*d.as_int());
  Tensor x(t, dims);
  std::normal_distribution<double> normal;
  for (int64_t i = 0; i < x.count(); ++i) is_float(t) ? x.set_float(i, normal(rng_)) : x.set_int(i, below(9) - 4);
  return builder_.constant(std::move(x), fmt::format("c{}", graph_.value_count()));
}

ValueId Generator::numbers(DType t, Shape s, const std::vector<double>& items) {
  Tensor x(t, *static_dims(s));
  for (int64_t i = 0; i < x.count(); ++i) {
    const double v = items[static_cast<size_t>(i) % items.size()];
    is_float(t) ? x.set_float(i, v) : x.set_int(i, static_cast<int64_t>(v));
  }
  return builder_.constant(std::move(x));
}

ValueId Generator::fresh(DType t, Shape s, double constant_share) {
  return static_dims(s) && chance(constant_share) ? constant(t, s) : input(t, std::move(s));
}

ValueId Generator::find(const std::function<bool(const TensorType&)>& fits) {
  std::vector<ValueId> found;
  for (ValueId v : pool_)
    if (fits(type(v))) found.push_back(v);
  if (found.empty()) return {};
  const auto n = static_cast<int64_t>(found.size());
  return found[static_cast<size_t>(chance(follow_) ? n - 1 : below(n))];
}

ValueId Generator::value_of_rank(size_t low, size_t high, bool floats) {
  const ValueId v = chance(0.85) ? find([&](const TensorType& t) {
    return t.rank() >= low && t.rank() <= high && (!floats || is_float(t.dtype));
  })
                                 : ValueId();
  if (v.valid()) return v;
  const ValueId made = input(floats ? main_ : pick_type(),
                             random_shape(low + static_cast<size_t>(below(static_cast<int64_t>(high - low + 1)))));
  keep(made);
  return made;
}

ValueId Generator::find_broadcasting(DType t, ValueId x) {
  const Shape s = shape(x);
  return find([&](const TensorType& other) {
    if (other.dtype != t) return false;
    for (size_t i = 0; i < std::min(other.rank(), s.size()); ++i) {
      const Expr &a = other.shape[other.rank() - 1 - i], &b = s[s.size() - 1 - i];
      if (!a.is_const(1) && !b.is_const(1) && !proves_equal(a, b)) return false;
    }
    return true;
  });
}

ValueId Generator::partner(ValueId x) {
  const Shape s = shape(x);
  const DType t = type(x).dtype;
  if (const ValueId v = chance(0.45) ? find_broadcasting(t, x) : ValueId(); v.valid()) return v;
  Shape other = s;
  const int64_t form = below(5);
  if (form == 0) other.clear();
  if (form == 1) other.erase(other.begin(), other.begin() + below(static_cast<int64_t>(other.size()) + 1));
  if (form == 2)
    for (Expr& d : other)
      if (chance(0.5)) d = 1;
  if (form == 3 && !other.empty()) std::fill(other.begin(), other.end() - 1, Expr(1));
  return fresh(t, other, 0.5);
}

Shape Generator::random_shape(size_t rank) {
  Shape s;
  for (size_t i = 0; i < rank; ++i) {
    s.push_back(pick_dim());
    const auto count = evaluate_int(element_count(s), {{"N", kUsualSize}, {"M", kUsualSize}});
    if (!count || *count > most_elements_) s.back() = 1 + below(2);
  }
  return s;
}

bool Generator::keep(ValueId v) {
  if (!v.valid()) return false;
  const auto count = evaluate_int(element_count(shape(v)), {{"N", kUsualSize}, {"M", kUsualSize}});
  if (!count || *count > most_elements_ || rank(v) > kMostRank) return false;
  for (const Expr& d : shape(v))  // a transposed convolution over no rows
    if (d.as_int().value_or(0) < 0) return false;
  pool_.push_back(v);
  return true;
}

ValueId Generator::add(const std::string& name, std::vector<ValueId> inputs, FieldTexts attrs) {
  for (ValueId v : inputs)
    if (!v.valid() && name != "Clip") return {};
  const OpDef& row = op(name);
  SymbolScope scope;
  for (const Expr& s : symbols_) scope.emplace(s.name(), s);
  AttrsBox box;
  if (row.parse_attrs) {
    auto parsed = row.parse_attrs(attrs, scope);
    INGOT_CHECK(parsed.ok(), "attributes of " + name);
    box = *parsed;
  }
  auto made = builder_.add(row, box, std::move(inputs));
  return made.ok() ? *made : ValueId();
}

}  // namespace ingot::testing
