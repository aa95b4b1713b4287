// Random graphs over the operator registry: a pool of values grows by steps, each of which picks operands that fit (or makes
// inputs and constants) and adds an operator or a composition such as networks have.
#pragma once

#include <optional>
#include <random>

#include "compiler/ir/builder.h"
#include "compiler/ops/onnx_node.h"
#include "tests/random_graphs/graph_case.h"

namespace ingot::testing {

GraphCase generate_case(uint64_t seed);

/// One graph in the making. A step that does not fit returns false and leaves the pool as it was.
class Generator {
 public:
  explicit Generator(uint64_t seed);
  GraphCase run();

 private:
  // choices
  int64_t below(int64_t n) { return static_cast<int64_t>(rng_() % static_cast<uint64_t>(n)); }
  bool chance(double p) { return static_cast<double>(rng_() >> 11) * 0x1p-53 < p; }
  template <class T>
  const T& pick(const std::vector<T>& list) {
    return list[static_cast<size_t>(below(static_cast<int64_t>(list.size())))];
  }
  std::string pick_name(std::initializer_list<const char*> names) {
    return names.begin()[below(static_cast<int64_t>(names.size()))];
  }
  Expr pick_dim() { return pick(dims_); }
  DType pick_type();

  // values
  const TensorType& type(ValueId v) const { return graph_.value(v).type; }
  const Shape& shape(ValueId v) const { return type(v).shape; }
  size_t rank(ValueId v) const { return type(v).rank(); }
  ValueId input(DType t, Shape s);
  ValueId constant(DType t, const Shape& s);
  ValueId numbers(DType t, Shape s, const std::vector<double>& items);
  /// A constant where the dims are numbers and chance will have it, else an input.
  ValueId fresh(DType t, Shape s, double constant_share = 0.4);
  /// A pool value that fits, recent ones first; invalid when there is none.
  ValueId find(const std::function<bool(const TensorType&)>& fits);
  ValueId value_of_rank(size_t low, size_t high, bool floats = true);
  ValueId partner(ValueId x);  // of the same type, broadcasting with x
  /// A pool value of the type whose dims are 1 or x's; invalid when there is none.
  ValueId find_broadcasting(DType t, ValueId x);
  Shape random_shape(size_t rank);
  bool keep(ValueId v);  // into the pool, unless it is too large
  ValueId add(const std::string& op, std::vector<ValueId> inputs, FieldTexts attrs = {});
  ValueId scalar_op(const std::string& op, ValueId x, double y) {
    return x.valid() ? add(op, {x, numbers(type(x).dtype, {}, {y})}) : x;
  }
  ValueId reshape(ValueId x, const Shape& s) { return add("Reshape", {x}, {{"shape", field_text(s)}}); }
  ValueId transpose(ValueId x, const std::vector<int64_t>& perm) {
    return add("Transpose", {x}, {{"perm", field_text(perm)}});
  }
  ValueId activation(ValueId x);
  ValueId third(ValueId x, ValueId y);

  // steps: generator_pointwise.cpp, generator_movement.cpp, generator_layers.cpp, generator_chains.cpp,
  // generator_imported.cpp
  bool unary();
  bool binary();
  bool comparison();
  bool choice();
  bool integers();
  bool cast();
  bool permute();
  bool reshape_step();
  bool slice();
  bool split();
  bool concat();
  bool pad();
  bool expand();
  bool gather();
  bool triangle();
  bool reduce();
  bool softmax();
  bool norm();
  bool matmul();
  bool parallel_products();
  bool perceptron();
  bool normed_products();
  bool convolution();
  bool pool();
  bool attention();
  bool running_sum();
  bool squeeze();
  bool reduced_rows();
  bool experts();
  bool branches();
  /// What the operator's import rule makes of the inputs; empty when it refuses them.
  std::vector<ValueId> onnx(const std::string& name, std::vector<ValueId> inputs,
                            std::map<std::string, OnnxAttr> attrs = {}, size_t outputs = 1,
                            const std::string& domain = "");
  bool keep_all(const std::vector<ValueId>& values);
  ValueId whole_numbers(const std::vector<int64_t>& items);
  bool resize();
  bool choose_elements();
  bool quantized();
  bool blocks();
  bool einsum();
  bool statistics();
  bool gemm();
  bool transformer_parts();
  bool recurrent();
  // parts of layers
  ValueId image(size_t spatial);
  ValueId mix_channels(ValueId x, int64_t channels);
  FieldTexts window(ValueId x, std::vector<int64_t>& kernel, bool pools);
  ValueId scores(ValueId q, ValueId k, double head);
  ValueId heads(ValueId x, const Expr& heads, const Expr& width);
  ValueId batch_norm(ValueId x);
  ValueId window_rows();
  ValueId row_norm(ValueId x, int64_t axis);
  static const std::vector<std::pair<int, bool (Generator::*)()>>& steps();
  void choose_outputs();
  void bind_symbols();
  bool fits(const Sizes& sizes) const;
  std::vector<Sizes> choose_sizes();

  std::mt19937_64 rng_;
  uint64_t seed_;
  Graph graph_;
  GraphBuilder builder_;
  std::vector<ValueId> pool_;
  std::vector<Expr> dims_, symbols_;
  DType main_ = DType::F32;
  double follow_ = 0.5;        // how often a step goes on from the value made last
  int64_t most_elements_ = 0;  // of a value, with symbols at a usual size
};

}  // namespace ingot::testing
