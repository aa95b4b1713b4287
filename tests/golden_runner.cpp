// Golden tests: tests/golden/**/*.ir hold a comment, "# pass: NAME[, NAME…]", perhaps "# target: sm_90a", a graph, a line "----" and the graph after
// the passes. `golden_runner FOLDER` compares; `--update` writes what came out. Each result must also print and parse back.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>

#include "compiler/driver/reference.h"
#include "compiler/ir/text.h"
#include "compiler/ops/registry.h"
#include "passes/pass_manager.h"

namespace fs = std::filesystem;
using namespace ingot;

namespace {

std::string read(const fs::path& p) {
  std::ifstream in(p);
  std::stringstream s;
  s << in.rdbuf();
  return s.str();
}
std::vector<std::string> passes_of(const std::string& text) {
  const size_t at = text.find("# pass:");
  std::vector<std::string> names;
  if (at == std::string::npos) return names;
  std::stringstream line(text.substr(at + 7, text.find('\n', at) - at - 7));
  for (std::string name; std::getline(line, name, ',');) {
    name.erase(0, name.find_first_not_of(' '));
    name.erase(name.find_last_not_of(" \r") + 1);
    names.push_back(name);
  }
  return names;
}

/// The text of a large constant says what its elements are a hash of; read back, they are others.
std::string without_data(const std::string& text) { return std::regex_replace(text, std::regex(" data [0-9a-f]+"), " data"); }

/// The text after the passes, or an Error. Refusals follow as comments, so that reasons are golden, too.
Result<std::string> transform(const std::string& input, const std::vector<std::string>& names) {
  const bool gpu = input.find("# target: sm_90a") != std::string::npos;
  Graph g = INGOT_TRY(parse_graph(input, find_op));
  std::vector<Refusal> refusals;
  PassContext ctx;
  if (gpu) ctx.target = cuda_traits(90);
  if (input.find("# precision: fp16") != std::string::npos) ctx.precision = DType::F16;
  ctx.evaluate = evaluate_node;
  ctx.refusals = &refusals;
  for (const std::string& name : names) {
    if (name == "roundtrip") continue;
    const auto table = pipeline();
    auto pass = std::find_if(table.begin(), table.end(), [&](const Pass& p) { return name == p.name; });
    if (pass == table.end()) return invalid("no pass named " + name);
    const std::string before = print_graph(g);
    const bool changed = INGOT_TRY(run_pass(*pass, g, ctx));
    if (!changed && before != print_graph(g)) return invalid(name + " says unchanged, but the graph differs");
    if (changed) g.compact();
    INGOT_TRY(verify(g, name == "form_groups" || name == "fold_norms" || name == "join_parts" || name.starts_with("assign_") ? Stage::Fused : Stage::Imported));
  }
  std::string text = print_graph(g);
  const Graph again = INGOT_TRY(parse_graph(text, find_op));
  if (without_data(print_graph(again)) != without_data(text)) return invalid("print(parse(text)) differs from text:\n" + print_graph(again));
  for (const Refusal& r : refusals) text += fmt::format("# {} | {}: {}\n", r.producer, r.consumer, r.reason);
  return text;
}

bool run_file(const fs::path& path, bool update) {
  const std::string text = read(path);
  const size_t bar = text.find("\n----\n");
  const std::string input = text.substr(0, bar == std::string::npos ? text.size() : bar + 1);
  const std::string expected = bar == std::string::npos ? "" : text.substr(bar + 6);
  auto got = transform(input, passes_of(text));
  if (!got) {
    fmt::print("FAIL {}: {}\n", path.string(), got.error().to_string());
    return false;
  }
  if (*got == expected) return true;
  if (update) {
    std::ofstream(path) << input << (input.back() == '\n' ? "" : "\n") << "----\n" << *got;
    fmt::print("updated {}\n", path.string());
    return true;
  }
  fmt::print("FAIL {}: got\n{}\nexpected\n{}\n", path.string(), *got, expected);
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  bool update = false;
  std::vector<fs::path> files;
  for (int i = 1; i < argc; ++i) {
    if (std::string(argv[i]) == "--update") { update = true; continue; }
    for (const auto& e : fs::recursive_directory_iterator(argv[i]))
      if (e.path().extension() == ".ir") files.push_back(e.path());
  }
  std::sort(files.begin(), files.end());
  int passed = 0, failed = 0;
  for (const fs::path& f : files) (run_file(f, update) ? passed : failed)++;
  fmt::print("golden: {} passed, {} failed\n", passed, failed);
  return failed || files.empty() ? 1 : 0;
}
