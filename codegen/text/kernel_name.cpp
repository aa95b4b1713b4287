#include "codegen/text/kernel_name.h"

#include <cctype>

#include <fmt/format.h>

#include "compiler/support/hash.h"

namespace ingot {

namespace {

constexpr size_t kStemLength = 48;
constexpr size_t kHashDigits = 6;
constexpr size_t kLineWidth = 118;

std::string clean_stem(const std::string& stem) {
  std::string clean;
  for (char c : stem) {
    const auto u = static_cast<unsigned char>(c);
    const char next = std::isalnum(u) ? static_cast<char>(std::tolower(u)) : '_';
    if (next != '_' || (!clean.empty() && clean.back() != '_')) clean += next;
  }
  if (clean.size() > kStemLength)
    clean.resize(clean.rfind('_', kStemLength) == std::string::npos ? kStemLength : clean.rfind('_', kStemLength));
  while (!clean.empty() && clean.back() == '_') clean.pop_back();
  return clean.empty() ? "kernel" : clean;
}

std::string typed(const Buffer& b) {
  std::string shape;
  for (const Expr& d : b.shape) shape += (shape.empty() ? "" : ",") + to_string(d);
  return fmt::format("{} {}[{}]{}", b.name, name_of(b.type), shape, b.is_constant ? " constant" : "");
}

/// "// in   a, b, c", broken into lines at the commas.
std::string list_lines(const char* label, const Kernel& kernel, bool outputs) {
  std::string text, line = fmt::format("// {:<4}", label);
  bool any = false;
  for (const Buffer& b : kernel.buffers) {
    if (b.is_output != outputs) continue;
    const std::string item = " " + typed(b);
    if (any && line.size() + item.size() > kLineWidth) {
      text += line + "\n";
      line = "//     ";
    }
    line += item;
    any = true;
  }
  return any ? text + line + "\n" : text;
}

}  // namespace

std::string kernel_name(const std::string& stem, const std::string& body) {
  return fmt::format("fused_{}_{}", clean_stem(stem), hash_text(body).hex(kHashDigits));
}

std::string header_comment(const Kernel& kernel, const std::string& name, const Schedule& schedule,
                           const std::string& target) {
  std::string text = fmt::format("// {}    {}\n", name, target);
  for (const std::string& line : kernel.header) text += fmt::format("//   {}\n", line);
  text += list_lines("in", kernel, false) + list_lines("out", kernel, true);
  text += fmt::format("// plan {}\n", to_string(schedule));
  text += "// redo ingot check MODEL.onnx --device cuda (compares with the unfused program)\n";
  return text;
}

std::string replace_all(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  return text;
}

}  // namespace ingot
