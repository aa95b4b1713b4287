// Einsum: one operand is a reduction over its missing labels; two are a contraction with batch, m, n and k labels; more are
// multiplied from the left, keeping the labels that are still needed.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "compiler/expr/simplify.h"
#include "compiler/ops/compose.h"

namespace ingot {
namespace {

using Types = std::vector<TensorType>;

/// Labels are characters, one a dimension.
struct EinsumAttrs {
  std::string a, b, out;
  INGOT_FIELDS(a, b, out)
};
bool has(const std::string& labels, char l) { return labels.find(l) != std::string::npos; }

Result<std::map<char, Expr>> label_dims(const OpView& v) {
  const auto& e = v.attrs.as<EinsumAttrs>();
  std::map<char, Expr> dims;
  for (size_t input = 0; input < v.inputs.size(); ++input) {
    const std::string& labels = input == 0 ? e.a : e.b;
    for (size_t d = 0; d < labels.size(); ++d) {
      const Expr dim = v.inputs[input].shape[d];
      auto [it, fresh] = dims.emplace(labels[d], dim);
      if (fresh || dim.is_const(1)) continue;
      if (it->second.is_const(1)) it->second = dim;
      else if (it->second.is_const() && dim.is_const() && !dim.same(it->second))
        return invalid(fmt::format("label {} is both {} and {}", labels[d], to_string(it->second), to_string(dim)));
    }
  }
  return dims;
}
Result<Types> infer_einsum(const OpView& v) {
  const auto dims = INGOT_TRY(label_dims(v));
  Shape out;
  for (char l : v.attrs.as<EinsumAttrs>().out) out.push_back(dims.at(l));
  return Types{{v.inputs[0].dtype, out}};
}
Index positions(const OpView& v, size_t input, const std::string& labels, const std::map<char, Expr>& at) {
  Index in;
  for (size_t d = 0; d < labels.size(); ++d) in.push_back(v.inputs[input].shape[d].is_const(1) ? Expr(0) : at.at(labels[d]));
  return in;
}

// ---- one operand ---------------------------------------------------------------------------------------------------------
std::string summed(const OpView& v) {
  const auto& e = v.attrs.as<EinsumAttrs>();
  std::string labels;
  for (char l : e.a)
    if (!has(e.out, l) && !has(labels, l)) labels += l;
  return labels;
}
ReductionForm sum_form(const OpView& v) {
  const auto dims = label_dims(v);
  ReductionForm f;
  for (char l : summed(v)) f.extents.push_back(dims.value().at(l));
  if (f.extents.empty()) f.extents.emplace_back(1);
  return f;
}
Expr sum_value(const OpView& v, const Index& out, const Index& reduced) {
  const auto& e = v.attrs.as<EinsumAttrs>();
  std::map<char, Expr> at;
  for (size_t d = 0; d < e.out.size(); ++d) at[e.out[d]] = out[d];
  const std::string labels = summed(v);
  for (size_t d = 0; d < labels.size(); ++d) at[labels[d]] = reduced[d];
  return v.read(0, positions(v, 0, e.a, at));
}

// ---- two operands --------------------------------------------------------------------------------------------------------
ContractionForm product_form(const OpView& v) {
  const auto& e = v.attrs.as<EinsumAttrs>();
  const auto dims = label_dims(v);
  ContractionForm f;
  std::map<char, Expr> at;
  for (const auto& [label, dim] : dims.value()) at[label] = Expr::index(fmt::format("{}{}", std::isupper(static_cast<unsigned char>(label)) ? "u" : "l", label), dim);
  // The order of the output's labels is the order of its axes; what is summed follows the left operand.
  for (char l : e.out) (has(e.a, l) && has(e.b, l) ? f.batch : has(e.a, l) ? f.m : f.n).push_back(at[l]);
  for (char l : e.a)
    if (!has(e.out, l)) f.k.push_back(at[l]);
  if (f.m.empty()) f.m.push_back(Expr::index("m_one", 1));
  if (f.n.empty()) f.n.push_back(Expr::index("n_one", 1));
  if (f.k.empty()) f.k.push_back(Expr::index("k_one", 1));
  f.a = v.read(0, positions(v, 0, e.a, at));
  f.b = v.read(1, positions(v, 1, e.b, at));
  for (char l : e.out) f.out.push_back(at[l]);
  return f;
}

// ---- import --------------------------------------------------------------------------------------------------------------
struct Equation {
  std::vector<std::string> in;
  std::string out;
};
/// Replaces "..." by labels of its own: digits count broadcast dimensions from the right.
Result<Equation> parse(ImportContext& c, std::string text) {
  std::erase(text, ' ');
  const size_t arrow = text.find("->");
  Equation e;
  e.in.emplace_back();
  for (char ch : text.substr(0, arrow)) {
    if (ch == ',') e.in.emplace_back();
    else e.in.back() += ch;
  }
  if (e.in.size() != c.inputs.size()) return invalid("the equation has another number of operands");
  std::string broadcast;
  for (size_t i = 0; i < e.in.size(); ++i) {
    const size_t dots = e.in[i].find("...");
    const size_t named = e.in[i].size() - (dots == std::string::npos ? 0 : 3);
    if (named > c.rank(i) || (dots == std::string::npos && named != c.rank(i))) return invalid(fmt::format("operand {} has rank {}", i, c.rank(i)));
    if (dots == std::string::npos) continue;
    if (c.rank(i) - named > 9) return unsupported("more than nine broadcast dimensions");
    std::string labels;
    for (size_t d = c.rank(i) - named; d-- > 0;) labels += static_cast<char>('0' + d);
    if (labels.size() > broadcast.size()) broadcast = labels;
    e.in[i].replace(dots, 3, labels);
  }
  if (arrow != std::string::npos) {
    e.out = text.substr(arrow + 2);
    if (const size_t dots = e.out.find("..."); dots != std::string::npos) e.out.replace(dots, 3, broadcast);
    return e;
  }
  std::map<char, int> uses;
  for (const std::string& labels : e.in)
    for (char l : labels) ++uses[l];
  e.out = broadcast;
  for (const auto& [label, count] : uses)
    if (count == 1 && !has(broadcast, label)) e.out += label;
  return e;
}
/// The operand's labels that something else needs; the others are summed now, and repeated ones become one.
Result<ValueId> reduce_labels(GraphBuilder& b, ValueId x, std::string& labels, const std::string& needed) {
  std::string kept;
  for (char l : labels)
    if (has(needed, l) && !has(kept, l)) kept += l;
  if (kept == labels) return x;
  const EinsumAttrs attrs{labels, "", kept};
  labels = kept;
  return b.add(op("EinsumSum"), attrs, {x});
}
Result<Values> import_einsum(ImportContext& c) {
  GraphBuilder& b = c.builder;
  const Equation e = INGOT_TRY(parse(c, INGOT_TRY(c.node.string_or("equation", ""))));
  for (char l : e.out)
    if (std::none_of(e.in.begin(), e.in.end(), [l](const std::string& in) { return has(in, l); })) return invalid(fmt::format("label {} is in no operand", l));
  ValueId x = c.in(0);
  std::string labels = e.in[0];
  for (size_t i = 1; i < e.in.size(); ++i) {
    std::string rest = e.out, right = e.in[i];
    for (size_t j = i + 1; j < e.in.size(); ++j) rest += e.in[j];
    x = INGOT_TRY(reduce_labels(b, x, labels, rest + right));
    const ValueId y = INGOT_TRY(reduce_labels(b, c.in(i), right, rest + labels));
    std::string both;
    if (i + 1 == e.in.size()) {
      both = e.out;
    } else {
      for (char l : labels + right)
        if (has(rest, l) && !has(both, l)) both += l;
    }
    x = INGOT_TRY(b.add(op("EinsumProduct"), EinsumAttrs{labels, right, both}, {x, y}));
    labels = both;
  }
  if (labels != e.out) x = INGOT_TRY(b.add(op("EinsumSum"), EinsumAttrs{labels, "", e.out}, {x}));
  return Values{x};
}

const OpDef kEinsum[] = {
    lowered_row<EinsumAttrs>("EinsumSum", "sums and permutes labels; internal", {}, infer_einsum, Reduction{sum_form, sum_value}, 1, 1),
    lowered_row<EinsumAttrs>("EinsumProduct", "internal", {}, infer_einsum, Contraction{product_form}, 2, 2),
    import_row("Einsum", "contractions, pairwise from the left", kRules<import_einsum, 12>, 1, 1 << 10),
};

}  // namespace

std::span<const OpDef> einsum_ops() { return kEinsum; }

}  // namespace ingot
