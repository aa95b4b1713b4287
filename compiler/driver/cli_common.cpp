#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <random>

#include "compiler/driver/cli.h"

namespace ingot::cli {
namespace {

std::vector<std::string> split(const std::string& s, char at) {
  std::vector<std::string> parts{""};
  for (char c : s) {
    if (c == at) parts.emplace_back();
    else parts.back() += c;
  }
  return parts;
}

/// Dims for a random input: constants as they are, the batch for a symbol in front, 64 (inside its range) otherwise.
std::vector<int64_t> default_dims(const runtime::Binding& b, const runtime::Program& p, int64_t batch, std::vector<int64_t>& symbols) {
  for (size_t d = 0; d < b.symbols.size(); ++d) {
    const int32_t s = b.symbols[d];
    if (s < 0 || symbols[static_cast<size_t>(s)] >= 0) continue;
    const auto& info = p.symbols[static_cast<size_t>(s)];
    symbols[static_cast<size_t>(s)] = std::clamp<int64_t>(d == 0 ? batch : 64, info.low, info.high);
  }
  std::vector<int64_t> values, known = symbols, dims;
  for (int64_t& k : known) k = std::max<int64_t>(k, 1);
  if (!p.shapes.evaluate(known, values)) return {};
  for (runtime::ShapeRef r : b.dims) dims.push_back(values[static_cast<size_t>(r)]);
  return dims;
}

Tensor random_tensor(DType type, const std::vector<int64_t>& dims, std::mt19937_64& rng) {
  Tensor t(type, dims);
  std::normal_distribution<double> normal;
  for (int64_t i = 0; i < t.count(); ++i) {
    if (is_float(type)) t.set_float(i, normal(rng));
    else t.set_int(i, type == DType::Bool ? 1 : static_cast<int64_t>(rng() % 16));
  }
  return t;
}

}  // namespace

void CommonOptions::add(CLI::App& app) {
  app.add_option("--shape", shapes, "NAME=DIMxDIM…: narrows an input's dims; a dim is 8, 1..64 or ?");
  app.add_option("--precision", precision, "fp32, tf32, fp16 or bf16: what products multiply, and values are stored as");
  app.add_option("--skip", skip, "passes to leave out")->delimiter(',');
  app.add_option("--dump", dump, "folder for the graph after every pass, kernels and the memory plan");
}
Result<CompileOptions> CommonOptions::to_compile() const {
  CompileOptions o;
  o.skip = skip;
  o.precision = precision;
  o.dump_dir = dump;
  if (const char* env = std::getenv("INGOT_DUMP"); env && dump.empty()) {
    const std::string text = env;  // "passes,kernels:dir"; every row goes to the one folder
    const size_t colon = text.find(':');
    o.dump_dir = colon == std::string::npos ? "ingot-dump" : text.substr(colon + 1);
  }
  for (const std::string& s : shapes) {
    const size_t eq = s.find('=');
    if (eq == std::string::npos) return invalid(fmt::format("--shape {}: write NAME=DIMxDIM…", s));
    o.shapes[s.substr(0, eq)] = split(s.substr(eq + 1), 'x');
  }
  o.progress = show_progress;
  return o;
}

Result<std::vector<Tensor>> read_inputs(const std::vector<runtime::Binding>& bindings, const runtime::Program& program,
                                        const std::vector<std::string>& specs, bool fill, int64_t batch, uint64_t seed) {
  std::map<std::string, Tensor> given;
  size_t position = 0;
  for (const std::string& spec : specs) {
    const size_t eq = spec.find('=');
    const std::string file = eq == std::string::npos ? spec : spec.substr(eq + 1);
    auto tensors = INGOT_TRY(read_tensors(file));
    for (NamedTensor& t : tensors) {
      std::string name = eq != std::string::npos ? spec.substr(0, eq) : t.name;
      if (eq == std::string::npos && tensors.size() == 1 && position < bindings.size()) name = bindings[position++].name;
      given.insert_or_assign(name, std::move(t.tensor));
    }
  }
  std::string known;
  for (const auto& b : bindings) known += (known.empty() ? "" : ", ") + b.name;
  for (const auto& [name, t] : given)
    if (std::none_of(bindings.begin(), bindings.end(), [&](const auto& b) { return b.name == name; }))
      return invalid(fmt::format("the model has no input \"{}\"; its inputs are: {}", name, known));
  std::mt19937_64 rng(seed);
  std::vector<int64_t> symbols(program.symbols.size(), -1);
  std::vector<Tensor> inputs;
  for (const auto& b : bindings) {
    auto it = given.find(b.name);
    if (it != given.end()) {
      inputs.push_back(it->second);
      for (size_t d = 0; d < b.symbols.size() && d < it->second.dims().size(); ++d)
        if (b.symbols[d] >= 0) symbols[static_cast<size_t>(b.symbols[d])] = it->second.dims()[d];
    } else if (fill) {
      inputs.push_back(random_tensor(b.type, default_dims(b, program, batch, symbols), rng));
    } else {
      return invalid(fmt::format("input \"{}\" is missing; the inputs are: {}", b.name, known));
    }
  }
  return inputs;
}

void show_progress(const std::string& what, size_t done, size_t total) {
  if (!isatty(2)) return;
  std::fprintf(stderr, "\r%s %zu/%zu\033[K%s", what.c_str(), done, total, done == total ? "\n" : "");
}

std::string human_bytes(double b) {
  const char* units[] = {"B", "KB", "MB", "GB", "TB"};
  size_t u = 0;
  while (b >= 1000 && u < 4) b /= 1000, ++u;
  return u ? fmt::format("{:.2f} {}", b, units[u]) : fmt::format("{:.0f} B", b);
}

}  // namespace ingot::cli
