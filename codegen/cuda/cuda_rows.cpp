// Rows: lanes that share a point of the domain divide its loops and reductions among them. Where they are those of several blocks
// (a cluster), each block has all of the scratch arrays: what a lane stores goes to all of them. Where that takes longer than the
// work, each block does all of it for itself.
#include <fmt/format.h>

#include "codegen/cuda/cuda_printers.h"
#include "compiler/expr/combine.h"
#include "compiler/expr/simplify.h"

namespace ingot {

namespace {
constexpr int64_t kUnrolledSteps = 8;
constexpr int64_t kFewSums = 4;
constexpr int64_t kRepeated = 10 << 10;  // elements that a block reads while blocks of a cluster wait for each other

std::string offset_text(int bytes) { return bytes ? fmt::format(" + {}", bytes) : std::string(); }
}  // namespace

void RowsPrinter::print() {
  const char* type = expr_.index_type();
  out_.splice(signature() + " {");
  out_.open_silently();
  bind_dims();
  if (schedule_.cluster_k == 1) wait_for_inputs();
  if (shared_.total_bytes > 0) {
    expr_.include("memory.cuh");
    out_.line("INGOT_DYN_SHARED(shared);");
  }
  const int rows_per_block = schedule_.rows_per_block;
  if (rows_per_block == 1) {
    const bool one = schedule_.cluster_k == 1;
    out_.line(one ? std::string("const int lane = (int)threadIdx.x;")
                  : fmt::format("const int lane = (int)cluster_rank() * {} + (int)threadIdx.x;", schedule_.threads));
    out_.line(
        fmt::format("const {0} row = ({0})blockIdx.x{1};", type, one ? "" : fmt::format(" / {}", schedule_.cluster_k)));
  } else {
    const std::string rows = expr_.named(total_of(kernel_.domain), "rows");
    guarded_ = lanes_per_row_ < 32;
    out_.line(fmt::format("const int lane = (int)threadIdx.x % {};", lanes_per_row_));
    const std::string row =
        fmt::format("({})blockIdx.x * {} + (int)threadIdx.x / {}", type, rows_per_block, lanes_per_row_);
    if (guarded_) {
      out_.comment("Lanes behind the last row repeat it, for the warp's sake, and store nothing.");
      out_.line(fmt::format("const bool active = {} < {};", row, rows));
      out_.line(fmt::format("const {} row = active ? {} : {} - 1;", type, row, rows));
    } else {
      out_.line(fmt::format("const {} row = {};", type, row));
      out_.line(fmt::format("if (row >= {}) return;", rows));
    }
  }
  bind_axes(kernel_.domain, "row");
  if (schedule_.cluster_k > 1) {
    hold_weights();
    if (tells_others()) {
      expr_.include("sync.cuh");
      out_.line("cluster_meet();  // the other blocks are there");
    }
    wait_for_inputs();
  }
  hold_rows();
  body(kernel_.body);
  out_.close();
}

bool RowsPrinter::is_shared_by_lanes(int buffer) const {
  return is_scratch(buffer) || (is_written(buffer) && read_.count(buffer) > 0);
}

/// Each block of the cluster fills the scratch arrays of the loop by itself.
bool RowsPrinter::is_repeated(const Loop& s) const {
  if (schedule_.cluster_k == 1) return false;
  int64_t sums = 0;
  for (const Stmt& inner : s.body) {
    if (auto* r = inner.as<Reduce>()) sums += total_of(r->axes).as_int().value_or(kRepeated + 1);
    if (auto* st = inner.as<Store>(); st && !is_scratch(st->buffer)) return false;
  }
  return std::max<int64_t>(sums, 1) * total_of(s.axes).as_int().value_or(kRepeated + 1) <= kRepeated;
}

bool RowsPrinter::tells_others() const {
  if (schedule_.cluster_k == 1) return false;
  return std::any_of(kernel_.body.begin(), kernel_.body.end(), [&](const Stmt& s) {
    if (s.as<Reduce>()) return true;
    const auto* l = s.as<Loop>();
    bool stores = false;
    if (l)
      each_access(l->body, [&](int buffer, const Expr&, bool is_store) { stores |= is_store && is_scratch(buffer); });
    return stores && !is_repeated(*l);
  });
}

void RowsPrinter::order_accesses(const Stmt& stmt) {
  std::unordered_set<int> reads, writes;
  const Body one{stmt};
  each_access(one, [&](int buffer, const Expr&, bool is_store) {
    if (is_shared_by_lanes(buffer)) (is_store ? writes : reads).insert(buffer);
  });
  std::unordered_set<int> waits;
  for (int b : reads)
    if (dirty_.count(b)) waits.insert(b);
  for (int b : writes)
    if (dirty_.count(b) || read_since_.count(b)) waits.insert(b);
  const auto is_told = [&](int b) { return schedule_.cluster_k > 1 && repeated_.count(b) == 0; };
  if (std::any_of(waits.begin(), waits.end(), is_told)) {
    expr_.include("sync.cuh");
    out_.line("cluster_sync();");
    dirty_.clear();
    read_since_.clear();
  } else if (!waits.empty()) {
    expr_.include("sync.cuh");
    out_.line(lanes_per_row_ > 32 ? "cta_sync();" : "warp_sync();");
    std::erase_if(dirty_, [&](int b) { return !is_told(b); });
    std::erase_if(read_since_, [&](int b) { return !is_told(b); });
  }
  const auto* loop = stmt.as<Loop>();
  if (loop && is_repeated(*loop)) repeated_.insert(writes.begin(), writes.end());
  dirty_.insert(writes.begin(), writes.end());
  read_since_.insert(reads.begin(), reads.end());
}

void RowsPrinter::statement(const Stmt& stmt) {
  if (depth_ == 0 && !stmt.as<If>() && !stmt.as<Alloc>()) order_accesses(stmt);
  CudaPrinter::statement(stmt);
}

std::string RowsPrinter::element(int buffer, const std::string& index) {
  return is_scratch(buffer) ? shared_element(buffer, index) : CudaPrinter::element(buffer, index);
}

void RowsPrinter::store_element(int buffer, const std::string& index, const std::string& stored) {
  if (!is_scratch(buffer)) return CudaPrinter::store_element(buffer, index, stored);
  const DType type = buffer_type(buffer);
  const bool told = schedule_.cluster_k > 1 && repeated_.count(buffer) == 0;
  const std::string store = told ? fmt::format("sts_all<{}, {}>", schedule_.cluster_k, c_storage_type(type))
                                 : fmt::format("sts<{}>", c_storage_type(type));
  out_.line(fmt::format("{}({} + ({}) * {}, {});", store, buffer_name(buffer), index, size_of(type), stored));
}

int RowsPrinter::access_bytes(int buffer) const {
  return is_scratch(buffer) ? 64 : CudaPrinter::access_bytes(buffer);  // by pieces of 16
}
std::string RowsPrinter::vector_load(int buffer, int width, const std::string& index) {
  if (const auto held = held_rows_.find(buffer); held != held_rows_.end() && !row_step_.empty()) {
    const std::string place = fmt::format("{}[{}]", held->second, row_step_);
    return loaded_rows_.insert(buffer).second
               ? fmt::format("{} = {}", place, CudaPrinter::vector_load(buffer, width, index))
               : place;
  }
  if (!is_scratch(buffer)) return CudaPrinter::vector_load(buffer, width, index);
  const DType type = buffer_type(buffer);
  return fmt::format("lds_vec<{}, {}>({} + ({}) * {})", width, c_storage_type(type), buffer_name(buffer), index,
                     size_of(type));
}
void RowsPrinter::store_vector(int buffer, const std::string& index, const std::string& vector) {
  if (!is_scratch(buffer)) return CudaPrinter::store_vector(buffer, index, vector);
  const bool told = schedule_.cluster_k > 1 && repeated_.count(buffer) == 0;
  const std::string store = told ? fmt::format("sts_vec<{}>", schedule_.cluster_k) : "sts_vec";
  out_.line(
      fmt::format("{}({} + ({}) * {}, {});", store, buffer_name(buffer), index, size_of(buffer_type(buffer)), vector));
}

void RowsPrinter::alloc(const Alloc& s) {
  scratch_.push_back(s);
  expr_.include("memory.cuh");
  const std::string name = buffer_name(s.buffer);
  expr_.reserve(name);
  const int64_t bytes =
      (std::max<int64_t>(estimate(s.size, 0), 1) * static_cast<int64_t>(size_of(s.type)) + 15) / 16 * 16;
  const std::string mine = schedule_.rows_per_block == 1
                               ? std::string()
                               : fmt::format(" + threadIdx.x / {} * {}", lanes_per_row_, shared_.scratch_bytes);
  out_.line(fmt::format("const u32 {} = shared{}{};  // {}[{}]", name, offset_text(scratch_used_), mine,
                        name_of(s.type), to_string(s.size)));
  scratch_used_ += static_cast<int>(bytes);
}

void RowsPrinter::store(const Store& s) {
  if (depth_ == 1 && group_ > 1) {
    auto block = out_.block(fmt::format("if (lane % {} == 0 && mine)", group_));
    return nested([&] { CudaPrinter::store(s); });
  }
  if (depth_ > 0) {
    if (!guard_stores_ || is_scratch(s.buffer)) return CudaPrinter::store(s);
    auto block = out_.block("if (active)");
    return nested([&] { CudaPrinter::store(s); });
  }
  auto block = out_.block(guarded_ && !is_scratch(s.buffer) ? "if (lane == 0 && active)" : "if (lane == 0)");
  nested([&] { CudaPrinter::store(s); });
}

void RowsPrinter::conditional(const If& s) { CudaPrinter::conditional(s); }

void RowsPrinter::share(const std::vector<Axis>& axes, const Body& work, const std::function<void()>& print_body) {
  share_among(repeating_ ? "(int)threadIdx.x" : "lane", sharers(), axes, work, print_body);
}

void RowsPrinter::share_among(const std::string& lane, int lanes, const std::vector<Axis>& axes, const Body& work,
                              const std::function<void()>& print_body) {
  ++depth_;
  nested([&] {
    std::vector<Axis> bound = axes;
    const Axis* inner = inner_axis(axes);
    const int width = inner ? widest_vector(kernel_, work, inner->var, inner->extent, schedule_.vector) : 1;
    const Expr base = width > 1 ? Expr::index(inner->var.name() + "0", inner->extent) : Expr();
    if (width > 1) bound.back().var = base;
    const std::string total = expr_.value(total_of(axes));
    const bool single = bound.size() == 1;
    const std::string i = single ? bind_index(bound[0].var) : expr_.fresh("step");
    const std::string first = width > 1 ? fmt::format("{} * {}", lane, width) : lane;
    const int stride = lanes * width;
    const int64_t count = total_of(axes).as_int().value_or(0), steps = (count + stride - 1) / stride;
    // A few steps of all these lanes: their loads are on their way together, and what several loops load stays in registers.
    const bool of_row = depth_ == 1 && group_ == 1 && !held_rows_.empty() &&
                        row_pass(kernel_, axes, work, schedule_.vector) == held_pass_;
    const bool held = of_row || (stage_ && depth_ == 2),
               unrolled = held || (steps > 0 && steps <= kUnrolledSteps && count % stride == 0);
    const std::string step = unrolled ? expr_.fresh("part") : std::string();
    if (held && !of_row) stage_->part = step;
    row_step_ = of_row ? step : std::string();
    if (unrolled) out_.directive("#pragma unroll");
    auto block = out_.block(unrolled ? fmt::format("for (int {0} = 0; {0} < {1}; ++{0})", step, steps)
                                     : fmt::format("for ({0} {1} = {2}; {1} < {3}; {1} += {4})", expr_.index_type(), i,
                                                   first, total, stride),
                            i);
    if (unrolled) out_.line(fmt::format("const {} {} = {} + {} * {};", expr_.index_type(), i, first, step, stride));
    std::optional<CodeWriter::Block> tail;
    if (unrolled && count % stride != 0) tail.emplace(out_.block(fmt::format("if ({} < {})", i, total)));
    if (!single) bind_axes(bound, i);
    if (width > 1) with_lanes(inner->var, base, width, print_body);
    else print_body();
  });
  if (depth_ == 1) row_step_.clear();
  --depth_;
}

/// How many lanes share each sum of a loop: 1 unless the loop only makes sums of contiguous elements, each long enough, or
/// few and long ones.
int RowsPrinter::lanes_of_sum(const Loop& s) const {
  if (guarded_ || lanes_per_row_ < 32 || s.body.empty()) return 1;
  const Reduce* r = s.body[0].as<Reduce>();
  if (!r || r->axes.empty() || is_arg(*r)) return 1;
  for (size_t i = 1; i < s.body.size(); ++i)
    if (!s.body[i].as<Store>() && !s.body[i].as<Let>()) return 1;
  Body work;
  work.push_back({Let{r->result, r->value}});
  int along_sum = 0, along_loop = 0;
  each_access(work, [&](int buffer, const Expr& index, bool) {
    const auto steps = [&](const Axis* a) {
      const auto c = a ? linear_coefficient(index, a->var.name()) : std::nullopt;
      return !is_scratch(buffer) && c && c->is_const(1);
    };
    along_sum += steps(inner_axis(r->axes));
    along_loop += steps(inner_axis(s.axes));
  });
  const auto length = total_of(r->axes).as_int(), sums = total_of(s.axes).as_int();
  // Sums of what lies beside each other from one sum to the next, but so few of them that most lanes would be idle.
  const bool few = sums && length && *sums * kFewSums <= sharers() && *length >= 2 * sharers();
  if ((along_sum <= along_loop && !few) || !length) return 1;
  const Axis& inner = r->axes.back();
  const int width = widest_vector(kernel_, work, inner.var, inner.extent, schedule_.vector);
  int lanes = 1;
  while (lanes < 32 && lanes * 2 * width <= *length) lanes *= 2;
  // Fewer sums than warps: several warps of a block share one. All sums are made in one pass, as its barriers want it.
  const int block = schedule_.rows_per_block == 1 ? schedule_.threads : 0;
  while (lanes >= 32 && sums && *sums * lanes * 2 <= sharers() && lanes * 2 <= block && block % (lanes * 2) == 0 &&
         lanes * 2 * width <= *length)
    lanes *= 2;
  return lanes;
}

void RowsPrinter::loop_by_groups(const Loop& s, int lanes, const std::function<void()>& print_body) {
  const int together = sharers() / lanes;
  nested([&] {
    const std::string total = expr_.named(total_of(s.axes), "total"), first = expr_.fresh(stage_ ? "pass" : "first");
    if (stage_) out_.directive("#pragma unroll");
    auto block = out_.block(
        stage_ ? fmt::format("for (int {0} = 0; {0} < {1}; ++{0})", first, stage_->passes)
               : fmt::format("for ({0} {1} = 0; {1} < {2}; {1} += {3})", expr_.index_type(), first, total, together),
        first);
    const std::string own = expr_.fresh("own"), step = expr_.fresh("step");
    if (stage_) stage_->pass = first;
    out_.line(fmt::format("const {} {} = {}{} + {} / {};", expr_.index_type(), own, first,
                          stage_ ? fmt::format(" * {}", together) : "", repeating_ ? "(int)threadIdx.x" : "lane",
                          lanes));
    out_.line(fmt::format("const bool mine = {} < {};", own, total));
    out_.line(fmt::format("const {} {} = mine ? {} : {} - 1;", expr_.index_type(), step, own, total));
    bind_axes(s.axes, step);
    ++depth_;
    group_ = lanes;
    print_body();
    group_ = 1;
    --depth_;
  });
}

void RowsPrinter::loop(const Loop& s) {
  if (depth_ > 0) return CudaPrinter::loop(s);
  repeating_ = is_repeated(s);
  if (repeating_) out_.comment("Each block of the cluster for itself.");
  if (const int lanes = lanes_of_sum(s); lanes > 1) {
    out_.comment(fmt::format(
        "{} lanes a sum; those behind the last sum repeat it, for the warp's sake, and store nothing.", lanes));
    stage_ = held_stage(s, lanes);
    loop_by_groups(s, lanes, [&] {
      bind_held(false);
      body(s.body);
    });
    stage_.reset();
    return;
  }
  const auto print = [&] { share(s.axes, s.body, [&] { body(s.body); }); };
  if (!guarded_) return print();
  // Lanes that repeat a row fill their own scratch, which they go on to read.
  bool fills_scratch = false;
  each_access(s.body, [&](int buffer, const Expr&, bool is_store) { fills_scratch |= is_store && is_scratch(buffer); });
  if (fills_scratch) {
    guard_stores_ = true;
    print();
    guard_stores_ = false;
    return;
  }
  auto block = out_.block("if (active)");
  print();
}

void RowsPrinter::reduce(const Reduce& r) {
  const bool grouped = depth_ == 1 && group_ > 1;
  if (depth_ > 0 && !grouped) return CudaPrinter::reduce(r);
  expr_.include("reduce.cuh");
  const std::string acc = expr_.fresh(identifier_of(r.result.name()));
  out_.line(fmt::format("{} {} = {};", accumulator_type(r), acc, identity_text(r)));
  Body work;
  work.push_back({Let{r.result, r.value}});
  const int lanes = grouped ? group_ : lanes_per_row_;
  share_among(grouped ? fmt::format("(lane % {})", lanes) : "lane", lanes, r.axes, work, [&] {
    if (grouped) bind_held(true);
    if (!lanes_) return accumulate(r, acc);
    load_vectors(r.value);
    auto lane = lane_loop();
    accumulate(r, acc);
  });
  if (lanes > 32) {
    const std::string scratch = offset_text(shared_.reduce_offset + reductions_++ % 2 * shared_.reduce_bytes);
    const bool by_cluster = schedule_.cluster_k > 1 && !grouped;
    const std::string over = by_cluster ? fmt::format("cluster_reduce<{}, {}>", schedule_.threads, schedule_.cluster_k)
                                        : fmt::format("block_reduce<{}>", lanes);
    out_.line(fmt::format("{0} = {1}({0}, {2}{{}}, shared{3});", acc, over, op_type(r), scratch));
    if (grouped) return finish_reduce(r, acc);  // its barrier is inside of a loop whose accesses are still to come
    dirty_.clear();  // everyone has passed a barrier
    read_since_.clear();
  } else {
    out_.line(fmt::format("{0} = warp_reduce<{1}>({0}, {2}{{}});", acc, lanes, op_type(r)));
  }
  finish_reduce(r, acc);
}

void RowsPrinter::finish_reduce(const Reduce& r, const std::string& acc) {
  if (!is_arg(r) && !r.init.same(identity_of(r.combine, r.value.type()))) {
    const std::string init = expr_.operand(r.init);
    out_.line(fmt::format("{} = {};", acc, combine_text(r.combine, r.value.type(), acc, init)));
  }
  expr_.bind(r.result, result_text(r, acc), false);
}

}  // namespace ingot
