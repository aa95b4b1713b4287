// What a model decides while it runs: its script's steps, and what the host looks at before each.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "compiler/driver/cli_inspection.h"

namespace ingot::cli {
namespace {

using nlohmann::json;
using runtime::ScriptStep;

class Course {
 public:
  explicit Course(const Inspection& i) : i_(i) {}

  json steps_of(size_t script) const {
    json list = json::array();
    for (const ScriptStep& s : i_.scripts[script].steps) list.push_back(step(script, s));
    return list;
  }

 private:
  std::string name(size_t script, int32_t value) const {
    const std::string& known = i_.script_names[script][static_cast<size_t>(value)];
    return known.empty() ? fmt::format("%{}", value) : known;
  }
  json names(size_t script, std::span<const int32_t> values) const {
    json list = json::array();
    for (int32_t v : values)
      if (v >= 0) list.push_back(name(script, v));
    return list;
  }
  json step(size_t script, const ScriptStep& s) const {
    const std::span<const int32_t> in = s.inputs;
    json j{{"outputs", names(script, s.outputs)}};
    if (s.kind == ScriptStep::Kind::Part) {
      const PartView& p = i_.parts[static_cast<size_t>(s.part)];
      j["kind"] = "part", j["part"] = s.part, j["launches"] = {p.first, p.first + p.kernels.size()};
      j["inputs"] = names(script, in), j["reads"] = sizes_read(script, s);
    } else if (s.kind == ScriptStep::Kind::If) {
      j["kind"] = "if", j["name"] = s.name, j["inputs"] = names(script, in.subspan(1)),
      j["reads"] = names(script, in.first(1));
      j["then"] = steps_of(static_cast<size_t>(s.scripts[0])), j["else"] = steps_of(static_cast<size_t>(s.scripts[1]));
    } else {
      j["kind"] = "loop", j["name"] = s.name, j["inputs"] = names(script, in.subspan(2)),
      j["reads"] = names(script, in.first(2));
      j["body"] = steps_of(static_cast<size_t>(s.scripts[0]));
    }
    return j;
  }
  /// What is computed before the part and decides its sizes by its elements.
  json sizes_read(size_t script, const ScriptStep& s) const {
    const Graph& g = i_.parts[static_cast<size_t>(s.part)].fused.graph;
    const auto& given = i_.scripts[0].inputs;
    std::vector<int32_t> read;
    for (size_t k = 0; k < g.inputs.size(); ++k) {
      const int32_t v = s.inputs[k];
      const bool decides = std::any_of(g.value_symbols.begin(), g.value_symbols.end(),
                                       [&](const ValueSymbol& symbol) { return symbol.value == g.inputs[k]; });
      if (decides && !(script == 0 && std::count(given.begin(), given.end(), v))) read.push_back(v);
    }
    return names(script, read);
  }

  const Inspection& i_;
};

std::string list_of(const json& names) {
  return fmt::format("{}", fmt::join(names.get<std::vector<std::string>>(), ", "));
}

void print_steps(const json& steps, int depth, std::string& text) {
  const auto line = [&](const std::string& what) { text += fmt::format("{:{}}{}\n", "", 2 + 2 * depth, what); };
  for (const json& s : steps) {
    const bool reads = !s["reads"].empty();
    if (s["kind"] == "part") {
      if (reads) line(fmt::format("the host reads {}: its elements are sizes", list_of(s["reads"])));
      const auto first = s["launches"][0].get<int64_t>(), count = s["launches"][1].get<int64_t>() - first;
      const std::string kernels = count == 0   ? "no kernel"
                                  : count == 1 ? fmt::format("kernel {}", first)
                                               : fmt::format("kernels {} to {}", first, first + count - 1);
      line(fmt::format("part {}, {}: {} -> {}", s["part"].get<int>(), kernels, list_of(s["inputs"]),
                       list_of(s["outputs"])));
    } else if (s["kind"] == "if") {
      line(fmt::format("{}: the host reads {} -> {}", s["name"].get<std::string>(), list_of(s["reads"]),
                       list_of(s["outputs"])));
      line("then");
      print_steps(s["then"], depth + 1, text);
      line("else");
      print_steps(s["else"], depth + 1, text);
    } else {
      line(fmt::format("{}: the host reads {}the condition of each turn -> {}", s["name"].get<std::string>(),
                       reads ? list_of(s["reads"]) + " and " : "", list_of(s["outputs"])));
      print_steps(s["body"], depth + 1, text);
    }
  }
}

void find_owners(const Inspection& i, size_t script, const std::string& owner, std::vector<std::string>& owners) {
  for (const ScriptStep& s : i.scripts[script].steps) {
    if (s.kind == ScriptStep::Kind::Part) owners[static_cast<size_t>(s.part)] = owner;
    const size_t quote = s.name.find('"');
    const std::string label = quote == std::string::npos ? "" : s.name.substr(quote + 1, s.name.size() - quote - 2);
    for (int32_t inner : s.scripts) find_owners(i, static_cast<size_t>(inner), owner.empty() ? label : owner, owners);
  }
}

}  // namespace

json course_json(const Inspection& i) { return i.scripts.empty() ? json() : Course(i).steps_of(0); }

std::string course_text(const json& course) {
  std::string text;
  print_steps(course, 1, text);
  return text;
}

std::vector<std::string> owners_of_parts(const Inspection& i) {
  std::vector<std::string> owners(i.parts.size());
  if (!i.scripts.empty()) find_owners(i, 0, "", owners);
  return owners;
}

}  // namespace ingot::cli
