// Vector mode of CPrinter: neighbouring points by one thread, with vector loads and stores.
#include <fmt/format.h>

#include "codegen/text/c_printer.h"
#include "compiler/expr/simplify.h"
#include "compiler/support/result.h"

namespace ingot {

namespace {
constexpr int kAccessBytes = 16;  // the widest access of a GPU thread

/// Weights of 32 bits beside activations of 16 take two accesses: what the others have in one is worth more.
int widest_bytes(const Buffer& buffer) { return buffer.is_constant ? 2 * kAccessBytes : kAccessBytes; }

bool mentions(const Expr& e, const std::unordered_set<std::string>& symbols) {
  bool found = false;
  visit(e, [&](const Expr& x) { found |= x.op() == ExprOp::Symbol && symbols.count(x.name()) > 0; });
  return found;
}
}  // namespace

bool is_multiple(const Expr& e, int64_t n) { return n == 1 || simplify(floor_mod(e, Expr(n))).is_const(0); }

bool CPrinter::varies(const Expr& e) const { return lanes_ && mentions(e, lanes_->variant); }

bool CPrinter::varies(const std::vector<Axis>& axes) const {
  for (const Axis& a : axes)
    if (varies(a.extent)) return true;
  return false;
}

std::unique_ptr<CPrinter::LaneLoop> CPrinter::lane_loop() {
  INGOT_CHECK(lanes_.has_value(), "no lanes");
  out_.directive("#pragma unroll");
  auto loop = std::make_unique<LaneLoop>(*this, out_.block(fmt::format("for (int v = 0; v < {}; ++v)", lanes_->width)));
  expr_.bind(lanes_->inner, expr_.value(lanes_->base) + " + v", expr_.i32());
  for (const auto& [symbol, value] : arrays_) expr_.bind(Expr::symbol(symbol), value.text, value.is_int);
  return loop;
}

void CPrinter::each_lane(const std::function<void()>& print) {
  auto lane = lane_loop();
  const auto lanes = lanes_;
  const auto arrays = arrays_;
  lanes_.reset();
  arrays_.clear();
  print();
  lanes_ = lanes;
  arrays_ = arrays;
}

void CPrinter::with_lanes(const Expr& inner, const Expr& base, int width, const std::function<void()>& print) {
  const auto lanes = lanes_;
  const auto arrays = arrays_;
  lanes_ = Lanes{width, inner, base, {inner.name()}};
  arrays_.clear();
  print();
  lanes_ = lanes;
  arrays_ = arrays;
}

int CPrinter::access_bytes(int buffer) const {
  return buffer < static_cast<int>(kernel_.buffers.size()) ? widest_bytes(kernel_.buffers[static_cast<size_t>(buffer)]) : 0;
}

std::string CPrinter::vector_load(int buffer, int width, const std::string& index) {
  const bool constant = kernel_.buffers[static_cast<size_t>(buffer)].is_constant;
  return fmt::format("{}<{}>({} + {})", constant ? "load_vec_constant" : "load_vec", width, pointer(buffer), index);
}

void CPrinter::store_vector(int buffer, const std::string& index, const std::string& vector) {
  out_.line(fmt::format("store_vec({} + {}, {});", pointer(buffer), index, vector));
}

std::optional<Expr> CPrinter::neighbour_base(int buffer, const Expr& index) const {
  if (!lanes_ || static_cast<int>(size_of(buffer_type(buffer))) * lanes_->width > access_bytes(buffer)) return std::nullopt;
  const std::string& inner = lanes_->inner.name();
  const auto coefficient = linear_coefficient(index, inner);
  if (!coefficient || !coefficient->is_const(1)) return std::nullopt;
  const Expr rest = simplify(substitute(index, {{inner, Expr(0)}}));
  if (mentions(rest, lanes_->variant) || !is_multiple(rest, lanes_->width)) return std::nullopt;
  return substitute(index, {{inner, lanes_->base}});
}

void CPrinter::load_vectors(const Expr& e) {
  if (!lanes_) return;
  std::erase_if(guarded_, [&](const auto& entry) { return !expr_.has_value(entry.first); });  // their scope has ended
  VectorReads reads;
  order_reads(e, reads);
  find_guards(reads);
  for (const Expr& x : reads.by_lane)
    if (guarded_.erase(x)) expr_.forget(x);
  for (const Expr& x : reads.order) {
    if (x.op() != ExprOp::Load || !neighbour_base(x.buffer(), x.arg(0))) continue;
    const auto& guards = reads.guards[x];
    load_vector(x, guards.empty() ? "" : *guards.begin(), reads.by_lane.count(x) > 0);
  }
}

/// True when e reads neighbours.
bool CPrinter::order_reads(const Expr& e, VectorReads& reads) {
  if (e.op() == ExprOp::Const || e.op() == ExprOp::Symbol) return false;
  if (!reads.seen.insert(e).second) return reads.holds.count(e) > 0;
  const bool loaded = expr_.has_value(e) && !guarded_.count(e);
  if (loaded) return false;
  bool holds = e.op() == ExprOp::Load && neighbour_base(e.buffer(), e.arg(0));
  // Which side a lane takes differs: its loads stay behind its own guard.
  const bool by_lane = e.op() == ExprOp::Select && varies(e.arg(0));
  for (size_t i = 0; i < e.args().size(); ++i) {
    if (!by_lane || i == 0) {
      holds |= order_reads(e.arg(i), reads);
      continue;
    }
    visit(e.arg(i), [&](const Expr& x) {
      if (x.op() == ExprOp::Load) reads.by_lane.insert(x);
    });
  }
  if (!holds) return false;
  reads.holds.insert(e);
  reads.order.push_back(e);
  return true;
}

/// Readers come before what they read, so each expression knows all conditions that lead to it when its turn comes.
void CPrinter::find_guards(VectorReads& reads) {
  if (reads.order.empty()) return;
  std::map<std::string, std::string> names;  // of conditions
  reads.guards[reads.order.back()].insert("");
  for (auto it = reads.order.rbegin(); it != reads.order.rend(); ++it) {
    std::set<std::string>& guards = reads.guards[*it];
    if (guards.count("")) guards = {""};
    if (guards.size() > 1) {
      std::string any;
      for (const std::string& g : guards) any += (any.empty() ? "(" : " || (") + g + ")";
      std::string& name = names[any];
      if (name.empty()) {
        name = expr_.fresh("read");
        out_.line(fmt::format("const bool {} = {};", name, any));
      }
      guards = {name};
    }
    const std::string guard = *guards.begin();
    const auto reach = [&](const Expr& e, const std::string& g) {
      if (reads.holds.count(e)) reads.guards[e].insert(g);
    };
    if (it->op() != ExprOp::Select) {
      for (const Expr& a : it->args()) reach(a, guard);
      continue;
    }
    reach(it->arg(0), guard);
    if (varies(it->arg(0)) || (!reads.holds.count(it->arg(1)) && !reads.holds.count(it->arg(2)))) continue;
    const std::string condition = condition_text(it->arg(0), guard), prefix = guard.empty() ? "" : guard + " && ";
    reach(it->arg(1), prefix + condition);
    reach(it->arg(2), prefix + "!" + condition);
  }
}

/// A name for the condition. One that reads memory does so only where it is asked.
std::string CPrinter::condition_text(const Expr& condition, const std::string& guard) {
  bool reads = false;
  visit(condition, [&](const Expr& x) { reads |= x.op() == ExprOp::Load; });
  if (guard.empty() || !reads || expr_.has_value(condition)) return expr_.named(condition, "inside");
  const std::string name = expr_.fresh("inside");
  out_.line(fmt::format("bool {} = false;", name));
  const auto block = out_.block(fmt::format("if ({})", guard));
  const ExprPrinter::Scope scope(expr_);
  out_.line(fmt::format("{} = {};", name, expr_.value(condition)));
  return name;
}

void CPrinter::forget_guarded() {
  for (const auto& [load, guard] : guarded_) expr_.forget(load);
  guarded_.clear();
}

void CPrinter::load_vector(const Expr& e, std::string guard, bool by_lane) {
  const auto known = guarded_.find(e);
  if (expr_.has_value(e) && (known == guarded_.end() || known->second == guard)) return;
  if (known != guarded_.end() && !guard.empty()) guard = fmt::format("({}) || ({})", known->second, guard);
  if (!guard.empty() && by_lane) return;  // some lane may need it where the guard does not hold
  if (guard.empty()) guarded_.erase(e);
  else guarded_[e] = guard;
  const DType type = buffer_type(e.buffer());
  const std::string name = expr_.fresh(buffer_name(e.buffer()) + "_in");
  const std::string at = expr_.operand(*neighbour_base(e.buffer(), e.arg(0)));
  const std::string load = vector_load(e.buffer(), lanes_->width, at);
  expr_.include("memory.cuh");
  const std::string vec = fmt::format("Vec<{}, {}>", c_storage_type(type), lanes_->width);
  const size_t bytes = size_of(type) * static_cast<size_t>(lanes_->width);
  if (guard.empty()) {
    out_.line(fmt::format("const {} {} = {};", vec, name, load));
  } else if (bytes % 4 == 0) {
    // Zeros or what is loaded, by whole registers: parts would be merged right behind the load, which would be waited for.
    const std::string words = fmt::format("Vec<u32, {}>", bytes / 4);
    out_.line(fmt::format("{} {}_words = {{}};", words, name));
    out_.line(fmt::format("if ({}) {}_words = bits_as<{}>({});", guard, name, words, load));
    out_.line(fmt::format("const {0} {1} = bits_as<{0}>({1}_words);", vec, name));
  } else {
    out_.line(fmt::format("{} {} = {{}};", vec, name));
    out_.line(fmt::format("if ({}) {} = {};", guard, name, load));
  }
  expr_.bind_value(e, from_storage(type, name + "[v]"));
}

// ---- what a body accesses ----

namespace {

void each_in_axes(const std::vector<Axis>& axes, const std::function<void(const Expr&)>& use) {
  for (const Axis& a : axes) use(a.extent);
}

void each_stmt(const Body& body, const std::function<void(const Stmt&)>& use) {
  for (const Stmt& s : body) {
    use(s);
    if (auto* l = s.as<Loop>()) each_stmt(l->body, use);
    if (auto* i = s.as<If>()) each_stmt(i->body, use);
    if (auto* c = s.as<Contract>()) {
      each_stmt(c->rows, use);
      each_stmt(c->epilogue, use);
      for (const Store& sum : c->parts.sums) use({sum});
    }
    if (auto* t = s.as<Attend>()) each_stmt(t->epilogue, use);
  }
}

void exprs_of(const Stmt& stmt, const std::function<void(const Expr&)>& use) {
  if (auto* s = stmt.as<Let>()) use(s->value);
  if (auto* s = stmt.as<Store>()) {
    use(s->index);
    use(s->value);
  }
  if (auto* s = stmt.as<Loop>()) each_in_axes(s->axes, use);
  if (auto* s = stmt.as<Reduce>()) {
    each_in_axes(s->axes, use);
    if (s->init.valid()) use(s->init);
    use(s->value);
  }
  if (auto* s = stmt.as<Alloc>()) use(s->size);
  if (auto* s = stmt.as<If>()) use(s->condition);
  if (auto* s = stmt.as<Attend>()) {
    for (const auto* axes : {&s->batch, &s->m, &s->n, &s->k, &s->d}) each_in_axes(*axes, use);
    for (const Expr* e : {&s->q, &s->key, &s->score, &s->value}) use(*e);
  }
  if (auto* s = stmt.as<Contract>()) {
    for (const auto* axes : {&s->batch, &s->m, &s->group, &s->n, &s->k}) each_in_axes(*axes, use);
    use(s->a);
    use(s->b);
    if (s->value.valid()) use(s->value);
  }
}

}  // namespace

void each_expr(const Body& body, const std::function<void(const Expr&)>& use) {
  each_stmt(body, [&](const Stmt& s) { exprs_of(s, use); });
}

void each_access(const Body& body, const std::function<void(int, const Expr&, bool)>& use) {
  each_expr(body, [&](const Expr& e) {
    visit(e, [&](const Expr& x) {
      if (x.op() == ExprOp::Load) use(x.buffer(), x.arg(0), false);
    });
  });
  each_stmt(body, [&](const Stmt& stmt) {
    if (auto* s = stmt.as<Store>()) use(s->buffer, s->index, true);
  });
}

int widest_vector(const Kernel& kernel, const Body& body, const Expr& inner, const Expr& extent, int most) {
  std::unordered_set<std::string> derived;  // values that depend on inner by way of a Let or a Reduce
  const std::unordered_set<std::string> itself{inner.name()};
  bool scratch = false;
  each_stmt(body, [&](const Stmt& stmt) {
    scratch |= stmt.as<Alloc>() != nullptr;
    const auto follow = [&](const Expr& value, const Expr& result) {
      if (mentions(value, itself) || mentions(value, derived)) derived.insert(result.name());
    };
    if (auto* s = stmt.as<Let>()) follow(s->value, s->var);
    if (auto* s = stmt.as<Reduce>()) follow(s->value, s->result);
  });
  if (scratch) return 1;
  for (int width = most; width > 1; width /= 2) {
    if (!is_multiple(extent, width)) continue;
    bool fits = true, any = false;
    each_access(body, [&](int buffer, const Expr& index, bool is_store) {
      const bool is_parameter = buffer < static_cast<int>(kernel.buffers.size());
      const auto coefficient = linear_coefficient(index, inner.name());
      const bool neighbours = coefficient && coefficient->is_const(1) && !mentions(index, derived);
      if (!neighbours || !is_parameter) {
        // Scratch that the lanes of a row share: each lane fills its own place.
        fits &= !is_store || (neighbours && !is_parameter) ||
                (coefficient && coefficient->is_const(0) && !mentions(index, derived));
        return;
      }
      const Expr rest = substitute(index, {{inner.name(), Expr(0)}});
      const Buffer& b = kernel.buffers[static_cast<size_t>(buffer)];
      fits &= static_cast<int>(size_of(b.type)) * width <= widest_bytes(b) && is_multiple(rest, width);
      any = true;
    });
    if (fits && any) return width;
  }
  return 1;
}

}  // namespace ingot
