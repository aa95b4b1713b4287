// Steps that compute every element by itself.
#include <algorithm>

#include "tests/random_graphs/generator.h"

namespace ingot::testing {

ValueId Generator::activation(ValueId x) {
  if (!x.valid()) return x;
  switch (below(8)) {
    case 0: return add("Relu", {x});
    case 1: return add("Gelu", {x}, {{"tanh", chance(0.5) ? "true" : "false"}});
    case 2: return add("Mul", {x, add("Sigmoid", {x})});
    case 3: return add("Clip", {x, numbers(type(x).dtype, {}, {0}), numbers(type(x).dtype, {}, {6})});
    case 4: return add("LeakyRelu", {x}, {{"alpha", "0.1"}});
    case 5: return add("Tanh", {x});
    case 6: return add("HardSwish", {x});
    default: return x;
  }
}

bool Generator::unary() {
  const ValueId x = value_of_rank(0, 5);
  const int64_t kind = below(6);
  if (kind == 0) return keep(activation(x));
  if (kind == 1) {
    const std::string name =
        pick_name({"Elu", "Selu", "Celu", "LeakyRelu", "ThresholdedRelu", "Shrink", "Swish", "HardSigmoid"});
    FieldTexts attrs{{"alpha", name == "Shrink" ? "0.5" : "1.25"}};
    if (name == "Selu" || name == "HardSigmoid") attrs["beta"] = "0.75";
    return keep(add(name, {x}, attrs));
  }
  if (kind == 2)
    return keep(add(pick_name({"Sqrt", "Log", "Reciprocal", "Exp"}),
                    {chance(0.7) ? scalar_op("Add", add("Abs", {x}), 0.5) : x}));
  return keep(add(pick_name({"Relu", "Abs",       "Neg",     "Sign",  "Exp",  "Tanh",  "Erf",      "Sigmoid",
                             "Sin",  "Cos",       "Atan",    "Floor", "Ceil", "Round", "Softplus", "Softsign",
                             "Mish", "HardSwish", "Sigmoid", "Tanh",  "Sinh", "Asinh"}),
                  {x}));
}

bool Generator::binary() {
  const ValueId x = value_of_rank(0, 5);
  const int64_t kind = below(10);
  const ValueId y = partner(x);
  if (kind == 0) return keep(add(pick_name({"Max", "Min", "Sum", "Mean"}), {x, y, third(x, y)}));
  if (kind == 1) {
    static const std::vector<double> kExponents = {2, 3, 1, 0.5, -1, 0, 4, 1.5};
    return keep(scalar_op("Pow", chance(0.5) ? add("Abs", {x}) : x, pick(kExponents)));
  }
  if (kind == 2) return keep(add("PRelu", {x, y}));
  if (kind == 3) {
    static const std::vector<double> kFactors = {0, 1, -1, 2, 0.5, 0.125, 3};
    return keep(scalar_op(pick_name({"Add", "Sub", "Mul", "Div"}), x, pick(kFactors)));
  }
  const bool swapped = chance(0.3);
  return keep(add(pick_name({"Add", "Add", "Sub", "Mul", "Mul", "Div"}), {swapped ? y : x, swapped ? x : y}));
}

/// An operand beside x and y: all three must broadcast with one another.
ValueId Generator::third(ValueId x, ValueId y) {
  const bool widens = !same_shape(broadcast(shape(x), shape(y)).value(), shape(x));
  return widens ? numbers(type(x).dtype, {}, {1}) : partner(x);
}

bool Generator::comparison() {
  const ValueId x = value_of_rank(0, 5, false);
  if (!x.valid()) return false;
  if (type(x).dtype == DType::Bool) {
    if (chance(0.3)) return keep(add("Not", {x}));
    return keep(add(pick_name({"And", "Or", "Xor", "Equal"}), {x, partner(x)}));
  }
  return keep(add(pick_name({"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"}), {x, partner(x)}));
}

bool Generator::choice() {
  const ValueId x = value_of_rank(0, 4, false);
  const DType t = type(x).dtype;
  if (chance(0.3) && t != DType::Bool) {
    const ValueId low = chance(0.8) ? numbers(t, {}, {is_signed(t) ? -1.0 : 1.0}) : ValueId();
    return keep(add("Clip", {x, low, chance(0.8) ? numbers(t, {}, {2}) : ValueId()}));
  }
  ValueId condition = find_broadcasting(DType::Bool, x);
  if (!condition.valid() || chance(0.4)) {
    const ValueId y = find_broadcasting(main_, x);
    if (y.valid() && chance(0.6)) condition = add("Greater", {y, numbers(main_, {}, {0.25})});
    else condition = fresh(DType::Bool, chance(0.5) ? shape(x) : Shape{}, 0.5);
  }
  return keep(add("Where", {condition, x, third(x, condition)}));
}

bool Generator::integers() {
  ValueId x = find([](const TensorType& t) { return is_integer(t.dtype); });
  if (!x.valid() || chance(0.3)) {
    static const std::vector<DType> kTypes = {DType::I32, DType::I64, DType::I8,  DType::U8,
                                              DType::I16, DType::U16, DType::U32, DType::I32};
    x = input(pick(kTypes), random_shape(static_cast<size_t>(below(4))));
    keep(x);
  }
  if (chance(0.3)) return keep(add(pick_name({"Neg", "Abs", "Sign", "BitwiseNot", "Relu"}), {x}));
  const std::string name =
      pick_name({"Add", "Sub", "Mul", "Div", "Mod", "Max", "Min", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitShift"});
  FieldTexts attrs;
  if (name == "Mod" && chance(0.5)) attrs["fmod"] = "true";
  if (name == "BitShift")
    return keep(add(name, {x, numbers(type(x).dtype, {}, {static_cast<double>(below(7))})},
                    {{"left", chance(0.5) ? "true" : "false"}}));
  return keep(add(name, {x, partner(x)}, attrs));
}

bool Generator::cast() {
  const ValueId x = value_of_rank(0, 4, false);
  ValueId y = add("Cast", {x}, {{"to", name_of(pick_type())}});
  if (chance(0.3)) y = add("Cast", {y}, {{"to", name_of(main_)}});
  return keep(y);
}

}  // namespace ingot::testing
