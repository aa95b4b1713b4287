#include "codegen/kernel/verify.h"

#include <fmt/format.h>

#include <set>

namespace ingot {
namespace {

class Verifier {
 public:
  explicit Verifier(const Kernel& k) : k_(k) {
    for (const Expr& d : k.dims) names_.insert(d.name());
    for (size_t i = 0; i < k.buffers.size(); ++i) {
      buffers_.insert(static_cast<int>(i));
      if (k.buffers[i].is_output) writable_.insert(static_cast<int>(i));
    }
  }

  Status run() {
    bind(k_.domain);
    if ((k_.contract() || k_.attend()) && (k_.body.size() != 1 || !k_.domain.empty()))
      fail("a product stands alone, over an empty domain");
    body(k_.body, false);
    return status_;
  }

 private:
  void fail(const std::string& what) {
    if (status_.ok()) status_ = make_error(ErrorKind::Internal, fmt::format("kernel {}: {}", k_.name, what));
  }
  void bind_name(const Expr& var) {
    if (!names_.insert(var.name()).second) fail(fmt::format("{} is bound twice", var.name()));
  }
  void bind(const std::vector<Axis>& axes) {
    for (const Axis& a : axes) {
      check_dims(a.extent, "extent of " + a.var.name());
      if (!a.var.extent().valid()) fail(fmt::format("{} is no index", a.var.name()));
      bind_name(a.var);
    }
  }
  /// Names of a nested body are free again behind it.
  template <class F>
  void nested(F f) {
    const std::set<std::string> outer = names_;
    f();
    names_ = outer;
  }
  void check_dims(const Expr& e, const std::string& where) {
    if (e.type() != DType::I64) fail(where + " is not i64");
    value(e, where);
  }
  void value(const Expr& e, const std::string& where) {
    visit(e, [&](const Expr& x) {
      switch (x.op()) {
        case ExprOp::Symbol:
          if (!names_.count(x.name())) fail(fmt::format("{} uses {}, which is not bound", where, x.name()));
          break;
        case ExprOp::Read: fail(where + " still has a Read"); break;
        case ExprOp::Load:
          if (!buffers_.count(x.buffer())) fail(fmt::format("{} loads from buffer {}, which does not exist", where, x.buffer()));
          if (x.arg(0).type() != DType::I64) fail(where + " loads at an index that is not i64");
          break;
        case ExprOp::Select:
          if (x.arg(0).type() != DType::Bool) fail(where + " selects by something other than Bool");
          break;
        default: break;
      }
    });
  }
  void body(const Body& b, bool epilogue) {
    for (const Stmt& s : b) {
      if (auto* let = s.as<Let>()) {
        value(let->value, "let " + let->var.name());
        if (let->var.type() != let->value.type()) fail(fmt::format("let {} has another type than its value", let->var.name()));
        bind_name(let->var);
      } else if (auto* st = s.as<Store>()) {
        store(*st);
      } else if (auto* i = s.as<If>()) {
        value(i->condition, "an if");
        if (i->condition.type() != DType::Bool) fail("an if has a condition that is not Bool");
        nested([&] { body(i->body, epilogue); });
      } else if (epilogue && !s.as<Note>()) {
        fail("an epilogue may only bind, store and branch");
      } else if (auto* l = s.as<Loop>()) {
        nested([&] { bind(l->axes), body(l->body, false); });
      } else if (auto* r = s.as<Reduce>()) {
        reduce(*r);
      } else if (auto* a = s.as<Alloc>()) {
        check_dims(a->size, "size of scratch " + a->name);
        if (!buffers_.insert(a->buffer).second) fail(fmt::format("scratch {} takes the number of another buffer", a->name));
        writable_.insert(a->buffer);
      } else if (auto* c = s.as<Contract>()) {
        contract(*c);
      } else if (auto* t = s.as<Attend>()) {
        attend(*t);
      }
    }
  }
  void store(const Store& st) {
    check_dims(st.index, "the index of a store");
    value(st.value, "a stored value");
    if (!writable_.count(st.buffer)) fail(fmt::format("a store to buffer {}, which is no output", st.buffer));
  }
  void reduce(const Reduce& r) {
    const bool arg = r.combine >= Combine::ArgMax;
    value(r.init, "the start of " + r.result.name());
    nested([&] { bind(r.axes), value(r.value, "reduce " + r.result.name()); });
    if (arg ? r.result.type() != DType::I64 : r.result.type() != r.value.type()) fail(fmt::format("reduce {} has the wrong type", r.result.name()));
    if (!arg && r.init.type() != r.value.type()) fail(fmt::format("reduce {} starts from another type", r.result.name()));
    bind_name(r.result);
  }
  void operand(const Contract& c, const Expr& e, const std::vector<Axis>& own, const char* name) {
    nested([&] { bind(c.batch), bind(own), bind(c.k), value(e, name); });
    if (e.type() != c.acc.type()) fail(fmt::format("{} is not of the accumulator's type", name));
  }
  void contract(const Contract& c) {
    std::vector<Axis> rows = c.m;
    rows.insert(rows.end(), c.group.begin(), c.group.end());
    operand(c, c.a, rows, "operand a");
    operand(c, c.b, c.n, "operand b");
    if (!c.group.empty()) nested([&] { bind(c.batch), bind(rows), bind(c.n), bind_name(c.acc), value(c.value, "what a group combines"); });
    nested([&] {
      bind(c.batch), bind(c.m);
      body(c.rows, true);
      bind(c.n), bind_name(c.group.empty() ? c.acc : c.combined);
      body(c.epilogue, true);
    });
    if (c.parts.width > 0) row_parts(c);
  }
  void row_parts(const Contract& c) {
    if (c.n.size() != 1 || !c.group.empty()) fail("parts of rows lie along one axis, without groups");
    for (const Store& sum : c.parts.sums) {
      nested([&] {
        bind_name(c.parts.stored), value(sum.value, "what a part of a row adds up");
      });
      nested([&] { bind(c.batch), bind(c.m), bind({c.parts.part}), check_dims(sum.index, "the index of a sum"); });
      if (!writable_.count(sum.buffer)) fail(fmt::format("sums go to buffer {}, which is no output", sum.buffer));
    }
  }

  void attend(const Attend& t) {
    nested([&] { bind(t.batch), bind(t.m), bind(t.k), value(t.q, "q"); });
    nested([&] { bind(t.batch), bind(t.n), bind(t.k), value(t.key, "key"); });
    nested([&] { bind(t.batch), bind(t.m), bind(t.n), bind_name(t.dot), value(t.score, "score"); });
    nested([&] { bind(t.batch), bind(t.n), bind(t.d), value(t.value, "value"); });
    for (const Expr& e : {t.q, t.key, t.dot, t.score, t.value, t.acc})
      if (e.type() != DType::F32) fail("attention is computed in f32");
    nested([&] {
      bind(t.batch), bind(t.m), bind(t.d), bind_name(t.acc);
      body(t.epilogue, true);
    });
  }

  const Kernel& k_;
  std::set<std::string> names_;
  std::set<int> buffers_, writable_;
  Status status_;
};

}  // namespace

Status verify(const Kernel& kernel) { return Verifier(kernel).run(); }

}  // namespace ingot
