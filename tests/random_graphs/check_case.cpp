#include "tests/random_graphs/check_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>

#include "compiler/ir/text.h"
#include "compiler/ops/registry.h"

namespace ingot::testing {
namespace {

/// How closely outputs are looked at: those that differ go on to the next. A tie, a bend, or which of several elements is the
/// largest, is what few repetitions find steady.
struct Closeness {
  int samples;
  double amplitude;
};
constexpr Closeness kCloser[] = {{6, 1}, {48, 2}, {240, 2}};

/// The expected outputs at each of a case's sizes, for each storage type that a variant asks for.
class Oracle {
 public:
  explicit Oracle(const GraphCase& c) : case_(c) {}

  Status prepare() {
    const Graph g = INGOT_TRY(graph_of(case_));
    for (const Sizes& s : case_.sizes) {
      const Graph fixed = INGOT_TRY(edit_graph(g, with_sizes(s))).graph;
      INGOT_TRY(check_static(fixed));
      inputs.push_back(INGOT_TRY(inputs_for(g, s, case_.seed)));
      expectations_.push_back(INGOT_TRY(Expectation::prepare(g, s, inputs.back())));
    }
    return {};
  }
  Result<const std::vector<ExpectedOutput>*> expected(size_t at, DType storage, size_t closeness) {
    auto& slot = known_[{at, storage, closeness}];
    if (slot.empty()) {
      NoiseOptions o;
      o.seed = case_.seed;
      o.storage = storage;
      o.samples = kCloser[closeness].samples, o.amplitude = kCloser[closeness].amplitude;
      slot = INGOT_TRY(expectations_[at].evaluate(o));
    }
    return &slot;
  }
  std::vector<std::vector<Tensor>> inputs;

 private:
  const GraphCase& case_;
  std::vector<Expectation> expectations_;
  std::map<std::tuple<size_t, DType, size_t>, std::vector<ExpectedOutput>> known_;
};

std::string sizes_text(const Sizes& sizes) {
  std::string text;
  for (const auto& [name, size] : sizes) text += fmt::format(" {}={}", name, size);
  return text.empty() ? "" : " at" + text;
}

class Checker {
 public:
  Checker(const GraphCase& c, Oracle& oracle, CheckResult& result) : case_(c), oracle_(oracle), result_(result) {}

  Status check(const Variant& v) {
    result_.variant = v.name();
    std::fprintf(stderr, "\nvariant: %s\n", result_.variant.c_str());  // isolate.cpp reads it after a crash
    result_.fault = Fault::Refused;  // what an error means from here on
    const auto runnable = INGOT_TRY(compile_variant(case_, v));
    for (size_t at = 0; at < case_.sizes.size(); ++at) {
      result_.fault = Fault::Refused;
      auto got = runnable->run(case_.sizes[at], oracle_.inputs[at]);
      if (!got) return std::move(got.error().add("run" + sizes_text(case_.sizes[at])));
      ++result_.runs;
      INGOT_TRY(compare(*got, at, v));
    }
    result_.fault = Fault::None;
    return {};
  }

 private:
  Status compare(const std::vector<Tensor>& got, size_t at, const Variant& v) {
    const auto* want = INGOT_TRY(oracle_.expected(at, storage_of(v), 0));
    for (size_t k = 0; k < got.size(); ++k) {
      Comparison c = compare_with(got[k], (*want)[k]);
      result_.elements += c.elements, result_.unknown += c.unknown, result_.loose += c.loose;
      result_.rescued += !c.equal;
      for (size_t closeness = 1; !c.equal && closeness < std::size(kCloser); ++closeness)
        c = compare_with(got[k], (*INGOT_TRY(oracle_.expected(at, storage_of(v), closeness)))[k]);
      if (c.equal) continue;
      result_.fault = Fault::Wrong;
      return invalid(fmt::format("output {}{}: {}", k, sizes_text(case_.sizes[at]), c.text));
    }
    return {};
  }

  const GraphCase& case_;
  Oracle& oracle_;
  CheckResult& result_;
};

}  // namespace

const char* name_of(Fault fault) {
  static constexpr const char* kNames[] = {"none", "wrong result", "refused", "crash", "hang", "no valid graph"};
  return kNames[static_cast<size_t>(fault)];
}

CheckResult check_case(const GraphCase& c, const std::vector<Variant>& variants) {
  CheckResult result;
  Oracle oracle(c);
  if (auto ok = oracle.prepare(); !ok) {
    result.fault = Fault::BadCase;
    result.text = ok.error().to_string();
    return result;
  }
  for (const Variant& v : variants) {
    if (auto ok = Checker(c, oracle, result).check(v); !ok) {
      result.text = ok.error().to_string();
      return result;
    }
  }
  return result;
}

std::string test_comparison(const GraphCase& c) {
  Oracle oracle(c);
  if (!oracle.prepare()) return "";
  auto want = oracle.expected(0, DType::F32, 0);
  if (!want) return "";
  std::mt19937_64 rng(c.seed);
  for (const ExpectedOutput& out : **want) {
    Tensor t(out.type, out.dims);
    if (t.count() == 0) continue;
    for (int64_t i = 0; i < t.count(); ++i)
      is_float(out.type) ? t.set_float(i, out.value[static_cast<size_t>(i)])
                         : t.set_int(i, out.whole[static_cast<size_t>(i)]);
    if (const Comparison same = compare_with(t, out); !same.equal)
      return "the expected values themselves differ: " + same.text;
    const auto at = static_cast<int64_t>(rng() % static_cast<uint64_t>(t.count()));
    const double before = out.value[static_cast<size_t>(at)], slack = out.slack[static_cast<size_t>(at)];
    // An element that is steady to a hundredth of the output's size must not move by a twentieth of it unnoticed.
    if (std::isnan(slack) || !std::isfinite(before) || slack > 0.01 * out.scale) continue;
    const double after = before + (rng() % 2 ? 0.05 : -0.05) * out.scale;
    is_float(out.type)
        ? t.set_float(at, after)
        : t.set_int(at, out.type == DType::Bool ? 1 - out.whole[static_cast<size_t>(at)]
                                                : out.whole[static_cast<size_t>(at)] +
                                                      std::max<int64_t>(1, std::llround(0.05 * out.scale)));
    if (compare_with(t, out).equal)
      return fmt::format("element {} of {}: {} for {} went unnoticed", at, describe(out.type, out.dims), after, before);
  }
  return "";
}

}  // namespace ingot::testing
