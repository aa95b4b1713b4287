// Text -> Graph.
#include <fmt/format.h>

#include <random>

#include "compiler/ir/builder.h"
#include "compiler/ir/text.h"
#include "compiler/ir/text_lexer.h"
#include "compiler/support/hash.h"

namespace ingot {
namespace {

class GraphParser {
 public:
  GraphParser(TextCursor& in, OpFinder find, SymbolScope symbols) : in_(in), find_(find), symbols_(std::move(symbols)) {}

  Result<Graph> run() {
    INGOT_TRY(in_.expect("graph"));
    if (in_.peek() == '"') g_.name = INGOT_TRY(in_.quoted());
    INGOT_TRY(in_.expect("("));
    INGOT_TRY(declare_symbols());
    while (!in_.accept(")")) {
      if (!g_.inputs.empty()) INGOT_TRY(in_.expect(","));
      const std::string id = INGOT_TRY(value_name());
      const std::string name = INGOT_TRY(in_.quoted());
      INGOT_TRY(in_.expect(":"));
      values_[id] = g_.add_input(INGOT_TRY(type()), name);
    }
    if (in_.accept_word("where")) in_.raw_until("{");
    INGOT_TRY(in_.expect("{"));
    while (!in_.accept_word("return")) INGOT_TRY(statement());
    do {
      if (in_.peek() != '%') break;
      g_.outputs.push_back(INGOT_TRY(value()));
      g_.output_names.push_back(INGOT_TRY(in_.quoted()));
    } while (in_.accept(","));
    INGOT_TRY(in_.expect("}"));
    for (const auto& [name, e] : symbols_) g_.symbols.push_back(e);  // nested graphs know the outer ones
    return std::move(g_);
  }

