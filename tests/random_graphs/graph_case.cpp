#include "tests/random_graphs/graph_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <sstream>

#include "compiler/ir/text.h"
#include "compiler/ops/registry.h"
#include "compiler/support/hash.h"

namespace ingot::testing {
namespace {

/// How the values of one input are spread.
enum class Values : uint8_t { Usual, Small, Large, Whole, Special };

Values choose_values(std::mt19937_64& rng) {
  const uint64_t r = rng() % 100;
  return r < 70   ? Values::Usual
         : r < 80 ? Values::Small
         : r < 88 ? Values::Large
         : r < 97 ? Values::Whole
                  : Values::Special;
}
double random_float(Values kind, std::mt19937_64& rng) {
  std::normal_distribution<double> normal;
  switch (kind) {
    case Values::Small: return normal(rng) * 1e-3;
    case Values::Large: return normal(rng) * 300;
    case Values::Whole: return static_cast<double>(rng() % 9) - 4;
    case Values::Special:
      if (rng() % 8 == 0) return rng() % 3 == 0 ? NAN : rng() % 2 ? INFINITY : -INFINITY;
      return normal(rng);
    default: return normal(rng);
  }
}
int64_t random_int(Values kind, std::mt19937_64& rng) {
  if (kind == Values::Large) return static_cast<int64_t>(rng());
  return static_cast<int64_t>(rng() % 17) - 8;
}

}  // namespace

std::string to_text(const GraphCase& c) {
  std::string text;
  std::istringstream note(c.note);
  for (std::string line; std::getline(note, line);) text += "# " + line + "\n";
  text += fmt::format("# seed {}\n", c.seed);
  for (const Sizes& s : c.sizes) {
    std::vector<std::string> items;
    for (const auto& [name, size] : s) items.push_back(fmt::format(" {}={}", name, size));
    std::sort(items.begin(), items.end());
    text += "# sizes";
    for (const std::string& i : items) text += i;
    text += "\n";
  }
  return text + c.text;
}

Result<GraphCase> parse_case(const std::string& text) {
  GraphCase c;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    if (line.rfind("# seed ", 0) == 0) c.seed = std::strtoull(line.c_str() + 7, nullptr, 10);
    if (line.rfind("# sizes", 0) == 0) {
      Sizes s;
      std::istringstream items(line.substr(7));
      for (std::string item; items >> item;)
        if (const size_t at = item.find('='); at != std::string::npos)
          s[item.substr(0, at)] = std::atoll(item.c_str() + at + 1);
      c.sizes.push_back(std::move(s));
    }
    if (line.empty() || line[0] != '#') c.text += line + "\n";
  }
  if (c.sizes.empty()) c.sizes.emplace_back();
  INGOT_TRY(graph_of(c));
  return c;
}

Result<Graph> graph_of(const GraphCase& c) { return parse_graph(c.text, find_op); }

Result<std::vector<Tensor>> inputs_for(const Graph& graph, const Sizes& sizes, uint64_t seed) {
  std::vector<Tensor> inputs;
  for (ValueId v : graph.inputs) {
    const TensorType& t = graph.value(v).type;
    std::mt19937_64 rng(seed * 1315423911u + hash_text(graph.value(v).name).low);  // the same when others go
    std::vector<int64_t> dims;
    for (const Expr& d : t.shape) {
      const auto size = evaluate_int(d, sizes);
      if (!size || *size < 0) return invalid(fmt::format("no size for {}", to_string(d)));
      dims.push_back(*size);
    }
    INGOT_TRY(checked_count(dims, size_of(t.dtype)));
    Tensor x(t.dtype, dims);
    const Values kind = choose_values(rng);
    for (int64_t i = 0; i < x.count(); ++i)
      is_float(t.dtype) ? x.set_float(i, random_float(kind, rng)) : x.set_int(i, random_int(kind, rng));
    inputs.push_back(std::move(x));
  }
  return inputs;
}

}  // namespace ingot::testing
