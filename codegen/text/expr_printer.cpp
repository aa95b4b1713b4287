#include "codegen/text/expr_printer.h"

#include <fmt/format.h>

#include "compiler/support/result.h"

namespace ingot {

namespace {

constexpr size_t kLongText = 90;  // longer values get a line of their own
constexpr int kLargeArm = 24;     // nodes of a guarded side that is written as a statement

bool is_leaf(const Expr& e) { return e.op() == ExprOp::Const || e.op() == ExprOp::Symbol; }

/// Cheap enough to repeat: a leaf, a leaf plus a leaf, the cast of a leaf.
bool is_trivial(const Expr& e) {
  if (is_leaf(e)) return true;
  const ExprOp op = e.op();
  if (op != ExprOp::Add && op != ExprOp::Sub && op != ExprOp::Cast && op != ExprOp::Not) return false;
  for (const Expr& a : e.args())
    if (!is_leaf(a)) return false;
  return e.type() == DType::I64 || op == ExprOp::Cast || op == ExprOp::Not;
}

int count_nodes(const Expr& e, int limit) {
  int n = 1;
  for (const Expr& a : e.args()) {
    if (n >= limit) break;
    n += count_nodes(a, limit - n);
  }
  return n;
}

}  // namespace

std::string identifier_of(const std::string& text) {
  std::string id;
  for (char c : text) id += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  if (id.empty() || std::isdigit(static_cast<unsigned char>(id[0]))) id = "v" + id;
  return id;
}

std::string ExprPrinter::fresh(const std::string& stem) {
  std::string name = stem;
  for (int i = 1; !names_.insert(name).second; ++i) {
    // A stem that ends in a digit gets a separator, so that "x1" and the eleventh "x" differ in kind.
    name = std::isdigit(static_cast<unsigned char>(stem.back())) ? fmt::format("{}_{}", stem, i)
                                                                 : fmt::format("{}{}", stem, i);
  }
  return name;
}

void ExprPrinter::bind(const Expr& symbol, std::string text, bool is_int) {
  scopes_.back().symbols[symbol.name()] = Bound{std::move(text), is_int};
}

bool ExprPrinter::is_bound(const Expr& symbol) const { return find_symbol(symbol.name()) != nullptr; }

const std::string* ExprPrinter::find_value(const Expr& e) const {
  for (size_t i = scopes_.size(); i-- > 0;) {
    const auto it = scopes_[i].values.find(e);
    if (it != scopes_[i].values.end()) return &it->second;
  }
  return nullptr;
}

const ExprPrinter::Bound* ExprPrinter::find_symbol(const std::string& name) const {
  for (size_t i = scopes_.size(); i-- > 0;) {
    const auto it = scopes_[i].symbols.find(name);
    if (it != scopes_[i].symbols.end()) return &it->second;
  }
  return nullptr;
}

void ExprPrinter::forget_loads(int buffer) {
  const auto reads = [&](const Expr& e) {
    bool found = false;
    visit(e, [&](const Expr& x) { found |= x.op() == ExprOp::Load && x.buffer() == buffer; });
    return found;
  };
  for (ScopeData& scope : scopes_) std::erase_if(scope.values, [&](const auto& entry) { return reads(entry.first); });
}

bool ExprPrinter::has_load(const Expr& e) {
  if (is_leaf(e)) return false;
  const auto it = has_load_.find(e);
  if (it != has_load_.end()) return it->second;
  bool found = e.op() == ExprOp::Load;
  for (const Expr& a : e.args()) found = has_load(a) || found;
  has_load_.emplace(e, found);
  return found;
}

bool ExprPrinter::is_index(const Expr& e) {
  if (!i32_ || e.type() != DType::I64) return false;
  switch (e.op()) {
    case ExprOp::Const: return e.int_value() >= INT32_MIN && e.int_value() <= INT32_MAX;
    case ExprOp::Symbol: {
      const Bound* b = find_symbol(e.name());
      return b && b->is_int;
    }
    case ExprOp::Select: return is_index(e.arg(1)) && is_index(e.arg(2));
    case ExprOp::Cast:  // an index that went through i32 and back
      return e.arg(0).type() == DType::I32 && e.arg(0).op() == ExprOp::Cast && is_index(e.arg(0).arg(0));
    case ExprOp::Add:
    case ExprOp::Sub:
    case ExprOp::Mul:
    case ExprOp::Div:
    case ExprOp::Rem:
    case ExprOp::FloorDiv:
    case ExprOp::FloorMod:
    case ExprOp::Min:
    case ExprOp::Max: return is_index(e.arg(0)) && is_index(e.arg(1));
    default: return false;
  }
}

std::string ExprPrinter::type_of(const Expr& e) { return is_index(e) ? "int" : c_type(e.type()); }

// ---- which values get a name ----

void ExprPrinter::mark_unconditional(const Expr& e, Sharing& sharing) {
  if (is_leaf(e) || find_value(e) || !sharing.unconditional.insert(e).second) return;
  for (size_t i = 0; i < e.args().size(); ++i) {
    const bool guarded = e.op() == ExprOp::Select && i > 0 && has_load(e.arg(i));
    if (!guarded) mark_unconditional(e.arg(i), sharing);
  }
}

void ExprPrinter::count_uses(const Expr& e, ExprMap<int>& uses) {
  if (is_leaf(e) || find_value(e)) return;
  if (++uses[e] > 1) return;
  for (const Expr& a : e.args()) count_uses(a, uses);
}

bool ExprPrinter::needs_statements(const Expr& arm) {
  if (!has_load(arm) || find_value(arm)) return false;
  if (count_nodes(arm, kLargeArm) >= kLargeArm) return true;
  ExprMap<int> uses;
  count_uses(arm, uses);
  for (const auto& [e, n] : uses)
    if (n > 1 && has_load(e)) return true;
  return false;
}

void ExprPrinter::prepare(const Expr& e, const Sharing& sharing, bool guarded, ExprSet& done) {
  if (is_leaf(e) || find_value(e) || !done.insert(e).second) return;
  const bool movable = !has_load(e) || sharing.unconditional.count(e) > 0;
  for (size_t i = 0; i < e.args().size(); ++i) {
    const bool arm = e.op() == ExprOp::Select && i > 0 && has_load(e.arg(i));
    prepare(e.arg(i), sharing, guarded || arm, done);
  }
  if (!movable) return;
  if (e.op() == ExprOp::Select && (needs_statements(e.arg(1)) || needs_statements(e.arg(2)))) return name_select(e);
  const auto it = sharing.uses.find(e);
  if (it != sharing.uses.end() && it->second > 1 && !is_trivial(e)) name_value(e);
}

std::string ExprPrinter::stem_of(const Expr& e) {
  switch (e.op()) {
    case ExprOp::Load: return buffer_name(e.buffer()) + "_at";
    case ExprOp::Add: return "add";
    case ExprOp::Sub: return "sub";
    case ExprOp::Mul: return "mul";
    case ExprOp::Div:
    case ExprOp::FloorDiv: return "div";
    case ExprOp::Rem:
    case ExprOp::FloorMod: return "mod";
    case ExprOp::Min: return "min";
    case ExprOp::Max: return "max";
    case ExprOp::Select: return "sel";
    case ExprOp::Cast: return "cast";
    case ExprOp::Round: return "round";
    case ExprOp::Call: return info_of(e.fn()).text;
    default: return e.type() == DType::Bool ? "is" : "bits";
  }
}

void ExprPrinter::name_value(const Expr& e) {
  const Text t = text(e);
  // "min", "max", "exp" and the like are functions in scope: a name always carries a number.
  const std::string stem = stem_of(e);
  reserve(stem);
  const std::string name = fresh(stem);
  out_.line(fmt::format("const {} {} = {};", type_of(e), name, t.s));
  scopes_.back().values[e] = name;
}

void ExprPrinter::name_select(const Expr& e) {
  const std::string type = type_of(e);
  reserve("sel");
  const std::string name = fresh("sel");
  const bool plain_else = !needs_statements(e.arg(2)) && !has_load(e.arg(2));
  const std::string otherwise = plain_else ? value(e.arg(2)) : std::string();
  const std::string condition = value(e.arg(0));
  out_.line(plain_else ? fmt::format("{} {} = {};", type, name, otherwise) : fmt::format("{} {};", type, name));
  out_.open(fmt::format("if ({})", condition));
  {
    Scope scope(*this);
    out_.line(fmt::format("{} = {};", name, value(e.arg(1))));
  }
  if (!plain_else) {
    out_.close("} else {");
    out_.open_silently();
    Scope scope(*this);
    out_.line(fmt::format("{} = {};", name, value(e.arg(2))));
  }
  out_.close();
  scopes_.back().values[e] = name;
}

// ---- entry points ----

std::string ExprPrinter::value(const Expr& e) {
  Sharing sharing;
  mark_unconditional(e, sharing);
  count_uses(e, sharing.uses);
  ExprSet done;
  prepare(e, sharing, false, done);
  return text(e).s;
}

std::string ExprPrinter::place(const Expr& e) {
  value(e);
  return place_text(e).s;
}

std::string ExprPrinter::operand(const Expr& e) {
  value(e);  // writes the named parts; the text is composed again with its precedence
  return bracket(text(e), 15);
}

std::string ExprPrinter::named(const Expr& e, const std::string& stem) {
  if (is_leaf(e)) return value(e);
  if (const std::string* name = find_value(e)) return *name;
  const std::string v = value(e);
  const std::string name = fresh(stem);
  out_.line(fmt::format("const {} {} = {};", type_of(e), name, v));
  scopes_.back().values[e] = name;
  return name;
}

ExprPrinter::Text ExprPrinter::text(const Expr& e) {
  if (const std::string* name = find_value(e)) return {*name, 15};
  if (is_leaf(e)) return leaf_text(e);
  Text t;
  switch (e.op()) {
    case ExprOp::Load: t = {load_text(e.buffer(), place_text(e.arg(0)).s), 15}; break;
    case ExprOp::Select: t = select_text(e); break;
    case ExprOp::Cast: t = cast_text(e); break;
    case ExprOp::Not:
      t = e.type() == DType::Bool ? Text{"!" + bracket(text(e.arg(0)), 14), 14}
                                  : Text{fmt::format("({})~{}", c_type(e.type()), bracket(text(e.arg(0)), 14)), 14};
      break;
    case ExprOp::Round:
      if (const char* file = storage_include(e.rounded_to())) include(file);
      t = call_text(fmt::format("round_{}", c_storage_type(e.rounded_to())), e.args());
      break;
    case ExprOp::Bits: t = call_text(fmt::format("bits_as<{}>", c_type(e.type())), e.args()); break;
    case ExprOp::Call:
      include("math.cuh");
      t = call_text(has_fast_form(e) ? "fast_" + std::string(info_of(e.fn()).text) : info_of(e.fn()).cuda, e.args());
      break;
    case ExprOp::Read: INGOT_CHECK(false, "a Read reached the printer"); break;
    default: t = binary_text(e);
  }
  if (t.s.size() > kLongText && inline_only_ == 0) {
    reserve(stem_of(e));
    const std::string name = fresh(stem_of(e));
    out_.line(fmt::format("const {} {} = {};", type_of(e), name, t.s));
    scopes_.back().values[e] = name;
    return {name, 15};
  }
  return t;
}

}  // namespace ingot
