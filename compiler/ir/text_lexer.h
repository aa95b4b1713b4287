// A cursor over IR text with line and column for messages. Internal to compiler/ir's parsers.
#pragma once

#include <cctype>
#include <string>
#include <string_view>

#include "compiler/support/result.h"

namespace ingot {

class TextCursor {
 public:
  explicit TextCursor(std::string_view text) : text_(text) {}

  void skip_space();
  bool at_end() { return skip_space(), pos_ >= text_.size(); }
  char peek() { return skip_space(), pos_ < text_.size() ? text_[pos_] : '\0'; }
  /// Consumes `token` if it comes next.
  bool accept(std::string_view token);
  bool accept_word(std::string_view word);
  Status expect(std::string_view token);
  Result<std::string> word();      // identifier: letters, digits, _ . ' and ::
  Result<std::string> quoted();
  Result<double> number();
  /// The text up to one of `stops` outside brackets; not consumed.
  std::string raw_until(std::string_view stops);
  Error error(const std::string& message) const;
  std::string_view rest() const { return text_.substr(pos_); }
  void advance(size_t n) { pos_ += n; }

 private:
  std::string_view text_;
  size_t pos_ = 0;
};

}  // namespace ingot
