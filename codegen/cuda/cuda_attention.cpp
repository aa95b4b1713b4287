// Attention as text: the plan and the functors that prelude/attention.cuh takes, and the entry point.
#include <fmt/format.h>

#include "codegen/cuda/cuda_printers.h"
#include "codegen/kernel/attention_masks.h"
#include "compiler/expr/simplify.h"

namespace ingot {

namespace {
constexpr int kSectionBytes = 16 << 20;  // a third of the L2 of an H100
}

AttentionPrinter::AttentionPrinter(const Kernel& kernel, const Schedule& schedule, bool i32)
    : ProductPrinter(kernel, schedule, i32), attend_(*kernel.attend()), details_(attention_details(kernel, schedule)) {
  blocks_per_sm_ = details_.blocks_per_sm;
  expr_.include(!schedule.tile.boxes ? "attention.cuh" : shares_keys(schedule) ? "attention_keys.cuh" : "attention_boxes.cuh");
}

void AttentionPrinter::print() {
  const Contract scores = score_product(attend_), values = value_product(attend_);
  const AttentionDetails& d = details_;
  const bool boxes = schedule_.tile.boxes, keys = boxes && shares_keys(schedule_);
  print_args();
  out_.blank();
  print_plan();
  out_.blank();
  if (!boxes || keys) {
    print_operand("PrologueQ", scores, attend_.q, attend_.m, "m", true, d.q.vector, d.q.raw);
    out_.blank();
  }
  if (boxes) {
    print_starts();
  } else {
    print_operand("PrologueK", scores, attend_.key, attend_.n, "n", true, d.key.vector, d.key.raw);
    out_.blank();
    print_operand("PrologueV", values, attend_.value, attend_.d, "d", false, d.value.vector, d.value.raw);
  }
  out_.blank();
  print_score();
  out_.blank();
  print_results(values, false, d.e_vector, "d");
  out_.blank();
  open_entry();
  if (!boxes) wait_for_inputs();
  print_extent(attend_.batch, "batches");
  print_extent(attend_.m, "m_end");
  print_extent(attend_.n, "n_end");
  if (!boxes || keys) print_extent(attend_.k, "k_end");
  print_extent(attend_.d, "d_end");
  if (keys) {
    out_.line("attention_keys<Plan>(&map_0, &map_1, PrologueQ{args}, Starts{args}, Score{args}, Epilogue{args}, batches,");
    out_.line("                     m_end, n_end, k_end, d_end, shared);");
  } else if (boxes) {
    out_.line(
        "attention_boxes<Plan>(&map_0, &map_1, &map_2, Starts{args}, Score{args}, Epilogue{args}, batches, m_end, "
        "n_end,");
    out_.line("                      d_end, shared);");
  } else {
    out_.line(
        "attention<Plan>(PrologueQ{args}, PrologueK{args}, PrologueV{args}, Score{args}, Epilogue{args}, batches,");
    out_.line("                m_end, n_end, k_end, d_end, shared);");
  }
  out_.close();
}

void AttentionPrinter::print_starts() {
  const DType element = element_of(schedule_.unit);
  std::vector<std::pair<const char*, OperandRows>> operands;
  if (shares_keys(schedule_)) {
    const KeyRows rows = *key_rows(kernel_, element);
    operands = {{"key", rows.key}, {"value", rows.value}};
  } else {
    const AttentionRows rows = *attention_rows(kernel_, element);
    operands = {{"q", rows.q}, {"key", rows.key}, {"value", rows.value}};
  }
  const Expr unit = 16 / static_cast<int64_t>(size_of(element));
  auto type = out_.type_block("struct Starts");
  out_.line("Args args;");
  for (const auto& [name, operand] : operands) {
    FunctorPrinter one(kernel_, schedule_, expr_.i32());
    const Expr start = simplify(floor_div(operand.start, unit));
    {
      auto call = one.writer().block(fmt::format("INGOT_DEV {0} {1}({0} batch) const", expr_.index_type(), name));
      one.bind_args();
      one.split(attend_.batch, "batch", as_body(start));
      one.writer().line(fmt::format("return {};", one.value(start)));
    }
    splice(one);
  }
}

void AttentionPrinter::print_plan() {
  const AttentionDetails& d = details_;
  const MmaTile& t = schedule_.tile;
  auto block = out_.type_block("struct Plan");
  out_.line(fmt::format("typedef {} element;", c_storage_type(element_of(schedule_.unit))));
  out_.line(fmt::format("typedef {} index;", expr_.index_type()));
  out_.line(fmt::format("static constexpr int tile_m = {}, tile_n = {}, head = {}, tile_d = {}, threads = {};", t.m,
                        t.n, d.head, d.columns, schedule_.threads));
  if (t.boxes && !shares_keys(schedule_)) {
    out_.line(fmt::format("static constexpr int stages = {}, q_stages = {}, arriving = {}, groups = {}, chunk = {};",
                          t.stages, d.q_stages, d.arriving, t.groups(), d.chunk));
    out_.line(fmt::format("static constexpr i64 section_bytes = {};", kSectionBytes));
  } else {
    out_.line(fmt::format("static constexpr int stages = {}, key_warps = {}, cluster_k = {};", t.stages, t.k_warps,
                          schedule_.cluster_k));
    if (t.boxes)
      out_.line(fmt::format("static constexpr int workers = {}, part_rows = {};", schedule_.threads - 32, d.part_rows));
  }
  out_.line(fmt::format("static constexpr int q_vector = {}, k_vector = {}, v_vector = {}, e_vector = {};", d.q.vector,
                        d.key.vector, d.value.vector, d.e_vector));
  out_.line(fmt::format("static constexpr bool single = {};", schedule_.unit == MultiplyUnit::Tf32));
  out_.line(fmt::format("static constexpr bool q_raw = {}, k_raw = {}, v_raw = {};", d.q.raw, d.key.raw, d.value.raw));
  static constexpr const char* kNoLogits[] = {"kNoLogitNan", "kNoLogitZero", "kNanIsZero"};
  out_.line(fmt::format("static constexpr int no_logit = {};", kNoLogits[static_cast<size_t>(attend_.no_logit)]));
}

void AttentionPrinter::print_limit(const char* name, const Expr& bound) {
  FunctorPrinter one(kernel_, schedule_, expr_.i32());
  {
    auto call = one.writer().block(
        fmt::format("INGOT_DEV {0} {1}({0} batch, {0} m, {0} n_end) const", expr_.index_type(), name));
    if (bound.valid()) {
      one.bind_args();
      one.split(attend_.batch, "batch", as_body(bound));
      one.split(attend_.m, "m", as_body(bound));
    }
    one.writer().line(
        fmt::format("return {};", bound.valid() ? fmt::format("key_limit({}, n_end)", one.value(bound)) : "n_end"));
  }
  splice(one);
}

void AttentionPrinter::print_logit(const char* name, const Expr& logit) {
  FunctorPrinter one(kernel_, schedule_, expr_.i32());
  {
    auto call = one.writer().block(
        fmt::format("INGOT_DEV float {1}({0} batch, {0} m, {0} n, float dot) const", expr_.index_type(), name));
    one.bind_args();
    const Body uses = as_body(logit);
    one.split(attend_.batch, "batch", uses);
    one.split(attend_.m, "m", uses);
    one.split(attend_.n, "n", uses);
    one.bind_acc(attend_.dot, "dot");
    one.writer().line(fmt::format("return {};", one.value(logit)));
  }
  splice(one);
}

void AttentionPrinter::print_score() {
  const auto [scale, logit] = split_scale(attend_.score, attend_.dot);
  const SeenKeys seen = seen_keys(attend_, logit);
  bool loads = false;  // for each key
  visit(seen.is_all ? seen.plain : logit, [&](const Expr& e) {
    for (const Axis& a : attend_.n) loads |= e.op() == ExprOp::Load && depends_on(e, a.var.name());
  });
  auto type = out_.type_block("struct Score");
  out_.line("Args args;");
  out_.line(fmt::format("static constexpr float kScale = (float){:.9e};", scale));
  const Expr reach = reach_of(attend_);
  out_.line(fmt::format("static constexpr bool kLoads = {}, kMasks = {}, kLimits = {}, kGrows = {};", loads,
                        seen.plain.valid(), seen.is_all, grows_with_row(attend_, reach)));
  print_limit("reach", reach);
  if (seen.plain.valid()) {
    print_limit("seen", seen.bound);
    print_logit("plain", seen.plain);
  }
  if (!seen.is_all) print_logit("operator()", logit);
}

}  // namespace ingot