 private:
  /// Names in the inputs' dims that no range is given for.
  Status declare_bare_symbols(std::string_view inputs) {
    if (!symbols_.empty() && inputs.find('[') == std::string_view::npos) return {};
    for (size_t open = inputs.find('['); open != std::string_view::npos; open = inputs.find('[', open + 1)) {
      const size_t close = inputs.find(']', open);
      for (size_t i = open; i < close && i < inputs.size();) {
        size_t n = i;
        while (n < inputs.size() && (std::isalnum(static_cast<unsigned char>(inputs[n])) || inputs[n] == '_')) ++n;
        const std::string name(inputs.substr(i, n - i));
        const bool function = n < inputs.size() && inputs[n] == '(';
        if (!name.empty() && std::isalpha(static_cast<unsigned char>(name[0])) && !function) bare_.push_back(name);
        i = std::max(n, i + 1);
      }
    }
    return {};
  }
  /// Ranges stand after the inputs that use them, so they are read ahead.
  Status declare_symbols() {
    const std::string_view rest = in_.rest();
    size_t end = 0;
    for (bool quoted = false; end < rest.size() && (quoted || rest[end] != '{'); ++end) quoted ^= rest[end] == '"';
    const std::string_view head = rest.substr(0, end);
    const size_t where = head.rfind(") where ");
    INGOT_TRY(declare_bare_symbols(head.substr(0, where)));
    if (where == std::string_view::npos) return add_bare();
    TextCursor list(head.substr(where + 8));
    while (!list.at_end()) {
      const std::string name = INGOT_TRY(list.word());
      int64_t low = 0, high = kNoLimit;
      if (list.accept_word("in")) {
        INGOT_TRY(list.expect("["));
        low = static_cast<int64_t>(INGOT_TRY(list.number()));
        INGOT_TRY(list.expect(","));
        if (!list.accept_word("inf")) high = static_cast<int64_t>(INGOT_TRY(list.number()));
        INGOT_TRY(list.expect("]"));
      }
      symbols_.emplace(name, Expr::symbol(name, low, high));
      list.accept(",");
    }
    return add_bare();
  }
  Status add_bare() {
    for (const std::string& name : bare_) symbols_.emplace(name, Expr::symbol(name));
    return {};
  }
  Result<std::string> value_name() {
    INGOT_TRY(in_.expect("%"));
    return in_.word();
  }
  Result<ValueId> value() {
    const std::string name = INGOT_TRY(value_name());
    auto it = values_.find(name);
    if (it == values_.end()) return in_.error("undefined value %" + name);
    return it->second;
  }
  Result<TensorType> type() {
    TensorType t;
    auto dtype = parse_dtype(INGOT_TRY(in_.word()));
    if (!dtype) return in_.error("unknown element type");
    t.dtype = *dtype;
    INGOT_TRY(in_.expect("["));
    while (!in_.accept("]")) {
      const std::string text = in_.raw_until(",]");
      auto e = parse_expr(text, symbols_);
      if (!e) return in_.error(fmt::format("dimension '{}': {}", text, e.error().message));
      t.shape.push_back(*e);
      in_.accept(",");
    }
    return t;
  }
  Result<Tensor> constant_data(const TensorType& t) {
    const auto dims = static_dims(t.shape);
    if (!dims) return in_.error("a constant needs constant dims");
    INGOT_TRY(checked_count(*dims, size_of(t.dtype)));
    Tensor data(t.dtype, *dims);
    if (in_.accept_word("data")) {
      const std::string label = INGOT_TRY(in_.word());
      std::mt19937_64 rng(hash_text(label).low);
      std::normal_distribution<double> normal;
      for (int64_t i = 0; i < data.count(); ++i) is_float(t.dtype) ? data.set_float(i, normal(rng)) : data.set_int(i, static_cast<int64_t>(rng() % 5));
      return data;
    }
    INGOT_TRY(in_.expect("{"));
    for (int64_t i = 0; i < data.count(); ++i) {
      if (i) INGOT_TRY(in_.expect(","));
      if (is_float(t.dtype)) data.set_float(i, INGOT_TRY(in_.number()));
      else data.set_int(i, std::strtoll(in_.raw_until(",}").c_str(), nullptr, 10));
    }
    INGOT_TRY(in_.expect("}"));
    return data;
  }
  Status statement() {
    std::vector<std::string> outs;
    do outs.push_back(INGOT_TRY(value_name()));
    while (in_.accept(","));
    INGOT_TRY(in_.expect("="));
    if (in_.accept_word("const")) {
      const std::string name = INGOT_TRY(in_.quoted());
      INGOT_TRY(in_.expect(":"));
      const TensorType t = INGOT_TRY(type());
      values_[outs[0]] = g_.add_constant(std::make_shared<const Tensor>(INGOT_TRY(constant_data(t))), name);
      return {};
    }
    return node(outs);
  }
  Result<FieldTexts> fields() {
    FieldTexts texts;
    if (!in_.accept("{")) return texts;
    while (!in_.accept("}")) {
      const std::string key = INGOT_TRY(in_.word());
      INGOT_TRY(in_.expect("="));
      texts[key] = in_.raw_until(",}");
      in_.accept(",");
    }
    return texts;
  }
  Status node(const std::vector<std::string>& outs) {
    std::string name = INGOT_TRY(in_.word()), domain;
    if (const size_t at = name.rfind("::"); at != std::string::npos) domain = name.substr(0, at), name = name.substr(at + 2);
    const OpDef* op = find_(name, domain);
    if (!op) return in_.error("unknown operator " + name);
    std::vector<ValueId> inputs;
    INGOT_TRY(in_.expect("("));
    while (!in_.accept(")")) {
      if (!inputs.empty()) INGOT_TRY(in_.expect(","));
      inputs.push_back(in_.accept("_") ? ValueId() : INGOT_TRY(value()));
    }
    const FieldTexts texts = INGOT_TRY(fields());
    AttrsBox attrs;
    if (op->parse_attrs) attrs = INGOT_TRY(op->parse_attrs(texts, symbols_));
    std::vector<TensorType> types;
    INGOT_TRY(in_.expect(":"));
    do types.push_back(INGOT_TRY(type()));
    while (in_.accept(","));
    Origin origin;
    if (in_.accept_word("from")) do origin.nodes.push_back(INGOT_TRY(in_.quoted()));
    while (in_.accept(","));
    if (types.size() != outs.size()) return in_.error("as many types as results are needed");
    const NodeId id = g_.add_node(op, attrs, inputs, types, origin);
    if (in_.accept_word("body")) g_.node(id).body = std::make_shared<Graph>(INGOT_TRY(GraphParser(in_, find_, symbols_).run()));
    const std::vector<Content> contents = op->lowers_as<Fused>() ? std::vector<Content>(outs.size()) : evaluate_content(g_, g_.node(id));
    for (size_t i = 0; i < outs.size(); ++i) {
      values_[outs[i]] = g_.node(id).outputs[i];
      g_.value(g_.node(id).outputs[i]).content = contents[i];
    }
    return {};
  }

  TextCursor& in_;
  OpFinder find_;
  SymbolScope symbols_;
  std::vector<std::string> bare_;
  Graph g_;
  std::map<std::string, ValueId> values_;
};

}  // namespace

Result<Graph> parse_graph(std::string_view text, OpFinder find) {
  TextCursor in(text);
  Graph g = INGOT_TRY(GraphParser(in, find, {}).run());
  if (!in.at_end()) return in.error("unexpected text after the graph");
  return g;
}

}  // namespace ingot
