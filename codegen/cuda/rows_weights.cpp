// Rows shared by the blocks of a cluster: the weights of their stages come to registers while the kernel before still runs.
// A stage would wait for its own otherwise, and each of these kernels is a few of such waits.
#include <fmt/format.h>

#include "codegen/cuda/cuda_printers.h"
#include "compiler/expr/simplify.h"

namespace ingot {

namespace {
constexpr int64_t kHeldSteps = 12;  // of 16 bytes
}

std::optional<RowsPrinter::HeldStage> RowsPrinter::held_stage(const Loop& s, int lanes) const {
  if (schedule_.cluster_k == 1) return std::nullopt;
  const Reduce& r = *s.body[0].as<Reduce>();
  const auto sums = total_of(s.axes).as_int(), length = total_of(r.axes).as_int();
  if (!sums || !length) return std::nullopt;
  const Axis& inner = r.axes.back();
  const int width = widest_vector(kernel_, as_body(r.value), inner.var, inner.extent, schedule_.vector);
  const int64_t together = sharers() / lanes, step = int64_t{lanes} * width;
  HeldStage stage{&s, (*sums + together - 1) / together, (*length + step - 1) / step, width, {}, {}};
  if (stage.passes * stage.parts > kHeldSteps) return std::nullopt;
  return stage;
}

void RowsPrinter::hold_weights() {
  bool any = false;
  for (const Stmt& s : kernel_.body) {
    const auto* l = s.as<Loop>();
    const int lanes = l ? lanes_of_sum(*l) : 1;
    if (lanes == 1) continue;
    repeating_ = is_repeated(*l);
    stage_ = held_stage(*l, lanes);
    if (stage_ && !any) out_.comment("Weights, while the kernel before still runs.");
    any |= stage_.has_value();
    if (stage_) hold(*l, lanes);
    stage_.reset();
  }
  repeating_ = false;
}

void RowsPrinter::hold(const Loop& s, int lanes) {
  const Reduce& r = *s.body[0].as<Reduce>();
  declare_held(r.value, true);
  for (const Stmt& stmt : s.body) {
    if (auto* l = stmt.as<Let>()) declare_held(l->value, false);
    if (auto* st = stmt.as<Store>()) declare_held(st->value, false);
  }
  loop_by_groups(s, lanes, [&] {
    load_held(false);
    share_among(fmt::format("(lane % {})", lanes), lanes, r.axes, as_body(r.value), [&] { load_held(true); });
  });
}

/// Arrays for the weights that the value loads at places which follow from indices alone.
void RowsPrinter::declare_held(const Expr& value, bool of_step) {
  const std::string& inner = stage_->loop->body[0].as<Reduce>()->axes.back().var.name();
  ExprSet seen;
  visit(value, [&](const Expr& x) {
    if (x.op() != ExprOp::Load || is_scratch(x.buffer()) || !seen.insert(x).second) return;
    if (!kernel_.buffers[static_cast<size_t>(x.buffer())].is_constant) return;
    bool given = true;
    visit(x.arg(0), [&](const Expr& i) { given &= i.op() != ExprOp::Load && (i.op() != ExprOp::Symbol || i.type() == DType::I64); });
    const auto along = linear_coefficient(x.arg(0), inner);
    if (!given || (of_step && stage_->width > 1 && !(along && along->is_const(1)))) return;
    held_.push_back({stage_->loop, x, of_step, expr_.fresh("held")});
    const std::string type = c_storage_type(buffer_type(x.buffer()));
    const bool vector = of_step && stage_->width > 1;
    out_.line(fmt::format("{} {}[{}] = {{}};", vector ? fmt::format("Vec<{}, {}>", type, stage_->width) : type, held_.back().array,
                          stage_->passes * (of_step ? stage_->parts : 1)));
  });
}

std::string RowsPrinter::place_of(const HeldWeight& weight) const {
  if (!weight.of_step) return fmt::format("{}[{}]", weight.array, stage_->pass);
  return fmt::format("{}[{} * {} + {}]", weight.array, stage_->pass, stage_->parts, stage_->part);
}

void RowsPrinter::load_held(bool of_step) {
  for (const HeldWeight& w : held_) {
    if (w.loop != stage_->loop || w.of_step != of_step) continue;
    const int buffer = w.load.buffer();
    if (const auto base = neighbour_base(buffer, w.load.arg(0)))
      out_.line(fmt::format("{} = load_vec_early<{}>({} + {});", place_of(w), lanes_->width, pointer(buffer), expr_.operand(*base)));
    else
      out_.line(fmt::format("{} = load_vec_early<1>({} + {})[0];", place_of(w), pointer(buffer), expr_.operand(w.load.arg(0))));
  }
}

void RowsPrinter::bind_held(bool of_step) {
  for (const HeldWeight& w : held_) {
    if (!stage_ || w.loop != stage_->loop || w.of_step != of_step) continue;
    const bool vector = of_step && stage_->width > 1;
    expr_.bind_value(w.load, from_storage(buffer_type(w.load.buffer()), place_of(w) + (vector ? "[v]" : "")));
  }
}

}  // namespace ingot
