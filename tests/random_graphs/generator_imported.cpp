// Steps that use the import rules of operators that stand for several others: what they build has shapes that the other steps
// do not make.
#include <algorithm>

#include "compiler/ops/onnx_node.h"
#include "compiler/ops/registry.h"
#include "tests/random_graphs/generator.h"

namespace ingot::testing {

std::vector<ValueId> Generator::onnx(const std::string& name, std::vector<ValueId> inputs,
                                     std::map<std::string, OnnxAttr> attrs, size_t outputs, const std::string& domain) {
  constexpr int kOpset = 24;
  for (ValueId v : inputs)
    if (v.valid() && v.index >= graph_.value_count()) return {};
  const OpDef* row = find_op(name, domain);
  const ImportRule* rule = row ? find_import(*row, domain.empty() ? kOpset : 1) : nullptr;
  INGOT_CHECK(rule != nullptr, "no import rule for " + name);
  OnnxNode node;
  node.op = name, node.domain = domain, node.name = name, node.opset = domain.empty() ? kOpset : 1;
  node.attrs = std::move(attrs);
  for (ValueId v : inputs) node.inputs.push_back(v.valid() ? "in" : "");
  node.outputs.assign(outputs, "out");
  ImportContext c(node, builder_, std::move(inputs));
  auto made = rule->apply(c);
  return made.ok() ? *made : std::vector<ValueId>{};
}
bool Generator::keep_all(const std::vector<ValueId>& values) {
  bool any = false;
  for (ValueId v : values) any |= keep(v);
  return any;
}
ValueId Generator::whole_numbers(const std::vector<int64_t>& items) {
  return numbers(DType::I64, {Expr(static_cast<int64_t>(items.size()))},
                 std::vector<double>(items.begin(), items.end()));
}

bool Generator::resize() {
  const ValueId x = image(2);
  const auto h = shape(x)[2].as_int(), w = shape(x)[3].as_int(), n = shape(x)[0].as_int();
  if (!h || !w || !n || *h == 0 || *w == 0) return false;
  const ValueId sizes = whole_numbers(
      {*n, *shape(x)[1].as_int(), chance(0.5) ? 2 * *h : 1 + below(12), chance(0.5) ? 2 * *w : 1 + below(12)});
  std::map<std::string, OnnxAttr> attrs{
      {"mode", pick_name({"nearest", "linear", "cubic"})},
      {"coordinate_transformation_mode", pick_name({"half_pixel", "align_corners", "asymmetric"})}};
  return keep_all(onnx("Resize", {x, ValueId(), ValueId(), sizes}, attrs));
}

bool Generator::choose_elements() {
  const ValueId x = value_of_rank(1, 3);
  const int64_t axis = below(static_cast<int64_t>(rank(x)));
  const auto n = shape(x)[static_cast<size_t>(axis)].as_int();
  if (!n || *n == 0 || *n > 256) return false;  // ranks are counted, every element against every other
  switch (below(4)) {
    case 0:
      return keep_all(onnx("TopK", {x, whole_numbers({1 + below(*n)})}, {{"axis", axis}, {"largest", below(2)}}, 2));
    case 1: {
      Shape s = shape(x);
      s[static_cast<size_t>(axis)] = 1 + below(3);
      return keep_all(onnx("ScatterElements", {x, fresh(DType::I64, s, 0.7), fresh(type(x).dtype, s)},
                           {{"axis", axis}, {"reduction", pick_name({"none", "add", "mul", "max", "min"})}}));
    }
    case 2: {
      const int64_t depth = 1 + below(static_cast<int64_t>(rank(x)));
      for (const Expr& d : shape(x))
        if (!d.as_int() || *d.as_int() == 0) return false;
      return keep_all(onnx("GatherND", {x, fresh(DType::I64, {Expr(1 + below(5)), Expr(depth)}, 0.7)}));
    }
    default: {
      const ValueId indices = fresh(DType::I64, random_shape(static_cast<size_t>(below(3))), 0.3);
      return keep_all(onnx("OneHot", {indices, whole_numbers({2 + below(7)}), numbers(main_, {2}, {0.25, 2})},
                           {{"axis", int64_t{-1}}}));
    }
  }
}

bool Generator::quantized() {
  const ValueId x = value_of_rank(1, 4);
  const DType to = chance(0.5) ? DType::I8 : DType::U8;
  const bool by_axis = chance(0.4) && shape(x).back().as_int() && *shape(x).back().as_int() > 0;
  const Shape s = by_axis ? Shape{shape(x).back()} : Shape{};
  const ValueId scale = numbers(type(x).dtype, s, {0.05, 0.02, 0.125}), zero = numbers(to, s, {3, 0, 1});
  const std::map<std::string, OnnxAttr> attrs{{"axis", static_cast<int64_t>(rank(x)) - 1}};
  const auto q = onnx("QuantizeLinear", {x, scale, zero}, attrs);
  if (q.empty()) return false;
  if (chance(0.3)) keep(q[0]);
  if (chance(0.2) && rank(x) == 2 && !by_axis && shape(x)[1].as_int() && *shape(x)[1].as_int() > 0)
    return keep_all(onnx("MatMulInteger", {q[0], constant(DType::I8, {shape(x)[1], Expr(1 + below(9))}), zero}));
  return keep_all(onnx("DequantizeLinear", {q[0], scale, zero}, attrs));
}

bool Generator::blocks() {
  const ValueId x = image(2);
  const auto c = shape(x)[1].as_int();
  if (chance(0.4)) {
    const int64_t k = 1 + below(3), stride = chance(0.4) ? k : 1 + below(2);
    const bool grouped = *c % 2 == 0 && chance(0.3);
    const ValueId w = fresh(type(x).dtype, {Expr(*c), Expr(1 + below(4)), Expr(k), Expr(k)}, 0.85);
    auto y = onnx("ConvTranspose", {x, w},
                  {{"strides", std::vector<int64_t>{stride, stride}}, {"group", grouped ? int64_t{2} : int64_t{1}}});
    return !y.empty() && keep(chance(0.5) ? activation(y[0]) : y[0]);
  }
  if (*c % 4 == 0)
    return keep_all(onnx("DepthToSpace", {x}, {{"blocksize", int64_t{2}}, {"mode", pick_name({"DCR", "CRD"})}}));
  return keep_all(onnx("GlobalAveragePool", {x}));
}

bool Generator::einsum() {
  const ValueId x = value_of_rank(3, 3);
  const Expr b = shape(x)[0], i = shape(x)[1], j = shape(x)[2], k(1 + below(9));
  const DType t = type(x).dtype;
  switch (below(4)) {
    case 0: return keep_all(onnx("Einsum", {x, fresh(t, {b, j, k})}, {{"equation", std::string("bij,bjk->bik")}}));
    case 1: return keep_all(onnx("Einsum", {x, fresh(t, {b, i, k})}, {{"equation", std::string("bij,bik->bjk")}}));
    case 2: return keep_all(onnx("Einsum", {x, fresh(t, {b, i, j})}, {{"equation", std::string("bij,bij->bi")}}));
    default: return keep_all(onnx("Einsum", {x, fresh(t, {j, k})}, {{"equation", std::string("bij,jk->kbi")}}));
  }
}

bool Generator::statistics() {
  const ValueId x = value_of_rank(2, 4);
  const int64_t last = static_cast<int64_t>(rank(x)) - 1;
  switch (below(4)) {
    case 0: return keep_all(onnx("LpNormalization", {x}, {{"axis", last}, {"p", 1 + below(2)}}));
    case 1: return keep_all(onnx("MeanVarianceNormalization", {x}, {{"axes", std::vector<int64_t>{0, last}}}));
    case 2:
      return keep_all(onnx("ReduceLogSumExp", {x, whole_numbers({below(2) ? last : 0})}, {{"keepdims", below(2)}}));
    default:
      return shape(x).back().as_int() && !shape(x).back().is_const(0) &&
             keep_all(onnx("Hardmax", {x}, {{"axis", last}}));
  }
}

bool Generator::gemm() {
  const ValueId x = value_of_rank(2, 2);
  const bool flip = chance(0.3), flip_b = chance(0.4);
  const Expr k = shape(x)[flip ? 0 : 1], n(1 + below(20));
  const ValueId w = fresh(type(x).dtype, flip_b ? Shape{n, k} : Shape{k, n}, 0.8);
  std::vector<ValueId> in{x, w};
  if (chance(0.7)) in.push_back(fresh(type(x).dtype, {n}, 0.8));
  auto y = onnx("Gemm", in,
                {{"transA", int64_t{flip}},
                 {"transB", int64_t{flip_b}},
                 {"alpha", chance(0.5) ? 1.0 : 0.5},
                 {"beta", chance(0.7) ? 1.0 : 2.0}});
  return !y.empty() && keep(activation(y[0]));
}

/// The standard's attention, and layers that recent exporters write as one node.
bool Generator::transformer_parts() {
  const Expr batch = chance(0.5) ? pick_dim() : Expr(1 + below(2)),
             length = chance(0.5) ? pick_dim() : Expr(1 + below(12));
  if (chance(0.35)) {
    const Expr count(2 + 2 * below(2)), width(2 * (1 + below(8)));
    const Expr shared = chance(0.3) ? Expr(2) : count;  // heads of keys and values
    const ValueId q = input(main_, {batch, count, length, width}), k = input(main_, {batch, shared, length, width}),
                  v = input(main_, {batch, shared, length, width});
    std::vector<ValueId> in{q, k, v};
    if (chance(0.4)) in.push_back(fresh(chance(0.5) ? DType::Bool : main_, {length, length}, 0));
    return keep_all(onnx("Attention", in, {{"is_causal", below(2)}, {"softcap", chance(0.2) ? 5.0 : 0.0}}));
  }
  const Expr width(2 * (1 + below(12)));
  const ValueId x = input(main_, {batch, length, width});
  keep(x);
  if (chance(0.5)) {
    const ValueId skip = fresh(main_, {batch, length, width}, 0);
    return keep_all(onnx("SkipLayerNormalization", {x, skip, constant(main_, {width}), constant(main_, {width})}, {}, 1,
                         "com.microsoft"));
  }
  return keep_all(onnx("FusedMatMul", {x, fresh(main_, {batch, length, width}, 0)},
                       {{"transB", int64_t{1}}, {"alpha", 0.25}}, 1, "com.microsoft"));
}

bool Generator::recurrent() {
  const int64_t hidden = 1 + below(6), width = 1 + below(6), steps = 1 + below(4);
  const ValueId x = input(main_, {Expr(steps), chance(0.5) ? pick_dim() : Expr(2), Expr(width)});
  if (type(x).dtype != DType::F32) return false;
  const std::string name = pick_name({"LSTM", "GRU", "RNN"});
  const int64_t gates = name == "LSTM" ? 4 : name == "GRU" ? 3 : 1;
  const ValueId w = constant(main_, {1, Expr(gates * hidden), Expr(width)}),
                r = constant(main_, {1, Expr(gates * hidden), Expr(hidden)});
  return keep_all(onnx(name, {x, w, r}, {{"hidden_size", hidden}}, 2));
}

}  // namespace ingot::testing
