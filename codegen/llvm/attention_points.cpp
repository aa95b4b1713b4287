#include "codegen/llvm/attention_points.h"

#include <cmath>

#include "codegen/kernel/attention_masks.h"
#include "compiler/expr/simplify.h"

namespace ingot::cpu {
namespace {

class AttentionPoints {
 public:
  explicit AttentionPoints(const Kernel& kernel)
      : out_(kernel), t_(*kernel.attend()), scores_(static_cast<int>(kernel.buffers.size())) {}

  Kernel run() {
    out_.domain = t_.batch;
    out_.domain.insert(out_.domain.end(), t_.m.begin(), t_.m.end());
    out_.body.clear();
    out_.body.push_back({Alloc{scores_, "scores", DType::F32, simplify(product_of(t_.n))}});
    end_where_masks_say();
    add_scores();
    add_weights();
    add_results();
    return std::move(out_);
  }

 private:
  static Expr product_of(const std::vector<Axis>& axes) {
    Expr total = 1;
    for (const Axis& a : axes) total = total * a.extent;
    return total;
  }
  /// The loops over keys end with the last one that this query sees.
  void end_where_masks_say() {
    const Expr reach = reach_of(t_);
    if (!reach.valid()) return;
    const Expr seen = Expr::local("seen", DType::I64);
    out_.body.push_back({Let{seen, max(Expr(0), min(reach, t_.n[0].extent))}});
    t_.n[0].extent = seen;
  }
  static Expr place(const std::vector<Axis>& axes) {
    Expr at = 0;
    for (const Axis& a : axes) at = at * a.var.extent() + a.var;
    return at;
  }
  /// The keys once more, under names of their own.
  std::vector<Axis> keys_again(Bindings& bindings) {
    std::vector<Axis> axes;
    for (const Axis& a : t_.n) {
      axes.push_back({Expr::index(a.var.name() + "_" + std::to_string(++again_), a.var.extent()), a.extent});
      bindings.emplace(a.var.name(), axes.back().var);
    }
    return axes;
  }
  Expr score_at(const std::vector<Axis>& axes) const { return Expr::load(scores_, DType::F32, place(axes)); }
  Expr over_keys(const char* name, Combine combine, const Expr& init) {
    Bindings bindings;
    const std::vector<Axis> axes = keys_again(bindings);
    const Expr result = Expr::local(name, DType::F32);
    out_.body.push_back({Reduce{result, combine, init, axes, score_at(axes), false}});
    return result;
  }

  void add_scores() {
    Loop loop{t_.n, {}};
    loop.body.push_back({Reduce{t_.dot, Combine::Sum, Expr::real(DType::F32, 0), t_.k, t_.q * t_.key, false}});
    loop.body.push_back({Store{scores_, place(t_.n), t_.score}});
    out_.body.push_back({std::move(loop)});
  }
  void add_weights() {
    const Expr top = over_keys("top", Combine::Max, identity_of(Combine::Max, DType::F32));
    Expr base = Expr::local("base", DType::F32);
    const Expr none = eq(top, Expr::real(DType::F32, -INFINITY));
    out_.body.push_back({Let{base, t_.no_logit == NoLogit::Zero ? select(none, Expr::real(DType::F32, 0), top) : top}});
    Bindings bindings;
    Loop loop{keys_again(bindings), {}};
    loop.body.push_back({Store{scores_, place(loop.axes), call(Fn::Exp, score_at(loop.axes) - base)}});
    out_.body.push_back({std::move(loop)});
  }
  void add_results() {
    const Expr zero = Expr::real(DType::F32, 0);
    const Expr sum = over_keys("sum", Combine::Sum, zero);
    Expr none = eq(sum, zero);
    if (t_.no_logit == NoLogit::NanIsZero) none = logical_or(none, ne(sum, sum));
    Bindings bindings;
    Reduce weighted{Expr::local("weighted", DType::F32), Combine::Sum, zero, keys_again(bindings), {}, false};
    weighted.value = score_at(weighted.axes) * substitute(t_.value, bindings);
    const Expr mean = weighted.result / sum;
    Loop loop{t_.d, {}};
    loop.body.push_back({weighted});
    loop.body.push_back({Let{t_.acc, t_.no_logit == NoLogit::Nan ? mean : select(none, zero, mean)}});
    loop.body.insert(loop.body.end(), t_.epilogue.begin(), t_.epilogue.end());
    out_.body.push_back({std::move(loop)});
  }

  Kernel out_;
  Attend t_;
  int scores_, again_ = 0;
};

}  // namespace

Kernel attention_as_points(const Kernel& kernel) { return AttentionPoints(kernel).run(); }

}  // namespace ingot::cpu
