#include "passes/match_norm.h"

#include "compiler/expr/simplify.h"
#include "compiler/ops/rows.h"

namespace ingot {

ValueId outside(const Node& group, ValueId inside) {
  for (size_t i = 0; i < group.inputs.size(); ++i)
    if (group.body->inputs[i] == inside) return group.inputs[i];
  return {};
}

bool keeps_columns(const Graph& b, const Node& n) {
  if (n.op->name == "Transpose") {
    const auto& perm = n.attrs.as<PermAttrs>().perm;
    return !perm.empty() && perm.back() + 1 == static_cast<int64_t>(perm.size());
  }
  if (n.op->name != "Reshape") return false;
  const Shape &from = b.value(n.inputs[0]).type.shape, &to = b.value(n.outputs[0]).type.shape;
  return !from.empty() && !to.empty() && proves_equal(from.back(), to.back());
}

namespace {

class NormMatcher {
 public:
  NormMatcher(const Graph& g, NodeId id) : g_(g), n_(g.node(id)), b_(*n_.body) { norm_.node = id; }

  bool match() {
    if (n_.outputs.size() != 1 || g_.is_output(n_.outputs[0])) return false;
    norm_.y = n_.outputs[0];
    ValueId v = b_.outputs[0];
    for (const Node* n = b_.producer(v); n && n->op->lowers_as<Movement>(); n = b_.producer(v)) {
      if (!keeps_columns(b_, *n)) return false;
      norm_.moves.insert(norm_.moves.begin(), b_.value(v).producer);
      v = n->inputs[0];
    }
    v = without("Add", v, norm_.shift);
    v = without("Mul", v, norm_.scale);
    if (const Node* quotient = made_by(v, "Div")) {
      const Node* root = made_by(quotient->inputs[1], "Sqrt");
      return root && centred(quotient->inputs[0], root->inputs[0]);
    }
    const Node* product = made_by(v, "Mul");
    for (size_t i = 0; product && i < 2; ++i)
      if (const ValueId variance = under_root(product->inputs[i]); variance.valid())
        return centred(product->inputs[1 - i], variance);
    return false;
  }
  const Norm& norm() const { return norm_; }

 private:
  const Node* made_by(ValueId v, std::string_view name) const {
    const Node* n = b_.producer(v);
    return n && n->op->name == name ? n : nullptr;
  }
  std::optional<double> number(ValueId v) const {
    const TensorPtr& c = b_.value(v).constant;
    return c && c->count() == 1 && c->type() == DType::F32 ? std::optional<double>(c->as<float>()[0]) : std::nullopt;
  }
  /// A constant vector along the last dimension.
  bool is_vector(ValueId v) const {
    if (!v.valid() || !g_.value(v).constant || g_.value(v).type.dtype != DType::F32) return false;
    const Shape& shape = g_.value(v).type.shape;
    return !shape.empty() && proves_equal(element_count(shape), shape.back()) &&
           proves_equal(shape.back(), g_.value(norm_.y).type.shape.back());
  }
  /// What the vector is combined with, if v is such a combination: else v.
  ValueId without(const char* name, ValueId v, ValueId& vector) const {
    const Node* n = made_by(v, name);
    for (size_t i = 0; n && i < 2; ++i) {
      const ValueId c = outside(n_, n->inputs[i]);
      if (!is_vector(c)) continue;
      vector = c;
      return n->inputs[1 - i];
    }
    return v;
  }
  /// What v is one over the root of; invalid: it is none.
  ValueId under_root(ValueId v) const {
    if (const Node* root = made_by(v, "Rsqrt")) return root->inputs[0];
    const Node* quotient = made_by(v, "Div");
    const Node* root = quotient && number(quotient->inputs[0]) == 1.0 ? made_by(quotient->inputs[1], "Sqrt") : nullptr;
    return root ? root->inputs[0] : ValueId();
  }
  bool is_square_of(ValueId v, ValueId x) const {
    if (const Node* n = made_by(v, "Mul")) return n->inputs[0] == x && n->inputs[1] == x;
    const Node* n = made_by(v, "Pow");
    return n && n->inputs[0] == x && number(n->inputs[1]) == 2.0;
  }
  const Node* mean_of_rows(ValueId v) const {
    const Node* n = made_by(v, "ReduceMean");
    if (!n) return nullptr;
    const auto& a = n->attrs.as<AxesAttrs>();
    const auto last = static_cast<int64_t>(b_.value(n->inputs[0]).type.rank()) - 1;
    return a.keep && a.axes == std::vector<int64_t>{last} ? n : nullptr;
  }
  /// `d`: what is scaled; `variance`: what its root is taken of.
  bool centred(ValueId d, ValueId variance) {
    const Node* sum = made_by(variance, "Add");
    for (size_t i = 0; sum && i < 2; ++i) {
      const auto epsilon = number(sum->inputs[i]);
      const Node* mean = mean_of_rows(sum->inputs[1 - i]);
      if (!epsilon || !mean || !is_square_of(mean->inputs[0], d)) continue;
      norm_.epsilon = *epsilon;
      ValueId x = d;
      if (const Node* difference = made_by(d, "Sub")) {
        const Node* middle = mean_of_rows(difference->inputs[1]);
        if (!middle || middle->inputs[0] != difference->inputs[0]) return false;
        norm_.centred = true;
        x = difference->inputs[0];
      }
      if (const Node* turn = made_by(x, "Transpose")) {
        norm_.turn = b_.value(x).producer;
        x = turn->inputs[0];
      }
      norm_.x = outside(n_, x);
      return norm_.x.valid() && !g_.value(norm_.x).constant && g_.value(norm_.x).type.dtype == DType::F32;
    }
    return false;
  }

  const Graph& g_;
  const Node& n_;
  const Graph& b_;
  Norm norm_;
};

}  // namespace

std::optional<Norm> match_norm(const Graph& graph, NodeId group) {
  NormMatcher matcher(graph, group);
  return matcher.match() ? std::optional<Norm>(matcher.norm()) : std::nullopt;
}

}  // namespace ingot
