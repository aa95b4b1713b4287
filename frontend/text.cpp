#include "frontend/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>

namespace ingot {
namespace {

constexpr size_t kLongestName = 160;

// Dimension names end up in generated code as parameters and in the IR's text form as expressions.
constexpr std::string_view kReserved[] = {
    "alignas", "auto",     "bool",    "break",    "case",   "char",     "class",  "const",    "continue",
    "default", "delete",   "do",      "double",   "else",   "enum",     "extern", "false",    "float",
    "for",     "goto",     "graph",   "half",     "if",     "int",      "long",   "max",      "min",
    "new",     "not",      "or",      "and",      "xor",    "register", "return", "select",   "short",
    "signed",  "sizeof",   "static",  "struct",   "switch", "this",     "true",   "typedef",  "union",
    "void",    "unsigned", "virtual", "volatile", "while",  "nan",      "inf",    "template", "typename"};

/// Kernels name their indices and values so ("m", "i0", "c1_0", "acc2", "out0"); a dimension must not be taken for one.
bool is_kernel_name(std::string_view name) {
  const size_t letters = std::min(name.find_first_not_of("abcdefghijklmnopqrstuvwxyz"), name.size());
  if (name.find_first_not_of("0123456789_", letters) != std::string_view::npos) return false;
  const std::string_view word = name.substr(0, letters);
  return letters <= 2 || word == "acc" || word == "out" || word == "image";
}

}  // namespace

std::string quote_name(std::string_view name) {
  std::string text = "\"";
  const bool cut = name.size() > kLongestName;
  const std::string_view head = cut ? name.substr(0, kLongestName / 2) : name;
  auto append = [&text](std::string_view part) {
    for (unsigned char c : part)
      text += c < 0x20 || c == 0x7f ? fmt::format("\\x{:02x}", c) : std::string(1, static_cast<char>(c));
  };
  append(head);
  if (cut) {
    text += "…";
    append(name.substr(name.size() - kLongestName / 2));
  }
  return text + "\"";
}

std::optional<int64_t> parse_int(std::string_view text) {
  int64_t value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::string identifier(std::string_view text) {
  std::string name;
  for (unsigned char c : text.substr(0, kLongestName)) name += c < 0x80 && std::isalnum(c) ? static_cast<char>(c) : '_';
  if (name.empty() || std::isdigit(static_cast<unsigned char>(name[0]))) name.insert(0, "d");
  if (std::find(std::begin(kReserved), std::end(kReserved), name) != std::end(kReserved)) name += "_";
  return name;
}

std::string dimension_name(std::string_view text) {
  const std::string name = identifier(text);
  return is_kernel_name(name) ? name + "_dim" : name;
}

}  // namespace ingot
