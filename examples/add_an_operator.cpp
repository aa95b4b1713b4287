// An operator of one's own: a row in the registry. What it means is said once, as a scalar expression; shapes, the
// reference, CUDA text and CPU code follow from it, and it fuses with its neighbours like any other operator.
//   add_an_operator MODEL.onnx [DEVICE]     runs a model with org.example.ScaledTanh (examples/operators/scaled_tanh.onnx)
#include <fmt/format.h>

#include <cmath>

#include "compiler/driver/session.h"
#include "compiler/ops/rows.h"

using namespace ingot;

namespace {

struct ScaledTanhAttrs {
  double alpha = 1;
  INGOT_FIELDS(alpha)
};

/// alpha * tanh(x), in the type that x computes in.
Expr scaled_tanh(const OpView& v, std::span<const Expr> x) {
  return number_like(x[0], v.attrs.as<ScaledTanhAttrs>().alpha) * call(Fn::Tanh, x[0]);
}

/// What a node of the model becomes: attributes are read once, here.
Result<Values> import_scaled_tanh(ImportContext& c) {
  const ScaledTanhAttrs a{INGOT_TRY(c.node.float_or("alpha", 1))};
  return one(c.builder.add(*find_op("ScaledTanh", "org.example"), a, {c.in(0)}));
}

constexpr ImportRule kRules[] = {{1, import_scaled_tanh}};  // from version 1 of the domain on

const OpDef kRows[] = {[] {
  OpDef d;
  d.name = "ScaledTanh", d.domain = "org.example", d.doc = "alpha * tanh(x)";
  d.imports = kRules, d.infer = infer_same<TypeClass::Floats>, d.lower = Pointwise{scaled_tanh};
  d.parse_attrs = parse_attrs<ScaledTanhAttrs>;
  return d;
}()};

Result<float> run(const std::string& path, const std::string& device) {
  const Model model = INGOT_TRY(Model::load(path, device));
  Tensor x(DType::F32, {3, 4});
  for (int i = 0; i < 12; ++i) x.mutable_as<float>()[i] = 0.25f * static_cast<float>(i - 6);
  const std::vector<NamedTensor> y = INGOT_TRY(model.run({{"x", x}}));
  float worst = 0;
  for (int i = 0; i < 12; ++i) {
    const float want = 2 * std::tanh(x.as<float>()[i]) + x.as<float>()[i];  // the model adds x and has alpha = 2
    worst = std::max(worst, std::fabs(y[0].tensor.as<float>()[i] - want));
  }
  return worst;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr, "usage: add_an_operator MODEL.onnx [DEVICE]\n");
    return 2;
  }
  add_ops(kRows);  // once, before the first model is imported
  const auto worst = run(argv[1], argc > 2 ? argv[2] : "cpu");
  if (!worst) {
    fmt::print(stderr, "{}\n", worst.error().to_string());
    return 1;
  }
  fmt::print("largest difference from 2 * tanh(x) + x: {}\n", worst.value());
  return worst.value() < 1e-6f ? 0 : 1;
}
