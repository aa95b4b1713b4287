// Typed attributes. An operator's attributes are a small struct that lists its fields once with INGOT_FIELDS; printing,
// parsing, equality and hashing follow from the list. AttrsBox holds any such struct by value semantics (immutable, shared).
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/expr/expr.h"
#include "compiler/support/result.h"

namespace ingot {

/// Text of one field value and back. `symbols` resolves the names of dimensions while parsing.
using SymbolScope = std::map<std::string, Expr>;
std::string field_text(int64_t v);
std::string field_text(double v);
std::string field_text(bool v);
std::string field_text(const std::string& v);
std::string field_text(DType v);
std::string field_text(const Expr& v);
template <class T>
std::string field_text(const std::vector<T>& v) {
  std::string text = "[";
  for (size_t i = 0; i < v.size(); ++i) text += (i ? ", " : "") + field_text(static_cast<const T&>(v[i]));
  return text + "]";
}
Status parse_field(std::string_view text, const SymbolScope& symbols, int64_t& v);
Status parse_field(std::string_view text, const SymbolScope& symbols, double& v);
Status parse_field(std::string_view text, const SymbolScope& symbols, bool& v);
Status parse_field(std::string_view text, const SymbolScope& symbols, std::string& v);
Status parse_field(std::string_view text, const SymbolScope& symbols, DType& v);
Status parse_field(std::string_view text, const SymbolScope& symbols, Expr& v);
std::vector<std::string> split_list(std::string_view bracketed);  // "[a, [b, c]]" -> "a", "[b, c]"
template <class T>
Status parse_field(std::string_view text, const SymbolScope& symbols, std::vector<T>& v) {
  v.clear();
  for (const std::string& item : split_list(text)) {
    T value{};
    INGOT_TRY(parse_field(item, symbols, value));
    v.push_back(std::move(value));
  }
  return {};
}
inline Expr map_field(const Expr& e, const std::function<Expr(const Expr&)>& f) { return e.valid() ? f(e) : e; }
template <class T>
T map_field(const T& v, const std::function<Expr(const Expr&)>&) { return v; }
inline std::vector<Expr> map_field(const std::vector<Expr>& v, const std::function<Expr(const Expr&)>& f) {
  std::vector<Expr> out;
  for (const Expr& e : v) out.push_back(map_field(e, f));
  return out;
}

using FieldTexts = std::map<std::string, std::string>;

class AttrsBase {
 public:
  virtual ~AttrsBase() = default;
  virtual std::string text() const = 0;  // "axis=1, keep=true"; fields at their default are left out
  virtual std::shared_ptr<const AttrsBase> mapped(const std::function<Expr(const Expr&)>& f) const = 0;
};

namespace detail {
template <class Visitor, class... Fields>
void visit_each(Visitor& visitor, std::string_view names, Fields&... fields) {
  auto next = [&names] {
    const size_t comma = names.find(',');
    std::string_view name = names.substr(0, comma);
    names = comma == std::string_view::npos ? std::string_view() : names.substr(comma + 1);
    while (!name.empty() && name.front() == ' ') name.remove_prefix(1);
    return name;
  };
  (visitor(next(), fields), ...);
}
}  // namespace detail

#define INGOT_FIELDS(...)                                                                            \
  template <class Visitor>                                                                           \
  void visit_fields(Visitor&& v) { ::ingot::detail::visit_each(v, #__VA_ARGS__, __VA_ARGS__); }       \
  template <class Visitor>                                                                           \
  void visit_fields(Visitor&& v) const { ::ingot::detail::visit_each(v, #__VA_ARGS__, __VA_ARGS__); }

template <class T>
class AttrsModel final : public AttrsBase {
 public:
  explicit AttrsModel(T value) : value(std::move(value)) {}
  std::string text() const override {
    std::map<std::string, std::string, std::less<>> defaults;
    T().visit_fields([&](std::string_view name, const auto& field) { defaults.emplace(name, field_text(field)); });
    std::string out;
    value.visit_fields([&](std::string_view name, const auto& field) {
      const std::string t = field_text(field);
      if (defaults.find(name)->second == t) return;
      out += (out.empty() ? "" : ", ") + std::string(name) + "=" + t;
    });
    return out;
  }
  std::shared_ptr<const AttrsBase> mapped(const std::function<Expr(const Expr&)>& f) const override {
    T copy = value;
    copy.visit_fields([&](std::string_view, auto& field) { field = map_field(field, f); });
    return std::make_shared<AttrsModel<T>>(std::move(copy));
  }
  T value;
};

class AttrsBox {
 public:
  AttrsBox() = default;
  template <class T>
  static AttrsBox of(T value) {
    AttrsBox box;
    box.base_ = std::make_shared<AttrsModel<T>>(std::move(value));
    return box;
  }
  /// The struct inside. A fault of ours when the type differs.
  template <class T>
  const T& as() const {
    auto* model = dynamic_cast<const AttrsModel<T>*>(base_.get());
    INGOT_CHECK(model != nullptr, "attributes of another operator");
    return model->value;
  }
  bool empty() const { return base_ == nullptr; }
  std::string text() const { return base_ ? base_->text() : ""; }
  bool operator==(const AttrsBox& other) const { return base_ == other.base_ || text() == other.text(); }
  AttrsBox mapped(const std::function<Expr(const Expr&)>& f) const {
    AttrsBox box;
    if (base_) box.base_ = base_->mapped(f);
    return box;
  }

 private:
  std::shared_ptr<const AttrsBase> base_;
};

/// OpDef::parse_attrs of an operator whose attributes are a T.
template <class T>
Result<AttrsBox> parse_attrs(const FieldTexts& fields, const SymbolScope& symbols) {
  T value;
  Status status;
  size_t used = 0;
  value.visit_fields([&](std::string_view name, auto& field) {
    auto it = fields.find(std::string(name));
    if (it == fields.end() || !status) return;
    ++used;
    status = parse_field(it->second, symbols, field);
  });
  if (!status) return status.error();
  if (used != fields.size()) return invalid("unknown attribute");
  return AttrsBox::of(std::move(value));
}

}  // namespace ingot
