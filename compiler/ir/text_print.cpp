// Graph -> text.
#include <fmt/format.h>

#include <map>

#include "compiler/ir/text.h"
#include "compiler/support/hash.h"

namespace ingot {
namespace {

std::string quoted(const std::string& s) {
  std::string out = "\"";
  for (char c : s) {
    if (c == '"' || c == '\\') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out + "\"";
}

std::string constant_text(const Tensor& t) {
  if (t.count() > kInlineConstant) return "data " + hash_bytes(t.data(), t.bytes()).hex(16);
  std::string items;
  for (int64_t i = 0; i < t.count(); ++i) {
    items += i ? ", " : "";
    items += is_float(t.type()) ? fmt::format("{}", t.float_at(i)) : fmt::format("{}", t.int_at(i));
  }
  return "{" + items + "}";
}

class Printer {
 public:
  explicit Printer(const Graph& g) : g_(g) {}

  std::string run(int depth) {
    pad_ = std::string(static_cast<size_t>(depth) * 2, ' ');
    std::string out = "graph";
    if (!g_.name.empty()) out += " " + quoted(g_.name);
    out += " (";
    for (size_t i = 0; i < g_.inputs.size(); ++i)
      out += fmt::format("{}{} {}: {}", i ? ", " : "", name(g_.inputs[i]), quoted(g_.value(g_.inputs[i]).name), to_string(g_.value(g_.inputs[i]).type));
    out += ")";
    if (depth == 0) out += symbols();
    out += " {\n";
    for (NodeId id : g_.order()) {
      for (ValueId v : g_.node(id).inputs)
        if (v.valid()) out += constant(v);
      out += node(g_.node(id), depth);
    }
    for (ValueId v : g_.outputs) out += constant(v);
    out += pad_ + "  return";
    for (size_t i = 0; i < g_.outputs.size(); ++i)
      out += fmt::format("{} {} {}", i ? "," : "", name(g_.outputs[i]), quoted(g_.output_names.size() > i ? g_.output_names[i] : ""));
    return out + "\n" + pad_ + "}\n";
  }

 private:
  /// Values are numbered in the order of printing, so that the text does not depend on ids.
  std::string name(ValueId v) {
    auto [it, inserted] = names_.emplace(v, names_.size());
    return fmt::format("%{}", it->second);
  }
  std::string symbols() const {
    std::string text;
    for (const Expr& s : g_.symbols) {
      if (s.low() == 0 && s.high() >= kNoLimit) continue;
      text += fmt::format("{}{} in [{}, {}]", text.empty() ? "" : ", ", s.name(), s.low(), s.high() < kNoLimit ? std::to_string(s.high()) : "inf");
    }
    return text.empty() ? "" : " where " + text;
  }
  std::string constant(ValueId v) {
    const Value& value = g_.value(v);
    if (!value.constant || names_.count(v)) return "";
    return fmt::format("{}  {} = const {}: {} {}\n", pad_, name(v), quoted(value.name), to_string(value.type), constant_text(*value.constant));
  }
  std::string node(const Node& n, int depth) {
    std::string ins, outs, types, origin;
    for (ValueId v : n.inputs) ins += (ins.empty() ? "" : ", ") + (v.valid() ? name(v) : std::string("_"));
    for (ValueId v : n.outputs) {
      outs += (outs.empty() ? "" : ", ") + name(v);
      types += (types.empty() ? "" : ", ") + to_string(g_.value(v).type);
    }
    for (const std::string& o : n.origin.nodes) origin += (origin.empty() ? "" : ", ") + quoted(o);
    std::string out = fmt::format("{}  {} = {}{}({})", pad_, outs, n.op->domain.empty() ? "" : std::string(n.op->domain) + "::", n.op->name, ins);
    if (const std::string attrs = n.attrs.text(); !attrs.empty()) out += " {" + attrs + "}";
    out += ": " + types;
    if (!origin.empty()) out += " from " + origin;
    if (n.body) out += " body " + Printer(*n.body).run(depth + 1);
    else out += "\n";
    return out;
  }

  const Graph& g_;
  std::map<ValueId, size_t> names_;
  std::string pad_;
};

}  // namespace

std::string print_graph(const Graph& graph) { return Printer(graph).run(0); }

}  // namespace ingot
