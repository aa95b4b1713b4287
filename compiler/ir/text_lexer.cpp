#include "compiler/ir/text_lexer.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>

namespace ingot {

void TextCursor::skip_space() {
  while (pos_ < text_.size()) {
    if (std::isspace(static_cast<unsigned char>(text_[pos_]))) ++pos_;
    else if (text_[pos_] == '#') while (pos_ < text_.size() && text_[pos_] != '\n') ++pos_;
    else break;
  }
}
bool TextCursor::accept(std::string_view token) {
  skip_space();
  if (text_.substr(pos_, token.size()) != token) return false;
  pos_ += token.size();
  return true;
}
bool TextCursor::accept_word(std::string_view word) {
  skip_space();
  if (text_.substr(pos_, word.size()) != word) return false;
  const char next = pos_ + word.size() < text_.size() ? text_[pos_ + word.size()] : ' ';
  if (std::isalnum(static_cast<unsigned char>(next)) || next == '_') return false;
  pos_ += word.size();
  return true;
}
Status TextCursor::expect(std::string_view token) {
  if (accept(token)) return {};
  return error(fmt::format("expected '{}'", token));
}
Result<std::string> TextCursor::word() {
  skip_space();
  const size_t start = pos_;
  while (pos_ < text_.size()) {
    const char c = text_[pos_];
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '_' && c != '.' && c != '\'' && !(c == ':' && text_.substr(pos_, 2) == "::") &&
        !(c == ':' && pos_ > start && text_[pos_ - 1] == ':'))
      break;
    ++pos_;
  }
  if (pos_ == start) return error("expected a name");
  return std::string(text_.substr(start, pos_ - start));
}
Result<std::string> TextCursor::quoted() {
  INGOT_TRY(expect("\""));
  std::string out;
  while (pos_ < text_.size() && text_[pos_] != '"') {
    if (text_[pos_] == '\\' && pos_ + 1 < text_.size()) ++pos_;
    out += text_[pos_++];
  }
  INGOT_TRY(expect("\""));
  return out;
}
Result<double> TextCursor::number() {
  skip_space();
  const std::string rest(text_.substr(pos_, 64));
  char* end = nullptr;
  const double v = std::strtod(rest.c_str(), &end);
  if (end == rest.c_str()) return error("expected a number");
  pos_ += static_cast<size_t>(end - rest.c_str());
  return v;
}
std::string TextCursor::raw_until(std::string_view stops) {
  skip_space();
  const size_t start = pos_;
  int depth = 0;
  bool in_quotes = false;
  for (; pos_ < text_.size(); ++pos_) {
    const char c = text_[pos_];
    if (c == '"') in_quotes = !in_quotes;
    if (in_quotes) continue;
    if (depth == 0 && stops.find(c) != std::string_view::npos) break;
    depth += c == '(' || c == '[';
    depth -= c == ')' || c == ']';
  }
  size_t end = pos_;
  while (end > start && std::isspace(static_cast<unsigned char>(text_[end - 1]))) --end;
  return std::string(text_.substr(start, end - start));
}
Error TextCursor::error(const std::string& message) const {
  int line = 1, column = 1;
  for (size_t i = 0; i < pos_ && i < text_.size(); ++i) {
    ++column;
    if (text_[i] == '\n') ++line, column = 1;
  }
  return invalid(fmt::format("{}:{}: {}", line, column, message));
}

}  // namespace ingot
