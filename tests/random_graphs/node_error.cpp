#include "tests/random_graphs/node_error.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "compiler/ops/rows.h"

namespace ingot::testing {

double unit_of(DType t) {
  switch (t) {
    case DType::F16: return 0x1p-11;
    case DType::BF16: return 0x1p-8;
    case DType::F64: return 0x1p-53;
    default: return 0x1p-24;
  }
}
double tiny_of(DType t) { return t == DType::F16 ? 0x1p-25 : t == DType::F64 ? 0 : 0x1p-126; }

bool is_exact(const Node& n) {
  static constexpr std::string_view kNames[] = {"Relu",           "Abs", "Neg", "Sign", "Floor", "Ceil",
                                                "Round",          "Max", "Min", "Clip", "Where", "FiniteOrZero",
                                                "ThresholdedRelu"};
  if (n.op->lowers_as<Movement>() || n.op->lowers_as<Element>()) return true;
  return std::find(std::begin(kNames), std::end(kNames), n.op->name) != std::end(kNames);
}
bool jumps(const Node& n, DType result) {
  static constexpr std::string_view kNames[] = {"QuantizeTo",  "Floor",          "Ceil", "Round",
                                                "Sign",        "Greater",        "Less", "GreaterOrEqual",
                                                "LessOrEqual", "ThresholdedRelu"};
  if (n.op->name == "Cast") return !is_float(result);
  return std::find(std::begin(kNames), std::end(kNames), n.op->name) != std::end(kNames);
}
FunctionError function_error(std::string_view name) {
  static constexpr std::string_view kRelative[] = {"Exp", "Log",      "Sqrt", "Rsqrt", "Reciprocal", "Sigmoid",
                                                   "Pow", "Softplus", "Mish", "Swish", "Div",        "Softsign"};
  static constexpr std::string_view kAbsolute[] = {"Tanh",  "Erf",  "Sin",  "Cos",  "Tan",   "Asin",
                                                   "Acos",  "Atan", "Sinh", "Cosh", "Asinh", "Acosh",
                                                   "Atanh", "Elu",  "Selu", "Celu", "Log",   "HardSigmoid"};
  if (name == "Swish") return {4, 0, 0, 2};
  if (name.starts_with("Resize")) return {32, 0, 0, 0, 1};
  if (name == "Gelu" || name == "HardSwish") return {4, 0, 1};
  if (std::find(std::begin(kAbsolute), std::end(kAbsolute), name) != std::end(kAbsolute)) return {4, 1, 0};
  if (std::find(std::begin(kRelative), std::end(kRelative), name) != std::end(kRelative)) return {4, 0, 0};
  return {};
}
TermOrder order_of(const Graph& g, const Node& n, DType type, int64_t terms) {
  TermOrder order{.terms = terms, .type = compute_type(type)};
  const auto* r = n.op->lowers_as<Reduction>();
  if (n.op->name == "CumProd" || (r && r->form(*NodeView(g, n)).combine == Combine::Product))
    order.combine = Combine::Product;
  order.mean = n.op->name == "ReduceMean" || n.op->name == "Mean" || n.op->name == "AveragePool";
  if (!is_float(type)) order.terms = 0;
  return order;
}
double numbers_in_text(const Graph& g, const Node& n) {
  double size = 0;
  for (ValueId v : n.inputs)
    if (const auto& c = g.value(v).constant; c && c->count() == 1 && is_float(c->type()))
      size += std::abs(c->float_at(0));
  return size;
}
int64_t terms_of(const Graph& g, const Node& n) {
  if (n.op->name.starts_with("Resize"))
    return n.op->name == "Resize" ? 64 : 2400;  // weights follow from coordinates, which are rounded
  if (n.op->name == "QuantizeTo") return 2;  // it divides, and then rounds: a tie may go either way
  const NodeView view(g, n);
  Shape extents;
  if (auto* c = n.op->lowers_as<Contraction>()) {
    for (const Expr& k : c->form(*view).k) extents.push_back(k.extent());
  } else if (auto* r = n.op->lowers_as<Reduction>()) {
    const ReductionForm form = r->form(*view);
    if (form.combine != Combine::Sum && form.combine != Combine::Product) return 0;
    extents = form.extents;
  } else {
    if (n.op->name == "Sum" || n.op->name == "Mean") return static_cast<int64_t>(n.inputs.size());
    return n.op->name == "CumSum" || n.op->name == "CumProd" ? 64 : 0;
  }
  return std::max<int64_t>(1, element_count(extents).as_int().value_or(1));
}
bool follows_softmax(const Graph& g, const Node& n) {
  const Node* from = n.op->name == "MatMul" ? g.producer(n.inputs[0]) : nullptr;
  while (from && (from->op->name == "Cast" || from->op->name == "Where")) from = g.producer(from->inputs.back());
  const Node* top = from && from->op->name == "Div" ? g.producer(from->inputs[0]) : nullptr;
  return top && top->op->name == "Exp";
}

}  // namespace ingot::testing
